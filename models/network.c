/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/network.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"
#include "models/ticks.h"

/* Rates nearer to each other than this are equal: 1 byte/s. */
#define NEAR (UINT64_C(1) << RS_RATE_BITS)

enum { NOTHING = UINT32_MAX, PROGRESS_EVERY = 4096 };

/* An engine at work. Its put waits for the command, then flows. */
struct worker {
    size_t position; /* in the queue */
    uint32_t put;
    uint32_t bottleneck; /* a resource, or NOTHING: the engine */
    bool flows;
    bool rated;     /* while the region is shared out: has its rate */
    uint32_t region; /* the round in which it was in the region */
    uint32_t place; /* in the heap of events, or NOTHING */
    uint64_t cap;   /* engine rate, units */
    uint64_t rate;  /* units; 0 while it does not flow */
    uint64_t wanted; /* the rate that the region's sharing gives */
    uint32_t limit;  /* and its bottleneck */
    uint64_t next;  /* the tick at which its phase ends */
    uint64_t since; /* the tick for which `left` holds */
    rs_wide left;      /* what remains of the put */
};

/* A put in flight on a resource. */
struct member {
    uint32_t engine;
    uint32_t hop; /* place of the resource on the put's route */
};

struct resource {
    struct member *members;
    size_t num_members, room;
    uint64_t load;   /* the rates of its members, units */
    uint64_t kept;   /* those of members outside the region */
    uint64_t left;   /* while sharing out: capacity not given yet */
    uint64_t level;  /* the share that it gave, or RS_NEVER */
    uint32_t bound;   /* members whose bottleneck it is */
    uint32_t outside; /* those of them that are not in the region */
    uint32_t inside;  /* members in the region */
    uint32_t waiting; /* those without a rate */
    uint32_t round;   /* the round in which it was touched */
    bool dirty;       /* puts on it began or ended in this round */
};

/* The least share comes first. */
struct share {
    uint64_t share;
    uint32_t resource;
};

struct state {
    const struct rs_fluid *fluid;
    struct rs_fluid_times *times;
    struct worker *workers;
    struct resource *resources;
    uint32_t *slots;  /* per engine and hop: place among the members */
    size_t longest;   /* hops of the longest route */
    uint32_t *events; /* a heap of engines, by (next, engine) */
    size_t num_events;
    uint32_t *begun; /* engines whose puts began to flow in this round */
    size_t num_begun;
    uint32_t *dirty; /* resources that lost or gained a put */
    size_t num_dirty;
    uint32_t *region; /* engines */
    size_t num_region;
    uint32_t *touched; /* resources of the region */
    size_t num_touched;
    struct share *shares; /* a heap */
    size_t num_shares;
    bool uniform; /* all engines have one rate */
    uint64_t fastest; /* the largest of these rates, units */
    uint32_t round;
    uint64_t now, last;
    size_t ended, puts;
    struct rs_network_effort effort;
};

static const struct rs_fluid_route *route_of(const struct state *state,
                                             const struct worker *worker)
{
    return &state->fluid->routes[state->fluid->route[worker->put]];
}

/* ---- the heap of events ---- */

static bool earlier(const struct state *state, uint32_t a, uint32_t b)
{
    uint64_t x = state->workers[a].next, y = state->workers[b].next;

    return x != y ? x < y : a < b;
}

static void event_put(struct state *state, size_t place, uint32_t engine)
{
    state->events[place] = engine;
    state->workers[engine].place = (uint32_t)place;
}

/* An engine whose `next` has changed finds its place. */
static void event_move(struct state *state, uint32_t engine)
{
    size_t place = state->workers[engine].place;

    while (place > 0) {
        size_t above = (place - 1) / 2;

        if (!earlier(state, engine, state->events[above]))
            break;
        event_put(state, place, state->events[above]);
        place = above;
    }
    for (;;) {
        size_t below = 2 * place + 1;

        if (below >= state->num_events)
            break;
        if (below + 1 < state->num_events &&
            earlier(state, state->events[below + 1], state->events[below]))
            below++;
        if (!earlier(state, state->events[below], engine))
            break;
        event_put(state, place, state->events[below]);
        place = below;
    }
    event_put(state, place, engine);
}

static void event_remove(struct state *state, uint32_t engine)
{
    size_t place = state->workers[engine].place;
    uint32_t last = state->events[--state->num_events];

    state->workers[engine].place = NOTHING;
    if (last == engine)
        return;
    event_put(state, place, last);
    event_move(state, last);
}

/* ---- puts on resources ---- */

static void note_dirty(struct state *state, uint32_t resource)
{
    struct resource *r = &state->resources[resource];

    if (r->dirty)
        return;
    r->dirty = true;
    state->dirty[state->num_dirty++] = resource;
}

