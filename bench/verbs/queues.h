/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of RDMA writes, prepared once and posted at once. */
#ifndef BENCH_VERBS_QUEUES_H
#define BENCH_VERBS_QUEUES_H

#include "bench/verbs/plans.h"
#include "bench/verbs/rails.h"

/** A list of RDMA writes for one lane, prepared once and posted at once. */
struct queue {
    struct lane *lane;
    size_t num_puts;
    struct ibv_send_wr *wrs; /* chained */
    struct ibv_sge *sges;
    uint64_t *arrived; /* per put: the receiver has it, ns after the start */
    uint64_t posted;   /* the post returned, ns after the start */
    uint64_t completed; /* the last put was acknowledged, ns after the start */
    size_t num_arrived;
};

/**
 * Prepare a queue. Every write has an immediate, so that the receiver's
 * completions say when it arrived; only the last is signalled.
 *
 * @param bytes per put; together they must fit into the lane's buffers
 */
void queue_create(struct queue *queue, struct lane *lane,
                  const uint64_t *bytes, size_t num_puts);
void queue_destroy(struct queue *queue);

/**
 * Start all queues at once and wait for them: a thread per host, as one process
 * would, posts that host's queues in their order, one post for each; the caller
 * looks for arrivals and completions, and sleeps in between.
 *
 * @return ns from the start until all has arrived and is acknowledged
 */
uint64_t queues_run(struct queue *queues, size_t num_queues);

/** The lanes of hosts 0 and 1 on all rails, both ways: the first num_rails lead
 * from host 0 to host 1. */
struct pair {
    unsigned num_rails;
    struct lane *lanes; /* 2 * num_rails */
};

void pair_create(struct pair *pair, struct fabric *fabric, unsigned num_rails,
                 uint64_t bytes, unsigned depth);
void pair_destroy(struct pair *pair);

/**
 * Queues for an exchange in which both hosts send the same lists.
 *
 * @param queues room for 2 * num_rails
 * @param lists  per rail; empty ones get no queue
 * @return how many; the first half is host 0's
 */
size_t pair_queues(struct pair *pair, const struct rail_list *lists,
                   struct queue *queues);

#endif
