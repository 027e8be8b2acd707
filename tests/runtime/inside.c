/* SPDX-License-Identifier: BSD-3-Clause */
/* What threads of one process do to each other where only the inside of the library
 * shows it. Ranks are threads. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "librsched/base/clock.h"
#include "librsched/base/error.h"
#include "librsched/run/run.h"
#include "tests/runtime/halo.h"

/* ---- an exchange that fails in the hands of the safety net ---- */

enum { LOOKS = 5 };

static struct rsched_context *context;
static int looks, looks_with_lock;

static int fails(struct rsched_lane *lane)
{
    (void)lane;
    return rs_fail(RSCHED_EPEER, "it fails");
}

/* A neighbor that writes, until it has been looked for some times. */
static bool is_over(struct rsched_lane *lane)
{
    (void)lane;
    if (pthread_mutex_trylock(&context->safety.lock) == 0)
        pthread_mutex_unlock(&context->safety.lock);
    else
        looks_with_lock++;
    return ++looks >= LOOKS;
}

/* Neighbors that still write are waited for by the application, who has the exchange for
 * itself, and not where others wait for the lock. */
static int run_writers(struct rank *self)
{
    static const struct halo_edge own[] = {{0, 0, 8}};
    const struct rsched_engine_ops *ops;
    struct rsched_engine_ops failing;
    struct rsched_lane *lane;
    struct halo *h;

    context = self->context;
    RANK_CHECK(halo_create(self, own, 1, 1, 0, &h) == 0);
    lane = h->x->in[0].lane;
    ops = lane->ops;
    failing = *ops;
    failing.rx_progress = fails;
    failing.rx_is_over = is_over;
    lane->ops = &failing;
    h->x->active = true;
    h->x->pending_rx.lanes[0] = lane;
    h->x->pending_rx.count = 1;
    rs_safety_offer(h->x);
    rsched_context_progress(context);
    RANK_CHECK(looks_with_lock == 0);
    h->x->writers_until_ps = UINT64_MAX; /* however slow this machine is */
    RANK_CHECK(rsched_exchange_wait(h->x) == RSCHED_EPEER);
    RANK_CHECK(looks == LOOKS && looks_with_lock == 0);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_EPEER);
    lane->ops = ops;
    halo_destroy(h);
    return 0;
}

/* ---- a peer that another thread connects while it is waited for ---- */

#define RECONNECTS_PS (200 * UINT64_C(1000000000)) /* several looks at peers */

static atomic_bool may_come;

/* As one that finds that it must use another engine; here it is the same one. */
static void *reconnect(void *arg)
{
    struct rank *self = arg;
    struct rs_peer *peer = self->context->peers;
    uint64_t until_ps = rs_clock_after(RECONNECTS_PS);
    int error = 0;

    while (error == 0 && rs_clock_now() < until_ps) {
        pthread_mutex_lock(&self->context->lock);
        error = rs_context_change_engine(self->context, peer, peer->engine);
        pthread_mutex_unlock(&self->context->lock);
    }
    atomic_store(&may_come, true);
    return error == 0 ? NULL : peer;
}

static int run_reconnected(struct rank *self)
{
    static const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    void *failed = NULL;
    pthread_t thread;
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
    halo_destroy(h);
    mesh_barrier(self->end);
    if (self->rank == 0)
        pthread_create(&thread, NULL, reconnect, self);
    while (self->rank == 1 && !atomic_load(&may_come))
        sched_yield();
    RANK_CHECK(halo_create(self, edges, 2, 2, 0, &h) == 0);
    if (self->rank == 0)
        pthread_join(thread, &failed);
    RANK_CHECK(failed == NULL);
    RANK_CHECK(halo_step(h, 0) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

int main(void)
{
    int failed;

    alarm(RANKS_HANG_SECONDS);
    setenv("RSCHED_PROGRESS", "0", 1);
    failed = ranks_run(1, true, run_writers, NULL);
    failed |= ranks_run(2, true, run_reconnected, NULL);
    return failed != 0;
}
