/* SPDX-License-Identifier: BSD-3-Clause */
/* The cases of memory that the other process reads or writes itself. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "tests/conformance/cases.h"

/* Memory that can be mapped and memory that cannot take turns in one lane. */
int case_pull(struct node *node)
{
    struct rsched_lane *lane;
    uint64_t pulled = 0;

    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 0,
                               &lane) == 0);
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        struct shape from, to;
        bool sends_mapped = epoch % 3 != 0;

        shape_in(&from, 20000, (int)epoch % 5, sends_mapped);
        shape_in(&to, 20000, (int)epoch % 3, epoch % 2 == 0);
        shape_fill(&from, epoch);
        NODE_CHECK(node, node_load(node, lane, node->rank == 0,
                                   node->rank == 0 ? &from.message
                                                   : &to.message) == 0);
        for (int again = 0; again < 2; again++) {
            NODE_CHECK(node, node_epoch(node, lane, node->rank == 0) == 0);
            if (node->rank == 1) {
                NODE_CHECK(node, shape_compare(node, &from, &to) == 0);
                shape_set(&to, 0);
            } else {
                pulled += sends_mapped ? from.message.bytes : 0;
                NODE_CHECK(node, lane->stats.bytes[RSCHED_WAY_PULL] == pulled);
            }
        }
        shape_fini(&to);
        shape_fini(&from);
    }
    node_drop(node, lane, node->rank == 0);
    return 0;
}

/* @param begun the receiver's copy is under way by then, but not over */
static int abandon_pull(struct node *node, bool begun)
{
    struct rsched_lane *lane;
    struct shape s;

    shape_contiguous(&s, 30000, 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 30000,
                               &lane) == 0);
    NODE_CHECK(node, node_load(node, lane, node->rank == 0, &s.message) == 0);
    NODE_CHECK(node, node_epoch(node, lane, node->rank == 0) == 0);
    if (node->rank == 0) {
        NODE_CHECK(node, node->ops->tx_start(lane) == RSCHED_LANE_PENDING);
        NODE_CHECK(node, node_meet(node) == 0);
        NODE_CHECK(node, !begun || node_meet(node) == 0);
        node->ops->tx_abandon(lane);
        shape_set(&s, 1);
        NODE_CHECK(node, node_meet(node) == 0);
    } else {
        NODE_CHECK(node, node_meet(node) == 0);
        node->ops->rx_start(lane);
        if (begun) {
            NODE_CHECK(node,
                       node->ops->rx_progress(lane) == RSCHED_LANE_PENDING);
            NODE_CHECK(node, node->ops->rx_check(lane) == 0);
            NODE_CHECK(node, node_meet(node) == 0);
        }
        NODE_CHECK(node, node_meet(node) == 0);
        NODE_CHECK(node, node->ops->rx_check(lane) == RSCHED_EPEER);
        /* What has not been begun is not. */
        NODE_CHECK(node, (begun ? node_finish(node, lane, false)
                                : node->ops->rx_progress(lane)) ==
                             RSCHED_EPEER);
    }
    NODE_CHECK(node, node_meet(node) == 0);
    node_drop(node, lane, node->rank == 0);
    shape_fini(&s);
    return 0;
}

/* The sender gives up an epoch that is announced, and writes its buffer. */
int case_pull_abandon(struct node *node)
{
    NODE_CHECK(node, abandon_pull(node, false) == 0);
    /* Processors do it all at once, and so may a driver. */
    NODE_CHECK(node, shape_gpus == NULL || !shape_gpus->late() ||
                         abandon_pull(node, true) == 0);
    return 0;
}

enum {
    SHARED_BYTES = 3000000,
    BLOCK = 3000,
    BLOCKS = SHARED_BYTES / BLOCK,
    EPOCHS = 60 / CONFORMANCE_SANITIZED,
    ROUNDS = 100 * CONFORMANCE_SANITIZED, /* of them, at most */
    /* Longer than one process keeps a core while others want it: two that have
     * come to share one take turns in the midst of a copy. With short ones they
     * may do so between any two of thousands. */
    LONG_BYTES = 24000000,
    LONG_EPOCHS = 1000, /* at most */
};

/* Epochs of a long message, whose layout changes meanwhile. */
static int share_epochs(struct node *node, struct rsched_lane *lane,
                        struct shape *from, struct shape *to)
{
    for (unsigned epoch = 0; epoch < EPOCHS; epoch++) {
        /* Other ends of blocks than the sender's. */
        to->pieces[0].address = to->memory + epoch / 8 * 5;
        shape_fill(from, epoch);
        shape_set(to, 0);
        if (epoch % 8 == 0)
            NODE_CHECK(node, node_load(node, lane, node->rank == 0,
                                       node->rank == 0 ? &from->message
                                                       : &to->message) == 0);
        NODE_CHECK(node, node_epoch(node, lane, node->rank == 0) == 0);
        if (node->rank == 1)
            NODE_CHECK(node, shape_compare(node, from, to) == 0);
    }
    return 0;
}

/* Again until the sender has had a core while the receiver copied, which takes
 * long where others want both cores. */
