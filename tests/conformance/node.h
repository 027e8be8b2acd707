/* SPDX-License-Identifier: BSD-3-Clause */
/* A node: an engine instance in a thread or process of its own, connected with
 * all the others. */
#ifndef TESTS_NODE_H
#define TESTS_NODE_H

#include <stdio.h>

#include <rsched/engine.h>

#include "tests/runtime/mesh.h"

enum { NODE_MAX = 4, NODE_MAX_UNATTACHED = 16 };

/* The lanes with a peer. */
struct node_lanes {
    unsigned num_tx, num_rx; /* made so far: they go round the rails */
    /* rx lanes whose tx lanes' replies have not been heard, oldest first */
    struct rsched_lane *unattached[NODE_MAX_UNATTACHED];
    unsigned num_unattached;
};

struct node {
    const struct rsched_engine_ops *ops;
    struct rsched_engine_env env;
    struct rsched_engine *engine;
    struct rsched_connection *connections[NODE_MAX]; /* with itself too */
    struct node_lanes lanes[NODE_MAX];
    struct mesh_end *end;
    int rank, num_ranks;
    bool threads;
    unsigned missed_wakes; /* sleeps that only their limit ended */
};

struct node_case {
    const char *name;
    int (*run)(struct node *node);
    int num_ranks;
    int memory; /* for the caller of node_run() */
    bool within_node; /* about memory that processes share */
};

/** The engines that the cases run over; NULL: no more. What defines it is
 * linked with the cases. */
const struct rsched_engine_ops *node_engine_at(size_t index);
/** Whether what was started leaves although the process dies at once. A device
 * in software that is part of the process dies with it. */
bool node_device_outlives_process(void);

/** Of the thread that runs a case. */
extern _Thread_local int node_rank;

/** @return whether the engine works here; else the reason is the last error */
bool node_engine_opens(const struct rsched_engine_ops *ops);

/** Run a case; with `tiny` slots of the least size. @return 0 for success */
int node_run(const struct rsched_engine_ops *ops, const struct node_case *c,
             bool threads, bool tiny);

/** A number below `below`, at least 1. */
uint64_t node_draw(unsigned *seed, uint64_t below);

/** Make an end of an edge; the peer makes the other one. An rx lane is attached
 * when it is first loaded. */
int node_lane(struct node *node, int peer, bool tx, uint64_t bytes,
              struct rsched_lane **lane);
int node_self_lanes(struct node *node, uint64_t bytes, struct rsched_lane **tx,
                    struct rsched_lane **rx);
void node_drop(struct node *node, struct rsched_lane *lane, bool tx);
int node_load(struct node *node, struct rsched_lane *lane, bool tx,
              const struct rsched_message *message);

/** Go on until the lane is done. @return 0 or an error */
int node_finish(struct node *node, struct rsched_lane *lane, bool tx);
/** The same, but sleep all the time; counts missed_wakes. */
int node_sleep_until_done(struct node *node, struct rsched_lane *lane, bool tx);
/** The same for a lane that sends and one that receives, of which both go on meanwhile, as those
 * of an exchange do. */
int node_sleep_until_both(struct node *node, struct rsched_lane *out, struct rsched_lane *in);
/** Check the lane until it says that the other end has been abandoned: word of
 * that may be on its way. @return RSCHED_EPEER, or 0: it never came */
int node_check_until(struct node *node, struct rsched_lane *lane, bool tx);
/** Let the others run. */
void node_yield(void);
/** Start and finish. */
int node_epoch(struct node *node, struct rsched_lane *lane, bool tx);

/** Start a tx lane whose peer does nothing meanwhile, and go on as far as it
 * gets: where devices copy, a start alone only begins. @return as tx_start */
int node_start_alone(struct node *node, struct rsched_lane *lane);

/** Out of band. @return 0, -1: the peer is gone */
int node_tell(struct node *node, int peer, const void *data, size_t bytes);
int node_hear(struct node *node, int peer, void *data, size_t bytes);
int node_meet(struct node *node);

#define NODE_FAIL(node, ...)                                                 \
    (fprintf(stderr, "%s:%d: rank %d: ", __FILE__, __LINE__, (node)->rank),  \
     fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), 1)

#define NODE_CHECK(node, condition)                                          \
    do {                                                                     \
        if (!(condition))                                                    \
            return NODE_FAIL(node, "%s (%s)", #condition,                    \
                             rsched_last_error());                           \
    } while (0)

#endif
