/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes through landing slots, and the copies of a process with itself.
 * pull.h has what is copied once between two processes.
 *
 * A slot is written by the sender while (chunk number) - consumed < slots, and
 * read by the receiver once `arrived` in its first line holds base + chunk
 * number + 1. Both sides count chunks for as long as the lane lives.
 */
#include <stdlib.h>
#include <string.h>

#include "engines/loopback/lane.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"

static inline char *slot_data(struct rs_slot *slot, uint64_t bytes)
{
    return bytes <= RS_SLOT_INLINE ? slot->data : (char *)(slot + 1);
}

static inline void advance(struct ring *r)
{
    r->sequence++;
    r->next++;
    if (++r->slot == r->num_slots)
        r->slot = 0;
}

static int keep_pieces(struct lane *l, const struct rsched_message *message)
{
    if (message->num_pieces > l->room_pieces) {
        struct rsched_piece *p =
            realloc(l->pieces, message->num_pieces * sizeof(*p));

        if (p == NULL)
            return rs_fail(RSCHED_ENOMEM, "loopback: no memory for pieces");
        l->pieces = p;
        l->room_pieces = message->num_pieces;
    }
    memcpy(l->pieces, message->pieces,
           message->num_pieces * sizeof(*l->pieces));
    l->num_pieces = message->num_pieces;
    l->bytes = message->bytes;
    l->signature = message->signature;
    return 0;
}

static int load_ring(struct lane *l, const struct rsched_message *message)
{
    int error =
        rs_copies_compile(&l->copies, message, chunk_room(l->ring.stride));

    if (error != 0)
        return error;
    l->ring.meta = message->bytes |
                   (uint64_t)message->signature << META_SIGNATURE_SHIFT;
    l->lane.streams = l->copies.num_chunks > l->ring.num_slots;
    return 0;
}

enum {
    /* Of what comes in slots beside what is copied once, so much is asked for in advance,
     * into the second cache: the copy goes through the first one. */
    MOST_FETCHED = 4096,
    FETCHED_TO = 2,
    /* In which start it is looked whether a short message is pulled: it has to pay
     * for its table. */
    PULL_SHORT_IN = 4,
    /* How many epochs ask for that, as each looks at a line of the receiver's, and after how
     * many more such a number does again: the receiver may have computed meanwhile, or had
     * no core, and do so no more. */
    MOST_ASKS = 64,
    ASKS_APART = 2048,
    /* A receiver is prepared who has waited so often in a row at once. */
    PROMPT_EPOCHS = 4
};

/* That is, so long after the start. */
#define PROMPT_PS (20 * UINT64_C(1000000))

/* Whether a shorter one may, once the receiver is prepared. */
static bool may_pull_short(const struct lane *l)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);

    return rs_config()->mapped_bytes == RS_LIMIT_AUTO &&
           ways->of[RS_WAY_PULL].given && l->bytes >= ways->least_pull &&
           l->bytes < ways->least_once;
}

static int check_length(const struct rsched_message *message)
{
    if (message->bytes >> META_BYTES_BITS == 0)
        return 0;
    return rs_fail(RSCHED_ELIMIT, "loopback: a message of %llu bytes",
                   (unsigned long long)message->bytes);
}

/* What is known of the memory of a message that may be pulled. */
static int load_pull(struct lane *l, const struct rsched_message *message)
{
    int error = keep_pieces(l, message);

    l->keeps = error == 0;
    if (error != 0)
        return error;
    if (!rs_lane_may_pull(l)) {
        l->pull_in = PULL_SHORT_IN;
        l->ask_left = MOST_ASKS + 1;
        rs_lane_load_trial(l);
        return 0;
    }
    rs_huge_watch(&l->pull.huge);
    return rs_pull_load(l);
}

int rs_loopback_tx_load(struct rsched_lane *lane,
                        const struct rsched_message *message)
{
    struct lane *l = lane_of(lane);
    int error = check_length(message);

    if (error != 0)
        return error;
    if (message->bytes != l->bytes)
        rs_trial_forget(&l->trial);
    l->bytes = message->bytes;
    if (lane->connection->self)
        return keep_pieces(l, message);
    l->pull.possible = false;
    l->pull.announcement.incoming = message->incoming;
    l->pull.huge.in = 0;
    l->keeps = false;
    l->pull_in = 0;
    error = load_ring(l, message);
    if (error == 0 && (may_pull_short(l) || rs_lane_may_pull(l)))
        return load_pull(l, message);
    rs_lane_load_trial(l);
    return error;
}

