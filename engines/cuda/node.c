/* SPDX-License-Identifier: BSD-3-Clause */
/* Instances and connections. */
#include "engines/cuda/node.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engines/common/look.h"
#include "engines/common/process.h"
#include "engines/cuda/group.h"
#include "engines/cuda/lane.h"
#include "engines/cuda/order.h"
#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"

extern const struct rsched_gpu_ops rs_cuda_gpu_ops;

#define MAGIC UINT64_C(0x3161647563686373) /* "schcuda1" */

/* What a peer must know of us. */
struct address {
    uint64_t magic;
    uint64_t job;
    uint64_t node;
    uint64_t nonce;
    uint64_t memory_id;
    int32_t memory_fd;
    int32_t pid;
};
static_assert(sizeof(struct address) <= RSCHED_ENGINE_ADDRESS_BYTES,
              "wire layout");

/* Programs without GPU memory have an instance too, so it has no driver: that
 * is looked for when a lane is loaded with GPU memory. */
static int cuda_open(const struct rsched_engine_env *env,
                     struct rsched_engine **engine)
{
    struct rsched_engine *e = calloc(1, sizeof(*e));
    int error;

    if (e == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    e->env = *env;
    if (getrandom(&e->nonce, sizeof(e->nonce), 0) != sizeof(e->nonce)) {
        error = rs_fail(RSCHED_ESYS, "cuda: getrandom: %m");
        goto err_free;
    }
    error = rs_shared_open(&e->memory);
    if (error != 0)
        goto err_free;
    pthread_mutex_init(&e->lock, NULL);
    rs_hands_init(&e->hands, e->nonce);
    *engine = e;
    return 0;

err_free:
    free(e);
    return error;
}

static void let_go(struct rsched_engine *engine, int gpu)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUstreamCaptureMode mode;
    CUdevice device;

    if (engine->contexts[gpu] == NULL)
        return;
    rs_cuda_unload_kernels(engine, gpu);
    mode = rs_cuda_relax(driver);
    if (driver->cuDeviceGet(&device, gpu) == CUDA_SUCCESS)
        driver->cuDevicePrimaryCtxRelease(device);
    rs_cuda_restore(driver, mode);
}

void rs_cuda_contexts_fini(struct rsched_engine *engine)
{
    for (int gpu = 0; gpu < RS_CUDA_MOST_GPUS; gpu++)
        let_go(engine, gpu);
}

static void cuda_close(struct rsched_engine *engine)
{
    rs_cuda_orders_close();
    rs_cuda_contexts_fini(engine);
    rs_gdr_close(engine->gdr);
    free(engine->no_gdr);
    rs_shared_close();
    rs_hands_fini(&engine->hands);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

static int retain(struct rsched_engine *engine, int gpu)
{
    const struct rs_cuda_driver *driver;
    CUdevice device;
    int error = rs_cuda_driver_find(false, &driver);

    if (error == 0)
        error = rs_cuda_error(driver, driver->cuDeviceGet(&device, gpu),
                              "cuDeviceGet");
    if (error == 0) {
        CUstreamCaptureMode mode = rs_cuda_relax(driver);

        error = rs_cuda_error(driver,
                              driver->cuDevicePrimaryCtxRetain(
                                  &engine->contexts[gpu], device),
                              "cuDevicePrimaryCtxRetain");
        rs_cuda_restore(driver, mode);
    }
    return error == 0 ? 0 : rs_fail_within(error, "GPU %d", gpu);
}

int rs_cuda_context(struct rsched_engine *engine, int gpu, CUcontext *context)
{
    int error = 0;

    if (gpu < 0 || gpu >= RS_CUDA_MOST_GPUS)
        return rs_fail(RSCHED_ELIMIT, "GPU %d: at most %d are used", gpu,
                       RS_CUDA_MOST_GPUS);
    pthread_mutex_lock(&engine->lock);
    if (engine->contexts[gpu] == NULL)
        error = retain(engine, gpu);
    if (error == 0)
        *context = engine->contexts[gpu];
    pthread_mutex_unlock(&engine->lock);
    return error;
}

int rs_cuda_synchronise(struct rsched_engine *engine, int gpu,
                        const void *address)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUstreamCaptureMode mode;
    CUcontext context;
    unsigned yes = 1;
    int error = rs_cuda_context(engine, gpu, &context);

    if (error == 0)
        error = rs_cuda_error(driver, driver->cuCtxPushCurrent(context),
                              "cuCtxPushCurrent");
    if (error != 0)
        return error;
    mode = rs_cuda_relax(driver);
    /* Mapped memory and that of pools have no such attribute. */
    driver->cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                  (CUdeviceptr)(uintptr_t)address);
    rs_cuda_restore(driver, mode);
    driver->cuCtxPopCurrent(&context);
    return 0;
}

