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
#include <sys/stat.h>

#include "engines/loopback/lane.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"

enum {
    MAX_SLOTS = 16,  /* for messages of one chunk */
    MIN_SLOTS = 2,   /* one epoch ahead */
};

struct descriptor {
    uint64_t offset, bytes; /* of the block in the receiver's memfd */
    uint64_t base;
    uint64_t stride; /* bytes from slot to slot */
    uint32_t num_slots;
    uint32_t reserved;
    uint64_t rx; /* the rx lane's address, for a process with itself */
};
static_assert(sizeof(struct descriptor) <= RSCHED_LANE_DESCRIPTOR_BYTES,
              "wire layout");

static inline struct lane *lane_of(struct rsched_lane *lane)
{
    return (struct lane *)lane;
}

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

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Small messages get many slots, so that the sender looks at the receiver's
 * `consumed` (a line that travels) only now and then; larger ones few, so that
 * the slots stay in the cache. */
static void choose_geometry(const struct rsched_engine_env *env,
                            uint64_t bytes, struct descriptor *d)
{
    uint64_t chunk = bytes;
    uint64_t slots;

    if (bytes == 0 || bytes > env->chunk_bytes)
        chunk = env->chunk_bytes;
    d->stride = RS_LINE;
    if (chunk > RS_SLOT_INLINE)
        d->stride += round_up(chunk, RS_LINE);
    slots = env->ring_bytes / d->stride;
    if (bytes != 0 && bytes <= chunk && slots > MAX_SLOTS)
        slots = MAX_SLOTS;
    d->num_slots = slots < MIN_SLOTS ? MIN_SLOTS : (uint32_t)slots;
}

/* Where messages vary, most are short and leave most of the slots unused. */
static bool is_sparse(const struct rsched_lane_spec *spec)
{
    return spec->bytes == 0;
}

static void ring_init(struct ring *r, struct rs_words *words,
                      const struct descriptor *d)
{
    r->words = words;
    r->slots = (char *)words + sizeof(struct rs_control);
    r->stride = d->stride;
    r->num_slots = d->num_slots;
    r->base = d->base;
}

/* Bases differ in the upper half: see segment.c. */
static uint32_t tag_of(const struct descriptor *d)
{
    return (uint32_t)(d->base >> RS_BASE_BITS) & ~RS_TAG_CREDIT;
}

uint32_t rs_loopback_tag(const struct rsched_lane *lane)
{
    const struct lane *l = (const struct lane *)lane;

    return l->sends ? l->tag | RS_TAG_CREDIT : l->tag;
}

static struct lane *lane_new(struct rsched_connection *connection)
{
    struct lane *l = calloc(1, sizeof(*l));

    if (l == NULL) {
        rs_fail(RSCHED_ENOMEM, "loopback: no memory for a lane");
        return NULL;
    }
    l->lane.connection = connection;
    l->active = &l->copies;
    if (!connection->self)
        l->bell = &connection->header->doorbell;
    return l;
}

static void lane_free(struct lane *l)
{
    rs_pull_fini(l);
    rs_copies_fini(&l->copies);
    free(l->pieces);
    free(l);
}

int rs_loopback_rx_create(struct rsched_connection *connection,
                          const struct rsched_lane_spec *spec,
                          unsigned char *descriptor, struct rsched_lane **lane)
{
    struct rsched_engine *engine = connection->engine;
    struct descriptor d = {0};
    struct lane *l = lane_new(connection);
    int error;

    if (l == NULL)
        return RSCHED_ENOMEM;
    if (connection->self) {
        l->lane.passive = true;
        d.rx = (uint64_t)(uintptr_t)l;
    } else {
        choose_geometry(&engine->env, spec->bytes, &d);
        error = rs_segment_allocate(
            &engine->segment, sizeof(struct rs_control) + d.stride * d.num_slots,
            is_sparse(spec), connection, rs_connection_is_dead, &l->block);
        if (error != 0) {
            lane_free(l);
            return error;
        }
        d.offset = l->block->offset;
        d.bytes = l->block->bytes;
        d.base = l->block->base;
        ring_init(&l->ring, l->block->words, &d);
        atomic_store_explicit(&l->ring.words->reads, connection->reads,
                              memory_order_relaxed);
        l->tag = tag_of(&d);
    }
    memcpy(descriptor, &d, sizeof(d));
    *lane = &l->lane;
    return 0;
}

static int check_descriptor(const struct rsched_connection *c,
                            const struct descriptor *d)
{
    struct stat status;

    if (fstat(c->segment_fd, &status) == 0 && d->offset >= RS_HEADER_BYTES &&
        d->offset % RS_HEADER_BYTES == 0 &&
        d->bytes > sizeof(struct rs_control) &&
        d->bytes <= (uint64_t)status.st_size &&
        d->offset <= (uint64_t)status.st_size - d->bytes &&
        d->stride >= RS_LINE && d->stride % RS_LINE == 0 &&
        d->num_slots >= MIN_SLOTS && d->stride <= d->bytes &&
        d->num_slots <= (d->bytes - sizeof(struct rs_control)) / d->stride)
        return 0;
    return rs_fail(RSCHED_EMISMATCH,
                   "loopback: peer %d: its slots are not in its memory",
                   c->peer);
}

