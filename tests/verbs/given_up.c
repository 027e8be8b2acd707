/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges that are given up while a peer writes, is about to, or cannot be told:
 * over the interpreter, which holds up what is long. The ranks are threads. With
 * RSCHED_PROGRESS=0 nobody goes on with anything but the calls of the test. */
#include <stdio.h>
#include <string.h>

#include "engines/rdma/lane.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/run/run.h"
#include "tests/runtime/halo.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/only.h"

/* One put each way takes one rail, the first. */
static const struct halo_edge single[] = {{0, 1, 20000}, {1, 0, 20000}};

/* What rank 1 sends is written into the buffers of rank 0, over both rails. */
static const struct halo_edge direct[] = {
    {0, 1, 100}, {1, 0, 2 << 20}, {1, 0, 2 << 20}};

enum { DIRECT_PUTS = 2, NUM_DIRECT = 1 + DIRECT_PUTS };

/* Long enough to be gathered, through a slot and into the receive buffer. */
enum { LANDING_BYTES = 20000, DIRECT_BYTES = 200000 };
static const struct halo_edge gathered[] = {{0, 1, LANDING_BYTES},
                                            {0, 1, DIRECT_BYTES}};

/* To one receiver at once, to the other when it is ready. */
static const struct halo_edge fan[] = {{0, 1, LANDING_BYTES},
                                       {0, 2, DIRECT_BYTES}};

/* Short enough to be copied when it is posted. */
static const struct halo_edge inlined[] = {{1, 0, 64}};

/* Tests after which a program has looked several times whether its peers live. */
enum { LOOKS = 100 };

/* So many pieces that the queues of both rails are full before all is posted. */
enum { NUM_PIECES = 128, PIECE_BYTES = 8192 };

enum { EPOCHS = ONLY_EPOCHS, MANY_RANKS = 8 };

/* Sleeps within one deadline, of 100 ms, each of which takes 50 us at least. */
#define DEADLINE_PS (100 * UINT64_C(1000000000))
enum { MOST_SLEEPS = 2000 };

/* Of this rank; the library's calls come here. */
static _Thread_local int sleeps;

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    sleeps++;
    return __real_nanosleep(time, left);
}

/* An exchange that goes on, and one that rank 0 is to give up. */
static int begin_to_give_up(struct rank *self, struct halo **other,
                            struct halo **given)
{
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, single, 2, 1, 0, other) == 0);
    RANK_CHECK(halo_create(self, direct, NUM_DIRECT, 2, 0, given) == 0);
    RANK_CHECK(only_epochs(self, *other, 0) == 0);
    RANK_CHECK(halo_step(*given, 0) == 0);
    halo_fill(*given, 1);
    if (self->rank == 0)
        RANK_CHECK(rsched_exchange_start((*given)->x) == 0);
    mesh_barrier(self->end);
    return 0;
}

static uint64_t direct_bytes(const struct halo *h)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(h->x, &stats);
    return stats.way_bytes[RSCHED_WAY_DIRECT];
}

static int is_told(struct rank *self, struct halo *given)
{
    RANK_CHECK(rsched_exchange_wait(given->x) == RSCHED_EPEER);
    RANK_CHECK(strstr(rsched_last_error(), "has given up the exchange") != NULL);
    return 0;
}

/* Rank 0 gives up what rank 1, which computes for long, has not begun with. It
 * never does then, so nothing happens to the connection; but rank 0 cannot know
 * that. */
