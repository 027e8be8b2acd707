/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and destroying lanes. */
#include "engines/cuda/lane.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "librsched/base/error.h"

struct descriptor {
    uint64_t offset, bytes; /* of the block in the receiver's memory */
    uint64_t id;            /* stands in the block; self: the rx lane's address */
    uint64_t stride;
    unsigned char gpu[RSCHED_GPU_ID_BYTES]; /* of the receive buffers */
    int32_t numa_node;
    uint32_t on_gpu;
    uint64_t reserved;
};
static_assert(sizeof(struct descriptor) == RSCHED_LANE_DESCRIPTOR_BYTES,
              "wire layout");

/* Blocks of lanes that are gone, whose senders may still write them, and have
 * to see in them that we have gone. They are freed once the sender has closed,
 * or is known to be dead. */
struct late {
    struct late *next;
    struct rs_cuda_words *words;
    const struct rsched_connection *connection; /* NULL: disconnected */
};
static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;
static struct late *late_blocks;

static bool is_closed(const struct rs_cuda_words *words)
{
    /* Acquire: all that the sender wrote before it closed is over. */
    return atomic_load_explicit(&words->closed, memory_order_acquire) != 0;
}

static bool is_over(const struct late *b)
{
    return is_closed(b->words) ||
           (b->connection != NULL && rs_cuda_is_dead(b->connection));
}

/* @param gone a connection that will not be there any more, or NULL */
static void free_late_blocks(const struct rsched_connection *gone)
{
    pthread_mutex_lock(&late_lock);
    for (struct late **at = &late_blocks; *at != NULL;) {
        struct late *b = *at;

        if (is_over(b)) {
            *at = b->next;
            rsched_free(b->words);
            free(b);
            continue;
        }
        if (b->connection == gone)
            b->connection = NULL;
        at = &b->next;
    }
    pthread_mutex_unlock(&late_lock);
}

void rs_cuda_lanes_forget(const struct rsched_connection *connection)
{
    free_late_blocks(connection);
}

/* Without memory for the note the block stays for ever. */
static void keep_late_block(const struct rs_cuda_lane *l)
{
    struct late *b = calloc(1, sizeof(*b));

    if (b == NULL)
        return;
    b->words = l->words;
    b->connection = l->lane.connection;
    pthread_mutex_lock(&late_lock);
    b->next = late_blocks;
    late_blocks = b;
    pthread_mutex_unlock(&late_lock);
}

static uint64_t stride_of(const struct rsched_engine_env *env, uint64_t bytes)
{
    uint64_t most = env->chunk_bytes * RS_CUDA_CHUNKS;
    uint64_t chunk = bytes == 0 || bytes > most ? most : bytes;

    return sizeof(struct rs_cuda_slot) +
           (chunk + RS_CUDA_LINE - 1) / RS_CUDA_LINE * RS_CUDA_LINE;
}

static struct rs_cuda_lane *lane_new(struct rsched_connection *connection,
                                     const struct rsched_lane_spec *spec)
{
    struct rs_cuda_lane *l = calloc(1, sizeof(*l));

    if (l == NULL) {
        rs_fail(RSCHED_ENOMEM, "cuda: no memory for a lane");
        return NULL;
    }
    l->lane.connection = connection;
    l->group = spec->group;
    l->own_group = l->group == NULL;
    l->moves.copies.apart = l->straight.copies.apart = true;
    if (l->own_group &&
        rs_cuda_group_create(connection->engine, &l->group) != 0) {
        free(l);
        return NULL;
    }
    rs_group_join(l->group);
    return l;
}

static void set_block(struct rs_cuda_lane *l, void *address, uint64_t stride)
{
    l->words = address;
    l->slots = (char *)address + sizeof(struct rs_cuda_words);
    l->stride = stride;
}

static int make_block(struct rs_cuda_lane *l, struct descriptor *d)
{
    struct rsched_engine *engine = l->lane.connection->engine;
    int error;

    d->bytes = sizeof(struct rs_cuda_words) + RS_CUDA_SLOTS * d->stride;
    error = rs_shared_alloc(d->bytes, &l->place);
    if (error != 0)
        return error;
    /* As long as the mapping at the other side: a page more or less matters. */
    d->bytes = l->place.bytes;
    d->offset = l->place.offset;
    set_block(l, l->place.address, d->stride);
    if (getrandom(&d->id, sizeof(d->id), 0) != sizeof(d->id))
        return rs_fail(RSCHED_ESYS, "cuda: getrandom: %m");
    l->words->id = d->id;
    atomic_fetch_add_explicit(&engine->bytes, l->place.bytes,
                              memory_order_relaxed);
    return 0;
}

