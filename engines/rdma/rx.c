/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving half of an edge. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "engines/rdma/program.h"
#include "engines/rdma/rdma.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"
#include "librsched/base/sources.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
    MIN_SLOTS = 2, /* one epoch ahead */
    MAX_SLOTS = 4, /* for messages of one chunk */
};

/* A sender that was told that it may write the receive buffers has so long to
 * say that it does not, when the exchange is given up. It begins nothing after it
 * has learnt of that, so what it has not said by then is nothing, or that it is
 * still at what it had begun. After that the registration ends, and its writes
 * fail, and the queue pairs of both with them. */
#define GIVE_UP_PS (1000 * UINT64_C(1000000000))

struct rx {
    struct rs_rdma_lane lane; /* first */
    struct rs_rdma_arrivals *arrivals;
    char *slots;
    uint64_t stride;
    struct rs_rdma_table *table; /* what is written to the sender's */
    uint32_t imm;     /* RS_NOTIFY_IMM */
    bool listens;     /* to it */
    uint64_t remote_credits;
    uint32_t remote_rkey;
    struct rs_rdma_list *consume, *version_word, *ready, *publish;
    uint64_t consumed;  /* wanted to be told */
    uint64_t told;      /* of them */
    uint32_t credit_step; /* tell after so many chunks */
    uint64_t version;   /* of the table */
    bool is_direct;     /* the loaded message */
};

static struct rx *rx_of(struct rsched_lane *lane)
{
    return (struct rx *)lane;
}

