/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FLLF, fluid link-load first: many simple planners propose, the simulator
 * judges, and a short search improves what came out best.
 *
 * The proposals are those of all planners of the table before it, of the
 * dispatch rules (dispatch.h) over 1, 2, ... engines (the first ones, and the
 * fastest ones where these are others), of bottom-left with the
 * other second sort key, and of two fillings of the skyline. So the result is
 * never worse than any of them. Many puts (above MANY) get fewer proposals,
 * each of which costs O(n log n), and no search; those of the table remain.
 *
 * Of equal proposals the one with fewer engines wins, then the earlier one.
 */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/plan/boxes.h"
#include "librsched/plan/dispatch.h"
#include "librsched/plan/planners.h"
#include "librsched/plan/search.h"

enum {
    MANY = 4096,          /* puts: fewer proposals */
    SEARCHED = 512,       /* puts: no search above */
    STARTS = 8,           /* of the search */
    STEPS = 3000,         /* of each */
    WORK = 6400000,       /* of each: steps times puts times (engines + 12),
                             which is what a step costs */
    ENOUGH = 2000,        /* stop at the bound + 1/ENOUGH */
    ENGINES_SWEPT = 16,   /* then only powers of two */
};

/* A schedule that was proposed, or found. */
struct entrant {
    uint64_t makespan; /* RS_NEVER: none */
    uint32_t engines;
    size_t *queues;
    uint32_t *order;
};

struct contest {
    const struct rs_problem *problem;
    struct rs_script script;
    struct rs_dispatch dispatch;
    struct rs_stage *stage;
    struct rs_place *places; /* of the proposal at hand */
    struct entrant hand;
    struct entrant best[STARTS]; /* of different makespans, best first */
    size_t kept;             /* how many of them: 1 without a search */
    uint64_t bound;          /* ps */
};

static int allocate_entrant(struct entrant *entrant,
                            const struct rs_problem *problem)
{
    entrant->makespan = RS_NEVER;
    entrant->queues = calloc(problem->costs.num_engines + 1u, sizeof(size_t));
    entrant->order = calloc(problem->num_puts + 1, sizeof(uint32_t));
    if (entrant->queues == NULL || entrant->order == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to plan %zu puts",
                       problem->num_puts);
    return 0;
}

static bool is_better(const struct entrant *a, const struct entrant *b)
{
    return a->makespan != b->makespan ? a->makespan < b->makespan
                                      : a->engines < b->engines;
}

/* Keep what is in hand if it is among the best. */
static void enter(struct contest *contest)
{
    struct entrant *hand = &contest->hand, *best = contest->best;
    size_t place = 0, last = contest->kept - 1;
    struct entrant dropped;

    hand->engines = 0;
    for (size_t e = 0; e < contest->problem->costs.num_engines; e++)
        hand->engines += hand->queues[e] < hand->queues[e + 1];
    while (place < contest->kept && best[place].makespan < hand->makespan)
        place++;
    if (place == contest->kept)
        return;
    if (best[place].makespan == hand->makespan) { /* takes its place */
        if (!is_better(hand, &best[place]))
            return;
        last = place;
    }
    dropped = best[last];
    memmove(&best[place + 1], &best[place], (last - place) * sizeof(*best));
    best[place] = *hand;
    *hand = dropped;
}

/* Judge the places at hand. @param makespan if it is known, else RS_NEVER */
static int propose(struct contest *contest, uint64_t makespan)
{
    struct entrant *hand = &contest->hand;
    uint64_t limit = contest->best[contest->kept - 1].makespan;
    int error;

    if (makespan != RS_NEVER && makespan > limit)
        return 0;
    error = rs_problem_queue(contest->problem, contest->places, hand->queues,
                             hand->order);
    if (error != 0)
        return error;
    hand->makespan = makespan != RS_NEVER
                         ? makespan
                         : rs_stage_play(contest->stage, hand->queues,
                                         hand->order, limit);
    if (hand->makespan != RS_NEVER)
        enter(contest);
    return 0;
}

/* What the planners before this one in the table propose. */
static int propose_table(struct contest *contest)
{
    const struct rs_planner *planner;

    for (size_t i = 0; (planner = rs_planner_at(i)) != NULL; i++) {
        struct rs_findings findings = {0};
        int error;

        if (planner->plan == rs_plan_fllf)
            return 0;
        error = planner->plan(contest->problem, planner, contest->places,
                              &findings);
        if (error == 0)
            error = propose(contest, RS_NEVER);
        if (error != 0)
            return error;
    }
    return 0;
}

/* The next number of engines to try. */
static uint32_t next_engines(uint32_t engines, uint32_t all)
{
    uint32_t next = engines < ENGINES_SWEPT ? engines + 1 : 2 * engines;

    return engines < all && next > all ? all : next;
}

/* Engines that can have something to do; which ones it is matters where they
 * are not alike. */
static uint32_t useful_engines(const struct contest *contest)
{
    uint32_t all = contest->problem->costs.num_engines;

    return contest->problem->num_puts < all && contest->problem->num_rails == 1
               ? (uint32_t)contest->problem->num_puts
               : all;
}

static bool has_unlike_engines(const struct rs_script *script)
{
    for (uint32_t e = 0; e < script->num_engines; e++) {
        if (script->caps[e] != script->cap)
            return true;
    }
    return false;
}