static int run_late(struct rank *self)
{
    struct halo *other, *given, *after;

    RANK_CHECK(begin_to_give_up(self, &other, &given) == 0);
    if (self->rank == 0)
        halo_destroy(given);
    mesh_barrier(self->end);
    if (self->rank == 1) {
        RANK_CHECK(rsched_exchange_start(given->x) == 0);
        RANK_CHECK(is_told(self, given) == 0);
        RANK_CHECK(direct_bytes(given) == DIRECT_PUTS * direct[1].bytes);
        halo_destroy(given);
    }
    RANK_CHECK(only_epochs(self, other, EPOCHS) == 0);
    RANK_CHECK(halo_create(self, direct, NUM_DIRECT, 3, 0, &after) == 0);
    RANK_CHECK(only_life(self, after, 1) == 0);
    RANK_CHECK(only_epochs(self, after, 0) == 0);
    RANK_CHECK(only_life(self, other, 0) == 0);
    RANK_CHECK(only_epochs(self, other, 2 * EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(other);
    RANK_CHECK(only_connections(self) == 1);
    RANK_CHECK(only_epochs(self, after, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* Rank 0 gives up what rank 1 is writing, for longer than rank 0 waits. That
 * breaks the connection in the end, but not the one of the next exchange. */
static int run_under_way(struct rank *self)
{
    struct halo *other, *given, *after;

    RANK_CHECK(begin_to_give_up(self, &other, &given) == 0);
    if (self->rank == 1) {
        interpreter_hold(direct[1].bytes);
        RANK_CHECK(rsched_exchange_start(given->x) == 0);
        RANK_CHECK(direct_bytes(given) == 2 * DIRECT_PUTS * direct[1].bytes);
    }
    mesh_barrier(self->end);
    if (self->rank == 0)
        halo_destroy(given);
    mesh_barrier(self->end);
    if (self->rank == 1) {
        RANK_CHECK(is_told(self, given) == 0);
        halo_destroy(given);
    }
    RANK_CHECK(halo_create(self, direct, NUM_DIRECT, 3, 0, &after) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0)
        interpreter_deliver();
    mesh_barrier(self->end);
    RANK_CHECK(only_epochs(self, after, 0) == 0);
    RANK_CHECK(only_life(self, after, 1) == 0);
    RANK_CHECK(halo_step(other, EPOCHS) == RSCHED_EPEER);
    RANK_CHECK(strstr(rsched_last_error(),
                      self->rank == 0
                          ? "the peer was still writing what had been given up"
                          : "remote access error") != NULL);
    mesh_barrier(self->end);
    halo_destroy(other);
    RANK_CHECK(only_connections(self) == 1);
    RANK_CHECK(only_epochs(self, after, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* The device of rank 0 is at other things for so long that the word that nobody
 * is to write its buffer is still under way when the exchange has been destroyed:
 * who then writes, which he may as far as he knows, is refused. */
static int run_untold(struct rank *self)
{
    struct halo *other, *given, *after;

    RANK_CHECK(begin_to_give_up(self, &other, &given) == 0);
    if (self->rank == 0) {
        interpreter_hold(single[0].bytes);
        halo_fill(other, EPOCHS);
        RANK_CHECK(rsched_exchange_start(other->x) == 0);
        interpreter_hold(0);
        rsched_exchange_destroy(given->x);
        given->x = NULL;
    }
    mesh_barrier(self->end);
    if (self->rank == 1) {
        RANK_CHECK(rsched_exchange_start(given->x) == 0);
        RANK_CHECK(rsched_exchange_wait(given->x) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), "remote access error") != NULL);
    }
    mesh_barrier(self->end);
    if (self->rank == 0) {
        for (int p = 0; p < DIRECT_PUTS; p++) {
            const char *memory = given->receive[p];

            for (uint64_t i = 0; i < direct[1].bytes; i++)
                RANK_CHECK(memory[i] == (char)0xa5);
        }
        RANK_CHECK(rsched_exchange_wait(other->x) == RSCHED_EPEER);
    }
    halo_destroy(given);
    RANK_CHECK(halo_create(self, direct, NUM_DIRECT, 3, 0, &after) == 0);
    RANK_CHECK(only_epochs(self, after, 0) == 0);
    RANK_CHECK(only_life(self, after, 1) == 0);
    mesh_barrier(self->end);
    halo_destroy(other);
    halo_destroy(after);
    return 0;
}

/* Rank 1 has received an epoch and destroys the exchange, and rank 0, whose device
 * gathers the message, has not heard of that device yet. */
static int receive_all(struct rank *self, const struct halo_edge *edge,
                       struct halo **given)
{
    RANK_CHECK(halo_create(self, edge, 1, edge->bytes, 0, given) == 0);
    RANK_CHECK(halo_step(*given, 0) == 0);
    halo_fill(*given, 1);
    mesh_barrier(self->end);
    if (self->rank == 1)
        RANK_CHECK(rsched_exchange_start((*given)->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        interpreter_lose_acknowledgments(edge->bytes);
        RANK_CHECK(rsched_exchange_start((*given)->x) == 0);
        interpreter_lose_acknowledgments(0);
    } else {
        RANK_CHECK(rsched_exchange_wait((*given)->x) == 0);
        RANK_CHECK(halo_wrong(*given, 1) == 0);
        halo_destroy(*given);
    }
    mesh_barrier(self->end);
    return 0;
}

/* The tests of a program that waits look for dead peers, too. */
static int is_still_pending(struct rank *self, struct halo *given)
{
    for (int i = 0; i < LOOKS; i++) {
        bool done;

        RANK_CHECK(rsched_exchange_test(given->x, &done) == 0);
        RANK_CHECK(!done);
    }
    return 0;
}

/* The epoch is complete once the device says that it has let go of the buffers;
 * the next one is not. */
static int run_received(struct rank *self)
{
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    for (size_t i = 0; i < sizeof(gathered) / sizeof(gathered[0]); i++) {
        struct halo *given;

        RANK_CHECK(receive_all(self, &gathered[i], &given) == 0);
        if (self->rank == 0) {
            RANK_CHECK(is_still_pending(self, given) == 0);
            interpreter_deliver();
            RANK_CHECK(rsched_exchange_wait(given->x) == 0);
            RANK_CHECK(rsched_exchange_start(given->x) == 0);
            if (gathered[i].bytes == DIRECT_BYTES)
                RANK_CHECK(is_told(self, given) == 0);
            halo_destroy(given);
        }
        mesh_barrier(self->end);
    }
    return 0;
}

/* Rank 1 goes altogether, so the device of rank 0 is never told. */
static int run_received_left(struct rank *self)
{
    struct halo *other, *given;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, single, 2, 1, 0, &other) == 0);
    RANK_CHECK(only_epochs(self, other, 0) == 0);
    RANK_CHECK(receive_all(self, &gathered[0], &given) == 0);
    if (self->rank == 1) {
        halo_destroy(other);
        rank_close(self);
    }
    mesh_barrier(self->end);
    if (self->rank == 0) {
        RANK_CHECK(rsched_exchange_start(other->x) == 0);
        RANK_CHECK(rsched_exchange_wait(other->x) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), "nobody answers") != NULL);
        RANK_CHECK(rsched_exchange_wait(given->x) == 0);
        halo_destroy(given);
        halo_destroy(other);
    } else {
        RANK_CHECK(rank_open(self) == 0);
    }
    mesh_barrier(self->end);
    return 0;
}

/* An exchange of which rank 1 has begun as much as its queues take. Rank 0 waits
 * for the rest. */
static int fill_queues(struct rank *self, struct halo_edge *many,
                       struct halo **given)
{
    for (int i = 0; i < NUM_PIECES; i++)
        many[i] = (struct halo_edge){1, 0, PIECE_BYTES};
    RANK_CHECK(halo_create(self, many, NUM_PIECES, 2, 0, given) == 0);
    RANK_CHECK(halo_step(*given, 0) == 0);
    halo_fill(*given, 1);
    if (self->rank == 0)
        RANK_CHECK(rsched_exchange_start((*given)->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 1) {
        interpreter_hold(PIECE_BYTES);
        RANK_CHECK(rsched_exchange_start((*given)->x) == 0);
        RANK_CHECK(direct_bytes(*given) ==
                   2 * (uint64_t)NUM_PIECES * PIECE_BYTES);
    }
    return 0;
}

/* A device reads pages that it has registered, freed or not; the interpreter does
 * not: so they stay. */
static void give_up(struct halo *given)
{
    rsched_exchange_destroy(given->x);
    given->x = NULL;
}

/* Rank 0 is told although rank 1 makes no call: by its thread; where there is
 * none, while rank 1 waits for another exchange. */
static int tell(struct rank *self, struct halo *waits, struct halo *other)
{
    if (self->rank == 0)
        RANK_CHECK(is_told(self, waits) == 0);
    if (rs_config()->progress_ps != 0)
        mesh_barrier(self->end);
    RANK_CHECK(only_epochs(self, other, 0) == 0);
    return 0;
}

/* Rank 1 gives up while its queues are full. */
static int run_full(struct rank *self)
{
    struct halo_edge many[NUM_PIECES];
    struct halo *other, *given;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, single, 2, 1, 0, &other) == 0);
    RANK_CHECK(fill_queues(self, many, &given) == 0);
    if (self->rank == 1) {
        give_up(given);
        interpreter_deliver();
    }
    mesh_barrier(self->end);
    RANK_CHECK(tell(self, given, other) == 0);
    halo_destroy(given);
    RANK_CHECK(only_life(self, other, 0) == 0);
    mesh_barrier(self->end);
    halo_destroy(other);
    return 0;
}

/* Another exchange of rank 1 fails while its queues are full, since rank 0 sends
 * more than it expects; it is not destroyed. */
static int run_failed(struct rank *self)
{
    struct halo_edge wrong[] = {{0, 1, 100}, {1, 0, 100}};
    struct halo_edge many[NUM_PIECES];
    struct halo *other, *given, *failing;

    wrong[0].bytes -= self->rank == 1;
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, single, 2, 1, 0, &other) == 0);
    RANK_CHECK(halo_create(self, wrong, 2, 3, RSCHED_EXCHANGE_VARIABLE,
                           &failing) == 0);
    RANK_CHECK(rsched_exchange_load(failing->x, failing->pattern,
                                    (const void *const *)failing->send,
                                    failing->receive) == 0);
    if (self->rank == 0)
        RANK_CHECK(rsched_exchange_start(failing->x) == 0);
    RANK_CHECK(fill_queues(self, many, &given) == 0);
    if (self->rank == 1) {
        RANK_CHECK(rsched_exchange_start(failing->x) == 0);
        RANK_CHECK(rsched_exchange_wait(failing->x) == RSCHED_ETRUNC);
        interpreter_deliver();
    }
    mesh_barrier(self->end);
    RANK_CHECK(tell(self, failing, other) == 0);
    RANK_CHECK(rsched_exchange_wait(given->x) == 0);
    RANK_CHECK(halo_wrong(given, 1) == 0);
    mesh_barrier(self->end);
    halo_destroy(given);
    halo_destroy(failing);
    halo_destroy(other);
    return 0;
}

