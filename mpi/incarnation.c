/* SPDX-License-Identifier: BSD-3-Clause */
/* Incarnations: when pairs open, and what stops them. The rules' names are
 * those of docs/persistent.md. */
#include "mpi/native.h"
#include "mpi/message.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
    SETTLE_NS = 20000, /* N1, N4: how long a match is waited for */
    FIRST_PENALTY = 4, MOST_PENALTY = 1 << 10,
    LONG_LIFE = 1000,     /* puts that make up for a stop, */
    LONG_LIFE_OF_ONE = 16, /* and so many on each lane */
    SHORT_LIFE = 8,       /* on each lane */
    MOST_SHY = 64, /* R0: rounds that go natively after one that was alone in vain */
};

unsigned rs_num_alone;

RS_NATIVE(Iprobe)

uint64_t rs_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- opening ---- */

/* O1 */
bool rs_lane_is_quiet(struct rs_lane *lane)
{
    int done = 0;

    if (lane->sync != MPI_REQUEST_NULL) {
        PMPI_Test(&lane->sync, &done, MPI_STATUS_IGNORE);
        if (done) {
            free(lane->copy);
            lane->copy = NULL;
            lane->quiet |= lane->natives == lane->sync_number;
        }
    }
    return lane->quiet;
}

/* Among the pair's last native starts, since the last incarnation, there is one of the
 * lane. */
bool rs_lane_is_in_use(const struct rs_lane *lane)
{
    const struct rs_pair *pair = lane->pair;

    return lane->requests > 0 && lane->started > pair->native_starts_before &&
           pair->native_starts - lane->started < rs_recent_starts(pair);
}

/* Go over all lanes until one `sticks`; from the one on that did so last, which most likely
 * does again: there may be very many of them, and starts. */
static bool find_stuck(struct rs_pair *pair,
                       bool (*sticks)(struct rs_lane *lane, struct rs_lane_set *set),
                       struct rs_lane_set *set)
{
    for (unsigned n = 0, i = pair->stuck; n < pair->num_attached; n++, i++) {
        if (i >= pair->num_attached)
            i = 0;
        if (pair->attached[i] != NULL && sticks(pair->attached[i], set)) {
            pair->stuck = i;
            return true;
        }
    }
    return false;
}

/* One that can join does. */
static bool will_be_quiet(struct rs_lane *lane, struct rs_lane_set *joined)
{
    bool quiet = rs_lane_is_quiet(lane), stuck = !quiet && rs_lane_is_in_use(lane);

    if (quiet)
        rs_lane_set_add(joined, lane->index);
    if (stuck && rs_pair_has_barred(&lane->pair->view, lane->index)) {
        lane->pair->passed_barred = true;
        stuck = false;
    }
    return stuck;
}

/* Lanes that join, if they are not barred. False: none can, or one that is in use will be quiet
 * soon. */
static bool choose_lanes(struct rs_pair *pair)
{
    if (!pair->has_chosen || pair->chosen_at != pair->native_starts) {
        pair->chosen = (struct rs_lane_set){0};
        pair->passed_barred = pair->has_chosen = false;
        if (find_stuck(pair, will_be_quiet, &pair->chosen))
            return false;
        pair->has_chosen = !pair->passed_barred; /* it may be set free at any time */
        pair->chosen_at = pair->native_starts;
    }
    return !rs_lane_set_is_empty(&pair->chosen);
}

void rs_incarnation_foresee(struct rs_pair *pair)
{
    enum { PART = 8 }; /* of a go, at least: each look may go over all lanes */

    if (pair->view.words == NULL || pair->view.open != 0 || !rs_incarnation_is_tried(pair) ||
        pair->native_starts - pair->foreseen_at < rs_pair_lanes(pair) / PART)
        return;
    pair->foreseen_at = pair->native_starts;
    choose_lanes(pair);
}

static bool is_posted(struct rs_lane *lane, struct rs_lane_set *set)
{
    (void)set;
    return lane->posted > 0 && !rs_lane_is_barred(lane);
}

/* O2; slots and numbers are used again. */
static bool receiver_is_clear(struct rs_pair *pair)
{
    return pair->num_taken == 0 && !find_stuck(pair, is_posted, NULL);
}

static void begin_numbers(const struct rs_pair *pair)
{
    for (unsigned i = 0; i < pair->num_attached; i++) {
        struct rs_lane *lane = pair->attached[i];

        if (lane == NULL)
            continue;
        lane->slots.number = rs_pair_base(&pair->view);
        lane->slots.seen = rs_pair_base(&pair->view);
    }
}

