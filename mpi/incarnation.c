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
    LONG_LIFE = 1000, /* puts that make up for a stop */
    TRIES = 32,       /* T4: starts on each lane that do not open the pair; */
    LEAST_TRIES = 8,  /* fewer are no attempt, whatever they cost */
    MOST_FUTILE = 5,
    LATER = 64,       /* T4: starts, where there is no time to lose yet */
    LOSS = 64,        /* T4: of so much time, one part may be lost, */
    LOSS_NS = 5000000, /* and so much at once */
    LITTLE_NS = 2000,   /* is no loss, */
    MOST_NS = 10000000, /* and patience is shorter than that */
    GAP_NS = 50000,     /* between polls; in longer ones the program computes */
    EXCUSES = 256,      /* waits that a receive is on its way for */
    RECENT = 4 * RS_LANES, /* native starts of the pair */
    MOST_LATER = 16, /* messages of a lane in one go */
    MOST_SHY = 64, /* R0: rounds that go natively after one that was alone in vain */
};

unsigned rs_num_alone;
uint64_t rs_num_awaited;
static bool is_new_step = true; /* a native receive is over, and no pair was tried since */

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
            if (lane->natives == lane->sync_number) {
                lane->quiet = true;
                if (lane->passed > lane->in_go) /* it was put off for too long */
                    lane->later = lane->in_go;
            } else if (!lane->quiet) { /* it was not the last one in one go */
                lane->later = (lane->later + 1) % MOST_LATER;
            }
            lane->passed = lane->in_go = 0;
        }
    }
    return lane->quiet;
}

/* Among the pair's last native starts there is one of the lane. */
static bool is_recent(const struct rs_lane *lane)
{
    return lane->pair->native_starts - lane->started < RECENT;
}

/* The same, and it was since the last incarnation. */
static bool is_in_use(const struct rs_lane *lane)
{
    return lane->requests > 0 && lane->started > lane->pair->native_starts_before &&
           is_recent(lane);
}

/* Lanes that join. 0: none can, or one that is in use will be quiet soon. */
static uint64_t quiet_lanes(struct rs_pair *pair)
{
    uint64_t joined = 0, barred;

    for (unsigned i = 0; i < pair->num_attached; i++) {
        if (pair->attached[i] != NULL && rs_lane_is_quiet(pair->attached[i]))
            joined |= UINT64_C(1) << i;
    }
    barred = rs_pair_barred(&pair->view);
    for (unsigned i = 0; i < pair->num_attached; i++) {
        const struct rs_lane *lane = pair->attached[i];

        if (lane != NULL && is_in_use(lane) && !lane->quiet &&
            !(barred >> i & 1))
            return 0;
    }
    return joined & ~barred;
}

/* O2 */
static bool receiver_is_clear(const struct rs_pair *pair)
{
    if (pair->num_taken > 0)
        return false; /* slots and numbers are used again */
    for (unsigned i = 0; i < pair->num_attached; i++) {
        const struct rs_lane *lane = pair->attached[i];

        if (lane != NULL && lane->posted > 0 && !rs_lane_is_barred(lane))
            return false;
    }
    return true;
}

