/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving half of an edge. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "engines/rdma/rx.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
    MIN_SLOTS = 2, /* one epoch ahead */
    MAX_SLOTS = RS_RDMA_MAX_SLOTS,
};

/* A sender that was told that it may write the receive buffers has so long to
 * say that it does not, when the exchange is given up. It begins nothing after it
 * has learnt of that, so what it has not said by then is nothing, or that it is
 * still at what it had begun. After that the registration ends, and its writes
 * fail, and the queue pairs of both with them. */
#define GIVE_UP_PS (1000 * UINT64_C(1000000000))

static void dispose(struct rs_rdma_lane *lane)
{
    struct rs_rdma_rx *rx = (struct rs_rdma_rx *)lane;
    const struct rs_rdma_queue_ops *ops = lane->link->queue->ops;

    if (rx->listens)
        rs_rdma_link_unlisten(lane->link, rx->imm);
    if (rx->consume != NULL)
        ops->list_destroy(rx->consume);
    if (rx->version_word != NULL)
        ops->list_destroy(rx->version_word);
    if (rx->ready != NULL)
        ops->list_destroy(rx->ready);
    if (rx->publish != NULL)
        ops->list_destroy(rx->publish);
    rs_rdma_lane_free(lane);
}

/* Where copy engines may fill and empty slots, a message is cut into one for each
 * of them, but into no smaller pieces than others are, nor into longer ones than
 * all slots together may be: what it takes to begin a copy does not depend on its
 * length. */
static uint64_t slot_bytes(const struct rsched_engine_env *env,
                           const struct rsched_lane_spec *spec)
{
    uint64_t most = env->ring_bytes / MAX_SLOTS;
    uint64_t piece = (spec->bytes + MAX_SLOTS - 1) / MAX_SLOTS;

    if (spec->bytes > 0 && spec->bytes <= env->chunk_bytes)
        return spec->bytes;
    most = most > RS_RDMA_LINE ? most - RS_RDMA_LINE : 0; /* for its front */
    if (piece > most)
        piece = most;
    return spec->gpus && piece > env->chunk_bytes ? piece : env->chunk_bytes;
}

/* Messages that fit into a chunk have slots for some epochs; longer ones are
 * pipelined through two, if they land at all, or four, if copies take part. */
static void choose_slots(struct rs_rdma_rx *rx,
                         const struct rsched_engine_env *env,
                         const struct rsched_lane_spec *spec)
{
    bool on_gpu = spec->gpus && spec->place.kind == RSCHED_PLACE_GPU;
    uint64_t bytes = spec->bytes;
    struct rs_rdma_ring *ring = &rx->lane.ring;
    uint64_t slots;

    ring->fixed = bytes != 0;
    ring->chunk_bytes = slot_bytes(env, spec);
    rx->stride = rs_rdma_ring_stride(ring->chunk_bytes);
    /* What lies in GPU memory cannot be unpacked. */
    rx->lane.offers = bytes > (on_gpu ? 0 : env->chunk_bytes) &&
                      rs_config()->direct;
    slots = env->ring_bytes / rx->stride;
    if (slots < MIN_SLOTS ||
        (!spec->gpus && (bytes == 0 || bytes > env->chunk_bytes)))
        slots = MIN_SLOTS;
    ring->num_slots = slots > MAX_SLOTS ? MAX_SLOTS : (uint32_t)slots;
    /* With four slots the sender still has two when it learns of others. */
    rx->credit_step = ring->num_slots == MAX_SLOTS ? MAX_SLOTS / 2 : 1;
}

static int allocate_block(struct rs_rdma_rx *rx, bool gpus)
{
    struct rs_rdma_lane *l = &rx->lane;
    uint64_t slots = rx->stride * l->ring.num_slots;
    uint64_t table = l->offers ? sizeof(struct rs_rdma_table) : 0;
    int error = rs_rdma_block_allocate(
        l->link->memory, sizeof(struct rs_rdma_arrivals) + slots + table, gpus,
        l->link, &l->block);

    if (error != 0)
        return error;
    rx->arrivals = (void *)l->block->memory;
    rx->slots = (char *)(rx->arrivals + 1);
    rx->table = (void *)(rx->slots + slots);
    return 0;
}

