/* SPDX-License-Identifier: BSD-3-Clause */
/* The fluid simulator by itself: hand-made cases, and properties that hold for
 * every input. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include <rsched/error.h>

#include "models/fluid.h"
#include "tests/plan/random.h"

enum { PUTS = 40, ENGINES = 6, RESOURCES = 5, ROUTES = 8 };

struct problem {
    struct rs_fluid fluid;
    uint64_t capacity[RESOURCES];
    struct rs_fluid_route routes[ROUTES];
    uint32_t resources[ROUTES][RESOURCES];
    uint64_t bytes[PUTS];
    uint32_t route[PUTS];
    struct rs_fluid_engine engines[ENGINES];
    uint32_t queues[ENGINES][PUTS];
};

/* What the observer saw. */
struct seen {
    const struct problem *problem;
    unsigned __int128 moved[PUTS]; /* bytes/s * ps */
    uint64_t last;
};

static void observe(void *arg, uint64_t from, uint64_t to,
                    const uint32_t *puts, const uint64_t *rates)
{
    struct seen *seen = arg;
    uint64_t load[RESOURCES] = {0};

    cr_assert_geq(from, seen->last);
    cr_assert_gt(to, from);
    seen->last = to;
    for (size_t e = 0; e < ENGINES; e++) {
        const struct rs_fluid_route *route;

        if (puts[e] == UINT32_MAX)
            continue;
        cr_assert_leq(rates[e], seen->problem->engines[e].rate);
        cr_assert_gt(rates[e], 0);
        seen->moved[puts[e]] += (unsigned __int128)rates[e] * (to - from);
        route = &seen->problem->routes[seen->problem->route[puts[e]]];
        for (size_t k = 0; k < route->num_resources; k++)
            load[route->resources[k]] += rates[e];
    }
    for (size_t r = 0; r < RESOURCES; r++)
        cr_assert_leq(load[r], seen->problem->capacity[r]);
}

static void fill(struct problem *p, uint64_t *random)
{
    memset(p, 0, sizeof(*p));
    for (size_t r = 0; r < RESOURCES; r++)
        p->capacity[r] = 1000000000 + random_below(random, 9000000000);
    for (size_t i = 0; i < ROUTES; i++) {
        p->routes[i].resources = p->resources[i];
        for (uint32_t r = 0; r < RESOURCES; r++) {
            if (random_below(random, 3) == 0)
                p->resources[i][p->routes[i].num_resources++] = r;
        }
    }
    for (size_t e = 0; e < ENGINES; e++) {
        p->engines[e].rate = 2000000000 + random_below(random, 4000000000);
        p->engines[e].opens = random_below(random, 3) * 1000000;
        p->engines[e].command = random_below(random, 300000);
        p->engines[e].queue = p->queues[e];
    }
    for (uint32_t i = 0; i < PUTS; i++) {
        size_t e = random_below(random, ENGINES);

        p->bytes[i] = random_below(random, 8) ? random_below(random, 200000)
                                              : 0;
        p->route[i] = (uint32_t)random_below(random, ROUTES);
        p->queues[e][p->engines[e].num_queue++] = i;
    }
    p->fluid = (struct rs_fluid){.capacity = p->capacity,
                                 .num_resources = RESOURCES,
                                 .routes = p->routes,
                                 .bytes = p->bytes,
                                 .route = p->route,
                                 .engines = p->engines,
                                 .num_engines = ENGINES};
}

static void expect_order(const struct problem *p,
                         const struct rs_fluid_times *times)
{
    for (size_t e = 0; e < ENGINES; e++) {
        uint64_t until = p->engines[e].opens;

        for (size_t i = 0; i < p->engines[e].num_queue; i++) {
            const struct rs_fluid_times *t = &times[p->queues[e][i]];

            cr_assert_eq(t->start, until, "an engine is never idle");
            /* Times are rounded up one by one, so a phase may be 1 ps off. */
            cr_assert_geq(t->data + 1, t->start + p->engines[e].command);
            cr_assert_leq(t->data, t->start + p->engines[e].command + 1);
            cr_assert_geq(t->finish, t->data);
            until = t->finish;
        }
    }
}