/* Rank 1 gives up while its queues are full, and its context goes at once. What
 * it has to say is said before; or, where nothing moves, rank 0 finds that nobody
 * is there. */
static int leave(struct rank *self, bool stuck, const char *cause)
{
    struct halo_edge many[NUM_PIECES];
    struct halo *given;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(fill_queues(self, many, &given) == 0);
    if (self->rank == 1) {
        give_up(given);
        if (!stuck)
            interpreter_deliver();
        rank_close(self);
    }
    mesh_barrier(self->end);
    if (self->rank == 0) {
        RANK_CHECK(rsched_exchange_wait(given->x) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), cause) != NULL);
    }
    halo_destroy(given);
    interpreter_hold(0);
    mesh_barrier(self->end);
    if (self->rank == 1)
        RANK_CHECK(rank_open(self) == 0);
    return 0;
}

static int run_left(struct rank *self)
{
    return leave(self, false, "has given up the exchange");
}

static int run_left_stuck(struct rank *self)
{
    return leave(self, true, "nobody answers");
}

/* Rank 1 has sent all, as far as it knows, and goes; its device takes longer than it
 * waits for what it has left to say. */
static int run_left_sent(struct rank *self)
{
    struct halo *sent;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, inlined, 1, 1, 0, &sent) == 0);
    RANK_CHECK(halo_step(sent, 0) == 0);
    halo_fill(sent, 1);
    if (self->rank == 1)
        interpreter_hold(inlined[0].bytes);
    RANK_CHECK(rsched_exchange_start(sent->x) == 0);
    if (self->rank == 1)
        RANK_CHECK(rsched_exchange_wait(sent->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 1) {
        halo_destroy(sent);
        rank_close(self);
        RANK_CHECK(rank_open(self) == 0);
    } else {
        rs_clock_sleep(3 * DEADLINE_PS);
        interpreter_deliver();
        RANK_CHECK(rsched_exchange_wait(sent->x) == 0);
        RANK_CHECK(halo_wrong(sent, 1) == 0);
        halo_destroy(sent);
    }
    mesh_barrier(self->end);
    return 0;
}

