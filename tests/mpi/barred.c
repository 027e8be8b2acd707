/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane is barred while its pair opens (docs/persistent.md, N3), the receiver is alone or
 * holds: with the receiver's step between two of the sender's, and as two threads. */
#include "tests/mpi/sides.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { TIMES = 200 }; /* that both sides were in an incarnation */

static void bar_and_be_ready(void)
{
    sides_bar();
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(rs_pair_is_ready(&receiver.pair.view));
}

/* The lane was free when the sender looked, and is barred when it opens the
 * pair. */
static void case_between(void)
{
    sides_begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    meanwhile = bar_and_be_ready;
    CHECK(!rs_incarnation_open(&sender.pair));
    CHECK(meanwhile == NULL);
    CHECK(sender.pair.view.open == 0 && sender.lanes[BARRED].limit == 0);
    sides_expect_only_other();
}

/* The receiver has been ready, and a lane is barred before the sender looks. */
static void case_before(void)
{
    sides_begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(rs_pair_is_ready(&sender.pair.view));
    sides_bar();
    CHECK(!rs_pair_is_ready(&sender.pair.view));
    CHECK(!rs_incarnation_open(&sender.pair));
    sides_expect_only_other();
    CHECK(receiver.pair.penalty == 0);
}

static void enter_alone(void)
{
    struct rs_pair *pair = &receiver.pair;

    CHECK(!rs_incarnation_open(pair));
    pair->shy = 0;
    rs_incarnation_enter_alone(pair);
    CHECK(pair->view.open == 0); /* the sender has not come before */
    rs_incarnation_unready(pair);
    CHECK(!rs_incarnation_open(&sender.pair));
    CHECK(!rs_incarnation_open(pair));
    rs_incarnation_enter_alone(pair);
    CHECK(rs_pair_is_alone(&pair->view) && rs_num_alone == 1);
    CHECK(rs_incarnation_is_open(pair));
}

/* The receiver is alone when the sender opens the pair, or a lane is barred. */
static void case_alone(void)
{
    sides_begin();
    enter_alone();
    CHECK(receiver.lanes[BARRED].limit != 0 && receiver.lanes[OTHER].limit != 0);
    sides_bar();
    CHECK(receiver.pair.view.open == 0 && rs_num_alone == 0);
    CHECK(receiver.pair.penalty == 0 && receiver.pair.skip == 0);
    CHECK(receiver.lanes[OTHER].limit == 0);
    words->wants = 0;

    enter_alone();
    CHECK(receiver.lanes[BARRED].limit == 0 && receiver.lanes[OTHER].limit != 0);
    CHECK(rs_incarnation_open(&sender.pair));
    CHECK(rs_incarnation_is_open(&receiver.pair));
    CHECK(!rs_pair_is_alone(&receiver.pair.view) && rs_num_alone == 0);
    sides_expect_only_other();
}

/* One that the sender has opened and stopped when it looks. */
static void case_late(void)
{
    sides_begin();
    enter_alone();
    CHECK(rs_incarnation_open(&sender.pair));
    rs_incarnation_stop(&sender.pair);
    CHECK(!rs_incarnation_is_open(&receiver.pair));
    CHECK(sides_joined(&receiver, true, true));
    rs_incarnation_stop(&receiver.pair);
    CHECK(receiver.pair.view.open == 0 && rs_num_alone == 0);
    rs_incarnation_rest(&sender.pair, 0);
    CHECK(sides_open());
    CHECK(sender.pair.view.open == receiver.pair.view.open);
}

static void bar_and_be_alone(void)
{
    sides_bar();
    enter_alone();
}

/* The lane was free when the sender looked, and is barred when it opens the pair, in which
 * the receiver is alone. */
static void case_alone_between(void)
{
    sides_begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    meanwhile = bar_and_be_alone;
    CHECK(!rs_incarnation_open(&sender.pair));
    CHECK(meanwhile == NULL);
    CHECK(sender.pair.view.open == 0 && sender.lanes[BARRED].limit == 0);
    CHECK(!rs_incarnation_is_open(&receiver.pair));
    rs_incarnation_stop(&receiver.pair);
    sides_expect_only_other();
}

