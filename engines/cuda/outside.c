/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages outside of exchanges: struct rsched_gpu_pull_ops of rsched/pull.h. A
 * source, and a target, is a lane that has no slots; pull.c makes and opens its
 * tables. */
#include <rsched/pull.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engines/common/table.h"
#include "engines/cuda/lane.h"
#include "librsched/base/allocations.h"
#include "librsched/base/config.h"
#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"

extern const struct rsched_gpu_ops rs_cuda_gpu_ops;

enum { MOST_GPUS = 60 }; /* bits of a word, with kinds of handles above them */

struct rsched_gpu_peer {
    struct rsched_connection connection;
};

struct rsched_gpu_source {
    struct rs_pieces pieces;
    uint64_t bytes;
    struct rs_allocations allocations; /* that the table is of */
    bool loaded;          /* there is one */
    uint64_t version;     /* of the lane's table, at the last notice */
    struct rsched_pull_notice notice;
    uint64_t needs;
    struct rs_cuda_lane *lane;
};

struct rsched_gpu_target {
    struct rs_pieces pieces;
    uint64_t bytes;
    int gpu;              /* that copies for host memory; below 0: the sender's */
    struct rs_pieces cut; /* what the lane's message is made of, and then: */
    uint64_t loaded;      /* bytes of it; 0: none */
    struct rs_allocations allocations;
    bool spreads; /* the copies out of `memory` are made, too */
    char *memory;
    bool pinned;
    struct rs_begun begun;
    struct rs_cuda_lane *lane;
};

/* ---- peers ---- */

/* Contexts and kernels that all of them share; no engine of a context's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rsched_engine engine;
static unsigned users;

static int engine_get(void)
{
    int error = 0;

    pthread_mutex_lock(&lock);
    if (users == 0) {
        engine = (struct rsched_engine){.gdr = NULL};
        /* Whoever has memory of ours open knows us by this. */
        error = rs_shared_open(&engine.memory);
        if (error == 0)
            pthread_mutex_init(&engine.lock, NULL);
    }
    users += error == 0;
    pthread_mutex_unlock(&lock);
    return error;
}

static void engine_put(void)
{
    pthread_mutex_lock(&lock);
    if (--users == 0) {
        rs_cuda_contexts_fini(&engine);
        rs_shared_close();
        pthread_mutex_destroy(&engine.lock);
    }
    pthread_mutex_unlock(&lock);
}

