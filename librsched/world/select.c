/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing among planners by what they take on the whole machine, which sees
 * what a plan of one node does not: true routes and rails, late neighbors. */
#include "librsched/base/error.h"
#include "librsched/world/world.h"

/* Trials of a planner under jitter. Their seeds are not those that a user
 * gives, so that a plan is not judged by the runs that chose it. */
enum { TRIALS = 25 };
#define TRIAL_SEED UINT64_C(0x5eed000000000000)

/* The makespans of all trials together; without jitter one says all. */
static int try_planner(struct rs_world_params params, const char *planner,
                       uint64_t *sum)
{
    uint64_t trials = params.jitter > 0 ? TRIALS : 1;
    struct rs_world *world;
    int error;

    *sum = 0;
    params.planner = planner;
    error = rs_world_create(&params, &world);
    if (error != 0)
        return error;
    for (uint64_t i = 0; error == 0 && i < trials; i++) {
        struct rs_world_result result;

        rs_world_start(world, params.jitter, TRIAL_SEED + i);
        error = rs_world_run(world, params.machine, NULL, NULL, NULL, &result);
        if (error == 0 && __builtin_add_overflow(*sum, result.makespan, sum))
            error = rs_fail(RSCHED_ELIMIT, "the trials take too long");
    }
    rs_world_destroy(world);
    return error;
}

int rs_world_select(const struct rs_world_params *params,
                    const char **planner)
{
    const struct rsched_planner *tried;
    const char *best = NULL;
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; (tried = rsched_planner_at(i)) != NULL; i++) {
        uint64_t sum;
        int error = try_planner(*params, tried->name, &sum);

        if (error != 0)
            return error;
        if (best == NULL || sum < least) {
            least = sum;
            best = tried->name;
        }
    }
    *planner = best;
    return 0;
}