Test(fluid, conserves_bytes_and_respects_capacities)
{
    uint64_t random = 1;

    for (int round = 0; round < 300; round++) {
        struct problem p;
        struct seen seen = {.problem = &p};
        struct rs_fluid_times times[PUTS], again[PUTS];
        uint64_t makespan, makespan_again;

        fill(&p, &random);
        p.fluid.observe = observe;
        p.fluid.arg = &seen;
        cr_assert_eq(rs_fluid_run(&p.fluid, times, &makespan), 0);
        expect_order(&p, times);
        for (size_t i = 0; i < PUTS; i++) {
            unsigned __int128 bytes =
                (unsigned __int128)p.bytes[i] * 1000000000000u;
            uint64_t off = (uint64_t)((seen.moved[i] > bytes
                                           ? seen.moved[i] - bytes
                                           : bytes - seen.moved[i]) /
                                      1000000000000u);

            /* The observer sees whole ps and whole bytes/s. */
            cr_assert_leq(off, 2, "put %zu is off by %" PRIu64 " bytes", i,
                          off);
            cr_assert_leq(times[i].finish, makespan);
        }
        p.fluid.observe = NULL;
        cr_assert_eq(rs_fluid_run(&p.fluid, again, &makespan_again), 0);
        cr_assert_eq(makespan, makespan_again);
        cr_assert_arr_eq(times, again, sizeof(times));
    }
}

/* Two puts share a link of 3 GB/s; the engines could do 2 each. */
Test(fluid, shares_fairly)
{
    uint64_t capacity[] = {3000000000};
    uint32_t link[] = {0};
    struct rs_fluid_route routes[] = {{link, 1}, {NULL, 0}};
    uint64_t bytes[] = {3000, 6000, 2000};
    uint32_t route[] = {0, 0, 1};
    uint32_t queues[] = {0, 1, 2};
    struct rs_fluid_engine engines[] = {
        {2000000000, 0, 0, &queues[0], 1},
        {2000000000, 0, 0, &queues[1], 1},
        {2000000000, 0, 500, &queues[2], 1}};
    struct rs_fluid fluid = {capacity, 1, routes, bytes, route, engines, 3,
                             NULL, NULL};
    struct rs_fluid_times times[3];
    uint64_t makespan;

    cr_assert_eq(rs_fluid_run(&fluid, times, &makespan), 0);
    cr_assert_eq(times[0].finish, 2000000); /* 3000 B at 1.5 GB/s */
    cr_assert_eq(times[1].finish, 3500000); /* then 3000 B at 2 GB/s */
    cr_assert_eq(times[2].data, 500);
    cr_assert_eq(times[2].finish, 1000500);
    cr_assert_eq(makespan, 3500000);
}

/* Thirds do not come out even; 30000 puts later the error is below 1 ns. */
Test(fluid, errors_do_not_add_up)
{
    enum { MANY = 30000 };
    static uint64_t bytes[MANY];
    static uint32_t route[MANY], queues[3][MANY / 3];
    uint64_t capacity[] = {1000000000};
    uint32_t link[] = {0};
    struct rs_fluid_route routes[] = {{link, 1}};
    struct rs_fluid_engine engines[3];
    struct rs_fluid fluid = {capacity, 1, routes, bytes, route, engines, 3,
                             NULL, NULL};
    uint64_t makespan, exact = 0;

    for (uint32_t i = 0; i < MANY; i++) {
        bytes[i] = 1 + i % 7;
        exact += bytes[i] * 1000;
        queues[i % 3][i / 3] = i;
    }
    for (size_t e = 0; e < 3; e++)
        engines[e] = (struct rs_fluid_engine){4000000000, 0, 0, queues[e],
                                              MANY / 3};
    cr_assert_eq(rs_fluid_run(&fluid, NULL, &makespan), 0);
    cr_assert_geq(makespan, exact);
    /* The engines do not all end at once: at most a put is sent alone. */
    cr_assert_leq(makespan, exact + 1000);
}

Test(fluid, limits)
{
    uint64_t bytes[] = {UINT64_C(1) << 61};
    uint32_t route[] = {0}, queue[] = {0};
    struct rs_fluid_route routes[] = {{NULL, 0}};
    struct rs_fluid_engine engine = {1000, 0, 0, queue, 1};
    struct rs_fluid fluid = {NULL, 0, routes, bytes, route, &engine, 1,
                             NULL, NULL};
    uint64_t makespan = 7;

    cr_assert_eq(rs_fluid_run(&fluid, NULL, &makespan), RSCHED_ELIMIT);
    bytes[0] = UINT64_C(1) << 50;
    cr_assert_eq(rs_fluid_run(&fluid, NULL, &makespan), RSCHED_ELIMIT);
    engine.opens = UINT64_MAX;
    cr_assert_eq(rs_fluid_run(&fluid, NULL, &makespan), RSCHED_ELIMIT);
    cr_assert_eq(makespan, 7, "an output is written on success only");
    engine.num_queue = 0;
    engine.opens = 0;
    cr_assert_eq(rs_fluid_run(&fluid, NULL, &makespan), 0);
    cr_assert_eq(makespan, 0);
}
