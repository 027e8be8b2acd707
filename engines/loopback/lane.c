/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and destroying lanes; epoch.c has what they do. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engines/loopback/lane.h"
#include "librsched/base/error.h"
#include "librsched/base/limit.h"

enum {
    MAX_SLOTS = 16,    /* for messages of one chunk, at least */
    MANY_SLOTS = 256,  /* for any, at most, where a share says so */
    MIN_SLOTS = 2,     /* one epoch ahead */
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

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Where address space is limited, slots that only gain time leave most of it. */
enum { SPACE_PARTS = 8 };

/* As many as an edge has of what is missing to twice the receiver's cache. With so many in
 * all, slots have left it when they are written again, and are had from a cache that both
 * share, in a quarter of the time (docs/onecopy.md). Lines that hold a message go from one
 * core to the other in any case. */
static uint64_t slots_of_share(const struct rsched_engine *engine,
                               const struct rsched_lane_spec *spec, uint64_t stride)
{
    uint64_t all = engine->env.slots_bytes;
    uint64_t there = atomic_load_explicit(&engine->slots, memory_order_relaxed);
    uint64_t space = rs_limit_space() / SPACE_PARTS, slots = 0;

    if (all > space)
        all = space;
    if (spec->edges > 0 && there < all && stride > RS_LINE)
        slots = (all - there) / spec->edges / stride;
    return slots < MANY_SLOTS ? slots : MANY_SLOTS;
}

/* Small messages get many slots, so that the sender looks at the receiver's
 * `consumed` (a line that travels) only now and then.
 *
 * @param shared whether to have those of the share, too */
static void choose_geometry(const struct rsched_engine *engine,
                            const struct rsched_lane_spec *spec, bool shared,
                            struct descriptor *d)
{
    const struct rsched_engine_env *env = &engine->env;
    uint64_t bytes = spec->bytes, chunk = bytes;
    uint64_t slots, share;

    if (bytes == 0 || bytes > env->chunk_bytes)
        chunk = env->chunk_bytes;
    d->stride = RS_LINE;
    if (chunk > RS_SLOT_INLINE)
        d->stride += round_up(chunk, RS_LINE);
    slots = env->ring_bytes / d->stride;
    if (bytes != 0 && bytes <= chunk && slots > MAX_SLOTS)
        slots = MAX_SLOTS;
    share = shared ? slots_of_share(engine, spec, d->stride) : 0;
    if (slots < share)
        slots = share;
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

static int allocate(struct rsched_connection *connection,
                    const struct rsched_lane_spec *spec, const struct descriptor *d,
                    struct rs_block **block)
{
    return rs_segment_allocate(&connection->engine->segment,
                               sizeof(struct rs_control) + d->stride * d->num_slots,
                               is_sparse(spec), connection, rs_connection_is_dead,
                               block);
}

/* Without the share where there is no memory for it. */
static int allocate_slots(struct rsched_connection *connection,
                          const struct rsched_lane_spec *spec,
                          struct descriptor *d, struct rs_block **block)
{
    struct rs_error_text kept;
    uint32_t most;
    int error;

    choose_geometry(connection->engine, spec, true, d);
    most = d->num_slots;
    rs_error_save(&kept);
    error = allocate(connection, spec, d, block);
    if (error == 0)
        return 0;
    choose_geometry(connection->engine, spec, false, d);
    if (d->num_slots == most)
        return error;
    rs_error_restore(&kept);
    return allocate(connection, spec, d, block);
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
    rs_connections_sweep(engine);
    if (connection->self) {
        l->lane.passive = true;
        d.rx = (uint64_t)(uintptr_t)l;
    } else {
        error = allocate_slots(connection, spec, &d, &l->block);
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
        if (!is_sparse(spec))
            l->counted = d.stride * d.num_slots;
        atomic_fetch_add_explicit(&engine->slots, l->counted, memory_order_relaxed);
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
        return rs_fail(rs_segment_map_error(),
                       "loopback: peer %d: mapping its slots: %m", c->peer);
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
    l->shortest_once = rs_pull_shortest(connection);
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

void rs_lane_wake(struct lane *l, uint32_t wanted, uint32_t tag)
{
    if (wanted == 0 || wanted == tag)
        rs_doorbell_ring(l->lane.connection->engine, l->bell);
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

bool rs_loopback_rx_is_over(struct rsched_lane *lane)
{
    return rs_pull_is_over(lane_of(lane));
}

void rs_loopback_rx_destroy(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    if (l->other != NULL)
        l->other->other = NULL;
    rs_loopback_rx_abandon(lane);
    while (!rs_pull_is_over(l))
        sched_yield();
    atomic_fetch_sub_explicit(&lane->connection->engine->slots, l->counted,
                              memory_order_relaxed);
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
