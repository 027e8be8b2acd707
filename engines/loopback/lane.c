/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes through landing slots, and the copies of a process with itself.
 *
 * A slot is written by the sender while (chunk number) - consumed < slots, and
 * read by the receiver once `arrived` in its first line holds base + chunk
 * number + 1. Both sides count chunks for as long as the lane lives.
 */
#include "engines/loopback/loopback.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
    META_BYTES_BITS = 48,
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
    struct rs_copies copies;
    struct ring ring;
    struct rs_doorbell *bell; /* the peer's */
    uint32_t tag;             /* of its data, the same on both sides */
    bool sends;
    uint64_t consumed;        /* tx: last seen, in chunks */
    struct rs_block *block;   /* rx */
    uint64_t mapped_bytes;    /* tx */
    bool abandoned;
    /* Both ends in one process: the tx lane's copies go straight to the
     * receive buffers. */
    struct lane *other;
    struct rsched_piece *pieces; /* tx: kept for the rx lane's load */
    size_t num_pieces, room_pieces;
    uint64_t bytes;
    uint16_t signature;
};

static inline struct lane *lane_of(struct rsched_lane *lane)
{
    return (struct lane *)lane;
}

static inline struct rs_slot *current_slot(const struct ring *r)
{
    return (struct rs_slot *)(r->slots + r->slot * r->stride);
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

/* The longest chunk that a slot holds. */
static uint64_t chunk_room(uint64_t stride)
{
    return stride == RS_LINE ? RS_SLOT_INLINE : stride - RS_LINE;
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
    r->slots = (char *)(words + 1);
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
    if (!connection->self)
        l->bell = &connection->header->doorbell;
    return l;
}

static void lane_free(struct lane *l)
{
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
            &engine->segment, sizeof(struct rs_words) + d.stride * d.num_slots,
            is_sparse(spec), connection, rs_connection_is_dead, &l->block);
        if (error != 0) {
            lane_free(l);
            return error;
        }
        d.offset = l->block->offset;
        d.bytes = l->block->bytes;
        d.base = l->block->base;
        ring_init(&l->ring, l->block->words, &d);
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
        d->bytes > sizeof(struct rs_words) &&
        d->bytes <= (uint64_t)status.st_size &&
        d->offset <= (uint64_t)status.st_size - d->bytes &&
        d->stride >= RS_LINE && d->stride % RS_LINE == 0 &&
        d->num_slots >= MIN_SLOTS && d->stride <= d->bytes &&
        d->num_slots <= (d->bytes - sizeof(struct rs_words)) / d->stride)
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
    l->mapped_bytes = d->bytes;
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

    (void)reply; /* all that the receiver needs is in its own memory */
    if (l == NULL)
        return RSCHED_ENOMEM;
    memcpy(&d, descriptor, sizeof(d));
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
    (void)lane;
    (void)reply;
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
        rs_segment_unmap(l->ring.words, l->mapped_bytes);
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
    l->signature = message->signature;
    return 0;
}

static int load_ring(struct lane *l, const struct rsched_message *message)
{
    int error =
        rs_copies_compile(&l->copies, message, chunk_room(l->ring.stride));

    if (error != 0)
        return error;
    l->ring.meta =
        message->bytes | (uint64_t)message->signature << META_BYTES_BITS;
    l->lane.streams = l->copies.num_chunks > l->ring.num_slots;
    return 0;
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

    l->bytes = message->bytes;
    if (error == 0)
        error = lane->connection->self ? keep_pieces(l, message)
                                       : load_ring(l, message);
    return error;
}

int rs_loopback_rx_load(struct rsched_lane *lane,
                        const struct rsched_message *message)
{
    struct lane *l = lane_of(lane);
    struct rsched_message from;

    if (check_length(message) != 0)
        return RSCHED_ELIMIT;
    if (!lane->connection->self)
        return load_ring(l, message);
    from = (struct rsched_message){.pieces = l->other->pieces,
                                   .num_pieces = l->other->num_pieces,
                                   .bytes = l->other->bytes};
    if (from.bytes != message->bytes)
        return rs_fail(from.bytes > message->bytes ? RSCHED_ETRUNC
                                                   : RSCHED_EMISMATCH,
                       "loopback: %llu bytes to the process itself, which "
                       "expects %llu",
                       (unsigned long long)from.bytes,
                       (unsigned long long)message->bytes);
    if (l->other->signature != message->signature)
        return rs_fail(RSCHED_EMISMATCH,
                       "loopback: %llu bytes to the process itself, divided "
                       "among the puts in another way than expected",
                       (unsigned long long)from.bytes);
    return rs_copies_compile_pair(&l->other->copies, &from, message);
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

int rs_loopback_tx_progress(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);
    struct ring *r = &l->ring;

    while (r->next < l->copies.num_chunks) {
        const struct rs_chunk *chunk = &l->copies.chunks[r->next];
        struct rs_slot *slot = current_slot(r);

        if (!has_credit(l))
            return RSCHED_LANE_PENDING;
        RS_FAILPOINT("tx:pack");
        rs_copies_pack(&l->copies, chunk, slot_data(slot, chunk->bytes));
        slot->meta = r->meta;
        RS_FAILPOINT("tx:arrived");
        /* Release: the data and meta are there before the number is. */
        atomic_store_explicit(&slot->arrived, r->base + r->sequence + 1,
                              memory_order_release);
        RS_FAILPOINT("tx:wake");
        wake_peer(l, l->tag);
        lane->stats.chunks++;
        advance(r);
    }
    return RSCHED_LANE_DONE;
}

int rs_loopback_tx_start(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (lane->connection->self) {
        lane->stats.bytes[RSCHED_WAY_SELF] += l->bytes;
        rs_copies_run_pair(&l->copies);
        return RSCHED_LANE_DONE;
    }
    lane->stats.bytes[RSCHED_WAY_LANDING] += l->bytes;
    l->ring.next = 0;
    return rs_loopback_tx_progress(lane);
}

static int __attribute__((cold))
wrong_message(const struct lane *l, uint64_t meta)
{
    uint64_t mask = (UINT64_C(1) << META_BYTES_BITS) - 1;
    uint64_t got = meta & mask, expected = l->ring.meta & mask;

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

int rs_loopback_rx_progress(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);
    struct ring *r = &l->ring;

    while (r->next < l->copies.num_chunks) {
        const struct rs_chunk *chunk = &l->copies.chunks[r->next];
        struct rs_slot *slot = current_slot(r);

        /* Acquire: the data and meta are read after the number. */
        if (atomic_load_explicit(&slot->arrived, memory_order_acquire) !=
            r->base + r->sequence + 1)
            return RSCHED_LANE_PENDING;
        RS_FAILPOINT("rx:arrived");
        if (unlikely(slot->meta != r->meta))
            return wrong_message(l, slot->meta);
        rs_copies_unpack(&l->copies, chunk, slot_data(slot, chunk->bytes));
        lane->stats.chunks++;
        advance(r);
        RS_FAILPOINT("rx:consumed");
        /* Release: the slot has been read before the sender may write it. */
        atomic_store_explicit(&r->words->consumed, r->sequence,
                              memory_order_release);
        RS_FAILPOINT("rx:wake");
        wake_peer(l, l->tag | RS_TAG_CREDIT);
    }
    return RSCHED_LANE_DONE;
}

int rs_loopback_rx_start(struct rsched_lane *lane)
{
    lane_of(lane)->ring.next = 0;
    return lane->passive ? RSCHED_LANE_DONE : RSCHED_LANE_PENDING;
}