/* An exchange of rank 0 fails because of rank 2 while its device has still to gather
 * what rank 1 gets, from memory that rank 0 uses for other things as soon as it has
 * destroyed the exchange. */
static int run_other_fails(struct rank *self)
{
    struct halo *given;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, fan, 2, 1, 0, &given) == 0);
    RANK_CHECK(halo_step(given, 0) == 0);
    halo_fill(given, 1);
    if (self->rank == 1)
        RANK_CHECK(rsched_exchange_start(given->x) == 0);
    if (self->rank == 2)
        give_up(given);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        interpreter_hold(LANDING_BYTES);
        RANK_CHECK(rsched_exchange_start(given->x) == 0);
        RANK_CHECK(is_told(self, given) == 0);
    }
    mesh_barrier(self->end);
    if (self->rank == 0) {
        give_up(given);
        memset(given->send[0], 0xa5, LANDING_BYTES);
    } else if (self->rank == 1) {
        rs_clock_sleep(3 * DEADLINE_PS);
        interpreter_deliver();
        RANK_CHECK(rsched_exchange_wait(given->x) == 0);
        RANK_CHECK(halo_wrong(given, 1) == 0);
    }
    mesh_barrier(self->end);
    halo_destroy(given);
    return 0;
}

/* From rank 0 to ranks 1 to `receivers`. @return how many there are */
static int edges_to(int receivers, struct halo_edge *edges)
{
    int n = 0;

    for (int to = 1; to <= receivers; to++) {
        for (int i = 0; i < NUM_PIECES; i++)
            edges[n++] = (struct halo_edge){0, to, PIECE_BYTES};
    }
    return n;
}

