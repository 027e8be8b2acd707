/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/fluid.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "models/ticks.h"

/* An engine at work. Its put waits for the command, then flows. */
struct worker {
    size_t position; /* in the queue */
    uint32_t put;
    bool busy, flows;
    bool rated;    /* while rates are shared out: has its rate */
    uint64_t cap;  /* engine rate, units */
    uint64_t rate; /* units; 0 while it does not flow */
    uint64_t next; /* the tick at which its phase ends */
    uint64_t since; /* the tick for which `left` holds */
    rs_wide left;      /* what remains of the put */
};

struct state {
    const struct rs_fluid *fluid;
    struct rs_fluid_times *times;
    struct worker *workers;
    uint64_t *left;      /* per resource: capacity not given yet, units */
    uint32_t *waiting;   /* per resource: puts without a rate */
    uint32_t *touched;   /* the resources in use */
    size_t num_touched;
    uint32_t *seen_puts; /* for the observer, per engine */
    uint64_t *seen_rates;
    uint64_t now;
    uint64_t last; /* the end of the last put so far */
};

static const struct rs_fluid_route *route_of(const struct state *state,
                                             const struct worker *worker)
{
    const struct rs_fluid *fluid = state->fluid;

    return &fluid->routes[fluid->route[worker->put]];
}

/* Turn to the next put, if there is one. */
static void turn(struct state *state, size_t engine)
{
    const struct rs_fluid_engine *e = &state->fluid->engines[engine];
    struct worker *worker = &state->workers[engine];

    worker->flows = false;
    worker->rate = 0;
    worker->busy = worker->position < e->num_queue;
    if (!worker->busy)
        return;
    worker->put = e->queue[worker->position++];
    worker->next = state->now + (e->command << RS_TICK_BITS);
    if (state->times != NULL) {
        state->times[worker->put].start = rs_to_ps(state->now);
        state->times[worker->put].data = rs_to_ps(worker->next);
    }
}

/* The end of a phase: the command is done, or the bytes have moved. */
static void step(struct state *state, size_t engine)
{
    struct worker *worker = &state->workers[engine];

    if (!worker->flows) {
        worker->flows = true;
        worker->left = state->fluid->bytes[worker->put] * RS_BYTE;
        worker->since = state->now;
        worker->next = RS_NEVER;
        if (worker->left != 0)
            return;
    }
    if (state->times != NULL)
        state->times[worker->put].finish = rs_to_ps(state->now);
    state->last = state->now;
    turn(state, engine);
}

/* Count, per resource, the puts that need a rate. Returns their number. */
static size_t begin_sharing(struct state *state)
{
    size_t flows = 0;

    state->num_touched = 0;
    for (size_t i = 0; i < state->fluid->num_engines; i++) {
        struct worker *worker = &state->workers[i];
        const struct rs_fluid_route *route;

        worker->rated = false;
        if (!worker->flows)
            continue;
        flows++;
        route = route_of(state, worker);
        for (size_t k = 0; k < route->num_resources; k++) {
            uint32_t r = route->resources[k];

            if (state->waiting[r]++ == 0) {
                state->touched[state->num_touched++] = r;
                state->left[r] = state->fluid->capacity[r] << RS_RATE_BITS;
            }
        }
    }
    return flows;
}

/* Settle what has flowed at the old rate, and go on at the new one. */
static void set_rate(struct state *state, struct worker *worker, uint64_t rate)
{
    const struct rs_fluid_route *route = route_of(state, worker);

    for (size_t k = 0; k < route->num_resources; k++) {
        state->left[route->resources[k]] -= rate;
        state->waiting[route->resources[k]]--;
    }
    worker->rated = true;
    if (rate == worker->rate)
        return;
    worker->left -= (rs_wide)worker->rate * (state->now - worker->since);
    worker->since = state->now;
    worker->rate = rate;
    worker->next = rs_end_of(state->now, worker->left, rate);
}

/* The resource with the least share, or -1 when puts use none any more. */
static int64_t find_bottleneck(const struct state *state, uint64_t *share)
{
    int64_t bottleneck = -1;

    *share = UINT64_MAX;
    for (size_t i = 0; i < state->num_touched; i++) {
        uint32_t r = state->touched[i];
        uint64_t s;

        if (state->waiting[r] == 0)
            continue;
        s = state->left[r] / state->waiting[r];
        if (bottleneck < 0 || s < *share ||
            (s == *share && (int64_t)r < bottleneck)) {
            bottleneck = r;
            *share = s;
        }
    }
    return bottleneck;
}

static bool uses(const struct rs_fluid_route *route, int64_t resource)
{
    for (size_t k = 0; k < route->num_resources; k++) {
        if (route->resources[k] == resource)
            return true;
    }
    return false;
}

/* Give `rate` to every put without one that uses `resource`, or, when that is
 * -1, whose engine has at most `rate` (then its engine's). Returns how many. */
