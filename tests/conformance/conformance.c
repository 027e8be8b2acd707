/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every engine must do, through engine.h only:
 *
 *     [RSCHED_CMA=1] [CONFORMANCE_DIVISOR=N]
 *     conformance threads|processes [ENGINE [CASE]]
 *     conformance names ENGINE           of the cases that would run
 *
 * Each case runs with several instances of the engine, in threads of this
 * process or in processes of their own, with usual and with tiny slots, and
 * with messages in ordinary memory and in memory that the peers can map. An
 * engine that does not open here is skipped with its reason. All engines run the
 * same cases equally often, but for those about memory that processes share;
 * the cases of which only repetition finds faults (litmus, sleep, wake) repeat N
 * times less often where that would take too long, which is said at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/engine.h>
#include <rsched/memory.h>

#include "librsched/base/clock.h"
#include "tests/conformance/cases.h"
#include "tests/runtime/ranks.h"

#define SECOND_PS UINT64_C(1000000000000)

const uint64_t case_sizes[CASE_SIZES] = {
    1,    7,     8,     47,    48,    49,     63,     64,     65,
    4096, 32767, 32768, 32769, 65536, 262144, 300001, 1500000};

/* Through two slots of one line the longest messages would take long. */
static bool is_tiny(const struct node *node)
{
    return node->env.chunk_bytes < 100;
}

static int num_sizes(const struct node *node)
{
    return is_tiny(node) ? 11 : CASE_SIZES;
}

uint64_t bytes_once(const struct rsched_lane *lane)
{
    const uint64_t *bytes = lane->stats.bytes;

    if (lane->ops->gpus)
        return bytes[RSCHED_WAY_CUDA_IPC];
    return shape_mapped ? bytes[RSCHED_WAY_PULL] + bytes[RSCHED_WAY_DIRECT]
                        : bytes[RSCHED_WAY_CMA];
}

static uint64_t bytes_of_all_ways(const struct rsched_lane *lane)
{
    uint64_t bytes = 0;

    for (int way = 0; way < RSCHED_NUM_WAYS; way++)
        bytes += lane->stats.bytes[way];
    return bytes;
}

int repeat_message(struct node *node, uint64_t bytes, int epochs,
                   int unaligned)
{
    struct shape mine, other;
    struct rsched_lane *lane;
    int result = 0;

    shape_contiguous(&mine, bytes, node->rank == 0 ? unaligned : 2 * unaligned);
    shape_contiguous(&other, bytes, node->rank == 1 ? unaligned : 2 * unaligned);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, bytes,
                               &lane) == 0);
    NODE_CHECK(node, node_load(node, lane, node->rank == 0, &mine.message) == 0);
    for (int epoch = 0; epoch < epochs && result == 0; epoch++) {
        if (node->rank == 0) {
            shape_fill(&mine, (uint64_t)epoch);
            result = node_epoch(node, lane, true);
        } else {
            shape_set(&mine, 0);
            result = node_epoch(node, lane, false);
            shape_fill(&other, (uint64_t)epoch);
            result = result != 0 ? result : shape_compare(node, &other, &mine);
        }
    }
    if (result == 0 && node->rank == 0 && node->ops->within_node)
        NODE_CHECK(node,
                   bytes_once(lane) ==
                       (shape_is_pulled(bytes) ? bytes * (uint64_t)epochs : 0));
    if (result == 0 && node->rank == 0 && node->ops->gpus)
        NODE_CHECK(node, bytes_of_all_ways(lane) == bytes * (uint64_t)epochs);
    node_drop(node, lane, node->rank == 0);
    shape_fini(&mine);
    shape_fini(&other);
    return result;
}

static int case_repeat(struct node *node)
{
    int result = 0;

    uint64_t much = is_tiny(node) ? 10000 : 100000;

    for (int i = 0; i < num_sizes(node) && result == 0; i++)
        result = repeat_message(node, case_sizes[i],
                                case_sizes[i] > much ? 4 : 40, 0);
    return result;
}

static int case_unaligned(struct node *node)
{
    int result = 0;

    for (int i = 0; i < num_sizes(node) && result == 0; i++)
        result = repeat_message(node, case_sizes[i], 2, 1 + i % 7);
    return result;
}

