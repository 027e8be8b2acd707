/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every engine must do, through engine.h only:
 *
 *     [RSCHED_CMA=1] conformance threads|processes [ENGINE [CASE]]
 *
 * Each case runs with several instances of the engine, in threads of this
 * process or in processes of their own, with usual and with tiny slots, and
 * with messages in ordinary memory and in memory that the peers can map. An
 * engine that does not open here is skipped with its reason.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/engine.h>
#include <rsched/memory.h>

#include "tests/conformance/node.h"
#include "tests/runtime/ranks.h"

/* ---- one message and its bytes ---- */

static char pattern_byte(uint64_t seed, uint64_t i)
{
    return (char)(seed * 37 + i * 13 + (i >> 8) + 1);
}

/* A message of random pieces within a memory of its own. */
struct shape {
    char *memory;
    uint64_t span;
    bool shared; /* the memory is of rsched_alloc() */
    struct rsched_piece pieces[12];
    struct rsched_message message;
};

/* Whether messages lie in memory that the peer can map. */
static bool mapped;

/* Whether ordinary memory is read by the kernel, as the setting says, and from
 * which size of a block on. */
static bool cma;

enum { CMA_BLOCK = 2048 };

/* Whether a sender needs the receiver to complete an epoch. */
static bool is_pulled(uint64_t bytes)
{
    return mapped || (cma && bytes >= CMA_BLOCK);
}

static void get_memory(struct shape *s, uint64_t span, bool shared)
{
    void *memory;

    *s = (struct shape){.span = span, .shared = shared};
    if (!shared)
        s->memory = calloc(1, span);
    else if (rsched_alloc(span, &memory) == 0)
        s->memory = memory;
    else
        abort();
}

static void shape_in(struct shape *s, uint64_t bytes, int unaligned,
                     bool shared)
{
    get_memory(s, bytes + 64, shared);
    s->pieces[0] = (struct rsched_piece){.address = s->memory + unaligned,
                                         .bytes = bytes,
                                         .count = 1};
    s->message = (struct rsched_message){s->pieces, 1, bytes, 7};
}

static void shape_contiguous(struct shape *s, uint64_t bytes, int unaligned)
{
    shape_in(s, bytes, unaligned, mapped);
}

/* Blocks of random length and distance until `bytes` are reached. `overlap`:
 * blocks may share bytes, as a sender's may. */
static void shape_random(struct shape *s, uint64_t bytes, unsigned *seed,
                         bool overlap)
{
    uint64_t left = bytes, at = 4096;
    int n = 0;

    get_memory(s, 8 * bytes + 65536, mapped);
    while (left > 0) {
        struct rsched_piece *p = &s->pieces[n++];
        uint64_t room;

        p->bytes = 1 + node_draw(seed, n >= 11 ? left : left / 2 + 1);
        p->count = 1 + node_draw(seed, 5);
        if (n >= 11 || p->bytes * p->count > left) {
            p->bytes = n >= 11 ? left : p->bytes;
            p->count = 1;
        }
        p->stride = (int64_t)(p->bytes + node_draw(seed, 9));
        if (overlap && node_draw(seed, 3) == 0)
            p->stride = (int64_t)node_draw(seed, p->bytes);
        room = p->count * (p->bytes + 8);
        p->address = s->memory + at;
        if (node_draw(seed, 2) == 0) { /* downwards */
            p->address += (int64_t)(p->count - 1) * p->stride;
            p->stride = -p->stride;
        }
        left -= p->bytes * p->count;
        at += room + node_draw(seed, 5);
        if (node_draw(seed, 4) == 0 && n < 11) /* an empty one in between */
            s->pieces[n++] = (struct rsched_piece){.address = s->memory};
    }
    s->message = (struct rsched_message){s->pieces, (size_t)n, bytes, 7};
}

static void shape_fini(struct shape *s)
{
    if (!s->shared)
        free(s->memory);
    else if (rsched_free(s->memory) != 0)
        abort();
}

