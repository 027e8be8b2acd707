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

/* The host's progress is slow beside ours, and seldom what we wait for. */
enum { YIELDS_PER_HOST = 8 };

/* Where processes outnumber cores but a yield returns at once, it lets nobody
 * run: the others sleep, or are in another scheduling group (launchers that
 * make a session or a control group for each process), where a yield does not
 * reach. After some such yields only sleeping gives them the core. */
#define VAIN_YIELD_PS (1 * UINT64_C(1000000))
enum { MAX_VAIN_YIELDS = 20 };

/* After so many waits in a row that yielded in vain the next ones do not even
 * try, but for one in TRY_AGAIN. */
enum { MAX_VAIN_WAITS = 3, TRY_AGAIN = 64 };

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

/* @return whether to sleep at once */
static bool yields_are_vain(struct rsched_context *context)
{
    return atomic_load_explicit(&context->vain_waits, memory_order_relaxed) >=
               MAX_VAIN_WAITS &&
           atomic_fetch_add_explicit(&context->skipped_yields, 1,
                                     memory_order_relaxed) %
                   TRY_AGAIN !=
               0;
}

static void yield_core(struct rsched_context *context,
                       struct rsched_pause *pause, uint64_t sleep_from)
{
    uint64_t before = rs_clock_now();

    atomic_fetch_add_explicit(&context->yields, 1, memory_order_relaxed);
    sched_yield();
    if (rs_clock_now() - before >= VAIN_YIELD_PS) {
        pause->vain = 0;
        atomic_store_explicit(&context->vain_waits, 0, memory_order_relaxed);
    } else if (++pause->vain == MAX_VAIN_YIELDS &&
               atomic_load_explicit(&context->crowded, memory_order_relaxed)) {
        pause->steps = sleep_from;
        atomic_fetch_add_explicit(&context->vain_waits, 1,
                                  memory_order_relaxed);
    }
}

/* What waits for one exchange and for anything have in common.
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
    if (now == spin && now < yield && yields_are_vain(context))
        now = pause->steps = yield;
    if (now < yield) {
        if ((now - spin) % YIELDS_PER_HOST == YIELDS_PER_HOST - 1)
            drive_host(context);
        yield_core(context, pause, yield);
        return -1;
    }
    drive_host(context);
    return (int64_t)(now - yield);
}

static bool ready_exchange(void *arg)
{
    struct rsched_exchange *x = arg;

    return rs_exchange_progress(x) ||
           (x->pending_tx.count == 0 && x->pending_rx.count == 0);
}

/* To be woken for each of many neighbors' messages costs a switch each; when
 * one of them is there most others are too. But where peers need our help to
 * go on, everything that happens matters. */
static const struct rsched_lane *
lane_to_wait_for(const struct rsched_exchange *x)
{
    if (x->pending_rx.count == 0 || rs_exchange_is_deferred(x))
        return NULL;
    return x->pending_rx.lanes[x->pending_rx.count - 1];
}

static const struct rs_engine *any_engine(const struct rsched_context *context)
{
    const struct rs_engine *e = context->engines;

    while (e->ops == NULL)
        e++;
    return e;
}

static bool are_all_of(const struct rs_pending *pending, unsigned engine)
{
    for (uint32_t i = 0; i < pending->count; i++) {
        if (pending->lanes[i]->engine != engine)
            return false;
    }
    return true;
}

/* The one engine whose lanes are pending; NULL when there are several: none of
 * them wakes for the others. */
static const struct rs_engine *engine_to_wait_for(const struct rsched_exchange *x)
{
    unsigned engine = x->pending_rx.count > 0 ? x->pending_rx.lanes[0]->engine
                                              : x->pending_tx.lanes[0]->engine;

    return are_all_of(&x->pending_rx, engine) &&
                   are_all_of(&x->pending_tx, engine)
               ? &x->context->engines[engine]
               : NULL;
}

static void count_sleep(struct rsched_context *context)
{
    atomic_fetch_add_explicit(&context->sleeps, 1, memory_order_relaxed);
}

static void sleep_for(struct rsched_exchange *x, uint64_t limit_ps)
{
    const struct rs_engine *e = engine_to_wait_for(x);
    bool several = e == NULL;

    count_sleep(x->context);
    if (several)
        e = any_engine(x->context);
    if (several && limit_ps > SLEEP_FIRST_PS)
        limit_ps = SLEEP_FIRST_PS;
    e->ops->sleep(e->engine, several ? NULL : lane_to_wait_for(x), limit_ps,
                  ready_exchange, x);
}

/* Not who waits for what a stream has started: nobody else goes on with that, and a
 * driver may wait for the stream to have another exchange's memory. */
static bool help(const struct rsched_exchange *x)
{
    return x->order == NULL &&
           atomic_load_explicit(&x->context->safety.any, memory_order_relaxed) &&
           rs_safety_help(x->context);
}

static int look(struct rsched_exchange *x)
{
    rs_context_look(x->context);
    return rs_exchange_check_peers(x);
}

/* However much others have to do. */
enum { HELPS_PER_LOOK = 64 };

/* Epochs in GPU memory want a processor for moments again and again, to begin copies
 * and to see that they are over, so who waits for one has others go on meanwhile. The
 * rest is helped instead of sleeping. */
int rs_wait_step(struct rsched_exchange *x, struct rsched_pause *pause)
{
    struct rsched_context *context = x->context;
    int64_t round;

    if (unlikely(x->flushes) && help(x)) {
        if (++pause->helps % HELPS_PER_LOOK != 0)
            return 0;
        drive_host(context);
        return look(x);
    }
    round = step(context, pause);
    if (round < 0)
        return 0;
    if (!help(x))
        sleep_for(x, slice(context, (uint64_t)round));
    return look(x);
}

static bool ready_never(void *arg)
{
    (void)arg;
    return false;
}

uint64_t rsched_context_rest(struct rsched_context *context,
                             struct rsched_pause *pause)
{
    int64_t round = step(context, pause);

    if (round < 0)
        return 0;
    count_sleep(context);
    rs_context_look(context);
    return slice(context, (uint64_t)round);
}

void rsched_context_pause(struct rsched_context *context,
                          struct rsched_pause *pause)
{
    const struct rs_engine *e = any_engine(context);
    uint64_t limit_ps = rsched_context_rest(context, pause);

    if (limit_ps > 0)
        e->ops->sleep(e->engine, NULL, limit_ps, ready_never, NULL);
}
