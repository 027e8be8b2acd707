/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that has stopped takes no immediates, so its device tells the sender's to try
 * again, for ever: who destroys what it has sent waits for RSCHED_DESTROY_TIMEOUT, and for
 * as long as any is taken. Over the interpreter; the ranks are threads, of which none goes
 * on by itself (RSCHED_PROGRESS=0). Time is the test's: a sleep of who destroys is long. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/run/run.h"
#include "tests/runtime/halo.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/only.h"
#include "tests/verbs/warned.h"

/* Short enough to be copied when it is posted; long enough to be gathered, through a
 * slot. */
enum { INLINED_BYTES = 64, GATHERED_BYTES = 20000, MANY_RANKS = 5, LATER = 3 };
static const struct halo_edge inlined[] = {{0, 1, INLINED_BYTES}};
static const struct halo_edge gathered[] = {{0, 1, GATHERED_BYTES}};
static const struct halo_edge other_edge[] = {{1, 0, INLINED_BYTES}};
static const struct halo_edge fan[] = {{0, 1, GATHERED_BYTES},
                                       {0, 2, GATHERED_BYTES},
                                       {0, 3, GATHERED_BYTES},
                                       {0, 4, GATHERED_BYTES}};

static const char taken_none[] = "the peer has taken no notification for 60000 ms";

/* Of who destroys a sleep takes so much longer. */
enum { LONGER = 2000 };
static atomic_uint_fast64_t passed_ps;
static _Thread_local bool destroys;

/* Now and then somebody looks for a peer. */
static _Thread_local struct rsched_context *slow;
static _Thread_local uint64_t look_ps, next_look_ps;
static _Thread_local int looks;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    int status = __real_clock_gettime(clock, time);

    time->tv_sec += (time_t)(atomic_load(&passed_ps) / RS_PS_PER_S);
    return status;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    uint64_t ps = ((uint64_t)time->tv_sec * RS_PS_PER_S +
                   (uint64_t)time->tv_nsec * RS_PS_PER_NS) *
                  LONGER;

    if (!destroys)
        return __real_nanosleep(time, left);
    ps += atomic_fetch_add(&passed_ps, ps);
    if (slow != NULL && ps >= next_look_ps) {
        next_look_ps = ps + look_ps;
        looks++;
        rs_context_look(slow);
    }
    sched_yield();
    return 0;
}

static uint64_t begin_to_destroy(void)
{
    destroys = true;
    return atomic_load(&passed_ps);
}

/* @return how long it took */
static uint64_t end_to_destroy(uint64_t begun_ps)
{
    destroys = false;
    return atomic_load(&passed_ps) - begun_ps;
}

static uint64_t limit_ps(void)
{
    return rs_config()->destroy_timeout_ps;
}

/* What has really passed counts, too. */
static bool is_limit(uint64_t took_ps)
{
    return took_ps > limit_ps() / 2 && took_ps < limit_ps() / 2 * 3;
}

/* One epoch of all; then rank 0 starts further ones, of which `receives` are taken. */
static int run_ahead(struct rank *self, const struct halo_edge *edges, int num_edges,
                     uint32_t receives, int epochs, struct halo **h)
{
    RANK_CHECK(halo_create(self, edges, num_edges, 1, 0, h) == 0);
    RANK_CHECK(halo_step(*h, 0) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        interpreter_receives(receives);
        for (int e = 1; e <= epochs; e++) {
            halo_fill(*h, e);
            RANK_CHECK(rsched_exchange_start((*h)->x) == 0);
            if (edges == inlined)
                RANK_CHECK(rsched_exchange_wait((*h)->x) == 0);
        }
    }
    return 0;
}

static int receive(struct rank *self, struct halo *h, int epoch)
{
    halo_fill(h, epoch);
    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    RANK_CHECK(rsched_exchange_wait(h->x) == 0);
    RANK_CHECK(halo_wrong(h, epoch) == 0);
    return 0;
}

static int receive_no_more(struct rank *self, struct halo *h)
{
    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    RANK_CHECK(rsched_exchange_wait(h->x) == RSCHED_EPEER);
    return 0;
}

/* Rank 0 has sent all, as far as it knows, and goes; rank 1 has stopped. */
static int run_sent(struct rank *self)
{
    int before = warned(taken_none);
    struct halo *h;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(run_ahead(self, inlined, 1, 2, LATER, &h) == 0);
    if (self->rank == 0) {
        uint64_t begun_ps = begin_to_destroy(), took_ps;

        halo_destroy(h);
        rank_close(self);
        took_ps = end_to_destroy(begun_ps);
        RANK_CHECK(is_limit(took_ps));
        RANK_CHECK(warned(taken_none) == before + 1);
    }
    mesh_barrier(self->end);
    if (self->rank == 1) {
        RANK_CHECK(receive(self, h, 1) == 0);
        RANK_CHECK(receive(self, h, 2) == 0);
        RANK_CHECK(receive_no_more(self, h) == 0);
        halo_destroy(h);
    } else {
        interpreter_receives(0);
        RANK_CHECK(rank_open(self) == 0);
    }
    mesh_barrier(self->end);
    return 0;
}