static void lane_free(struct rs_cuda_lane *l)
{
    rs_stream_close(&l->stream);
    rs_cuda_pull_fini(l);
    rs_mappings_fini(&l->mappings);
    rs_moves_fini(&l->moves);
    rs_group_leave(l->group);
    if (l->own_group)
        rs_cuda_group_destroy(l->group);
    free(l->message.pieces);
    rs_spans_fini(&l->message.spans);
    free(l->no_loop);
    free(l);
}

static void describe(const struct rs_cuda_end *end, struct descriptor *d)
{
    d->on_gpu = end->on_gpu;
    d->numa_node = end->numa_node;
    memcpy(d->gpu, end->id, sizeof(d->gpu));
}

static void know_peer(struct rs_cuda_lane *l, const struct descriptor *d)
{
    l->peer.on_gpu = d->on_gpu != 0;
    l->peer.numa_node = d->numa_node;
    memcpy(l->peer.id, d->gpu, sizeof(l->peer.id));
}

int rs_cuda_rx_create(struct rsched_connection *connection,
                      const struct rsched_lane_spec *spec,
                      unsigned char *descriptor, struct rsched_lane **lane)
{
    struct descriptor d = {0};
    struct rs_cuda_lane *l = lane_new(connection, spec);
    struct rs_cuda_end end = {.on_gpu = false};
    int error;

    if (l == NULL)
        return RSCHED_ENOMEM;
    free_late_blocks(NULL);
    error = rs_cuda_end_of(&spec->place, &end);
    describe(&end, &d);
    if (error == 0 && connection->self) {
        l->lane.passive = true;
        d.id = (uint64_t)(uintptr_t)l;
    } else if (error == 0) {
        d.stride = stride_of(&connection->engine->env, spec->bytes);
        error = make_block(l, &d);
        l->lane.streams = true; /* a copy has to be begun, and to be seen to
                                   have ended */
    }
    if (error != 0) {
        if (l->words != NULL)
            rsched_free(l->words);
        lane_free(l);
        return error;
    }
    memcpy(descriptor, &d, sizeof(d));
    *lane = &l->lane;
    return 0;
}

static int check_descriptor(const struct rsched_connection *c,
                            const struct descriptor *d)
{
    uint64_t size, page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct stat status;

    if (d->stride >= sizeof(struct rs_cuda_slot) + RS_CUDA_LINE &&
        d->stride % RS_CUDA_LINE == 0 && d->offset % page == 0 &&
        d->bytes > sizeof(struct rs_cuda_words) &&
        d->stride <=
            (d->bytes - sizeof(struct rs_cuda_words)) / RS_CUDA_SLOTS) {
        if (c->same_process)
            return 0;
        size = fstat(c->memory_fd, &status) == 0 ? (uint64_t)status.st_size : 0;
        if (d->bytes <= size && d->offset <= size - d->bytes)
            return 0;
    }
    return rs_fail(RSCHED_EMISMATCH,
                   "cuda: peer %d: its slots are not in its memory", c->peer);
}

static int map_block(struct rs_cuda_lane *l, const struct descriptor *d)
{
    struct rsched_connection *c = l->lane.connection;
    const struct rs_place place = {c->memory_id, d->offset, d->bytes, NULL};
    void *address = rs_shared_resolve(&place);

    if (address == NULL && c->same_process)
        return rs_fail(RSCHED_EMISMATCH,
                       "cuda: peer %d: its slots are not in its memory",
                       c->peer);
    if (address == NULL) {
        address = mmap(NULL, d->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                       c->memory_fd, (off_t)d->offset);
        if (address == MAP_FAILED)
            return rs_fail(RSCHED_ESYS, "cuda: peer %d: mapping its slots: %m",
                           c->peer);
        madvise(address, d->bytes, MADV_DONTFORK);
        l->mapped = d->bytes;
    }
    set_block(l, address, d->stride);
    return 0;
}

static void unmap_block(struct rs_cuda_lane *l)
{
    if (l->mapped > 0)
        munmap(l->words, l->mapped);
}

static int attach_peer(struct rs_cuda_lane *l, const struct descriptor *d)
{
    struct rsched_connection *c = l->lane.connection;
    int error = check_descriptor(c, d);

    if (error == 0)
        error = map_block(l, d);
    if (error != 0)
        return error;
    if (l->words->id != d->id) {
        unmap_block(l);
        return rs_fail(RSCHED_EMISMATCH,
                       "cuda: peer %d: what was mapped is no block of slots",
                       c->peer);
    }
    l->sends = true;
    know_peer(l, d);
    return 0;
}

