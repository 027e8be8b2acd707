/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting: spin, then yield the core, then sleep in bounded slices that grow
 * from SLEEP_FIRST to RSCHED_SLEEP, so that the host's progress and failures
 * are seen.
 */
#include "librsched/run/run.h"

#include "librsched/base/clock.h"

/* The first sleeps are short: an event that came just before is not missed
 * for long. */
#define SLEEP_FIRST_PS (50 * UINT64_C(1000000))

enum { MAX_DOUBLINGS = 20 };

static uint64_t slice(const struct rsched_context *context, uint64_t round)
{
    uint64_t ps = SLEEP_FIRST_PS
                  << (round < MAX_DOUBLINGS ? round : MAX_DOUBLINGS);

    return ps < context->sleep_ps ? ps : context->sleep_ps;
}

static void drive_host(struct rsched_context *context)
{
    if (context->params.host_progress != NULL)
        context->params.host_progress(context->params.host_arg);
}

/* What spinning and sleeping have in common.
 * @return the number of the sleep, or -1 if it is not yet time to sleep */
static int64_t step(struct rsched_context *context, struct rsched_pause *pause)
{
    uint64_t spin =
        atomic_load_explicit(&context->spin_polls, memory_order_relaxed);
    uint64_t yield =
        atomic_load_explicit(&context->yield_polls, memory_order_relaxed);
    uint64_t now = pause->steps++;

    if (now < spin) {
        rs_cpu_relax();
        return -1;
    }
    drive_host(context);
    if (now < yield) {
        atomic_fetch_add_explicit(&context->yields, 1, memory_order_relaxed);
        sched_yield();
        return -1;
    }
    atomic_fetch_add_explicit(&context->sleeps, 1, memory_order_relaxed);
    return (int64_t)(now - yield);
}

static bool ready_exchange(void *arg)
{
    struct rsched_exchange *x = arg;

    return rs_exchange_progress(x) ||
           (x->pending_tx.count == 0 && x->pending_rx.count == 0);
}

int rs_wait_step(struct rsched_exchange *x, struct rsched_pause *pause)
{
    struct rsched_context *context = x->context;
    int64_t round = step(context, pause);

    if (round < 0)
        return 0;
    context->ops->sleep(context->engine, slice(context, (uint64_t)round),
                        ready_exchange, x);
    rs_context_look(context);
    return rs_exchange_check_peers(x);
}

static bool ready_never(void *arg)
{
    (void)arg;
    return false;
}

void rsched_context_pause(struct rsched_context *context,
                          struct rsched_pause *pause)
{
    int64_t round = step(context, pause);

    if (round < 0)
        return;
    context->ops->sleep(context->engine, slice(context, (uint64_t)round),
                        ready_never, NULL);
    rs_context_look(context);
}
