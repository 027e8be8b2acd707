/* SPDX-License-Identifier: BSD-3-Clause */
/* Two queue pairs of a softnic that are connected, each driven by the queue of
 * engines/mlx5, and memory for them. */
#ifndef TESTS_PAIR_H
#define TESTS_PAIR_H

#include <stdio.h>
#include <stdlib.h>

#include <rsched/error.h>

#include "engines/mlx5/gpu.h"
#include "engines/mlx5/queue.h"
#include "engines/mlx5/rq.h"
#include "engines/softnic/softnic.h"

enum { PAIR_SEGMENTS = 63 };

/** Bytes inline as the driver grants them of what the verbs engine asks for. */
static inline uint32_t pair_inline(void)
{
    return rs_softnic_granted_inline(16, RS_GPU_WORDS_INLINE);
}

/* One side. */
struct end {
    struct rs_softnic *nic;
    struct rs_softnic_qp *qp;
    struct rs_mlx5_memory memory;
    struct rs_mlx5_queue queue;
    struct rs_rq rq;
    struct rs_cq receive_cq;
    uint32_t domain;
};

struct pair {
    struct rs_softnic *nic;
    struct end a, b;
};

struct pair_options {
    struct rs_softnic_options nic;
    uint32_t blocks;  /* of each send queue */
    uint32_t receives; /* 0: none */
    uint32_t cqe_bytes; /* 0: 64 */
    bool recur;
};

/* For what a test cannot go on without, in any thread. */
#define PAIR_NEEDS(condition)                                                \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__,          \
                    #condition, rsched_last_error());                        \
            abort();                                                         \
        }                                                                    \
    } while (0)

struct rs_mlx5_memory pair_memory(const struct rs_softnic_qp *qp);

void end_init(struct end *end, struct rs_softnic *nic, uint32_t domain,
              const struct pair_options *options);
void end_fini(struct end *end);

void pair_init(struct pair *pair, const struct pair_options *options);
void pair_fini(struct pair *pair);

/** Reset both queue pairs and their queues, as after a failure. */
void pair_reset(struct pair *pair);

/** Register memory of an end for all that its domain may want. */
uint32_t end_register(struct end *end, void *base, uint64_t bytes);

struct rs_rdma_list *end_list(struct end *end, const struct rs_rdma_op *ops,
                              uint32_t num_ops);

/** Post and ring. Requires room. */
void end_start(struct end *end, struct rs_rdma_list *list, uint64_t epoch,
               uint64_t id);
/** Step the nic until a completion is there. @return whether one came */
bool end_finish(struct end *end, struct rs_rdma_done *done);

#endif
