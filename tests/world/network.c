/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator for many nodes against the plain one, which computes all rates
 * anew at every event. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/network.h"
#include "tests/plan/random.h"

enum { PUTS = 90, ENGINES = 16, RESOURCES = 12, NEAR = 20 };

struct input {
    struct rs_fluid fluid;
    uint64_t capacity[RESOURCES];
    struct rs_fluid_route routes[PUTS];
    uint32_t resources[PUTS][RESOURCES];
    uint64_t bytes[PUTS];
    uint32_t route[PUTS];
    struct rs_fluid_engine engines[ENGINES];
    uint32_t queues[ENGINES][PUTS];
};

/* Few resources or many, equal capacities (ties) or not, equal engines or
 * not, zero bytes, no command, late engines. */
static void fill(struct input *in, uint64_t *random)
{
    size_t resources = 1 + random_below(random, RESOURCES);
    bool equal = random_below(random, 2) == 0;
    bool uniform = random_below(random, 2) == 0;
    uint64_t density = 1 + random_below(random, 4);
    uint64_t command = random_below(random, 2) * 200000;

    memset(in, 0, sizeof(*in));
    for (size_t r = 0; r < resources; r++)
        in->capacity[r] = equal ? 5000000000
                                : 1000000000 + random_below(random, 9000000000);
    for (size_t e = 0; e < ENGINES; e++) {
        in->engines[e].rate = uniform ? 3850000000
                                      : 1 + random_below(random, 6000000000);
        in->engines[e].opens = random_below(random, 3) * 1000000;
        in->engines[e].command = command;
        in->engines[e].queue = in->queues[e];
    }
    for (uint32_t i = 0; i < PUTS; i++) {
        size_t e = random_below(random, ENGINES);

        in->bytes[i] = random_below(random, 8) ? random_below(random, 200000)
                                               : 0;
        in->route[i] = i;
        in->routes[i].resources = in->resources[i];
        for (uint32_t r = 0; r < resources; r++) {
            if (random_below(random, density) == 0)
                in->resources[i][in->routes[i].num_resources++] = r;
        }
        in->queues[e][in->engines[e].num_queue++] = i;
    }
    in->fluid = (struct rs_fluid){.capacity = in->capacity,
                                  .num_resources = resources,
                                  .routes = in->routes,
                                  .bytes = in->bytes,
                                  .route = in->route,
                                  .engines = in->engines,
                                  .num_engines = ENGINES};
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

Test(network, agrees_with_the_plain_simulator)
{
    uint64_t random = 7;

    for (int round = 0; round < 3000; round++) {
        struct input in;
        struct rs_fluid_times plain[PUTS], wide[PUTS];
        uint64_t plain_makespan, wide_makespan, allowed;

        fill(&in, &random);
        cr_assert_eq(rs_fluid_run(&in.fluid, plain, &plain_makespan), 0);
        cr_assert_eq(rs_network_run(&in.fluid, wide, &wide_makespan, NULL,
                                    NULL, NULL), 0);
        /* A rate that is off by 1 byte/s, for all of the time. */
        allowed = NEAR + plain_makespan / 10000000;
        cr_assert_leq(distance(plain_makespan, wide_makespan), allowed,
                      "round %d: %" PRIu64 " and %" PRIu64, round,
                      plain_makespan, wide_makespan);
        for (size_t i = 0; i < PUTS; i++)
            cr_assert_leq(distance(plain[i].finish, wide[i].finish), allowed,
                          "round %d put %zu: %" PRIu64 " and %" PRIu64, round,
                          i, plain[i].finish, wide[i].finish);
    }
}

static void count_progress(void *arg, size_t ended, size_t puts)
{
    size_t *last = arg;

    cr_assert_gt(ended, *last);
    cr_assert_leq(ended, puts);
    *last = ended;
}

/* Engines that share nothing: every rate is computed once, whatever else goes
 * on, so the cost is proportional to the number of puts. */
Test(network, cost_is_local)
{
    enum { MANY = 5000 };
    static uint64_t bytes[MANY];
    static uint32_t route[MANY], queue[MANY];
    static struct rs_fluid_engine engines[MANY];
    struct rs_fluid_route routes[] = {{NULL, 0}};
    struct rs_fluid fluid = {.routes = routes, .bytes = bytes, .route = route,
                             .engines = engines, .num_engines = MANY};
    struct rs_network_effort effort;
    uint64_t makespan;
    size_t last = 0;

    for (uint32_t i = 0; i < MANY; i++) {
        bytes[i] = 1 + i;
        queue[i] = i;
        engines[i] = (struct rs_fluid_engine){1000000000, 0, 0, &queue[i], 1};
    }
    cr_assert_eq(rs_network_run(&fluid, NULL, &makespan, &effort,
                                count_progress, &last), 0);
    cr_assert_eq(makespan, MANY * 1000);
    cr_assert_eq(effort.shared, MANY);
    cr_assert_gt(last, 0);
}
