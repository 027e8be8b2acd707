/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/stage.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

typedef unsigned __int128 wide;

#define BYTE_PS UINT64_C(1000000000000)
#define TICKS_MOST (UINT64_C(7200000000000000) << RS_STAGE_TICK_BITS)

enum { MEMORY_BITS = 14, MEMORY = 1 << MEMORY_BITS };

/* ---------------------------------------------------------------- script */

static bool same_route(const struct rs_fluid_route *a,
                       const struct rs_fluid_route *b)
{
    return a->num_resources == b->num_resources &&
           (a->num_resources == 0 ||
            memcmp(a->resources, b->resources,
                   a->num_resources * sizeof(*a->resources)) == 0);
}

static bool same_class(const struct rs_problem *problem,
                       const struct rs_fluid_route *a,
                       const struct rs_fluid_route *b)
{
    size_t rail = 0;

    while (rail < problem->num_rails && same_route(&a[rail], &b[rail]))
        rail++;
    return rail == problem->num_rails;
}

/* Directions with the same resources are one class. */
static void find_classes(struct rs_script *script)
{
    const struct rs_problem *problem = script->problem;

    memset(script->class_of, 0xff,
           problem->num_directions * sizeof(*script->class_of));
    for (size_t i = 0; i < problem->num_puts; i++) {
        uint32_t direction = problem->direction[i];
        const struct rs_fluid_route *routes =
            &problem->routes[direction * problem->num_rails];
        uint32_t c = 0;

        if (script->class_of[direction] != UINT32_MAX)
            continue;
        while (c < script->num_classes &&
               !same_class(problem, script->classes[c], routes))
            c++;
        if (c == script->num_classes)
            script->classes[script->num_classes++] = routes;
        script->class_of[direction] = c;
    }
}

