/* SPDX-License-Identifier: BSD-3-Clause */
/* Planning: every group of puts (of a process, or of a node) gets the queues
 * that a planner makes for it. Groups with the same puts share one plan. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "librsched/base/error.h"
#include "librsched/world/world.h"
#include "models/machine.h"
#include "patterns/pattern.h"

/* What of a put matters to a planner. */
struct kind {
    uint64_t bytes;
    uint64_t direction; /* number in `names` */
};

struct plan {
    uint64_t hash;
    const struct kind *kinds;
    size_t num_kinds;
    struct rsched_schedule *schedule;
};

struct planning {
    struct rs_world *world;
    const struct rs_world_params *params;
    struct rs_shape block;
    struct rs_names names;
    struct kind *kinds;   /* per put of the world */
    struct plan *plans;   /* open addressing */
    size_t num_plans;     /* slots, a power of two */
};

/* A put between nodes has the direction in which its node sees the other one;
 * with several processes on a node this is not always that of the process. */
static int name_direction(struct planning *p, size_t put, uint64_t *number)
{
    const struct rs_world *world = p->world;
    const struct rs_world_put *w = &world->puts[put];
    const char *own = rsched_pattern_put(p->params->pattern, w->id)->direction;
    char buffer[4 * RS_DIMENSIONS_MOST];
    const char *seen = own;
    int64_t found;

    if (p->params->processes > 1) {
        seen = rs_shape_direction(
            &p->params->nodes, rs_shape_node(&world->grid, &p->block,
                                             w->process),
            rs_shape_node(&world->grid, &p->block, w->destination), own,
            buffer);
        if (*seen == '\0' ||
            rsched_machine_find_route(p->params->machine, seen) == NULL)
            seen = own;
    }
    /* Planners know only kinds of puts, not the pattern's. */
    if (rsched_machine_find_route(p->params->machine, seen) == NULL)
        return rs_pattern_fail(p->params->pattern, w->id, RSCHED_EINVAL,
                               "direction '%s' has no route in machine %s",
                               seen, rs_machine_label(p->params->machine));
    found = rs_names_add(&p->names, seen);
    if (found < 0)
        return (int)found;
    *number = (uint64_t)found;
    return 0;
}

static int make_schedule(const struct planning *p, const struct kind *kinds,
                         size_t count, struct rsched_schedule **schedule)
{
    const struct rs_world_watch *watch = p->params->watch;
    struct rsched_plan_options options = {.planner = p->params->planner};
    struct rsched_pattern *pattern;
    int error = rsched_pattern_create(
        rsched_pattern_name(p->params->pattern), &pattern);

    if (error != 0)
        return error;
    for (size_t i = 0; error == 0 && i < count; i++) {
        struct rsched_put put = {.bytes = kinds[i].bytes,
                                 .source = RSCHED_ANY_PROCESS,
                                 .destination = RSCHED_ANY_PROCESS,
                                 .direction =
                                     p->names.text[kinds[i].direction]};
        int64_t id = rsched_pattern_add_put(pattern, &put);

        error = id < 0 ? (int)id : 0;
    }
    if (watch != NULL) {
        options.progress = watch->searched;
        options.progress_arg = watch->arg;
    }
    if (error == 0)
        error = rsched_schedule_create_options(pattern, p->params->machine,
                                               &options, schedule);
    rsched_pattern_destroy(pattern);
    return error;
}

/* The schedule for the puts [first, first + count), made when it is new. */
static int find_plan(struct planning *p, size_t first, size_t count,
                     const struct rsched_schedule **schedule)
{
    const struct rs_world_watch *watch = p->params->watch;
    const struct kind *kinds = p->kinds + first;
    uint64_t hash = XXH64(kinds, count * sizeof(*kinds), 0);
    size_t slot = hash & (p->num_plans - 1);
    struct plan *plan;
    int error;

    for (;; slot = (slot + 1) & (p->num_plans - 1)) {
        plan = &p->plans[slot];
        if (plan->schedule == NULL)
            break;
        if (plan->hash == hash && plan->num_kinds == count &&
            memcmp(plan->kinds, kinds, count * sizeof(*kinds)) == 0) {
            *schedule = plan->schedule;
            return 0;
        }
    }
    if (watch != NULL && watch->planned != NULL)
        watch->planned(watch->arg, first, p->world->num_puts);
    error = make_schedule(p, kinds, count, &plan->schedule);
    if (error != 0)
        return error;
    plan->hash = hash;
    plan->kinds = kinds;
    plan->num_kinds = count;
    *schedule = plan->schedule;
    return 0;
}

static int plan_group(struct planning *p, size_t first, size_t end)
{
    const struct rsched_schedule *schedule;
    struct rs_world *world = p->world;
    int error = find_plan(p, first, end - first, &schedule);

    if (error != 0)
        return error;
    if (rsched_schedule_makespan(schedule) > world->planned)
        world->planned = rsched_schedule_makespan(schedule);
    for (size_t i = first; i < end; i++) {
        const struct rsched_placement *placement =
            rsched_schedule_placement(schedule, i - first);

        world->transits[i].engine = placement->engine;
        world->puts[i].receive_engine = placement->receive_engine;
        world->puts[i].position = placement->position;
        world->puts[i].data = placement->data;
        world->puts[i].finish = placement->finish;
    }
    return 0;
}

static int plan_all(struct planning *p)
{
    struct rs_world *world = p->world;
    size_t end;
    int error = 0;

    for (size_t i = 0; error == 0 && i < world->num_puts; i++) {
        p->kinds[i].bytes = world->transits[i].bytes;
        error = name_direction(p, i, &p->kinds[i].direction);
    }
    for (size_t first = 0; error == 0 && first < world->num_puts;
         first = end) {
        end = first + 1;
        while (end < world->num_puts &&
               world->puts[end].group == world->puts[first].group)
            end++;
        error = plan_group(p, first, end);
    }
    return error;
}

int rs_world_queue(struct rs_world *world,
                   const struct rs_world_params *params)
{
    struct planning p = {.world = world, .params = params, .num_plans = 16};
    int error = 0;

    rs_shape_block(&params->nodes, params->processes, &p.block);
    while (p.num_plans < 2 * (size_t)world->grid.count)
        p.num_plans *= 2;
    p.plans = calloc(p.num_plans, sizeof(*p.plans));
    p.kinds = calloc(world->num_puts + 1, sizeof(*p.kinds));
    if (p.plans == NULL || p.kinds == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan %zu puts",
                        world->num_puts);
    else
        error = plan_all(&p);
    for (size_t i = 0; p.plans != NULL && i < p.num_plans; i++)
        rsched_schedule_destroy(p.plans[i].schedule);
    free(p.plans);
    free(p.kinds);
    rs_names_fini(&p.names);
    return error;
}