/* The sender has opened the pair, and will see that a lane is barred, but has not yet. */
static void case_alone_before(void)
{
    static const struct rs_lane_set both = {.banks = {1 << BARRED | 1 << OTHER}};

    sides_begin();
    enter_alone();
    CHECK(__real_rs_pair_open(&sender.pair.view, &both));
    rs_pair_bar(&receiver.pair.view, BARRED);
    CHECK(!rs_incarnation_is_open(&receiver.pair));
    rs_incarnation_stop(&receiver.pair);
    CHECK(!rs_pair_is_open(&sender.pair.view));
}

/* A receive is posted natively, and none that starts now is to be: the receiver is ready when
 * that is over. */
static void case_holds(void)
{
    struct rs_pair *pair = &receiver.pair;

    sides_begin();
    receiver.lanes[OTHER].posted = 1;
    CHECK(!rs_incarnation_open(pair) && !rs_incarnation_open(&sender.pair));
    rs_incarnation_enter_alone(pair);
    CHECK(pair->view.open == 0); /* another one has been posted since one was over */
    pair->new_receives = true;
    pair->num_taken = 1;
    rs_incarnation_enter_alone(pair);
    CHECK(pair->view.open == 0); /* numbers would be used again */
    pair->num_taken = 0;
    rs_incarnation_enter_alone(pair);
    CHECK(rs_pair_is_alone(&pair->view) && rs_pair_holds(&pair->view) && rs_num_alone == 1);
    CHECK(receiver.lanes[BARRED].limit != 0 && receiver.lanes[OTHER].limit != 0);
    CHECK(rs_incarnation_is_open(pair) && rs_pair_holds(&pair->view));
    CHECK(!rs_incarnation_open(&sender.pair));
    receiver.lanes[OTHER].posted = 0;
    rs_incarnation_is_due(pair);
    CHECK(rs_pair_is_alone(&pair->view) && !rs_pair_holds(&pair->view));
    CHECK(rs_incarnation_open(&sender.pair));
    CHECK(rs_incarnation_is_open(pair) && !rs_pair_is_alone(&pair->view));
    CHECK(rs_num_alone == 0);
    CHECK(sender.pair.view.open == pair->view.open);
}

/* It ends before that. */
static void case_holds_in_vain(void)
{
    struct rs_pair *pair = &receiver.pair;

    sides_begin();
    receiver.lanes[OTHER].posted = 1;
    pair->new_receives = true;
    CHECK(!rs_incarnation_open(pair) && !rs_incarnation_open(&sender.pair));
    rs_incarnation_enter_alone(pair);
    CHECK(rs_pair_holds(&pair->view));
    sides_bar();
    CHECK(pair->view.open == 0 && rs_num_alone == 0 && pair->shy == 1);
    CHECK(!rs_pair_is_ready(&sender.pair.view));
    receiver.lanes[OTHER].posted = 0;
    CHECK(sides_open());
    CHECK(sender.pair.view.open == pair->view.open);
}

static void stop_holding(void)
{
    at_clock = NULL;
    receiver.lanes[OTHER].posted = 0;
    CHECK(rs_incarnation_is_open(&receiver.pair));
}

/* @return whether the sender has waited, at a start after some of its sends are over */
static bool waits(void)
{
    unsigned before = looks_at_clock;

    sender.pair.new_sends = true;
    rs_incarnation_try(&sender.pair);
    CHECK(!sender.pair.new_sends);
    return looks_at_clock > before;
}

/* The sender waits for a receiver that holds, but not at its first sends, which are for what is
 * posted, nor again and again. */