/* A key has room for a put of every engine, or else nothing is remembered. */
static int allocate_memory(struct rs_script *script)
{
    size_t kinds = script->num_classes * script->problem->num_rails;
    unsigned bits = 1;

    while (kinds >> bits != 0)
        bits++;
    if ((uint64_t)bits * script->num_engines > 64)
        return 0;
    script->memory = calloc(MEMORY, sizeof(*script->memory));
    script->memory_rates = calloc((size_t)MEMORY * script->num_engines,
                                  sizeof(uint64_t));
    if (script->memory == NULL || script->memory_rates == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to plan");
    for (size_t i = 0; i < MEMORY; i++)
        script->memory[i].rate = script->memory_rates +
                                 i * script->num_engines;
    script->bits = bits;
    return 0;
}

/* What each put takes at least, rounded down. */
static int measure(struct rs_script *script)
{
    const struct rs_problem *problem = script->problem;
    wide sum;

    if (problem->costs.engine_open > TICKS_MOST >> RS_STAGE_TICK_BITS ||
        problem->costs.command > TICKS_MOST >> RS_STAGE_TICK_BITS)
        return rs_fail(RSCHED_ELIMIT,
                       "the schedule takes longer than 2 hours");
    for (size_t i = 0; i < problem->num_puts; i++) {
        sum = problem->bytes[i] * RS_STAGE_BYTE / script->cap + script->command;
        if (sum > TICKS_MOST)
            return rs_fail(RSCHED_ELIMIT,
                           "the schedule takes longer than 2 hours");
        script->least[i] = (uint64_t)sum;
    }
    return 0;
}

int rs_script_init(struct rs_script *script, const struct rs_problem *problem)
{
    size_t directions = problem->num_directions + 1;
    size_t resources = problem->num_resources + 1;
    size_t kinds = directions * problem->num_rails;
    int error;

    *script = (struct rs_script){
        .problem = problem,
        .num_engines = problem->costs.num_engines,
        .class_of = calloc(directions, sizeof(*script->class_of)),
        .classes = calloc(directions, sizeof(*script->classes)),
        .caps = calloc(problem->costs.num_engines, sizeof(*script->caps)),
        .cap = problem->fastest << RS_STAGE_RATE_BITS,
        .slowest = problem->slowest << RS_STAGE_RATE_BITS,
        .command = problem->costs.command << RS_STAGE_TICK_BITS,
        .open = problem->costs.engine_open << RS_STAGE_TICK_BITS,
        .left = calloc(resources, sizeof(*script->left)),
        .waiting = calloc(resources, sizeof(*script->waiting)),
        .touched = calloc(resources, sizeof(*script->touched)),
        .rates = calloc(kinds, sizeof(*script->rates)),
        .flying = calloc(kinds, sizeof(*script->flying)),
        .kinds = calloc(kinds, sizeof(*script->kinds)),
        .position = calloc(problem->costs.num_engines,
                           sizeof(*script->position)),
        .rest = calloc(problem->costs.num_engines, sizeof(*script->rest)),
        .least = calloc(problem->num_puts + 1, sizeof(*script->least)),
    };
    if (script->class_of == NULL || script->classes == NULL ||
        script->caps == NULL ||
        script->left == NULL || script->waiting == NULL ||
        script->touched == NULL || script->rates == NULL ||
        script->flying == NULL || script->kinds == NULL ||
        script->position == NULL || script->rest == NULL ||
        script->least == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
    else
        error = measure(script);
    if (error == 0) {
        for (uint32_t e = 0; e < script->num_engines; e++)
            script->caps[e] = rs_problem_rate(problem, e)
                              << RS_STAGE_RATE_BITS;
        find_classes(script);
        error = allocate_memory(script);
    }
    if (error != 0)
        rs_script_fini(script);
    return error;
}

void rs_script_fini(struct rs_script *script)
{
    free(script->class_of);
    free(script->classes);
    free(script->caps);
    free(script->memory);
    free(script->memory_rates);
    free(script->left);
    free(script->waiting);
    free(script->touched);
    free(script->rates);
    free(script->flying);
    free(script->kinds);
    free(script->position);
    free(script->rest);
    free(script->least);
    memset(script, 0, sizeof(*script));
}

/* ----------------------------------------------------------------- rates */

static uint32_t kind_of(const struct rs_stage *stage, uint32_t engine)
{
    const struct rs_problem *problem = stage->script->problem;

    return stage->actors[engine].cls * (uint32_t)problem->num_rails +
           (uint32_t)rs_problem_rail(problem, engine);
}

static const struct rs_fluid_route *route_of(const struct rs_script *script,
                                             uint32_t kind)
{
    size_t rails = script->problem->num_rails;

    return rails == 1 ? script->classes[kind]
                      : &script->classes[kind / rails][kind % rails];
}

/* All puts of a kind get a rate. */
static void take(struct rs_script *script, uint32_t kind, uint64_t rate)
{
    const struct rs_fluid_route *route = route_of(script, kind);
    uint32_t puts = script->flying[kind];

    for (size_t k = 0; k < route->num_resources; k++) {
        script->left[route->resources[k]] -= puts * rate;
        script->waiting[route->resources[k]] -= puts;
    }
    script->rates[kind] = rate;
}

/* The resource with the least share, of the lowest number among equals. */
static uint32_t find_bottleneck(const struct rs_script *script, size_t touched,
                                uint64_t *share)
{
    uint32_t bottleneck = UINT32_MAX;

    *share = UINT64_MAX;
    for (size_t i = 0; i < touched; i++) {
        uint32_t r = script->touched[i];
        uint64_t s;

        if (script->waiting[r] == 0)
            continue;
        s = script->left[r] / script->waiting[r];
        if (s < *share || (s == *share && r < bottleneck)) {
            bottleneck = r;
            *share = s;
        }
    }
    return bottleneck;
}

static bool uses(const struct rs_fluid_route *route, uint32_t resource)
{
    for (size_t k = 0; k < route->num_resources; k++) {
        if (route->resources[k] == resource)
            return true;
    }
    return false;
}

/* Count the puts in flight, per kind, and per resource that they use. Returns
 * the number of kinds. */
static size_t begin_sharing(const struct rs_stage *stage, size_t *touched)
{
    struct rs_script *script = stage->script;
    size_t kinds = 0;

    *touched = 0;
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_fluid_route *route;
        uint32_t kind;

        if (stage->actors[e].phase != RS_FLOWS)
            continue;
        kind = kind_of(stage, e);
        if (script->flying[kind]++ == 0) {
            script->kinds[kinds++] = kind;
            script->rates[kind] = 0;
        }
        route = route_of(script, kind);
        for (size_t k = 0; k < route->num_resources; k++) {
            uint32_t r = route->resources[k];

            if (script->waiting[r]++ == 0) {
                script->touched[(*touched)++] = r;
                script->left[r] = script->problem->capacity[r]
                                  << RS_STAGE_RATE_BITS;
            }
        }
    }
    return kinds;
}

/* Give those that use `bottleneck` the share, or, when that is UINT32_MAX,
 * those whose engine has at most the share its rate. Returns how many. */
static size_t give(struct rs_script *script, size_t kinds, uint32_t bottleneck,
                   uint64_t share)
{
    size_t rails = script->problem->num_rails, given = 0;

    for (size_t i = 0; i < kinds; i++) {
        uint32_t kind = script->kinds[i];
        uint64_t cap = script->caps[rails == 1 ? 0 : kind % rails];

        if (script->rates[kind] != 0)
            continue;
        if (bottleneck == UINT32_MAX
                ? cap > share
                : !uses(route_of(script, kind), bottleneck))
            continue;
        take(script, kind, bottleneck == UINT32_MAX ? cap : share);
        given++;
    }
    return given;
}

/* Max-min fair rates of what is in flight, as models/fluid.h defines them. A
 * rate of 0 cannot be: capacities are whole bytes per second, so a share is at
 * least one unit unless there are 2^16 engines. */
static void share_out(const struct rs_stage *stage)
{
    struct rs_script *script = stage->script;
    size_t touched, kinds = begin_sharing(stage, &touched), left = kinds;

    while (left > 0) {
        uint64_t share;
        uint32_t bottleneck = find_bottleneck(script, touched, &share);
        size_t given = share < script->slowest
                           ? 0
                           : give(script, kinds, UINT32_MAX, share);

        if (given == 0)
            given = give(script, kinds, bottleneck, share);
        left -= given;
    }
    for (size_t i = 0; i < kinds; i++)
        script->flying[script->kinds[i]] = 0;
}

/* Rates as from share_out(), from memory if possible. */
static void find_rates(const struct rs_stage *stage)
{
    struct rs_script *script = stage->script;
    struct rs_rates *entry;
    uint64_t mask, *rate;
    bool known;

    if (script->bits == 0) {
        share_out(stage);
        return;
    }
    mask = UINT64_MAX >> (64 - script->bits);
    entry = &script->memory[stage->key * UINT64_C(0x9e3779b97f4a7c15) >>
                            (64 - MEMORY_BITS)];
    known = entry->key == stage->key;
    if (!known)
        share_out(stage);
    entry->key = stage->key;
    rate = entry->rate;
    for (uint64_t left = stage->key; left != 0; left >>= script->bits) {
        uint64_t *of = &script->rates[(left & mask) - 1];

        if (known)
            *of = *rate++;
        else
            *rate++ = *of;
    }
}

static uint64_t end_of(uint64_t now, wide left, uint64_t rate)
{
    wide ticks = (left + rate - 1) / rate;

    return ticks > TICKS_MOST ? RS_NEVER : now + (uint64_t)ticks;
}

static void set_rates(struct rs_stage *stage)
{
    find_rates(stage);
    stage->changed = false;
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        struct rs_actor *actor = &stage->actors[e];
        uint64_t rate;

        if (actor->phase != RS_FLOWS)
            continue;
        rate = stage->script->rates[kind_of(stage, e)];
        if (rate == actor->rate)
            continue;
        actor->left -= (wide)actor->rate * (stage->now - actor->since);
        actor->since = stage->now;
        actor->rate = rate;
        actor->next = end_of(stage->now, actor->left, actor->rate);
    }
}

