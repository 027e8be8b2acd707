/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * LANE: messages of persistent point-to-point requests through shared memory.
 *
 * The protocol of docs/persistent.md, and nothing of MPI: what two processes
 * share, and what each of them knows of it. A **pair** is all lanes of one
 * communicator from one process to one other. Each side has its own struct
 * rs_pair over the same words.
 *
 * Threads: one thread at a time on each side.
 */
#ifndef RS_MPI_LANE_H
#define RS_MPI_LANE_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rsched/pull.h>

enum {
    RS_BANK_LANES = 64, /* bits of a word */
    RS_BANKS = 64,
    RS_LANES = RS_BANKS * RS_BANK_LANES, /* of a pair */
    RS_LANE_LINE = 64,
    RS_LANE_LEAST_ROOM = 48, /* of a slot; with its number a line */
    RS_LANE_FEWEST_BYTES = 512, /* up to these a lane has FEW_SLOTS */
    RS_LANE_FEW_BYTES = 4096, /* up to these it has so many at least */
    RS_LANE_ROW_BYTES = 16384, /* up to these slots lie in rows */
    RS_LANE_MOST_BYTES = 1 << 20, /* that slots can have room for */
    /* Longer sends may wait for their receiver (3.4), as Open MPI's do from
     * 4 KiB on, headers included. Up to these all messages go through slots. */
    RS_LANE_SHORT_BYTES = 3072,
    RS_LANE_MOST_SLOTS = 256,
    RS_LANE_FEW_SLOTS = 8,
    RS_LANE_LEAST_SLOTS = 2, /* but for the shortest also of lanes beyond a bank */
    RS_LANE_MOST_NUMBERS = 1 << 30, /* of an incarnation, and a few more */
};

/** Bits of `mode`; the number of the incarnation is above them. The sender's comes
 * after the receiver's. */
enum {
    RS_SENDER_READY = 1,
    RS_RECEIVER_READY = 2,
    RS_OPEN = 3,
    RS_STOPPING = 4,
    RS_MODE_BITS = 8,
};

/** A bit of a receiver's `open`, and of no mode. */
enum { RS_HOLDS = 8 };

/** Of `greeting`, which is 0 at first. */
enum {
    RS_GREETED = 1, /* the sender has sent one: the receiver has to take it */
    RS_LEFT = 2,    /* the receiver will take none */
};

/** Of `asleep`. Who waits for something else of another pair is not to be woken by
 * each put and grant of this one. */
enum rs_sleep {
    RS_AWAKE,
    RS_ASLEEP,
    RS_ASLEEP_FOR_STOPS, /* woken by nothing else */
};

/** Of `opens`, which is 0 at first. */
enum {
    RS_OPENS = 1,
    RS_OPENS_NOT = 2,
};

/** A set of lanes, by their indexes. */
struct rs_lane_set {
    uint64_t banks[RS_BANKS];
};

static inline bool rs_lane_set_has(const struct rs_lane_set *set, unsigned index)
{
    return set->banks[index / RS_BANK_LANES] >> index % RS_BANK_LANES & 1;
}

static inline void rs_lane_set_add(struct rs_lane_set *set, unsigned index)
{
    set->banks[index / RS_BANK_LANES] |= UINT64_C(1) << index % RS_BANK_LANES;
}

static inline bool rs_lane_set_is_empty(const struct rs_lane_set *set)
{
    uint64_t any = 0;

    for (unsigned i = 0; i < RS_BANKS; i++)
        any |= set->banks[i];
    return any == 0;
}

/** The words of so many lanes, by their indexes, side by side: most pairs need no more. */
struct rs_bank_words {
    alignas(RS_LANE_LINE) _Atomic uint64_t granted[RS_BANK_LANES]; /* receiver */
    alignas(RS_LANE_LINE) _Atomic uint64_t consumed[RS_BANK_LANES]; /* receiver */
    /* Where a lane's slots shall be (receiver), where they are from the next
     * incarnation on (sender), and what there was no room for (sender): bytes,
     * and how many slots above them, from bit 32 on. */
    alignas(RS_LANE_LINE) _Atomic uint64_t places[RS_BANK_LANES];
    alignas(RS_LANE_LINE) _Atomic uint64_t used[RS_BANK_LANES];
    _Atomic uint64_t wanted[RS_BANK_LANES];
    _Atomic uint64_t final[RS_BANK_LANES]; /* who stops */
};

