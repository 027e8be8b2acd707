/* SPDX-License-Identifier: BSD-3-Clause */
/* Attempts to open a pair (docs/persistent.md, T4), and what is lost by its being open (N6):
 * what a sender does at its starts and in its waits. */
#include "tests/mpi/sides.h"

#include <stdlib.h>

enum { STARTS = 100000, RARE = 16, STANDS = 256 };
#define MS UINT64_C(1000000)

/* @return how many of so many starts of the sender make attempts */
static unsigned tried(unsigned starts)
{
    unsigned num = 0;

    for (unsigned i = 0; i < starts; i++) {
        rs_incarnation_try(&sender.pair);
        num += rs_incarnation_is_tried(&sender.pair);
        CHECK(rs_incarnation_is_tried(&sender.pair) || words->wants == 0);
    }
    return num;
}

/* A receive is posted at each start. */
static void case_parked(void)
{
    sides_begin();
    receiver.lanes[OTHER].posted = 1;
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(tried(STARTS) < STARTS / RARE);
    CHECK(sender.pair.parked && rs_incarnation_is_futile(&sender.pair));
    CHECK(tried(STARTS) == 0);
    receiver.lanes[OTHER].posted = 0;
    CHECK(!rs_incarnation_open(&receiver.pair));
    rs_incarnation_try(&sender.pair);
    CHECK(sender.pair.view.open != 0);
    CHECK(!rs_incarnation_is_futile(&sender.pair));
}

/* The receiver was ready when the sender did not look. */
static void case_was_ready(void)
{
    sides_begin();
    CHECK(tried(STARTS) < STARTS / RARE);
    CHECK(tried(1) == 0);
    CHECK(!rs_incarnation_open(&receiver.pair));
    rs_incarnation_unready(&receiver.pair);
    CHECK(tried(1) == 1);
}

/* While the sender rests for long neither side does anything for the pair to open, and then both
 * do. */
static void case_rests(void)
{
    enum { FEW_STARTS = 4, LONG_REST = 64 };
    struct rs_lane *sends = &sender.lanes[OTHER], *receives = &receiver.lanes[OTHER];

    sides_begin();
    rs_incarnation_rest(&sender.pair, LONG_REST);
    CHECK(!rs_incarnation_open(&receiver.pair) && rs_pair_is_unready(&receiver.pair.view));
    rs_incarnation_is_due(&receiver.pair);
    CHECK(rs_pair_is_unready(&receiver.pair.view));
    rs_num_open++;
    CHECK(!rs_incarnation_rests(sends) && !rs_incarnation_rests(receives));
    rs_num_open--;
    for (int i = 1; i < LONG_REST; i++)
        CHECK(rs_incarnation_rests(sends) && rs_incarnation_rests(receives));
    CHECK(!rs_incarnation_rests(sends) && sender.pair.skip == 1);
    CHECK(tried(1) == 1 && !rs_incarnation_rests(receives));
    rs_incarnation_is_due(&receiver.pair);
    CHECK(!rs_pair_is_unready(&receiver.pair.view));
    rs_incarnation_try(&sender.pair);
    CHECK(sender.pair.view.open != 0 && !rs_incarnation_rests(sends));

    /* A receiver that is ready takes that back before it posts (O3), and learns what has been
     * left out. */
    sides_begin();
    rs_incarnation_open(&receiver.pair);
    rs_incarnation_rest(&sender.pair, LONG_REST);
    CHECK(!rs_incarnation_rests(receives));
    rs_incarnation_before_posting(receives);
    CHECK(rs_incarnation_rests(receives));
    rs_lane_leave_native(sends);
    CHECK(!rs_incarnation_rests(receives));
    rs_incarnation_before_posting(receives);
    CHECK(rs_incarnation_rests(receives));

    /* Starts on barred lanes are not counted, and never attempts. */
    sides_begin();
    rs_incarnation_rest(&sender.pair, FEW_STARTS);
    sides_bar();
    for (int i = 0; i < LONG_REST; i++)
        CHECK(rs_incarnation_rests(&sender.lanes[BARRED]));
    CHECK(sender.pair.skip == FEW_STARTS);
    sender.pair.outgrown = true; /* G2 is for the slow way */
    CHECK(!rs_incarnation_rests(sends));

    sides_begin();
    rs_incarnation_rest(&sender.pair, FEW_STARTS);
    CHECK(!rs_incarnation_open(&receiver.pair) && !rs_pair_is_unready(&receiver.pair.view));
    CHECK(rs_incarnation_rests(sends) && !rs_incarnation_rests(receives));
}

/* A message is under way at each start. */
static void case_never_quiet(void)
{
    struct rs_lane *lane = &sender.lanes[OTHER];
    unsigned num = 0, turns = 0;

    sides_begin();
    lane->quiet = false;
    lane->started = sender.pair.native_starts = 1;
    for (unsigned i = 0; i < STARTS; i++) {
        CHECK(!rs_incarnation_open(&receiver.pair));
        num += tried(1);
        rs_incarnation_unready(&receiver.pair);
    }
    CHECK(num > 0 && num < STARTS / RARE);
    lane->quiet = true;
    for (; sender.pair.view.open == 0; turns++) {
        CHECK(turns < STARTS / RARE);
        CHECK(!rs_incarnation_open(&receiver.pair));
        rs_incarnation_try(&sender.pair);
    }
}

