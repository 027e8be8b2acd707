/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane is barred while its pair opens (docs/persistent.md, N3), and attempts to open it
 * (T4): both sides of one pair in this process, over mpi/incarnation.c and mpi/lane.c alone:
 * with the receiver's step between two of the sender's, and as two threads. No messages are
 * sent. */
#include "mpi/message.h"
#include "mpi/native.h"
#include "tests/model/check.h"

#include <pthread.h>
#include <sched.h>

enum { BARRED, OTHER, LANES, MOST = 4096 };
enum { TIMES = 200 }; /* that both sides were in an incarnation */

struct side {
    struct rs_pair pair;
    struct rs_lane lanes[LANES];
};

static struct side sender, receiver;
static struct rs_pair_words *words;

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

static bool is_crowded;

bool rs_is_crowded(void)
{
    return is_crowded;
}

static struct rs_pair *pairs;

struct rs_pair *rs_pairs_first(void)
{
    return pairs;
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

void rs_gpu_settle(void)
{
}

/* ---- a clock ---- */

static uint64_t clock_start;
static unsigned looks_at_clock;
static void (*at_clock)(void);

uint64_t __real_rs_now_ns(void);
uint64_t __wrap_rs_now_ns(void);

uint64_t __wrap_rs_now_ns(void)
{
    looks_at_clock++;
    if (at_clock != NULL)
        at_clock();
    return __real_rs_now_ns() - clock_start;
}

/* ---- between two steps of the sender ---- */

static void (*meanwhile)(void);

bool __real_rs_pair_open(struct rs_pair_view *pair, uint64_t joined);
bool __wrap_rs_pair_open(struct rs_pair_view *pair, uint64_t joined);

/* The sender has chosen the lanes. */
bool __wrap_rs_pair_open(struct rs_pair_view *pair, uint64_t joined)
{
    void (*step)(void) = meanwhile;

    if (step != NULL) {
        meanwhile = NULL;
        step();
    }
    return __real_rs_pair_open(pair, joined);
}

/* ---- cases ---- */

static void begin_side(struct side *side, bool sends)
{
    static struct rs_name name = {.comm = MPI_COMM_WORLD};
    static uint64_t places[LANES];
    struct rs_rows rows = {0};

    *side = (struct side){.pair = {.view = {.words = words, .sends = sends},
                                   .name = &name, .greeted = true,
                                   .num_attached = LANES}};
    for (unsigned i = 0; i < LANES; i++) {
        struct rs_lane *lane = &side->lanes[i];

        if (!sends)
            places[i] = rs_rows_take(&rows, 8, MOST, 0, 0);
        lane->pair = &side->pair;
        lane->index = i;
        lane->tag = (int)i;
        lane->attached = lane->quiet = true;
        lane->requests = 1;
        lane->sync = MPI_REQUEST_NULL;
        lane->slots = &side->pair.slots[i];
        CHECK(rs_slots_init(lane->slots, &side->pair.view, i, places[i], MOST));
        side->pair.attached[i] = lane;
    }
}

static void begin(void)
{
    size_t bytes = (rs_pair_bytes(MOST) + 4095) / 4096 * 4096;

    free(words);
    words = aligned_alloc(4096, bytes);
    CHECK(words != NULL);
    memset(words, 0, bytes);
    begin_side(&receiver, false);
    begin_side(&sender, true);
}

/* As when a nonblocking receive is to be posted. */
static void bar(void)
{
    rs_lane_bar(&receiver.lanes[BARRED], RS_STAYS);
    rs_incarnation_close(&receiver.pair);
}

/* Until both are in an incarnation, or give up. */
static bool both_open(void)
{
    for (int i = 0; i < 100; i++) {
        rs_incarnation_open(&receiver.pair);
        sender.pair.skip = 0;
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

static void expect_only_other(void)
{
    CHECK(both_open());
    CHECK(sender.pair.view.joined == 1 << OTHER &&
          receiver.pair.view.joined == 1 << OTHER);
    CHECK(sender.lanes[OTHER].limit != 0 && receiver.lanes[OTHER].limit != 0);
}

static void bar_and_be_ready(void)
{
    bar();
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(rs_pair_is_ready(&receiver.pair.view));
}

/* The lane was free when the sender looked, and is barred when it opens the
 * pair. */
static void case_between(void)
{
    begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    meanwhile = bar_and_be_ready;
    CHECK(!rs_incarnation_open(&sender.pair));
    CHECK(meanwhile == NULL);
    CHECK(sender.pair.view.open == 0 && sender.lanes[BARRED].limit == 0);
    expect_only_other();
}

/* The receiver has been ready, and a lane is barred before the sender looks. */
static void case_before(void)
{
    begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    CHECK(rs_pair_is_ready(&sender.pair.view));
    bar();
    CHECK(!rs_pair_is_ready(&sender.pair.view));
    CHECK(!rs_incarnation_open(&sender.pair));
    expect_only_other();
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
    begin();
    enter_alone();
    CHECK(receiver.lanes[BARRED].limit != 0 && receiver.lanes[OTHER].limit != 0);
    bar();
    CHECK(receiver.pair.view.open == 0 && rs_num_alone == 0);
    CHECK(receiver.pair.penalty == 0 && receiver.pair.skip == 0);
    CHECK(receiver.lanes[OTHER].limit == 0);
    words->wants = 0;

    enter_alone();
    CHECK(receiver.lanes[BARRED].limit == 0 && receiver.lanes[OTHER].limit != 0);
    CHECK(rs_incarnation_open(&sender.pair));
    CHECK(rs_incarnation_is_open(&receiver.pair));
    CHECK(!rs_pair_is_alone(&receiver.pair.view) && rs_num_alone == 0);
    expect_only_other();
}

/* One that the sender has opened and stopped when it looks. */
static void case_late(void)
{
    begin();
    enter_alone();
    CHECK(rs_incarnation_open(&sender.pair));
    rs_incarnation_stop(&sender.pair);
    CHECK(!rs_incarnation_is_open(&receiver.pair));
    CHECK(receiver.pair.view.joined == (1 << BARRED | 1 << OTHER));
    rs_incarnation_stop(&receiver.pair);
    CHECK(receiver.pair.view.open == 0 && rs_num_alone == 0);
    sender.pair.skip = receiver.pair.skip = 0;
    CHECK(both_open());
    CHECK(sender.pair.view.open == receiver.pair.view.open);
}

static void bar_and_be_alone(void)
{
    bar();
    enter_alone();
}

/* The lane was free when the sender looked, and is barred when it opens the pair, in which
 * the receiver is alone. */
static void case_alone_between(void)
{
    begin();
    CHECK(!rs_incarnation_open(&receiver.pair));
    meanwhile = bar_and_be_alone;
    CHECK(!rs_incarnation_open(&sender.pair));
    CHECK(meanwhile == NULL);
    CHECK(sender.pair.view.open == 0 && sender.lanes[BARRED].limit == 0);
    CHECK(!rs_incarnation_is_open(&receiver.pair));
    rs_incarnation_stop(&receiver.pair);
    receiver.pair.skip = 0;
    expect_only_other();
}

/* The sender has opened the pair, and will see that a lane is barred, but has not yet. */
static void case_alone_before(void)
{
    begin();
    enter_alone();
    CHECK(__real_rs_pair_open(&sender.pair.view, 1 << BARRED | 1 << OTHER));
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

    begin();
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

    begin();
    receiver.lanes[OTHER].posted = 1;
    pair->new_receives = true;
    CHECK(!rs_incarnation_open(pair) && !rs_incarnation_open(&sender.pair));
    rs_incarnation_enter_alone(pair);
    CHECK(rs_pair_holds(&pair->view));
    bar();
    CHECK(pair->view.open == 0 && rs_num_alone == 0 && pair->shy == 1);
    CHECK(!rs_pair_is_ready(&sender.pair.view));
    receiver.lanes[OTHER].posted = 0;
    CHECK(both_open());
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

    begin();
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

    begin();
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
    CHECK(both_open());
    CHECK(pair->shy == 0);
}

/* It joins again when a receive of its own is matched that was started after
 * all that covered it, and not before. */
static void case_again(void)
{
    struct rs_lane *lane = &receiver.lanes[BARRED];

    begin();
    CHECK(both_open());
    CHECK(receiver.pair.view.joined == (1 << BARRED | 1 << OTHER));
    bar();
    expect_only_other();
    rs_lane_bar(lane, RS_STAYS);
    rs_lane_unbar(lane, 1);
    CHECK(lane->barred);
    rs_lane_unbar(lane, lane->covers);
    CHECK(!lane->barred);
    rs_incarnation_close(&receiver.pair);
    CHECK(both_open());
    CHECK(sender.pair.view.joined == (1 << BARRED | 1 << OTHER));
    rs_lane_bar(lane, RS_COMES);
    rs_lane_unbar(lane, lane->covers);
    CHECK(lane->barred);
}

/* The sender leaves out a lane of an incarnation that it has opened, and has yet to stop: a
 * receive must not be posted beside it. Later that takes no bit back any more. */
static void case_left_out(void)
{
    struct rs_lane *lane = &receiver.lanes[BARRED];

    begin();
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
    expect_only_other();

    /* By the receiver: it takes its bit back once. */
    rs_incarnation_close(&receiver.pair);
    sender.pair.skip = 0;
    rs_incarnation_stop(&sender.pair);
    CHECK(!rs_incarnation_open(&receiver.pair) && rs_pair_is_ready(&sender.pair.view));
    rs_lane_leave_native(&receiver.lanes[OTHER]);
    CHECK(!rs_pair_is_ready(&sender.pair.view));
}

/* ---- attempts ---- */

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
    begin();
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
    begin();
    CHECK(tried(STARTS) < STARTS / RARE);
    CHECK(tried(1) == 0);
    CHECK(!rs_incarnation_open(&receiver.pair));
    rs_incarnation_unready(&receiver.pair);
    CHECK(tried(1) == 1);
}

/* A message is under way at each start. */
static void case_never_quiet(void)
{
    struct rs_lane *lane = &sender.lanes[OTHER];
    unsigned num = 0, turns = 0;

    begin();
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
            begin();
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
        expect_only_other();
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

    begin();
    CHECK(both_open());
    wait(MS / 2, true);
    wait(10 * MS, false);
    pairs = &other; /* it waits for that */
    wait(10 * MS, true);
    pairs = NULL;
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
    begin();
    CHECK(both_open());
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

    begin();
    CHECK(both_open());
    pairs = &other;
    for (; pair->view.open != 0; waits++) {
        CHECK(waits < 1000);
        CHECK(rs_incarnation_is_receiving() == (waits < 257));
        wait(10 * MS, true);
    }
    CHECK(waits > 256);
    message.natives++;
    CHECK(rs_incarnation_is_receiving());
    pairs = NULL;
}

/* ---- as two threads ---- */

static atomic_bool enough;

/* What a side finds in an incarnation: the sender may put on lanes that have
 * joined; one that the receiver has barred is none of them. */
static void look_inside(const struct side *side)
{
    const struct rs_pair_view *view = &side->pair.view;

    for (unsigned i = 0; i < LANES; i++)
        CHECK(!(view->joined >> i & 1) == !side->lanes[i].limit);
    CHECK(!side->lanes[BARRED].barred || !(view->joined >> BARRED & 1));
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
    pair->skip = 0;
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
        pair->skip = 0;
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
            bar();
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

    begin();
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
    case_parked();
    case_was_ready();
    case_never_quiet();
    case_standing();
    case_lost();
    case_young_clock();
    case_excuses();
    case_threads();
    free(words);
    printf("barred: ok\n");
    return 0;
}
