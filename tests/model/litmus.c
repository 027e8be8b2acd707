/* SPDX-License-Identifier: BSD-3-Clause */
/* The orderings that the model of persistent.pml takes for granted, between two
 * threads and on the code itself (mpi/lane.h):
 *
 * stop:   put, fence, look at the mode, against stop, read the puts; and the
 *         same with a grant and the sender stopping. One side sees the other.
 * stream: bytes are there with their number, and slots are used again only
 *         when they have been read.
 *
 * Without the fence the first one fails now and then; how often is printed.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi/lane.h"

enum { STOPS = 200000, MESSAGES = 200000, LENGTH = 1000 };

static char *memory;
static struct rs_pair_view sides[2]; /* 0 sends */
static struct rs_slots slots[2];
static const struct rs_slots *const all[2] = {&slots[0], &slots[1]};

enum { ARENA = 65536 }; /* the longest message that lanes have room for */

static void prepare(uint64_t bytes)
{
    struct rs_rows rows = {0};
    uint64_t place = rs_rows_take(&rows, 0, bytes, ARENA, 0, 0);

    free(memory);
    memory = aligned_alloc(4096, rs_pair_bytes(ARENA));
    if (memory == NULL)
        abort();
    memset(memory, 0, rs_pair_bytes(ARENA));
    for (int side = 0; side < 2; side++) {
        sides[side] = (struct rs_pair_view){
            .words = (struct rs_pair_words *)(void *)memory,
            .sends = side == 0};
        if (!rs_slots_init(&slots[side], &sides[side], 0, place, ARENA))
            abort();
    }
}

static void open_incarnation(void)
{
    static const struct rs_lane_set only = {.banks = {1}};

    rs_pair_ready(&sides[1]);
    rs_pair_open(&sides[0], &only);
    rs_pair_enter(&sides[1]);
    for (int side = 0; side < 2; side++) {
        slots[side].number = rs_pair_base(&sides[side]);
        slots[side].seen = slots[side].number;
    }
}

/* Both at the same point, as closely as that goes. */
static atomic_uint arrived;
static void meet(unsigned round)
{
    atomic_fetch_add(&arrived, 1);
    for (unsigned i = 0; atomic_load(&arrived) < 2 * round; i++) {
        if (i > 10000)
            sched_yield();
    }
}

/* ---- stop ---- */

static int stopper; /* the side that stops */
static bool fenced;
static bool saw_open;
static uint64_t number;

/* The other side puts, or grants, and looks. */
static void *put_and_look(void *arg)
{
    int me = !stopper;
    unsigned round = 0;

    (void)arg;
    for (int i = 0; i < STOPS; i++) {
        meet(++round);
        if (me == 0)
            number = rs_lane_put(&slots[0], rs_slots_at(&slots[0], 1), 8);
        else
            number = rs_lane_grant(&slots[1]);
        if (fenced)
            rs_lane_fence();
        saw_open = rs_pair_is_open(&sides[me]);
        meet(++round);
        meet(++round);
    }
    return NULL;
}

/* How often one side went on although the other had not seen it. */
static unsigned run_stops(int who, bool with_fence)
{
    unsigned bad = 0, round = 0;
    pthread_t thread;

    stopper = who;
    fenced = with_fence;
    atomic_store(&arrived, 0);
    prepare(8);
    for (int i = 0; i < STOPS; i++) {
        open_incarnation();
        /* The stopper has its own half of the match. */
        if (who == 0)
            rs_lane_put(&slots[0], rs_slots_at(&slots[0], 1), 8);
        else
            rs_lane_grant(&slots[1]);
        if (i == 0 &&
            pthread_create(&thread, NULL, put_and_look, NULL) != 0)
            abort();
        meet(++round);
        rs_pair_stop(&sides[who], &all[who], 1);
        meet(++round);
        if (saw_open && !rs_lane_reached(rs_pair_final(&sides[0], 0), number))
            bad++;
        rs_pair_stop(&sides[!who], &all[!who], 1);
        if (i == STOPS - 1)
            break;
        meet(++round);
    }
    meet(++round);
    pthread_join(thread, NULL);
    return bad;
}

/* ---- stream ---- */

static void *send_stream(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < MESSAGES; i++) {
        uint64_t bytes = i % 3 == 0 ? 40 : LENGTH;
        struct rs_slot *slot;

        while ((slot = rs_lane_next(&slots[0])) == NULL)
            sched_yield();
        memset(slot->data, (int)(i % 251), bytes);
        rs_lane_put(&slots[0], slot, bytes);
    }
    return NULL;
}

static unsigned run_stream(void)
{
    unsigned bad = 0;
    pthread_t thread;

    prepare(LENGTH);
    open_incarnation();
    if (pthread_create(&thread, NULL, send_stream, NULL) != 0)
        abort();
    for (unsigned i = 0; i < MESSAGES; i++) {
        uint64_t k = rs_lane_grant(&slots[1]);
        struct rs_slot *slot;
        const char *data;

        while ((slot = rs_lane_is_put(&slots[1], k)) == NULL)
            sched_yield();
        data = slot->data;
        for (uint64_t b = 0; b < slot->bytes; b++)
            bad += (unsigned char)data[b] != i % 251;
        rs_lane_consume(&slots[1], k);
    }
    pthread_join(thread, NULL);
    return bad;
}

int main(void)
{
    unsigned stops = run_stops(1, true) + run_stops(0, true);
    unsigned without = run_stops(1, false) + run_stops(0, false);
    unsigned stream = run_stream();

    printf("litmus: %u of %d stops not seen (without the fence %u), %u wrong "
           "bytes in %d messages\n", stops, 2 * STOPS, without, stream,
           MESSAGES);
    free(memory);
    return stops + stream > 0;
}