/* The pair has been opened. */
static void begin_lanes(struct rs_pair *pair)
{
    for (unsigned i = 0; i < pair->num_attached; i++) {
        struct rs_lane *lane = pair->attached[i];

        if (lane == NULL)
            continue;
        lane->outside = 0;
        if (!pair->view.sends)
            rs_lane_move(lane); /* G3 */
        if (!rs_lane_set_has(&pair->view.joined, i))
            lane->limit = 0;
        else if (!pair->view.sends || rs_pair_pulls(pair))
            lane->limit = UINT64_MAX;
        else
            lane->limit = lane->slots.room + 1;
    }
    pair->vain = pair->shy = 0;
    pair->tries = pair->futile = 0;
    pair->lost = false;
    pair->readies = rs_pair_readies(&pair->view);
    rs_count_number(RS_NUMBER_INCARNATIONS, 1);
}

static void enter(struct rs_pair *pair)
{
    begin_numbers(pair);
    begin_lanes(pair);
}

static void move_lanes(struct rs_pair *pair)
{
    uint32_t moves = rs_pair_moves(&pair->view);

    if (pair->moved == moves)
        return;
    pair->moved = moves;
    for (unsigned i = 0; i < pair->num_attached; i++) {
        if (pair->attached[i] != NULL)
            rs_lane_move(pair->attached[i]);
    }
}

/* Whether there are others. */
static bool take_barred(const struct rs_pair *pair, struct rs_lane_set *set)
{
    rs_pair_take_barred(&pair->view, set);
    return !rs_lane_set_is_empty(set);
}

static bool open_as_sender(struct rs_pair *pair)
{
    bool ready = rs_pair_is_ready(&pair->view);
    struct rs_lane_set joined;

    if (!choose_lanes(pair))
        return false;
    joined = pair->chosen;
    if (!take_barred(pair, &joined))
        return false;
    if (!ready) {
        rs_pair_want(&pair->view, true);
        if (!rs_incarnation_await_ready(pair) ||
            !take_barred(pair, &joined)) /* more may be by now */
            return false;
    }
    move_lanes(pair); /* G3 */
    if (rs_pair_open(&pair->view, &joined))
        return true;
    rs_pair_want(&pair->view, true); /* it was ready a moment ago */
    return false;
}

static void become_ready(struct rs_pair *pair)
{
    if (rs_pair_is_at_rest(&pair->view) || rs_pair_is_ready(&pair->view) ||
        !receiver_is_clear(pair))
        return;
    rs_pair_grow(pair); /* G1 */
    rs_pair_ready(&pair->view);
}

static bool open_as_receiver(struct rs_pair *pair)
{
    if (rs_pair_enter(&pair->view))
        return true;
    become_ready(pair);
    return false;
}

bool rs_incarnation_open(struct rs_pair *pair)
{
    struct rs_pair_view *view = &pair->view;

    if (rs_pair_holds(view))
        become_ready(pair);
    if (view->words == NULL || view->open != 0)
        return view->open != 0;
    if (!(view->sends ? open_as_sender(pair) : open_as_receiver(pair)))
        return false;
    enter(pair);
    /* A lane was barred between the sender's look and the opening. */
    if (rs_pair_has_barred_joined(view)) {
        rs_incarnation_stop(pair);
        return false;
    }
    return true;
}

/* ---- alone ---- */

/* Two lists in the order of their starts become one. */
static struct rs_message *merge(struct rs_message *one, struct rs_message *other)
{
    struct rs_message *first = NULL, **last = &first;

    while (one != NULL && other != NULL) {
        struct rs_message **less = one->order < other->order ? &one : &other;

        *last = *less;
        last = &(*less)->next_open;
        *less = *last;
    }
    *last = one != NULL ? one : other;
    return first;
}

/* The messages that are not complete, in the order of their starts. */
static struct rs_message *open_messages(const struct rs_pair *pair)
{
    struct rs_message *lists[64] = {NULL}; /* the i-th of 2^i messages, or none */
    struct rs_message *all = NULL;

    for (struct rs_message *m = pair->messages; m != NULL; m = m->next) {
        struct rs_message *list = m;
        unsigned i = 0;

        if (!rs_message_is_open(m))
            continue;
        m->next_open = NULL;
        for (; lists[i] != NULL; i++) {
            list = merge(lists[i], list);
            lists[i] = NULL;
        }
        lists[i] = list;
    }
    for (unsigned i = 0; i < 64; i++)
        all = merge(lists[i], all);
    return all;
}

/* What is posted natively is to be over soon, and none that is started now is to be posted. */
static bool may_hold(const struct rs_pair *pair)
{
    return pair->new_receives && pair->num_taken == 0;
}