/* Whether an epoch brings more than stays in the caches until it is read. */
static bool is_nontemporal(const struct lane *l,
                           const struct rsched_message *message)
{
    uint64_t least = rs_config()->nontemporal_bytes;

    if (least == RS_LIMIT_AUTO)
        least = rs_connection_ways(l->lane.connection)->nontemporal;
    return least > 0 && message->incoming >= least;
}

static int load_self(struct lane *l, const struct rsched_message *message)
{
    struct rsched_message from = lane_message(l->other);
    int error;

    if (from.bytes != message->bytes)
        return rs_fail(from.bytes > message->bytes ? RSCHED_ETRUNC
                                                   : RSCHED_EMISMATCH,
                       "loopback: %llu bytes to the process itself, which "
                       "expects %llu",
                       (unsigned long long)from.bytes,
                       (unsigned long long)message->bytes);
    if (from.signature != message->signature)
        return rs_fail(RSCHED_EMISMATCH,
                       "loopback: %llu bytes to the process itself, divided "
                       "among the puts in another way than expected",
                       (unsigned long long)from.bytes);
    l->other->copies.nontemporal = is_nontemporal(l, message);
    error = rs_copies_compile_pair(&l->other->copies, &from, message);
    if (error == 0)
        rs_prefetch_load_own(&l->pull.prefetch, &l->other->copies);
    else
        rs_prefetch_drop(&l->pull.prefetch);
    return error;
}

int rs_loopback_rx_load(struct rsched_lane *lane,
                        const struct rsched_message *message)
{
    struct lane *l = lane_of(lane);
    int error = check_length(message);

    if (error != 0)
        return error;
    if (lane->connection->self)
        return load_self(l, message);
    error = load_ring(l, message);
    if (error != 0)
        return error;
    rs_pull_forget(&l->pull);
    l->incoming = message->incoming;
    l->pull.copies.nontemporal = is_nontemporal(l, message);
    error = keep_pieces(l, message);
    /* The sender decides how it comes, so be prepared: one that pulls needs
     * us to complete its epoch. */
    l->lane.streams = l->lane.streams || rs_lane_may_pull(l) || l->prepared;
    return error != 0 ? error : rs_pull_offer(l);
}

static bool has_credit(struct lane *l)
{
    if (likely(l->ring.sequence - l->consumed < l->ring.num_slots))
        return true;
    /* Acquire: the receiver has read the slot before we write it again. */
    l->consumed = atomic_load_explicit(&l->ring.words->consumed,
                                       memory_order_acquire);
    if (l->ring.sequence - l->consumed < l->ring.num_slots)
        return true;
    if (l->refused_at != l->ring.sequence) {
        l->refused_at = l->ring.sequence;
        l->lane.stats.stalls++;
    }
    return false;
}

/* The chunk that is in the current slot may be read. */
static inline void publish_slot(struct lane *l, struct rs_slot *slot,
                                uint64_t meta)
{
    struct ring *r = &l->ring;

    slot->meta = meta;
    RS_FAILPOINT("tx:arrived");
    /* Release: the data and meta are there before the number is. */
    atomic_store_explicit(&slot->arrived, r->base + r->sequence + 1,
                          memory_order_release);
    RS_FAILPOINT("tx:wake");
    wake_peer(l, l->tag);
    l->lane.stats.chunks++;
    advance(r);
}

static int announce(struct lane *l)
{
    struct rs_slot *slot = current_slot(&l->ring);

    if (!has_credit(l))
        return RSCHED_LANE_PENDING;
    memcpy(slot->data, &l->pull.announcement, sizeof(l->pull.announcement));
    l->pull.announced = l->ring.sequence;
    RS_FAILPOINT("tx:announce");
    publish_slot(l, slot, l->ring.meta | META_PULL | l->timed);
    l->announces = false;
    l->ring.next = 0;
    return RSCHED_LANE_DONE;
}

/* @return whether something has been copied for the receiver */
static bool help(struct lane *l)
{
    uint64_t begin = l->timed != 0 ? rs_clock_now() : 0;

    if (!rs_pull_help(l))
        return false;
    if (l->timed != 0)
        l->took += rs_clock_now() - begin;
    return true;
}

