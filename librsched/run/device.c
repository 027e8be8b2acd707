/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges opened for kernels, by the proxy: a kernel's start is a request in a
 * ring, which a thread of the opening looks at; it starts the exchange of that
 * epoch, as its program would, and goes on with it.
 *
 * For rsched/device.h the two exchanges are one with a single lane: `completed`
 * is also the word by which neighbors announce themselves, as an epoch is only
 * complete when all has come. What the kernel writes, and what it looks at often
 * while nothing happens, lies on either side of the bus:
 *
 *   in GPU memory   the view, the ring's head and its counter: the kernel's own
 *   in host memory  lane, requests, what has been taken, the word that stops;
 *                   each is written by one side only
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rsched/device.h>
#include <rsched/device_open.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/run/run.h"

/* A kernel has one epoch under way. */
enum { REQUESTS = 2 };

struct in_host {
    _Alignas(64) struct rsched_device_lane lane;
    _Alignas(64) struct rsched_device_request requests[REQUESTS];
    _Alignas(64) uint64_t taken;
    int32_t stop;
};

struct in_gpu {
    struct rsched_device_exchange view;
    struct rsched_device_proxy proxy;
    uint64_t asked;
};

struct rsched_opening {
    struct rsched_exchange *sets[2];
    const struct rsched_gpu_ops *gpus; /* NULL: processors */
    struct rsched_gpu_memory memory;
    struct in_host *host;
    pthread_t thread;
    atomic_bool end;        /* of the thread */
    bool active;            /* thread: an epoch is under way */
    atomic_uint_fast64_t asked, completed;
    pthread_mutex_t lock;   /* guards what follows */
    int error;
    char *text;
};

/* ---- memory ---- */

/* Processors in the place of a GPU: all memory is theirs. */
static int plain_create(struct rsched_gpu_memory *m, uint64_t host_bytes,
                        uint64_t gpu_bytes)
{
    void *host = aligned_alloc(64, (host_bytes + 63) / 64 * 64);
    void *gpu = malloc(gpu_bytes);

    if (host == NULL || gpu == NULL) {
        free(host);
        free(gpu);
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    }
    *m = (struct rsched_gpu_memory){.host = host,
                                    .host_of_kernels = (uintptr_t)host,
                                    .gpu = (uintptr_t)gpu};
    return 0;
}

static int create_memory(struct rsched_opening *o, int gpu)
{
    if (o->gpus == NULL)
        return plain_create(&o->memory, sizeof(*o->host),
                            sizeof(struct in_gpu));
    return o->gpus->memory_create(gpu, sizeof(*o->host), sizeof(struct in_gpu),
                                  &o->memory);
}

static void destroy_memory(struct rsched_opening *o)
{
    if (o->gpus != NULL) {
        o->gpus->memory_destroy(&o->memory);
    } else {
        free(o->memory.host);
        free((void *)(uintptr_t)o->memory.gpu);
    }
}

#define OF_KERNELS(address) ((void *)(uintptr_t)(address))

static int fill_memory(struct rsched_opening *o)
{
    uint64_t host = o->memory.host_of_kernels, gpu = o->memory.gpu;
    const struct in_gpu image = {
        .view = {.proxied = OF_KERNELS(host + offsetof(struct in_host, lane)),
                 .num_proxied = 1,
                 .stop = OF_KERNELS(host + offsetof(struct in_host, stop)),
                 .proxy = OF_KERNELS(gpu + offsetof(struct in_gpu, proxy))},
        .proxy = {
            .requests =
                OF_KERNELS(host + offsetof(struct in_host, requests)),
            .mask = REQUESTS - 1,
            .asked = OF_KERNELS(gpu + offsetof(struct in_gpu, asked)),
            .taken = OF_KERNELS(host + offsetof(struct in_host, taken)),
            .stop = OF_KERNELS(host + offsetof(struct in_host, stop))}};

    o->host = o->memory.host;
    memset(o->host, 0, sizeof(*o->host));
    o->host->lane.arrived =
        OF_KERNELS(host + offsetof(struct in_host, lane) +
                   offsetof(struct rsched_device_lane, completed));
    if (o->gpus != NULL)
        return o->gpus->memory_fill(&o->memory, &image, sizeof(image));
    memcpy((void *)(uintptr_t)gpu, &image, sizeof(image));
    return 0;
}