void rs_incarnation_enter_alone(struct rs_pair *pair)
{
    const struct rs_pair_view *view = &pair->view;

    if (view->sends || pair->name->comm == MPI_COMM_NULL || !rs_pair_is_wanted(view) ||
        !(rs_pair_is_ready(view) || may_hold(pair)))
        return;
    if (pair->shy > 0) {
        pair->shy--;
        return;
    }
    if (!rs_pair_enter_alone(&pair->view))
        return;
    begin_numbers(pair);
    for (unsigned i = 0; i < pair->num_attached; i++) {
        struct rs_lane *lane = pair->attached[i];

        if (lane != NULL)
            lane->limit = rs_lane_is_barred(lane) ? 0 : UINT64_MAX;
    }
    rs_num_alone++;
}

/* Not matched, and not to be. */
static void go_native(const struct rs_pair *pair, bool all)
{
    for (struct rs_message *m = open_messages(pair); m != NULL;
         m = m->next_open) {
        if (all || m->lane->limit == 0)
            rs_message_go_native(m);
    }
}

/* The sender has opened the pair. Lanes that have not joined are none of the
 * incarnation's. */
static void is_followed(struct rs_pair *pair)
{
    rs_num_alone--;
    begin_lanes(pair);
    go_native(pair, false);
}

/* @return whether it is over; else the sender has opened it */
static bool withdraw(struct rs_pair *pair)
{
    if (!rs_pair_withdraw(&pair->view)) {
        is_followed(pair);
        return false;
    }
    rs_num_alone--;
    for (unsigned i = 0; i < pair->num_attached; i++) {
        if (pair->attached[i] != NULL)
            pair->attached[i]->limit = 0;
    }
    rs_count_number(RS_NUMBER_WITHDRAWN, 1);
    pair->shy = 1u << pair->vain;
    pair->vain += pair->shy < MOST_SHY;
    go_native(pair, true);
    return true;
}

bool rs_incarnation_is_open(struct rs_pair *pair)
{
    if (rs_pair_is_alone(&pair->view)) {
        if (rs_pair_holds(&pair->view))
            become_ready(pair);
        /* No second look, by which the sender may have opened it. */
        if (!rs_pair_follow(&pair->view))
            return true;
        is_followed(pair);
        if (rs_pair_has_barred_joined(&pair->view))
            return false;
    }
    return rs_pair_is_open(&pair->view);
}

static bool has_come_natively(const struct rs_message *message)
{
    const struct rs_pair *pair = message->lane->pair;
    int flag = 0;

    return pair->name->comm == MPI_COMM_NULL ||
           native_Iprobe(pair->peer, message->lane->tag, pair->name->comm, &flag,
                         MPI_STATUS_IGNORE) != MPI_SUCCESS ||
           flag;
}

/* The next ones of those that wait for the sender, in turn: all of them in as many looks as a
 * bank has lanes. Has one come natively, all go so. */
static void probe(struct rs_pair *pair)
{
    unsigned left = rs_pair_lanes(pair) / RS_BANK_LANES + 1;
    struct rs_message *last = pair->probed, *m = last;

    do {
        m = m != NULL ? m->next : pair->messages;
        if (m == NULL || !rs_message_is_open(m))
            continue;
        pair->probed = m;
        left--;
        if (has_come_natively(m)) {
            rs_incarnation_stop(pair);
            return;
        }
    } while (m != last && left > 0);
}

/* ---- stopping ---- */

static void punish(struct rs_pair *pair, uint64_t length)
{
    /* One that is over as soon as the attempts to open it is of no use. */
    unsigned lanes = rs_pair_lanes(pair), goes = length < SHORT_LIFE * lanes ? lanes : 1;

    pair->before = pair->penalty;
    if (length < LONG_LIFE || length < LONG_LIFE_OF_ONE * lanes)
        pair->penalty *= pair->penalty < goes * MOST_PENALTY ? 2 : 1;
    else /* little by little: what made it stop may come again soon */
        pair->penalty /= 2;
    if (pair->penalty < FIRST_PENALTY)
        pair->penalty = FIRST_PENALTY;
    rs_incarnation_rest(pair, pair->penalty);
}

/* @return whether it is this side that has stopped it */
static bool stop(struct rs_pair *pair)
{
    uint64_t length = 0;
    bool mine;

    if (rs_pair_is_alone(&pair->view) && withdraw(pair))
        return true;
    for (unsigned i = 0; i < pair->num_attached; i++) {
        struct rs_lane *lane = pair->attached[i];

        if (lane == NULL)
            continue;
        if (lane->limit != 0)
            length += (uint32_t)lane->slots.number;
        lane->limit = 0;
        lane->torn = 2;
    }
    pair->native_starts_before = pair->native_starts;
    pair->has_chosen = false;
    mine = rs_pair_stop(&pair->view, pair->slots, pair->num_attached);
    if (mine)
        rs_count_number(RS_NUMBER_STOPS, 1);
    if (pair->view.sends)
        punish(pair, length);
    /* T2: in their order. What is matched is none of the native MPI's
     * business, so it does not matter between which others it is completed. */
    for (struct rs_message *m = open_messages(pair); m != NULL;
         m = m->next_open) {
        if (rs_lane_reached(rs_pair_final(&pair->view, m->lane->index), m->number))
            rs_message_finish(m);
        else
            rs_message_go_native(m);
    }
    return mine;
}

