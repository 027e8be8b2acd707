/* SPDX-License-Identifier: BSD-3-Clause */
/* The cases in which lanes end: with mistakes, without notice, by force. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "tests/conformance/cases.h"

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
            NODE_CHECK(node, node_start_alone(node, tx) >= 0);
    }
    if (rx != NULL) {
        error = node_load(node, rx, false, &to.message);
        if (error == 0 && self)
            NODE_CHECK(node, node->ops->tx_start(tx) >= 0);
        if (error == 0)
            error = node_epoch(node, rx, false);
        NODE_CHECK(node, error == w->error);
        NODE_CHECK(node, rsched_last_error()[0] != '\0');
        shape_pull(&to);
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

int case_wrong(struct node *node)
{
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        NODE_CHECK(node, mistake(node, &wrongs[i], false) == 0);
        if (node->ops->within_node)
            NODE_CHECK(node, mistake(node, &wrongs[i], true) == 0);
    }
    return repeat_message(node, 64, 3, 0);
}

/* Lanes come and go: memory is used again. */
int case_recreate(struct node *node)
{
    int rounds = node->ops->gpus ? 70 : 200; /* it runs three times with GPUs */
    uint64_t bytes = 0;

    for (int i = 0; i < rounds; i++) {
        NODE_CHECK(node, repeat_message(node, case_sizes[i % 12], 2, 0) == 0);
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
int case_late_writer(struct node *node)
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
            shape_set(&s, 0x77);
            NODE_CHECK(node, node->ops->tx_start(old) >= 0);
            NODE_CHECK(node, node_check_until(node, old, true) == RSCHED_EPEER);
        }
        NODE_CHECK(node, node_meet(node) == 0);
        if (node->rank == 1) {
            node->ops->rx_start(new);
            NODE_CHECK(node, node->ops->rx_progress(new) == 0);
            NODE_CHECK(node, node_meet(node) == 0);
            NODE_CHECK(node, node_finish(node, new, false) == 0);
            shape_pull(&s);
            NODE_CHECK(node, s.memory[0] == 0x11 && s.memory[99] == 0x11);
        } else {
            NODE_CHECK(node, node_meet(node) == 0);
            node_drop(node, old, true);
            shape_set(&s, 0x11);
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
int case_abandon(struct node *node)
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

int case_garbage(struct node *node)
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

/* The peer dies between two epochs; what it sent before can be had. */
int case_death(struct node *node)
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
        shape_set(&from, 3);
        NODE_CHECK(node, node_start_alone(node, out) == RSCHED_LANE_DONE);
        raise(SIGKILL);
    }
    while (node->ops->check(node->connections[1]) == 0)
        usleep(100);
    NODE_CHECK(node, strstr(rsched_last_error(), "peer 1") != NULL);
    if (node_device_outlives_process()) {
        NODE_CHECK(node, node_epoch(node, in, false) == 0);
        shape_pull(&to);
        NODE_CHECK(node, to.memory[19] == 3);
        NODE_CHECK(node, node->ops->tx_start(out) >= 0); /* into the void */
    }
    node_drop(node, out, true);
    node_drop(node, in, false);
    shape_fini(&from);
    shape_fini(&to);
    return 0;
}