/* The second rank knows the first's shapes: both draw the same numbers. */
static int layout(struct node *node, unsigned seed, bool self)
{
    unsigned most = is_tiny(node) ? 20000 : 200000;
    uint64_t bytes = 1 + node_draw(&seed, seed % 3 == 0 ? most : 2000);
    struct rsched_lane *tx = NULL, *rx = NULL;
    struct shape from, to;
    int result = 0;

    shape_random(&from, bytes, &seed, true);
    shape_random(&to, bytes, &seed, false);
    if (self) {
        NODE_CHECK(node, node_self_lanes(node, bytes, &tx, &rx) == 0);
    } else {
        NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, bytes,
                                   node->rank == 0 ? &tx : &rx) == 0);
    }
    if (tx != NULL)
        NODE_CHECK(node, node_load(node, tx, true, &from.message) == 0);
    if (rx != NULL)
        NODE_CHECK(node, node_load(node, rx, false, &to.message) == 0);
    for (unsigned epoch = 0; epoch < 3 && result == 0; epoch++) {
        shape_set(&to, 0);
        shape_fill(&from, epoch + seed);
        if (rx != NULL && tx != NULL)
            NODE_CHECK(node, rx->passive ||
                                 node->ops->rx_start(rx) == RSCHED_LANE_PENDING);
        if (tx != NULL)
            result = node_epoch(node, tx, true);
        if (rx != NULL && tx == NULL)
            result = node_epoch(node, rx, false);
        if (rx != NULL && tx != NULL && !rx->passive)
            result = node_finish(node, rx, false);
        if (rx != NULL && result == 0)
            result = shape_compare(node, &from, &to);
    }
    if (tx != NULL)
        node_drop(node, tx, true);
    if (rx != NULL)
        node_drop(node, rx, false);
    shape_fini(&from);
    shape_fini(&to);
    return result;
}

/* With GPUs a case runs three times as often, and each time takes a third. */
static int layouts(struct node *node, bool self)
{
    unsigned num = node->ops->gpus ? 20 : 60;
    unsigned first = node->ops->gpus ? 20 * (shape_gpu_ranks - 1) : 0;
    int result = 0;

    for (unsigned i = 1; i <= num && result == 0; i++)
        result = layout(node, first + i, self);
    return result;
}

static int case_layouts(struct node *node)
{
    return layouts(node, false);
}

static int case_self(struct node *node)
{
    return node->ops->within_node ? layouts(node, true) : 0;
}

enum { EDGES = 3, NUM_LANES = NODE_MAX * EDGES };

static uint64_t edge_bytes(int edge)
{
    return 8u << (4 * edge);
}

/* One epoch of many lanes; progress goes round. */
static int run_lanes(struct node *node, struct rsched_lane **tx,
                     struct rsched_lane **rx)
{
    bool tx_done[NUM_LANES], rx_done[NUM_LANES];
    int left = 0;

    for (int i = 0; i < NUM_LANES; i++) {
        tx_done[i] = tx[i] == NULL || node->ops->tx_start(tx[i]) != 0;
        rx_done[i] = rx[i] == NULL || node->ops->rx_start(rx[i]) != 0;
        left += !tx_done[i] + !rx_done[i];
    }
    while (left > 0) {
        left = 0;
        for (int i = 0; i < NUM_LANES; i++) {
            tx_done[i] = tx_done[i] || node->ops->tx_progress(tx[i]) != 0;
            rx_done[i] = rx_done[i] || node->ops->rx_progress(rx[i]) != 0;
            left += !tx_done[i] + !rx_done[i];
        }
        node_yield();
    }
    return 0;
}

