/* SPDX-License-Identifier: BSD-3-Clause */
/* Incarnations: opening and stopping. The fast path is in lane.h. */
#include "mpi/lane.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    WORDS_BYTES = 200 << 10,
    FIRST_ROW = 1024, MOST_ROW = 65536,
    MORE_BYTES = 16 << 20, /* of a pair, for more slots than the least number */
    UNIT = 16, /* of places */
    ALIGNED_ROOM = 256, /* from here on data begins with a line */
};
static_assert(sizeof(struct rs_pair_words) <= WORDS_BYTES, "before the slots");
static_assert(sizeof(struct rs_slot) == UNIT, "slots side by side");

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- places ---- */

/* Of a place, from the lowest bits on: room and stride, in units; the number of slots, a
 * power of two; and where the first one is, in units. */
enum { ROOM_BITS = 17, STRIDE_BITS = 18, NUM_BITS = 4, AT_BITS = 25 };
static_assert(ROOM_BITS + STRIDE_BITS + NUM_BITS + AT_BITS == 64, "a word");

static uint64_t make_place(uint64_t at, unsigned num, uint64_t stride, uint64_t room)
{
    return ((at / UNIT << NUM_BITS | (unsigned)__builtin_ctz(num)) << STRIDE_BITS |
            stride / UNIT)
               << ROOM_BITS |
           room / UNIT;
}

static uint64_t place_stride(uint64_t place)
{
    return (place >> ROOM_BITS) % (1 << STRIDE_BITS) * UNIT;
}

unsigned rs_place_num(uint64_t place)
{
    return 1u << (place >> (ROOM_BITS + STRIDE_BITS)) % (1 << NUM_BITS);
}

static uint64_t place_at(uint64_t place)
{
    return (place >> (ROOM_BITS + STRIDE_BITS + NUM_BITS)) * UNIT;
}

uint64_t rs_place_room(uint64_t place)
{
    return place % (1 << ROOM_BITS) * UNIT;
}

uint64_t rs_place_bytes(uint64_t place)
{
    return place == 0 ? 0 : rs_place_num(place) * (UNIT + rs_place_room(place));
}

/* Where there are very many lanes their memory matters more. */
static unsigned least_slots(unsigned index, uint64_t room)
{
    uint64_t few = index < RS_BANK_LANES ? RS_LANE_FEW_BYTES : RS_LANE_FEWEST_BYTES;

    return room <= few ? RS_LANE_FEW_SLOTS : RS_LANE_LEAST_SLOTS;
}

/* Each lane twice as much again and again, and the most in the end: together
 * less than three times that. Rows are not full. And what some have more. */
size_t rs_pair_bytes(uint64_t most)
{
    size_t few = RS_LANE_FEW_SLOTS * (size_t)(RS_LANE_FEW_BYTES + 2 * RS_LANE_LINE);
    size_t many = RS_LANE_LEAST_SLOTS * (size_t)(most + 2 * RS_LANE_LINE);

    return WORDS_BYTES + RS_BANK_LANES * (4 * few + 3 * many) + MORE_BYTES;
}

/* How many come closest to a share. */
static unsigned choose_num(uint64_t stride, unsigned least, uint64_t share)
{
    unsigned num = least;

    while (num < RS_LANE_MOST_SLOTS && num * stride + num * stride / 2 < share)
        num *= 2;
    return num;
}

/* Of these what there is memory for. */
static unsigned no_more(const struct rs_rows *rows, uint64_t stride, unsigned least,
                        unsigned num)
{
    while (num > least && rows->more + (num - least) * stride > MORE_BYTES)
        num /= 2;
    return num;
}

static uint64_t take_own(struct rs_rows *rows, uint64_t room, uint64_t most, uint64_t share)
{
    uint64_t stride = round_up(UNIT + room, RS_LANE_LINE);
    uint64_t at = rows->end + RS_LANE_LINE - UNIT; /* data begins with a line */
    unsigned least = RS_LANE_LEAST_SLOTS, num = choose_num(stride, least, share);

    num = no_more(rows, stride, least, num);
    if (at + num * stride > rs_pair_bytes(most))
        return 0;
    rows->more += (num - least) * stride;
    rows->end = round_up(at + num * stride, RS_LANE_LINE);
    return make_place(at, num, stride, room);
}

