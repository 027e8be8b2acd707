/* SPDX-License-Identifier: BSD-3-Clause */
/* That one word in each epoch says to a peer that all lanes of an exchange from it
 * may be written, whatever becomes of them: over the interpreter, which holds up
 * what is long. With RSCHED_PROGRESS=0 nobody goes on with anything but the calls
 * of the test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/config.h"
#include "librsched/run/run.h"
#include "tests/runtime/halo.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/only.h"

enum { RAILS = 2, EPOCHS = ONLY_EPOCHS, SENDERS = 2, LONG = 100000 };

static uint64_t bytes_by(const struct halo *h, enum rsched_way way)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(h->x, &stats);
    return stats.way_bytes[way];
}

/* Rank 0 receives over both rails from two others. */
static int run_count(struct rank *self)
{
    struct halo_edge edges[SENDERS * RAILS];
    struct halo *h;

    for (int i = 0; i < SENDERS * RAILS; i++)
        edges[i] = (struct halo_edge){1 + i / RAILS, 0, LONG};
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, edges, SENDERS * RAILS, 1, 0, &h) == 0);
    if (self->rank == 0)
        RANK_CHECK(h->x->num_in == SENDERS * RAILS);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        halo_fill(h, epoch);
        mesh_barrier(self->end);
        if (self->rank == 0) {
            struct interpreter_counts before = interpreter_counts(), after;

            RANK_CHECK(rsched_exchange_start(h->x) == 0);
            after = interpreter_counts();
            /* And which tables it speaks of, if these are new. */
            RANK_CHECK(after.requests - before.requests ==
                       (epoch == 0 ? 2 * SENDERS : SENDERS));
            RANK_CHECK(after.rings - before.rings == SENDERS);
        }
        mesh_barrier(self->end);
        if (self->rank != 0)
            RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    if (self->rank != 0)
        RANK_CHECK(bytes_by(h, RSCHED_WAY_DIRECT) ==
                   (uint64_t)EPOCHS * RAILS * LONG);
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

/* The word overtakes the table of a lane whose rail is slow: that lane waits for
 * its table, the other one does not. What the lane knew before is of no use: that
 * memory is not registered any more. */
static int run_overtaken(struct rank *self)
{
    static const struct halo_edge edges[] = {{0, 1, LONG}, {0, 1, LONG}};
    struct halo *h;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, edges, RAILS, 1, 0, &h) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t before = bytes_by(h, RSCHED_WAY_DIRECT);

        if (self->rank == 1) {
            RANK_CHECK(h->x->num_in == RAILS);
            interpreter_hold_on(1u << h->x->in[1].rail, 1);
            RANK_CHECK(halo_rebind(h) == 0);
            interpreter_hold(0);
        }
        halo_fill(h, epoch);
        if (self->rank == 1)
            RANK_CHECK(rsched_exchange_start(h->x) == 0);
        mesh_barrier(self->end);
        if (self->rank == 0) {
            RANK_CHECK(rsched_exchange_start(h->x) == 0);
            RANK_CHECK(bytes_by(h, RSCHED_WAY_DIRECT) - before == LONG);
            interpreter_deliver();
        }
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
        if (self->rank == 0)
            RANK_CHECK(bytes_by(h, RSCHED_WAY_DIRECT) - before == RAILS * LONG);
        mesh_barrier(self->end);
    }
    halo_destroy(h);
    return 0;
}

/* Puts that go to more pieces than a table has, or all to one. */
enum { SHORT = 2000, NUM_SHORT = 100, SPACE = SHORT + 64, LONGEST = 10 * LONG };

static void *const *sent; /* rank 0's buffers; ranks are threads */

static int bind_shorts(struct rank *self, struct halo *h, char *memory,
                       uint64_t stride)
{
    for (int i = 0; i < NUM_SHORT; i++)
        h->receive[1 + i] = memory + (uint64_t)i * stride;
    RANK_CHECK(rsched_exchange_bind(h->x, (const void *const *)h->send,
                                    h->receive) == 0);
    return 0;
}

/* Buffers without the gaps that halo_wrong() looks at. */
static int step_shorts(struct rank *self, struct halo *h, int epoch)
{
    if (self->rank == 0) {
        halo_fill(h, epoch);
        sent = h->send;
    }
    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    RANK_CHECK(rsched_exchange_wait(h->x) == 0);
    mesh_barrier(self->end);
    for (int i = 0; i < h->num_receive; i++)
        RANK_CHECK(memcmp(h->receive[i], sent[i], h->edges[i].bytes) == 0);
    mesh_barrier(self->end);
    return 0;
}