/* All ranks to all, several edges for each pair. */
static int case_many_peers(struct node *node)
{
    struct rsched_lane *tx[NUM_LANES] = {0}, *rx[NUM_LANES] = {0};
    struct shape from[NUM_LANES] = {0}, to[NUM_LANES] = {0};

    for (int i = 0; i < node->num_ranks * EDGES; i++) {
        if (i / EDGES == node->rank)
            continue;
        shape_contiguous(&from[i], edge_bytes(i % EDGES), 0);
        shape_contiguous(&to[i], edge_bytes(i % EDGES), 0);
        NODE_CHECK(node, node_lane(node, i / EDGES, false,
                                   edge_bytes(i % EDGES), &rx[i]) == 0);
    }
    for (int i = 0; i < node->num_ranks * EDGES; i++) {
        if (i / EDGES == node->rank)
            continue;
        NODE_CHECK(node, node_lane(node, i / EDGES, true, edge_bytes(i % EDGES),
                                   &tx[i]) == 0);
        NODE_CHECK(node, node_load(node, tx[i], true, &from[i].message) == 0);
    }
    for (int i = 0; i < NUM_LANES; i++) {
        if (rx[i] != NULL)
            NODE_CHECK(node,
                       node_load(node, rx[i], false, &to[i].message) == 0);
    }
    for (int epoch = 0; epoch < 30; epoch++) {
        for (int i = 0; i < NUM_LANES; i++) {
            if (tx[i] != NULL)
                shape_set(&from[i], epoch + node->rank * 16 + i % EDGES);
        }
        NODE_CHECK(node, run_lanes(node, tx, rx) == 0);
        for (int i = 0; i < NUM_LANES; i++) {
            shape_pull(&to[i]);
            for (uint64_t b = 0; rx[i] != NULL && b < to[i].message.bytes; b++)
                NODE_CHECK(node, to[i].memory[b] ==
                                     (char)(epoch + i / EDGES * 16 + i % EDGES));
        }
    }
    for (int i = 0; i < NUM_LANES; i++) {
        if (tx[i] != NULL)
            node_drop(node, tx[i], true);
        if (rx[i] != NULL)
            node_drop(node, rx[i], false);
        shape_fini(&from[i]);
        shape_fini(&to[i]);
    }
    return 0;
}

/* Go on until the lane has been pending for a while, in ms: a device may still be
 * reading what was sent, and `slowly` gives it all the time that it needs. Otherwise
 * the lane is taken for stuck, which may be too soon and does no harm. */
static int until_stuck(struct node *node, struct rsched_lane *lane, int status,
                       bool slowly)
{
    for (int i = 0; i < (slowly ? 10000 : 20); i++) {
        if (status != RSCHED_LANE_PENDING)
            break;
        usleep(1000);
        status = node->ops->tx_progress(lane);
    }
    return status;
}

/* The receiver is late: the sender gets one epoch ahead, but not without end,
 * and nothing is lost or mixed up. */
static int ahead(struct node *node, uint64_t bytes)
{
    enum { LIMIT = 10000 };
    struct rsched_lane *lane;
    struct shape s;
    int epochs = 0, status = RSCHED_LANE_DONE;

    shape_contiguous(&s, bytes, 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, bytes,
                               &lane) == 0);
    NODE_CHECK(node, node_load(node, lane, node->rank == 0, &s.message) == 0);
    if (node->rank == 0) {
        /* At least: epoch 1 while 0 is not taken. */
        int least = bytes <= node->env.chunk_bytes ? 3 : 1;

        while (status == RSCHED_LANE_DONE && epochs < LIMIT) {
            shape_set(&s, epochs++);
            status = until_stuck(node, lane, node->ops->tx_start(lane),
                                 epochs < least);
        }
        NODE_CHECK(node, status == RSCHED_LANE_PENDING);
        NODE_CHECK(node, epochs >= least);
        /* It has waited once, and looked often. */
        NODE_CHECK(node, lane->stats.stalls <= 1);
        NODE_CHECK(node, node_tell(node, 1, &epochs, sizeof(epochs)) == 0);
        NODE_CHECK(node, node_finish(node, lane, true) == 0);
    } else {
        NODE_CHECK(node, node_hear(node, 0, &epochs, sizeof(epochs)) == 0);
        for (int i = 0; i < epochs; i++) {
            shape_set(&s, -1);
            NODE_CHECK(node, node_epoch(node, lane, false) == 0);
            shape_pull(&s);
            for (uint64_t b = 0; b < bytes; b++)
                NODE_CHECK(node, s.memory[b] == (char)i);
        }
        node->ops->rx_start(lane);
        NODE_CHECK(node, node->ops->rx_progress(lane) == RSCHED_LANE_PENDING);
    }
    node_drop(node, lane, node->rank == 0);
    shape_fini(&s);
    return 0;
}

static int case_ahead(struct node *node)
{
    const uint64_t ahead_sizes[] = {1, 8, 48, 64, 4096, 32768, 200000, 2000000};
    int result = 0;

    for (size_t i = 0; i < (is_tiny(node) ? 6 : 8) && result == 0; i++)
        result = ahead(node, ahead_sizes[i]);
    return result;
}

