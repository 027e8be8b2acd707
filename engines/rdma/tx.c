/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending half of an edge. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "engines/rdma/tx.h"
#include "librsched/base/clock.h"
#include "librsched/base/error.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

static void dispose(struct rs_rdma_lane *lane)
{
    struct rs_rdma_tx *tx = (struct rs_rdma_tx *)lane;

    rs_rdma_program_fini(&tx->landing);
    rs_rdma_program_fini(&tx->direct);
    rs_rdma_writes_fini(&tx->writes);
    rs_copies_fini(&tx->straight);
    rs_copies_fini(&tx->parts);
    rs_rdma_block_release(tx->staging);
    rs_rdma_block_release(tx->straight_staging);
    free((void *)(uintptr_t)tx->message.pieces);
    free(tx->ends);
    rs_rdma_lane_free(lane);
}

static int check_descriptor(const struct rs_rdma_link *link,
                            const struct rs_rdma_descriptor *d)
{
    if (d->hash == XXH64(d, offsetof(struct rs_rdma_descriptor, hash), 0) &&
        d->num_slots > 0 && d->num_slots <= RS_RDMA_MAX_SLOTS &&
        d->chunk_bytes > 0 && d->notify < RS_NUM_NOTIFIES)
        return 0;
    return rs_fail(RSCHED_EMISMATCH,
                   "%s: peer %d: a description of slots that is none",
                   link->engine, link->peer);
}

static int allocate_block(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;
    uint64_t table = l->offers ? sizeof(struct rs_rdma_table) : 0;
    int error = rs_rdma_block_allocate(
        l->link->memory,
        sizeof(struct rs_rdma_credits) + table + 2 * RS_RDMA_WORD, false,
        l->link, &l->block);

    if (error != 0)
        return error;
    tx->credits = (void *)l->block->memory;
    tx->table = (void *)(tx->credits + 1);
    tx->meta = (void *)((char *)tx->table + table);
    tx->sink = tx->meta + 1;
    return 0;
}

static void adopt_descriptor(struct rs_rdma_tx *tx, const struct rs_rdma_descriptor *d,
                             const struct rsched_lane_spec *spec)
{
    struct rs_rdma_lane *l = &tx->lane;

    tx->remote_arrivals = d->arrivals;
    tx->remote_rkey = d->rkey;
    tx->imm = d->imm;
    tx->remote_stride = rs_rdma_ring_stride(d->chunk_bytes);
    l->ring.num_slots = d->num_slots;
    l->ring.chunk_bytes = d->chunk_bytes;
    l->ring.fixed = spec->bytes != 0;
    l->offers = d->offers != 0;
    l->notify = (enum rs_rdma_notify)d->notify;
    l->serial = l->notify != RS_NOTIFY_FLAG;
}

int rs_rdma_tx_create(struct rsched_connection *connection,
                      const struct rsched_lane_spec *spec,
                      const unsigned char *descriptor, unsigned char *reply,
                      struct rsched_lane **lane)
{
    struct rs_rdma_descriptor d;
    struct rs_rdma_reply r;
    struct rs_rdma_lane *l;
    struct rs_rdma_tx *tx;
    int error = rs_rdma_lane_new(connection, spec->rail, sizeof(*tx), dispose,
                                 &l);

    if (error != 0)
        return error;
    tx = (struct rs_rdma_tx *)l;
    memcpy(&d, descriptor, sizeof(d));
    pthread_mutex_lock(&connection->engine->lock);
    rs_rdma_lanes_bury(l->link);
    error = check_descriptor(l->link, &d);
    if (error == 0) {
        adopt_descriptor(tx, &d, spec);
        error = allocate_block(tx);
    }
    if (error == 0 && l->offers)
        error = rs_rdma_lane_join(
            l, spec, spec->group != NULL ? &spec->group->out : NULL, d.leader);
    if (error == 0 && l->leads)
        l->bundle->credits = tx->credits;
    if (error == 0)
        error = rs_rdma_link_word(
            l->link, d.arrivals + offsetof(struct rs_rdma_arrivals, last),
            d.rkey, &l->last);
    if (error != 0 && l->block != NULL)
        l->block->writer = NULL; /* nobody ever learnt of it */
    if (error != 0)
        dispose(l);
    pthread_mutex_unlock(&connection->engine->lock);
    if (error != 0)
        return error;
    tx->writes.max_pieces = l->link->memory->port->max_pieces;
    atomic_store(&l->link->in_use, true);
    r = (struct rs_rdma_reply){
        .credits = (uintptr_t)tx->credits,
        .rkey = l->block->keys->rkey,
        .serial = l->link->memory->port->notify != RS_NOTIFY_FLAG};
    r.hash = XXH64(&r, offsetof(struct rs_rdma_reply, hash), 0);
    memcpy(reply, &r, sizeof(r));
    *lane = &l->lane;
    return 0;
}