static int peer_create(pid_t pid, bool itself, struct rsched_gpu_peer **peer)
{
    struct rsched_gpu_peer *p = calloc(1, sizeof(*p));
    int error;

    if (p == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    error = engine_get();
    if (error != 0) {
        free(p);
        return error;
    }
    p->connection = (struct rsched_connection){.engine = &engine,
                                               .same_process = itself,
                                               .pid = pid,
                                               .pidfd = -1,
                                               .memory_fd = -1};
    rs_cuda_notes_init(&p->connection.notes);
    if (pid > 0 && !itself)
        p->connection.pidfd =
            rs_descriptor_keep((int)syscall(SYS_pidfd_open, pid, 0));
    *peer = p;
    return 0;
}

static void peer_destroy(struct rsched_gpu_peer *p)
{
    if (p == NULL)
        return;
    if (p->connection.pidfd >= 0)
        close(p->connection.pidfd);
    free(p);
    engine_put();
}

/* ---- both ends ---- */

/* All of a piece lies in one allocation. */
static int find_allocations(const struct rs_pieces *pieces,
                            struct rs_allocations *a)
{
    rs_allocations_fini(a);
    for (size_t i = 0; i < pieces->number; i++) {
        if (!rs_allocations_add(a, rs_cuda_gpu_ops.allocation,
                                pieces->at[i].address))
            return rs_fail(RSCHED_ENOMEM, "cuda: no memory for allocations");
    }
    return 0;
}

static bool are_in_place(const struct rs_allocations *a)
{
    return rs_allocations_stay(a, rs_cuda_gpu_ops.allocation);
}

static int check_way(void)
{
    if (rs_config()->gpu_way == RS_CONFIG_GPU_WAY_AUTO ||
        rs_config()->gpu_way == RS_CONFIG_GPU_WAY_IPC)
        return 0;
    return rs_fail(RSCHED_ENOTSUP, "RSCHED_GPU_WAY wants another way");
}

/* ---- sources ---- */

static void source_destroy(struct rsched_gpu_source *s)
{
    if (s == NULL)
        return;
    if (s->lane != NULL)
        rs_cuda_lane_alone_destroy(s->lane);
    rs_allocations_fini(&s->allocations);
    free(s->pieces.at);
    free(s);
}

static int source_create(struct rsched_gpu_peer *peer,
                         const struct rsched_message *message,
                         struct rsched_gpu_source **source)
{
    struct rsched_gpu_source *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for a source");
    s->bytes = message->bytes;
    s->lane = rs_cuda_lane_alone(&peer->connection, true);
    if (s->lane == NULL || rs_pieces_copy(message, &s->pieces) != 0) {
        source_destroy(s);
        return RSCHED_ENOMEM;
    }
    *source = s;
    return 0;
}

static int make_table(struct rsched_gpu_source *s)
{
    const struct rsched_message message =
        rs_pieces_message(&s->pieces, s->bytes);
    struct rs_cuda_lane *l = s->lane;
    int error = find_allocations(&s->pieces, &s->allocations);

    if (error == 0)
        error = rs_cuda_keep_message(&engine, &l->message, &message);
    if (error == 0 && !l->message.one_gpu)
        error = rs_fail(RSCHED_ENOTSUP,
                        "a message that does not lie in memory of one GPU");
    if (error == 0 && l->message.gpu >= MOST_GPUS)
        error = rs_fail(RSCHED_ELIMIT, "more than %d GPUs", MOST_GPUS);
    if (error == 0)
        error = rs_cuda_pull_load(l);
    if (error != 0)
        return error;
    s->needs = UINT64_C(1) << l->message.gpu;
    for (size_t i = 0; i < l->num_regions; i++)
        s->needs |= UINT64_C(1) << (MOST_GPUS + l->regions[i].kind);
    return 0;
}

static void give_notice(struct rsched_gpu_source *s)
{
    /* Of all sources: a target may be sent messages of several. */
    static atomic_uint_fast64_t versions;
    const struct rs_cuda_lane *l = s->lane;

    s->version = l->version;
    s->notice = (struct rsched_pull_notice){
        (uint64_t)(uintptr_t)l->table, l->table_bytes,
        atomic_fetch_add_explicit(&versions, 1, memory_order_relaxed) + 1};
}

static int source_load(struct rsched_gpu_source *s,
                       struct rsched_pull_notice *notice, uint64_t *needs)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUstreamCaptureMode mode;
    int error = check_way();

    if (error == 0 && driver == NULL)
        error = rs_fail(RSCHED_ENOTSUP, "no driver");
    if (error != 0)
        return error;
    if (!s->loaded || !are_in_place(&s->allocations)) {
        s->loaded = false;
        mode = rs_cuda_relax(driver);
        error = make_table(s);
        rs_cuda_restore(driver, mode);
        if (error != 0)
            return error;
        s->loaded = true;
    }
    if (s->version != s->lane->version)
        give_notice(s);
    *notice = s->notice;
    *needs = s->needs;
    return 0;
}

/* ---- targets ---- */

static uint64_t whole_pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

static void target_destroy(struct rsched_gpu_target *t)
{
    if (t == NULL)
        return;
    if (t->lane != NULL) {
        rs_batch_drain(t->lane->batch);
        rs_stream_drain(&t->lane->stream);
    }
    if (t->pinned && rs_stream_is_open(&t->lane->stream) &&
        rs_stream_enter(&t->lane->stream) == 0) {
        t->lane->stream.driver->cuMemHostUnregister(t->memory);
        rs_stream_leave(&t->lane->stream);
    }
    if (t->memory != NULL)
        munmap(t->memory, whole_pages(t->bytes));
    if (t->lane != NULL)
        rs_cuda_lane_alone_destroy(t->lane);
    rs_allocations_fini(&t->allocations);
    free(t->cut.at);
    free(t->pieces.at);
    free(t);
}

