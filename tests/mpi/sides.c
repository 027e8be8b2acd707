/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mpi/sides.h"

#include <stdlib.h>
#include <string.h>

struct side sender, receiver;
struct rs_pair_words *words;

/* ---- what the rest of the backend would do ---- */

unsigned rs_num_pairs, rs_num_open;
bool rs_unfenced, rs_has_rested;

/* Nothing is probed for. */
void *rs_native(const char *name)
{
    (void)name;
    return NULL;
}

void rs_count_number(enum rs_number number, uint64_t by)
{
    (void)number;
    (void)by;
}

struct rs_lane *rs_lane_find(const struct rs_pair *pair, int tag)
{
    (void)pair;
    (void)tag;
    return NULL;
}

struct rs_pair *rs_pair_find(MPI_Comm comm, bool sends, int peer)
{
    (void)comm;
    (void)sends;
    (void)peer;
    return NULL;
}

struct rs_name *rs_name_find(MPI_Comm comm)
{
    (void)comm;
    return NULL;
}

void rs_pairs_visit(void (*visit)(struct rs_pair *pair))
{
    (void)visit;
}

bool is_crowded;

bool rs_is_crowded(void)
{
    return is_crowded;
}

struct rs_pair *sides_others;

struct rs_pair *rs_pairs_first(void)
{
    return sides_others;
}

void rs_lane_move(struct rs_lane *lane)
{
    (void)lane;
}

void rs_pair_grow(struct rs_pair *pair)
{
    (void)pair;
}

void rs_message_finish(struct rs_message *message)
{
    (void)message;
    CHECK(!"a message");
}

void rs_message_go_native(struct rs_message *message)
{
    (void)message;
    CHECK(!"a message");
}

bool rs_message_poll_slowly(struct rs_request *request)
{
    (void)request;
    CHECK(!"a message");
    return false;
}

bool rs_message_take_slowly(struct rs_message *message, struct rs_slot *slot)
{
    (void)message;
    (void)slot;
    CHECK(!"a message");
    return false;
}

void rs_gpu_progress(void)
{
}

bool rs_note_may_be_sent(const struct rs_lane *lane)
{
    (void)lane;
    CHECK(!"an offer");
    return false;
}

void rs_gpu_settle(void)
{
}

/* ---- a clock ---- */

uint64_t clock_start;
unsigned looks_at_clock;
void (*at_clock)(void);

uint64_t __wrap_rs_now_ns(void);

uint64_t __wrap_rs_now_ns(void)
{
    looks_at_clock++;
    if (at_clock != NULL)
        at_clock();
    return __real_rs_now_ns() - clock_start;
}

/* ---- between two steps of the sender ---- */

void (*meanwhile)(void);

bool __wrap_rs_pair_open(struct rs_pair_view *pair, const struct rs_lane_set *joined);

/* The sender has chosen the lanes. */
bool __wrap_rs_pair_open(struct rs_pair_view *pair, const struct rs_lane_set *joined)
{
    void (*step)(void) = meanwhile;

    if (step != NULL) {
        meanwhile = NULL;
        step();
    }
    return __real_rs_pair_open(pair, joined);
}

/* ---- the two ---- */

static void begin_side(struct side *side, bool sends)
{
    static struct rs_name name = {.comm = MPI_COMM_WORLD};
    static uint64_t places[LANES];
    struct rs_rows rows = {0};

    *side = (struct side){.pair = {.view = {.words = words, .sends = sends},
                                   .name = &name, .greeted = true,
                                   .attached = side->attached, .slots = side->slots,
                                   .num_attached = LANES, .room = LANES}};
    for (unsigned i = 0; i < LANES; i++) {
        struct rs_lane *lane = &side->lanes[i];

        if (!sends)
            places[i] = rs_rows_take(&rows, i, 8, MOST, 0, 0);
        lane->pair = &side->pair;
        lane->index = i;
        lane->tag = (int)i;
        lane->attached = lane->quiet = true;
        lane->requests = 1;
        lane->sync = MPI_REQUEST_NULL;
        side->slots[i] = &lane->slots;
        CHECK(rs_slots_init(&lane->slots, &side->pair.view, i, places[i], MOST));
        side->attached[i] = lane;
    }
}

void sides_begin(void)
{
    size_t bytes = (rs_pair_bytes(MOST) + 4095) / 4096 * 4096;

    free(words);
    words = aligned_alloc(4096, bytes);
    CHECK(words != NULL);
    memset(words, 0, bytes);
    begin_side(&receiver, false);
    begin_side(&sender, true);
}

bool sides_joined(const struct side *side, bool barred, bool other)
{
    const uint64_t *banks = side->pair.view.joined.banks;

    for (unsigned i = 1; i < RS_BANKS; i++)
        CHECK(banks[i] == 0);
    return banks[0] == ((unsigned)barred << BARRED | (unsigned)other << OTHER);
}

void sides_bar(void)
{
    rs_lane_bar(&receiver.lanes[BARRED], RS_STAYS);
    rs_incarnation_close(&receiver.pair);
}

bool sides_open(void)
{
    for (int i = 0; i < 100; i++) {
        rs_incarnation_open(&receiver.pair);
        rs_incarnation_rest(&sender.pair, 0);
        rs_incarnation_open(&sender.pair);
        if (sender.pair.view.open != 0 && !rs_pair_is_open(&sender.pair.view))
            rs_incarnation_stop(&sender.pair);
        if (receiver.pair.view.open != 0 &&
            !rs_pair_is_open(&receiver.pair.view))
            rs_incarnation_stop(&receiver.pair);
        CHECK(!receiver.lanes[BARRED].barred ||
              (sender.lanes[BARRED].limit == 0 &&
               receiver.lanes[BARRED].limit == 0));
        if (sender.pair.view.open != 0 && receiver.pair.view.open != 0)
            return true;
    }
    return false;
}

void sides_expect_only_other(void)
{
    CHECK(sides_open());
    CHECK(sides_joined(&sender, false, true) && sides_joined(&receiver, false, true));
    CHECK(sender.lanes[OTHER].limit != 0 && receiver.lanes[OTHER].limit != 0);
}