/* ---- the thread ---- */

/* The first one counts. */
static void keep_error(struct rsched_opening *o, int error, const char *text)
{
    pthread_mutex_lock(&o->lock);
    if (o->error == 0) {
        o->error = error;
        o->text = strdup(text);
    }
    /* Release: whoever has the code from a kernel finds the text. */
    rsched_device_store32((uint32_t *)&o->host->lane.status,
                          (uint32_t)o->error);
    pthread_mutex_unlock(&o->lock);
}

static void fail(struct rsched_opening *o, int error)
{
    keep_error(o, error, rsched_last_error());
    o->active = false;
}

static bool is_over(const struct rsched_opening *o)
{
    return rsched_device_load32((const uint32_t *)&o->host->lane.status) != 0;
}

/* @return whether the kernel has started an epoch */
static bool take(struct rsched_opening *o)
{
    uint64_t number = o->host->taken; /* written by this thread only */
    const struct rsched_device_request *r =
        &o->host->requests[number % REQUESTS];
    uint64_t kind, epoch;
    int error;

    /* Acquire: the request, and what the kernel has written to the send
     * buffers, was written before its turn. */
    if (rsched_device_load(&r->turn) != number + 1)
        return false;
    kind = r->kind;
    epoch = r->value;
    /* Release: the request has been read before another takes its place. */
    rsched_device_store(&o->host->taken, number + 1);
    if (kind != RSCHED_DEVICE_START || is_over(o))
        return true;
    atomic_fetch_add_explicit(&o->asked, 1, memory_order_relaxed);
    error = rsched_exchange_start(o->sets[epoch % 2]);
    o->active = error == 0;
    if (error != 0)
        fail(o, error);
    return true;
}

/* @return whether the epoch has come to its end */
static bool go_on(struct rsched_opening *o)
{
    uint64_t epoch =
        atomic_load_explicit(&o->completed, memory_order_relaxed);
    bool done;
    int error = rsched_exchange_test(o->sets[epoch % 2], &done);

    if (error != 0) {
        fail(o, error);
        return true;
    }
    if (!done)
        return false;
    o->active = false;
    atomic_store_explicit(&o->completed, epoch + 1, memory_order_relaxed);
    /* Release: what has come is seen by a kernel that sees this. */
    rsched_device_store(&o->host->lane.completed, epoch + 1);
    return true;
}

/* A kernel cannot wake anybody: look often at first, then less often. */
static void pause_after(unsigned vain)
{
    enum { SPINS = 200, YIELDS = 2000 };
    const struct timespec slice = {.tv_nsec = 50000};

    if (vain < SPINS)
        rs_cpu_relax();
    else if (vain < YIELDS)
        sched_yield();
    else
        nanosleep(&slice, NULL);
}

static void *thread_main(void *arg)
{
    struct rsched_opening *o = arg;
    unsigned vain = 0;

    while (!atomic_load_explicit(&o->end, memory_order_acquire)) {
        bool moved = o->active ? go_on(o) : take(o);

        vain = moved ? 0 : vain + (vain < UINT32_MAX);
        if (!moved)
            pause_after(vain);
    }
    return NULL;
}