/* A receive that stays posted keeps no other lane native. */
static void case_standing(void)
{
    struct rs_lane *lane = &receiver.lanes[BARRED];

    for (int time = 0; time < 2; time++) {
        if (time == 0)
            sides_begin();
        lane->posted = 1;
        lane->started = receiver.pair.native_starts;
        for (int i = 0; i < 4 * STANDS; i++) { /* in one go */
            receiver.pair.native_starts++;
            rs_incarnation_try(&receiver.pair);
            CHECK(!lane->barred);
        }
        receiver.pair.latest_over = receiver.pair.native_starts;
        for (int i = 0; i < STANDS && !lane->barred; i++)
            rs_incarnation_try(&receiver.pair);
        CHECK(lane->barred && !receiver.lanes[OTHER].barred);
        sides_expect_only_other();
        rs_incarnation_close(&receiver.pair);
        rs_lane_unbar(lane, lane->covers);
        lane->posted = 0;
        rs_lane_unbar(lane, lane->covers - 1);
        CHECK(lane->barred);
        rs_lane_unbar(lane, lane->covers);
        CHECK(lane->barred == (time == 1));
    }
}

/* A wait of so long, in which the process rests or, if it does not, computes; what was lost in
 * it counts when another one begins. */
static void wait(uint64_t ns, bool rests)
{
    struct rs_pair *pair = &sender.pair;

    rs_incarnation_lose(pair, true);
    pair->looked = rs_now_ns() - ns;
    rs_has_rested = rests;
    rs_incarnation_lose(pair, false);
}

static void case_lost(void)
{
    struct rs_request request = {.state = RS_NATIVE};
    struct rs_message message = {.request = &request, .lane = &receiver.lanes[OTHER]};
    struct rs_pair other = {.messages = &message};
    struct rs_pair *pair = &sender.pair;

    sides_begin();
    CHECK(sides_open());
    wait(MS / 2, true);
    wait(10 * MS, false);
    sides_others = &other; /* it waits for that */
    wait(10 * MS, true);
    sides_others = NULL;
    is_crowded = true;
    wait(10 * MS, true);
    is_crowded = false;
    wait(10 * MS, true);
    rs_num_awaited++; /* it has waited for something that it receives */
    wait(8 * MS, true);
    CHECK(pair->view.open != 0);
    wait(0, true);
    CHECK(pair->view.open == 0 && pair->rests_until > rs_now_ns() + 20 * MS);
    CHECK(rs_incarnation_is_futile(pair));
    rs_incarnation_stop(&receiver.pair);
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(tried(1000) == 0);
    pair->rests_until = rs_now_ns();
    CHECK(tried(65) > 0 && pair->view.open != 0);
    CHECK(!rs_incarnation_is_futile(pair));
}

/* The clock has begun just now, as in a new time namespace. */
static void case_young_clock(void)
{
    clock_start = __real_rs_now_ns() - 20 * MS;
    sides_begin();
    CHECK(sides_open());
    wait(MS / 2, true);
    wait(0, true);
    CHECK(sender.pair.view.open != 0);
    clock_start = 0;
}

/* A receive that nobody sends to is no excuse for ever, until it is started again. */
static void case_excuses(void)
{
    struct rs_request request = {.state = RS_NATIVE};
    struct rs_message message = {.request = &request, .lane = &receiver.lanes[OTHER]};
    struct rs_pair other = {.messages = &message};
    struct rs_pair *pair = &sender.pair;
    int waits = 0;

    sides_begin();
    CHECK(sides_open());
    sides_others = &other;
    for (; pair->view.open != 0; waits++) {
        CHECK(waits < 1000);
        CHECK(rs_incarnation_is_receiving() == (waits < 257));
        wait(10 * MS, true);
    }
    CHECK(waits > 256);
    message.natives++;
    CHECK(rs_incarnation_is_receiving());
    sides_others = NULL;
}

/* On its way is what is granted and not put, and what is native, unless the lane is barred. */
static void case_on_its_way(void)
{
    struct rs_lane *lane = &receiver.lanes[BARRED];
    struct rs_request request = {.state = RS_INACTIVE};
    struct rs_message message = {.request = &request, .lane = lane};
    struct rs_pair other = {.messages = &message};
    struct rs_slots *slots;

    sides_begin();
    CHECK(sides_open());
    slots = &sender.lanes[BARRED].slots;
    message.slots = &lane->slots;
    sides_others = &other;
    CHECK(!rs_incarnation_is_receiving());
    message.number = rs_lane_grant(&lane->slots);
    request.state = RS_GRANTED;
    CHECK(rs_incarnation_is_receiving());
    rs_lane_put(slots, rs_lane_next(slots), 0);
    CHECK(!rs_incarnation_is_receiving());
    request.state = RS_COMPLETE;
    CHECK(!rs_incarnation_is_receiving());
    request.state = RS_NATIVE;
    CHECK(rs_incarnation_is_receiving());
    sides_bar();
    CHECK(!rs_incarnation_is_receiving());
    sides_others = NULL;
}

