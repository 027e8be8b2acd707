/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files about lanes share. */
#ifndef RS_LOOPBACK_LANE_H
#define RS_LOOPBACK_LANE_H

#include "engines/common/stores.h"
#include "engines/loopback/loopback.h"
#include "engines/loopback/pull.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A slot's second word: the message's bytes, marks, and its signature. */
enum { META_BYTES_BITS = 45, META_SIGNATURE_SHIFT = 48 };

/* The receiver is to say how long it copies: engines/common/trial.h. */
#define META_TIMED (UINT64_C(1) << META_BYTES_BITS)
/* The slot announces an epoch that is pulled: pull.h. */
#define META_PULL (UINT64_C(1) << (META_BYTES_BITS + 1))
/* The sender would pull it if the receiver were prepared: pull.h. */
#define META_ASKS (UINT64_C(1) << (META_BYTES_BITS + 2))

static inline struct rs_work *work_of(struct rs_words *words)
{
    return &((struct rs_control *)(void *)words)->work;
}

/* The slots of an edge and where a side stands in them. */
struct ring {
    struct rs_words *words;
    char *slots;
    uint64_t stride;
    uint64_t base;
    uint64_t sequence; /* chunks since the lane was made */
    uint64_t meta;     /* of the loaded message */
    uint32_t num_slots;
    uint32_t slot;     /* sequence % num_slots */
    uint32_t next;     /* chunk of the message that comes next */
};

struct lane {
    struct rsched_lane lane; /* first: the public part */
    struct rs_copies copies; /* the whole message, for the slots */
    struct rs_copies *active; /* what goes through the slots in this epoch */
    struct ring ring;
    struct rs_doorbell *bell; /* the peer's */
    uint32_t tag;             /* of its data, the same on both sides */
    bool sends;
    bool announces;           /* tx: the epoch begins with an announcement */
    bool pulls;               /* in this epoch */
    uint64_t consumed;        /* tx: last seen, in chunks */
    uint64_t timed;           /* tx: META_TIMED in an epoch that is timed, or 0 */
    uint64_t asks;            /* tx: META_ASKS in an epoch that asks, or 0 */
    uint64_t timed_end;       /* tx: the sequence at which the last such one ends */
    uint64_t took;            /* ps that its copies took so far, on this side */
    struct rs_pull pull;
    struct rs_trial trial;    /* tx */
    bool chooses;             /* tx: a start has more than one way, or one that is
                                 not slots by ordinary stores */
    bool nontemporal;         /* tx: slots are written so in this epoch */
    bool has_pages;           /* tx: all slots have, though few may be used */
    uint64_t told;            /* tx: the way that the peer has been told of */
    bool maps;                /* tx: one copy is of mapped memory, most of it */
    uint64_t led_at;          /* tx: behind where its ring was when it was last followed */
    uint64_t refused_at;      /* tx: the sequence of the slot waited for last */
    struct rs_block *block;   /* rx */
    uint64_t counted;         /* rx: bytes of the engine's `slots` */
    bool abandoned;
    bool keeps;               /* tx: `pieces` are the loaded message's */
    uint32_t pull_in;         /* tx: starts until it is looked whether a short
                                 message is pulled, or 0 */
    uint32_t ask_left;        /* tx: epochs to the end of some that ask the receiver for that */
    bool prepared;            /* the receiver is, for short messages */
    bool asked;               /* rx: the epoch before has asked for that */
    uint8_t prompt;           /* rx: epochs in a row that were waited for at once */
    uint64_t started;         /* rx: when one began of which that is to be known;
                                 else 0 */
    /* Both ends in one process: the tx lane's copies go straight to the
     * receive buffers. */
    struct lane *other;
    /* The message, for what is compiled later. */
    struct rsched_piece *pieces;
    size_t num_pieces, room_pieces;
    uint64_t bytes;
    uint64_t incoming; /* rx: that an epoch brings to this process in all */
    uint16_t signature;
    uint64_t shortest_once; /* that the sender may announce unasked */
};

/** Sender: the ways that it has with the loaded message, and with the receiver as it
 * is known, are these now; see which are to be tried out. */
void rs_lane_load_trial(struct lane *l);

/** Sender, in each start, if it chooses: the way of the epoch, of a trial. */
unsigned rs_lane_choose_way(struct lane *l);

/** Whether the message may be long enough for ways that need both sides. */
static inline bool rs_lane_may_pull(const struct lane *l)
{
    return l->bytes >= l->shortest_once;
}

static inline struct lane *lane_of(struct rsched_lane *lane)
{
    return (struct lane *)lane;
}

/** Wake the peer, which sleeps, if it `wanted` news with this tag or any. */
void rs_lane_wake(struct lane *l, uint32_t wanted, uint32_t tag)
    __attribute__((cold));

/* After a word that the peer may be asleep for. Its side of the bargain is in
 * loopback_sleep(). */
static inline void wake_peer(struct lane *l, uint32_t tag)
{
    uint64_t sleepers;

    atomic_signal_fence(memory_order_seq_cst);
    sleepers = atomic_load_explicit(&l->bell->sleepers, memory_order_relaxed);
    if (unlikely(sleepers != 0))
        rs_lane_wake(l, (uint32_t)(sleepers >> 32), tag);
}

static inline struct rs_slot *current_slot(const struct ring *r)
{
    return (struct rs_slot *)(r->slots + r->slot * r->stride);
}

static inline const struct rs_slot *slot_behind(const struct ring *r)
{
    uint64_t slot = r->slot + 1 < r->num_slots ? r->slot + 1 : 0;

    return (const struct rs_slot *)(r->slots + slot * r->stride);
}

/* The longest chunk that a slot holds. */
static inline uint64_t chunk_room(uint64_t stride)
{
    return stride == RS_LINE ? RS_SLOT_INLINE : stride - RS_LINE;
}

static inline struct rsched_message lane_message(const struct lane *l)
{
    return (struct rsched_message){.pieces = l->pieces,
                                   .num_pieces = l->num_pieces,
                                   .bytes = l->bytes,
                                   .signature = l->signature};
}

#endif