void rs_rdma_tx_abandon(struct rsched_lane *lane)
{
    rs_rdma_lane_abandon(&rs_rdma_tx_of(lane)->lane);
}

/* ---- running ---- */

/* The message's first parts, as far as they are not there yet, into memory that is
 * as long as the message. */
static void pack_parts(struct rs_rdma_tx *tx, uint32_t count)
{
    const struct rs_copies *parts = &tx->parts;
    char *to = tx->straight_staging->memory;

    for (; tx->packed < count; tx->packed++)
        rs_copies_pack(parts, &parts->chunks[tx->packed],
                       to + tx->packed * parts->chunks[0].bytes);
}

static void pack_chunk(struct rs_rdma_tx *tx, uint32_t chunk, uint32_t slot)
{
    struct rs_rdma_slot *place = rs_rdma_tx_place(tx, slot);

    place->meta = tx->lane.meta;
    rs_copies_pack(&tx->lane.copies, &tx->lane.copies.chunks[chunk],
                   place->data);
}

/* The receiver is not ready: one wait until the next list is posted. */
static void refuse(struct rs_rdma_tx *tx)
{
    uint64_t next = tx->lane.posted + 1;

    if (tx->refused_at == next)
        return;
    tx->refused_at = next;
    tx->lane.lane.stats.stalls++;
}

static bool has_credit(struct rs_rdma_tx *tx)
{
    const struct rs_rdma_ring *ring = &tx->lane.ring;
    uint64_t number = rs_rdma_ring_number(ring);

    if (likely(number - tx->consumed < ring->num_slots))
        return true;
    /* Acquire: the receiver has read the slot before we write it again. */
    tx->consumed = atomic_load_explicit(&tx->credits->consumed,
                                        memory_order_acquire);
    if (number - tx->consumed < ring->num_slots)
        return true;
    refuse(tx);
    return false;
}

/* What was packed here before has left. Where each message begins at slot 0,
 * its first slots may be those of the last chunks before. */
static bool may_pack(const struct rs_rdma_tx *tx)
{
    const struct rs_rdma_lane *l = &tx->lane;
    uint64_t under_way =
        l->posted -
        atomic_load_explicit(&l->completed, memory_order_acquire);

    return l->ring.aligned && l->ring.next == 0
               ? under_way == 0
               : under_way < l->ring.num_slots;
}

static bool post_chunk(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;
    struct rs_rdma_ring *ring = &l->ring;
    uint32_t start = ring->aligned
                         ? 0
                         : (uint32_t)(ring->position % ring->num_slots);
    uint32_t list = start * ring->num_chunks + ring->next;

    if (!has_credit(tx))
        return false;
    if (tx->source == RS_SOURCE_PACK) {
        if (!may_pack(tx))
            return false;
        pack_chunk(tx, ring->next, rs_rdma_ring_slot(ring));
    }
    if (!rs_rdma_link_post(l->link, tx->landing.lists[list],
                           rs_rdma_ring_number(ring) + 1, &l->completed))
        return false;
    ring->next++;
    l->counted += l->serial;
    return true;
}

static bool post_direct(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;

    if (!rs_rdma_link_post(l->link, tx->direct.lists[tx->next], l->notices + 1,
                           &l->completed))
        return false;
    tx->next++;
    l->counted += l->serial && tx->next == tx->direct.num_lists;
    return true;
}

static bool all_is_posted(const struct rs_rdma_tx *tx)
{
    return tx->is_direct ? tx->next == tx->direct.num_lists
                         : tx->lane.ring.next == tx->lane.ring.num_chunks;
}

/* Lists posted in epochs that were complete with that, so not of what is gathered,
 * nor of an epoch that has been given up halfway. */