/* One lane of a bundle lands and is direct in turn, the other one stays direct. */
static int run_mixed(struct rank *self)
{
    struct halo_edge edges[1 + NUM_SHORT] = {{0, 1, LONGEST}};
    char *memory = malloc(NUM_SHORT * SPACE);
    uint64_t lands = 0, direct = 0;
    void *own[1 + NUM_SHORT];
    struct halo *h;

    for (int i = 0; i < NUM_SHORT; i++)
        edges[1 + i] = (struct halo_edge){0, 1, SHORT};
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, edges, 1 + NUM_SHORT, 1, 0, &h) == 0);
    for (int i = 0; i < h->num_receive; i++)
        own[i] = h->receive[i];
    for (int turn = 0; turn < 4; turn++) {
        bool one = turn % 2 == 1;

        if (self->rank == 1) {
            RANK_CHECK(h->x->num_in == RAILS &&
                       (h->x->in[0].num_order == 1 || h->x->in[1].num_order == 1));
            RANK_CHECK(bind_shorts(self, h, memory, one ? SHORT : SPACE) == 0);
        }
        for (int i = 0; i < EPOCHS; i++)
            RANK_CHECK(step_shorts(self, h, turn * EPOCHS + i) == 0);
        direct += (uint64_t)EPOCHS * (LONGEST + (one ? NUM_SHORT * SHORT : 0));
        lands += (uint64_t)EPOCHS * (one ? 0 : NUM_SHORT * SHORT);
        if (self->rank == 0)
            RANK_CHECK(bytes_by(h, RSCHED_WAY_DIRECT) == direct &&
                       bytes_by(h, RSCHED_WAY_LANDING) == lands);
    }
    for (int i = 0; i < h->num_receive; i++)
        h->receive[i] = own[i];
    halo_destroy(h);
    free(memory);
    return 0;
}

/* The receiver is bound so often without a start in between that versions of 16 bits
 * would be what they were: the sender would write to where nobody looks. */
static int run_rebound(struct rank *self)
{
    static const struct halo_edge edge = {0, 1, LONG};
    enum { REBOUND = UINT16_MAX };
    void *receive[2];
    struct halo *h;
    char *other;

    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, &edge, 1, 1, 0, &h) == 0);
    RANK_CHECK(only_epochs(self, h, 0) == 0);
    if (self->rank == 1) {
        other = malloc(LONG + 1);
        RANK_CHECK(other != NULL);
        receive[0] = h->receive[0];
        receive[1] = other;
        for (int i = 0; i < REBOUND; i++)
            RANK_CHECK(rsched_exchange_bind(h->x, NULL,
                                            &receive[(i + 1) % 2]) == 0);
        h->receive[0] = other;
    }
    RANK_CHECK(only_epochs(self, h, EPOCHS) == 0);
    if (self->rank == 0)
        RANK_CHECK(bytes_by(h, RSCHED_WAY_DIRECT) == 2 * EPOCHS * LONG);
    mesh_barrier(self->end);
    halo_destroy(h);
    if (self->rank == 1)
        free(receive[0]);
    return 0;
}

enum { NUM_PIECES = 128, PIECE_BYTES = 8192 };

/* Both queues of rank 0 are full when it is to say that it is ready. */
static int run_full(struct rank *self)
{
    static const struct halo_edge to_me[] = {{1, 0, LONG}, {1, 0, LONG}};
    struct halo_edge many[NUM_PIECES];
    struct halo *fills, *waits;
    uint64_t before;

    for (int i = 0; i < NUM_PIECES; i++)
        many[i] = (struct halo_edge){0, 1, PIECE_BYTES};
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, many, NUM_PIECES, 1, 0, &fills) == 0);
    RANK_CHECK(halo_create(self, to_me, RAILS, 2, 0, &waits) == 0);
    RANK_CHECK(only_epochs(self, fills, 0) == 0);
    RANK_CHECK(only_epochs(self, waits, 0) == 0);
    halo_fill(fills, EPOCHS);
    halo_fill(waits, EPOCHS);
    if (self->rank == 1)
        RANK_CHECK(rsched_exchange_start(fills->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        interpreter_hold(PIECE_BYTES);
        RANK_CHECK(rsched_exchange_start(fills->x) == 0);
        RANK_CHECK(rsched_exchange_start(waits->x) == 0);
        rs_exchange_own(waits->x);
        RANK_CHECK(waits->x->in[0].lane->streams);
        RANK_CHECK(!waits->x->in[1].lane->streams);
        rs_exchange_leave(waits->x);
    }
    mesh_barrier(self->end);
    if (self->rank == 1) {
        before = bytes_by(waits, RSCHED_WAY_DIRECT);
        RANK_CHECK(rsched_exchange_start(waits->x) == 0);
        RANK_CHECK(bytes_by(waits, RSCHED_WAY_DIRECT) == before);
        interpreter_deliver();
    }
    /* Where it has a thread it need not be called. */
    if (self->rank == 0 && rs_config()->progress_ps != 0)
        mesh_barrier(self->end);
    RANK_CHECK(rsched_exchange_wait(waits->x) == 0);
    RANK_CHECK(rsched_exchange_wait(fills->x) == 0);
    if (self->rank == 1 || rs_config()->progress_ps == 0)
        mesh_barrier(self->end);
    RANK_CHECK(halo_wrong(waits, EPOCHS) == 0);
    RANK_CHECK(halo_wrong(fills, EPOCHS) == 0);
    RANK_CHECK(only_epochs(self, waits, EPOCHS + 1) == 0);
    mesh_barrier(self->end);
    halo_destroy(waits);
    halo_destroy(fills);
    return 0;
}

int main(void)
{
    static const struct {
        const char *name;
        rank_fn *run;
        int ranks;
    } cases[] = {
        {"count", run_count, 1 + SENDERS},
        {"overtaken", run_overtaken, 2},
        {"mixed", run_mixed, 2},
        {"rebound", run_rebound, 2},
        {"full", run_full, 2},
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
