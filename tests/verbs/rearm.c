/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that fail, as a whole or one of their rails, and are replaced, and those
 * that never had all their rails: exchanges over the interpreter, whose wires are cut
 * and joined again, whose devices go away, and whose queue pairs cannot be connected.
 * The ranks are threads. */
#include <stdio.h>
#include <string.h>

#include "engines/rdma/rdma.h"
#include "librsched/run/run.h"
#include "tests/runtime/halo.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/only.h"

/* Landing in one chunk and in several, and direct; both ways. */
static const struct halo_edge edges[] = {
    {0, 1, 100},    {1, 0, 5000},   {0, 1, 0},
    {0, 1, 500000}, {1, 0, 500000}, {1, 0, 8},
};

/* One put each way takes one rail, the first. */
static const struct halo_edge single[] = {{0, 1, 20000}, {1, 0, 20000}};

enum { NUM_EDGES = sizeof(edges) / sizeof(edges[0]), EPOCHS = ONLY_EPOCHS };

static int create(struct rank *self, uint64_t tag, struct halo **h)
{
    return halo_create(self, edges, NUM_EDGES, tag, 0, h);
}

/* Rank 0 does something to the wires between two meetings. */
static void set_rails(struct rank *self, void (*what)(unsigned), unsigned rails)
{
    mesh_barrier(self->end);
    if (self->rank == 0)
        what(rails);
    mesh_barrier(self->end);
}

static void set_wires(struct rank *self, bool cut)
{
    set_rails(self, interpreter_cut, cut ? INTERPRETER_ALL_RAILS : 0);
}

/* The error says what failed, and stays. */
static int fails(struct rank *self, struct halo *h)
{
    char peer[32];

    snprintf(peer, sizeof(peer), "to peer %d: nobody answers", 1 - self->rank);
    RANK_CHECK(halo_step(h, 0) == RSCHED_EPEER);
    RANK_CHECK(strstr(rsched_last_error(), "interpreter interpreter: qp 0x") !=
               NULL);
    RANK_CHECK(strstr(rsched_last_error(), peer) != NULL);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_EPEER);
    return 0;
}