static uint64_t promised(const struct rs_rdma_tx *tx)
{
    uint64_t begun = tx->is_direct ? tx->next : tx->lane.ring.next;

    if (tx->source == RS_SOURCE_GATHER)
        return 0;
    return tx->lane.posted - (all_is_posted(tx) ? 0 : begun);
}

/* Whether the device gathers all of a message that the receiver may still take. */
static bool is_awaited(const struct rs_rdma_tx *tx)
{
    return tx->source == RS_SOURCE_GATHER && all_is_posted(tx) &&
           !rs_rdma_lane_is_idle(&tx->lane) &&
           atomic_load(&tx->credits->last) == 0;
}

void rs_rdma_tx_destroy(struct rsched_lane *lane)
{
    struct rs_rdma_tx *tx = rs_rdma_tx_of(lane);

    if (tx->lane.asked_ps == 0)
        rs_rdma_lane_abandon(&tx->lane);
    /* The receiver would take whatever the user makes of the memory for it. */
    while (is_awaited(tx) &&
           rs_rdma_link_wait(tx->lane.link, tx->lane.asked_ps,
                             tx->lane.notify == RS_NOTIFY_IMM))
        ;
    tx->lane.promised = promised(tx);
    rs_rdma_lane_drop(&tx->lane);
}

static bool is_head(const struct rs_rdma_tx *tx)
{
    return tx->is_direct && tx->has_head && tx->next == 1;
}

/* All that can be posted now, with one doorbell, but for a head: what follows it
 * comes with the next call, since those of the other rails come before. */
static void post_all(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;
    struct rs_rdma_link *link = l->link;
    bool posted = false;

    rs_rdma_link_lock(link);
    rs_rdma_link_poll(link);
    while (!all_is_posted(tx) &&
           (tx->source != RS_SOURCE_STAGE || rs_rdma_tx_stage_is_there(tx)) &&
           (tx->is_direct ? post_direct(tx) : post_chunk(tx))) {
        l->posted++;
        l->lane.stats.chunks++;
        posted = true;
        if (tx->source == RS_SOURCE_STAGE)
            rs_rdma_tx_stage_posted(tx);
        if (unlikely(is_head(tx)))
            break;
    }
    if (posted)
        rs_rdma_link_ring(link);
    rs_rdma_link_unlock(link);
    if (!all_is_posted(tx) || !posted)
        return;
    if (tx->is_direct)
        l->notices++;
    else
        rs_rdma_ring_finish(&l->ring);
}

/* Whether the device has let go of all that was posted. */
static bool settle(struct rs_rdma_tx *tx)
{
    if (!rs_rdma_lane_is_idle(&tx->lane)) {
        rs_rdma_link_lock(tx->lane.link);
        rs_rdma_link_poll(tx->lane.link);
        rs_rdma_link_unlock(tx->lane.link);
    }
    return rs_rdma_lane_is_idle(&tx->lane);
}

/* Whether the receiver has given up. Then its buffers may be gone, and it waits
 * to hear that nobody writes them: not even the user's next call may be awaited
 * for that. */
static bool is_given_up(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;

    /* Told on this lane's rail, after any `ready`. If it has not come yet we may
     * begin: the receiver waits as long as it may be on its way. */
    if (likely(atomic_load_explicit(&tx->credits->last, memory_order_acquire) ==
               0))
        return false;
    rs_rdma_lane_abandon(l);
    return true;
}

/* Take the table of this version. @return 1; 0: not yet; or an error */
static int __attribute__((cold)) take_table(struct rs_rdma_tx *tx, uint64_t version)
{
    /* Acquire: the table is read after its version. */
    uint64_t word =
        atomic_load_explicit(&tx->credits->table, memory_order_acquire);
    int error;

    /* `ready` may have overtaken it, on another rail. */
    if (word >> 1 != version) {
        refuse(tx);
        return 0;
    }
    tx->has_table = (word & 1) != 0;
    if (tx->has_table) {
        /* Lists and packed bytes of epochs before may be under way. */
        if (!settle(tx))
            return 0;
        error = rs_rdma_tx_compile_direct(tx);
        if (error != 0)
            return error;
    }
    tx->version = version;
    return 1;
}

/* Where the receiver offers tables, it says with `ready` which way an epoch
 * goes. @return 1: known; 0: not yet; or an error */