/* All that is announced is out: see whether the receiver has taken it. */
static int __attribute__((noinline)) finish_pull(struct lane *l)
{
    struct rs_words *words = l->ring.words;

    /* Acquire: the receiver has read our buffers before the application
     * writes them. */
    l->consumed =
        atomic_load_explicit(&words->consumed, memory_order_acquire);
    if (l->consumed != l->ring.sequence) {
        /* The receiver may sleep until our last chunk is done. */
        if (help(l))
            wake_peer(l, l->tag);
        return RSCHED_LANE_PENDING;
    }
    l->pulls = false;
    if (likely(atomic_load_explicit(&words->unreachable,
                                    memory_order_relaxed) == 0)) {
        l->lane.stats.chunks++; /* something has moved */
        l->lane.stats.bytes[RSCHED_WAY_DIRECT] += l->pull.helped;
        l->lane.stats.bytes[RSCHED_WAY_PULL] +=
            l->pull.table.reachable - l->pull.helped;
        l->lane.stats.bytes[RSCHED_WAY_CMA] += l->pull.readable;
        l->lane.stats.bytes[RSCHED_WAY_LANDING] -=
            l->pull.table.reachable + l->pull.readable;
        return RSCHED_LANE_DONE;
    }
    l->pull.refused = true;
    l->pull.possible = false;
    rs_trial_forget(&l->trial);
    rs_lane_load_trial(l);
    l->timed = 0;
    l->active = &l->copies;
    l->ring.next = 0;
    return rs_loopback_tx_progress(&l->lane);
}

/* By non-temporal stores, or timed. */
static void __attribute__((noinline))
pack_specially(struct lane *l, const struct rs_chunk *chunk, struct rs_slot *slot)
{
    char *data = slot_data(slot, chunk->bytes);
    uint64_t begin = l->timed != 0 ? rs_clock_now() : 0;

    if (l->nontemporal)
        l->lane.stats.nontemporal +=
            rs_copies_pack_nontemporal(l->active, chunk, data);
    else
        rs_copies_pack(l->active, chunk, data);
    if (l->timed == 0)
        return;
    rs_trial_fence();
    l->took += rs_clock_now() - begin;
}

int rs_loopback_tx_progress(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);
    struct ring *r = &l->ring;

    if (unlikely(l->announces) && announce(l) == RSCHED_LANE_PENDING)
        return RSCHED_LANE_PENDING;
    while (r->next < l->active->num_chunks) {
        const struct rs_chunk *chunk = &l->active->chunks[r->next];
        struct rs_slot *slot = current_slot(r);

        if (!has_credit(l))
            return RSCHED_LANE_PENDING;
        RS_FAILPOINT("tx:pack");
        if (likely(l->timed == 0 && !l->nontemporal))
            rs_copies_pack(l->active, chunk, slot_data(slot, chunk->bytes));
        else
            pack_specially(l, chunk, slot);
        publish_slot(l, slot, r->meta | l->timed | l->asks);
    }
    return likely(!l->pulls) ? RSCHED_LANE_DONE : finish_pull(l);
}

/* Whether the receiver is ready for the message to be announced; if not, this epoch
 * asks for that. */
static bool is_prepared(struct lane *l)
{
    if (l->prepared || rs_lane_may_pull(l))
        return true;
    if (--l->ask_left == 0)
        l->ask_left = ASKS_APART + MOST_ASKS;
    if (l->ask_left > MOST_ASKS)
        return false;
    l->prepared = atomic_load_explicit(&l->ring.words->prepared,
                                       memory_order_relaxed) != 0;
    l->asks = l->prepared ? 0 : META_ASKS;
    if (l->prepared)
        rs_lane_load_trial(l);
    return l->prepared;
}

/* Memory has gone since the message was loaded. */
static int __attribute__((cold)) renew_pull(struct lane *l)
{
    uint64_t reachable = l->pull.table.reachable;
    int error = rs_pull_load(l);

    if (error != 0)
        return error;
    /* Adopted memory has been freed; what is there now may be adopted. */
    if (l->pull.table.reachable < reachable && l->lane.adopt_in != NULL)
        *l->lane.adopt_in = (uint32_t)rs_config()->adopt;
    return 0;
}

/* Begin an epoch that may be announced, or written by non-temporal stores. */
static int __attribute__((noinline)) start_choosing(struct lane *l)
{
    bool pulls = l->pull.possible;
    unsigned way;
    int error = 0;

    if (pulls && unlikely(rs_pull_is_stale(&l->pull)))
        error = renew_pull(l);
    if (error != 0)
        return error;
    pulls = l->pull.possible && is_prepared(l);
    way = rs_lane_choose_way(l);
    l->nontemporal = (way & RS_TRIAL_NONTEMPORAL) != 0;
    l->announces = l->pulls = pulls && (way & RS_TRIAL_ONCE) != 0;
    l->pull.helped = 0;
    l->active = l->pulls ? &l->pull.rest : &l->copies;
    if (unlikely(l->timed != 0))
        l->timed_end = l->ring.sequence + l->announces + l->active->num_chunks;
    return 0;
}