/* Copy the message's bytes, in their order, to or from a flat buffer. */
static void gather(const struct shape *s, char *flat, bool out)
{
    for (size_t i = 0; i < s->message.num_pieces; i++) {
        const struct rsched_piece *p = &s->pieces[i];

        for (uint64_t b = 0; b < p->count; b++, flat += p->bytes) {
            char *block = p->address + (int64_t)b * p->stride;

            memcpy(out ? block : flat, out ? flat : block, p->bytes);
        }
    }
}

static void shape_fill(struct shape *s, uint64_t seed)
{
    for (uint64_t i = 0; i < s->span; i++)
        s->memory[i] = pattern_byte(seed, i);
}

/* What a shape sends after shape_fill(seed), for a receiver that knows it. */
static int shape_compare(struct node *node, const struct shape *sent,
                         const struct shape *got)
{
    char *a = malloc(sent->message.bytes), *b = malloc(sent->message.bytes);
    int wrong;

    gather(sent, a, false);
    gather(got, b, false);
    wrong = memcmp(a, b, sent->message.bytes) != 0;
    /* Nothing else may be touched: with the blocks cleared it is all zero. */
    memset(b, 0, sent->message.bytes);
    gather(got, b, true);
    for (uint64_t i = 0; !wrong && i < got->span; i++)
        wrong = got->memory[i] != 0 ? 2 : 0;
    free(a);
    free(b);
    return wrong == 0 ? 0
                      : NODE_FAIL(node, "%llu bytes: %s",
                                  (unsigned long long)sent->message.bytes,
                                  wrong == 1 ? "wrong data" : "written outside");
}

/* ---- cases ---- */

static const uint64_t sizes[] = {1,     7,     8,      47,     48,    49,
                                 63,    64,    65,     4096,   32767, 32768,
                                 32769, 65536, 262144, 300001, 1500000};

enum { NUM_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Through two slots of one line the longest would take long. */
static int num_sizes(const struct node *node)
{
    return node->env.chunk_bytes < 100 ? 11 : NUM_SIZES;
}

/* Copied once, by whomever. */
static uint64_t bytes_once(const struct rsched_lane *lane)
{
    const uint64_t *bytes = lane->stats.bytes;

    return mapped ? bytes[RSCHED_WAY_PULL] + bytes[RSCHED_WAY_DIRECT]
                  : bytes[RSCHED_WAY_CMA];
}

/* A message again and again; `unaligned` shifts both buffers. */
static int repeat(struct node *node, uint64_t bytes, int epochs, int unaligned)
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
            memset(mine.memory, 0, mine.span);
            result = node_epoch(node, lane, false);
            shape_fill(&other, (uint64_t)epoch);
            result = result != 0 ? result : shape_compare(node, &other, &mine);
        }
    }
    if (result == 0 && node->rank == 0 && node->ops->within_node)
        NODE_CHECK(node, bytes_once(lane) ==
                             (is_pulled(bytes) ? bytes * (uint64_t)epochs : 0));
    node_drop(node, lane, node->rank == 0);
    shape_fini(&mine);
    shape_fini(&other);
    return result;
}

static int case_repeat(struct node *node)
{
    int result = 0;

    for (int i = 0; i < num_sizes(node) && result == 0; i++)
        result = repeat(node, sizes[i], sizes[i] > 100000 ? 4 : 40, 0);
    return result;
}

static int case_unaligned(struct node *node)
{
    int result = 0;

    for (int i = 0; i < num_sizes(node) && result == 0; i++)
        result = repeat(node, sizes[i], 2, 1 + i % 7);
    return result;
}