/** Memory of the receiver that both sides map; all zero at first. Each word
 * has one writer, but `mode`, `final`, which belongs to who stops, and
 * `greeting`, which belongs to who writes it first. */
struct rs_pair_words {
    alignas(RS_LANE_LINE) uint64_t nonce; /* of the pair, to know it by */
    _Atomic uint32_t greeting;
    _Atomic uint32_t opens; /* receiver: the sender's GPU memory */
    _Atomic uint32_t refuses; /* receiver: the kernel lets it read none of the
                                 sender's memory any more */
    alignas(RS_LANE_LINE) _Atomic uint64_t mode;
    _Atomic uint32_t readies; /* receiver: times that it has become ready */
    _Atomic uint32_t holds; /* receiver: the incarnation that it was alone in before it was
                               ready */
    /* Sender: the incarnation that it would have opened. */
    alignas(RS_LANE_LINE) _Atomic uint32_t wants;
    _Atomic uint32_t rests; /* sender: it will not open the pair for long */
    _Atomic uint32_t asks; /* sender: times that `wanted` changed */
    _Atomic uint64_t joined[RS_BANKS]; /* sender: lanes, a set */
    _Atomic uint64_t left_out[RS_BANKS]; /* sender: lanes that will never join, a set */
    alignas(RS_LANE_LINE) _Atomic uint32_t moves; /* receiver: `places` that were others before */
    alignas(RS_LANE_LINE) _Atomic uint64_t barred[RS_BANKS]; /* receiver: lanes that are not to join, a set */
    alignas(RS_LANE_LINE) struct rsched_pull_told told; /* sender */
    /* Whether the receiver [0] or the sender [1] sleeps, an `rs_sleep`; cleared by
     * the other side, which wakes it. */
    struct rs_bell {
        alignas(RS_LANE_LINE) _Atomic uint32_t asleep;
    } bells[2];
    struct rs_bank_words banks[RS_BANKS];
};

/** Where a lane's words are. */
static inline struct rs_bank_words *rs_bank_of(struct rs_pair_words *words, unsigned index)
{
    return &words->banks[index / RS_BANK_LANES];
}

/** A slot. A message may be **announced** instead: `data` says where the sender
 * has it. */
struct rs_slot {
    _Atomic uint64_t number;
    uint64_t bytes; /* with marks. Of one that is timed the receiver writes how
                       long it has copied, ps, before it is consumed */
    char data[];
};
static_assert(sizeof(struct rs_slot) == 16, "part of a line");

/** Marks: each makes `bytes` more than any message has. */
#define RS_SLOT_ANNOUNCES (UINT64_C(1) << 63)
#define RS_SLOT_TIMED (UINT64_C(1) << 62)
/* What is announced lies in GPU memory. */
#define RS_SLOT_ON_GPU (UINT64_C(1) << 61)

static inline bool rs_slot_announces(const struct rs_slot *slot)
{
    return (slot->bytes & RS_SLOT_ANNOUNCES) != 0;
}

static inline bool rs_slot_is_timed(const struct rs_slot *slot)
{
    return (slot->bytes & RS_SLOT_TIMED) != 0;
}

/** The message's, wherever they are. */
static inline uint64_t rs_slot_bytes(const struct rs_slot *slot)
{
    return slot->bytes &
           ~(RS_SLOT_ANNOUNCES | RS_SLOT_TIMED | RS_SLOT_ON_GPU);
}

static inline bool rs_slot_is_on_gpu(const struct rs_slot *slot)
{
    return (slot->bytes & RS_SLOT_ON_GPU) != 0;
}

/** Which memory is taken; the receiver's. The k-th slots of lanes of about as many
 * bytes lie side by side, in a **row**, in the order in which the lanes were
 * made: what is sent to a process in one go is written and read in one go, lies on few pages,
 * and all over the sets of a cache. */
struct rs_rows {
    struct rs_block {
        uint64_t at, stride, room; /* of the rows that are being filled */
        uint64_t used;             /* of each of them */
        unsigned num;              /* of them */
    } blocks[3];                   /* for lanes of fewest bytes, of few, of more */
    uint64_t end;                  /* of all that is taken */
    uint64_t more;                 /* bytes of slots beyond the least number */
};

