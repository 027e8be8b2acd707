/* SPDX-License-Identifier: BSD-3-Clause */
/* Attempts to open pairs: at which starts they are made (T4 of docs/persistent.md). */
#include "mpi/message.h"

enum {
    TRIES = 32,      /* goes of each lane that do not open the pair; */
    LEAST_TRIES = 8, /* fewer are no attempt, whatever they cost */
    MOST_FUTILE = 5,
    LATER = 64, /* starts, where there is no time to lose yet */
    LONG = 64,  /* starts, of which the receiver is told */
    HELD_NS = 10000, /* how long a receiver that holds is waited for, */
    HELD_LOOKS = 3,  /* and up to which look, but not at the first one: */
    STRAYS = 4, /* of so many starts, one may be on a lane that is not attached, */
    FEW_STRAYS = 64, /* where more messages are */
};

static bool is_new_step = true; /* a native receive is over, and no pair was tried since */

void rs_incarnation_rest(struct rs_pair *pair, unsigned starts)
{
    pair->skip = starts;
    pair->tries = 0;
    rs_pair_want(&pair->view, false);
    rs_pair_rest(&pair->view, starts >= LONG);
}

/* Whether the starts of this attempt are so many goes of each lane in use (O1) at least. */
static bool has_tried(const struct rs_pair *pair, unsigned goes)
{
    unsigned lanes = rs_pair_lanes(pair), starts = lanes;

    /* Once in a go of all: they may be very many. */
    if (pair->tries < goes * lanes || pair->tries % lanes != 0)
        return false;
    for (unsigned i = 0; i < pair->num_attached; i++) {
        const struct rs_lane *lane = pair->attached[i];

        if (lane != NULL && rs_lane_is_in_use(lane) && lane->last > 1)
            starts += lane->last - 1;
    }
    return pair->tries >= goes * starts;
}

/* T4. They cost more than what goes natively, so they are seldom where they are in vain:
 * a program may have a receive posted at each start, or a send under way. */
static void fail(struct rs_pair *pair)
{
    uint32_t readies;

    pair->tries++;
    if (!has_tried(pair, TRIES))
        return;
    readies = rs_pair_readies(&pair->view);
    pair->parked = readies == pair->readies && !rs_pair_is_ready(&pair->view);
    pair->readies = readies;
    rs_incarnation_rest(pair, pair->parked ? 0 : pair->tries << pair->futile);
    pair->futile += pair->futile < MOST_FUTILE;
}

static bool is_parked(struct rs_pair *pair)
{
    if (pair->parked && (rs_pair_is_ready(&pair->view) ||
                         rs_pair_readies(&pair->view) != pair->readies))
        pair->parked = false;
    return pair->parked;
}

/* R0. All that was sent has been matched, and the receiver is to find that, message after message,
 * before it is ready: a race that it would lose. At the first look it has posted what these
 * sends are for. */
bool rs_incarnation_await_ready(struct rs_pair *pair)
{
    uint32_t held = rs_pair_held(&pair->view);
    uint64_t start;

    if (held == 0 || !pair->new_sends || rs_is_crowded())
        return false;
    if (pair->held != held) {
        pair->held = held;
        pair->held_looks = 0;
    }
    pair->new_sends = false;
    pair->held_looks += pair->held_looks <= HELD_LOOKS;
    if (pair->held_looks == 1 || pair->held_looks > HELD_LOOKS)
        return false;
    start = rs_now_ns();
    do {
        if (rs_pair_is_ready(&pair->view))
            return true;
    } while (rs_now_ns() - start < HELD_NS);
    return false;
}

/* T4. Each waits for all that is open (N1), which costs more than what goes through lanes
 * gains. */
static bool has_strays(struct rs_pair *pair)
{
    uint64_t all = pair->starts + pair->native_starts - pair->counted;
    bool much;

    if (all < rs_recent_starts(pair))
        return pair->strays_much;
    much = pair->num_unattached > FEW_STRAYS && STRAYS * pair->strays > all;
    pair->counted += all;
    pair->strays = 0;
    if (much != pair->strays_much)
        rs_incarnation_rest(pair, 0);
    if (much)
        rs_pair_rest(&pair->view, true);
    return pair->strays_much = much;
}