static void begin_numbers(const struct rs_pair *pair)
{
    for (unsigned i = 0; i < pair->num_attached; i++) {
        struct rs_lane *lane = pair->attached[i];

        if (lane == NULL)
            continue;
        lane->slots->number = rs_pair_base(&pair->view);
        lane->slots->seen = rs_pair_base(&pair->view);
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
        if (!(pair->view.joined >> i & 1))
            lane->limit = 0;
        else if (!pair->view.sends || rs_pair_pulls(pair))
            lane->limit = UINT64_MAX;
        else
            lane->limit = lane->slots->room + 1;
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

static void move_lanes(const struct rs_pair *pair)
{
    for (unsigned i = 0; i < pair->num_attached; i++) {
        if (pair->attached[i] != NULL)
            rs_lane_move(pair->attached[i]);
    }
}

static bool open_as_sender(struct rs_pair *pair)
{
    bool ready = rs_pair_is_ready(&pair->view);
    uint64_t joined = quiet_lanes(pair);

    if (joined == 0)
        return false;
    if (!ready) {
        rs_pair_want(&pair->view, true);
        return false;
    }
    move_lanes(pair); /* G3 */
    return rs_pair_open(&pair->view, joined);
}

static bool open_as_receiver(struct rs_pair *pair)
{
    if (rs_pair_enter(&pair->view))
        return true;
    if (receiver_is_clear(pair)) {
        rs_pair_grow(pair); /* G1 */
        rs_pair_ready(&pair->view);
    }
    return false;
}

/* A lane was barred between the sender's look and the opening. */
static bool has_barred(const struct rs_pair *pair)
{
    return (pair->view.joined & atomic_load(&pair->view.words->barred)) != 0;
}

bool rs_incarnation_open(struct rs_pair *pair)
{
    struct rs_pair_view *view = &pair->view;

    if (view->words == NULL || view->open != 0)
        return view->open != 0;
    if (!(view->sends ? open_as_sender(pair) : open_as_receiver(pair)))
        return false;
    enter(pair);
    if (has_barred(pair)) {
        rs_incarnation_stop(pair);
        return false;
    }
    return true;
}

/* ---- alone ---- */

/* The messages that are not complete, in the order of their starts. */
static struct rs_message *open_messages(const struct rs_pair *pair)
{
    struct rs_message *first = NULL, **last = &first, **at;

    for (struct rs_message *m = pair->messages; m != NULL; m = m->next) {
        if (!rs_message_is_open(m))
            continue;
        at = *last == NULL || (*last)->order < m->order ? last : &first;
        while (*at != NULL && (*at)->order < m->order)
            at = &(*at)->next_open;
        m->next_open = *at;
        *at = m;
        last = at;
    }
    return first;
}

void rs_incarnation_enter_alone(struct rs_pair *pair)
{
    const struct rs_pair_view *view = &pair->view;

    if (view->sends || !rs_pair_is_ready(view) || pair->name->comm == MPI_COMM_NULL ||
        !rs_pair_is_wanted(view))
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
        /* No second look, by which the sender may have opened it. */
        if (!rs_pair_follow(&pair->view))
            return true;
        is_followed(pair);
        if (has_barred(pair))
            return false;
    }
    return rs_pair_is_open(&pair->view);
}

/* The next one of those that wait for the sender. Has it come natively, all go so. */
static void probe(struct rs_pair *pair)
{
    const struct rs_message *m = open_messages(pair), *next = m;
    int flag = 0;

    while (next != NULL && next->order <= pair->probed)
        next = next->next_open;
    if (next == NULL)
        next = m;
    if (next == NULL)
        return;
    pair->probed = next->order;
    if (pair->name->comm == MPI_COMM_NULL ||
        native_Iprobe(pair->peer, next->lane->tag, pair->name->comm, &flag,
                      MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        flag)
        rs_incarnation_stop(pair);
}

/* ---- attempts ---- */

static void rest(struct rs_pair *pair, unsigned starts)
{
    pair->skip = starts;
    pair->tries = 0;
    rs_pair_want(&pair->view, false);
}

/* T4. They cost more than what goes natively, so they are seldom where they are in vain:
 * a program may have a receive posted at each start, or a send under way. */
static void fail(struct rs_pair *pair)
{
    uint32_t readies;

    if (++pair->tries < TRIES * pair->num_attached)
        return;
    readies = rs_pair_readies(&pair->view);
    pair->parked = readies == pair->readies && !rs_pair_is_ready(&pair->view);
    pair->readies = readies;
    rest(pair, pair->parked ? 0 : pair->tries << pair->futile);
    pair->futile += pair->futile < MOST_FUTILE;
}

static bool is_parked(struct rs_pair *pair)
{
    if (pair->parked && (rs_pair_is_ready(&pair->view) ||
                         rs_pair_readies(&pair->view) != pair->readies))
        pair->parked = false;
    return pair->parked;
}

static void try_as_sender(struct rs_pair *pair)
{
    if (pair->skip > 0)
        pair->skip--;
    if (pair->skip > 0 || is_parked(pair))
        return;
    if ((pair->tries == 0 || pair->tries >= LEAST_TRIES * pair->num_attached) &&
        pair->rests_until > 0 && rs_now_ns() < pair->rests_until)
        rest(pair, LATER);
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
            pair->latest_over > lane->started + RECENT)
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

void rs_incarnation_try(struct rs_pair *pair)
{
    if (is_new_step) {
        is_new_step = false;
        rs_pairs_visit(prepare);
    }
    if (pair->view.sends)
        try_as_sender(pair);
    else
        try_as_receiver(pair);
}

bool rs_incarnation_is_tried(const struct rs_pair *pair)
{
    return pair->skip == 0 && !pair->parked;
}

bool rs_incarnation_is_futile(const struct rs_pair *pair)
{
    return pair->view.sends ? pair->futile > 0 || pair->lost
                            : pair->tries >= TRIES;
}

/* As far as this process knows. One that stays so for long is not waited for. */
static bool is_pending(const struct rs_message *message)
{
    if (message->excuses > EXCUSES &&
        message->excused == message->puts + message->natives)
        return false;
    return message->request->state == RS_GRANTED
               ? rs_lane_is_put(message->slots, message->number) == NULL
               : message->request->state == RS_NATIVE && !rs_lane_is_barred(message->lane);
}

static struct rs_message *find_pending(void)
{
    for (const struct rs_pair *p = rs_pairs_first(); p != NULL; p = p->next_all) {
        for (struct rs_message *m = p->messages; m != NULL && !m->sends; m = m->next) {
            if (is_pending(m))
                return m;
        }
    }
    return NULL;
}

bool rs_incarnation_is_receiving(void)
{
    return find_pending() != NULL;
}

/* Who has no core of his own gives it to those that he waits for, and who waits for a receive
 * anyway loses nothing. */
static bool has_excuse(void)
{
    struct rs_message *message;
    uint64_t starts;

    if (rs_is_crowded())
        return true;
    message = find_pending();
    if (message == NULL)
        return false;
    starts = message->puts + message->natives;
    if (message->excused != starts)
        message->excuses = 0;
    message->excused = starts;
    message->excuses++;
    return true;
}

/* T4. The wait before this one, if none for a receive came after it, which would have been longer
 * without. */
static void count_loss(struct rs_pair *pair, uint64_t now)
{
    uint64_t least = now - (uint64_t)LOSS * LOSS_NS;
    uint64_t ns = pair->loss < MOST_NS ? pair->loss : MOST_NS;

    pair->loss = 0;
    if (ns < LITTLE_NS || pair->awaited != rs_num_awaited)
        return;
    if (pair->rests_until < least)
        pair->rests_until = least;
    pair->rests_until += LOSS * ns;
    if (pair->rests_until <= now)
        return;
    pair->lost = true;
    if (pair->view.open != 0)
        rs_incarnation_stop(pair);
}

/* Messages may be waited for at the same time: there is one clock for all of the pair. */
void rs_incarnation_lose(struct rs_pair *pair, bool begins)
{
    uint64_t now = rs_now_ns(), ns = now - pair->looked;

    if (begins) {
        count_loss(pair, now);
        pair->loses = !has_excuse();
    } else if (pair->loses && (rs_has_rested || ns < GAP_NS)) {
        pair->loss += ns;
    }
    pair->looked = now;
    pair->awaited = rs_num_awaited;
    rs_has_rested = false;
}

/* ---- stopping ---- */

static void punish(struct rs_pair *pair, uint64_t length)
{
    pair->before = pair->penalty;
    if (length < LONG_LIFE)
        pair->penalty *= pair->penalty < MOST_PENALTY ? 2 : 1;
    else /* little by little: what made it stop may come again soon */
        pair->penalty /= 2;
    if (pair->penalty < FIRST_PENALTY)
        pair->penalty = FIRST_PENALTY;
    rest(pair, pair->penalty);
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
            length += (uint32_t)lane->slots->number;
        lane->limit = 0;
    }
    pair->native_starts_before = pair->native_starts;
    mine = rs_pair_stop(&pair->view, pair->slots, pair->num_attached);
    if (mine)
        rs_count_number(RS_NUMBER_STOPS, 1);
    if (pair->view.sends)
        punish(pair, length);
    /* T2: in their order. What is matched is none of the native MPI's
     * business, so it does not matter between which others it is completed. */
    for (struct rs_message *m = open_messages(pair); m != NULL;
         m = m->next_open) {
        uint64_t final = atomic_load_explicit(
            &pair->view.words->final[m->lane->index], memory_order_relaxed);

        if (rs_lane_reached(final, m->number))
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

void rs_incarnation_is_due(struct rs_pair *pair)
{
    is_new_step = true;
    rs_incarnation_open(pair);
}

void rs_incarnation_unready(struct rs_pair *pair)
{
    if (pair->view.words != NULL && !pair->view.sends && pair->view.open == 0 &&
        !rs_pair_unready(&pair->view))
        enter(pair);
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

    if (!lane->attached || lane->limit != 0 || !rs_lane_is_quiet(lane) ||
        rs_lane_is_barred(lane) || ++lane->outside <= pair->penalty)
        return;
    if (!stop(pair))
        return;
    /* It is no sign that matching could change. */
    pair->penalty = pair->before;
    pair->skip = 0;
}

/* ---- looking ---- */

/* It is not counted: starts, which are many, would have to. */
bool rs_incarnation_has_open(const struct rs_pair *pair)
{
    const struct rs_message *m = rs_num_open > 0 ? pair->messages : NULL;

    while (m != NULL && !rs_message_is_open(m))
        m = m->next;
    return m != NULL;
}

/* Complete what is matched. */
static void collect(struct rs_pair *pair)
{
    struct rs_message *next;

    for (struct rs_message *m = open_messages(pair); m != NULL; m = next) {
        next = m->next_open;
        if (!rs_message_is_open(m))
            continue;
        if (!rs_message_poll(m->request) && pair->view.open == 0)
            return; /* it has been stopped, and none is open */
    }
}

bool rs_incarnation_takes(const struct rs_pair *pair)
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
    } while (rs_now_ns() - start < SETTLE_NS);
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

/* ---- what other calls do ---- */

void rs_before_send(MPI_Comm comm, int peer, int tag)
{
    struct rs_pair *pair = rs_pair_find(comm, true, peer);
    struct rs_lane *lane;

    if (pair == NULL)
        return;
    lane = rs_lane_find(pair, tag);
    if (lane != NULL) {
        rs_incarnation_close(pair);
        lane->natives++;
        lane->quiet = false;
    } else if (rs_incarnation_has_open(pair)) {
        rs_incarnation_settle(pair);
    }
}

void rs_lane_bar(struct rs_lane *lane, enum rs_stay stay)
{
    lane->covers++;
    lane->barred_for_good |= stay == RS_COMES;
    if (!lane->barred && lane->attached)
        rs_pair_bar(&lane->pair->view, lane->index);
    lane->barred = true;
}

void rs_lane_unbar(struct rs_lane *lane, uint64_t covers)
{
    /* O2: the sender may open the pair at any time. */
    if (!lane->barred || lane->barred_for_good || covers != lane->covers ||
        lane->posted > 0)
        return;
    if (lane->attached)
        rs_pair_unbar(&lane->pair->view, lane->index);
    lane->barred = false;
}

bool rs_lane_is_barred(const struct rs_lane *lane)
{
    return lane->barred ||
           (lane->attached && rs_pair_barred(&lane->pair->view) >> lane->index & 1);
}

void rs_lane_leave_native(struct rs_lane *lane)
{
    if (lane->barred_for_good)
        return;
    if (!lane->pair->view.sends) {
        rs_lane_bar(lane, RS_COMES);
        return;
    }
    lane->barred = lane->barred_for_good = true;
    if (lane->attached)
        rs_pair_leave_out(&lane->pair->view, lane->index);
}

static void hide(struct rs_pair *pair, int tag, enum rs_stay stay)
{
    struct rs_lane *lane =
        tag == MPI_ANY_TAG ? pair->lanes : rs_lane_find(pair, tag);

    if (lane == NULL)
        return;
    for (; stay != RS_STAYS_NOT && lane != NULL;
         lane = tag == MPI_ANY_TAG ? lane->next : NULL)
        rs_lane_bar(lane, stay);
    rs_incarnation_close(pair);
}

/* ---- nonblocking receives ---- */

/* What they covered, ever: sets of hashes, one for each kind of stay. They are
 * kept from MPI_Init on, because a lane that is made later does not know whether
 * one that was posted is complete. */
enum { FILTER_BITS = 1 << 16 };
typedef _Atomic uint64_t filter_bits[FILTER_BITS / 64];
static filter_bits filters[2];

static unsigned filter_key(MPI_Comm comm, int peer, int tag)
{
    uint64_t key = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);

    key ^= (uint64_t)(uint32_t)peer << 32 | (uint32_t)tag;
    key *= UINT64_C(0xbf58476d1ce4e5b9);
    return (unsigned)(key >> 48);
}

static bool filter_has(const filter_bits filter, MPI_Comm comm, int peer,
                       int tag)
{
    unsigned key = filter_key(comm, peer, tag);

    return atomic_load_explicit(&filter[key / 64], memory_order_relaxed) >>
               key % 64 & 1;
}

static void filter_add(filter_bits filter, MPI_Comm comm, int peer, int tag)
{
    unsigned key = filter_key(comm, peer, tag);

    atomic_fetch_or_explicit(&filter[key / 64], UINT64_C(1) << key % 64,
                             memory_order_relaxed);
}

static bool filter_covers(const filter_bits filter, MPI_Comm comm, int peer,
                          int tag)
{
    return filter_has(filter, comm, peer, tag) ||
           filter_has(filter, comm, MPI_ANY_SOURCE, tag) ||
           filter_has(filter, comm, peer, MPI_ANY_TAG) ||
           filter_has(filter, comm, MPI_ANY_SOURCE, MPI_ANY_TAG);
}

enum rs_stay rs_is_covered(MPI_Comm comm, int peer, int tag)
{
    return filter_covers(filters[1], comm, peer, tag)   ? RS_COMES
           : filter_covers(filters[0], comm, peer, tag) ? RS_STAYS
                                                        : RS_STAYS_NOT;
}

void rs_lane_lose_receive(struct rs_lane *lane)
{
    const struct rs_pair *pair = lane->pair;

    lane->posted--;
    /* The lane may be gone before it is complete, and made again. */
    if (pair->name->comm != MPI_COMM_NULL)
        filter_add(filters[0], pair->name->comm, pair->peer, lane->tag);
    rs_lane_bar(lane, RS_STAYS);
}

void rs_before_receive(MPI_Comm comm, int peer, int tag, enum rs_stay stay)
{
    struct rs_name *name;
    struct rs_pair *pair;

    if (stay != RS_STAYS_NOT &&
        !filter_has(filters[stay == RS_COMES], comm, peer, tag))
        filter_add(filters[stay == RS_COMES], comm, peer, tag);
    if (rs_num_pairs == 0)
        return;
    if (peer != MPI_ANY_SOURCE) {
        pair = rs_pair_find(comm, false, peer);
        if (pair != NULL)
            hide(pair, tag, stay);
        return;
    }
    name = rs_name_find(comm);
    for (pair = name != NULL ? name->pairs : NULL; pair != NULL;
         pair = pair->next) {
        if (!pair->view.sends)
            hide(pair, tag, stay);
    }
}

bool rs_is_lane(MPI_Comm comm, int peer, int tag)
{
    struct rs_pair *pair = rs_pair_find(comm, true, peer);

    return pair != NULL && rs_lane_find(pair, tag) != NULL;
}
