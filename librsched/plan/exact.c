/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exact: branch and bound over the decisions of engines. The fluid simulation
 * runs; whenever an engine has nothing to do, every kind of put that is left
 * (bytes and class) is tried on it, using another one in its place, and sending
 * it home. A branch is left when
 * it cannot end before the best schedule so far, which fllf provides:
 *
 * - the bytes of each link that puts cannot avoid, at its capacity, beginning when the first of them can
 *   move; and each put's, at the engine's rate;
 * - weights (weights.h) for what is left at several moments of the best
 *   schedule;
 *
 * or when the same state was met before and not later: the same kinds left, the
 * same bytes in flight, under any renaming of links that leaves the problem as
 * it is (west for east), and any order of engines that are alike. Once all
 * engines are open a state does not depend on the time at which it is reached,
 * so it is stored with the earliest.
 *
 * States are compared by 128 bits of a hash. That two of the 10^7 states of a
 * run share one by accident has a probability below 10^-24.
 *
 * When all branches are done the result is proven; when `nodes` runs out, it
 * is the best so far.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/plan/planners.h"
#include "librsched/plan/prover.h"

typedef unsigned __int128 wide;

enum {
    BYTES_BITS = 40,     /* all bytes together */
    TICKS_BITS = 50,     /* a makespan */
    RATE_BITS_MOST = 42, /* an engine, bytes/s */
    TOLD_EVERY = 65536,  /* nodes; as rsched_plan_progress says */
};

static void record(struct rs_prover *prover, const struct rs_stage *stage)
{
    if (stage->last > prover->deadline)
        return;
    prover->improved = true;
    memcpy(prover->best, prover->path, sizeof(prover->best));
    /* Only schedules that are shorter by a whole ps are of interest. */
    prover->deadline = (rs_stage_ps(stage->last) - 1) << RS_STAGE_TICK_BITS;
}

static void branch(struct rs_prover *prover, size_t level);

/* One node more. @return whether it may be looked at */
static bool count_node(struct rs_prover *prover)
{
    struct rsched_search *search = &prover->search;
    const struct rs_problem *problem = prover->problem;

    prover->stopped = ++search->nodes > search->most_nodes;
    if (search->nodes % TOLD_EVERY == 0 && !prover->stopped &&
        problem->progress != NULL) {
        search->makespan = (prover->deadline >> RS_STAGE_TICK_BITS) + 1;
        problem->progress(problem->progress_arg, search);
    }
    return !prover->stopped;
}

/* Go on to the next decision. */
static void advance(struct rs_prover *prover, size_t level)
{
    struct rs_stage *stage = prover->stages[level];

    if (rs_stage_advance(stage) == RS_NEVER) {
        if (prover->puts_left == 0)
            record(prover, stage);
        return;
    }
    if (count_node(prover) && rs_prover_can_improve(prover, stage) &&
        !rs_prover_was_met(prover, stage))
        branch(prover, level);
}

static void put_on(struct rs_prover *prover, size_t level, uint32_t engine,
                   struct rs_kind *kind)
{
    struct rs_stage *next = prover->stages[level + 1];

    rs_stage_copy(next, prover->stages[level]);
    prover->path[prover->depth++] =
        (struct decision){engine, kind->puts[kind->num_puts - kind->count]};
    rs_prover_count(prover, kind, true);
    rs_stage_start(next, engine, kind->cls, kind->bytes);
    branch(prover, level + 1);
    rs_prover_count(prover, kind, false);
    prover->depth--;
}

/* An engine that goes home without a put takes with it all that have not
 * opened: the k-th that has a put opens at k * open, whichever it is. */
static void send_home(struct rs_prover *prover, size_t level, uint32_t engine)
{
    struct rs_stage *next = prover->stages[level + 1];
    bool unused;
    size_t working = 0;

    rs_stage_copy(next, prover->stages[level]);
    unused = next->actors[engine].cls == UINT32_MAX;
    rs_stage_close(next, engine);
    for (uint32_t e = 0; e < next->num_engines; e++) {
        if (unused && next->actors[e].phase == RS_OPENS)
            rs_stage_close(next, e);
        working += next->actors[e].phase != RS_CLOSED;
    }
    if (working > 0 || prover->puts_left == 0)
        branch(prover, level + 1);
}

/* Try every kind of put that is left on an engine. */
static void try_kinds(struct rs_prover *prover, size_t level, uint32_t engine)
{
    for (size_t k = 0; k < prover->num_kinds && !prover->stopped; k++) {
        if (prover->kinds[k].count > 0)
            put_on(prover, level, engine, &prover->kinds[k]);
    }
}

/* In place of an engine that has just turned up another one may be used, of
 * which none that is alike comes before. */
static void try_others(struct rs_prover *prover, size_t level,
                       uint32_t engine)
{
    const struct rs_stage *stage = prover->stages[level];
    uint32_t passed = UINT32_C(1) << prover->alike[engine];

    if (stage->actors[engine].cls != UINT32_MAX)
        return;
    for (uint32_t e = engine + 1; e < stage->num_engines; e++) {
        uint32_t kind = UINT32_C(1) << prover->alike[e];

        if (stage->actors[e].phase != RS_OPENS || (passed & kind) != 0)
            continue;
        passed |= kind;
        rs_stage_copy(prover->stages[level + 1], stage);
        rs_stage_replace(prover->stages[level + 1], engine, e);
        try_kinds(prover, level + 1, e);
    }
}

/* Decide for the first free engine; if there is none, go on in time. */
static void branch(struct rs_prover *prover, size_t level)
{
    struct rs_stage *stage = prover->stages[level];
    uint32_t engine = 0;

    while (engine < stage->num_engines &&
           stage->actors[engine].phase != RS_FREE)
        engine++;
    if (engine == stage->num_engines) {
        advance(prover, level);
        return;
    }
    try_kinds(prover, level, engine);
    if (!prover->stopped)
        try_others(prover, level, engine);
    if (!prover->stopped)
        send_home(prover, level, engine);
}