/* Native starts, so many of which are on lanes that are not attached. */
static void start_natively(unsigned starts, unsigned strays)
{
    sender.pair.native_starts += starts;
    sender.pair.strays += strays;
}

/* Where much of what is sent has no lane nothing is done for the others. */
static void case_strays(void)
{
    enum { STARTS_OF_LANES = 4 * RS_BANK_LANES, MANY_MESSAGES = 65 };
    struct rs_lane *sends = &sender.lanes[OTHER];

    sides_begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    sender.pair.num_unattached = MANY_MESSAGES;
    start_natively(STARTS_OF_LANES, STARTS_OF_LANES / 4 + 1);
    CHECK(tried(STARTS) == 0 && rs_incarnation_rests(sends));
    CHECK(sender.pair.view.open == 0 && rs_pair_is_at_rest(&receiver.pair.view));
    start_natively(STARTS_OF_LANES - 1, 0); /* too few to tell */
    CHECK(rs_incarnation_rests(sends));
    start_natively(1, 0);
    CHECK(!rs_incarnation_rests(sends) && !rs_pair_is_at_rest(&receiver.pair.view));
    CHECK(tried(1) == 1 && sender.pair.view.open != 0);

    /* Few do not matter. */
    sides_begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    sender.pair.num_unattached = MANY_MESSAGES - 1;
    start_natively(STARTS_OF_LANES, STARTS_OF_LANES);
    CHECK(tried(1) == 1 && sender.pair.view.open != 0);
}

/* O4. However often the pair was stopped, a lane waits for no more starts of its own than that. */
static void case_outside(void)
{
    enum { MOST_OUTSIDE = 1024, OFTEN = 1 << 20 };
    struct rs_lane *lane = &sender.lanes[BARRED];
    unsigned starts = 0;

    sides_begin();
    sides_bar();
    sides_expect_only_other();
    rs_lane_unbar(&receiver.lanes[BARRED], receiver.lanes[BARRED].covers);
    sender.pair.penalty = OFTEN;
    for (; sender.pair.view.open != 0; starts++) {
        CHECK(starts <= MOST_OUTSIDE);
        rs_incarnation_widen(lane);
    }
    CHECK(starts > 1);
}

static void take_back(void)
{
    rs_incarnation_unready(&receiver.pair);
}

/* A receiver that takes its bit back when the sender is about to open the pair may enter the next
 * incarnation alone. */
static void case_just_missed(void)
{
    sides_begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    meanwhile = take_back;
    CHECK(tried(1) == 1 && meanwhile == NULL && sender.pair.view.open == 0);
    CHECK(rs_pair_is_wanted(&receiver.pair.view));
    CHECK(!rs_incarnation_open(&receiver.pair));
    rs_incarnation_enter_alone(&receiver.pair);
    CHECK(rs_pair_is_alone(&receiver.pair.view));
    rs_incarnation_try(&sender.pair);
    CHECK(sender.pair.view.open != 0 && rs_incarnation_is_open(&receiver.pair));
}

/* Which lanes can join is found out in advance, and anew where that may have changed. */
static void case_foreseen(void)
{
    struct rs_lane *lane = &sender.lanes[OTHER];

    sides_begin();
    rs_incarnation_foresee(&sender.pair);
    CHECK(sender.pair.has_chosen);
    lane->quiet = false; /* it has been started */
    lane->started = ++sender.pair.native_starts;
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(tried(1) == 1 && sender.pair.view.open == 0);
    lane->quiet = true;
    rs_incarnation_foresee(&sender.pair);
    rs_lane_leave_native(lane);
    rs_pair_bar(&receiver.pair.view, BARRED);
    CHECK(tried(1) == 1 && sender.pair.view.open == 0);
    rs_pair_unbar(&receiver.pair.view, BARRED);
    rs_incarnation_stop(&receiver.pair);
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(tried(1) == 1 && sides_joined(&sender, true, false));

    /* One that is not quiet, and barred, is looked at again: it may be set free. */
    sides_begin();
    lane->quiet = false;
    lane->started = ++sender.pair.native_starts;
    rs_pair_bar(&receiver.pair.view, OTHER);
    rs_incarnation_foresee(&sender.pair);
    rs_pair_unbar(&receiver.pair.view, OTHER);
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(tried(1) == 1 && sender.pair.view.open == 0);

    sides_begin();
    rs_incarnation_rest(&sender.pair, RARE);
    rs_incarnation_foresee(&sender.pair);
    CHECK(!sender.pair.has_chosen);
}

int main(void)
{
    case_parked();
    case_was_ready();
    case_rests();
    case_never_quiet();
    case_standing();
    case_lost();
    case_young_clock();
    case_excuses();
    case_on_its_way();
    case_strays();
    case_outside();
    case_just_missed();
    case_foreseen();
    free(words);
    printf("attempts: ok\n");
    return 0;
}