/** One side's view of a lane. */
struct rs_slots {
    uint64_t place; /* as in `places`; 0: none yet */
    char *memory;
    uint64_t stride; /* bytes from slot to slot */
    uint64_t room;   /* of a message, bytes */
    uint64_t short_room; /* the same, RS_LANE_SHORT_BYTES at most */
    unsigned num;    /* a power of two */
    uint64_t number; /* of the last put or grant, with the incarnation */
    uint64_t seen;   /* `consumed`, as the sender has read it last, or as the
                        receiver has written it */
    _Atomic uint64_t *granted, *consumed; /* the lane's words */
    _Atomic uint32_t *bell; /* of the other side */
};

/** One side's view of a pair. */
struct rs_pair_view {
    struct rs_pair_words *words; /* NULL: not attached */
    bool sends;
    uint64_t open;   /* the mode while it is in an incarnation, else 0. Without the
                        sender's bit: the receiver is alone there, as far as it knows;
                        with RS_HOLDS it is not ready yet */
    struct rs_lane_set joined; /* then the lanes that have joined */
};

/** What a pair has: enough for a bank of lanes whose slots have room for up to `most`. */
size_t rs_pair_bytes(uint64_t most);
/** Take memory for the slots of lane `index`, for messages of up to `bytes`, at most
 * `most`. Returns the place, one word that the other side can take over at
 * once; 0: there is none.
 * @param share bytes that slots of this lane are to have together: about so many, if it is
 *              not one of fewest bytes; the least number anyway
 * @param num   of slots that there are to be at least, RS_LANE_MOST_SLOTS at most, or none is
 *              taken; 0: the least number */
uint64_t rs_rows_take(struct rs_rows *rows, unsigned index, uint64_t bytes, uint64_t most,
                      uint64_t share, unsigned num);
/** Bytes of a message that slots there have room for. */
uint64_t rs_place_room(uint64_t place);
/** How many slots there are, a power of two. */
unsigned rs_place_num(uint64_t place);
/** Bytes of all slots there. */
uint64_t rs_place_bytes(uint64_t place);
/** This side's view of lane `index`. False: the place cannot be right. */
bool rs_slots_init(struct rs_slots *slots, const struct rs_pair_view *pair,
                   unsigned index, uint64_t place, uint64_t most);
/** Receiver, where the sender is to go when it opens the pair, or attaches the lane: not ready. */
void rs_slots_offer(const struct rs_pair_view *pair, unsigned index, uint64_t place);
/** How often there was another one before. */
uint32_t rs_pair_moves(const struct rs_pair_view *pair);
/** Sender: one of its `wanted` is another one now; how often that was. */
void rs_pair_ask(const struct rs_pair_view *pair);
uint32_t rs_pair_asks(const struct rs_pair_view *pair);
/** Go to where the slots shall be: the sender before it opens a pair whose receiver is
 * ready, the receiver when that is done. True: that is elsewhere. */
bool rs_slots_move(struct rs_slots *slots, const struct rs_pair_view *pair,
                   unsigned index, uint64_t most);

/** Whether the receiver is ready, and the sender may open the pair. */
bool rs_pair_is_ready(const struct rs_pair_view *pair);
/** Sender: open the pair, and enter, if its receiver is ready. */
bool rs_pair_open(struct rs_pair_view *pair, const struct rs_lane_set *joined);
/** Sender: say that it would open the pair now, or take that back. */
void rs_pair_want(struct rs_pair_view *pair, bool wants);
/** Sender: say that it will not open the pair for many starts, or that it might. */
void rs_pair_rest(struct rs_pair_view *pair, bool rests);
/** Receiver: whether the sender would have, at its last start. */
bool rs_pair_is_wanted(const struct rs_pair_view *pair);
/** Sender: the number of the incarnation that is to be opened, if the receiver is alone in it
 * and was not ready when it entered, else 0. */
uint32_t rs_pair_held(const struct rs_pair_view *pair);
/** Times that the receiver has become ready. */
uint32_t rs_pair_readies(const struct rs_pair_view *pair);
/** Receiver, in no incarnation or alone: be ready, or go without when that is not possible
 * now. */
void rs_pair_ready(struct rs_pair_view *pair);
/** Receiver: take that back. False: the incarnation has been entered instead, and
 * must be stopped. */
