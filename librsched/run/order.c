/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/run/run.h"
#include "models/machine.h"

int rs_order_append(uint32_t **order, uint32_t *number, uint32_t id)
{
    uint32_t n = *number;

    if ((n & (n - 1)) == 0) { /* full at powers of two */
        uint32_t *larger =
            realloc(*order, (n == 0 ? 1 : 2 * (size_t)n) * sizeof(*larger));

        if (larger == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for an order");
        *order = larger;
    }
    (*order)[n] = id;
    *number = n + 1;
    return 0;
}

struct turn {
    uint64_t start;
    uint32_t engine, position, id;
};

/* By time; puts that start together by engine, as their lanes are served. */
static int compare_turns(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->engine != y->engine)
        return x->engine < y->engine ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

int rs_plan_init(struct rs_plan *plan, const struct rsched_schedule *schedule,
                 uint32_t num_puts)
{
    struct turn *turns;

    if (schedule != NULL && rsched_schedule_num_puts(schedule) != num_puts)
        return rs_fail(RSCHED_EINVAL,
                       "a schedule of %zu puts for a pattern of %u",
                       rsched_schedule_num_puts(schedule), num_puts);
    turns = calloc(num_puts + 1, sizeof(*turns));
    plan->order = calloc(num_puts + 1, sizeof(*plan->order));
    plan->engine = calloc(num_puts + 1, sizeof(*plan->engine));
    if (turns == NULL || plan->order == NULL || plan->engine == NULL) {
        free(turns);
        rs_plan_fini(plan);
        return rs_fail(RSCHED_ENOMEM, "no memory for an order");
    }
    for (uint32_t i = 0; i < num_puts; i++) {
        turns[i] = (struct turn){.engine = i, .id = i};
        if (schedule != NULL) {
            const struct rsched_placement *p =
                rsched_schedule_placement(schedule, i);

            turns[i] = (struct turn){p->start, p->engine, p->position, i};
        }
        plan->engine[i] = turns[i].engine;
    }
    qsort(turns, num_puts, sizeof(*turns), compare_turns);
    for (uint32_t i = 0; i < num_puts; i++)
        plan->order[i] = turns[i].id;
    plan->num_puts = num_puts;
    free(turns);
    return 0;
}

void rs_plan_fini(struct rs_plan *plan)
{
    free(plan->order);
    free(plan->engine);
    *plan = (struct rs_plan){0};
}

/* A host whose rails are alike and share nothing: each is an engine. How fast
 * they are and what opening one costs is for a machine file to say; here all
 * that counts is that the work is divided evenly. */
static int make_rails(uint32_t rails, struct rsched_machine **machine)
{
    char text[200];
    int length = snprintf(text, sizeof(text),
                          "rsched: machine/1\n"
                          "name: rails\n"
                          "path: rdma\n"
                          "engines: {count: %u, rate: 10000 MB/s, open: 0 us, "
                          "command: 0.5 us}\n"
                          "routes: {\"*\": []}\n",
                          rails);

    return rsched_machine_parse("rails", text, (size_t)length, machine);
}

static int read_host(uint32_t rails, struct rsched_machine **machine)
{
    return rails == 1 ? rsched_machine_builtin("host", machine)
                      : make_rails(rails, machine);
}

/* Reading one takes longer than all else that a plan does, so the last one is kept.
 * @param machine destroy it */
static int hold_host(struct rsched_context *context, uint32_t rails,
                     struct rsched_machine **machine)
{
    struct rsched_machine *read;
    int error = 0;

    pthread_mutex_lock(&context->lock);
    if (context->host == NULL || context->host_rails != rails) {
        error = read_host(rails, &read);
        if (error == 0) {
            rsched_machine_destroy(context->host);
            context->host = read;
            context->host_rails = rails;
        }
    }
    if (error == 0)
        *machine = rs_machine_hold(context->host);
    pthread_mutex_unlock(&context->lock);
    return error;
}

static int schedule_for(const struct rsched_pattern *pattern,
                        struct rsched_machine *machine,
                        struct rsched_schedule **schedule)
{
    const char *planner = rs_config()->planner;
    uint32_t engines = rsched_machine_get_costs(machine)->num_engines;

    if (planner[0] == '\0')
        planner = engines == 1 ? "bl4" : "fllf";
    return rsched_schedule_create(pattern, machine, planner, schedule);
}

static int schedule_own(struct rsched_context *context,
                        const struct rsched_pattern *pattern, uint32_t rails,
                        struct rsched_schedule **schedule)
{
    struct rsched_machine *machine;
    int error;

    if (context->machine != NULL) {
        error = schedule_for(pattern, context->machine, schedule);
        return error == 0 ? 0
                          : rs_fail_within(error, "RSCHED_MACHINE=%s",
                                           rs_config()->machine);
    }
    error = hold_host(context, rails, &machine);
    if (error != 0)
        return error;
    error = schedule_for(pattern, machine, schedule);
    rsched_machine_destroy(machine);
    return error;
}

/* @param machine NULL: it says nothing */
static bool is_twice_there(const struct rsched_machine *machine,
                           const struct rsched_put *put)
{
    const struct rsched_route *route =
        machine == NULL ? NULL
                        : rsched_machine_find_route(machine, put->direction);

    return route != NULL && route->crossings > 1;
}

/* Twice the bytes are what crosses engine and links twice, to planners, unless the
 * machine says it. Where its bytes lie they do not ask. */
static int add_crossings(const struct rsched_context *context,
                         const struct rsched_pattern *pattern,
                         const bool *twice, struct rsched_pattern **crossings)
{
    struct rsched_pattern *p;
    int error = rsched_pattern_create("crossings", &p);

    if (error != 0)
        return error;
    for (size_t i = 0; error == 0 && i < rsched_pattern_num_puts(pattern); i++) {
        struct rsched_put put = *rsched_pattern_put(pattern, i);
        int64_t added;

        put.layout = (struct rsched_layout){0};
        if (twice[i] && !is_twice_there(context->machine, &put) &&
            put.bytes <= UINT64_MAX / 2)
            put.bytes *= 2;
        added = rsched_pattern_add_put(p, &put);
        error = added < 0 ? (int)added : 0;
    }
    if (error != 0) {
        rsched_pattern_destroy(p);
        return error;
    }
    *crossings = p;
    return 0;
}

static int schedule_crossings(struct rsched_context *context,
                              const struct rsched_pattern *pattern,
                              uint32_t rails, const bool *twice,
                              struct rsched_schedule **schedule)
{
    struct rsched_pattern *crossings;
    int error = add_crossings(context, pattern, twice, &crossings);

    if (error != 0)
        return error;
    error = schedule_own(context, crossings, rails, schedule);
    rsched_pattern_destroy(crossings);
    return error;
}

int rs_plan_make(struct rs_plan *plan, struct rsched_context *context,
                 const struct rsched_exchange_params *params, uint32_t rails,
                 const bool *twice)
{
    bool variable = (params->flags & RSCHED_EXCHANGE_VARIABLE) != 0;
    uint32_t num_puts = (uint32_t)rsched_pattern_num_puts(params->pattern);
    struct rsched_schedule *own = NULL;
    int error = 0;

    if (params->schedule == NULL && num_puts > 0 && !variable)
        error = twice != NULL
                    ? schedule_crossings(context, params->pattern, rails, twice,
                                         &own)
                    : schedule_own(context, params->pattern, rails, &own);
    if (error == 0)
        error = rs_plan_init(plan, own != NULL ? own : params->schedule,
                             num_puts);
    rsched_schedule_destroy(own);
    if (error != 0)
        return rs_fail_within(error, "planning exchange %llu",
                              (unsigned long long)params->tag);
    return 0;
}