static int attach_self(struct lane *l, const struct descriptor *d)
{
    l->other = (struct lane *)(uintptr_t)d->rx;
    l->other->other = l;
    return 0;
}

static int attach_peer(struct lane *l, const struct rsched_lane_spec *spec,
                       const struct descriptor *d)
{
    struct rsched_connection *c = l->lane.connection;
    struct rs_words *words;
    int error = check_descriptor(c, d);

    if (error != 0)
        return error;
    words =
        rs_segment_map(c->segment_fd, d->offset, d->bytes, is_sparse(spec));
    if (words == NULL)
        return rs_fail(RSCHED_ESYS, "loopback: peer %d: mapping its slots: %m",
                       c->peer);
    ring_init(&l->ring, words, d);
    l->tag = tag_of(d);
    l->sends = true;
    return 0;
}

int rs_loopback_tx_create(struct rsched_connection *connection,
                          const struct rsched_lane_spec *spec,
                          const unsigned char *descriptor,
                          unsigned char *reply, struct rsched_lane **lane)
{
    struct descriptor d;
    struct lane *l = lane_new(connection);
    int error;

    if (l == NULL)
        return RSCHED_ENOMEM;
    memcpy(&d, descriptor, sizeof(d));
    l->shortest_once = rs_pull_shortest(connection->engine->env.ways);
    memcpy(reply, &l->shortest_once, sizeof(l->shortest_once));
    error = connection->self ? attach_self(l, &d)
                             : attach_peer(l, spec, &d);
    if (error != 0) {
        lane_free(l);
        return error;
    }
    *lane = &l->lane;
    return 0;
}

int rs_loopback_rx_attach(struct rsched_lane *lane, const unsigned char *reply)
{
    struct lane *l = lane_of(lane);

    memcpy(&l->shortest_once, reply, sizeof(l->shortest_once));
    return 0;
}

static void __attribute__((cold))
wake_sleepers(struct lane *l, uint32_t wanted, uint32_t tag)
{
    if (wanted == 0 || wanted == tag)
        rs_doorbell_ring(l->lane.connection->engine, l->bell);
}

/* After a word that the peer may be asleep for. Its side of the bargain is in
 * loopback_sleep(). */
static inline void wake_peer(struct lane *l, uint32_t tag)
{
    uint64_t sleepers;

    atomic_signal_fence(memory_order_seq_cst);
    sleepers = atomic_load_explicit(&l->bell->sleepers, memory_order_relaxed);
    if (unlikely(sleepers != 0))
        wake_sleepers(l, (uint32_t)(sleepers >> 32), tag);
}

void rs_loopback_rx_abandon(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (l->block == NULL || l->abandoned)
        return;
    l->abandoned = true;
    rs_pull_close(l);
    /* Release: what we did consume is told before. */
    atomic_store_explicit(&l->ring.words->refused, l->ring.base,
                          memory_order_release);
    wake_peer(l, l->tag | RS_TAG_CREDIT);
}

void rs_loopback_tx_abandon(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (l->ring.words == NULL || l->abandoned)
        return;
    l->abandoned = true;
    /* Release: the receiver, who may now use the memory for something else,
     * must not meet a write of ours after it has seen this. */
    atomic_store_explicit(&l->ring.words->closed, l->ring.base,
                          memory_order_release);
    /* A receiver that has copied what is written into our buffers after this
     * sees that we have closed: see pull(). */
    atomic_thread_fence(memory_order_seq_cst);
    wake_peer(l, l->tag);
}

static int __attribute__((cold)) has_given_up(const struct lane *l)
{
    return rs_fail(RSCHED_EPEER, "loopback: peer %d has given up the exchange",
                   l->lane.connection->peer);
}

int rs_loopback_rx_check(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    /* Acquire: whoever looks for chunks after this sees all there will be. */
    if (l->block != NULL &&
        atomic_load_explicit(&l->ring.words->closed, memory_order_acquire) ==
            l->ring.base)
        return has_given_up(l);
    return 0;
}

int rs_loopback_tx_check(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    /* Acquire: `consumed` is read after this. */
    if (l->ring.words != NULL &&
        atomic_load_explicit(&l->ring.words->refused, memory_order_acquire) ==
            l->ring.base)
        return has_given_up(l);
    return 0;
}

void rs_loopback_rx_destroy(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (l->other != NULL)
        l->other->other = NULL;
    rs_loopback_rx_abandon(lane);
    if (l->block != NULL)
        rs_segment_release(l->block, lane->attached);
    lane_free(l);
}

void rs_loopback_tx_destroy(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (l->other != NULL)
        l->other->other = NULL;
    rs_loopback_tx_abandon(lane);
    if (l->ring.words != NULL)
        rs_segment_unmap(l->ring.words);
    lane_free(l);
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
                   (uint64_t)message->signature << (META_BYTES_BITS + 1);
    l->lane.streams = l->copies.num_chunks > l->ring.num_slots;
    return 0;
}