/* So many, which are used one after the other, for a lane that has others already. */
static uint64_t take_many(struct rs_rows *rows, unsigned index, uint64_t room,
                          unsigned wanted)
{
    uint64_t stride = round_up(UNIT + room, RS_LANE_LINE);
    uint64_t at = rows->end + (room < ALIGNED_ROOM ? 0 : RS_LANE_LINE - UNIT);
    uint64_t num = least_slots(index, room), end;

    while (num < wanted)
        num *= 2;
    end = round_up(at + num * stride, RS_LANE_LINE);
    if (num > RS_LANE_MOST_SLOTS || rows->more + (end - rows->end) > MORE_BYTES)
        return 0;
    rows->more += end - rows->end;
    rows->end = end;
    return make_place(at, (unsigned)num, stride, room);
}

/* Where the slot of another lane begins in the rows of a block. */
static uint64_t next_in_row(const struct rs_block *block, uint64_t room)
{
    return room < ALIGNED_ROOM ? block->used
                               : round_up(block->used + UNIT, RS_LANE_LINE) - UNIT;
}

/* Begin others, of more room if these are full. */
static bool begin_rows(struct rs_rows *rows, struct rs_block *block, uint64_t room,
                       unsigned least, unsigned num, uint64_t most)
{
    bool full = next_in_row(block, room) + UNIT + room > block->room;
    uint64_t row = block->room == 0 ? FIRST_ROW : full ? 2 * block->room : block->room;
    uint64_t stride;

    if (row > MOST_ROW)
        row = MOST_ROW;
    while (row < RS_LANE_LINE + room)
        row *= 2;
    /* An odd number of lines: not all in the same sets of a cache. */
    stride = row + RS_LANE_LINE;
    num = no_more(rows, stride, least, num);
    if (!full && num <= block->num)
        return true;
    if (rows->end + num * stride > rs_pair_bytes(most))
        return false;
    rows->more += (num - least) * stride;
    *block = (struct rs_block){.at = rows->end, .stride = stride, .room = row, .num = num};
    rows->end += num * stride;
    return true;
}

/* Of a block that has more rows than these slots are to be, the first ones. */
static uint64_t take_in_row(struct rs_rows *rows, unsigned index, uint64_t room,
                            uint64_t most, uint64_t share)
{
    unsigned kind = (room > RS_LANE_FEWEST_BYTES) + (room > RS_LANE_FEW_BYTES);
    struct rs_block *block = &rows->blocks[kind];
    unsigned least = least_slots(index, room);
    unsigned num = choose_num(UNIT + room, least, kind > 0 ? share : 0);
    uint64_t at = next_in_row(block, room);

    if (at + UNIT + room > block->room || num > block->num) {
        if (!begin_rows(rows, block, room, least, num, most))
            return 0;
        at = next_in_row(block, room);
    }
    block->used = at + UNIT + room;
    return make_place(block->at + at, num < block->num ? num : block->num, block->stride,
                      room);
}

uint64_t rs_rows_take(struct rs_rows *rows, unsigned index, uint64_t bytes, uint64_t most,
                      uint64_t share, unsigned num)
{
    uint64_t room = bytes <= RS_LANE_LEAST_ROOM ? RS_LANE_LEAST_ROOM
                                                : round_up(bytes, UNIT);

    if (bytes > most)
        return 0;
    if (rows->end == 0)
        rows->end = WORDS_BYTES;
    return num > 0                     ? take_many(rows, index, room, num)
           : room <= RS_LANE_ROW_BYTES ? take_in_row(rows, index, room, most, share)
                                       : take_own(rows, room, most, share);
}

bool rs_slots_init(struct rs_slots *slots, const struct rs_pair_view *pair,
                   unsigned index, uint64_t place, uint64_t most)
{
    struct rs_bank_words *bank;
    uint64_t room = rs_place_room(place), stride = place_stride(place);
    uint64_t at = place_at(place), num = rs_place_num(place);

    if (index >= RS_LANES || at < WORDS_BYTES || room < RS_LANE_LEAST_ROOM ||
        num < RS_LANE_LEAST_SLOTS || num > RS_LANE_MOST_SLOTS || stride < UNIT + room ||
        at + (num - 1) * stride + UNIT + room > rs_pair_bytes(most))
        return false;
    bank = rs_bank_of(pair->words, index);
    slots->place = place;
    slots->memory = (char *)pair->words + at;
    slots->stride = stride;
    slots->room = room;
    slots->short_room = room < RS_LANE_SHORT_BYTES ? room : RS_LANE_SHORT_BYTES;
    slots->num = (unsigned)num;
    slots->granted = &bank->granted[index % RS_BANK_LANES];
    slots->consumed = &bank->consumed[index % RS_BANK_LANES];
    slots->bell = &pair->words->bells[!pair->sends].asleep;
    return true;
}