/* Have the first `bytes` in the lane. */
static int load(struct rsched_gpu_target *t, uint64_t bytes)
{
    struct rsched_message message =
        rs_pieces_message(&t->pieces, t->bytes);
    struct rs_cuda_lane *l = t->lane;
    size_t last;
    int error;

    if (t->loaded == bytes && are_in_place(&t->allocations))
        return 0;
    t->loaded = 0;
    t->spreads = false;
    t->cut.number = 0;
    rs_cuda_pull_forget(l);
    error = find_allocations(&t->pieces, &t->allocations);
    if (error == 0)
        error = rs_pieces_copy(&message, &t->cut);
    if (error == 0)
        error = rs_pieces_cut(&t->cut, bytes, &last);
    message = rs_pieces_message(&t->cut, bytes);
    if (error == 0)
        error = rs_cuda_keep_message(&engine, &l->message, &message);
    if (error == 0 && l->message.on_gpu && !l->message.one_gpu)
        error = rs_fail(RSCHED_ENOTSUP, "a message that does not lie in memory "
                                        "of one kind");
    if (error == 0 && l->message.on_gpu)
        error = rs_cuda_lane_stream(l, l->message.gpu);
    if (error != 0)
        return error;
    t->loaded = bytes;
    return 0;
}

static int target_create(struct rsched_gpu_peer *peer,
                         const struct rsched_message *message, int gpu,
                         struct rsched_gpu_target **target)
{
    struct rsched_gpu_target *t = calloc(1, sizeof(*t));
    int error;