static int case_variable(struct node *node)
{
    struct rsched_lane *lane;
    unsigned seed = 99;
    int num = node->ops->within_node ? CASE_SIZES : num_sizes(node);

    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 0,
                               &lane) == 0);
    for (uint64_t epoch = 0; epoch < 60; epoch++) {
        uint64_t bytes = case_sizes[node_draw(&seed, (uint64_t)num - 2)];
        struct shape from, to;

        shape_contiguous(&from, bytes, 3);
        shape_fill(&from, epoch);
        shape_contiguous(&to, bytes, 1);
        NODE_CHECK(node, node_load(node, lane, node->rank == 0,
                                   node->rank == 0 ? &from.message
                                                   : &to.message) == 0);
        NODE_CHECK(node, node_epoch(node, lane, node->rank == 0) == 0);
        if (node->rank == 1)
            NODE_CHECK(node, shape_compare(node, &from, &to) == 0);
        shape_fini(&from);
        shape_fini(&to);
    }
    node_drop(node, lane, node->rank == 0);
    return 0;
}

/* How often what only repetition finds is repeated: the same for all engines,
 * unless CONFORMANCE_DIVISOR says that it would take too long here. A sanitizer
 * sees a race without meeting it (CONFORMANCE_SANITIZED divides once more). */
static uint64_t rounds(uint64_t all)
{
    const char *divisor = getenv("CONFORMANCE_DIVISOR");
    uint64_t by = divisor != NULL ? strtoull(divisor, NULL, 10) : 1;

    by *= CONFORMANCE_SANITIZED;
    return by > 0 && by < all ? all / by : 1;
}

/* Both ways at once, the sender as far ahead as it gets: each word of a message
 * holds its epoch, so that a slot that is read too early or written too early
 * shows. */