void rs_slots_offer(const struct rs_pair_view *pair, unsigned index, uint64_t place)
{
    _Atomic uint64_t *at = &rs_bank_of(pair->words, index)->places[index % RS_BANK_LANES];
    bool first = atomic_load_explicit(at, memory_order_relaxed) == 0;

    /* Release: pairs with rs_slots_move(). */
    atomic_store_explicit(at, place, memory_order_release);
    /* The same. The sender goes to the first one when it attaches the lane. */
    if (!first)
        atomic_fetch_add_explicit(&pair->words->moves, 1, memory_order_release);
}

void rs_pair_ask(const struct rs_pair_view *pair)
{
    /* Release: `wanted` is seen with it. */
    atomic_fetch_add_explicit(&pair->words->asks, 1, memory_order_release);
}

uint32_t rs_pair_asks(const struct rs_pair_view *pair)
{
    /* Acquire: `wanted` is read after it. */
    return atomic_load_explicit(&pair->words->asks, memory_order_acquire);
}

uint32_t rs_pair_moves(const struct rs_pair_view *pair)
{
    /* Acquire: `places` are read after it. */
    return atomic_load_explicit(&pair->words->moves, memory_order_acquire);
}

bool rs_slots_move(struct rs_slots *slots, const struct rs_pair_view *pair,
                   unsigned index, uint64_t most)
{
    struct rs_bank_words *bank = rs_bank_of(pair->words, index);
    /* Acquire: the memory has been taken; and a receiver that sees a place of
     * a later incarnation grants after all that the sender has read of this
     * one. */
    uint64_t place = atomic_load_explicit(
        pair->sends ? &bank->places[index % RS_BANK_LANES] : &bank->used[index % RS_BANK_LANES],
        memory_order_acquire);

    if (place == slots->place ||
        !rs_slots_init(slots, pair, index, place, most))
        return false;
    if (pair->sends)
        /* Release: see above. The receiver reads it when both are ready. */
        atomic_store_explicit(&bank->used[index % RS_BANK_LANES], place,
                              memory_order_release);
    return true;
}

static const struct rs_lane_set no_lanes;

static void enter(struct rs_pair_view *pair, uint64_t mode)
{
    pair->open = mode;
    /* The sender has written it before its bit. */
    for (unsigned i = 0; i < RS_BANKS; i++)
        pair->joined.banks[i] =
            atomic_load_explicit(&pair->words->joined[i], memory_order_relaxed);
}

bool rs_pair_enter(struct rs_pair_view *pair)
{
    /* Acquire: pairs with rs_pair_open(). */
    uint64_t mode =
        atomic_load_explicit(&pair->words->mode, memory_order_acquire);

    if ((mode & (RS_OPEN | RS_STOPPING)) != RS_OPEN)
        return false;
    enter(pair, mode);
    return true;
}

void rs_pair_take_barred(const struct rs_pair_view *pair, struct rs_lane_set *set)
{
    for (unsigned i = 0; i < RS_BANKS; i++) {
        if (set->banks[i] != 0)
            set->banks[i] &= ~rs_pair_barred(pair, i);
    }
}

bool rs_pair_has_barred_joined(const struct rs_pair_view *pair)
{
    for (unsigned i = 0; i < RS_BANKS; i++) {
        if (pair->joined.banks[i] != 0 &&
            (atomic_load(&pair->words->barred[i]) & pair->joined.banks[i]) != 0)
            return true;
    }
    return false;
}

bool rs_pair_is_ready(const struct rs_pair_view *pair)
{
    /* Acquire: what the receiver has done before, be it about places of slots or lanes
     * that are barred, is seen by a sender that opens the pair. */
    uint64_t mode =
        atomic_load_explicit(&pair->words->mode, memory_order_acquire);

    return (mode & (RS_OPEN | RS_STOPPING)) == RS_RECEIVER_READY;
}