/* ----------------------------------------------------------------- stage */

size_t rs_stage_size(const struct rs_script *script)
{
    return sizeof(struct rs_stage) +
           script->num_engines * sizeof(struct rs_actor);
}

struct rs_stage *rs_stage_create(struct rs_script *script)
{
    struct rs_stage *stage = calloc(1, rs_stage_size(script));

    if (stage == NULL)
        rs_fail(RSCHED_ENOMEM, "no memory to plan");
    else
        stage->script = script;
    return stage;
}

void rs_stage_begin(struct rs_stage *stage, uint32_t engines)
{
    const struct rs_script *script = stage->script;

    stage->now = 0;
    stage->last = 0;
    stage->key = 0;
    stage->changed = false;
    stage->num_engines = engines;
    for (uint32_t e = 0; e < engines; e++) {
        stage->actors[e].phase = RS_OPENS;
        stage->actors[e].next = e * script->open;
        stage->actors[e].cls = UINT32_MAX;
    }
}

void rs_stage_copy(struct rs_stage *to, const struct rs_stage *from)
{
    memcpy(to, from, sizeof(*from) +
                         from->num_engines * sizeof(*from->actors));
}

/* What is in flight becomes one more, or one less, of an engine's kind: a field
 * comes into the key, or out of it. */