/* What is not there at first is not looked for again. */
static int find_gdr(struct rsched_engine *engine)
{
    int error = rs_gdr_open(&engine->gdr);

    if (error == RSCHED_ENOTSUP)
        engine->no_gdr = strdup(rsched_last_error());
    return error;
}

int rs_cuda_gdr(struct rsched_engine *engine, struct rs_gdr **gdr)
{
    int error = 0;

    pthread_mutex_lock(&engine->lock);
    if (engine->no_gdr != NULL)
        error = rs_fail(RSCHED_ENOTSUP, "%s", engine->no_gdr);
    else if (engine->gdr == NULL)
        error = find_gdr(engine);
    if (error == 0)
        *gdr = engine->gdr;
    pthread_mutex_unlock(&engine->lock);
    return error;
}

int rs_cuda_end_of(const struct rsched_place *place, struct rs_cuda_end *end)
{
    struct rs_cuda_end e = {.numa_node = RSCHED_NUMA_UNKNOWN};
    struct rsched_gpu gpu;

    if (place->kind == RSCHED_PLACE_GPU) {
        const struct rs_cuda_driver *driver;
        int error = rs_cuda_driver_find(false, &driver);

        if (error == 0)
            error = rs_cuda_gpu_ops.describe(place->gpu, &gpu);
        if (error != 0)
            return error;
        e.on_gpu = true;
        e.numa_node = gpu.numa_node;
        memcpy(e.id, gpu.id, sizeof(e.id));
    }
    *end = e;
    return 0;
}

int rs_cuda_gpu_of(const unsigned char *id, int *gpu)
{
    int count, error = rs_cuda_gpu_ops.open(&count);

    for (int i = 0; i < count && error == 0; i++) {
        struct rsched_gpu description;

        error = rs_cuda_gpu_ops.describe(i, &description);
        if (error == 0 && memcmp(description.id, id, RSCHED_GPU_ID_BYTES) == 0) {
            *gpu = i;
            return 0;
        }
    }
    if (error != 0)
        return error;
    return rs_fail(RSCHED_ENOTSUP, "the peer's GPU is not visible to this "
                                   "process (CUDA_VISIBLE_DEVICES)");
}

static void cuda_address(struct rsched_engine *engine, unsigned char *address)
{
    const struct address a = {
        .magic = MAGIC,
        .job = engine->env.job,
        .node = engine->env.node,
        .nonce = engine->nonce,
        .memory_id = engine->memory.id,
        .memory_fd = engine->memory.fd,
        .pid = getpid(),
    };

    memcpy(address, &a, sizeof(a));
}

/* What stands at the beginning of its memory tells. Takes the descriptor over. */
static int check_memory(struct rsched_connection *c, int fd)
{
    uint64_t head[2];

    if (pread(fd, head, sizeof(head), 0) == sizeof(head) &&
        head[0] == RS_SHARED_MAGIC && head[1] == c->memory_id) {
        c->memory_fd = fd;
        return 0;
    }
    close(fd);
    return rs_fail(RSCHED_EUNREACH,
                   "cuda: peer %d: what was opened is not its memory", c->peer);
}

/* A process of another node, or of another PID namespace, has another process's
 * number or none. */