bool rs_pair_unready(struct rs_pair_view *pair);
/** Receiver: enter the incarnation if the pair is open. */
bool rs_pair_enter(struct rs_pair_view *pair);
/** Receiver: enter it if the pair is not open yet, be it before it is ready. */
bool rs_pair_enter_alone(struct rs_pair_view *pair);
/** Receiver that is alone: whether the sender has opened the pair; it may have stopped
 * it by now. `joined` is known then. */
bool rs_pair_follow(struct rs_pair_view *pair);
/** Receiver that is alone: end the incarnation. False: rs_pair_follow(). */
bool rs_pair_withdraw(struct rs_pair_view *pair);
/** Leave an incarnation, in which the receiver is not alone, that this or the other side
 * stops; `final` is valid then, until the receiver is ready again. True if it was this
 * side.
 * @param slots of `num` lanes, by their indexes */
bool rs_pair_stop(struct rs_pair_view *pair, const struct rs_slots *const *slots,
                  unsigned num);
/** One side's word for `greeting`. False: the other one had the first. */
bool rs_pair_greeting(const struct rs_pair_view *pair, uint32_t word);
/** The lane is not to join, until that is taken back. */
void rs_pair_bar(struct rs_pair_view *pair, unsigned index);
void rs_pair_unbar(struct rs_pair_view *pair, unsigned index);
/** The same for good, by the sender. */
void rs_pair_leave_out(struct rs_pair_view *pair, unsigned index);
/** Wake who sleeps at a bell. */
void rs_bell_ring(_Atomic uint32_t *bell);

/** Whether the incarnation that this side is in is still open. */
static inline bool rs_pair_is_open(const struct rs_pair_view *pair)
{
    /* Acquire: who finds it stopped reads `final` next. */
    return atomic_load_explicit(&pair->words->mode, memory_order_acquire) ==
           pair->open;
}

/** Lanes of a bank that are not to join, by either side's word. */
static inline uint64_t rs_pair_barred(const struct rs_pair_view *pair, unsigned bank)
{
    /* Acquire: the receiver bars before it is ready. Relaxed: the sender lets no such lane
     * join from then on. */
    return atomic_load_explicit(&pair->words->barred[bank], memory_order_acquire) |
           atomic_load_explicit(&pair->words->left_out[bank], memory_order_relaxed);
}

static inline bool rs_pair_has_barred(const struct rs_pair_view *pair, unsigned index)
{
    return rs_pair_barred(pair, index / RS_BANK_LANES) >> index % RS_BANK_LANES & 1;
}

/** Take those out of a set that are not to join. */
void rs_pair_take_barred(const struct rs_pair_view *pair, struct rs_lane_set *set);
/** Whether one that has joined is barred by the receiver. */
bool rs_pair_has_barred_joined(const struct rs_pair_view *pair);
/** The last number of a lane that was matched in the incarnation that has been stopped. */
static inline uint64_t rs_pair_final(const struct rs_pair_view *pair, unsigned index)
{
    /* Relaxed: it is known with the mode. */
    return atomic_load_explicit(&rs_bank_of(pair->words, index)->final[index % RS_BANK_LANES],
                                memory_order_relaxed);
}

/** Receiver: whether it need not be ready, since the sender rests. */
static inline bool rs_pair_is_at_rest(const struct rs_pair_view *pair)
{
    /* Relaxed: what makes the pair open is `mode`. */
    return atomic_load_explicit(&pair->words->rests, memory_order_relaxed) != 0;
}

/** Whether neither side has a bit in the mode. For a receiver that is in no incarnation
 * that does not change before it is ready. */
static inline bool rs_pair_is_unready(const struct rs_pair_view *pair)
{
    return (atomic_load_explicit(&pair->words->mode, memory_order_relaxed) &
            (RS_OPEN | RS_STOPPING)) == 0;
}

static inline bool rs_pair_is_alone(const struct rs_pair_view *pair)
{
    return pair->open != 0 && (pair->open & RS_SENDER_READY) == 0;
}

/** Whether it is not ready yet, so that the sender cannot open the pair. */
static inline bool rs_pair_holds(const struct rs_pair_view *pair)
{
    return (pair->open & RS_HOLDS) != 0;
}