/* Whether the message may be long enough for ways that need both sides. */
static bool may_pull(const struct lane *l)
{
    return l->bytes >= l->shortest_once;
}

static int check_length(const struct rsched_message *message)
{
    if (message->bytes >> META_BYTES_BITS == 0)
        return 0;
    return rs_fail(RSCHED_ELIMIT, "loopback: a message of %llu bytes",
                   (unsigned long long)message->bytes);
}

int rs_loopback_tx_load(struct rsched_lane *lane,
                        const struct rsched_message *message)
{
    struct lane *l = lane_of(lane);
    int error = check_length(message);

    if (error != 0)
        return error;
    l->bytes = message->bytes;
    if (lane->connection->self)
        return keep_pieces(l, message);
    l->pull.possible = false;
    error = load_ring(l, message);
    if (error != 0 || !may_pull(l))
        return error;
    error = keep_pieces(l, message);
    return error != 0 ? error : rs_pull_load(l);
}

static int load_self(struct lane *l, const struct rsched_message *message)
{
    struct rsched_message from = lane_message(l->other);

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
    return rs_copies_compile_pair(&l->other->copies, &from, message);
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
    error = keep_pieces(l, message);
    /* The sender decides how it comes, so be prepared: one that pulls needs
     * us to complete its epoch. */
    l->lane.streams = l->lane.streams || may_pull(l);
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
    l->lane.stats.stalls++;
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
    publish_slot(l, slot, l->ring.meta | META_PULL);
    l->announces = false;
    l->ring.next = 0;
    return RSCHED_LANE_DONE;
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
        if (rs_pull_help(l))
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
        l->lane.stats.bytes[RSCHED_WAY_CMA] += l->pull.table.readable;
        l->lane.stats.bytes[RSCHED_WAY_LANDING] -=
            l->pull.table.reachable + l->pull.table.readable;
        return RSCHED_LANE_DONE;
    }
    l->pull.refused = true;
    l->pull.possible = false;
    l->active = &l->copies;
    l->ring.next = 0;
    return rs_loopback_tx_progress(&l->lane);
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
        rs_copies_pack(l->active, chunk, slot_data(slot, chunk->bytes));
        publish_slot(l, slot, r->meta);
    }
    return likely(!l->pulls) ? RSCHED_LANE_DONE : finish_pull(l);
}

/* Begin an epoch that is announced, if it still can be: memory may have gone
 * since the message was loaded. */
static int __attribute__((noinline)) start_pull(struct lane *l)
{
    if (unlikely(rs_pull_is_stale(&l->pull))) {
        int error = rs_pull_load(l);

        if (error != 0)
            return error;
    }
    l->announces = l->pulls = l->pull.possible;
    l->pull.helped = 0;
    l->active = l->pulls ? &l->pull.rest : &l->copies;
    return 0;
}

int rs_loopback_tx_start(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (lane->connection->self) {
        lane->stats.bytes[RSCHED_WAY_SELF] += l->bytes;
        rs_copies_run_pair(&l->copies);
        return RSCHED_LANE_DONE;
    }
    l->ring.next = 0;
    l->active = &l->copies;
    if (unlikely(l->pull.possible)) {
        int error = start_pull(l);

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
    if (meta == l->ring.meta || meta == (l->ring.meta | META_PULL))
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

/* It is the first of an epoch, which has not been refused. */
static bool is_announcement(const struct lane *l, const struct rs_slot *slot)
{
    return slot->meta == (l->ring.meta | META_PULL) && l->ring.next == 0 &&
           l->active == &l->copies &&
           atomic_load_explicit(&l->ring.words->unreachable,
                                memory_order_relaxed) == 0;
}

/* An epoch that begins with an announcement; the rest of it comes in the slots
 * behind. */
static int __attribute__((noinline))
pull(struct lane *l, const struct rs_slot *slot)
{
    struct rs_pull *p = &l->pull;
    struct rs_announcement a;
    int error = 0;

    memcpy(&a, slot->data, sizeof(a));
    if (!p->sharing && unlikely(memcmp(&a, &p->announcement, sizeof(a)) != 0))
        error = rs_pull_compile(l, &a);
    if (error == 0) {
        if (rs_pull_copy(l) == RSCHED_LANE_PENDING)
            return RSCHED_LANE_PENDING;
        error = rs_pull_read(l);
        if (error == RSCHED_EPEER)
            return error;
    }
    if (error == 0) {
        RS_FAILPOINT("rx:pulled");
        /* Acquire: if we have read what the sender wrote after it had given
         * up the exchange, we see that it has. */
        atomic_thread_fence(memory_order_acquire);
        error = rs_loopback_rx_check(&l->lane);
        if (error != 0)
            return error;
    } else {
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

int rs_loopback_rx_progress(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);
    struct ring *r = &l->ring;

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
            int status = is_announcement(l, slot)
                             ? pull(l, slot)
                             : wrong_message(l, slot->meta);

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
    l->active = &l->copies;
    return lane->passive ? RSCHED_LANE_DONE : RSCHED_LANE_PENDING;
}