static int litmus(struct node *node, uint64_t bytes, uint64_t epochs)
{
    struct rsched_lane *out, *in;
    struct shape from, to;
    uint64_t sent = 0, got = 0;
    bool sending = false, taking = false;

    shape_contiguous(&from, bytes, 0);
    shape_contiguous(&to, bytes, 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, bytes,
                               node->rank == 0 ? &out : &in) == 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 1, bytes,
                               node->rank == 1 ? &out : &in) == 0);
    NODE_CHECK(node, node_load(node, out, true, &from.message) == 0);
    NODE_CHECK(node, node_load(node, in, false, &to.message) == 0);
    for (uint64_t turn = 0; sent < epochs || got < epochs; turn++) {
        if (!sending && sent < epochs) {
            for (uint64_t i = 0; i < bytes / 8; i++)
                ((uint64_t *)(void *)from.memory)[i] = sent;
            shape_push(&from);
            sending = node->ops->tx_start(out) == RSCHED_LANE_PENDING;
            sent += !sending;
        } else if (sending) {
            sending = node->ops->tx_progress(out) == RSCHED_LANE_PENDING;
            sent += !sending;
        }
        if (!taking && got < epochs)
            node->ops->rx_start(in);
        taking = got < epochs &&
                 node->ops->rx_progress(in) == RSCHED_LANE_PENDING;
        if (!taking && got < epochs) {
            shape_pull(&to);
            for (uint64_t i = 0; i < bytes / 8; i++)
                NODE_CHECK(node, ((uint64_t *)(void *)to.memory)[i] == got);
            got++;
        }
        if (turn % 64 == 63)
            node_yield();
    }
    node_drop(node, out, true);
    node_drop(node, in, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

static int case_litmus(struct node *node)
{
    const uint64_t words[] = {8, 48, 56, 64, 128, 200, 1024};
    int result = 0;

    for (int i = 0; i < 7 && result == 0; i++)
        result = litmus(node, words[i],
                        rounds(is_tiny(node) ? 5000 : 20000));
    return result;
}

/* A wake-up may be missed, and costs a whole sleep then; it must be rare. */
enum { MAX_MISSED_WAKES = 20 };

static int case_sleep(struct node *node)
{
    struct rsched_lane *out, *in;
    struct shape from, to;
    unsigned seed = 17u + (unsigned)node->rank;

    shape_contiguous(&from, 8, 0);
    shape_contiguous(&to, 8, 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 8,
                               node->rank == 0 ? &out : &in) == 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 1, 8,
                               node->rank == 1 ? &out : &in) == 0);
    NODE_CHECK(node, node_load(node, out, true, &from.message) == 0);
    NODE_CHECK(node, node_load(node, in, false, &to.message) == 0);
    for (uint64_t epoch = 0; epoch < rounds(10000); epoch++) {
        memcpy(from.memory, &epoch, sizeof(epoch));
        shape_push(&from);
        if (node_draw(&seed, 16) == 0)
            usleep((useconds_t)node_draw(&seed, 100));
        for (uint64_t i = node_draw(&seed, 2000); i > 0; i--)
            __asm__ volatile("" ::: "memory");
        node->ops->rx_start(in);
        NODE_CHECK(node, node->ops->tx_start(out) >= 0);
        /* A receiver may have to go on before it can say that its slots are free. */
        NODE_CHECK(node, node_sleep_until_both(node, out, in) == 0);
        shape_pull(&to);
        NODE_CHECK(node, memcmp(to.memory, &epoch, sizeof(epoch)) == 0);
    }
    NODE_CHECK(node, node->missed_wakes <= MAX_MISSED_WAKES);
    node_drop(node, out, true);
    node_drop(node, in, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

/* The moment in which a wake-up can be lost: rank 1 falls asleep just when rank
 * 0, which spins and so is in step with it, writes. */
static int case_wake(struct node *node)
{
    struct rsched_lane *out, *in;
    struct shape from, to;
    unsigned seed = 3u + (unsigned)node->rank;

    shape_contiguous(&from, 8, 0);
    shape_contiguous(&to, 8, 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 8,
                               node->rank == 0 ? &out : &in) == 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 1, 8,
                               node->rank == 1 ? &out : &in) == 0);
    NODE_CHECK(node, node_load(node, out, true, &from.message) == 0);
    NODE_CHECK(node, node_load(node, in, false, &to.message) == 0);
    for (uint64_t epoch = 0; epoch < rounds(30000); epoch++) {
        node->ops->rx_start(in);
        for (uint64_t i = node_draw(&seed, 1500); i > 0; i--)
            __asm__ volatile("" ::: "memory");
        if (node->rank == 0) {
            int sent = node->ops->tx_start(out);

            NODE_CHECK(node, sent >= 0);
            for (int i = 1; node->ops->rx_progress(in) == 0; i++) {
                if (sent == RSCHED_LANE_PENDING)
                    sent = node->ops->tx_progress(out);
                if (i % 4096 == 0)
                    node_yield();
            }
        } else {
            NODE_CHECK(node, node_sleep_until_done(node, in, false) == 0);
            NODE_CHECK(node, node_epoch(node, out, true) == 0);
        }
    }
    NODE_CHECK(node, node->missed_wakes <= MAX_MISSED_WAKES);
    node_drop(node, out, true);
    node_drop(node, in, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

/* Whether a sender may be ahead of the receiver, and no receiver is needed for
 * its epoch to complete: not if its memory is read. */
enum {
    ANY_MEMORY,
    ORDINARY_MEMORY,
    MAPPED_MEMORY,
    READ_MEMORY /* mapped, or a GPU's that the receiver's reads */
};

static const struct node_case cases[] = {
    {"repeat", case_repeat, 2, ANY_MEMORY, false},
    {"unaligned", case_unaligned, 2, ANY_MEMORY, false},
    {"layouts", case_layouts, 2, ANY_MEMORY, false},
    {"self", case_self, 1, ANY_MEMORY, false},
    {"many-peers", case_many_peers, NODE_MAX, ANY_MEMORY, false},
    {"ahead", case_ahead, 2, ORDINARY_MEMORY, false},
    {"variable", case_variable, 2, ANY_MEMORY, false},
    {"wrong", case_wrong, 2, ANY_MEMORY, false},
    {"recreate", case_recreate, 2, ANY_MEMORY, false},
    {"late-writer", case_late_writer, 2, ORDINARY_MEMORY, false},
    {"abandon", case_abandon, 2, ORDINARY_MEMORY, false},
    {"garbage", case_garbage, 2, ANY_MEMORY, false},
    {"litmus", case_litmus, 2, ANY_MEMORY, false},
    {"sleep", case_sleep, 2, ORDINARY_MEMORY, false},
    {"wake", case_wake, 2, ORDINARY_MEMORY, false},
    {"death", case_death, 2, ORDINARY_MEMORY, false},
    {"pull", case_pull, 2, ORDINARY_MEMORY, true},
    {"share", case_share, 2, MAPPED_MEMORY, true},
    {"share-untouched", case_share_untouched, 2, MAPPED_MEMORY, true},
    {"pull-abandon", case_pull_abandon, 2, READ_MEMORY, true},
    {"pull-death", case_pull_death, 2, MAPPED_MEMORY, true},
};

/* Whether a case goes with the memory of the day. */
static bool fits(const struct rsched_engine_ops *ops, const struct node_case *c)
{
    if (ops->gpus && c->memory == READ_MEMORY) /* of rank 0 */
        return shape_gpus->pulled && (shape_gpu_ranks & 1) != 0;
    if (ops->gpus)
        return !c->within_node && c->memory != MAPPED_MEMORY &&
               (c->memory == ANY_MEMORY || !shape_gpus->pulled);
    if (!ops->within_node && (shape_mapped || c->within_node))
        return false;
    if (c->memory == READ_MEMORY)
        return shape_mapped && !shape_cma;
    return c->memory != (shape_mapped ? ORDINARY_MEMORY : MAPPED_MEMORY) &&
           (!shape_cma || (!shape_mapped && c->memory != ORDINARY_MEMORY));
}

static bool names; /* nothing runs */

/* With usual and tiny slots. */
static int run_sizes(const struct rsched_engine_ops *ops,
                     const struct node_case *c, bool threads, int *passed)
{
    for (int tiny = 0; tiny < 2 && fits(ops, c); tiny++) {
        if (!names && node_run(ops, c, threads, tiny != 0) != 0) {
            fprintf(stderr, "FAILED: %s: %s%s%s (GPUs %u)\n", ops->name,
                    c->name, tiny ? " (tiny slots)" : "",
                    shape_mapped ? " (mapped memory)" : "", shape_gpu_ranks);
            return 1;
        }
        (*passed)++;
    }
    return 0;
}

/* With ordinary memory and with such that can be mapped; or with that of GPUs
 * at either end and at both. */
static int run_case(const struct rsched_engine_ops *ops,
                    const struct node_case *c, bool threads, int *passed)
{
    uint64_t began_ps = rs_clock_now();
    int before = *passed, error = 0;

    for (shape_gpu_ranks = 1; ops->gpus && shape_gpu_ranks < 4 && error == 0;
         shape_gpu_ranks++)
        error = run_sizes(ops, c, threads, passed);
    for (int mapped = 0; !ops->gpus && mapped < 2 && error == 0; mapped++) {
        shape_mapped = mapped != 0;
        error = run_sizes(ops, c, threads, passed);
    }
    if (names && *passed > before)
        printf("%s\n", c->name);
    else if (*passed > before)
        printf("%-20s %4llu s\n", c->name,
               (unsigned long long)((rs_clock_now() - began_ps) / SECOND_PS));
    return error;
}

int main(int argc, char **argv)
{
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    const char *engine = argc > 2 ? argv[2] : NULL;
    const char *only = argc > 3 ? argv[3] : NULL;
    int passed = 0, skipped = 0;

    names = argc > 2 && strcmp(argv[1], "names") == 0;
    shape_cma = getenv("RSCHED_CMA") != NULL;
    if (!shape_cma)
        setenv("RSCHED_CMA", "0", 1);
    setenv("RSCHED_MAPPED", "1", 1);
    if (shape_cma && !ranks_may_read()) {
        printf("SKIP: the kernel does not let processes read each other\n");
        return 77;
    }
    for (size_t i = 0; node_engine_at(i) != NULL; i++) {
        const struct rsched_engine_ops *ops = node_engine_at(i);

        if (engine != NULL && strcmp(ops->name, engine) != 0)
            continue;
        if (ops->gpus && shape_gpus == NULL)
            continue; /* tests/cuda has a program for it */
        if (!node_engine_opens(ops)) {
            printf("SKIP %s: %s\n", ops->name, rsched_last_error());
            skipped++;
            continue;
        }
        for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
            if (only != NULL && strcmp(only, cases[k].name) != 0)
                continue;
            if (run_case(ops, &cases[k], threads, &passed) != 0)
                return 1;
        }
        if (!names)
            printf("PASS %s\n", ops->name);
    }
    if (names)
        return 0;
    printf("%d cases, %llu of 100 rounds\n", passed,
           (unsigned long long)rounds(100));
    return passed > 0 ? 0 : skipped > 0 ? 77 : 1;
}