int rs_loopback_tx_start(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (lane->connection->self) {
        lane->stats.bytes[RSCHED_WAY_SELF] += l->bytes;
        lane->stats.prefetched += rs_prefetch_run(
            &l->other->pull.prefetch, &l->copies, false, &lane->stats.nontemporal);
        return RSCHED_LANE_DONE;
    }
    l->ring.next = 0;
    l->timed = l->asks = 0;
    l->nontemporal = false;
    l->active = &l->copies;
    if (unlikely(l->pull_in != 0) && --l->pull_in == 0) {
        int error = rs_pull_load(l);

        if (error != 0)
            return error;
    }
    if (unlikely(rs_huge_is_due(&l->pull.huge))) {
        int error = rs_pull_consider_huge(l);

        if (error != 0)
            return error;
    }
    if (unlikely(l->chooses)) {
        int error = start_choosing(l);

        if (error != 0)
            return error;
    }
    lane->stats.bytes[RSCHED_WAY_LANDING] += l->bytes;
    return rs_loopback_tx_progress(lane);
}

static int __attribute__((cold))
wrong_message(const struct lane *l, uint64_t meta)
{
    uint64_t mask = (UINT64_C(1) << META_BYTES_BITS) - 1;
    uint64_t got = meta & mask, expected = l->ring.meta & mask;

    /* The sender is not one to be believed in anything. */
    if ((meta & ~(META_PULL | META_TIMED | META_ASKS)) == l->ring.meta)
        return rs_fail(RSCHED_EMISMATCH,
                       "loopback: peer %d: a message out of its order",
                       l->lane.connection->peer);
    if (got == expected)
        return rs_fail(RSCHED_EMISMATCH,
                       "loopback: peer %d: %llu bytes, but divided among the "
                       "puts in another way than expected",
                       l->lane.connection->peer, (unsigned long long)got);
    return rs_fail(got > expected ? RSCHED_ETRUNC : RSCHED_EMISMATCH,
                   "loopback: peer %d: a message of %llu bytes where %llu are "
                   "expected",
                   l->lane.connection->peer, (unsigned long long)got,
                   (unsigned long long)expected);
}

/* The slot has been read. */
static inline void consume_slot(struct lane *l)
{
    struct ring *r = &l->ring;

    l->lane.stats.chunks++;
    advance(r);
    RS_FAILPOINT("rx:consumed");
    /* Release: the slot, and what it announced, has been read before the
     * sender may write it again. */
    atomic_store_explicit(&r->words->consumed, r->sequence,
                          memory_order_release);
    RS_FAILPOINT("rx:wake");
    wake_peer(l, l->tag | RS_TAG_CREDIT);
}

static uint64_t begin_timing(const struct rs_slot *slot)
{
    return slot->meta & META_TIMED ? rs_clock_now() : 0;
}

/* Before the slot is consumed: the sender reads it when it sees that. */
static void tell_time(struct lane *l, const struct rs_slot *slot, uint64_t begin)
{
    if ((slot->meta & META_TIMED) == 0)
        return;
    l->took += rs_clock_now() - begin;
    atomic_store_explicit(&l->ring.words->took, l->took, memory_order_relaxed);
}

/* It is the first of an epoch, which has not been refused. */
static bool is_announcement(const struct lane *l, const struct rs_slot *slot)
{
    return (slot->meta & ~META_TIMED) == (l->ring.meta | META_PULL) &&
           l->ring.next == 0 &&
           l->active == &l->copies &&
           atomic_load_explicit(&l->ring.words->unreachable,
                                memory_order_relaxed) == 0;
}

/* What comes behind the announcement is there, mostly: have its lines while the message is
 * copied. A sender that still fills them would have to take them back. */
static void fetch_rest(const struct lane *l)
{
    const struct ring *r = &l->ring;
    const struct rs_copies *rest = &l->pull.rest;
    const struct rs_slot *slot = slot_behind(r);
    const char *data = (const char *)(slot + 1);

    if (rest->num_chunks == 0 || rest->chunks[0].bytes <= RS_SLOT_INLINE ||
        atomic_load_explicit(&slot->arrived, memory_order_relaxed) !=
            r->base + r->sequence + 2)
        return;
    for (uint64_t at = 0; at < rest->chunks[0].bytes && at < MOST_FETCHED; at += RS_LINE)
        __builtin_prefetch(data + at, 0, FETCHED_TO);
}

/* An epoch that begins with an announcement; the rest of it comes in the slots
 * behind. */
