/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a device sends within the call that posts, all rails begin with a head of
 * their message before one of them goes on; other devices are rung once. Over the
 * interpreter, whose devices are either. There is no thread that could go on
 * meanwhile. */
#include <stdio.h>
#include <stdlib.h>

#include "librsched/run/run.h"
#include "tests/runtime/halo.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/only.h"

enum { RAILS = 2, HEAD = 40001 };

struct expected {
    uint64_t bytes;                /* of the one put of each rail */
    uint64_t in_start, in_wait;    /* requests */
    uint64_t rings_start, rings_wait;
};

static int run_epoch(struct rank *self, struct halo *h, int epoch,
                     const struct expected *e)
{
    struct interpreter_counts before, started, done;

    halo_fill(h, epoch);
    if (self->rank == 1)
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        before = interpreter_counts();
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        started = interpreter_counts();
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        done = interpreter_counts();
        RANK_CHECK(started.rings - before.rings == e->rings_start);
        RANK_CHECK(started.requests - before.requests == e->in_start);
        RANK_CHECK(done.rings - started.rings == e->rings_wait);
        RANK_CHECK(done.requests - started.requests == e->in_wait);
    }
    mesh_barrier(self->end);
    if (self->rank == 1) {
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    mesh_barrier(self->end);
    return 0;
}

/* Gathered from the user's memory, or packed: each part before it is posted. */
static int run_from(struct rank *self, const struct rs_sources *sources)
{
    static const struct expected cases[] = {
        /* Data and flag. */
        {2 * HEAD - 1, 2 * RAILS, 0, RAILS, 0},
        /* The head; the rest and the flag. */
        {2 * HEAD, RAILS, 2 * RAILS, RAILS, RAILS},
        {500000, RAILS, 2 * RAILS, RAILS, RAILS},
    };

    /* What a device of its own gets. */
    static const struct expected whole = {0, 2 * RAILS, 0, RAILS, 0};
    bool heads = getenv("INTERPRETER_HEAD") != NULL;

    RANK_CHECK(only_interpreter(self, sources) == 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct expected *e = &cases[i];
        struct halo_edge edges[RAILS];
        struct halo *h;

        for (int r = 0; r < RAILS; r++)
            edges[r] = (struct halo_edge){0, 1, e->bytes};
        RANK_CHECK(halo_create(self, edges, RAILS, i, 0, &h) == 0);
        if (self->rank == 0)
            RANK_CHECK(h->x->num_out == RAILS);
        /* The first one makes the lists. */
        for (int epoch = 0; epoch < ONLY_EPOCHS; epoch++)
            RANK_CHECK(run_epoch(self, h, epoch, heads ? e : &whole) == 0);
        for (uint32_t r = 0; r < h->x->num_out; r++)
            RANK_CHECK(h->x->out[r].lane->stats.packed ==
                       (sources == NULL ? 0 : ONLY_EPOCHS * e->bytes));
        halo_destroy(h);
    }
    return 0;
}

static int run_gathered(struct rank *self)
{
    return run_from(self, NULL);
}

static int run_packed(struct rank *self)
{
    static const struct rs_sources dear_entries = {
        .gather_block = UINT64_C(1000000000000),
        .pack_rate = UINT64_C(1000000000)};

    return run_from(self, &dear_entries);
}

int main(void)
{
    return ranks_run(2, true, run_gathered, NULL) != 0 ||
           ranks_run(2, true, run_packed, NULL) != 0;
}