static int open_peer(struct rsched_connection *c, const struct address *a)
{
    char path[64];
    int fd, error;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", a->pid, a->memory_fd);
    fd = rs_descriptor_keep(
        open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd < 0)
        return rs_fail(RSCHED_EUNREACH,
                       "cuda: peer %d: cannot open its memory (%s): %m",
                       c->peer, path);
    error = check_memory(c, fd);
    if (error != 0)
        return error;
    c->pid = a->pid;
    c->pidfd = rs_descriptor_keep((int)syscall(SYS_pidfd_open, a->pid, 0));
    return 0;
}

/* @return 0, or -1 with errno */
static int hand_over(struct rsched_connection *c)
{
    struct rsched_engine *engine = c->engine;
    int result, own[RS_HAND_FDS] = {engine->memory.fd,
                                    rs_cuda_notes_open(&c->notes)};

    if (own[1] < 0)
        return -1;
    result = rs_hands_send(&engine->hands, c->nonce, own);
    if (result != 0)
        rs_cuda_notes_fini(&c->notes); /* leaves errno alone */
    close(own[1]);
    return result;
}

/* Through /proc, or by sockets, which notes go through, too: one is enough. Whoever
 * is in other namespaces, or must not be dumped, may be able to open us while we
 * cannot open him, or the other way round. */
static int reach_peer(struct rsched_connection *c, const struct address *a)
{
    int error = open_peer(c, a);

    if (hand_over(c) == 0 || error == 0)
        return 0;
    return rs_fail(error, "%s, and no socket leads to it: %s",
                   rsched_last_error(), strerror(errno));
}

static int check_address(const struct rsched_engine *engine, int peer,
                         const struct address *a)
{
    if (a->magic != MAGIC)
        return rs_fail(RSCHED_EUNREACH,
                       "cuda: peer %d was built without cuda.h", peer);
    if (a->job != engine->env.job)
        return rs_fail(RSCHED_EUNREACH, "cuda: peer %d is of another job",
                       peer);
    if (a->node != engine->env.node)
        return rs_fail(RSCHED_EUNREACH,
                       "cuda: peer %d is on another node (RSCHED_NODE), and GPU "
                       "memory moves within a node only", peer);
    return 0;
}

static int cuda_connect(struct rsched_engine *engine, int peer,
                        const unsigned char *address,
                        struct rsched_connection **connection)
{
    struct rsched_connection *c;
    struct address a;
    int error;

    memcpy(&a, address, sizeof(a));
    error = check_address(engine, peer, &a);
    if (error != 0)
        return error;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    *c = (struct rsched_connection){.engine = engine,
                                    .peer = peer,
                                    .self = a.nonce == engine->nonce,
                                    .pidfd = -1,
                                    .memory_fd = -1,
                                    .memory_id = a.memory_id,
                                    .nonce = a.nonce};
    rs_cuda_notes_init(&c->notes);
    c->same_process = c->self || a.memory_id == engine->memory.id;
    if (!c->same_process)
        error = reach_peer(c, &a);
    if (error != 0) {
        free(c);
        return error;
    }
    *connection = c;
    return 0;
}

/* What the peer needs of us it has opened, or it is in its socket's queue. */
static void cuda_offer(struct rsched_connection *connection,
                       unsigned char *offer)
{
    (void)connection;
    memset(offer, 0, RSCHED_ENGINE_OFFER_BYTES);
}

/* What the peer has handed over is needed where it could not be opened, but for its
 * socket. */
static int take_over(struct rsched_connection *c, struct rs_hand *hand)
{
    int error = 0;

    c->notes.in = hand->fds[1];
    hand->fds[1] = -1;
    if (c->memory_fd >= 0)
        return 0;
    error = check_memory(c, hand->fds[0]);
    hand->fds[0] = -1;
    if (error != 0)
        return error;
    c->pid = hand->pid;
    c->pidfd = hand->pidfd;
    hand->pidfd = -1;
    return 0;
}

