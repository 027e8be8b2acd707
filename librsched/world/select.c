/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing among planners by what they take on the whole machine, which sees
 * what a plan of one node does not: true routes and rails, late neighbors. */
#include "librsched/base/error.h"
#include "librsched/world/world.h"
#include "models/machine.h"

/* Trials of a planner under jitter. Their seeds are not those that a user
 * gives, so that a plan is not judged by the runs that chose it. */
enum { TRIALS = 25 };
#define TRIAL_SEED UINT64_C(0x5eed000000000000)

int rs_world_try(const struct rs_world_params *params, const char *planner,
                 uint64_t *mean)
{
    uint64_t trials = params->jitter > 0 ? TRIALS : 1, sum = 0;
    struct rs_world_params tried = *params;
    struct rs_world *world;
    int error;

    tried.planner = planner;
    error = rs_world_create(&tried, &world);
    if (error != 0)
        return error;
    for (uint64_t i = 0; error == 0 && i < trials; i++) {
        struct rs_world_result result;

        rs_world_start(world, params->jitter, TRIAL_SEED + i);
        error = rs_world_run(world, params->machine, NULL, params->watch,
                             &result);
        if (error == 0 && __builtin_add_overflow(sum, result.makespan, &sum))
            error = rs_fail(RSCHED_ELIMIT, "the trials take too long");
    }
    rs_world_destroy(world);
    if (error == 0)
        *mean = sum / trials;
    return error;
}

int rs_world_select(const struct rs_world_params *params,
                    const char **planner, uint64_t *mean)
{
    const struct rsched_planner *tried;
    const char *best = NULL;
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; (tried = rsched_planner_at(i)) != NULL; i++) {
        uint64_t value = 0;
        int error = rs_world_try(params, tried->name, &value);

        if (error != 0)
            return error;
        if (best == NULL || value < least) {
            least = value;
            best = tried->name;
        }
    }
    *planner = best;
    *mean = least;
    return 0;
}

void rs_world_neighborhood(const struct rsched_pattern *pattern,
                           struct rsched_machine *machine, uint64_t jitter,
                           struct rs_world_params *params)
{
    static const struct rs_shape flat = {{8, 6}, 2, 48};
    static const struct rs_shape deep = {{4, 4, 4}, 3, 64};
    const struct rs_topology_spec *spec = rs_machine_topology(machine);
    struct rs_shape *shape = &params->nodes;
    bool is_deep = false;

    for (size_t i = 0; i < rsched_pattern_num_puts(pattern); i++) {
        char first = rsched_pattern_put(pattern, i)->direction[0];

        is_deep = is_deep || first == '-' || first == '+';
    }
    *params = (struct rs_world_params){.pattern = pattern,
                                       .machine = machine,
                                       .nodes = is_deep ? deep : flat,
                                       .processes = 1,
                                       .receive = RS_RECEIVE_PLANNED,
                                       .jitter = jitter};
    if ((spec->type != RS_TOPOLOGY_TORUS && spec->type != RS_TOPOLOGY_MESH) ||
        spec->num_dims == 0)
        return;
    *shape = (struct rs_shape){.num_dims = spec->num_dims, .count = 1};
    for (uint32_t d = 0; d < spec->num_dims; d++) {
        shape->dims[d] = spec->dims[d];
        shape->count *= spec->dims[d];
    }
}
