/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/bound.h"

#include <stdlib.h>

#include "librsched/base/error.h"

typedef unsigned __int128 wide;

#define SECOND ((wide)1000000000000) /* ps */

static wide larger(wide a, wide b)
{
    return a > b ? a : b;
}

/* Rounded up: the makespan is a whole number of ps. */
static wide divide(wide a, wide b)
{
    return (a + b - 1) / b;
}

/* The engines' part of the bound for exactly m of them: the largest of all
 * lines; those over steps of equal height are one. */
static wide bound_engines(const struct rs_bound *input, wide total, uint32_t m)
{
    wide dead = (wide)input->open * ((wide)m * (m - 1) / 2) +
                (wide)input->command * input->num_puts;
    wide rate = 0, bound = 0, before = 0;

    for (uint32_t j = 0; j < m && rate < input->ceiling; j++) {
        wide step = input->steps[j];

        if (step > input->ceiling - rate)
            step = input->ceiling - rate;
        if (step == 0) /* the links of all rails are full */
            return larger(bound, divide(total * SECOND, rate));
        if (step != before)
            bound = larger(bound, divide(total * SECOND + step * dead,
                                         rate + (m - j) * step));
        before = step;
        rate += step;
    }
    return bound;
}

/* The part that does not depend on the number of engines. */
static wide bound_resources(const struct rs_bound *input, const wide *load,
                            wide longest)
{
    wide bound = divide(longest * SECOND, input->steps[0]);

    for (size_t r = 0; r < input->num_resources; r++)
        bound = larger(bound, divide(load[r] * SECOND, input->capacity[r]));
    return bound + input->command;
}

/* Bytes per resource; a put counts on each resource of its route. */
static void add_loads(const struct rs_bound *input, const wide *per_route,
                      wide *load)
{
    for (size_t i = 0; i < input->num_routes; i++) {
        const struct rs_fluid_route *route = &input->routes[i];

        for (size_t k = 0; k < route->num_resources; k++)
            load[route->resources[k]] += per_route[i];
    }
}

int rs_bound_compute(const struct rs_bound *input, uint64_t *bound)
{
    wide *per_route = calloc(input->num_routes + 1, sizeof(*per_route));
    wide *load = calloc(input->num_resources + 1, sizeof(*load));
    wide total = 0, longest = 0, least = 0, fixed;
    int error = 0;

    if (per_route == NULL || load == NULL) {
        error = rs_fail(RSCHED_ENOMEM, "no memory for a lower bound");
        goto out;
    }
    for (size_t i = 0; i < input->num_puts; i++) {
        per_route[input->route[i]] += input->bytes[i];
        total += input->bytes[i];
        longest = larger(longest, input->bytes[i]);
    }
    add_loads(input, per_route, load);
    fixed = bound_resources(input, load, longest);
    for (uint32_t m = 1; m <= input->num_engines; m++) {
        wide value = larger(fixed, bound_engines(input, total, m));

        least = m == 1 || value < least ? value : least;
    }
    if (input->num_puts == 0)
        least = 0;
    if (least > INT64_MAX)
        error = rs_fail(RSCHED_ELIMIT, "the lower bound does not fit in 63 "
                        "bits");
    else
        *bound = (uint64_t)least;
out:
    free(per_route);
    free(load);
    return error;
}
