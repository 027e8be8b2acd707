/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that starts exchanges and writes words for kernels that cannot,
 * by the same functions. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mlx5/gpu_inside.h"
#include "librsched/base/error.h"

enum { PARTS = 5 }; /* of what the GPU sees of a proxy */

int rs_gpu_proxy_create(const struct rs_gpu_memory *memory, uint32_t requests,
                        struct rs_gpu_proxy **proxy)
{
    struct rs_gpu_proxy *p;
    void *parts[PARTS] = {NULL};
    const struct {
        uint64_t bytes;
        bool in_host;
    } wanted[PARTS] = {{sizeof(*p->view), false},
                   {(uint64_t)requests * sizeof(*p->requests), true},
                   {sizeof(uint64_t), false},
                   {sizeof(uint64_t), true},
                   {sizeof(*p->halt), true}};
    int error = 0;

    if (requests == 0 || (requests & (requests - 1)) != 0)
        return rs_fail(RSCHED_EINVAL,
                       "a proxy's ring of %u requests is no power of two",
                       requests);
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a proxy");
    p->memory = *memory;
    for (int i = 0; i < PARTS && error == 0; i++)
        error = memory->allocate(memory->arg, wanted[i].bytes,
                                 wanted[i].in_host, &parts[i]);
    p->view = parts[0];
    p->requests = parts[1];
    p->asked = parts[2];
    p->taken = parts[3];
    p->halt = parts[4];
    if (error != 0) {
        rs_gpu_proxy_destroy(p);
        return error;
    }
    *p->view = (struct rsched_device_proxy){.requests = p->requests,
                                            .mask = requests - 1,
                                            .asked = p->asked,
                                            .taken = p->taken,
                                            .stop = p->halt};
    *proxy = p;
    return 0;
}

void rs_gpu_proxy_destroy(struct rs_gpu_proxy *p)
{
    void *parts[PARTS] = {p->view, p->requests, p->asked, p->taken, p->halt};

    for (int i = 0; i < PARTS; i++) {
        if (parts[i] != NULL)
            p->memory.release(p->memory.arg, parts[i]);
    }
    free(p);
}

/* The kernel has seen that the epoch may be started; what is only in the GPU's
 * memory is not looked at. */
static void start_exchange(struct rs_gpu_exchange *x, uint64_t epoch)
{
    const struct rsched_device_group alone = rsched_device_thread();

    rsched_device_begin(&x->host, &alone, epoch);
}

static void put_word(struct rs_gpu_target *t,
                     const struct rsched_device_request *r)
{
    const struct rsched_device_group alone = rsched_device_thread();
    int error = rsched_device_put(t->host, &alone, r->offset, r->value);

    if (error != 0)
        rsched_device_store32((uint32_t *)&t->word->status, (uint32_t)error);
}

/* Take the next request. @return whether there was one */
static bool take(struct rs_gpu_proxy *p)
{
    uint64_t number = *p->taken; /* written by this thread only */
    const struct rsched_device_request *r =
        &p->requests[number & p->view->mask];

    /* Acquire: the request was written before its turn. */
    if (rsched_device_load(&r->turn) != number + 1)
        return false;
    if (r->kind == RSCHED_DEVICE_START)
        start_exchange((struct rs_gpu_exchange *)(uintptr_t)r->object,
                       r->value);
    else if (r->kind == RSCHED_DEVICE_PUT)
        put_word((struct rs_gpu_target *)(uintptr_t)r->object, r);
    /* Release: the request has been read before another takes its place. */
    rsched_device_store(p->taken, number + 1);
    return true;
}

/* What was taken when the mark was set is through with its blocks, whatever has
 * been put since: who flushes need not wait for a pause of all others. */
static void note_flushed(const struct rs_gpu_proxy *p, struct rs_gpu_target *t)
{
    uint64_t end = t->host->published >> 6;

    if (t->host->retired == end)
        t->mark_taken = *p->taken;
    else if (t->host->retired < t->mark)
        return;
    rsched_device_store(&t->word->flushed, t->mark_taken);
    t->mark = end;
    t->mark_taken = *p->taken;
}

/* What is complete, told to those who wait. */
static void look(struct rs_gpu_proxy *p)
{
    for (struct rs_gpu_exchange *x = p->exchanges; x != NULL; x = x->next) {
        for (uint32_t i = 0; i < x->num_lanes; i++)
            rsched_device_lane_poll(&x->lanes[i]);
    }
    for (struct rs_gpu_target *t = p->targets; t != NULL; t = t->next) {
        struct rsched_device_target *h = t->host;

        rsched_device_target_poll(h);
        if (h->status != 0)
            rsched_device_store32((uint32_t *)&t->word->status,
                                  (uint32_t)h->status);
        else
            note_flushed(p, t);
    }
}

bool rs_gpu_proxy_step(struct rs_gpu_proxy *proxy)
{
    enum { AT_ONCE = 16 };
    bool any = false;

    for (int i = 0; i < AT_ONCE && take(proxy); i++)
        any = true;
    look(proxy);
    return any;
}

static void *run(void *arg)
{
    struct rs_gpu_proxy *p = arg;

    while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
        if (!rs_gpu_proxy_step(p))
            sched_yield();
    }
    return NULL;
}

int rs_gpu_proxy_start(struct rs_gpu_proxy *proxy)
{
    int error;

    __atomic_store_n(&proxy->stop, 0, __ATOMIC_RELEASE);
    error = pthread_create(&proxy->thread, NULL, run, proxy);
    if (error != 0)
        return rs_fail(RSCHED_ESYS, "starting a proxy's thread: %s",
                       strerror(error));
    proxy->has_thread = true;
    return 0;
}

void rs_gpu_proxy_stop(struct rs_gpu_proxy *proxy)
{
    if (!proxy->has_thread)
        return;
    __atomic_store_n(&proxy->stop, 1, __ATOMIC_RELEASE);
    pthread_join(proxy->thread, NULL);
    proxy->has_thread = false;
}

void rs_gpu_proxy_halt(struct rs_gpu_proxy *proxy, int error)
{
    rsched_device_store32((uint32_t *)proxy->halt, (uint32_t)error);
}

uint64_t rs_gpu_proxy_taken(const struct rs_gpu_proxy *proxy)
{
    return rsched_device_load(proxy->taken);
}