/* The second rank knows the first's shapes: both draw the same numbers. */
static int layout(struct node *node, unsigned seed, bool self)
{
    uint64_t bytes = 1 + node_draw(&seed, seed % 3 == 0 ? 200000 : 2000);
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
        memset(to.memory, 0, to.span);
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

static int case_layouts(struct node *node)
{
    int result = 0;

    for (unsigned seed = 1; seed <= 60 && result == 0; seed++)
        result = layout(node, seed, false);
    return result;
}

static int case_self(struct node *node)
{
    int result = 0;

    if (!node->ops->within_node)
        return 0;
    for (unsigned seed = 1; seed <= 60 && result == 0; seed++)
        result = layout(node, seed, true);
    return result;
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
                memset(from[i].memory, epoch + node->rank * 16 + i % EDGES,
                       from[i].span);
        }
        NODE_CHECK(node, run_lanes(node, tx, rx) == 0);
        for (int i = 0; i < NUM_LANES; i++) {
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
        while (status == RSCHED_LANE_DONE && epochs < LIMIT) {
            memset(s.memory, epochs++, s.span);
            status = node->ops->tx_start(lane);
            /* A device may still be reading what was sent. */
            for (int i = 0; i < 50 && status == RSCHED_LANE_PENDING; i++) {
                usleep(1000);
                status = node->ops->tx_progress(lane);
            }
        }
        NODE_CHECK(node, status == RSCHED_LANE_PENDING);
        if (bytes <= node->env.chunk_bytes) /* epoch 1 while 0 is not taken */
            NODE_CHECK(node, epochs > 2);
        NODE_CHECK(node, node->ops->tx_progress(lane) == RSCHED_LANE_PENDING);
        NODE_CHECK(node, node_tell(node, 1, &epochs, sizeof(epochs)) == 0);
        NODE_CHECK(node, node_finish(node, lane, true) == 0);
    } else {
        NODE_CHECK(node, node_hear(node, 0, &epochs, sizeof(epochs)) == 0);
        for (int i = 0; i < epochs; i++) {
            memset(s.memory, -1, s.span);
            NODE_CHECK(node, node_epoch(node, lane, false) == 0);
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

    for (size_t i = 0; i < 8 && result == 0; i++)
        result = ahead(node, ahead_sizes[i]);
    return result;
}

static int case_variable(struct node *node)
{
    struct rsched_lane *lane;
    unsigned seed = 99;
    int num = node->ops->within_node ? NUM_SIZES : num_sizes(node);

    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 0,
                               &lane) == 0);
    for (uint64_t epoch = 0; epoch < 60; epoch++) {
        uint64_t bytes = sizes[node_draw(&seed, (uint64_t)num - 2)];
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

struct wrong {
    uint64_t sent, expected;
    uint16_t signature; /* the receiver's; the sender's is 7 */
    int error;
};

static const struct wrong wrongs[] = {
    {100, 50, 7, RSCHED_ETRUNC},     {50, 100, 7, RSCHED_EMISMATCH},
    {100, 100, 8, RSCHED_EMISMATCH}, {32768, 8, 7, RSCHED_ETRUNC},
    {8, 32769, 7, RSCHED_EMISMATCH}, {1, 1, 6, RSCHED_EMISMATCH},
};

static int mistake(struct node *node, const struct wrong *w, bool self)
{
    struct rsched_lane *tx = NULL, *rx = NULL;
    struct shape from, to;
    int error = 0;

    shape_contiguous(&from, w->sent, 0);
    shape_contiguous(&to, w->expected, 0);
    to.message.signature = w->signature;
    if (self) {
        NODE_CHECK(node, node_self_lanes(node, 0, &tx, &rx) == 0);
    } else {
        NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 0,
                                   node->rank == 0 ? &tx : &rx) == 0);
    }
    if (tx != NULL) {
        NODE_CHECK(node, node_load(node, tx, true, &from.message) == 0);
        if (!self)
            NODE_CHECK(node, node->ops->tx_start(tx) >= 0);
    }
    if (rx != NULL) {
        error = node_load(node, rx, false, &to.message);
        if (error == 0 && self)
            NODE_CHECK(node, node->ops->tx_start(tx) >= 0);
        if (error == 0)
            error = node_epoch(node, rx, false);
        NODE_CHECK(node, error == w->error);
        NODE_CHECK(node, rsched_last_error()[0] != '\0');
        for (uint64_t i = 0; i < to.span; i++)
            NODE_CHECK(node, to.memory[i] == 0);
    }
    /* A lane with an error goes, whatever the other side does. */
    if (tx != NULL)
        node_drop(node, tx, true);
    if (rx != NULL)
        node_drop(node, rx, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

static int case_wrong(struct node *node)
{
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        NODE_CHECK(node, mistake(node, &wrongs[i], false) == 0);
        if (node->ops->within_node)
            NODE_CHECK(node, mistake(node, &wrongs[i], true) == 0);
    }
    return repeat(node, 64, 3, 0);
}

/* Lanes come and go: memory is used again. */
static int case_recreate(struct node *node)
{
    uint64_t bytes = 0;

    for (int i = 0; i < 200; i++) {
        NODE_CHECK(node, repeat(node, sizes[i % 12], 2, 0) == 0);
        /* The other side has said that it is through with its lane. */
        NODE_CHECK(node, node_meet(node) == 0);
        if (i == 24)
            bytes = node->ops->memory(node->engine);
    }
    NODE_CHECK(node, node->ops->memory(node->engine) == bytes);
    return 0;
}

/* The receiver destroys a lane and makes another one of the same size while
 * the sender still writes through the old one. */
static int case_late_writer(struct node *node)
{
    struct rsched_lane *old, *new;
    struct shape s;

    shape_contiguous(&s, 100, 0);
    for (int round = 0; round < 20; round++) {
        NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 100,
                                   &old) == 0);
        NODE_CHECK(node, node_load(node, old, node->rank == 0,
                                   &s.message) == 0);
        if (node->rank == 1)
            node_drop(node, old, false);
        NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 100,
                                   &new) == 0);
        NODE_CHECK(node, node_load(node, new, node->rank == 0,
                                   &s.message) == 0);
        if (node->rank == 0) {
            memset(s.memory, 0x77, s.span);
            NODE_CHECK(node, node->ops->tx_start(old) >= 0);
            NODE_CHECK(node, node_check_until(node, old, true) == RSCHED_EPEER);
        }
        NODE_CHECK(node, node_meet(node) == 0);
        if (node->rank == 1) {
            node->ops->rx_start(new);
            NODE_CHECK(node, node->ops->rx_progress(new) == 0);
            NODE_CHECK(node, node_meet(node) == 0);
            NODE_CHECK(node, node_finish(node, new, false) == 0);
            NODE_CHECK(node, s.memory[0] == 0x11 && s.memory[99] == 0x11);
        } else {
            NODE_CHECK(node, node_meet(node) == 0);
            node_drop(node, old, true);
            memset(s.memory, 0x11, s.span);
            NODE_CHECK(node, node_epoch(node, new, true) == 0);
        }
        NODE_CHECK(node, node_meet(node) == 0);
        node_drop(node, new, node->rank == 0);
    }
    NODE_CHECK(node, node->ops->memory(node->engine) < 1 << 20);
    shape_fini(&s);
    return 0;
}