int rs_rdma_rx_create(struct rsched_connection *connection,
                      const struct rsched_lane_spec *spec,
                      unsigned char *descriptor, struct rsched_lane **lane)
{
    struct rs_rdma_descriptor d = {0};
    struct rs_rdma_lane *l;
    struct rs_rdma_rx *rx;
    int error = rs_rdma_lane_new(connection, spec->rail, sizeof(*rx), dispose,
                                 &l);

    if (error != 0)
        return error;
    rx = (struct rs_rdma_rx *)l;
    pthread_mutex_lock(&connection->engine->lock);
    rs_rdma_lanes_bury(l->link);
    choose_slots(rx, &connection->engine->env, spec);
    l->notify = l->link->memory->port->notify;
    error = allocate_block(rx, spec->gpus);
    if (error == 0 && l->offers)
        error = rs_rdma_lane_join(
            l, spec, spec->group != NULL ? &spec->group->in : NULL,
            RS_RDMA_ANY_LEADER);
    if (error == 0 && l->notify == RS_NOTIFY_IMM) {
        error = rs_rdma_link_listen(l->link, &rx->arrivals->arrived, &rx->imm);
        rx->listens = error == 0;
    }
    if (error != 0)
        dispose(l);
    pthread_mutex_unlock(&connection->engine->lock);
    if (error != 0)
        return error;
    d = (struct rs_rdma_descriptor){
        .arrivals = (uintptr_t)rx->arrivals,
        .rkey = l->block->keys->rkey,
        .num_slots = l->ring.num_slots,
        .chunk_bytes = l->ring.chunk_bytes,
        .notify = l->notify,
        .imm = rx->imm,
        .offers = l->offers,
        .leader = l->offers ? l->bundle->rail : 0,
    };
    d.hash = XXH64(&d, offsetof(struct rs_rdma_descriptor, hash), 0);
    memcpy(descriptor, &d, sizeof(d));
    *lane = &l->lane;
    return 0;
}

static int make_words(struct rs_rdma_rx *rx)
{
    struct rs_rdma_link *link = rx->lane.link;
    uint64_t at = rx->remote_credits;
    uint32_t rkey = rx->remote_rkey;
    int error = rs_rdma_link_word(
        link, at + offsetof(struct rs_rdma_credits, last), rkey,
        &rx->lane.last);

    if (error == 0)
        error = rs_rdma_link_word(
            link, at + offsetof(struct rs_rdma_credits, consumed), rkey,
            &rx->consume);
    if (error == 0 && rx->lane.leads)
        error = rs_rdma_link_word(
            link, at + offsetof(struct rs_rdma_credits, version), rkey,
            &rx->version_word);
    if (error == 0 && rx->lane.leads)
        error = rs_rdma_link_word(
            link, at + offsetof(struct rs_rdma_credits, ready), rkey,
            &rx->ready);
    return error;
}

int rs_rdma_rx_attach(struct rsched_lane *lane, const unsigned char *reply)
{
    struct rs_rdma_rx *rx = rs_rdma_rx_of(lane);
    struct rs_rdma_reply r;

    memcpy(&r, reply, sizeof(r));
    if (r.hash != XXH64(&r, offsetof(struct rs_rdma_reply, hash), 0))
        return rs_fail(RSCHED_EMISMATCH, "%s: peer %d: a reply that is none",
                       rx->lane.link->engine, rx->lane.link->peer);
    rx->remote_credits = r.credits;
    rx->remote_rkey = r.rkey;
    rx->lane.serial = r.serial != 0;
    atomic_store(&rx->lane.link->in_use, true);
    return make_words(rx);
}

void rs_rdma_rx_abandon(struct rsched_lane *lane)
{
    struct rs_rdma_lane *l = &rs_rdma_rx_of(lane)->lane;

    /* It may be said by any thread from the first time on. */
    if (l->asked_ps == 0)
        l->counted = l->epoch - (l->ring.next < l->ring.num_chunks);
    rs_rdma_lane_abandon(l);
}

static uint64_t arrived(const struct rs_rdma_rx *rx)
{
    struct rs_rdma_link *link = rx->lane.link;

    if (rx->lane.notify == RS_NOTIFY_IMM) {
        rs_rdma_link_lock(link);
        rs_rdma_link_take(link);
        rs_rdma_link_unlock(link);
    }
    /* Acquire: the data is read after the number. */
    return atomic_load_explicit(&rx->arrivals->arrived, memory_order_acquire);
}

/* Whether what the sender had posted before it gave up is still to come, or has not
 * been counted. */
static bool is_on_its_way(const struct rs_rdma_rx *rx)
{
    uint64_t last = atomic_load_explicit(&rx->arrivals->last, memory_order_acquire);

    return last > 1 && arrived(rx) < last - 1;
}

int rs_rdma_rx_check(struct rsched_lane *lane)
{
    struct rs_rdma_rx *rx = rs_rdma_rx_of(lane);
    struct rs_rdma_link *link = rx->lane.link;

    if (is_on_its_way(rx))
        return rs_rdma_link_is_broken(link) ? rs_rdma_link_failed(link) : 0;
    return rs_rdma_lane_check(&rx->lane, &rx->arrivals->last);
}

