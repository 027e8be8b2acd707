/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/dispatch.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

typedef unsigned __int128 wide;

/* bytes * inverse is the time they take on the link: in 2^-43 s, so that two
 * hours fit. */
enum { INVERSE_BITS = 63, TIME_BITS = 43 };

struct rs_link_load {
    uint64_t capacity;
    uint64_t inverse;  /* 2^63 / capacity */
    uint64_t queued;   /* bytes of puts that are not started, once for each
                          rail on which they would use it */
    uint64_t rate;     /* of the engines whose puts fly */
    uint32_t flying;   /* puts started and not ended */
    /* At the moment of a decision: */
    uint64_t conf, gain, time;
};

struct key {
    uint64_t value[3]; /* the first one counts most */
};

/* Class by class, the longest first. */
static int sort_puts(struct rs_dispatch *dispatch)
{
    const struct rs_script *script = dispatch->script;
    const struct rs_problem *problem = script->problem;
    size_t *at = calloc(script->num_classes + 1, sizeof(*at));

    if (at == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to plan");
    for (size_t i = 0; i < problem->num_puts; i++)
        dispatch->first[script->class_of[problem->direction[i]] + 1]++;
    for (size_t c = 0; c < script->num_classes; c++)
        dispatch->first[c + 1] += dispatch->first[c];
    memcpy(at, dispatch->first, script->num_classes * sizeof(*at));
    for (size_t i = 0; i < problem->num_puts; i++) {
        uint32_t put = problem->by_bytes[i];
        size_t place = at[script->class_of[problem->direction[put]]]++;

        dispatch->puts[place] = put;
        dispatch->bytes[place] = problem->bytes[put];
    }
    free(at);
    return 0;
}

static void find_route_links(struct rs_dispatch *dispatch,
                             const struct rs_fluid_route *route)
{
    for (size_t k = 0; k < route->num_resources; k++) {
        uint32_t r = route->resources[k];
        struct rs_link_load *load = &dispatch->loads[r];

        if (load->capacity != 0)
            continue;
        load->capacity = dispatch->script->problem->capacity[r];
        load->inverse = (UINT64_C(1) << INVERSE_BITS) / load->capacity;
        dispatch->used[dispatch->num_used++] = r;
    }
}

/* The resources that any class uses. */
static void find_links(struct rs_dispatch *dispatch)
{
    const struct rs_script *script = dispatch->script;

    for (size_t c = 0; c < script->num_classes; c++) {
        for (size_t rail = 0; rail < script->problem->num_rails; rail++)
            find_route_links(dispatch, &script->classes[c][rail]);
    }
}

/* Engines by decreasing rate. */
static void sort_engines(struct rs_dispatch *dispatch)
{
    const struct rs_script *script = dispatch->script;

    for (uint32_t e = 0; e < script->num_engines; e++) {
        uint32_t at = e;

        for (; at > 0 && script->caps[dispatch->by_rate[at - 1]] <
                             script->caps[e]; at--)
            dispatch->by_rate[at] = dispatch->by_rate[at - 1];
        dispatch->by_rate[at] = e;
    }
}

int rs_dispatch_init(struct rs_dispatch *dispatch, struct rs_script *script)
{
    const struct rs_problem *problem = script->problem;
    size_t classes = script->num_classes + 1;
    int error;

    *dispatch = (struct rs_dispatch){
        .script = script,
        .stage = rs_stage_create(script),
        .puts = calloc(problem->num_puts + 1, sizeof(*dispatch->puts)),
        .bytes = calloc(problem->num_puts + 1, sizeof(*dispatch->bytes)),
        .first = calloc(classes, sizeof(*dispatch->first)),
        .next = calloc(classes, sizeof(*dispatch->next)),
        .loads = calloc(problem->num_resources + 1, sizeof(*dispatch->loads)),
        .used = calloc(problem->num_resources + 1, sizeof(*dispatch->used)),
        .by_rate = calloc(problem->costs.num_engines,
                          sizeof(*dispatch->by_rate)),
    };
    if (dispatch->stage == NULL || dispatch->puts == NULL ||
        dispatch->bytes == NULL ||
        dispatch->first == NULL || dispatch->next == NULL ||
        dispatch->loads == NULL || dispatch->used == NULL ||
        dispatch->by_rate == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
    else
        error = sort_puts(dispatch);
    if (error != 0) {
        rs_dispatch_fini(dispatch);
        return error;
    }
    find_links(dispatch);
    sort_engines(dispatch);
    return 0;
}

void rs_dispatch_fini(struct rs_dispatch *dispatch)
{
    free(dispatch->stage);
    free(dispatch->puts);
    free(dispatch->bytes);
    free(dispatch->first);
    free(dispatch->next);
    free(dispatch->loads);
    free(dispatch->used);
    free(dispatch->by_rate);
    memset(dispatch, 0, sizeof(*dispatch));
}

/* `bytes` more of a class are not started. */
static void add_queued(struct rs_dispatch *dispatch, uint32_t cls,
                       int64_t bytes)
{
    const struct rs_script *script = dispatch->script;

    for (size_t rail = 0; rail < script->problem->num_rails; rail++) {
        const struct rs_fluid_route *route = &script->classes[cls][rail];

        for (size_t k = 0; k < route->num_resources; k++)
            dispatch->loads[route->resources[k]].queued += (uint64_t)bytes;
    }
}

/* An engine has `puts` more of a class in flight. */
static void add_flying(struct rs_dispatch *dispatch, uint32_t cls,
                       uint32_t engine, int puts)
{
    const struct rs_problem *problem = dispatch->script->problem;
    const struct rs_fluid_route *route =
        rs_script_route(dispatch->script, cls, engine);
    uint64_t rate = rs_problem_rate(problem, engine);

    for (size_t k = 0; k < route->num_resources; k++) {
        struct rs_link_load *load = &dispatch->loads[route->resources[k]];

        load->flying += (uint32_t)puts;
        load->rate += puts > 0 ? rate : -rate;
    }
}

/* Engines that are left out are closed; those that remain turn up in order. */
static void choose_engines(struct rs_dispatch *dispatch, uint32_t engines,
                           bool fastest)
{
    struct rs_stage *stage = dispatch->stage;
    uint32_t all = dispatch->script->num_engines;
    uint64_t opened = 0;

    rs_stage_begin(stage, fastest ? all : engines);
    if (!fastest)
        return;
    for (uint32_t i = engines; i < all; i++)
        rs_stage_close(stage, dispatch->by_rate[i]);
    for (uint32_t e = 0; e < all; e++) {
        if (stage->actors[e].phase != RS_CLOSED)
            stage->actors[e].next = opened++ * dispatch->script->open;
    }
}

static void begin(struct rs_dispatch *dispatch, uint32_t engines,
                  bool fastest)
{
    const struct rs_problem *problem = dispatch->script->problem;

    choose_engines(dispatch, engines, fastest);
    memcpy(dispatch->next, dispatch->first,
           (dispatch->script->num_classes + 1) * sizeof(*dispatch->next));
    for (size_t i = 0; i < dispatch->num_used; i++) {
        dispatch->loads[dispatch->used[i]].queued = 0;
        dispatch->loads[dispatch->used[i]].rate = 0;
        dispatch->loads[dispatch->used[i]].flying = 0;
    }
    for (size_t i = 0; i < problem->num_puts; i++)
        add_queued(dispatch, dispatch->script->class_of[problem->direction[i]],
                   (int64_t)problem->bytes[i]);
}

/* The bytes in flight, once for each rail as well. */
static void look_at_flying(struct rs_dispatch *dispatch)
{
    const struct rs_script *script = dispatch->script;
    const struct rs_stage *stage = dispatch->stage;

    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];
        const struct rs_fluid_route *route;
        uint64_t left;

        if (actor->phase != RS_COMMAND && actor->phase != RS_FLOWS)
            continue;
        route = rs_script_route(script, actor->cls, e);
        left = rs_stage_left(stage, e) * script->problem->num_rails;
        for (size_t k = 0; k < route->num_resources; k++)
            dispatch->loads[route->resources[k]].time += left;
    }
}