void rs_incarnation_stop(struct rs_pair *pair)
{
    stop(pair);
}

void rs_incarnation_unready(struct rs_pair *pair)
{
    if (pair->view.words != NULL && !pair->view.sends && pair->view.open == 0 &&
        !rs_pair_unready(&pair->view))
        enter(pair);
}

void rs_incarnation_before_posting(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;

    if (pair->view.open != 0 || lane->barred)
        return;
    rs_incarnation_unready(pair);
    /* What the sender leaves out may be in an incarnation that it has opened up to now, and
     * joins no other. */
    if (pair->view.open == 0 && rs_lane_is_barred(lane))
        rs_lane_bar(lane, RS_COMES);
}

void rs_incarnation_close(struct rs_pair *pair)
{
    if (pair->view.open == 0)
        rs_incarnation_unready(pair);
    if (pair->view.open != 0)
        rs_incarnation_stop(pair);
}

void rs_incarnation_widen(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;
    /* What is more counts the starts of all lanes. */
    unsigned penalty = pair->penalty < MOST_PENALTY ? pair->penalty : MOST_PENALTY;

    if (!lane->attached || lane->limit != 0 || !rs_lane_is_quiet(lane) ||
        rs_lane_is_barred(lane) || ++lane->outside <= penalty)
        return;
    if (!stop(pair))
        return;
    /* It is no sign that matching could change. */
    pair->penalty = pair->before;
    rs_incarnation_rest(pair, 0);
}

/* ---- looking ---- */

/* They are not counted: starts, which are many, would have to. But where none was since
 * none was open, none is. */
bool rs_incarnation_has_open(struct rs_pair *pair)
{
    struct rs_message *m = pair->open_one;

    if (rs_num_open == 0 || pair->starts == pair->closed_starts)
        return false;
    if (m != NULL && rs_message_is_open(m))
        return true;
    m = pair->messages;
    while (m != NULL && !rs_message_is_open(m))
        m = m->next;
    pair->open_one = m;
    if (m == NULL)
        pair->closed_starts = pair->starts;
    return m != NULL;
}

/* Complete what is matched; those of a lane in their order, since each sees to those
 * before it. */
static void collect(struct rs_pair *pair)
{
    for (struct rs_message *m = pair->messages; m != NULL; m = m->next) {
        if (!rs_message_is_open(m))
            continue;
        if (!rs_message_poll(m->request) && pair->view.open == 0)
            return; /* it has been stopped, and none is open */
    }
}

bool rs_incarnation_takes(struct rs_pair *pair)
{
    return pair->view.open != 0 && !pair->view.sends && pair->pulls &&
           rs_incarnation_has_open(pair);
}

/* A sender may wait for a message to be pulled, whatever we wait for. */
static void look(struct rs_pair *pair)
{
    if (pair->view.open == 0)
        return;
    if (!rs_incarnation_is_open(pair))
        rs_incarnation_stop(pair);
    else if (rs_pair_is_alone(&pair->view))
        probe(pair);
    else if (rs_incarnation_takes(pair))
        collect(pair);
}

void rs_incarnations_look(void)
{
    if (rs_num_open > 0) {
        rs_pairs_visit(look);
        rs_gpu_progress();
    }
}

void rs_incarnation_settle(struct rs_pair *pair)
{
    uint64_t start;

    if (!rs_incarnation_has_open(pair))
        return;
    collect(pair);
    if (!rs_incarnation_has_open(pair))
        return;
    if (rs_pair_is_alone(&pair->view)) {
        rs_incarnation_stop(pair);
        return;
    }
    start = rs_now_ns();
    do {
        sched_yield();
        collect(pair);
        if (!rs_incarnation_has_open(pair))
            return;
    } while (rs_now_ns() - start < SETTLE_NS + rs_pair_more_ns(pair));
    rs_incarnation_stop(pair);
}

static void settle(struct rs_pair *pair)
{
    if (rs_incarnation_has_open(pair))
        rs_incarnation_settle(pair);
}

void rs_incarnations_settle(void)
{
    rs_pairs_visit(settle);
    rs_gpu_settle();
}
