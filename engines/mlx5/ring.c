/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/ring.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "engines/mlx5/gpu.h"
#include "engines/mlx5/queue.h"
#include "engines/mlx5/ring_gpu.h"
#include "engines/rdma/program.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

/* What the peer must know. */
struct descriptor {
    uint64_t last, arrived; /* addresses of words */
    uint32_t last_rkey, arrived_rkey;
    uint64_t words, words_bytes; /* that may be put to; 0 bytes: none */
    uint32_t words_rkey;
    uint32_t for_words; /* 1: the ring carries them, and no messages */
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_table tables[2]; /* of even and odd epochs */
    uint64_t hash; /* of all before */
};
static_assert(sizeof(struct descriptor) <= RSCHED_RING_DESCRIPTOR_BYTES,
              "wire layout");

struct rsched_ring {
    struct rs_rdma_lane lane; /* first: its block, and what is said last */
    struct rs_rdma_arrivals *arrivals;
    struct rs_rdma_queue *queue; /* NULL: given back */
    struct rs_rdma_regions receive[2], send[2];
    struct rs_ring_gpu gpu; /* whose kernels write it */
    bool joined; /* the peer says when it is through */
    bool for_words;
    struct rs_gpu_ring *given;   /* once it is joined: this, */
    struct rs_gpu_words *words;  /* or, for words, that */
};

static struct rsched_ring *ring_of(struct rs_rdma_lane *lane)
{
    return (struct rsched_ring *)lane;
}

static struct rs_rdma_port *port_of(const struct rsched_ring *r)
{
    return r->lane.link->memory->port;
}

static const unsigned char *peer_address(const struct rsched_ring *r)
{
    const struct rsched_connection *c = r->lane.lane.connection;

    return c->addresses[r->lane.link - c->links];
}

/* That the peer's kernel writes, and this one's looks at. */
static const uint64_t *arrived_of(const struct rsched_ring *r)
{
    return r->gpu.arrived == NULL
               ? (const uint64_t *)(const void *)&r->arrivals->arrived
               : r->gpu.arrived->memory;
}

static int fail(const struct rsched_ring *r, int error)
{
    return rs_fail_within(error, "%s %s: peer %d", r->lane.link->engine,
                          port_of(r)->name, r->lane.link->peer);
}

/* From kernels; the queue pair stays. */
static void take_back(struct rsched_ring *r)
{
    rs_gpu_ring_destroy(r->given);
    rs_gpu_words_destroy(r->words);
    r->given = NULL;
    r->words = NULL;
}

static void give_queue_back(struct rsched_ring *r)
{
    take_back(r);
    if (r->queue != NULL)
        port_of(r)->ops->queue_destroy(r->queue);
    r->queue = NULL;
}

static void dispose(struct rs_rdma_lane *lane)
{
    struct rsched_ring *r = ring_of(lane);

    give_queue_back(r);
    rs_ring_gpu_give_back(&r->gpu);
    rs_rdma_lane_free(lane);
}

/* The peer may still wait for what its writes are answered by. */
static bool stays(const struct rs_rdma_lane *lane)
{
    const struct rsched_ring *r = (const struct rsched_ring *)lane;

    /* Acquire: nothing of the peer's comes after that. */
    return r->joined && !rs_rdma_link_is_broken(lane->link) &&
           atomic_load_explicit(&r->arrivals->last, memory_order_acquire) == 0;
}

/* ---- making ---- */

static uint64_t meta_of(const struct rsched_message *message)
{
    return message->bytes | (uint64_t)message->signature << 48;
}

static int check_port(const struct rs_rdma_port *port)
{
    if (!port->rings)
        return rs_fail(RSCHED_ENOTSUP, "its queue pairs are driven by "
                                       "libibverbs (RSCHED_MLX5)");
    if (!port->in_order)
        return rs_fail(RSCHED_ENOTSUP,
                       "the device does not keep writes in order");
    if (port->notify != RS_NOTIFY_FLAG)
        return rs_fail(RSCHED_ENOTSUP, "kernels announce by flags, which "
                                       "RSCHED_NOTIFY does not allow");
    return 0;
}

/* Data may be seen behind its flag where packets take several paths. */
static int check_order(const struct rsched_ring *r)
{
    const struct rs_rdma_port_ops *ops = port_of(r)->ops;

    if (rs_config()->notify == RS_CONFIG_NOTIFY_FLAG ||
        ops->queue_is_in_order == NULL ||
        ops->queue_is_in_order(r->queue, r->gpu.arrived != NULL))
        return 0;
    return rs_fail(RSCHED_ENOTSUP,
                   "the device does not say that it keeps what comes in order "
                   "(RSCHED_NOTIFY=flag: it does)");
}

/* The engine's lock is held. */
static int make_tables(struct rsched_ring *r,
                       const struct rsched_message *const receive[2],
                       struct rs_rdma_table tables[2])
{
    int error = 0;