static int enter(struct state *state, uint32_t engine)
{
    const struct rs_fluid_route *route =
        route_of(state, &state->workers[engine]);

    for (uint32_t k = 0; k < route->num_resources; k++) {
        struct resource *r = &state->resources[route->resources[k]];

        if (r->num_members == r->room) {
            void *grown = rs_array_grow(r->members, &r->room,
                                        r->num_members + 1,
                                        sizeof(*r->members));

            if (grown == NULL)
                return rs_fail(RSCHED_ENOMEM, "no memory to simulate");
            r->members = grown;
        }
        state->slots[engine * state->longest + k] = (uint32_t)r->num_members;
        r->members[r->num_members++] = (struct member){engine, k};
        note_dirty(state, route->resources[k]);
    }
    return 0;
}

static void leave(struct state *state, uint32_t engine)
{
    const struct worker *worker = &state->workers[engine];
    const struct rs_fluid_route *route = route_of(state, worker);

    if (worker->bottleneck != NOTHING)
        state->resources[worker->bottleneck].bound--;
    for (size_t k = 0; k < route->num_resources; k++) {
        struct resource *r = &state->resources[route->resources[k]];
        uint32_t slot = state->slots[engine * state->longest + k];
        struct member last = r->members[--r->num_members];

        r->members[slot] = last;
        state->slots[last.engine * state->longest + last.hop] = slot;
        r->load -= worker->rate;
        note_dirty(state, route->resources[k]);
    }
}

/* ---- phases of puts ---- */