/* How often rank 0 sleeps while it destroys an exchange in which it sends to some
 * others and nothing moves; only it is told. */
static int count_sleeps(struct rank *self, int receivers, int *slept)
{
    struct halo_edge many[MANY_RANKS * NUM_PIECES];
    int n = edges_to(receivers, many);
    struct halo *h;

    if (self->rank > receivers) {
        mesh_barrier(self->end);
        mesh_barrier(self->end);
        return 0;
    }
    RANK_CHECK(halo_create(self, many, n, (uint64_t)receivers, 0, &h) == 0);
    RANK_CHECK(halo_step(h, 0) == 0);
    if (self->rank > 0)
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        interpreter_hold(PIECE_BYTES);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK((int)h->x->num_out == 2 * receivers);
        sleeps = 0;
        give_up(h);
        *slept = sleeps;
        interpreter_deliver();
        /* Where it has no thread: */
        while (rs_context_settle(self->context))
            rs_cpu_relax();
    } else {
        RANK_CHECK(is_told(self, h) == 0);
    }
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

/* Many lanes that are stuck are waited for together. */
static int run_many(struct rank *self)
{
    int one = 1, all = 1;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(count_sleeps(self, 1, &one) == 0);
    RANK_CHECK(count_sleeps(self, MANY_RANKS - 1, &all) == 0);
    if (self->rank == 0)
        printf("sleeps: %d for one receiver, %d for %d\n", one, all,
               MANY_RANKS - 1);
    RANK_CHECK(one > 0 && all > 0 && all <= MOST_SLEEPS);
    return 0;
}

/* So are many connections when the context of rank 0 goes. */
static int run_many_left(struct rank *self)
{
    struct halo_edge many[MANY_RANKS * NUM_PIECES];
    int n = edges_to(MANY_RANKS - 1, many);
    struct halo *h;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, many, n, 1, 0, &h) == 0);
    RANK_CHECK(halo_step(h, 0) == 0);
    if (self->rank > 0)
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        interpreter_hold(PIECE_BYTES);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        give_up(h);
        sleeps = 0;
        rank_close(self);
        printf("sleeps: %d for a context with %d peers\n", sleeps,
               MANY_RANKS - 1);
        RANK_CHECK(sleeps > 0 && sleeps <= MOST_SLEEPS);
    }
    mesh_barrier(self->end);
    if (self->rank > 0)
        RANK_CHECK(rsched_exchange_wait(h->x) == RSCHED_EPEER);
    halo_destroy(h);
    interpreter_hold(0);
    mesh_barrier(self->end);
    if (self->rank == 0)
        RANK_CHECK(rank_open(self) == 0);
    return 0;
}

int main(void)
{
    static const struct {
        const char *name;
        rank_fn *run;
        int ranks;
    } cases[] = {
        {"late", run_late, 2},
        {"under way", run_under_way, 2},
        {"untold", run_untold, 2},
        {"received", run_received, 2},
        {"received, left", run_received_left, 2},
        {"full", run_full, 2},
        {"failed", run_failed, 2},
        {"left", run_left, 2},
        {"left stuck", run_left_stuck, 2},
        {"left, sent", run_left_sent, 2},
        {"other fails", run_other_fails, 3},
        {"many", run_many, MANY_RANKS},
        {"many left", run_many_left, MANY_RANKS},
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (ranks_run(cases[i].ranks, true, cases[i].run, NULL) == 0)
            continue;
        printf("FAILED: %s\n", cases[i].name);
        failed = 1;
    }
    return failed;
}