bool rs_pair_open(struct rs_pair_view *pair, const struct rs_lane_set *joined)
{
    struct rs_pair_words *words = pair->words;
    uint64_t mode = atomic_load_explicit(&words->mode, memory_order_acquire);

    if ((mode & (RS_OPEN | RS_STOPPING)) != RS_RECEIVER_READY)
        return false;
    for (unsigned i = 0; i < RS_BANKS; i++)
        atomic_store_explicit(&words->joined[i], joined->banks[i], memory_order_relaxed);
    /* Acquire and release: what each side has done before it was ready must be seen
     * by who finds the pair open. */
    if (!atomic_compare_exchange_strong_explicit(
            &words->mode, &mode, mode | RS_SENDER_READY, memory_order_acq_rel,
            memory_order_acquire))
        return false;
    enter(pair, mode | RS_SENDER_READY);
    return true;
}

void rs_pair_ready(struct rs_pair_view *pair)
{
    _Atomic uint64_t *word = &pair->words->mode;

    /* The sender changes what is open only, so it is not stopping after this look. */
    if ((atomic_load_explicit(word, memory_order_acquire) &
         (RS_OPEN | RS_STOPPING)) != 0)
        return;
    /* Relaxed: the sender may learn of it at any time. */
    atomic_store_explicit(&pair->words->readies, rs_pair_readies(pair) + 1,
                          memory_order_relaxed);
    /* Release: see rs_pair_is_ready(). */
    atomic_fetch_or_explicit(word, RS_RECEIVER_READY, memory_order_acq_rel);
    if (rs_pair_holds(pair))
        pair->open ^= RS_HOLDS | RS_RECEIVER_READY;
}

uint32_t rs_pair_readies(const struct rs_pair_view *pair)
{
    return atomic_load_explicit(&pair->words->readies, memory_order_relaxed);
}

/* Of the next incarnation, from 1 on; neither side is in one. */
static uint32_t next_number(const struct rs_pair_view *pair)
{
    uint64_t mode = atomic_load_explicit(&pair->words->mode, memory_order_relaxed);

    return (uint32_t)(mode >> RS_MODE_BITS) + 1;
}

void rs_pair_want(struct rs_pair_view *pair, bool wants)
{
    uint32_t number = wants ? next_number(pair) : 0;

    if (atomic_load_explicit(&pair->words->wants, memory_order_relaxed) != number)
        atomic_store_explicit(&pair->words->wants, number, memory_order_relaxed);
}

void rs_pair_rest(struct rs_pair_view *pair, bool rests)
{
    if (atomic_load_explicit(&pair->words->rests, memory_order_relaxed) != rests)
        atomic_store_explicit(&pair->words->rests, rests, memory_order_relaxed);
}

bool rs_pair_is_wanted(const struct rs_pair_view *pair)
{
    return atomic_load_explicit(&pair->words->wants, memory_order_relaxed) ==
           next_number(pair);
}

uint32_t rs_pair_held(const struct rs_pair_view *pair)
{
    uint32_t held = atomic_load_explicit(&pair->words->holds, memory_order_relaxed);

    return held == next_number(pair) ? held : 0;
}

bool rs_pair_unready(struct rs_pair_view *pair)
{
    _Atomic uint64_t *word = &pair->words->mode;
    uint64_t mode = atomic_load_explicit(word, memory_order_acquire);

    while ((mode & RS_OPEN) != RS_OPEN && !(mode & RS_STOPPING)) {
        if (!(mode & RS_RECEIVER_READY) ||
            atomic_compare_exchange_weak_explicit(
                word, &mode, mode & ~(uint64_t)RS_RECEIVER_READY,
                memory_order_acq_rel, memory_order_acquire))
            return true;
    }
    /* It has been opened, and perhaps the other side stops it already. */
    enter(pair, (mode & ~(uint64_t)RS_STOPPING) | RS_OPEN);
    return false;
}

bool rs_pair_enter_alone(struct rs_pair_view *pair)
{
    uint64_t mode =
        atomic_load_explicit(&pair->words->mode, memory_order_acquire);

    if (mode & (RS_SENDER_READY | RS_STOPPING))
        return false;
    pair->open = mode;
    pair->joined = no_lanes;
    if (mode & RS_RECEIVER_READY)
        return true;
    pair->open |= RS_HOLDS;
    atomic_store_explicit(&pair->words->holds, next_number(pair), memory_order_relaxed);
    return true;
}

bool rs_pair_follow(struct rs_pair_view *pair)
{
    /* Nobody but the sender changes the mode meanwhile, and first it opens. */
    if (rs_pair_holds(pair) || rs_pair_is_open(pair))
        return false;
    enter(pair, pair->open | RS_SENDER_READY);
    return true;
}

static uint64_t next_mode(const struct rs_pair_view *pair)
{
    return ((pair->open >> RS_MODE_BITS) + 1) << RS_MODE_BITS;
}