/* Both know of the failure. */
static int run_both(struct rank *self)
{
    struct halo *old, *during, *after;
    int error;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(create(self, 1, &old) == 0);
    RANK_CHECK(only_epochs(self, old, 0) == 0);
    set_wires(self, true);
    RANK_CHECK(fails(self, old) == 0);
    /* Whoever tries again too early does so in vain, sooner or later. */
    mesh_barrier(self->end);
    error = create(self, 2, &during);
    RANK_CHECK(error == 0 || error == RSCHED_EPEER);
    if (error == 0) {
        RANK_CHECK(fails(self, during) == 0);
        halo_destroy(during);
    }
    set_wires(self, false);
    RANK_CHECK(create(self, 3, &after) == 0);
    RANK_CHECK(only_epochs(self, after, 0) == 0);
    RANK_CHECK(only_life(self, after, 2) == 0);
    RANK_CHECK(rsched_exchange_start(old->x) == RSCHED_EPEER);
    RANK_CHECK(only_connections(self) == 2);
    halo_destroy(old);
    RANK_CHECK(only_connections(self) == 1);
    /* Starts do not look for dead peers any more. */
    RANK_CHECK(!atomic_load(&self->context->any_dead));
    RANK_CHECK(only_epochs(self, after, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* Rank 0 alone was there when it happened. */
static int run_one(struct rank *self)
{
    struct halo *old, *after;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(create(self, 1, &old) == 0);
    RANK_CHECK(only_epochs(self, old, 0) == 0);
    set_wires(self, true);
    if (self->rank == 0)
        RANK_CHECK(fails(self, old) == 0);
    set_wires(self, false);
    RANK_CHECK(create(self, 2, &after) == 0);
    RANK_CHECK(only_life(self, after, 1) == 0);
    RANK_CHECK(only_epochs(self, after, 0) == 0);
    /* The other one learns of it when it uses what has failed. */
    RANK_CHECK(halo_step(old, EPOCHS) == RSCHED_EPEER);
    RANK_CHECK(only_epochs(self, after, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(old);
    halo_destroy(after);
    RANK_CHECK(only_connections(self) == 1);
    return 0;
}

/* One rail fails: whoever does not use it goes on, on the same connection, and
 * new exchanges have another one. */
static int lose_a_rail(struct rank *self, void (*lose)(unsigned),
                       const char *cause)
{
    struct halo *one, *both, *during, *after;
    int peer = 1 - self->rank;
    bool found[2];

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, single, 2, 1, 0, &one) == 0);
    RANK_CHECK(create(self, 2, &both) == 0);
    RANK_CHECK(only_rails(one) == 1 && only_rails(both) == 3);
    RANK_CHECK(only_epochs(self, one, 0) == 0 && only_epochs(self, both, 0) == 0);
    set_rails(self, lose, 2);
    RANK_CHECK(halo_step(both, 0) == RSCHED_EPEER);
    printf("rank %d: %s\n", self->rank, rsched_last_error());
    /* One finds the cause; the other may have been told over the other rail. */
    found[0] = strstr(rsched_last_error(), cause) != NULL;
    RANK_CHECK(found[0] ||
               strstr(rsched_last_error(), "has given up the exchange") != NULL);
    RANK_CHECK(mesh_send(self->end, peer, 1, &found[0], sizeof(bool)) == 0);
    RANK_CHECK(mesh_receive(self->end, peer, 1, &found[1], sizeof(bool)) == 0);
    RANK_CHECK(found[0] || found[1]);
    RANK_CHECK(only_epochs(self, one, EPOCHS) == 0);
    RANK_CHECK(only_life(self, one, 0) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(halo_create(self, single, 2, 3, 0, &during) == 0);
    RANK_CHECK(only_life(self, during, 1) == 0);
    RANK_CHECK(only_epochs(self, during, 0) == 0);
    RANK_CHECK(only_epochs(self, one, 2 * EPOCHS) == 0);
    set_rails(self, lose, 0);
    RANK_CHECK(create(self, 4, &after) == 0);
    RANK_CHECK(only_epochs(self, after, 0) == 0);
    RANK_CHECK(only_epochs(self, one, 3 * EPOCHS) == 0);
    RANK_CHECK(!atomic_load(&self->context->any_dead));
    mesh_barrier(self->end);
    halo_destroy(both);
    halo_destroy(one);
    RANK_CHECK(only_epochs(self, during, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(during);
    halo_destroy(after);
    RANK_CHECK(only_connections(self) == 1);
    return 0;
}

static int run_rail(struct rank *self)
{
    return lose_a_rail(self, interpreter_cut, "nobody answers");
}

static int run_removed(struct rank *self)
{
    return lose_a_rail(self, interpreter_remove, "the device has been removed");
}

/* An exchange that is planned for both rails goes over these, on the connection that was
 * made after so many. */
static int goes_over(struct rank *self, struct halo *h, unsigned links, uint32_t life)
{
    RANK_CHECK(only_rails(h) == links);
    RANK_CHECK(only_links(h) == links);
    RANK_CHECK(only_life(self, h, life) == 0);
    return only_epochs(self, h, 0);
}

/* The rails that either rank cannot connect, as bits. */
struct refusal {
    const char *name;
    unsigned rails[2];
};

static struct refusal refusals[] = {
    {"neither connects the first rail", {1, 1}},
    {"neither connects the second rail", {2, 2}},
    {"rank 0 does not connect the first rail", {1, 0}},
    {"rank 1 does not connect the second rail", {0, 2}},
};

static struct refusal hopeless[] = {
    {"neither connects a rail", {3, 3}},
    {"rank 0 connects no rail", {3, 0}},
    {"each connects another rail", {1, 2}},
};

/* They go without the rail, and so does the next exchange, on the same queue pairs. */
static int run_left_out(struct rank *self)
{
    const struct refusal *refusal = self->arg;
    unsigned left = 3 & ~(refusal->rails[0] | refusal->rails[1]);
    struct halo *first, *second;
    uint64_t queues;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    interpreter_refuse(refusal->rails[self->rank]);
    RANK_CHECK(create(self, 1, &first) == 0);
    RANK_CHECK(goes_over(self, first, left, 0) == 0);
    mesh_barrier(self->end);
    queues = interpreter_counts().queues;
    mesh_barrier(self->end);
    RANK_CHECK(create(self, 2, &second) == 0);
    RANK_CHECK(goes_over(self, second, left, 0) == 0);
    RANK_CHECK(only_epochs(self, first, EPOCHS) == 0);
    RANK_CHECK(only_connections(self) == 1);
    RANK_CHECK(interpreter_counts().queues == queues);
    mesh_barrier(self->end);
    halo_destroy(first);
    halo_destroy(second);
    return 0;
}

static int run_hopeless(struct rank *self)
{
    const struct refusal *refusal = self->arg;
    struct halo *during, *after;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    interpreter_refuse(refusal->rails[self->rank]);
    RANK_CHECK(create(self, 1, &during) < 0);
    printf("rank %d: %s\n", self->rank, rsched_last_error());
    RANK_CHECK(strstr(rsched_last_error(), "no route") != NULL ||
               strstr(rsched_last_error(), "no rail works at both ends") != NULL);
    interpreter_refuse(0);
    RANK_CHECK(create(self, 2, &after) == 0);
    RANK_CHECK(goes_over(self, after, 3, 1) == 0);
    RANK_CHECK(only_connections(self) == 1);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* The rail is used again by the exchanges that are made afterwards. */
static int take_back(struct rank *self, struct halo *without)
{
    struct halo *with;

    RANK_CHECK(create(self, 3, &with) == 0);
    RANK_CHECK(goes_over(self, with, 3, 1) == 0);
    RANK_CHECK(only_epochs(self, without, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(without);
    RANK_CHECK(only_epochs(self, with, EPOCHS) == 0);
    RANK_CHECK(only_connections(self) == 1);
    mesh_barrier(self->end);
    halo_destroy(with);
    return 0;
}

/* A port of rank 0 is down, and comes up. */
static int run_comes_up(struct rank *self)
{
    struct halo *without, *same;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    interpreter_put_down(self->rank == 0 ? 2 : 0);
    RANK_CHECK(create(self, 1, &without) == 0);
    RANK_CHECK(goes_over(self, without, 1, 0) == 0);
    RANK_CHECK(create(self, 2, &same) == 0);
    RANK_CHECK(goes_over(self, same, 1, 0) == 0);
    mesh_barrier(self->end);
    halo_destroy(same);
    interpreter_put_down(0);
    return take_back(self, without);
}

/* No port was down: after a time rank 1 tries whether it works by now. */
static int run_retried(struct rank *self)
{
    struct halo *without, *same;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    interpreter_refuse(2);
    RANK_CHECK(create(self, 1, &without) == 0);
    RANK_CHECK(goes_over(self, without, 1, 0) == 0);
    interpreter_refuse(0);
    RANK_CHECK(create(self, 2, &same) == 0);
    RANK_CHECK(goes_over(self, same, 1, 0) == 0);
    mesh_barrier(self->end);
    halo_destroy(same);
    if (self->rank == 1)
        without->x->out[0].peer->connection->retry_ps = 0;
    return take_back(self, without);
}

/* Rank 2 sends more than rank 0 expects, which so accepts no half of it; of ranks 0 and
 * 1, rank 1 hears that rank 0 has failed when that has agreed with it on their rails. */
static int run_half_agreed(struct rank *self)
{
    struct halo_edge ring[] = {{0, 1, 500000}, {1, 0, 500000}, {0, 1, 100},
                               {1, 0, 100},    {0, 2, 5000},   {2, 0, 5000}};
    struct halo *failed, *h;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    interpreter_refuse(self->rank == 1 ? 2 : 0);
    ring[5].bytes += self->rank == 2;
    RANK_CHECK(halo_create(self, ring, 6, 1, 0, &failed) < 0);
    ring[5].bytes = 5000;
    RANK_CHECK(halo_create(self, ring, 6, 2, 0, &h) == 0);
    RANK_CHECK(only_life(self, h, 0) == 0);
    RANK_CHECK(only_epochs(self, h, 0) == 0);
    if (self->rank == 1)
        RANK_CHECK(only_links(h) == 1 && only_rails(h) == 1);
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

static int run_refusals(void)
{
    int failed = 0;

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        if (ranks_run(2, true, run_left_out, &refusals[i]) != 0)
            failed = printf("FAILED: %s\n", refusals[i].name);
    }
    for (size_t i = 0; i < sizeof(hopeless) / sizeof(hopeless[0]); i++) {
        if (ranks_run(2, true, run_hopeless, &hopeless[i]) != 0)
            failed = printf("FAILED: %s\n", hopeless[i].name);
    }
    return failed;
}

int main(void)
{
    int failed = 0;

    if (ranks_run(2, true, run_both, NULL) != 0)
        failed = puts("FAILED: both");
    if (ranks_run(2, true, run_one, NULL) != 0)
        failed = puts("FAILED: one");
    if (ranks_run(2, true, run_rail, NULL) != 0)
        failed = puts("FAILED: rail");
    if (ranks_run(2, true, run_removed, NULL) != 0)
        failed = puts("FAILED: removed");
    if (run_refusals() != 0)
        failed = 1;
    if (ranks_run(2, true, run_comes_up, NULL) != 0)
        failed = puts("FAILED: comes up");
    if (ranks_run(2, true, run_retried, NULL) != 0)
        failed = puts("FAILED: retried");
    if (ranks_run(3, true, run_half_agreed, NULL) != 0)
        failed = puts("FAILED: half agreed");
    return failed != 0;
}