/* The two best rules when there are many puts or engines, else all. */
static int propose_rules(struct contest *contest, uint32_t engines)
{
    static const enum rs_rule best[] = {RS_RULE_G3, RS_RULE_G9};
    bool few = contest->problem->num_puts > MANY || engines > ENGINES_SWEPT;
    int rules = few ? (int)(sizeof(best) / sizeof(best[0])) : RS_NUM_RULES;
    bool unlike = engines < contest->problem->costs.num_engines &&
                  has_unlike_engines(&contest->script);

    for (int i = 0; i < (unlike ? 2 : 1) * rules; i++) {
        enum rs_rule rule = few ? best[i % rules] : (enum rs_rule)(i % rules);
        uint64_t makespan = rs_dispatch_run(&contest->dispatch, rule, engines,
                                            i >= rules, contest->places);
        int error = makespan == RS_NEVER ? 0 : propose(contest, makespan);

        if (error != 0)
            return error;
    }
    return 0;
}

static int propose_dispatch(struct contest *contest)
{
    uint32_t all = useful_engines(contest);
    uint32_t first = contest->problem->num_puts > MANY ? all : 1;
    int error = 0;

    for (uint32_t m = first; error == 0 && m <= all; m = next_engines(m, all))
        error = propose_rules(contest, m);
    return error;
}

static int propose_boxes(struct contest *contest)
{
    uint32_t all = useful_engines(contest);
    int error = 0;

    for (uint32_t i = 0; error == 0 && i < 6; i++) {
        const struct rs_packing packing = {UINT32_C(1) << i / 2, i % 2 != 0,
                                           true};
        uint64_t height = 0;

        error = rs_boxes_pack(contest->problem, &packing, contest->places,
                              &height);
        if (error == 0)
            error = propose(contest, RS_NEVER);
    }
    for (uint32_t m = 1; error == 0 && m <= all; m = next_engines(m, all)) {
        for (int i = 0; error == 0 && i < RS_NUM_FILLINGS; i++) {
            error = rs_boxes_fill(contest->problem, (enum rs_filling)i, m,
                                  contest->places);
            if (error == 0)
                error = propose(contest, RS_NEVER);
        }
    }
    return error;
}

/* Climb from each of the best, which stand in their own order meanwhile. */
static int search(struct contest *contest)
{
    size_t puts = contest->problem->num_puts;
    struct entrant *best = contest->best, first;
    uint64_t enough = contest->bound + contest->bound / ENOUGH;
    size_t cost = puts * (contest->problem->costs.num_engines + 12u);
    uint32_t steps = cost * STEPS > WORK ? (uint32_t)(WORK / cost) : STEPS;
    size_t winner = 0;

    for (size_t i = 0; i < contest->kept; i++) {
        const struct rs_search search = {steps, i + 1, enough};
        int error;

        if (best[winner].makespan <= enough || best[i].makespan == RS_NEVER)
            break;
        error = rs_search_run(&search, contest->stage, best[i].queues,
                              best[i].order, &best[i].makespan);
        if (error != 0)
            return error;
        winner = is_better(&best[i], &best[winner]) ? i : winner;
    }
    first = best[0];
    best[0] = best[winner];
    best[winner] = first;
    return 0;
}

static int run(struct contest *contest)
{
    bool many = contest->problem->num_puts > MANY;
    int error = propose_table(contest);

    if (error == 0)
        error = propose_dispatch(contest);
    if (error == 0 && !many)
        error = propose_boxes(contest);
    if (error == 0 && contest->best[0].makespan == RS_NEVER)
        error = rs_fail(RSCHED_ELIMIT,
                        "the schedule takes longer than 2 hours");
    if (error == 0 && contest->kept > 1)
        error = search(contest);
    return error;
}

static void tell(const struct entrant *winner, uint32_t engines,
                 struct rs_place *places)
{
    for (uint32_t e = 0; e < engines; e++) {
        for (size_t i = winner->queues[e]; i < winner->queues[e + 1]; i++)
            places[winner->order[i]] = (struct rs_place){e, i};
    }
}

static int prepare(struct contest *contest, struct rs_place *places)
{
    const struct rs_problem *problem = contest->problem;
    int error = rs_problem_bound(problem, &contest->bound);

    contest->places = places;
    contest->kept = problem->num_puts > SEARCHED ? 1 : STARTS;
    contest->stage = rs_stage_create(&contest->script);
    if (error == 0 && contest->stage == NULL)
        error = RSCHED_ENOMEM;
    if (error == 0)
        error = allocate_entrant(&contest->hand, problem);
    for (size_t i = 0; error == 0 && i < contest->kept; i++)
        error = allocate_entrant(&contest->best[i], problem);
    return error;
}

int rs_plan_fllf(const struct rs_problem *problem,
                 const struct rs_planner *planner, struct rs_place *places,
                 struct rs_findings *findings)
{
    struct contest contest = {.problem = problem};
    int error = rs_script_init(&contest.script, problem);

    (void)planner;
    (void)findings;
    if (error != 0)
        return error;
    error = rs_dispatch_init(&contest.dispatch, &contest.script);
    if (error != 0)
        goto fini_script;
    error = prepare(&contest, places);
    if (error == 0)
        error = run(&contest);
    if (error == 0)
        tell(&contest.best[0], problem->costs.num_engines, places);
    free(contest.hand.queues);
    free(contest.hand.order);
    for (size_t i = 0; i < STARTS; i++) {
        free(contest.best[i].queues);
        free(contest.best[i].order);
    }
    free(contest.stage);
    rs_dispatch_fini(&contest.dispatch);
fini_script:
    rs_script_fini(&contest.script);
    return error;
}