int rs_cuda_tx_create(struct rsched_connection *connection,
                      const struct rsched_lane_spec *spec,
                      const unsigned char *descriptor, unsigned char *reply,
                      struct rsched_lane **lane)
{
    struct rs_cuda_lane *l = lane_new(connection, spec);
    struct descriptor d, own = {0};
    struct rs_cuda_end end = {.on_gpu = false};
    int error;

    if (l == NULL)
        return RSCHED_ENOMEM;
    memcpy(&d, descriptor, sizeof(d));
    error = rs_cuda_end_of(&spec->place, &end);
    describe(&end, &own);
    memcpy(reply, &own, sizeof(own));
    if (error == 0 && connection->self) {
        l->other = (struct rs_cuda_lane *)(uintptr_t)d.id;
        l->other->other = l;
    } else if (error == 0) {
        error = attach_peer(l, &d);
    }
    if (error != 0) {
        lane_free(l);
        return error;
    }
    *lane = &l->lane;
    return 0;
}

int rs_cuda_rx_attach(struct rsched_lane *lane, const unsigned char *reply)
{
    struct descriptor d;

    memcpy(&d, reply, sizeof(d));
    know_peer(rs_cuda_lane_of(lane), &d);
    return 0;
}

/* Pinning fails where there is little memory that may be locked; copies work
 * all the same, slower. Between threads of one process both ends would pin the
 * same block, and one would unpin it under the other's copies: neither does. */
static void pin(struct rs_cuda_lane *l)
{
    const struct rs_cuda_driver *driver = l->stream.driver;
    CUdeviceptr address;

    l->registered =
        l->words != NULL && !l->lane.connection->same_process &&
        driver->cuMemHostRegister(
            l->words, sizeof(*l->words) + RS_CUDA_SLOTS * l->stride,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
            CUDA_SUCCESS;
    if (l->registered && driver->cuMemHostGetDevicePointer(
                             &address, l->words, 0) == CUDA_SUCCESS)
        l->slots_of_kernel = address + sizeof(*l->words);
}

static void unpin(struct rs_cuda_lane *l)
{
    if (l->registered && rs_stream_enter(&l->stream) == 0) {
        l->stream.driver->cuMemHostUnregister(l->words);
        rs_stream_leave(&l->stream);
    }
    l->registered = false;
    l->slots_of_kernel = 0;
}

/* The lane has nothing in the batch: others may, and go on. */
static void close_stream(struct rs_cuda_lane *l)
{
    rs_stream_drain(&l->stream);
    unpin(l);
    rs_moves_withdraw(&l->moves, &l->stream);
    rs_moves_withdraw(&l->straight, &l->stream);
    rs_stream_close(&l->stream);
    l->batch = NULL;
}

bool rs_cuda_lane_takes_turns(const struct rs_cuda_lane *l)
{
    int gpu;

    return rs_stream_is_open(&l->stream) &&
           !l->lane.connection->same_process && l->peer.on_gpu &&
           rs_cuda_gpu_of(l->peer.id, &gpu) == 0 && gpu == l->stream.gpu &&
           !rs_cuda_gpu_is_served(gpu);
}

/* Copies that copy engines begin one after another in what a launch takes longer
 * than one of them: of an H100, whose first copy takes 7.0 us, a further one 1.9,
 * a launch 9.7; and a turn some 135. */
enum { LAUNCH_COPIES = 4, TURN_COPIES = 64 };

uint32_t rs_cuda_lane_launch(const struct rs_cuda_lane *l)
{
    uint32_t copies = l->in_turns ? TURN_COPIES : LAUNCH_COPIES;
    size_t lanes = l->group->num_lanes / 2; /* of a direction, with one launch */

    return lanes < 2 ? copies : (uint32_t)((copies + lanes - 1) / lanes);
}

/* Without kernels copy engines do. */
static int find_batch(struct rs_cuda_lane *l, int gpu)
{
    int error = rs_group_batch(l->group, gpu, RS_CUDA_SLOTS, &l->batch);

    return error == RSCHED_ENOTSUP ? 0 : error;
}

int rs_cuda_lane_stream(struct rs_cuda_lane *l, int gpu)
{
    int error;

    if (rs_stream_is_open(&l->stream) && l->stream.gpu == gpu)
        return 0;
    close_stream(l);
    error = rs_stream_open(&l->stream, l->lane.connection->engine, gpu);
    if (error == 0)
        error = rs_stream_enter(&l->stream);
    if (error == 0) {
        pin(l);
        rs_stream_leave(&l->stream);
        error = find_batch(l, gpu);
    }
    if (error != 0)
        close_stream(l); /* the next load tries again, with kernels */
    return error;
}

int rs_cuda_lane_fail(const struct rs_cuda_lane *l, int error)
{
    return rs_fail_within(error, "cuda: peer %d", l->lane.connection->peer);
}

/* No copy of ours touches anybody's memory from now on. */
static void give_up(struct rs_cuda_lane *l)
{
    l->abandoned = true;
    rs_batch_drain(l->batch);
    rs_stream_drain(&l->stream);
}

void rs_cuda_rx_abandon(struct rsched_lane *lane)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);

    if (l->abandoned)
        return;
    give_up(l);
    /* Release: what we did consume is told before. */
    if (l->words != NULL)
        atomic_store_explicit(&l->words->refused, 1, memory_order_release);
}

