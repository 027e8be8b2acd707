/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges opened for kernels. A kernel reaches a neighbor by a ring of its own
 * (rings.c), or asks the proxy: a request in a ring, which a thread of the opening
 * looks at; it starts the exchange of that epoch, as its program would, without
 * the edges that go by rings, and goes on with it.
 *
 * For rsched/device.h all that the proxy does is one lane: `completed` is also the
 * word by which neighbors announce themselves, as an epoch is only complete when
 * all has come. What the kernel writes, and what it looks at often while nothing
 * happens, lies on either side of the bus:
 *
 *   in GPU memory   the view, lanes of rings and their tables, the head of the
 *                   proxy's ring and its counter: the kernel's own
 *   in host memory  the proxy's lane, requests, what has been taken, the word that
 *                   stops, those of neighbors that are gone, the word that tells;
 *                   each is written by one side only
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/run/opening.h"

/* Between two looks whether neighbors are there. */
#define LOOK_PS (10 * UINT64_C(1000000000))

/* ---- the thread ---- */

void rs_opening_note(struct rsched_opening *o, int error, const char *text)
{
    if (o->error == 0) {
        o->error = error;
        o->text = strdup(text);
    }
}

/* As kernels are to see it. */
static void keep_error(struct rsched_opening *o, int error, const char *text)
{
    pthread_mutex_lock(&o->lock);
    rs_opening_note(o, error, text);
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
        &o->host->requests[number % RS_OPENING_REQUESTS];
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

static void watch(struct rsched_opening *o)
{
    uint64_t now_ps = rs_clock_now();

    if (o->given_up || now_ps < o->next_look_ps)
        return;
    o->next_look_ps = now_ps + LOOK_PS;
    rs_opening_look(o);
    rs_opening_give_up(o);
}

static void *thread_main(void *arg)
{
    const struct timespec slice = {.tv_nsec = 1000000};
    struct rsched_opening *o = arg;
    unsigned vain = 0;

    while (!atomic_load_explicit(&o->end, memory_order_acquire)) {
        bool moved = o->proxied && (o->active ? go_on(o) : take(o));

        vain = moved ? 0 : vain + (vain < UINT32_MAX);
        if (o->num_rings > 0 && !moved)
            watch(o);
        if (!o->proxied)
            nanosleep(&slice, NULL);
        else if (!moved)
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

static int check_state(const struct rsched_exchange *x)
{
    unsigned long long tag = x->tag;

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

/* One that is refused goes on as before; of others nothing is left to go on with. */
static int check_set(struct rsched_exchange *x)
{
    int error;

    rs_exchange_own(x);
    error = check_state(x);
    rs_exchange_leave(x);
    return error;
}

static int check_pair(struct rsched_exchange *const sets[2])
{
    if (sets[0] == NULL || sets[1] == NULL || sets[0] == sets[1] ||
        sets[0]->context != sets[1]->context)
        return rs_fail(RSCHED_EINVAL, "kernels need two exchanges of one "
                                      "context, of even and of odd epochs");
    return 0;
}

static int check_sets(struct rsched_exchange *const sets[2])
{
    int error = 0;

    if (rs_config()->progress_ps == 0)
        return rs_fail(RSCHED_ENOTSUP, "exchanges for kernels need a thread "
                                       "(RSCHED_PROGRESS)");
    for (int i = 0; i < 2 && error == 0; i++)
        error = check_set(sets[i]);
    return error;
}

static int new_opening(struct rsched_exchange *const sets[2], const char *reason,
                       struct rsched_opening **opening)
{
    struct rsched_opening *o = calloc(1, sizeof(*o));
    int error;

    if (o == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    error = rs_neighbors_find(&o->neighbors, sets, reason);
    if (error != 0) {
        free(o);
        return error;
    }
    o->sets[0] = sets[0];
    o->sets[1] = sets[1];
    pthread_mutex_init(&o->lock, NULL);
    *opening = o;
    return 0;
}

/* As far as it has been made. */
static void destroy(struct rsched_opening *o, enum rsched_ring_end end)
{
    struct rsched_context *context = o->sets[0]->context;

    pthread_mutex_lock(&context->lock);
    /* All learn of it before one of them is waited for. */
    rs_opening_abandon_rings(o);
    for (uint32_t i = 0; i < o->neighbors.number; i++) {
        const struct rs_neighbor *n = &o->neighbors.of[i];

        if (n->ring != NULL)
            n->ops->ring_destroy(n->ring, end);
    }
    pthread_mutex_unlock(&context->lock);
    if (o->num_rings > 0)
        rs_safety_watch(context);
    rs_kernel_memory_destroy(&o->memory);
    rs_neighbors_fini(&o->neighbors);
    pthread_mutex_destroy(&o->lock);
    free(o->text);
    free(o);
}

/* Kernels may begin when this returns 0. */
static int begin(struct rsched_opening *o)
{
    int error;

    for (uint32_t i = 0; i < o->neighbors.number; i++)
        o->num_rings += o->neighbors.of[i].ring != NULL;
    o->proxied = o->num_rings < o->neighbors.number || o->num_rings == 0;
    o->host = o->memory.at.host;
    rs_opening_divide(o, true);
    error = rs_opening_memory_fill(o);
    if (error == 0)
        error = start_thread(o);
    if (error != 0)
        rs_opening_divide(o, false);
    return error;
}

int rsched_exchange_open_device(struct rsched_exchange *const sets[2], int gpu,
                                struct rsched_opening **opening)
{
    struct rs_kernel_memory memory = {0};
    struct rsched_opening *o = NULL;
    int error = check_pair(sets);

    if (error == 0)
        error = check_sets(sets);
    if (error == 0)
        error = rs_kernel_memory_find(&memory, gpu);
    if (error == 0)
        error = new_opening(sets, "opened without the neighbors", &o);
    if (error != 0)
        return error;
    o->memory = memory;
    error = rs_opening_memory_create(o, gpu);
    if (error == 0)
        error = begin(o);
    if (error != 0) {
        destroy(o, RSCHED_RING_IDLE);
        return error;
    }
    *opening = o;
    return 0;
}

/* @return 0, or what has failed here or at a neighbor */
static int open_rings(struct rsched_opening *o, int gpu)
{
    struct rs_ring_talks talks;
    int error = rs_ring_talks_init(&talks, &o->neighbors, o->sets, NULL);

    if (error != 0)
        return error;
    /* From here on the neighbors are told. */
    error = check_sets(o->sets);
    if (error == 0)
        error = rs_kernel_memory_find(&o->memory, gpu);
    error = rs_ring_talks_begin(&talks, gpu, error);
    if (error == 0)
        error = rs_opening_memory_create(o, gpu);
    error = rs_ring_talks_end(&talks, error);
    rs_ring_talks_fini(&talks);
    return error == 0 ? begin(o) : error;
}

int rsched_exchange_open_rings(struct rsched_exchange *const sets[2], int gpu,
                               struct rsched_opening **opening)
{
    struct rsched_opening *o = NULL;
    int error = check_pair(sets);

    if (error == 0)
        error = new_opening(sets, "", &o);
    if (error != 0)
        return error;
    error = open_rings(o, gpu);
    if (error != 0) {
        destroy(o, RSCHED_RING_IDLE);
        return error;
    }
    *opening = o;
    return 0;
}

const char *rsched_opening_reason(const struct rsched_opening *o, int process)
{
    const struct rs_neighbor *n = rs_neighbors_at(&o->neighbors, process);

    return n == NULL || n->ring != NULL ? NULL : n->reason;
}

struct rsched_device_exchange *
rsched_opening_view(const struct rsched_opening *o)
{
    return RS_OF_KERNELS(o->memory.at.gpu +
                         offsetof(struct rs_opening_gpu, view));
}

void rsched_opening_stop(struct rsched_opening *o, int error)
{
    char text[96];

    if (rs_is_error(error)) {
        snprintf(text, sizeof(text), "the program has stopped its kernels: %s",
                 rsched_strerror(error));
    } else {
        snprintf(text, sizeof(text), "the program has stopped its kernels with "
                                     "%d, which is no error code", error);
        error = RSCHED_EINVAL;
    }
    pthread_mutex_lock(&o->lock);
    rs_opening_settle(o);
    o->stopped = o->stopped || o->error == 0;
    pthread_mutex_unlock(&o->lock);
    keep_error(o, error, text);
    /* Which stays from then on. */
    rsched_device_store32((uint32_t *)&o->host->stop, (uint32_t)o->error);
}

int rsched_opening_check(struct rsched_opening *o)
{
    int error;

    pthread_mutex_lock(&o->lock);
    rs_opening_settle(o);
    error = o->error == 0
                ? 0
                : rs_fail(o->error, "%s", o->text != NULL ? o->text : "failed");
    pthread_mutex_unlock(&o->lock);
    return error;
}

void rsched_opening_get_stats(const struct rsched_opening *o,
                              struct rsched_opening_stats *stats)
{
    *stats = (struct rsched_opening_stats){
        .asked = atomic_load_explicit(&o->asked, memory_order_relaxed),
        .completed = atomic_load_explicit(&o->completed, memory_order_relaxed),
        .rings = o->num_rings,
        .proxied = o->neighbors.number - o->num_rings};
    rs_opening_ring_stats(o, stats);
}

void rsched_opening_close(struct rsched_opening *o)
{
    if (o == NULL)
        return;
    atomic_store_explicit(&o->end, true, memory_order_release);
    pthread_join(o->thread, NULL);
    if (o->num_rings > 0)
        rs_opening_give_up(o);
    rs_opening_divide(o, false);
    destroy(o, rs_opening_is_idle(o) ? RSCHED_RING_IDLE : RSCHED_RING_BUSY);
}