/* Rank 0 destroys an exchange whose message its device has still to gather, and uses the
 * memory for other things. The other exchanges with that peer fail, those that are made
 * later do not. */
static int run_gathered(struct rank *self)
{
    int before = warned(taken_none);
    struct halo *h, *other, *after;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, other_edge, 1, 2, 0, &other) == 0);
    RANK_CHECK(run_ahead(self, gathered, 1, 1, 1, &h) == 0);
    if (self->rank == 0) {
        uint64_t begun_ps, took_ps;

        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        halo_fill(h, 2);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        begun_ps = begin_to_destroy();
        rsched_exchange_destroy(h->x);
        h->x = NULL;
        took_ps = end_to_destroy(begun_ps);
        RANK_CHECK(is_limit(took_ps));
        RANK_CHECK(warned(taken_none) == before + 1);
        halo_fill(h, 3);
        RANK_CHECK(rsched_exchange_start(other->x) == RSCHED_EPEER ||
                   rsched_exchange_wait(other->x) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), taken_none) != NULL);
    }
    mesh_barrier(self->end);
    if (self->rank == 1) {
        RANK_CHECK(receive(self, h, 1) == 0);
        RANK_CHECK(receive_no_more(self, h) == 0);
    } else {
        interpreter_receives(0);
    }
    halo_destroy(h);
    RANK_CHECK(halo_create(self, other_edge, 1, 3, 0, &after) == 0);
    RANK_CHECK(only_life(self, after, 1) == 0);
    RANK_CHECK(only_epochs(self, after, 0) == 0);
    halo_destroy(other);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* All neighbors of rank 0 have stopped: it waits for all of them at once. */
static int run_many(struct rank *self)
{
    struct halo *h;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(run_ahead(self, fan, MANY_RANKS - 1, 1, 1, &h) == 0);
    if (self->rank == 0) {
        uint64_t begun_ps, took_ps;

        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        begun_ps = begin_to_destroy();
        halo_destroy(h);
        took_ps = end_to_destroy(begun_ps);
        RANK_CHECK(is_limit(took_ps));
    }
    mesh_barrier(self->end);
    if (self->rank > 0) {
        RANK_CHECK(receive(self, h, 1) == 0);
        RANK_CHECK(receive_no_more(self, h) == 0);
        halo_destroy(h);
    }
    interpreter_receives(0);
    mesh_barrier(self->end);
    return 0;
}

/* Rank 1 takes what has come, one immediate after the other and each after a long time;
 * all that was sent gets there. */
static int run_slow(struct rank *self)
{
    uint64_t limit = limit_ps() != 0 ? limit_ps() : 60 * RS_PS_PER_S;
    struct rsched_context *contexts[2];
    int before = warned("has taken no notification");
    struct halo *h;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(run_ahead(self, inlined, 1, 1, LATER, &h) == 0);
    if (self->rank == 1) {
        contexts[1] = self->context;
        mesh_send(self->end, 0, 1, &contexts[1], sizeof(contexts[1]));
    } else {
        uint64_t begun_ps, took_ps;

        mesh_receive(self->end, 1, 1, &contexts[1], sizeof(contexts[1]));
        begun_ps = begin_to_destroy();
        /* Without a limit it may take longer than that of others. */
        look_ps = limit_ps() != 0 ? limit / 3 * 2 : 2 * limit;
        next_look_ps = begun_ps + look_ps;
        looks = 0;
        slow = contexts[1];
        halo_destroy(h);
        rank_close(self);
        slow = NULL;
        took_ps = end_to_destroy(begun_ps);
        RANK_CHECK(looks == LATER - 1 && took_ps > limit);
        RANK_CHECK(warned("has taken no notification") == before);
    }
    mesh_barrier(self->end);
    if (self->rank == 1) {
        for (int e = 1; e <= LATER; e++)
            RANK_CHECK(receive(self, h, e) == 0);
        halo_destroy(h);
    } else {
        interpreter_receives(0);
        RANK_CHECK(rank_open(self) == 0);
    }
    mesh_barrier(self->end);
    return 0;
}

int main(void)
{
    static const struct {
        const char *name;
        rank_fn *run;
        int ranks;
        bool limited;
    } cases[] = {
        {"sent", run_sent, 2, true},
        {"gathered", run_gathered, 2, true},
        {"many", run_many, MANY_RANKS, true},
        {"slow", run_slow, 2, false},
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].limited && limit_ps() == 0)
            continue;
        if (ranks_run(cases[i].ranks, true, cases[i].run, NULL) == 0)
            continue;
        printf("FAILED: %s\n", cases[i].name);
        failed = 1;
    }
    return failed;
}