bool rs_pair_withdraw(struct rs_pair_view *pair)
{
    uint64_t mode = pair->open & ~(uint64_t)RS_HOLDS;

    /* The next incarnation: what has been granted means nothing there. */
    if (!atomic_compare_exchange_strong_explicit(
            &pair->words->mode, &mode, next_mode(pair), memory_order_acq_rel,
            memory_order_acquire)) {
        rs_pair_follow(pair);
        return false;
    }
    pair->open = 0;
    pair->joined = no_lanes;
    return true;
}

/* The other side is between two statements of rs_pair_stop(). */
static void await_decision(const struct rs_pair_view *pair)
{
    for (unsigned i = 0;
         /* Acquire: pairs with the end of rs_pair_stop(). */
         atomic_load_explicit(&pair->words->mode, memory_order_acquire) ==
         (pair->open | RS_STOPPING);
         i++) {
        if (i > 1000)
            sched_yield();
    }
}

/* The highest number that the other side has reached on a lane since the pair
 * opened. */
static uint64_t other_number(const struct rs_pair_view *pair, const struct rs_slots *slots)
{
    uint64_t highest = slots->seen;

    if (pair->sends) {
        /* Acquire: a slot is used again after it. */
        highest = atomic_load_explicit(slots->granted, memory_order_acquire);
        return (highest ^ rs_pair_base(pair)) >> 32 == 0 ? highest : 0;
    }
    /* What has not been consumed is in the slots, one after the other. */
    while (rs_lane_is_put(slots, highest + 1) != NULL)
        highest++;
    return highest;
}

bool rs_pair_stop(struct rs_pair_view *pair, const struct rs_slots *const *slots,
                  unsigned num)
{
    struct rs_pair_words *words = pair->words;
    uint64_t mode = pair->open;
    bool mine = atomic_compare_exchange_strong_explicit(
        &words->mode, &mode, pair->open | RS_STOPPING, memory_order_seq_cst,
        memory_order_acquire);

    if (mine) {
        /* With the swap before it: see rs_lane_fence(). */
        atomic_thread_fence(memory_order_seq_cst);
        for (unsigned i = 0; i < num; i++) {
            uint64_t other, least;

            if (!rs_lane_set_has(&pair->joined, i))
                continue;
            least = slots[i]->number;
            other = other_number(pair, slots[i]);
            if (other < least)
                least = other;
            atomic_store_explicit(&rs_bank_of(words, i)->final[i % RS_BANK_LANES], least,
                                  memory_order_relaxed);
        }
        /* Release: `final` must be seen with it. */
        atomic_store_explicit(&words->mode, next_mode(pair),
                              memory_order_release);
        /* The other side may wait for what we do natively now. */
        if (atomic_load(&words->bells[!pair->sends].asleep) != RS_AWAKE)
            rs_bell_ring(&words->bells[!pair->sends].asleep);
    } else {
        await_decision(pair);
    }
    pair->open = 0;
    pair->joined = no_lanes;
    return mine;
}

bool rs_pair_greeting(const struct rs_pair_view *pair, uint32_t word)
{
    uint32_t none = 0;

    return atomic_compare_exchange_strong(&pair->words->greeting, &none, word);
}

static uint64_t bit_of(unsigned index)
{
    return UINT64_C(1) << index % RS_BANK_LANES;
}

void rs_pair_bar(struct rs_pair_view *pair, unsigned index)
{
    /* Release: seen by a sender that finds the receiver ready. */
    atomic_fetch_or_explicit(&pair->words->barred[index / RS_BANK_LANES], bit_of(index),
                             memory_order_release);
}

void rs_pair_unbar(struct rs_pair_view *pair, unsigned index)
{
    /* Relaxed: the sender may learn of it at any time. What makes the pair open
     * is `mode`. */
    atomic_fetch_and_explicit(&pair->words->barred[index / RS_BANK_LANES], ~bit_of(index),
                              memory_order_relaxed);
}

void rs_pair_leave_out(struct rs_pair_view *pair, unsigned index)
{
    /* Relaxed: what the receiver does once it knows concerns no incarnation that this
     * side has opened before. */
    atomic_fetch_or_explicit(&pair->words->left_out[index / RS_BANK_LANES], bit_of(index),
                             memory_order_relaxed);
}

void rs_bell_ring(_Atomic uint32_t *bell)
{
    if (atomic_exchange(bell, RS_AWAKE) != RS_AWAKE)
        syscall(SYS_futex, bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}