static void set_key(struct rs_stage *stage, uint32_t engine, bool flies)
{
    unsigned bits = stage->script->bits, at = 0;
    uint64_t value = kind_of(stage, engine) + UINT64_C(1), key = stage->key;
    uint64_t mask, low, high;

    stage->changed = true;
    if (bits == 0)
        return;
    mask = UINT64_MAX >> (64 - bits);
    while ((key >> at & mask) > value)
        at += bits;
    low = key & ~(UINT64_MAX << at);
    high = key >> at;
    if (flies)
        stage->key = (high << (bits - 1) << 1 | value) << at | low;
    else
        stage->key = (high >> (bits - 1) >> 1) << at | low;
}

/* The command is done. Returns whether the put is done too. */
static bool flow(struct rs_stage *stage, uint32_t engine)
{
    struct rs_actor *actor = &stage->actors[engine];

    if (actor->left == 0) {
        stage->last = stage->now;
        actor->phase = RS_FREE;
        return true;
    }
    actor->phase = RS_FLOWS;
    actor->since = stage->now;
    actor->rate = 0;
    actor->next = RS_NEVER;
    set_key(stage, engine, true);
    return false;
}

bool rs_stage_start(struct rs_stage *stage, uint32_t engine, uint32_t cls,
                    uint64_t bytes)
{
    struct rs_actor *actor = &stage->actors[engine];

    actor->cls = cls;
    actor->left = bytes * RS_STAGE_BYTE;
    if (stage->script->command == 0)
        return flow(stage, engine);
    actor->phase = RS_COMMAND;
    actor->next = stage->now + stage->script->command;
    return false;
}

void rs_stage_close(struct rs_stage *stage, uint32_t engine)
{
    stage->actors[engine].phase = RS_CLOSED;
}

void rs_stage_replace(struct rs_stage *stage, uint32_t engine, uint32_t other)
{
    for (uint32_t e = engine; e < other; e++)
        rs_stage_close(stage, e);
    stage->actors[other].phase = RS_FREE;
    for (uint32_t e = other + 1; e < stage->num_engines; e++)
        stage->actors[e].next = stage->now + (e - other) * stage->script->open;
}

/* All that ends now. Returns whether an engine has become free. */
static bool end_phases(struct rs_stage *stage)
{
    bool free = false;

    for (uint32_t e = 0; e < stage->num_engines; e++) {
        struct rs_actor *actor = &stage->actors[e];

        if (actor->phase <= RS_FREE || actor->next != stage->now)
            continue;
        if (actor->phase == RS_COMMAND) {
            free |= flow(stage, e);
            continue;
        }
        if (actor->phase == RS_FLOWS) {
            set_key(stage, e, false);
            stage->last = stage->now;
        }
        actor->phase = RS_FREE;
        free = true;
    }
    return free;
}