/* Turn to the next put; without one the engine leaves the heap. */
static void turn(struct state *state, uint32_t engine)
{
    const struct rs_fluid_engine *e = &state->fluid->engines[engine];
    struct worker *worker = &state->workers[engine];

    worker->flows = false;
    worker->rate = 0;
    if (worker->position >= e->num_queue) {
        event_remove(state, engine);
        return;
    }
    worker->put = e->queue[worker->position++];
    worker->next = state->now + (e->command << RS_TICK_BITS);
    if (state->times != NULL) {
        state->times[worker->put].start = rs_to_ps(state->now);
        state->times[worker->put].data = rs_to_ps(worker->next);
    }
    event_move(state, engine);
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

static int step(struct state *state, uint32_t engine)
{
    struct worker *worker = &state->workers[engine];

    if (worker->flows) {
        leave(state, engine);
        end(state, engine);
        return 0;
    }
    worker->left = state->fluid->bytes[worker->put] * RS_BYTE;
    worker->since = state->now;
    if (worker->left == 0) {
        end(state, engine);
        return 0;
    }
    worker->flows = true;
    worker->bottleneck = NOTHING;
    worker->next = RS_NEVER;
    event_move(state, engine);
    state->begun[state->num_begun++] = engine;
    return enter(state, engine);
}

/* ---- sharing out ---- */

static void touch(struct state *state, uint32_t resource)
{
    struct resource *r = &state->resources[resource];

    if (r->round == state->round)
        return;
    r->round = state->round;
    r->kept = r->load;
    r->outside = r->bound;
    r->inside = 0;
    state->touched[state->num_touched++] = resource;
}

static void join(struct state *state, uint32_t engine)
{
    struct worker *worker = &state->workers[engine];
    const struct rs_fluid_route *route = route_of(state, worker);

    if (worker->region == state->round)
        return;
    worker->region = state->round;
    worker->wanted = 0;
    state->region[state->num_region++] = engine;
    for (size_t k = 0; k < route->num_resources; k++) {
        touch(state, route->resources[k]);
        state->resources[route->resources[k]].kept -= worker->rate;
        state->resources[route->resources[k]].inside++;
    }
    if (worker->bottleneck != NOTHING)
        state->resources[worker->bottleneck].outside--;
}

static bool less(struct share a, struct share b)
{
    return a.share != b.share ? a.share < b.share : a.resource < b.resource;
}

static void sift(struct state *state, size_t place, struct share moved)
{
    for (;;) {
        size_t below = 2 * place + 1;

        if (below >= state->num_shares)
            break;
        if (below + 1 < state->num_shares &&
            less(state->shares[below + 1], state->shares[below]))
            below++;
        if (!less(state->shares[below], moved))
            break;
        state->shares[place] = state->shares[below];
        place = below;
    }
    state->shares[place] = moved;
}

static void begin_sharing(struct state *state)
{
    state->num_shares = 0;
    for (size_t i = 0; i < state->num_touched; i++) {
        uint32_t number = state->touched[i];
        struct resource *r = &state->resources[number];

        r->left = (state->fluid->capacity[number] << RS_RATE_BITS) - r->kept;
        r->waiting = r->inside;
        r->level = RS_NEVER;
        /* Shares only grow: one above all engines' rates never binds. */
        if (r->waiting > 0 && r->left / r->waiting < state->fastest)
            state->shares[state->num_shares++] =
                (struct share){r->left / r->waiting, number};
    }
    for (size_t i = state->num_shares / 2; i-- > 0;)
        sift(state, i, state->shares[i]);
    for (size_t i = 0; i < state->num_region; i++)
        state->workers[state->region[i]].rated = false;
}

/* The least share. Shares only grow while rates are given, so one that is out
 * of date is too small and is found at the top. */
static bool least(struct state *state, struct share *found)
{
    while (state->num_shares > 0) {
        struct share top = state->shares[0];
        const struct resource *r = &state->resources[top.resource];
        uint64_t share;

        if (r->waiting == 0) {
            top = state->shares[--state->num_shares];
            sift(state, 0, top);
            continue;
        }
        share = r->left / r->waiting;
        if (share == top.share) {
            *found = top;
            return true;
        }
        top.share = share;
        sift(state, 0, top);
    }
    return false;
}

static void give(struct state *state, uint32_t engine, uint64_t rate,
                 uint32_t bottleneck)
{
    struct worker *worker = &state->workers[engine];
    const struct rs_fluid_route *route = route_of(state, worker);

    worker->rated = true;
    worker->wanted = rate;
    worker->limit = bottleneck;
    for (size_t k = 0; k < route->num_resources; k++) {
        state->resources[route->resources[k]].left -= rate;
        state->resources[route->resources[k]].waiting--;
    }
}

static void give_share(struct state *state, struct share share)
{
    struct resource *r = &state->resources[share.resource];

    r->level = share.share;
    for (size_t i = 0; i < r->num_members; i++) {
        uint32_t engine = r->members[i].engine;
        struct worker *worker = &state->workers[engine];

        if (worker->region == state->round && !worker->rated)
            give(state, engine, share.share, share.resource);
    }
}

static int compare_caps(const void *left, const void *right, void *arg)
{
    const struct state *state = arg;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    uint64_t x = state->workers[a].cap, y = state->workers[b].cap;

    if (x != y)
        return x < y ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Share the region out; see fluid.h. */
static void share_out(struct state *state)
{
    size_t slowest = 0; /* in the region: whose engine's rate is next */

    if (!state->uniform)
        qsort_r(state->region, state->num_region, sizeof(*state->region),
                compare_caps, state);
    begin_sharing(state);
    state->effort.shared += state->num_region;
    for (;;) {
        struct share share = {RS_NEVER, NOTHING};
        struct worker *worker;
        bool any = least(state, &share);

        while (slowest < state->num_region &&
               state->workers[state->region[slowest]].rated)
            slowest++;
        if (slowest == state->num_region)
            return;
        worker = &state->workers[state->region[slowest]];
        if (!any || worker->cap <= share.share)
            give(state, state->region[slowest], worker->cap, NOTHING);
        else
            give_share(state, share);
    }
}

/* The most that a put of the region has on a resource. */
static uint64_t most_inside(const struct state *state,
                            const struct resource *r)
{
    uint64_t most = 0;

    for (size_t i = 0; i < r->num_members; i++) {
        const struct worker *worker = &state->workers[r->members[i].engine];

        if (worker->region == state->round && worker->wanted > most)
            most = worker->wanted;
    }
    return most;
}

/* Puts outside the region join it when they have more on this resource than
 * the share that it gave, or when it was their bottleneck and would now give
 * them another rate. */
static void widen(struct state *state, uint32_t resource)
{
    const struct resource *r = &state->resources[resource];
    uint64_t most;

    if (r->inside == r->num_members ||
        (r->level == RS_NEVER && r->outside == 0))
        return;
    most = r->outside > 0 ? most_inside(state, r) : 0;
    for (size_t i = 0; i < r->num_members; i++) {
        uint32_t engine = r->members[i].engine;
        const struct worker *worker = &state->workers[engine];
        bool joins;

        if (worker->region == state->round)
            continue;
        joins = r->level != RS_NEVER && worker->rate > r->level + NEAR;
        if (worker->bottleneck == resource)
            joins = joins || most > worker->rate + NEAR || r->left > NEAR;
        if (joins)
            join(state, engine);
    }
}

/* The region has its rates. */
static void apply(struct state *state)
{
    for (size_t i = 0; i < state->num_touched; i++) {
        struct resource *r = &state->resources[state->touched[i]];

        r->load = (state->fluid->capacity[state->touched[i]] << RS_RATE_BITS) -
                  r->left;
    }
    for (size_t i = 0; i < state->num_region; i++) {
        uint32_t engine = state->region[i];
        struct worker *worker = &state->workers[engine];

        if (worker->bottleneck != NOTHING)
            state->resources[worker->bottleneck].bound--;
        if (worker->limit != NOTHING)
            state->resources[worker->limit].bound++;
        worker->bottleneck = worker->limit;
        if (worker->wanted == worker->rate)
            continue;
        worker->left -= (rs_wide)worker->rate * (state->now - worker->since);
        worker->since = state->now;
        worker->rate = worker->wanted;
        worker->next = rs_end_of(state->now, worker->left, worker->rate);
        event_move(state, engine);
    }
}

/* All rates anew, after what began and ended in this round. */
static void settle(struct state *state)
{
    size_t before;

    state->round++;
    state->num_region = 0;
    state->num_touched = 0;
    for (size_t i = 0; i < state->num_begun; i++)
        join(state, state->begun[i]);
    for (size_t i = 0; i < state->num_dirty; i++) {
        struct resource *r = &state->resources[state->dirty[i]];

        r->dirty = false;
        for (size_t k = 0; k < r->num_members; k++) {
            if (state->workers[r->members[k].engine].bottleneck ==
                state->dirty[i])
                join(state, r->members[k].engine);
        }
    }
    do {
        size_t touched = state->num_touched;

        before = state->num_region;
        share_out(state);
        for (size_t i = 0; i < touched; i++)
            widen(state, state->touched[i]);
    } while (state->num_region > before);
    apply(state);
    state->num_begun = 0;
    state->num_dirty = 0;
    state->effort.rounds++;
}

static int simulate(struct state *state, rs_network_progress *progress,
                    void *arg)
{
    size_t told = 0;
    int error;

    while (state->num_events > 0) {
        state->now = state->workers[state->events[0]].next;
        if (state->now > RS_TICKS_MOST)
            return rs_fail(RSCHED_ELIMIT,
                           "the schedule takes longer than 2 hours");
        while (state->num_events > 0 &&
               state->workers[state->events[0]].next == state->now) {
            error = step(state, state->events[0]);
            if (error != 0)
                return error;
        }
        settle(state);
        if (progress != NULL && state->ended >= told + PROGRESS_EVERY) {
            told = state->ended;
            progress(arg, state->ended, state->puts);
        }
    }
    return 0;
}

static void release(struct state *state)
{
    if (state->resources != NULL) {
        for (size_t i = 0; i < state->fluid->num_resources; i++)
            free(state->resources[i].members);
    }
    free(state->resources);
    free(state->workers);
    free(state->slots);
    free(state->events);
    free(state->begun);
    free(state->dirty);
    free(state->region);
    free(state->touched);
    free(state->shares);
}

static int allocate(struct state *state)
{
    size_t engines = state->fluid->num_engines + 1;
    size_t resources = state->fluid->num_resources + 1;

    state->workers = calloc(engines, sizeof(*state->workers));
    state->resources = calloc(resources, sizeof(*state->resources));
    state->slots = calloc(engines * (state->longest + 1),
                          sizeof(*state->slots));
    state->events = calloc(engines, sizeof(*state->events));
    state->begun = calloc(engines, sizeof(*state->begun));
    state->dirty = calloc(resources, sizeof(*state->dirty));
    state->region = calloc(engines, sizeof(*state->region));
    state->touched = calloc(resources, sizeof(*state->touched));
    state->shares = calloc(resources, sizeof(*state->shares));
    if (state->workers == NULL || state->resources == NULL ||
        state->slots == NULL || state->events == NULL ||
        state->begun == NULL || state->dirty == NULL ||
        state->region == NULL || state->touched == NULL ||
        state->shares == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to simulate %zu engines",
                       engines - 1);
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
    state->uniform = state->uniform && e->rate == fluid->engines[0].rate;
    if (e->rate << RS_RATE_BITS > state->fastest)
        state->fastest = e->rate << RS_RATE_BITS;
    return 0;
}

/* All engines with a queue turn to their first puts. */
static void begin(struct state *state)
{
    for (uint32_t i = 0; i < state->fluid->num_engines; i++) {
        const struct rs_fluid_engine *e = &state->fluid->engines[i];
        struct worker *worker = &state->workers[i];

        worker->place = NOTHING;
        worker->cap = e->rate << RS_RATE_BITS;
        if (e->num_queue == 0)
            continue;
        worker->next = RS_NEVER;
        event_put(state, state->num_events++, i);
        state->now = e->opens << RS_TICK_BITS;
        turn(state, i);
    }
    state->now = 0;
}

int rs_network_run(const struct rs_fluid *fluid, struct rs_fluid_times *times,
                   uint64_t *makespan, struct rs_network_effort *effort,
                   rs_network_progress *progress, void *arg)
{
    struct state state = {.fluid = fluid, .times = times, .uniform = true};
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
            *effort = state.effort;
    }
    release(&state);
    return error;
}