static size_t give(struct state *state, int64_t resource, uint64_t rate)
{
    size_t given = 0;

    for (size_t i = 0; i < state->fluid->num_engines; i++) {
        struct worker *worker = &state->workers[i];

        if (!worker->flows || worker->rated)
            continue;
        if (resource >= 0 ? !uses(route_of(state, worker), resource)
                          : worker->cap > rate)
            continue;
        set_rate(state, worker, resource >= 0 ? rate : worker->cap);
        given++;
    }
    return given;
}

/* Max-min fair rates for all puts in flight; see fluid.h for the rounding. */
static void share_out(struct state *state)
{
    size_t flows = begin_sharing(state);

    while (flows > 0) {
        uint64_t share;
        int64_t bottleneck = find_bottleneck(state, &share);
        size_t given = give(state, -1, share);

        if (given == 0)
            given = give(state, bottleneck, share);
        flows -= given;
    }
}

static void observe(struct state *state, uint64_t until)
{
    const struct rs_fluid *fluid = state->fluid;
    uint64_t from = rs_to_ps(state->now), to = rs_to_ps(until);
    bool any = false;

    for (size_t i = 0; i < fluid->num_engines; i++) {
        const struct worker *worker = &state->workers[i];

        any = any || worker->flows;
        state->seen_puts[i] = worker->flows ? worker->put : UINT32_MAX;
        state->seen_rates[i] = worker->flows ? worker->rate >> RS_RATE_BITS : 0;
    }
    if (any && to > from)
        fluid->observe(fluid->arg, from, to, state->seen_puts,
                       state->seen_rates);
}

static int simulate(struct state *state)
{
    const struct rs_fluid *fluid = state->fluid;

    for (;;) {
        uint64_t next = RS_NEVER;
        bool busy = false;

        for (size_t i = 0; i < fluid->num_engines; i++) {
            const struct worker *worker = &state->workers[i];

            busy = busy || worker->busy;
            if (worker->busy && worker->next < next)
                next = worker->next;
        }
        if (!busy)
            return 0;
        if (next > RS_TICKS_MOST)
            return rs_fail(RSCHED_ELIMIT,
                           "the schedule takes longer than 2 hours");
        if (fluid->observe != NULL)
            observe(state, next);
        state->now = next;
        for (size_t i = 0; i < fluid->num_engines; i++) {
            while (state->workers[i].busy && state->workers[i].next == next)
                step(state, i);
        }
        share_out(state);
    }
}

static int allocate(struct state *state)
{
    size_t engines = state->fluid->num_engines + 1;
    size_t resources = state->fluid->num_resources + 1;

    state->workers = calloc(engines, sizeof(*state->workers));
    state->left = calloc(resources, sizeof(*state->left));
    state->waiting = calloc(resources, sizeof(*state->waiting));
    state->touched = calloc(resources, sizeof(*state->touched));
    state->seen_puts = calloc(engines, sizeof(*state->seen_puts));
    state->seen_rates = calloc(engines, sizeof(*state->seen_rates));
    if (state->workers == NULL || state->left == NULL ||
        state->waiting == NULL || state->touched == NULL ||
        state->seen_puts == NULL || state->seen_rates == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to simulate %zu engines",
                       engines - 1);
    return 0;
}

static int begin(struct state *state)
{
    const struct rs_fluid *fluid = state->fluid;

    for (size_t i = 0; i < fluid->num_engines; i++) {
        const struct rs_fluid_engine *e = &fluid->engines[i];

        if (e->opens > RS_TICKS_MOST >> RS_TICK_BITS ||
            e->command > RS_TICKS_MOST >> RS_TICK_BITS)
            return rs_fail(RSCHED_ELIMIT,
                           "the schedule takes longer than 2 hours");
        for (size_t k = 0; k < e->num_queue; k++) {
            if (fluid->bytes[e->queue[k]] > RS_BYTES_MOST)
                return rs_fail(RSCHED_ELIMIT, "put %u is longer than 2^60 "
                               "bytes", (unsigned)e->queue[k]);
        }
        state->workers[i].cap = e->rate << RS_RATE_BITS;
        state->now = e->opens << RS_TICK_BITS;
        turn(state, i);
    }
    state->now = 0;
    return 0;
}

int rs_fluid_run(const struct rs_fluid *fluid, struct rs_fluid_times *times,
                 uint64_t *makespan)
{
    struct state state = {.fluid = fluid, .times = times};
    int error = allocate(&state);

    if (error == 0)
        error = begin(&state);
    if (error == 0)
        error = simulate(&state);
    if (error == 0)
        *makespan = rs_to_ps(state.last);
    free(state.workers);
    free(state.left);
    free(state.waiting);
    free(state.touched);
    free(state.seen_puts);
    free(state.seen_rates);
    return error;
}
