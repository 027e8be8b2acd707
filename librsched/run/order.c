/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/order.h"

#include <stdlib.h>
#include <string.h>

#include <rsched/schedule.h>

#include "librsched/base/error.h"

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