static void case_held(void)
{
    struct rs_pair *pair = &sender.pair;

    sides_begin();
    receiver.lanes[OTHER].posted = 1;
    receiver.pair.new_receives = true;
    CHECK(!rs_incarnation_open(&receiver.pair) && !rs_incarnation_open(pair));
    rs_incarnation_enter_alone(&receiver.pair);
    CHECK(!waits() && waits() && waits() && pair->view.open == 0);
    for (int i = 0; i < 8; i++)
        CHECK(!waits());
    rs_incarnation_stop(&receiver.pair);
    CHECK(!waits()); /* it holds no more */

    receiver.pair.shy = 0;
    CHECK(!rs_incarnation_open(pair));
    rs_incarnation_enter_alone(&receiver.pair);
    CHECK(rs_pair_holds(&receiver.pair.view));
    CHECK(!waits());
    is_crowded = true;
    CHECK(!waits());
    is_crowded = false;
    pair->new_sends = false;
    rs_incarnation_try(pair);
    CHECK(pair->view.open == 0);
    at_clock = stop_holding;
    CHECK(waits() && pair->view.open != 0);
    CHECK(rs_incarnation_is_open(&receiver.pair));
    CHECK(receiver.pair.view.open == pair->view.open);
}

/* Each time in vain it is longer natively before the next one. */
static void case_shy(void)
{
    struct rs_pair *pair = &receiver.pair;
    unsigned expected = 0, times = 0;

    sides_begin();
    for (int vain = 0; vain < 12; vain++) {
        for (times = 0;; times++) {
            CHECK(!rs_incarnation_open(&sender.pair));
            CHECK(!rs_incarnation_open(pair));
            rs_incarnation_enter_alone(pair);
            if (pair->view.open != 0)
                break;
            rs_incarnation_unready(pair); /* O3: a native start */
        }
        CHECK(times == expected);
        expected = expected == 0 ? 1 : expected < 64 ? 2 * expected : 64;
        rs_incarnation_stop(pair);
    }
    CHECK(times == 64);
    CHECK(sides_open());
    CHECK(pair->shy == 0);
}

/* It joins again when a receive of its own is matched that was started after
 * all that covered it, and not before. */
static void case_again(void)
{
    struct rs_lane *lane = &receiver.lanes[BARRED];

    sides_begin();
    CHECK(sides_open());
    CHECK(sides_joined(&receiver, true, true));
    sides_bar();
    sides_expect_only_other();
    rs_lane_bar(lane, RS_STAYS);
    rs_lane_unbar(lane, 1);
    CHECK(lane->barred);
    rs_lane_unbar(lane, lane->covers);
    CHECK(!lane->barred);
    rs_incarnation_close(&receiver.pair);
    CHECK(sides_open());
    CHECK(sides_joined(&sender, true, true));
    rs_lane_bar(lane, RS_COMES);
    rs_lane_unbar(lane, lane->covers);
    CHECK(lane->barred);
}

/* The sender leaves out a lane of an incarnation that it has opened, and has yet to stop: a
 * receive must not be posted beside it. Later that takes no bit back any more. */
static void case_left_out(void)
{
    struct rs_lane *lane = &receiver.lanes[BARRED];

    sides_begin();
    CHECK(!rs_incarnation_open(&receiver.pair) && rs_incarnation_open(&sender.pair));
    rs_lane_leave_native(&sender.lanes[BARRED]);
    rs_incarnation_before_posting(lane);
    CHECK(receiver.pair.view.open == sender.pair.view.open && lane->limit != 0);
    rs_incarnation_stop(&sender.pair);
    rs_incarnation_stop(&receiver.pair);
    CHECK(!rs_incarnation_open(&receiver.pair));
    rs_incarnation_before_posting(lane);
    CHECK(!rs_pair_is_ready(&sender.pair.view) && lane->barred_for_good);
    CHECK(!rs_incarnation_open(&receiver.pair));
    rs_incarnation_before_posting(lane);
    CHECK(rs_pair_is_ready(&sender.pair.view));
    sides_expect_only_other();

    /* By the receiver: it takes its bit back once. */
    rs_incarnation_close(&receiver.pair);
    rs_incarnation_rest(&sender.pair, 0);
    rs_incarnation_stop(&sender.pair);
    CHECK(!rs_incarnation_open(&receiver.pair) && rs_pair_is_ready(&sender.pair.view));
    rs_lane_leave_native(&receiver.lanes[OTHER]);
    CHECK(!rs_pair_is_ready(&sender.pair.view));
}