static int cuda_accept(struct rsched_connection *connection,
                       const unsigned char *offer)
{
    struct rs_hand *hand;
    int error = 0;

    (void)offer;
    if (connection->same_process)
        return 0;
    hand = rs_hands_take(&connection->engine->hands, connection->nonce);
    if (hand != NULL) {
        error = take_over(connection, hand);
        rs_hand_destroy(hand);
    } else if (connection->memory_fd < 0) {
        error = rs_fail(RSCHED_EUNREACH,
                        "cuda: peer %d, which cannot be opened, has not handed "
                        "over its memory", connection->peer);
    }
    return error;
}

static void cuda_collect(struct rsched_engine *engine)
{
    rs_hands_collect(&engine->hands);
}

static uint32_t cuda_rails(const struct rsched_connection *connection)
{
    (void)connection;
    return 1;
}

static void cuda_disconnect(struct rsched_connection *connection)
{
    rs_cuda_lanes_forget(connection);
    if (connection->pidfd >= 0)
        close(connection->pidfd);
    if (connection->memory_fd >= 0)
        close(connection->memory_fd);
    rs_cuda_notes_fini(&connection->notes);
    free(connection);
}

bool rs_cuda_is_dead(const struct rsched_connection *connection)
{
    return !connection->same_process &&
           rs_process_is_dead(connection->pid, connection->pidfd);
}

static bool cuda_is_whole(const struct rsched_connection *connection)
{
    return !rs_cuda_is_dead(connection);
}

static int cuda_check(struct rsched_connection *connection)
{
    if (!rs_cuda_is_dead(connection))
        return 0;
    return rs_fail(RSCHED_EPEER, "cuda: peer %d (pid %d) is dead",
                   connection->peer, (int)connection->pid);
}

/* The end of a copy rings no bell. */
static void cuda_sleep(struct rsched_engine *engine,
                       const struct rsched_lane *lane, uint64_t limit_ps,
                       bool (*ready)(void *arg), void *arg)
{
    (void)engine;
    (void)lane;
    rs_look_until(limit_ps, ready, arg);
}

static uint64_t cuda_memory(struct rsched_engine *engine)
{
    return atomic_load_explicit(&engine->bytes, memory_order_relaxed);
}

static uint64_t cuda_wakes(struct rsched_engine *engine)
{
    (void)engine;
    return 0;
}

extern const struct rsched_engine_ops rs_cuda_ops;

const struct rsched_engine_ops rs_cuda_ops = {
    .name = "cuda",
    .help = "GPU memory within a process and a node: CUDA IPC, copies staged through host memory, by GDRCopy too",
    .within_node = true,
    .gpus = true,
    .accept = cuda_accept,
    .address = cuda_address,
    .check = cuda_check,
    .close = cuda_close,
    .collect = cuda_collect,
    .connect = cuda_connect,
    .disconnect = cuda_disconnect,
    .group_create = rs_cuda_group_create,
    .group_destroy = rs_cuda_group_destroy,
    .group_flush = rs_cuda_group_flush,
    .is_whole = cuda_is_whole,
    .memory = cuda_memory,
    .offer = cuda_offer,
    .open = cuda_open,
    .rails = cuda_rails,
    .rx_abandon = rs_cuda_rx_abandon,
    .rx_attach = rs_cuda_rx_attach,
    .rx_check = rs_cuda_rx_check,
    .rx_create = rs_cuda_rx_create,
    .rx_destroy = rs_cuda_rx_destroy,
    .rx_load = rs_cuda_rx_load,
    .rx_progress = rs_cuda_rx_progress,
    .rx_start = rs_cuda_rx_start,
    .sleep = cuda_sleep,
    .tx_abandon = rs_cuda_tx_abandon,
    .tx_check = rs_cuda_tx_check,
    .tx_create = rs_cuda_tx_create,
    .tx_destroy = rs_cuda_tx_destroy,
    .tx_load = rs_cuda_tx_load,
    .tx_progress = rs_cuda_tx_progress,
    .tx_rank = rs_cuda_tx_rank,
    .tx_start = rs_cuda_tx_start,
    .wakes = cuda_wakes,
};