    for (int set = 0; set < 2 && error == 0; set++) {
        const struct rsched_message *m = receive[set];
        struct rsched_gpu_hold *gpu = NULL;

        tables[set].meta = meta_of(m);
        if (m->bytes >> 48 != 0)
            error = rs_fail(RSCHED_ELIMIT, "a message of %llu bytes",
                            (unsigned long long)m->bytes);
        else if (m->bytes > 0)
            error = rs_ring_gpu_find(&r->gpu, m, true, &gpu);
        if (error == 0 && m->bytes > 0)
            error = rs_rdma_table_make(&tables[set], r->lane.link->memory, NULL,
                                       m, meta_of(m), gpu, &r->receive[set]);
    }
    return error == 1 ? RSCHED_ENOTSUP : error;
}

/* The engine's lock is held. */
static int offer_words(struct rsched_ring *r, const struct rsched_message *m,
                       struct descriptor *d)
{
    struct rsched_gpu_hold *gpu = NULL;
    int error;

    d->for_words = 1;
    if (m->bytes == 0)
        return 0;
    error = rs_ring_gpu_find(&r->gpu, m, true, &gpu);
    if (error == 0)
        error = rs_rdma_regions_acquire(r->lane.link->memory, m, RS_RDMA_REMOTE,
                                        gpu, &r->receive[0]);
    if (error != 0)
        return error;
    d->words = (uintptr_t)m->pieces[0].address;
    d->words_bytes = m->bytes;
    d->words_rkey =
        rs_rdma_regions_find(&r->receive[0], m->pieces[0].address)->rkey;
    return 0;
}

static void release_regions(struct rsched_ring *r)
{
    for (int set = 0; set < 2; set++) {
        rs_rdma_regions_release(r->lane.link->memory, &r->receive[set]);
        rs_rdma_regions_release(r->lane.link->memory, &r->send[set]);
    }
}

/* Where the peer's host writes, and where its kernel. */
static void describe_words(const struct rsched_ring *r, struct descriptor *d)
{
    d->last = (uintptr_t)&r->arrivals->last;
    d->last_rkey = r->lane.block->keys->rkey;
    d->arrived = (uintptr_t)arrived_of(r);
    d->arrived_rkey = r->gpu.arrived == NULL ? d->last_rkey
                                             : r->gpu.arrived->keys->rkey;
}

int rs_mlx5_ring_create(struct rsched_connection *connection,
                        const struct rsched_ring_spec *spec,
                        unsigned char *descriptor, struct rsched_ring **ring)
{
    struct descriptor d = {0};
    struct rs_rdma_lane *l;
    struct rsched_ring *r;
    struct rs_rdma_port *port;
    int error = rs_rdma_lane_new(connection, 0, sizeof(*r), dispose, &l);

    if (error != 0)
        return error;
    r = ring_of(l);
    l->stays = stays;
    port = port_of(r);
    rs_rdma_lane_lock(l);
    rs_rdma_lanes_bury(l->link);
    error = check_port(port);
    if (error == 0)
        error = rs_ring_gpu_take(&r->gpu, spec->gpu, l->link->memory);
    if (error == 0)
        error = rs_rdma_block_allocate(l->link->memory, sizeof(*r->arrivals),
                                       false, l->link, &l->block);
    r->for_words = spec->words != NULL;
    if (error == 0)
        error = r->for_words ? offer_words(r, spec->words, &d)
                             : make_tables(r, spec->receive, d.tables);
    if (error == 0)
        error = port->ops->queue_create(port, &d.endpoint, &r->queue);
    if (error != 0) {
        fail(r, error);
        if (l->block != NULL)
            l->block->writer = NULL; /* nobody ever learnt of it */
        release_regions(r);
        dispose(l);
        pthread_mutex_unlock(&connection->engine->lock);
        return error;
    }
    rs_rdma_lane_unlock(l);
    r->arrivals = (void *)l->block->memory;
    describe_words(r, &d);
    d.hash = XXH64(&d, offsetof(struct descriptor, hash), 0);
    memcpy(descriptor, &d, sizeof(d));
    *ring = r;
    return 0;
}

/* ---- joining ---- */

/* The data, where the peer's table wants them, and behind them the word that says
 * so. */
static int add_message(struct rsched_ring *r, const struct descriptor *d,
                       const struct rsched_message *message, int set,
                       struct rs_rdma_writes *writes)
{
    const struct rs_rdma_op notice = {
        .opcode = RS_RDMA_WRITE,
        .stamp = RS_STAMP_EPOCH,
        .remote = d->arrived,
        .rkey = d->arrived_rkey};
    struct rsched_gpu_hold *gpu = NULL;
    struct rs_copies copies = {0};
    int error = 0;

