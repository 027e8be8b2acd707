/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/network.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "models/fairness.h"
#include "models/ticks.h"

enum { PROGRESS_EVERY = 4096 };

/* An engine at work. Its put waits for the command, then flows. */
struct worker {
    size_t position; /* in the queue */
    uint32_t put;
    bool flows;
    uint64_t rate;  /* units; 0 while it does not flow */
    uint64_t since; /* the tick for which `left` holds */
    rs_wide left;   /* what remains of the put */
};

struct state {
    const struct rs_fluid *fluid;
    struct rs_fluid_times *times;
    struct worker *workers;
    struct rs_heap events; /* engines by the tick at which their phase ends */
    struct rs_fairness fairness; /* flows are engines */
    size_t longest; /* hops of the longest route */
    uint64_t now, last;
    size_t ended, puts;
    uint64_t rounds;
};

/* Turn to the next put; without one the engine leaves the heap. */
static void turn(struct state *state, uint32_t engine)
{
    const struct rs_fluid_engine *e = &state->fluid->engines[engine];
    struct worker *worker = &state->workers[engine];
    uint64_t next = state->now + (e->command << RS_TICK_BITS);

    worker->flows = false;
    worker->rate = 0;
    if (worker->position >= e->num_queue) {
        rs_heap_remove(&state->events, engine);
        return;
    }
    worker->put = e->queue[worker->position++];
    if (state->times != NULL) {
        state->times[worker->put].start = rs_to_ps(state->now);
        state->times[worker->put].data = rs_to_ps(next);
    }
    rs_heap_set(&state->events, engine, next);
}

static void end(struct state *state, uint32_t engine)
{
    struct worker *worker = &state->workers[engine];

    if (state->times != NULL)
        state->times[worker->put].finish = rs_to_ps(state->now);
    state->last = state->now;
    state->ended++;
    turn(state, engine);
}

/* The end of a phase: the command is done, or the bytes have moved. */
static int step(struct state *state, uint32_t engine)
{
    const struct rs_fluid *fluid = state->fluid;
    struct worker *worker = &state->workers[engine];

    if (worker->flows) {
        rs_fairness_end(&state->fairness, engine);
        end(state, engine);
        return 0;
    }
    worker->left = fluid->bytes[worker->put] * RS_BYTE;
    worker->since = state->now;
    if (worker->left == 0) {
        end(state, engine);
        return 0;
    }
    worker->flows = true;
    rs_heap_set(&state->events, engine, RS_NEVER);
    return rs_fairness_begin(&state->fairness, engine,
                             &fluid->routes[fluid->route[worker->put]],
                             fluid->engines[engine].rate << RS_RATE_BITS);
}

/* Settle what has flowed at the old rate, and go on at the new one. */
static void change_rate(void *arg, uint32_t engine, uint64_t rate)
{
    struct state *state = arg;
    struct worker *worker = &state->workers[engine];

    worker->left -= (rs_wide)worker->rate * (state->now - worker->since);
    worker->since = state->now;
    worker->rate = rate;
    rs_heap_set(&state->events, engine,
                rs_end_of(state->now, worker->left, rate));
}

static int simulate(struct state *state, rs_network_progress *progress,
                    void *arg)
{
    const struct rs_heap_entry *next = state->events.entries;
    size_t told = 0;

    while (state->events.count > 0) {
        state->now = next->key;
        if (state->now > RS_TICKS_MOST)
            return rs_fail(RSCHED_ELIMIT,
                           "the schedule takes longer than 2 hours");
        while (state->events.count > 0 && next->key == state->now) {
            int error = step(state, next->id);

            if (error != 0)
                return error;
        }
        rs_fairness_settle(&state->fairness, change_rate, state);
        state->rounds++;
        if (progress != NULL && state->ended >= told + PROGRESS_EVERY) {
            told = state->ended;
            progress(arg, state->ended, state->puts);
        }
    }
    return 0;
}

static int check_engine(struct state *state, const struct rs_fluid_engine *e)
{
    const struct rs_fluid *fluid = state->fluid;

    if (e->opens > RS_TICKS_MOST >> RS_TICK_BITS ||
        e->command > RS_TICKS_MOST >> RS_TICK_BITS)
        return rs_fail(RSCHED_ELIMIT,
                       "the schedule takes longer than 2 hours");
    for (size_t k = 0; k < e->num_queue; k++) {
        size_t hops =
            fluid->routes[fluid->route[e->queue[k]]].num_resources;

        if (fluid->bytes[e->queue[k]] > RS_BYTES_MOST)
            return rs_fail(RSCHED_ELIMIT, "put %u is longer than 2^60 bytes",
                           (unsigned)e->queue[k]);
        if (hops > state->longest)
            state->longest = hops;
    }
    state->puts += e->num_queue;
    return 0;
}

static int allocate(struct state *state)
{
    const struct rs_fluid *fluid = state->fluid;
    int error = rs_heap_init(&state->events, fluid->num_engines);

    if (error != 0)
        return error;
    state->workers = calloc(fluid->num_engines + 1, sizeof(*state->workers));
    if (state->workers == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to simulate %zu engines",
                       fluid->num_engines);
    return rs_fairness_init(&state->fairness, fluid->capacity,
                            fluid->num_resources, fluid->num_engines,
                            state->longest);
}

/* All engines with a queue turn to their first puts. */
static void begin(struct state *state)
{
    for (uint32_t i = 0; i < state->fluid->num_engines; i++) {
        state->now = state->fluid->engines[i].opens << RS_TICK_BITS;
        turn(state, i);
    }
}

static void release(struct state *state)
{
    rs_fairness_fini(&state->fairness);
    rs_heap_fini(&state->events);
    free(state->workers);
}

int rs_network_run(const struct rs_fluid *fluid, struct rs_fluid_times *times,
                   uint64_t *makespan, struct rs_network_effort *effort,
                   rs_network_progress *progress, void *arg)
{
    struct state state = {.fluid = fluid, .times = times};
    int error = 0;

    for (size_t i = 0; error == 0 && i < fluid->num_engines; i++)
        error = check_engine(&state, &fluid->engines[i]);
    if (error == 0)
        error = allocate(&state);
    if (error == 0) {
        begin(&state);
        error = simulate(&state, progress, arg);
    }
    if (error == 0) {
        *makespan = rs_to_ps(state.last);
        if (effort != NULL)
            *effort = (struct rs_network_effort){state.rounds,
                                                 state.fairness.stopped};
    }
    release(&state);
    return error;
}
