/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds a schedule up: the same queues are simulated once for each thing
 * that costs time, as if that one cost nothing. */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "librsched/plan/schedule.h"

struct relief {
    const struct rsched_schedule *schedule;
    struct rs_problem problem; /* the schedule's, with its own capacities and
                                  rates */
    struct rsched_limit *limit;
};

/* Simulate the changed problem; the limit is what gains most, of equal ones
 * the first. */
static int weigh(struct relief *relief, enum rsched_limit_kind kind,
                 uint32_t number)
{
    uint64_t makespan;
    int error = rs_problem_simulate(&relief->problem, relief->schedule->queues,
                                    relief->schedule->order, NULL, NULL, NULL,
                                    &makespan);

    if (error == 0 && makespan < relief->limit->makespan_without)
        *relief->limit = (struct rsched_limit){kind, number, makespan};
    return error;
}

static int weigh_costs(struct relief *relief, uint32_t last)
{
    struct rsched_machine_costs *costs = &relief->problem.costs;
    const struct rsched_machine_costs before = *costs;
    uint64_t *rates = relief->problem.rates;
    int error;

    for (size_t r = 0; r < relief->problem.num_rails; r++)
        rates[r] = RS_RATE_MOST;
    error = weigh(relief, RSCHED_LIMIT_ENGINE, last);
    memcpy(rates, relief->schedule->problem.rates,
           relief->problem.num_rails * sizeof(*rates));
    costs->command = 0;
    if (error == 0)
        error = weigh(relief, RSCHED_LIMIT_COMMAND, last);
    *costs = before;
    costs->engine_open = 0;
    if (error == 0)
        error = weigh(relief, RSCHED_LIMIT_OPEN, last);
    *costs = before;
    return error;
}

/* The links that are in use, and the node. */
static int weigh_capacities(struct relief *relief)
{
    struct rs_problem *problem = &relief->problem;
    size_t loads = problem->num_resources + 1;
    bool *used = calloc(loads, sizeof(*used));
    int error = 0;

    if (used == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a limit");
    for (size_t i = 0; i < problem->num_puts; i++) {
        const struct rs_fluid_route *route =
            rs_problem_route(problem, problem->direction[i],
                             relief->schedule->placements[i].engine);

        for (size_t k = 0; k < route->num_resources; k++)
            used[route->resources[k]] = true;
    }
    for (uint32_t r = 0; error == 0 && r < problem->num_resources; r++) {
        uint64_t before = problem->capacity[r];

        if (!used[r])
            continue;
        problem->capacity[r] = RS_RATE_MOST;
        error = weigh(relief, r == problem->node ? RSCHED_LIMIT_NODE
                                                 : RSCHED_LIMIT_LINK, r);
        problem->capacity[r] = before;
    }
    free(used);
    return error;
}

/* The engine that ends last. */
static uint32_t last_engine(const struct rsched_schedule *schedule)
{
    for (size_t i = 0; i < schedule->problem.num_puts; i++) {
        if (schedule->placements[i].finish == schedule->makespan)
            return schedule->placements[i].engine;
    }
    return 0;
}

int rsched_schedule_limit(const struct rsched_schedule *schedule,
                          struct rsched_limit *limit)
{
    struct rsched_limit found = {RSCHED_LIMIT_NONE, 0, schedule->makespan};
    struct relief relief = {schedule, schedule->problem, &found};
    size_t rates = schedule->problem.num_rails * sizeof(uint64_t);
    size_t capacities = schedule->problem.num_resources * sizeof(uint64_t);
    int error;

    relief.problem.rates = malloc(rates);
    relief.problem.capacity = malloc(capacities + 1);
    if (relief.problem.rates == NULL || relief.problem.capacity == NULL) {
        error = rs_fail(RSCHED_ENOMEM, "no memory for a limit");
        goto out;
    }
    memcpy(relief.problem.rates, schedule->problem.rates, rates);
    memcpy(relief.problem.capacity, schedule->problem.capacity, capacities);
    error = weigh_capacities(&relief);
    if (error == 0)
        error = weigh_costs(&relief, last_engine(schedule));
    if (error == 0)
        *limit = found;
out:
    free(relief.problem.rates);
    free(relief.problem.capacity);
    return error;
}