static int __attribute__((noinline))
pull(struct lane *l, const struct rs_slot *slot)
{
    struct rs_pull *p = &l->pull;
    struct rs_announcement a;
    struct rs_error_text kept;
    uint64_t begin = begin_timing(slot);
    int error = 0;

    rs_error_save(&kept);
    memcpy(&a, slot->data, sizeof(a));
    if (!p->sharing && unlikely(a.version == 0 || memcmp(&a, &p->announcement, sizeof(a)) != 0 ||
                                rs_map_list_is_stale(&p->maps)))
        error = rs_pull_compile(l, &a);
    if (error == 0) {
        if (!p->sharing)
            fetch_rest(l);
        if (rs_pull_copy(l, (slot->meta & META_TIMED) != 0) == RSCHED_LANE_PENDING) {
            tell_time(l, slot, begin);
            return RSCHED_LANE_PENDING;
        }
        error = rs_pull_read(l);
        if (error == RSCHED_EPEER)
            return error;
    }
    tell_time(l, slot, begin);
    if (error == 0) {
        RS_FAILPOINT("rx:pulled");
        /* Acquire: if we have read what the sender wrote after it had given
         * up the exchange, we see that it has. */
        atomic_thread_fence(memory_order_acquire);
        error = rs_loopback_rx_check(&l->lane);
        if (error != 0)
            return error;
    } else {
        rs_error_restore(&kept); /* slots will do */
        error = rs_pull_skip(l, &a);
        if (error != 0)
            return error;
        l->pulls = true;
        /* Before `consumed`, which is stored with release. */
        atomic_store_explicit(&l->ring.words->unreachable, 1,
                              memory_order_relaxed);
    }
    consume_slot(l);
    l->active = &p->rest;
    l->ring.next = 0;
    return RSCHED_LANE_DONE;
}

/* From now on this process is handed to the progress thread when it leaves, so that
 * short messages may be announced, too. */
static void prepare(struct lane *l)
{
    l->prepared = true;
    l->lane.streams = true;
    /* Relaxed: it is about the next epoch, which this thread begins. */
    atomic_store_explicit(&l->ring.words->prepared, 1, memory_order_relaxed);
}

/* The first look at an epoch of whose sender it is known that it asks. */
static void __attribute__((noinline)) look_at_wait(struct lane *l)
{
    bool prompt = rs_clock_now() - l->started < PROMPT_PS;

    l->started = 0;
    l->prompt = prompt ? l->prompt + 1 : 0;
    if (l->prompt == PROMPT_EPOCHS)
        prepare(l);
}

/* A slot that is not just a chunk of the message. */
static int __attribute__((noinline))
take_marked(struct lane *l, const struct rs_chunk *chunk, struct rs_slot *slot)
{
    uint64_t begin;

    if (is_announcement(l, slot))
        return pull(l, slot);
    if ((slot->meta & ~(META_TIMED | META_ASKS)) != l->ring.meta)
        return wrong_message(l, slot->meta);
    l->asked = (slot->meta & META_ASKS) != 0 && !l->prepared &&
               rs_config()->progress_ps > 0;
    begin = begin_timing(slot);
    rs_copies_unpack(l->active, chunk, slot_data(slot, chunk->bytes));
    tell_time(l, slot, begin);
    consume_slot(l);
    return RSCHED_LANE_DONE;
}

int rs_loopback_rx_progress(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);
    struct ring *r = &l->ring;

    if (unlikely(l->started != 0))
        look_at_wait(l);
again:
    while (r->next < l->active->num_chunks) {
        const struct rs_chunk *chunk = &l->active->chunks[r->next];
        struct rs_slot *slot = current_slot(r);

        /* Acquire: the data and meta are read after the number. */
        if (atomic_load_explicit(&slot->arrived, memory_order_acquire) !=
            r->base + r->sequence + 1)
            return RSCHED_LANE_PENDING;
        RS_FAILPOINT("rx:arrived");
        if (unlikely(slot->meta != r->meta)) {
            int status = take_marked(l, chunk, slot);

            if (status != RSCHED_LANE_DONE)
                return status;
            continue;
        }
        rs_copies_unpack(l->active, chunk, slot_data(slot, chunk->bytes));
        consume_slot(l);
    }
    if (unlikely(l->pulls)) {
        /* What could not be reached comes once more, through slots. */
        l->pulls = false;
        l->active = &l->copies;
        r->next = 0;
        goto again;
    }
    return RSCHED_LANE_DONE;
}

int rs_loopback_rx_start(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    l->ring.next = 0;
    l->took = 0;
    l->active = &l->copies;
    if (unlikely(l->asked)) {
        l->asked = false;
        l->started = rs_clock_now();
    }
    return lane->passive ? RSCHED_LANE_DONE : RSCHED_LANE_PENDING;
}