/* A lane that was abandoned fails for the other side, but what was sent before
 * arrives. */
static int case_abandon(struct node *node)
{
    struct rsched_lane *out, *in;
    struct shape from, to;

    shape_contiguous(&from, 40, 0);
    shape_contiguous(&to, 40, 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 40,
                               node->rank == 0 ? &out : &in) == 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 1, 40,
                               node->rank == 1 ? &out : &in) == 0);
    NODE_CHECK(node, node_load(node, out, true, &from.message) == 0);
    NODE_CHECK(node, node_load(node, in, false, &to.message) == 0);
    NODE_CHECK(node, node->ops->tx_check(out) == 0);
    NODE_CHECK(node, node->ops->rx_check(in) == 0);
    NODE_CHECK(node, node_meet(node) == 0);
    if (node->rank == 0) {
        NODE_CHECK(node, node_epoch(node, out, true) == 0);
        node->ops->tx_abandon(out);
        node->ops->rx_abandon(in);
        node->ops->rx_abandon(in); /* once more is no harm */
        NODE_CHECK(node, node_meet(node) == 0);
    } else {
        NODE_CHECK(node, node_meet(node) == 0);
        NODE_CHECK(node, node_check_until(node, in, false) == RSCHED_EPEER);
        NODE_CHECK(node, node_check_until(node, out, true) == RSCHED_EPEER);
        NODE_CHECK(node, node_epoch(node, in, false) == 0);
        node->ops->rx_start(in);
        NODE_CHECK(node, node->ops->rx_progress(in) == RSCHED_LANE_PENDING);
    }
    node_drop(node, out, true);
    node_drop(node, in, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

static int case_garbage(struct node *node)
{
    unsigned char address[RSCHED_ENGINE_ADDRESS_BYTES] = {0};
    unsigned char good[RSCHED_LANE_DESCRIPTOR_BYTES] = {0}, bad[sizeof(good)];
    struct rsched_lane_spec spec = {.bytes = 4096};
    struct rsched_connection *c;
    struct rsched_lane *lane;
    unsigned seed = 5;
    int refused = 0;

    for (int i = 0; i < 100; i++) {
        for (size_t b = 0; b < sizeof(address); b++)
            address[b] = (unsigned char)node_draw(&seed, 256);
        NODE_CHECK(node, node->ops->connect(node->engine, 1, address, &c) ==
                             RSCHED_EUNREACH);
        NODE_CHECK(node, rsched_last_error()[0] != '\0');
    }
    node->ops->address(node->engine, address);
    for (size_t bit = 0; bit < 8 * sizeof(address); bit++) {
        address[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (node->ops->connect(node->engine, 1, address, &c) == 0)
            node->ops->disconnect(c);
        else
            refused++;
        address[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    NODE_CHECK(node, refused > 0);
    /* Descriptors: from the peer, with one field after the other spoilt. */
    if (node->rank == 0) {
        NODE_CHECK(node, node->ops->rx_create(node->connections[1], &spec, good,
                                              &lane) == 0);
        NODE_CHECK(node, node_tell(node, 1, good, sizeof(good)) == 0);
        NODE_CHECK(node, node_meet(node) == 0);
        lane->attached = true;
        node->ops->rx_destroy(lane);
        return 0;
    }
    NODE_CHECK(node, node_hear(node, 0, good, sizeof(good)) == 0);
    refused = 0;
    for (int i = 0; i < 3000; i++) {
        size_t word = node_draw(&seed, sizeof(good) / 4) * 4;
        uint64_t value = node_draw(&seed, 3) == 0
                             ? node_draw(&seed, 1u << 30) << 20
                             : node_draw(&seed, 300) * 64;
        uint32_t half = (uint32_t)(value >> node_draw(&seed, 2) * 12);
        unsigned char reply[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};

        memcpy(bad, good, sizeof(bad));
        memcpy(bad + word, &half, sizeof(half));
        if (node->ops->tx_create(node->connections[0], &spec, bad, reply,
                                 &lane) == 0)
            node->ops->tx_destroy(lane);
        else
            refused++;
    }
    NODE_CHECK(node, refused > 0);
    return node_meet(node);
}

/* Between nodes a message takes longer, and much longer where processors and
 * device are emulated, as they are wherever tests have one. */
static uint64_t rounds(const struct node *node, uint64_t within_node)
{
    if (node->ops->within_node)
        return within_node;
    return within_node / (node_device_outlives_process() ? 50 : 10);
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
                        rounds(node, node->env.chunk_bytes < 100 ? 5000
                                                                 : 20000));
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
    for (uint64_t epoch = 0; epoch < rounds(node, 10000); epoch++) {
        memcpy(from.memory, &epoch, sizeof(epoch));
        if (node_draw(&seed, 16) == 0)
            usleep((useconds_t)node_draw(&seed, 100));
        for (uint64_t i = node_draw(&seed, 2000); i > 0; i--)
            __asm__ volatile("" ::: "memory");
        node->ops->rx_start(in);
        NODE_CHECK(node, node->ops->tx_start(out) >= 0);
        NODE_CHECK(node, node_sleep_until_done(node, out, true) == 0);
        NODE_CHECK(node, node_sleep_until_done(node, in, false) == 0);
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
    for (uint64_t epoch = 0; epoch < rounds(node, 30000); epoch++) {
        node->ops->rx_start(in);
        for (uint64_t i = node_draw(&seed, 1500); i > 0; i--)
            __asm__ volatile("" ::: "memory");
        if (node->rank == 0) {
            NODE_CHECK(node, node->ops->tx_start(out) >= 0);
            for (int i = 1; node->ops->rx_progress(in) == 0; i++) {
                if (i % 4096 == 0)
                    node_yield();
            }
        } else {
            NODE_CHECK(node, node_sleep_until_done(node, in, false) == 0);
            NODE_CHECK(node, node->ops->tx_start(out) >= 0);
        }
    }
    NODE_CHECK(node, node->missed_wakes <= MAX_MISSED_WAKES);
    node_drop(node, out, true);
    node_drop(node, in, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

/* The peer dies between two epochs; what it sent before can be had. */
static int case_death(struct node *node)
{
    struct rsched_lane *out, *in;
    struct shape from, to;

    if (node->threads)
        return 0;
    shape_contiguous(&from, 20, 0);
    shape_contiguous(&to, 20, 0);
    NODE_CHECK(node, node->ops->check(node->connections[1 - node->rank]) == 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0, 20,
                               node->rank == 0 ? &out : &in) == 0);
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 1, 20,
                               node->rank == 1 ? &out : &in) == 0);
    NODE_CHECK(node, node_load(node, out, true, &from.message) == 0);
    NODE_CHECK(node, node_load(node, in, false, &to.message) == 0);
    if (node->rank == 1) {
        memset(from.memory, 3, from.span);
        NODE_CHECK(node, node->ops->tx_start(out) == RSCHED_LANE_DONE);
        raise(SIGKILL);
    }
    while (node->ops->check(node->connections[1]) == 0)
        usleep(100);
    NODE_CHECK(node, strstr(rsched_last_error(), "peer 1") != NULL);
    if (node_device_outlives_process()) {
        NODE_CHECK(node,
                   node_epoch(node, in, false) == 0 && to.memory[19] == 3);
        NODE_CHECK(node, node->ops->tx_start(out) >= 0); /* into the void */
    }
    node_drop(node, out, true);
    node_drop(node, in, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

/* Memory that can be mapped and memory that cannot take turns in one lane. */
static int case_pull(struct node *node)
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
                memset(to.memory, 0, to.span);
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

/* The sender gives up an epoch that is announced, and writes its buffer. */
static int case_pull_abandon(struct node *node)
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
        node->ops->tx_abandon(lane);
        memset(s.memory, 1, s.span);
        NODE_CHECK(node, node_meet(node) == 0);
    } else {
        NODE_CHECK(node, node_meet(node) == 0);
        node->ops->rx_start(lane);
        NODE_CHECK(node, node->ops->rx_progress(lane) == RSCHED_EPEER);
    }
    NODE_CHECK(node, node_meet(node) == 0);
    node_drop(node, lane, node->rank == 0);
    shape_fini(&s);
    return 0;
}

/* Both copy a long message when both have nothing else to do, whatever its
 * layout is; it is loaded anew meanwhile. */
static int case_share(struct node *node)
{
    enum { BLOCKS = 1000, BLOCK = 3000, EPOCHS = 60 };
    struct rsched_lane *lane;
    struct shape from, to;

    shape_contiguous(&from, BLOCKS * BLOCK, 1);
    shape_contiguous(&to, 2 * BLOCKS * BLOCK, 3);
    to.message.bytes = from.message.bytes;
    to.pieces[0] = (struct rsched_piece){to.memory, BLOCK / 2, 2 * BLOCKS,
                                         BLOCK - 7};
    NODE_CHECK(node, node_lane(node, 1 - node->rank, node->rank == 0,
                               from.message.bytes, &lane) == 0);
    for (unsigned epoch = 0; epoch < EPOCHS; epoch++) {
        /* Other ends of blocks than the sender's. */
        to.pieces[0].address = to.memory + epoch / 8 * 5;
        shape_fill(&from, epoch);
        memset(to.memory, 0, to.span);
        if (epoch % 8 == 0)
            NODE_CHECK(node, node_load(node, lane, node->rank == 0,
                                       node->rank == 0 ? &from.message
                                                       : &to.message) == 0);
        NODE_CHECK(node, node_epoch(node, lane, node->rank == 0) == 0);
        if (node->rank == 1)
            NODE_CHECK(node, shape_compare(node, &from, &to) == 0);
    }
    if (node->rank == 0) {
        printf("the sender copied %llu bytes of %llu\n",
               (unsigned long long)lane->stats.bytes[RSCHED_WAY_DIRECT],
               (unsigned long long)EPOCHS * from.message.bytes);
        NODE_CHECK(node, bytes_once(lane) == EPOCHS * from.message.bytes);
        NODE_CHECK(node, lane->stats.bytes[RSCHED_WAY_DIRECT] > 0);
    }
    node_drop(node, lane, node->rank == 0);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}

/* A sender that dies has written all that it announced. */
static int case_pull_death(struct node *node)
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
        memset(s.memory, 9, s.span);
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

/* Whether a sender may be ahead of the receiver, and no receiver is needed for
 * its epoch to complete: not if its memory is read. */
enum { ANY_MEMORY, ORDINARY_MEMORY, MAPPED_MEMORY };

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
    {"pull-abandon", case_pull_abandon, 2, MAPPED_MEMORY, true},
    {"pull-death", case_pull_death, 2, MAPPED_MEMORY, true},
};

/* With usual and tiny slots, and the same with memory that can be mapped. */
static int run_case(const struct rsched_engine_ops *ops,
                    const struct node_case *c, bool threads, int *passed)
{
    for (int variant = 0; variant < 4; variant++) {
        bool tiny = variant % 2 == 1;

        mapped = variant >= 2;
        if (!ops->within_node && (mapped || c->within_node))
            continue;
        if (c->memory == (mapped ? ORDINARY_MEMORY : MAPPED_MEMORY) ||
            (cma && (mapped || c->memory == ORDINARY_MEMORY)))
            continue;
        if (node_run(ops, c, threads, tiny) != 0) {
            fprintf(stderr, "FAILED: %s: %s%s%s\n", ops->name, c->name,
                    tiny ? " (tiny slots)" : "",
                    mapped ? " (mapped memory)" : "");
            return 1;
        }
        (*passed)++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    const char *engine = argc > 2 ? argv[2] : NULL;
    const char *only = argc > 3 ? argv[3] : NULL;
    int passed = 0, skipped = 0;

    cma = getenv("RSCHED_CMA") != NULL;
    setenv("RSCHED_MAPPED", "1", 1);
    if (cma && !ranks_may_read()) {
        printf("SKIP: the kernel does not let processes read each other\n");
        return 77;
    }
    for (size_t i = 0; node_engine_at(i) != NULL; i++) {
        const struct rsched_engine_ops *ops = node_engine_at(i);

        if (engine != NULL && strcmp(ops->name, engine) != 0)
            continue;
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
        printf("PASS %s\n", ops->name);
    }
    printf("%d cases\n", passed);
    return passed > 0 ? 0 : skipped > 0 ? 77 : 1;
}
