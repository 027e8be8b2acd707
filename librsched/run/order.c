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

struct place {
    uint32_t id, position;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

int rs_order_ranks(const uint32_t *order, uint32_t number, uint32_t **ranks)
{
    struct place *places = calloc(number + 1, sizeof(*places));
    uint32_t *result = calloc(number + 1, sizeof(*result));

    if (places == NULL || result == NULL) {
        free(places);
        free(result);
        return rs_fail(RSCHED_ENOMEM, "no memory for an order");
    }
    for (uint32_t i = 0; i < number; i++)
        places[i] = (struct place){order[i], i};
    qsort(places, number, sizeof(*places), compare_places);
    for (uint32_t i = 0; i < number; i++)
        result[places[i].position] = i;
    free(places);
    *ranks = result;
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

int rs_order_of_schedule(const struct rsched_schedule *schedule,
                         uint32_t num_puts, uint32_t **order)
{
    struct turn *turns;
    uint32_t *result;

    *order = NULL;
    if (schedule == NULL)
        return 0;
    if (rsched_schedule_num_puts(schedule) != num_puts)
        return rs_fail(RSCHED_EINVAL,
                       "a schedule of %zu puts for a pattern of %u",
                       rsched_schedule_num_puts(schedule), num_puts);
    turns = calloc(num_puts + 1, sizeof(*turns));
    result = calloc(num_puts + 1, sizeof(*result));
    if (turns == NULL || result == NULL) {
        free(turns);
        free(result);
        return rs_fail(RSCHED_ENOMEM, "no memory for an order");
    }
    for (uint32_t i = 0; i < num_puts; i++) {
        const struct rsched_placement *p =
            rsched_schedule_placement(schedule, i);

        turns[i] = (struct turn){p->start, p->engine, p->position, i};
    }
    qsort(turns, num_puts, sizeof(*turns), compare_turns);
    for (uint32_t i = 0; i < num_puts; i++)
        result[i] = turns[i].id;
    free(turns);
    *order = result;
    return 0;
}