static int start_thread(struct rsched_opening *o)
{
    sigset_t all, old;
    int error;

    /* Signals are the application's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&o->thread, NULL, thread_main, o);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error == 0 ? 0
                      : rs_fail(RSCHED_ESYS, "the thread of an opening: %s",
                                strerror(error));
}

/* ---- opening ---- */

static int check_set(struct rsched_exchange *x)
{
    unsigned long long tag = x->tag;

    rs_exchange_own(x);
    if (x->error != 0)
        return rs_exchange_failed(x);
    if (x->open)
        return rs_fail(RSCHED_ESTATE, "exchange %llu: opened twice", tag);
    if (x->order != NULL)
        return rs_fail(RSCHED_ESTATE,
                       "exchange %llu: opened for kernels after a start on a "
                       "stream", tag);
    if (x->active || !x->loaded)
        return rs_fail(RSCHED_ESTATE, "exchange %llu: opened for kernels while "
                                      "%s",
                       tag, x->active ? "active" : "nothing is loaded");
    return 0;
}

static int check_sets(struct rsched_exchange *const sets[2])
{
    int error = 0;

    if (sets[0] == NULL || sets[1] == NULL || sets[0] == sets[1] ||
        sets[0]->context != sets[1]->context)
        return rs_fail(RSCHED_EINVAL, "kernels need two exchanges of one "
                                      "context, of even and of odd epochs");
    if (rs_config()->progress_ps == 0)
        return rs_fail(RSCHED_ENOTSUP, "exchanges for kernels need a thread "
                                       "(RSCHED_PROGRESS)");
    for (int i = 0; i < 2 && error == 0; i++)
        error = check_set(sets[i]);
    return error;
}

static int find_gpus(int gpu, const struct rsched_gpu_ops **gpus)
{
    *gpus = NULL;
    if (gpu == RSCHED_NO_GPU)
        return 0;
    if (gpu < 0)
        return rs_fail(RSCHED_EINVAL, "GPU %d: no such number", gpu);
    if (rsched_gpus() == NULL)
        return rs_fail(RSCHED_ENOTSUP, "exchanges for kernels: built without "
                                       "cuda.h");
    if (!rsched_gpus()->attach())
        return rs_fail(RSCHED_ENOTSUP, "exchanges for kernels: no driver of "
                                       "GPUs is loaded");
    *gpus = rsched_gpus();
    return 0;
}

int rsched_exchange_open_device(struct rsched_exchange *const sets[2], int gpu,
                                struct rsched_opening **opening)
{
    const struct rsched_gpu_ops *gpus;
    struct rsched_opening *o;
    int error = check_sets(sets);

    if (error == 0)
        error = find_gpus(gpu, &gpus);
    if (error != 0)
        return error;
    o = calloc(1, sizeof(*o));
    if (o == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    o->gpus = gpus;
    o->sets[0] = sets[0];
    o->sets[1] = sets[1];
    error = create_memory(o, gpu);
    if (error != 0)
        goto err_free;
    pthread_mutex_init(&o->lock, NULL);
    error = fill_memory(o);
    if (error == 0)
        error = start_thread(o);
    if (error != 0)
        goto err_memory;
    sets[0]->open = sets[1]->open = true;
    *opening = o;
    return 0;

err_memory:
    pthread_mutex_destroy(&o->lock);
    destroy_memory(o);
err_free:
    free(o);
    return error;
}

struct rsched_device_exchange *
rsched_opening_view(const struct rsched_opening *o)
{
    return OF_KERNELS(o->memory.gpu + offsetof(struct in_gpu, view));
}

void rsched_opening_stop(struct rsched_opening *o, int error)
{
    char text[80];

    snprintf(text, sizeof(text), "the program has stopped its kernels: %s",
             rsched_strerror(error));
    keep_error(o, error, text);
    /* For who waits for room in the ring. */
    rsched_device_store32((uint32_t *)&o->host->stop, (uint32_t)error);
}

int rsched_opening_check(struct rsched_opening *o)
{
    int error;

    pthread_mutex_lock(&o->lock);
    error = o->error == 0
                ? 0
                : rs_fail(o->error, "%s", o->text != NULL ? o->text : "failed");
    pthread_mutex_unlock(&o->lock);
    return error;
}

void rsched_opening_get_stats(const struct rsched_opening *o,
                              struct rsched_opening_stats *stats)
{
    stats->asked = atomic_load_explicit(&o->asked, memory_order_relaxed);
    stats->completed =
        atomic_load_explicit(&o->completed, memory_order_relaxed);
}

void rsched_opening_close(struct rsched_opening *o)
{
    if (o == NULL)
        return;
    atomic_store_explicit(&o->end, true, memory_order_release);
    pthread_join(o->thread, NULL);
    o->sets[0]->open = o->sets[1]->open = false;
    destroy_memory(o);
    pthread_mutex_destroy(&o->lock);
    free(o->text);
    free(o);
}