/* Whether the sender may be about to write into the receive buffers. */
static bool may_be_written(const struct rs_rdma_rx *rx)
{
    return rx->is_direct && rx->lane.epoch > 0 && rx->lane.ring.next == 0 &&
           !rx->lane.bundle->ready_due && arrived(rx) == rx->lane.notices &&
           (atomic_load(&rx->arrivals->last) == 0 || is_on_its_way(rx)) &&
           !rs_rdma_link_is_broken(rx->lane.link);
}

/* A sender has its time from when it is told. One that cannot be told has it from
 * when that was asked for, so that lanes that are destroyed together are waited
 * for together, twice as long at most. */
static uint64_t give_up_end_ps(const struct rs_rdma_rx *rx)
{
    uint64_t asked_ps = rx->lane.asked_ps;
    uint64_t said_ps = atomic_load(&rx->lane.said_ps);

    return (said_ps != 0 && said_ps < asked_ps + GIVE_UP_PS ? said_ps
                                                            : asked_ps) +
           GIVE_UP_PS;
}

void rs_rdma_rx_destroy(struct rsched_lane *lane)
{
    struct rs_rdma_rx *rx = rs_rdma_rx_of(lane);

    /* All lanes of its exchange have been abandoned just before. */
    if (rx->lane.asked_ps == 0)
        rs_rdma_rx_abandon(lane);
    while (may_be_written(rx) && rs_clock_now() < give_up_end_ps(rx)) {
        rs_rdma_lane_drain(&rx->lane, 0);
        rs_clock_sleep(GIVE_UP_PS / 1000);
    }
    if (may_be_written(rx))
        rs_rdma_link_doubt(rx->lane.link);
    if (!lane->attached)
        rx->lane.block->writer = NULL; /* nobody ever learnt of it */
    /* At once, however long the lane has to stay until it has said what it has
     * to: the user may do with the buffers what he likes. No list reads them. */
    rs_rdma_lane_lock(&rx->lane);
    rs_rdma_regions_release(rx->lane.link->memory, &rx->lane.regions);
    rs_rdma_lane_unlock(&rx->lane);
    rs_rdma_lane_drop(&rx->lane);
}

/* ---- running ---- */

static void tell_consumed(struct rs_rdma_rx *rx)
{
    if (rx->consumed - rx->told < rx->credit_step)
        return;
    if (rs_rdma_lane_post(&rx->lane, rx->consume, rx->consumed))
        rx->told = rx->consumed;
}

static void tell_ready(struct rs_rdma_rx *rx)
{
    struct rs_rdma_lane *l = &rx->lane;
    struct rs_rdma_bundle *b = l->bundle;

    rs_rdma_link_lock(l->link);
    rs_rdma_link_poll(l->link);
    if (unlikely(b->told != b->version) &&
        rs_rdma_lane_add(l, rx->version_word, b->version))
        b->told = b->version;
    b->ready_due = b->told != b->version ||
                   !rs_rdma_lane_add(l, rx->ready, l->epoch);
    rs_rdma_link_ring(l->link);
    rs_rdma_link_unlock(l->link);
}

static bool owes_ready(const struct rs_rdma_rx *rx)
{
    return rx->lane.leads && rx->lane.bundle->ready_due;
}

/* Where the message lands in several rounds we must empty slots, and copies must
 * be begun. */
static bool needs_help(const struct rs_rdma_rx *rx)
{
    const struct rs_rdma_ring *ring = &rx->lane.ring;

    return owes_ready(rx) || rx->lane.stage != NULL ||
           (!rx->is_direct && ring->num_chunks > ring->num_slots);
}

static int __attribute__((cold))
wrong_message(const struct rs_rdma_lane *l, uint64_t meta)
{
    uint64_t got = rs_rdma_meta_bytes(meta);

    if (got == l->bytes)
        return rs_fail(RSCHED_EMISMATCH,
                       "%s: peer %d: %llu bytes, but divided among the puts in "
                       "another way than expected",
                       l->link->engine, l->link->peer, (unsigned long long)got);
    return rs_fail(got > l->bytes ? RSCHED_ETRUNC : RSCHED_EMISMATCH,
                   "%s: peer %d: a message of %llu bytes where %llu are "
                   "expected",
                   l->link->engine, l->link->peer, (unsigned long long)got,
                   (unsigned long long)l->bytes);
}

/* Find chunk i of the message in its slot. @return 1; 0: it is not there; or an
 * error: it is of another message */