/** Numbers carry the incarnation: those of an earlier one mean nothing. */
static inline uint64_t rs_pair_base(const struct rs_pair_view *pair)
{
    return pair->open >> RS_MODE_BITS << 32;
}

/** Whether `word` has reached `number`, in the same incarnation. */
static inline bool rs_lane_reached(uint64_t word, uint64_t number)
{
    return word >= number && (word ^ number) >> 32 == 0;
}

static inline struct rs_slot *rs_slots_at(const struct rs_slots *slots,
                                          uint64_t number)
{
    return (struct rs_slot *)(void *)(slots->memory +
                                      (number & (slots->num - 1)) *
                                          slots->stride);
}

/** The slot for the next put, or NULL: none is free, or numbers run out, and none
 * will be before the next incarnation. */
static inline struct rs_slot *rs_lane_next(struct rs_slots *slots)
{
    uint64_t next = slots->number + 1, needed = next - slots->num;

    if ((uint32_t)next > slots->num &&
        !rs_lane_reached(slots->seen, needed)) {
        /* Every `num` puts this is looked at: they have 32 bits. */
        if (__builtin_expect((uint32_t)next > RS_LANE_MOST_NUMBERS, 0))
            return NULL;
        /* Acquire: it has been unpacked before it is written again. */
        slots->seen =
            atomic_load_explicit(slots->consumed, memory_order_acquire);
        if (!rs_lane_reached(slots->seen, needed))
            return NULL;
    }
    return rs_slots_at(slots, next);
}

/** After a word, other than the mode, that the other side may sleep for; without a
 * fence, which would wait for the lines that the data goes into. */
static inline void rs_lane_wake(const struct rs_slots *slots)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(
            atomic_load_explicit(slots->bell, memory_order_relaxed) == RS_ASLEEP,
            0))
        rs_bell_ring(slots->bell);
}

/** Put what has been written into the slot; returns its number.
 * @param bytes of the slot */
static inline uint64_t rs_lane_put(struct rs_slots *slots, struct rs_slot *slot,
                                   uint64_t bytes)
{
    uint64_t number = ++slots->number;

    slot->bytes = bytes;
    /* Release: the bytes must be seen with the number. */
    atomic_store_explicit(&slot->number, number, memory_order_release);
    rs_lane_wake(slots);
    return number;
}

static inline uint64_t rs_lane_grant(struct rs_slots *slots)
{
    uint64_t number = ++slots->number;

    /* Release: what was unpacked before is over; the sender may learn of it
     * from this word alone. */
    atomic_store_explicit(slots->granted, number, memory_order_release);
    rs_lane_wake(slots);
    return number;
}

/** Whether the other side has the number too. Means nothing before
 * rs_lane_fence() and rs_pair_is_open(). */
static inline bool rs_lane_is_granted(const struct rs_slots *slots,
                                      uint64_t number)
{
    /* Relaxed: nothing is read after it. */
    return rs_lane_reached(
        atomic_load_explicit(slots->granted, memory_order_relaxed), number);
}

/** The slot of a put that has this number, or NULL. */
static inline struct rs_slot *rs_lane_is_put(const struct rs_slots *slots,
                                             uint64_t number)
{
    struct rs_slot *slot = rs_slots_at(slots, number);

    /* Acquire: its bytes are read next. */
    return atomic_load_explicit(&slot->number, memory_order_acquire) == number
               ? slot
               : NULL;
}

/** The message has been taken, and so have all before it. */
static inline void rs_lane_consume(struct rs_slots *slots, uint64_t number)
{
    slots->seen = number;
    /* Release: the slot has been read. */
    atomic_store_explicit(slots->consumed, number, memory_order_release);
}

/** Whether the receiver has taken it, be it after the incarnation. */
static inline bool rs_lane_is_consumed(const struct rs_slots *slots,
                                       uint64_t number)
{
    /* Acquire: the bytes may be written again after it. */
    return atomic_load_explicit(slots->consumed, memory_order_acquire) >=
           number;
}

/** Between one's own puts and grants and the look at the mode. */
static inline void rs_lane_fence(void)
{
    /* Who stops swaps the mode, then reads our numbers: either he sees
     * them, or we see the mode that he has written. */
    atomic_thread_fence(memory_order_seq_cst);
}

#endif