static_assert(RS_PROVER_PUTS == 64 && RS_PROVER_KINDS == 24 &&
              RS_WEIGHTS_CLASSES == 16 && RS_PROVER_LINKS == 32 &&
              RS_WEIGHTS_ENGINES == 8 && BYTES_BITS == 40 &&
              RATE_BITS_MOST == 42 && TICKS_BITS - RS_STAGE_TICK_BITS == 40,
              "the limits are as the texts say");

const char *rs_proof_end_text(enum rs_proof_end end)
{
    static const char *const texts[RS_NUM_PROOF_ENDS] = {
        [RS_PROOF_END_NODES] = "ended by the limit of nodes",
        [RS_PROOF_END_PUTS] = "not tried: more than 64 puts",
        [RS_PROOF_END_KINDS] = "not tried: more than 24 kinds of puts",
        [RS_PROOF_END_ROUTES] = "not tried: more than 16 routes",
        [RS_PROOF_END_LINKS] = "not tried: more than 32 links",
        [RS_PROOF_END_ENGINES] = "not tried: more than 8 engines",
        [RS_PROOF_END_BYTES] = "not tried: 2^40 bytes or more",
        [RS_PROOF_END_RATE] = "not tried: an engine of 2^42 bytes/s or more",
        [RS_PROOF_END_TIME] = "not tried: 2^40 ps or longer",
    };

    return texts[end];
}

/* What has no room in the arrays and numbers above, if anything. */
static enum rs_proof_end find_limit(const struct rs_problem *problem,
                                    uint64_t makespan)
{
    wide bytes = 0;

    for (size_t i = 0; i < problem->num_puts; i++)
        bytes += problem->bytes[i];
    if (problem->num_puts > RS_PROVER_PUTS)
        return RS_PROOF_END_PUTS;
    if (problem->costs.num_engines > RS_WEIGHTS_ENGINES)
        return RS_PROOF_END_ENGINES;
    if (bytes >> BYTES_BITS != 0)
        return RS_PROOF_END_BYTES;
    if (problem->fastest >> RATE_BITS_MOST != 0)
        return RS_PROOF_END_RATE;
    if (makespan >> (TICKS_BITS - RS_STAGE_TICK_BITS) != 0)
        return RS_PROOF_END_TIME;
    return RS_PROOF_END_NONE;
}

/* Search from the beginning, with everything to do. */
static void prove(struct rs_prover *prover)
{
    for (size_t k = 0; k < prover->num_kinds; k++) {
        while (prover->kinds[k].count < prover->kinds[k].num_puts)
            rs_prover_count(prover, &prover->kinds[k], false);
    }
    rs_stage_begin(prover->stages[0], prover->problem->costs.num_engines);
    branch(prover, 0);
}

static void tell(const struct rs_prover *prover, struct rs_place *places)
{
    for (size_t i = 0; i < prover->problem->num_puts; i++)
        places[prover->best[i].put] =
            (struct rs_place){prover->best[i].engine, i};
}

/* Improve the places, until that is proven.
 * @param search where it begins */
static int improve(const struct rs_problem *problem, struct rs_script *script,
                   const size_t *queues, const uint32_t *order,
                   const struct rsched_search *search, struct rs_place *places,
                   struct rs_findings *findings)
{
    struct rs_prover *prover = calloc(1, sizeof(*prover));
    int error;

    if (prover == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to prove an optimum");
    error = rs_prover_init(prover, problem, script, queues, order);
    if (error == 0) {
        prover->search = *search;
        prover->deadline = (search->makespan - 1) << RS_STAGE_TICK_BITS;
        prove(prover);
        findings->proven = !prover->stopped;
        findings->search = prover->stopped ? RS_PROOF_END_NODES
                                           : RS_PROOF_END_NONE;
        findings->nodes = prover->search.nodes;
        if (prover->improved)
            tell(prover, places);
    } else if (error == RSCHED_ELIMIT) {
        findings->search = prover->too_large;
    }
    rs_prover_fini(prover);
    free(prover);
    return error == RSCHED_ELIMIT ? 0 : error;
}

int rs_plan_exact(const struct rs_problem *problem,
                  const struct rs_planner *planner, struct rs_place *places,
                  struct rs_findings *findings)
{
    struct rs_script script;
    struct rs_stage *stage = NULL;
    size_t *queues = NULL;
    uint32_t *order = NULL;
    struct rsched_search search = {.planner = planner->shown.name,
                                   .most_nodes = problem->most_nodes};
    int error = rs_plan_fllf(problem, planner, places, findings);

    if (error == 0)
        error = rs_problem_bound(problem, &search.lower_bound);
    if (error == 0)
        error = rs_script_init(&script, problem);
    if (error != 0)
        return error;
    stage = rs_stage_create(&script);
    queues = calloc(problem->costs.num_engines + 1u, sizeof(*queues));
    order = calloc(problem->num_puts + 1, sizeof(*order));
    if (stage == NULL || queues == NULL || order == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
    else
        error = rs_problem_queue(problem, places, queues, order);
    if (error == 0) {
        search.makespan = rs_stage_play(stage, queues, order, RS_NEVER);
        if (search.makespan > search.lower_bound)
            findings->search = find_limit(problem, search.makespan);
        if (search.makespan > search.lower_bound &&
            findings->search == RS_PROOF_END_NONE)
            error = improve(problem, &script, queues, order, &search, places,
                            findings);
    }
    free(order);
    free(queues);
    free(stage);
    rs_script_fini(&script);
    return error;
}