    if (t == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for a target");
    t->bytes = message->bytes;
    t->gpu = gpu;
    t->lane = rs_cuda_lane_alone(&peer->connection, false);
    error = t->lane == NULL ? RSCHED_ENOMEM
                            : rs_pieces_copy(message, &t->pieces);
    if (error == 0)
        error = load(t, t->bytes);
    if (error != 0) {
        target_destroy(t);
        return error;
    }
    *target = t;
    return 0;
}

/* Take the sender's table, if it is another one. */
static int fetch(struct rsched_gpu_target *t,
                 const struct rsched_pull_notice *notice)
{
    const struct rsched_connection *c = t->lane->lane.connection;
    const struct rs_cuda_slot slot = {.version = notice->version,
                                      .table = notice->bytes,
                                      .part = (uint32_t)notice->bytes};
    void *table;
    int error;

    if (notice->version == t->lane->version)
        return 0;
    error = rs_table_fetch(c->same_process ? 0 : c->pid, notice, &table);
    if (error != 0)
        return error;
    t->lane->stride = sizeof(slot) + notice->bytes;
    error = rs_cuda_pull_take(t->lane, &slot, table);
    free(table);
    return error;
}

/* A stream of the GPU that copies, and the sender's table. */
static int prepare(struct rsched_gpu_target *t,
                   const struct rsched_pull_notice *notice)
{
    struct rs_cuda_lane *l = t->lane;
    int error = fetch(t, notice);

    if (error != 0 || l->message.on_gpu)
        return error;
    return t->gpu >= 0 ? rs_cuda_lane_stream(l, t->gpu)
                       : rs_cuda_pull_stream(l);
}

static int reach(struct rsched_gpu_target *t,
                 int (*open_table)(struct rs_cuda_lane *l))
{
    struct rs_cuda_lane *l = t->lane;
    int error = rs_stream_enter(&l->stream);

    if (error != 0)
        return error;
    error = open_table(l);
    if (error != 0 && rs_cuda_pull_close_stale(l))
        error = open_table(l);
    rs_stream_leave(&l->stream);
    return error;
}

static int target_open(struct rsched_gpu_target *t,
                       const struct rsched_pull_notice *notice)
{
    int error = check_way();

    if (error == 0)
        error = prepare(t, notice);
    if (error == 0)
        error = reach(t, rs_cuda_pull_reach);
    rs_cuda_pull_tidy(t->lane);
    return error;
}

/* What was enqueued before an error is waited for: the caller's memory may be
 * used for something else then. */
static int give_up(struct rsched_gpu_target *t, int error)
{
    rs_batch_drain(t->lane->batch);
    rs_stream_drain(&t->lane->stream);
    t->begun = (struct rs_begun){0};
    return error;
}

static int begin(struct rsched_gpu_target *t, const struct rs_moves *m)
{
    struct rs_cuda_lane *l = t->lane;
    int error = rs_stream_enter(&l->stream);

    if (error != 0)
        return error;
    error = rs_moves_begin(m, 0, t->memory, l->slots_of_kernel, &l->stream,
                           l->batch, &t->begun);
    if (error == 0 && t->begun.enqueued)
        error = rs_stream_mark(&l->stream, 0);
    rs_stream_leave(&l->stream);
    if (error == 0)
        error = rs_cuda_group_flush(l->group);
    return error == 0 ? 0 : give_up(t, error);
}

static int target_pull(struct rsched_gpu_target *t,
                       const struct rsched_pull_notice *notice, uint64_t bytes)
{
    int error = load(t, bytes);

    if (error == 0)
        error = prepare(t, notice);
    if (error == 0)
        error = reach(t, rs_cuda_pull_open);
    rs_cuda_pull_tidy(t->lane);
    return error == 0 ? begin(t, &t->lane->straight) : error;
}

static int target_memory(struct rsched_gpu_target *t, void **memory)
{
    uint64_t bytes = whole_pages(t->bytes);
    struct rs_cuda_lane *l = t->lane;
    CUdeviceptr address;
    void *made;

    if (t->memory == NULL) {
        made = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (made == MAP_FAILED)
            return rs_fail(RSCHED_ENOMEM, "%llu bytes to copy through: %m",
                           (unsigned long long)bytes);
        t->memory = made;
    }
    if (!t->pinned && rs_stream_is_open(&l->stream) &&
        rs_stream_enter(&l->stream) == 0) {
        t->pinned = l->stream.driver->cuMemHostRegister(
                        t->memory, bytes,
                        CU_MEMHOSTREGISTER_PORTABLE |
                            CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS;
        if (t->pinned && l->stream.driver->cuMemHostGetDevicePointer(
                             &address, t->memory, 0) == CUDA_SUCCESS)
            l->slots_of_kernel = address;
        rs_stream_leave(&l->stream);
    }
    *memory = t->memory;
    return 0;
}

static int compile_spread(struct rsched_gpu_target *t)
{
    const struct rsched_message message =
        rs_pieces_message(&t->cut, t->loaded);
    struct rs_cuda_lane *l = t->lane;
    int error;

    if (t->spreads)
        return 0;
    error = rs_copies_compile(&l->moves.copies, &message, t->loaded);
    if (error == 0)
        error = rs_moves_compile(&l->moves, RS_UNPACKS, rs_cuda_mover_of_slots,
                                 l, rs_cuda_lane_launch(l), &l->stream);
    t->spreads = error == 0;
    return error;
}

static int target_spread(struct rsched_gpu_target *t, uint64_t bytes)
{
    int error = load(t, bytes);

    if (error == 0)
        error = compile_spread(t);
    return error == 0 ? begin(t, &t->lane->moves) : error;
}

static int target_poll(struct rsched_gpu_target *t)
{
    struct rs_cuda_lane *l = t->lane;
    int status;

    if (t->begun.ticket != 0) {
        status = rs_cuda_group_flush(l->group);
        if (status != 0)
            return give_up(t, status);
        if (!rs_batch_is_done(l->batch, t->begun.ticket))
            return RSCHED_LANE_PENDING;
    }
    if (!t->begun.enqueued)
        return RSCHED_LANE_DONE;
    status = rs_stream_enter(&l->stream);
    if (status == 0) {
        status = rs_stream_poll(&l->stream, 0);
        rs_stream_leave(&l->stream);
    }
    if (status == RSCHED_LANE_DONE)
        l->stream.busy = false;
    return status < 0 ? give_up(t, status) : status;
}

const struct rsched_gpu_pull_ops rs_cuda_pull_ops = {
    .peer_create = peer_create,
    .peer_destroy = peer_destroy,
    .source_create = source_create,
    .source_load = source_load,
    .source_destroy = source_destroy,
    .target_create = target_create,
    .target_open = target_open,
    .target_pull = target_pull,
    .target_memory = target_memory,
    .target_spread = target_spread,
    .target_poll = target_poll,
    .target_destroy = target_destroy,
};