/* What the rules want to know of each link, for a put on an engine. */
static void look(struct rs_dispatch *dispatch, uint32_t engine)
{
    const struct rs_problem *problem = dispatch->script->problem;
    uint64_t rate = rs_problem_rate(problem, engine);

    for (size_t i = 0; i < dispatch->num_used; i++) {
        struct rs_link_load *load = &dispatch->loads[dispatch->used[i]];

        load->time = load->queued;
    }
    look_at_flying(dispatch);
    for (size_t i = 0; i < dispatch->num_used; i++) {
        struct rs_link_load *load = &dispatch->loads[dispatch->used[i]];
        uint64_t rest = load->capacity > load->rate
                            ? load->capacity - load->rate
                            : 0;

        load->conf = rest < rate ? load->flying : 0;
        load->gain = (rest < rate ? rest : rate) * 8 / rate;
        if (problem->num_rails > 1)
            load->time /= problem->num_rails;
        load->time = (uint64_t)((wide)load->time * load->inverse >>
                                (INVERSE_BITS - TIME_BITS));
    }
}

static struct key key_of(const struct rs_dispatch *dispatch,
                         enum rs_rule rule, uint32_t cls, uint32_t engine)
{
    const struct rs_script *script = dispatch->script;
    const struct rs_fluid_route *route = rs_script_route(script, cls, engine);
    uint64_t conf = 0, gain = 8, crit = 0, sum = 0;
    uint64_t bytes = dispatch->bytes[dispatch->next[cls]];

