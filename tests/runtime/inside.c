/* SPDX-License-Identifier: BSD-3-Clause */
/* What threads of one process do to each other where only the inside of the library
 * shows it. Ranks are threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
    RANK_CHECK(rsched_exchange_wait(h->x) == RSCHED_EPEER);
    RANK_CHECK(looks == LOOKS && looks_with_lock == 0);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_EPEER);
    lane->ops = ops;
    halo_destroy(h);
    return 0;
}

int main(void)
{
    int failed;

    alarm(RANKS_HANG_SECONDS);
    setenv("RSCHED_PROGRESS", "0", 1);
    failed = ranks_run(1, true, run_writers, NULL);
    return failed != 0;
}