    if (!rs_rdma_table_is_sound(&d->tables[set], meta_of(message)))
        return rs_fail(RSCHED_EMISMATCH, "it expects something else");
    writes->max_pieces = port_of(r)->max_pieces;
    if (message->bytes > 0) {
        error = rs_ring_gpu_find(&r->gpu, message, false, &gpu);
        if (error == 0)
            error = rs_rdma_regions_acquire(r->lane.link->memory, message,
                                            RS_RDMA_LOCAL, gpu, &r->send[set]);
        if (error == 0)
            error = rs_rdma_table_pair(&d->tables[set], message, NULL, &copies);
        if (error == 0)
            error = rs_rdma_writes_add_pair(writes, &copies, &r->send[set],
                                            NULL, &d->tables[set]);
        rs_copies_fini(&copies);
    }
    if (error == 0)
        error = rs_rdma_writes_add_op(writes, &notice);
    if (error == 0)
        rs_rdma_writes_finish(writes);
    return error;
}

/* The engine's lock is held. */
static int give(struct rsched_ring *r, const struct descriptor *d,
                const struct rsched_message *const send[2])
{
    const struct rs_mlx5_queue *q = (const struct rs_mlx5_queue *)r->queue;
    struct rs_rdma_writes writes[2] = {{0}};
    struct rs_gpu_lane lane = {.queue = &q->memory,
                               .arrived = arrived_of(r)};
    const struct rs_gpu_memory memory = rs_ring_gpu_memory(&r->gpu);
    int error = 0;

    if (r->for_words)
        return rs_gpu_words_create(&memory, &q->memory, d->words, d->words_rkey,
                                   d->words_bytes, &r->words);
    for (int set = 0; set < 2 && error == 0; set++) {
        error = add_message(r, d, send[set], set, &writes[set]);
        lane.ops[set] = writes[set].ops;
        lane.num_ops[set] = writes[set].num_ops;
    }
    if (error == 0)
        error = rs_gpu_ring_create(&memory, &rs_gpu_memory_plain, &lane,
                                   &r->given);
    for (int set = 0; set < 2; set++)
        rs_rdma_writes_fini(&writes[set]);
    return error;
}

int rs_mlx5_ring_join(struct rsched_ring *r,
                      const struct rsched_message *const send[2],
                      const unsigned char *descriptor)
{
    struct rs_rdma_link *link = r->lane.link;
    struct descriptor d;
    int error;

    memcpy(&d, descriptor, sizeof(d));
    if (d.hash != XXH64(&d, offsetof(struct descriptor, hash), 0))
        return fail(r, rs_fail(RSCHED_EMISMATCH, "a ring that is none"));
    if (d.for_words != r->for_words)
        return fail(r, rs_fail(RSCHED_EMISMATCH, "a ring of another kind"));
    rs_rdma_lane_lock(&r->lane);
    /* First: whatever fails from here on, either side hears of the other. */
    error = rs_rdma_link_word(link, d.last, d.last_rkey, &r->lane.last);
    if (error == 0) {
        r->joined = true;
        atomic_store(&link->in_use, true);
        error = port_of(r)->ops->queue_connect(
            r->queue, peer_address(r), &d.endpoint);
    }
    if (error == 0)
        error = check_order(r);
    if (error == 0)
        error = give(r, &d, send);
    rs_rdma_lane_unlock(&r->lane);
    return error == 0 ? 0 : fail(r, error);
}

/* ---- using ---- */

uint32_t rs_mlx5_ring_words(const struct rsched_ring *r)
{
    return rs_gpu_ring_words(r->given);
}

void rs_mlx5_ring_fill(struct rsched_ring *r, struct rsched_device_lane *lane,
                       uint32_t *table, const uint32_t *there)
{
    rs_gpu_ring_fill(r->given, lane, table, there);
}

int rs_mlx5_ring_check(struct rsched_ring *r)
{
    return rs_rdma_lane_check(&r->lane, &r->arrivals->last);
}

int rs_mlx5_ring_status(const struct rsched_ring *r,
                        const struct rsched_device_lane *lane)
{
    int error = rs_gpu_ring_check(r->given, lane);

    return error == 0 ? 0 : fail(r, error);
}

void rs_mlx5_ring_target(const struct rsched_ring *r,
                         struct rsched_device_target *target)
{
    rs_gpu_words_fill(r->words, target);
}

int rs_mlx5_ring_target_status(const struct rsched_ring *r,
                               const struct rsched_device_target *target)
{
    int error = rs_gpu_words_check(r->words, target);

    return error == 0 ? 0 : fail(r, error);
}

void rs_mlx5_ring_abandon(struct rsched_ring *r)
{
    rs_rdma_lane_abandon(&r->lane);
}

void rs_mlx5_ring_destroy(struct rsched_ring *r, enum rsched_ring_end end)
{
    rs_rdma_lane_lock(&r->lane);
    take_back(r);
    if (end != RSCHED_RING_IDLE)
        give_queue_back(r); /* it may read what the user may free now */
    if (end == RSCHED_RING_ALONE)
        r->lane.block->writer = NULL;
    release_regions(r);
    rs_rdma_lane_unlock(&r->lane);
    if (r->lane.asked_ps == 0)
        rs_rdma_lane_abandon(&r->lane);
    rs_rdma_lane_drop(&r->lane);
}