static int find_chunk(struct rs_rdma_rx *rx, uint32_t i,
                      struct rs_rdma_slot **found)
{
    struct rs_rdma_lane *l = &rx->lane;
    uint64_t number = l->ring.position + i;
    struct rs_rdma_slot *slot =
        (void *)(rx->slots + number % l->ring.num_slots * rx->stride);

    if (l->notify != RS_NOTIFY_FLAG) {
        if (arrived(rx) <= l->notices)
            return 0;
    } else if (atomic_load_explicit(&slot->arrived, memory_order_acquire) !=
               number + 1) { /* acquire: data and meta are read after it */
        return 0;
    }
    if (unlikely(slot->meta != l->meta))
        return wrong_message(l, slot->meta);
    l->notices += l->notify != RS_NOTIFY_FLAG;
    *found = slot;
    return 1;
}

/* The next chunk has been taken out of its slot. */
static void chunk_is_taken(struct rs_rdma_rx *rx)
{
    struct rs_rdma_ring *ring = &rx->lane.ring;

    rx->lane.lane.stats.chunks++;
    ring->next++;
    rx->consumed = rs_rdma_ring_number(ring);
    if (ring->next == ring->num_chunks) {
        rs_rdma_ring_finish(ring);
        rx->consumed = ring->position;
    }
    tell_consumed(rx);
}

static int land(struct rs_rdma_rx *rx)
{
    struct rs_rdma_lane *l = &rx->lane;
    struct rs_rdma_ring *ring = &l->ring;

    while (ring->next < ring->num_chunks) {
        struct rs_rdma_slot *slot = NULL;
        int status = find_chunk(rx, ring->next, &slot);

        if (status != 1)
            return status == 0 ? RSCHED_LANE_PENDING : status;
        rs_copies_unpack(&l->copies, &l->copies.chunks[ring->next], slot->data);
        chunk_is_taken(rx);
    }
    return RSCHED_LANE_DONE;
}

static int stage_failed(const struct rs_rdma_lane *l, int error)
{
    return rs_fail_within(error, "%s: peer %d", l->link->engine, l->link->peer);
}

/* Begin to copy what has come. No more than there are slots can have. */
static int begin_copies(struct rs_rdma_rx *rx)
{
    struct rs_rdma_lane *l = &rx->lane;

    while (rx->begun < l->ring.num_chunks &&
           rx->begun - l->ring.next < l->ring.num_slots) {
        struct rs_rdma_slot *slot = NULL;
        int status = find_chunk(rx, rx->begun, &slot);

        if (status != 1)
            return status;
        status = rsched_gpus()->stage_begin(l->stage, rx->begun, slot->data);
        if (status != 0)
            return stage_failed(l, status);
        rx->begun++;
    }
    return 0;
}

static int land_staged(struct rs_rdma_rx *rx)
{
    struct rs_rdma_lane *l = &rx->lane;
    struct rs_rdma_ring *ring = &l->ring;
    int status = begin_copies(rx);

    while (status == 0 && ring->next < rx->begun) {
        status = rsched_gpus()->stage_poll(l->stage, ring->next);
        if (status < 0)
            status = stage_failed(l, status);
        if (status != RSCHED_LANE_DONE)
            break;
        chunk_is_taken(rx);
        status = begin_copies(rx);
    }
    l->lane.copying = ring->next < rx->begun;
    if (status != 0)
        return status;
    return ring->next == ring->num_chunks ? RSCHED_LANE_DONE
                                          : RSCHED_LANE_PENDING;
}

int rs_rdma_rx_progress(struct rsched_lane *lane)
{
    struct rs_rdma_rx *rx = rs_rdma_rx_of(lane);
    struct rs_rdma_lane *l = &rx->lane;

    if (unlikely(owes_ready(rx))) {
        tell_ready(rx);
        lane->streams = needs_help(rx);
    }
    tell_consumed(rx);
    if (unlikely(l->stage != NULL))
        return land_staged(rx);
    if (!rx->is_direct)
        return land(rx);
    if (l->ring.next == 0 && arrived(rx) == l->notices)
        return RSCHED_LANE_PENDING;
    if (l->ring.next == 0) {
        l->notices++;
        l->ring.next = l->ring.num_chunks;
        lane->stats.chunks++;
    }
    return RSCHED_LANE_DONE;
}

int rs_rdma_rx_start(struct rsched_lane *lane)
{
    struct rs_rdma_rx *rx = rs_rdma_rx_of(lane);
    struct rs_rdma_lane *l = &rx->lane;

    l->epoch++;
    l->ring.next = 0;
    rx->begun = 0;
    if (rx->lane.leads)
        tell_ready(rx);
    lane->streams = needs_help(rx);
    return RSCHED_LANE_PENDING;
}