uint64_t rs_stage_advance(struct rs_stage *stage)
{
    do {
        uint64_t next = RS_NEVER;

        if (stage->changed)
            set_rates(stage);
        for (uint32_t e = 0; e < stage->num_engines; e++) {
            const struct rs_actor *actor = &stage->actors[e];

            if (actor->phase > RS_FREE && actor->next < next)
                next = actor->next;
        }
        if (next > TICKS_MOST)
            return RS_NEVER;
        stage->now = next;
    } while (!end_phases(stage));
    return stage->now;
}

uint64_t rs_stage_left(const struct rs_stage *stage, uint32_t engine)
{
    const struct rs_actor *actor = &stage->actors[engine];
    wide left = actor->left;

    if (actor->phase == RS_FLOWS)
        left -= (wide)actor->rate * (stage->now - actor->since);
    left >>= RS_STAGE_UNIT_BITS;
    if (left <= UINT64_MAX)
        return (uint64_t)left / BYTE_PS;
    return (uint64_t)(left / BYTE_PS);
}

uint64_t rs_stage_ps(uint64_t ticks)
{
    if (ticks == RS_NEVER)
        return RS_NEVER;
    return (ticks + (1 << RS_STAGE_TICK_BITS) - 1) >> RS_STAGE_TICK_BITS;
}

uint64_t rs_stage_end(const struct rs_stage *stage)
{
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        if (stage->actors[e].phase > RS_FREE)
            return RS_NEVER;
    }
    return rs_stage_ps(stage->last);
}

void rs_stage_rates(struct rs_stage *stage, uint64_t *rates)
{
    struct rs_script *script = stage->script;

    memset(rates, 0, (script->num_classes + 1) * sizeof(*rates));
    share_out(stage);
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];

        if (actor->phase == RS_FLOWS)
            rates[actor->cls] += script->rates[kind_of(stage, e)];
        else if (actor->phase == RS_COMMAND)
            rates[script->num_classes] += script->cap;
    }
}

/* ------------------------------------------------------------------ play */

/* The k-th engine that has anything to do starts at k * open. */
static void open_engines(struct rs_stage *stage, const size_t *queues,
                         const uint32_t *order)
{
    struct rs_script *script = stage->script;
    uint64_t opened = 0;

    rs_stage_begin(stage, script->num_engines);
    for (uint32_t e = 0; e < script->num_engines; e++) {
        script->position[e] = queues[e];
        script->rest[e] = 0;
        for (size_t i = queues[e]; i < queues[e + 1]; i++)
            script->rest[e] += script->least[order[i]];
        if (queues[e] < queues[e + 1])
            stage->actors[e].next = opened++ * script->open;
        else
            rs_stage_close(stage, e);
    }
}

/* Start the next puts of a free engine. Returns false when what is in its queue
 * cannot end before `most`, even if it shares nothing. */
static bool serve(struct rs_stage *stage, uint32_t engine, size_t end,
                  const uint32_t *order, uint64_t most)
{
    const struct rs_script *script = stage->script;
    const struct rs_problem *problem = script->problem;
    bool free = true;

    if (stage->now + script->rest[engine] > most)
        return false;
    while (free && script->position[engine] < end) {
        uint32_t put = order[script->position[engine]++];

        script->rest[engine] -= script->least[put];
        free = rs_stage_start(stage, engine,
                              script->class_of[problem->direction[put]],
                              problem->bytes[put]);
    }
    if (free)
        rs_stage_close(stage, engine);
    return true;
}

uint64_t rs_stage_play(struct rs_stage *stage, const size_t *queues,
                       const uint32_t *order, uint64_t limit)
{
    uint64_t most = limit >= RS_NEVER >> RS_STAGE_TICK_BITS
                        ? RS_NEVER
                        : limit << RS_STAGE_TICK_BITS;

    open_engines(stage, queues, order);
    while (rs_stage_advance(stage) != RS_NEVER) {
        if (stage->now > most)
            return RS_NEVER;
        for (uint32_t e = 0; e < stage->num_engines; e++) {
            if (stage->actors[e].phase == RS_FREE &&
                !serve(stage, e, queues[e + 1], order, most))
                return RS_NEVER;
        }
    }
    return rs_stage_end(stage);
}