static int share_until(struct node *node, struct rsched_lane *lane,
                       struct shape *from, struct shape *to, bool helps)
{
    const uint64_t *helped = &lane->stats.bytes[RSCHED_WAY_DIRECT];
    uint64_t epochs = 0;
    bool again = true;

    for (int round = 0; round < ROUNDS && again; round++) {
        NODE_CHECK(node, share_epochs(node, lane, from, to) == 0);
        epochs += EPOCHS;
        if (node->rank == 1) {
            NODE_CHECK(node, node_hear(node, 0, &again, sizeof(again)) == 0);
            continue;
        }
        again = helps && *helped == 0;
        NODE_CHECK(node, node_tell(node, 1, &again, sizeof(again)) == 0);
    }
    if (node->rank == 0) {
        printf("the sender copied %llu bytes of %llu\n",
               (unsigned long long)*helped,
               (unsigned long long)epochs * from->message.bytes);
        NODE_CHECK(node, bytes_once(lane) == epochs * from->message.bytes);
        NODE_CHECK(node, (*helped > 0) == helps);
    }
    return 0;
}

/* @param incoming bytes that the sender and the receiver are said to get */
static int share(struct node *node, const uint64_t incoming[2], bool helps)
{
    struct rsched_lane *lane;
    struct shape from, to;

    shape_contiguous(&from, BLOCKS * BLOCK, 1);
    shape_contiguous(&to, 2 * BLOCKS * BLOCK, 3);
    to.message.bytes = from.message.bytes;
    from.message.incoming = incoming[0];
    to.message.incoming = incoming[1];
    to.pieces[0] = (struct rsched_piece){to.memory, BLOCK / 2, 2 * BLOCKS,
                                         BLOCK - 7};
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0,
                               from.message.bytes, &lane) == 0);
    NODE_CHECK(node, share_until(node, lane, &from, &to, helps) == 0);
    node_drop(node, lane, node->rank == 0);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

/* Both copy when the sender has at most half as much to copy itself. */
int case_share(struct node *node)
{
    const uint64_t half = SHARED_BYTES / 2;

    NODE_CHECK(node, share(node, (uint64_t[]){0, 0}, true) == 0);
    NODE_CHECK(node, share(node, (uint64_t[]){half, 2 * half}, true) == 0);
    NODE_CHECK(node,
               share(node, (uint64_t[]){half + 1, 2 * half}, false) == 0);
    return 0;
}

/* Memory in which nobody has written yet: its pages come to be where they are
 * written to, so the receiver copies alone, but for a last chunk in a page in which
 * the one before ends; from the next epoch on both do. */
static int share_untouched(struct node *node, struct rsched_lane *lane,
                           struct shape *from, struct shape *to)
{
    const uint64_t *helped = &lane->stats.bytes[RSCHED_WAY_DIRECT];
    uint64_t before = *helped;
    bool again = true;

    NODE_CHECK(node, node_load(node, lane, node->rank == 0,
                               node->rank == 0 ? &from->message
                                               : &to->message) == 0);
    NODE_CHECK(node, node_epoch(node, lane, node->rank == 0) == 0);
    NODE_CHECK(node, *helped - before < (uint64_t)sysconf(_SC_PAGESIZE));
    before = *helped;
    for (int epoch = 0; epoch < LONG_EPOCHS && again; epoch++) {
        NODE_CHECK(node, node_epoch(node, lane, node->rank == 0) == 0);
        again = *helped == before;
        NODE_CHECK(node, (node->rank == 0
                              ? node_tell(node, 1, &again, sizeof(again))
                              : node_hear(node, 0, &again, sizeof(again))) == 0);
    }
    NODE_CHECK(node, !again);
    return node->rank == 0 ? 0 : shape_compare(node, from, to);
}

int case_share_untouched(struct node *node)
{
    struct rsched_lane *lane;
    struct shape from;

    shape_contiguous(&from, LONG_BYTES, 1);
    shape_fill(&from, 5);
    from.message.incoming = 0;
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0,
                               from.message.bytes, &lane) == 0);
    for (int buffer = 0; buffer < 4; buffer++) {
        struct shape to;

        shape_contiguous(&to, LONG_BYTES, 3);
        NODE_CHECK(node, share_untouched(node, lane, &from, &to) == 0);
        shape_fini(&to);
    }
    node_drop(node, lane, node->rank == 0);
    shape_fini(&from);
    return 0;
}

/* A sender that dies has written all that it announced. */
int case_pull_death(struct node *node)
{
    struct rsched_lane *lane;
    struct shape s;

    if (node->threads)
        return 0;
    shape_contiguous(&s, 30000, 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 1, 30000,
                               &lane) == 0);
    NODE_CHECK(node, node_load(node, lane, node->rank == 1, &s.message) == 0);
    if (node->rank == 1) {
        shape_set(&s, 9);
        NODE_CHECK(node, node->ops->tx_start(lane) >= 0);
        raise(SIGKILL);
    }
    while (node->ops->check(node->connections[1]) == 0)
        usleep(100);
    NODE_CHECK(node, node_epoch(node, lane, false) == 0);
    NODE_CHECK(node, s.memory[0] == 9 && s.memory[29999] == 9);
    node_drop(node, lane, false);
    shape_fini(&s);
    return 0;
}