/* ---- as two threads ---- */

static atomic_bool enough;

/* What a side finds in an incarnation: the sender may put on lanes that have
 * joined; one that the receiver has barred is none of them. */
static void look_inside(const struct side *side)
{
    const struct rs_pair_view *view = &side->pair.view;

    for (unsigned i = 0; i < LANES; i++)
        CHECK(rs_lane_set_has(&view->joined, i) == (side->lanes[i].limit != 0));
    CHECK(!side->lanes[BARRED].barred || !rs_lane_set_has(&view->joined, BARRED));
}

/* @return whether this side has seen the other one in the same incarnation */
static bool stay_a_while(struct side *side, _Atomic uint64_t *here,
                         const _Atomic uint64_t *there, unsigned turns)
{
    struct rs_pair *pair = &side->pair;
    bool met = false;

    atomic_store(here, pair->view.open);
    do {
        look_inside(side);
        met |= atomic_load(there) == pair->view.open;
        if (turns % 8 == 7)
            sched_yield();
    } while (turns-- > 0 && rs_pair_is_open(&pair->view));
    atomic_store(here, 0);
    rs_incarnation_stop(pair);
    return met;
}

static _Atomic uint64_t in_sender, in_receiver; /* the modes they have entered */

static void *send(void *arg)
{
    struct rs_pair *pair = &sender.pair;

    (void)arg;
    for (unsigned turn = 0; !atomic_load(&enough); turn++) {
        if (rs_incarnation_open(pair))
            stay_a_while(&sender, &in_sender, &in_receiver, turn % 16);
        else
            sched_yield();
        if (pair->view.open != 0)
            rs_incarnation_stop(pair);
        rs_incarnation_rest(pair, 0);
    }
    return NULL;
}

/* @return whether the sender has come */
static bool wait_alone(unsigned turns)
{
    struct rs_pair *pair = &receiver.pair;

    pair->shy = 0;
    rs_incarnation_enter_alone(pair);
    while (rs_pair_is_alone(&pair->view) && turns-- > 0) {
        sched_yield();
        if (!rs_incarnation_is_open(pair))
            rs_incarnation_stop(pair);
    }
    if (rs_pair_is_alone(&pair->view))
        rs_incarnation_stop(pair); /* it may come just then */
    return pair->view.open != 0;
}

/* Lanes are barred and set free in all of its states. */
static void *receive(void *arg)
{
    struct rs_pair *pair = &receiver.pair;
    struct rs_lane *lane = &receiver.lanes[BARRED];
    unsigned with = 0, without = 0, alone = 0;

    (void)arg;
    for (unsigned turn = 0;
         with < TIMES || without < TIMES || alone < TIMES; turn++) {
        if (turn % 7 == 0)
            sides_bar();
        else if (turn % 7 == 4)
            rs_lane_unbar(lane, lane->covers);
        if (!rs_incarnation_open(pair)) {
            if (turn % 3 != 0 || !wait_alone(turn % 16))
                continue;
            alone++;
        }
        if (stay_a_while(&receiver, &in_receiver, &in_sender, turn % 16))
            *(lane->barred ? &without : &with) += 1;
    }
    atomic_store(&enough, true);
    return NULL;
}

static void case_threads(void)
{
    pthread_t threads[2];

    sides_begin();
    CHECK(pthread_create(&threads[0], NULL, send, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, receive, NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    case_between();
    case_before();
    case_alone();
    case_late();
    case_alone_between();
    case_alone_before();
    case_shy();
    case_holds();
    case_holds_in_vain();
    case_held();
    case_again();
    case_left_out();
    case_threads();
    free(words);
    printf("barred: ok\n");
    return 0;
}