static void dispose(struct rs_rdma_lane *lane)
{
    struct rx *rx = (struct rx *)lane;
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

/* Messages that fit into a chunk have slots for some epochs; longer ones are
 * pipelined through two, if they land at all. */
static void choose_slots(struct rx *rx, const struct rsched_engine_env *env,
                         const struct rsched_lane_spec *spec)
{
    bool on_gpu = spec->gpus && spec->place.kind == RSCHED_PLACE_GPU;
    uint64_t bytes = spec->bytes;
    struct rs_rdma_ring *ring = &rx->lane.ring;
    uint64_t slots;

    ring->fixed = bytes != 0;
    ring->chunk_bytes =
        bytes == 0 || bytes > env->chunk_bytes ? env->chunk_bytes : bytes;
    rx->stride = rs_rdma_ring_stride(ring->chunk_bytes);
    /* What lies in GPU memory cannot be unpacked. */
    rx->lane.offers = bytes > (on_gpu ? 0 : env->chunk_bytes) &&
                      rs_config()->direct;
    slots = env->ring_bytes / rx->stride;
    if (bytes == 0 || bytes > env->chunk_bytes || slots < MIN_SLOTS)
        slots = MIN_SLOTS;
    ring->num_slots = slots > MAX_SLOTS ? MAX_SLOTS : (uint32_t)slots;
    /* With four slots the sender still has two when it learns of others. */
    rx->credit_step = ring->num_slots == MAX_SLOTS ? MAX_SLOTS / 2 : 1;
}

static int allocate_block(struct rx *rx)
{
    struct rs_rdma_lane *l = &rx->lane;
    uint64_t slots = rx->stride * l->ring.num_slots;
    uint64_t table = l->offers ? sizeof(struct rs_rdma_table) : 0;
    int error = rs_rdma_block_allocate(
        l->link->memory, sizeof(struct rs_rdma_arrivals) + slots + table,
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
    struct rx *rx;
    int error = rs_rdma_lane_new(connection, spec->rail, sizeof(*rx), dispose,
                                 &l);

    if (error != 0)
        return error;
    rx = (struct rx *)l;
    pthread_mutex_lock(&connection->engine->lock);
    rs_rdma_lanes_bury(l->link);
    choose_slots(rx, &connection->engine->env, spec);
    l->notify = l->link->memory->port->notify;
    error = allocate_block(rx);
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

static int make_words(struct rx *rx)
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
    struct rx *rx = rx_of(lane);
    struct rs_rdma_reply r;

    memcpy(&r, reply, sizeof(r));
    if (r.hash != XXH64(&r, offsetof(struct rs_rdma_reply, hash), 0))
        return rs_fail(RSCHED_EMISMATCH, "%s: peer %d: a reply that is none",
                       rx->lane.link->engine, rx->lane.link->peer);
    rx->remote_credits = r.credits;
    rx->remote_rkey = r.rkey;
    atomic_store(&rx->lane.link->in_use, true);
    return make_words(rx);
}

void rs_rdma_rx_abandon(struct rsched_lane *lane)
{
    rs_rdma_lane_abandon(&rx_of(lane)->lane);
}

int rs_rdma_rx_check(struct rsched_lane *lane)
{
    struct rx *rx = rx_of(lane);

    return rs_rdma_lane_check(&rx->lane, &rx->arrivals->last);
}

static uint64_t arrived(const struct rx *rx)
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

/* Whether the sender may be about to write into the receive buffers. */
static bool may_be_written(const struct rx *rx)
{
    return rx->is_direct && rx->lane.epoch > 0 && rx->lane.ring.next == 0 &&
           !rx->lane.bundle->ready_due && arrived(rx) == rx->lane.notices &&
           atomic_load(&rx->arrivals->last) == 0 &&
           !rs_rdma_link_is_broken(rx->lane.link);
}

/* A sender has its time from when it is told. One that cannot be told has it from
 * when that was asked for, so that lanes that are destroyed together are waited
 * for together, twice as long at most. */
static uint64_t give_up_end_ps(const struct rx *rx)
{
    uint64_t asked_ps = rx->lane.asked_ps;
    uint64_t said_ps = atomic_load(&rx->lane.said_ps);

    return (said_ps != 0 && said_ps < asked_ps + GIVE_UP_PS ? said_ps
                                                            : asked_ps) +
           GIVE_UP_PS;
}

void rs_rdma_rx_destroy(struct rsched_lane *lane)
{
    struct rx *rx = rx_of(lane);

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

/* ---- loading ---- */

/* Register where the message goes. @return whether it can go there directly; if
 * not, and it lies in GPU memory, the last error says why */
static bool prepare_targets(struct rx *rx, const struct rsched_message *message,
                            struct rs_rdma_regions *regions)
{
    struct rs_rdma_lane *l = &rx->lane;
    int error = rs_rdma_table_make(rx->table, l->link->memory,
                                   l->gpu != NULL ? NULL : rs_rdma_lane_costs(l),
                                   message, l->meta, l->gpu, regions);

    if (error < 0 && l->gpu == NULL)
        rs_log(RS_LOG_WARN, "receive buffers go through landing slots: %s",
               rsched_last_error());
    return error == 0;
}

/* The table, if there is one, and behind it the word that says so. */
static int make_publish(struct rx *rx, bool direct)
{
    const struct rs_rdma_lane *l = &rx->lane;
    const struct rs_rdma_queue_ops *ops = l->link->queue->ops;
    struct rs_rdma_piece piece = {
        .address = (uintptr_t)rx->table,
        .bytes = (uint32_t)(offsetof(struct rs_rdma_table, pieces) +
                            rx->table->num_pieces *
                                sizeof(struct rs_rdma_target)),
        .lkey = l->block->keys->lkey};
    struct rs_rdma_op ops_of[] = {
        {.opcode = RS_RDMA_WRITE,
         .remote = rx->remote_credits + sizeof(struct rs_rdma_credits),
         .rkey = rx->remote_rkey,
         .num_pieces = 1,
         .pieces = &piece},
        {.opcode = RS_RDMA_WRITE,
         .stamp = RS_STAMP_EPOCH,
         .inlined = true,
         .remote = rx->remote_credits + offsetof(struct rs_rdma_credits, table),
         .rkey = rx->remote_rkey},
    };

    if (rx->publish != NULL)
        ops->list_destroy(rx->publish);
    rx->publish = NULL;
    return ops->list_create(l->link->queue, direct ? ops_of : ops_of + 1,
                            direct ? 2 : 1, &rx->publish);
}

/* The sender reads its table between our `ready` and the data, so it does not
 * now. */
static int publish(struct rx *rx, bool direct)
{
    struct rs_rdma_lane *l = &rx->lane;
    int error = make_publish(rx, direct);

    if (error != 0)
        return error;
    rx->version = rs_rdma_bundle_advance(l->bundle, rx->version);
    while (!rs_rdma_lane_post(l, rx->publish,
                              rx->version << 1 | direct)) {
        if (rs_rdma_link_is_broken(l->link))
            return rs_rdma_link_failed(l->link);
        rs_clock_sleep(UINT64_C(50000000));
    }
    rx->is_direct = direct;
    return 0;
}

/* Direct where the work requests for the receiver's pieces cost less than the
 * copy out of landing slots. */
static int load_direct(struct rx *rx, const struct rsched_message *message)
{
    struct rs_rdma_regions *regions = &rx->lane.regions;
    bool direct;

    rx->is_direct = false;
    /* The device may still read the last table. */
    rs_rdma_lane_drain(&rx->lane, UINT64_MAX);
    rs_rdma_lane_lock(&rx->lane);
    /* First: at the same addresses there may be other pages now. */
    rs_rdma_regions_release(rx->lane.link->memory, regions);
    direct = prepare_targets(rx, message, regions);
    rs_rdma_lane_unlock(&rx->lane);
    /* Nothing has been said: it is loaded with other memory. */
    if (!direct && rx->lane.gpu != NULL)
        return RSCHED_ENOTSUP;
    return publish(rx, direct);
}

int rs_rdma_rx_load(struct rsched_lane *lane,
                    const struct rsched_message *message)
{
    struct rx *rx = rx_of(lane);
    struct rs_rdma_lane *l = &rx->lane;
    int error = rs_rdma_lane_load(l, message);

    if (error == 0 && l->gpu != NULL && !l->offers)
        error = rs_fail(RSCHED_ENOTSUP,
                        "messages of variable length, and all with "
                        "RSCHED_DIRECT=no, land in slots");
    if (error == 0)
        error = rs_copies_compile(&l->copies, message, l->ring.chunk_bytes);
    if (error != 0)
        return error;
    rs_rdma_ring_load(&l->ring, l->copies.num_chunks);
    if (l->offers)
        error = load_direct(rx, message);
    return error;
}

/* ---- running ---- */

static void tell_consumed(struct rx *rx)
{
    if (rx->consumed - rx->told < rx->credit_step)
        return;
    if (rs_rdma_lane_post(&rx->lane, rx->consume, rx->consumed))
        rx->told = rx->consumed;
}

static void tell_ready(struct rx *rx)
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

static bool owes_ready(const struct rx *rx)
{
    return rx->lane.leads && rx->lane.bundle->ready_due;
}

/* Where the message lands in several rounds we must empty slots. */
static bool needs_help(const struct rx *rx)
{
    return owes_ready(rx) || (!rx->is_direct && rx->lane.ring.num_chunks >
                                                    rx->lane.ring.num_slots);
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

static bool chunk_is_there(const struct rx *rx, const struct rs_rdma_slot *slot)
{
    if (rx->lane.notify != RS_NOTIFY_FLAG)
        return arrived(rx) > rx->lane.notices;
    /* Acquire: the data and meta are read after the number. */
    return atomic_load_explicit(&slot->arrived, memory_order_acquire) ==
           rs_rdma_ring_number(&rx->lane.ring) + 1;
}

static int land(struct rx *rx)
{
    struct rs_rdma_lane *l = &rx->lane;
    struct rs_rdma_ring *ring = &l->ring;

    while (ring->next < ring->num_chunks) {
        const struct rs_rdma_slot *slot =
            (void *)(rx->slots + rs_rdma_ring_slot(ring) * rx->stride);

        if (!chunk_is_there(rx, slot))
            return RSCHED_LANE_PENDING;
        if (unlikely(slot->meta != l->meta))
            return wrong_message(l, slot->meta);
        rs_copies_unpack(&l->copies, &l->copies.chunks[ring->next], slot->data);
        l->lane.stats.chunks++;
        l->notices += l->notify != RS_NOTIFY_FLAG;
        ring->next++;
        rx->consumed = rs_rdma_ring_number(ring);
        if (ring->next == ring->num_chunks) {
            rs_rdma_ring_finish(ring);
            rx->consumed = ring->position;
        }
        tell_consumed(rx);
    }
    return RSCHED_LANE_DONE;
}

int rs_rdma_rx_progress(struct rsched_lane *lane)
{
    struct rx *rx = rx_of(lane);
    struct rs_rdma_lane *l = &rx->lane;

    if (unlikely(owes_ready(rx))) {
        tell_ready(rx);
        lane->streams = needs_help(rx);
    }
    tell_consumed(rx);
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
    struct rx *rx = rx_of(lane);
    struct rs_rdma_lane *l = &rx->lane;

    l->epoch++;
    l->ring.next = 0;
    if (rx->lane.leads)
        tell_ready(rx);
    lane->streams = needs_help(rx);
    return RSCHED_LANE_PENDING;
}