void rs_cuda_tx_abandon(struct rsched_lane *lane)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);

    if (l->abandoned)
        return;
    give_up(l);
    /* Release: the receiver, who may now use the memory for something else,
     * must not meet a write of ours after it has seen this. */
    if (l->words != NULL)
        atomic_store_explicit(&l->words->closed, 1, memory_order_release);
    /* Whoever reads what is written into our buffers after this sees that we
     * have closed: see rs_cuda_is_given_up(). */
    atomic_thread_fence(memory_order_seq_cst);
}

static int __attribute__((cold)) has_given_up(const struct rs_cuda_lane *l)
{
    return rs_fail(RSCHED_EPEER, "cuda: peer %d has given up the exchange",
                   l->lane.connection->peer);
}

int rs_cuda_rx_check(struct rsched_lane *lane)
{
    const struct rs_cuda_lane *l = rs_cuda_lane_of(lane);

    /* What a sender that has closed has had written is on its way, or is told of
     * there. */
    if (l->looping)
        return lane->beside->ops->rx_check(lane->beside);
    /* Copies out of slots that the sender has left end without it; those out
     * of its own memory are worth nothing any more. */
    if (l->words == NULL || (l->finished < l->issued && !l->pulling) ||
        !is_closed(l->words))
        return 0;
    return has_given_up(l);
}

bool rs_cuda_is_given_up(const struct rs_cuda_lane *l)
{
    /* Acquire: the copies' reads come before that of `closed`. */
    atomic_thread_fence(memory_order_acquire);
    return is_closed(l->words);
}

int rs_cuda_tx_check(struct rsched_lane *lane)
{
    const struct rs_cuda_lane *l = rs_cuda_lane_of(lane);

    /* Acquire: `consumed` is read after this. */
    if (l->words != NULL &&
        atomic_load_explicit(&l->words->refused, memory_order_acquire) != 0)
        return has_given_up(l);
    return l->step == RS_CUDA_LOOPS && lane->beside != NULL
               ? lane->beside->ops->tx_check(lane->beside)
               : 0;
}

static void release_block(struct rs_cuda_lane *l)
{
    struct rsched_connection *c = l->lane.connection;

    atomic_fetch_sub_explicit(&c->engine->bytes, l->place.bytes,
                              memory_order_relaxed);
    if (l->lane.attached && !is_closed(l->words))
        keep_late_block(l);
    else
        rsched_free(l->words);
}

void rs_cuda_rx_destroy(struct rsched_lane *lane)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);

    if (l->other != NULL)
        l->other->other = NULL;
    rs_cuda_rx_abandon(lane);
    close_stream(l);
    if (l->words != NULL)
        release_block(l);
    lane_free(l);
}

void rs_cuda_tx_destroy(struct rsched_lane *lane)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);

    if (l->other != NULL)
        l->other->other = NULL;
    rs_cuda_tx_abandon(lane);
    close_stream(l);
    unmap_block(l);
    lane_free(l);
}

struct rs_cuda_lane *rs_cuda_lane_alone(struct rsched_connection *connection,
                                        bool sends)
{
    const struct rsched_lane_spec spec = {.group = NULL};
    struct rs_cuda_lane *l = lane_new(connection, &spec);

    if (l != NULL)
        l->sends = sends;
    return l;
}

void rs_cuda_lane_alone_destroy(struct rs_cuda_lane *l)
{
    give_up(l);
    close_stream(l);
    lane_free(l);
}