static void try_as_sender(struct rs_pair *pair)
{
    if (has_strays(pair))
        return;
    if (pair->skip > 0 && --pair->skip == 0)
        rs_pair_rest(&pair->view, false);
    if (pair->skip > 0 || is_parked(pair))
        return;
    if (pair->rests_until > 0 && (pair->tries == 0 || has_tried(pair, LEAST_TRIES)) &&
        rs_now_ns() < pair->rests_until)
        rs_incarnation_rest(pair, LATER);
    else if (!rs_incarnation_open(pair))
        fail(pair);
}

/* N3. A receive that has been posted while others came and went would keep the receiver from
 * being ready for as long again. */
static void bar_standing(struct rs_pair *pair)
{
    for (unsigned i = 0; i < pair->num_attached; i++) {
        struct rs_lane *lane = pair->attached[i];

        if (lane != NULL && lane->posted > 0 && !rs_lane_is_barred(lane) &&
            pair->latest_over > lane->started + rs_recent_starts(pair))
            rs_lane_bar(lane, lane->stood++ == 0 ? RS_STAYS : RS_COMES);
    }
}

static void try_as_receiver(struct rs_pair *pair)
{
    if (rs_incarnation_open(pair))
        return;
    rs_incarnation_enter_alone(pair);
    if (pair->view.open == 0 && ++pair->tries % TRIES == 0)
        bar_standing(pair);
}

/* Of another pair: a receiver is ready between its native receives only, so its sender is to
 * look before it does anything else. */
static void prepare(struct rs_pair *pair)
{
    if (!pair->view.sends || rs_incarnation_is_tried(pair))
        rs_incarnation_open(pair);
}

static void begin_step(void)
{
    if (!is_new_step)
        return;
    is_new_step = false;
    rs_pairs_visit(prepare);
}

void rs_incarnation_try(struct rs_pair *pair)
{
    begin_step();
    if (pair->view.sends) {
        try_as_sender(pair);
        pair->new_sends = false;
    } else {
        try_as_receiver(pair);
    }
}

bool rs_incarnation_is_tried(const struct rs_pair *pair)
{
    return pair->skip == 0 && !pair->parked && !pair->strays_much;
}

/* Of a pair that is attached and in no incarnation. */
static bool sender_rests(struct rs_pair *pair)
{
    if (has_strays(pair))
        return true;
    if (pair->skip <= 1)
        return pair->skip == 0 && is_parked(pair);
    pair->skip--;
    return true;
}

/* The same. What the sender has left out it may have done a moment ago (O3). */
static bool receiver_rests(const struct rs_lane *lane)
{
    const struct rs_pair_view *view = &lane->pair->view;

    return rs_pair_is_at_rest(view) && rs_pair_is_unready(view) &&
           (lane->barred || !rs_lane_is_barred(lane));
}

/* Of a lane that is not attached, beside those of the pair's that are. */
static bool goes_beside(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;

    /* N1; and O2: what is granted alone may be stopped, and this lane attached, at any time. */
    return pair->view.sends ? !rs_incarnation_has_open(pair) && !rs_note_is_due(lane)
                            : !rs_pair_is_alone(&pair->view) || pair->num_attached == RS_LANES;
}

bool rs_incarnation_rests(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;

    if (pair->outgrown)
        return false;
    if (!lane->attached) {
        if (pair->view.words != NULL)
            begin_step();
        return goes_beside(lane);
    }
    if (rs_num_open > 0)
        return false;
    begin_step();
    if (pair->view.open != 0)
        return false;
    return pair->view.sends ? rs_lane_is_barred(lane) || sender_rests(pair)
                            : receiver_rests(lane);
}

bool rs_incarnation_is_futile(const struct rs_pair *pair)
{
    return pair->view.sends ? pair->futile > 0 || pair->lost || pair->strays_much
                            : pair->tries >= TRIES;
}

void rs_incarnation_is_due(struct rs_pair *pair)
{
    is_new_step = true;
    if (pair->view.words == NULL || pair->view.open != 0 ||
        !rs_pair_is_at_rest(&pair->view))
        rs_incarnation_open(pair);
}