    for (size_t k = 0; k < route->num_resources; k++) {
        const struct rs_link_load *load =
            &dispatch->loads[route->resources[k]];

        if (route->resources[k] == script->problem->node)
            continue;
        conf += load->conf;
        gain = load->gain < gain ? load->gain : gain;
        crit = load->time > crit ? load->time : crit;
        sum += load->time;
    }
    switch (rule) {
    case RS_RULE_G1:
        return (struct key){{conf == 0, crit, bytes}};
    case RS_RULE_G3:
        return (struct key){{gain, crit, bytes}};
    case RS_RULE_G4:
        return (struct key){{conf == 0, bytes, crit}};
    case RS_RULE_G5:
        return (struct key){{conf == 0, sum, bytes}};
    case RS_RULE_G9:
        return (struct key){{~conf, crit, bytes}};
    case RS_RULE_G10:
        return (struct key){{~conf, sum, bytes}};
    default:
        return (struct key){{bytes, 0, 0}};
    }
}

static bool is_larger(const struct key *a, const struct key *b)
{
    if (a->value[0] != b->value[0])
        return a->value[0] > b->value[0];
    if (a->value[1] != b->value[1])
        return a->value[1] > b->value[1];
    return a->value[2] > b->value[2];
}

/* The class that an engine takes a put of, or UINT32_MAX when none is left. */
static uint32_t choose(struct rs_dispatch *dispatch, enum rs_rule rule,
                       uint32_t engine)
{
    uint32_t best = UINT32_MAX;
    struct key best_key = {{0}};

    look(dispatch, engine);
    for (uint32_t c = 0; c < dispatch->script->num_classes; c++) {
        struct key key;

        if (dispatch->next[c] == dispatch->first[c + 1])
            continue;
        key = key_of(dispatch, rule, c, engine);
        if (best == UINT32_MAX || is_larger(&key, &best_key)) {
            best = c;
            best_key = key;
        }
    }
    return best;
}

/* Give a free engine its next put, or send it home. */
static void serve(struct rs_dispatch *dispatch, enum rs_rule rule,
                  uint32_t engine, struct rs_place *places, uint64_t *order)
{
    for (;;) {
        uint32_t cls = choose(dispatch, rule, engine);
        uint64_t bytes;
        uint32_t put;

        if (cls == UINT32_MAX) {
            rs_stage_close(dispatch->stage, engine);
            return;
        }
        bytes = dispatch->bytes[dispatch->next[cls]];
        put = dispatch->puts[dispatch->next[cls]++];
        places[put] = (struct rs_place){engine, (*order)++};
        add_queued(dispatch, cls, -(int64_t)bytes);
        add_flying(dispatch, cls, engine, 1);
        if (!rs_stage_start(dispatch->stage, engine, cls, bytes))
            return;
        add_flying(dispatch, cls, engine, -1);
    }
}

uint64_t rs_dispatch_run(struct rs_dispatch *dispatch, enum rs_rule rule,
                         uint32_t engines, bool fastest,
                         struct rs_place *places)
{
    struct rs_stage *stage = dispatch->stage;
    uint64_t order = 0;

    begin(dispatch, engines, fastest);
    while (rs_stage_advance(stage) != RS_NEVER) {
        for (uint32_t e = 0; e < stage->num_engines; e++) {
            struct rs_actor *actor = &stage->actors[e];

            if (actor->phase == RS_FREE && actor->cls != UINT32_MAX) {
                add_flying(dispatch, actor->cls, e, -1);
                actor->cls = UINT32_MAX;
            }
        }
        for (uint32_t e = 0; e < stage->num_engines; e++) {
            if (stage->actors[e].phase == RS_FREE)
                serve(dispatch, rule, e, places, &order);
        }
    }
    return rs_stage_end(stage);
}