static int choose_way(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;
    uint64_t ready, version;
    int status;

    if (!l->offers)
        return 1;
    /* Acquire: `version` and `last` are read after it. */
    ready = atomic_load_explicit(&l->bundle->credits->ready,
                                 memory_order_acquire);
    if (ready < l->epoch) {
        refuse(tx);
        return 0;
    }
    if (unlikely(is_given_up(tx)))
        return 0;
    version = atomic_load_explicit(&l->bundle->credits->version,
                                   memory_order_relaxed);
    if (unlikely(version != tx->version)) {
        status = take_table(tx, version);
        if (status != 1)
            return status;
    }
    tx->is_direct = tx->has_table;
    if (tx->is_direct && tx->source == RS_SOURCE_PACK) {
        if (!settle(tx))
            return 0;
        tx->packed = 0;
        pack_parts(tx, 1);
    }
    return 1;
}

static int begin(struct rs_rdma_tx *tx)
{
    int status = choose_way(tx);

    if (status != 1)
        return status;
    tx->chosen = true;
    if (tx->source == RS_SOURCE_GATHER)
        tx->lane.lane.stats.gathered += tx->lane.bytes;
    else if (tx->source != RS_SOURCE_INLINE)
        tx->lane.lane.stats.packed += tx->lane.bytes;
    tx->lane.lane.stats.bytes[tx->is_direct ? RSCHED_WAY_DIRECT
                                            : RSCHED_WAY_LANDING] +=
        tx->lane.bytes;
    return 1;
}

/* What is gathered stays the device's until it says so; the rest is copied by
 * the time it is posted. */
static bool is_free(struct rs_rdma_tx *tx)
{
    return tx->source != RS_SOURCE_GATHER ||
           (settle(tx) && !rs_rdma_link_is_broken(tx->lane.link));
}

/* Whether the receiver has had all of this epoch before it gave up. */
static bool is_received(const struct rs_rdma_tx *tx)
{
    return all_is_posted(tx) &&
           atomic_load_explicit(&tx->credits->last, memory_order_acquire) >
               tx->lane.epoch;
}

int rs_rdma_tx_check(struct rsched_lane *lane)
{
    struct rs_rdma_tx *tx = rs_rdma_tx_of(lane);
    struct rs_rdma_link *link = tx->lane.link;

    /* The device has still to say that it has let go; it will. */
    if (is_received(tx) && !is_free(tx))
        return rs_rdma_link_is_broken(link) ? rs_rdma_link_failed(link) : 0;
    return rs_rdma_lane_check(&tx->lane, &tx->credits->last);
}

static int go_on(struct rs_rdma_tx *tx)
{
    int status = 1;

    if (unlikely(tx->source == RS_SOURCE_STAGE) &&
        (status = rs_rdma_tx_stage_go_on(tx)) != 0)
        return status;
    if (!tx->chosen) {
        status = begin(tx);
        if (status != 1)
            return status;
    }
    if (!all_is_posted(tx) && !(tx->is_direct && is_given_up(tx))) {
        if (tx->is_direct && tx->next > 0 && tx->source == RS_SOURCE_PACK)
            pack_parts(tx, tx->parts.num_chunks);
        post_all(tx);
    }
    return all_is_posted(tx) && is_free(tx) ? RSCHED_LANE_DONE
                                            : RSCHED_LANE_PENDING;
}

int rs_rdma_tx_progress(struct rsched_lane *lane)
{
    struct rs_rdma_tx *tx = rs_rdma_tx_of(lane);

    /* A broken link reads nothing. The receiver may have said that it has all, and
     * have gone before the device has heard that. */
    if (unlikely(rs_rdma_link_is_broken(tx->lane.link)))
        return is_received(tx) ? RSCHED_LANE_DONE
                               : rs_rdma_link_failed(tx->lane.link);
    return go_on(tx);
}

int rs_rdma_tx_start(struct rsched_lane *lane)
{
    struct rs_rdma_tx *tx = rs_rdma_tx_of(lane);

    tx->lane.epoch++;
    tx->lane.ring.next = 0;
    tx->next = 0;
    tx->is_direct = false;
    tx->chosen = false;
    tx->begun = tx->copied = tx->left = 0;
    return go_on(tx);
}
