/* SPDX-License-Identifier: BSD-3-Clause */
/* One node with link classes is the whole torus, of at least three nodes in each
 * dimension used, when all nodes follow one schedule; and what uncoordinated receive engines cost. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "librsched/world/world.h"

enum { NEAR = 1000 }; /* ps */

static struct rsched_machine *machine;

static void setup(void)
{
    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
}

static void teardown(void)
{
    rsched_machine_destroy(machine);
}

TestSuite(identity, .init = setup, .fini = teardown);

static uint64_t simulate(const char *pattern_name, const char *nodes,
                         struct rs_world_params params, uint64_t *planned)
{
    struct rsched_pattern *pattern;
    struct rs_world_result result;
    struct rs_world *world;

    cr_assert_eq(rsched_pattern_builtin(pattern_name, &pattern), 0);
    params.pattern = pattern;
    params.machine = machine;
    if (params.processes == 0)
        params.processes = 1;
    cr_assert_eq(rs_shape_parse(nodes, &params.nodes), 0);
    cr_assert_eq(rs_world_create(&params, &world), 0, "%s",
                 rsched_last_error());
    cr_assert_eq(rs_world_run(world, machine, NULL, params.watch, &result), 0);
    if (planned != NULL)
        *planned = world->planned;
    rs_world_destroy(world);
    rsched_pattern_destroy(pattern);
    return result.makespan;
}

static void expect_near(uint64_t got, uint64_t wanted, const char *what)
{
    cr_assert(got + NEAR >= wanted && got <= wanted + NEAR,
              "%s: %" PRIu64 " ps, wanted %" PRIu64, what, got, wanted);
}

Test(identity, one_node_is_the_torus)
{
    static const char *const patterns[] = {
        "scale-les3:872:ns", "scale-les3:872:ewns", "scale-les3:872:all",
        "scale-les3:60:diag"};
    static const char *const nodes[] = {"8x6", "32x32", "3x5"};
    const struct rsched_planner *planner;

    for (size_t i = 0; (planner = rsched_planner_at(i)) != NULL; i++) {
        for (size_t p = 0; p < sizeof(patterns) / sizeof(*patterns); p++) {
            for (size_t n = 0; n < sizeof(nodes) / sizeof(*nodes); n++) {
                struct rs_world_params params = {.planner = planner->name};
                uint64_t planned, got = simulate(patterns[p], nodes[n], params,
                                                 &planned);
                char what[96];

                snprintf(what, sizeof(what), "%s %s %s", patterns[p],
                         planner->name, nodes[n]);
                expect_near(got, planned, what);
                params.receive = RS_RECEIVE_PLANNED;
                expect_near(simulate(patterns[p], nodes[n], params, NULL),
                            planned, what);
            }
        }
    }
}

/* In a dimension of two nodes both neighbors are one, and both ways are equally
 * long: the one with + is taken, so north and south share its links. */
Test(identity, a_dimension_of_two_takes_longer)
{
    static const char *const nodes[] = {"8x2", "2x2"};

    for (size_t n = 0; n < sizeof(nodes) / sizeof(*nodes); n++) {
        struct rs_world_params params = {.planner = "bl4"};
        uint64_t planned, got = simulate("scale-les3:872:ewns", nodes[n],
                                         params, &planned);

        cr_assert_gt(got, planned + planned / 100, "%s", nodes[n]);
    }
    /* A dimension that no put uses does not matter. */
    {
        struct rs_world_params params = {.planner = "bl4"};
        uint64_t planned, got = simulate("scale-les3:872:ns", "2x8", params,
                                         &planned);

        expect_near(got, planned, "2x8");
    }
}

/* Two senders meet on one receive engine: from 69.4 to 119.7 us. */
Test(identity, uncoordinated_receive_engines)
{
    struct rs_world_params params = {.planner = "bl4",
                                     .receive = RS_RECEIVE_UNCOORDINATED};

    expect_near(simulate("scale-les3:872:ewns", "8x6", params, NULL),
                119697143, "8x6");
    expect_near(simulate("scale-les3:872:ewns", "16x16", params, NULL),
                119697143, "16x16");
}

/* Random placement, and what another choice of routes gains. */
Test(identity, balanced_routes_lower_the_largest_load)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct rs_world_params params = {.planner = "bl4", .shuffled = true,
                                         .mapping_seed = seed};
        uint64_t first = simulate("scale-les3:872:ewns", "8x6", params, NULL);
        uint64_t again = simulate("scale-les3:872:ewns", "8x6", params, NULL);

        cr_assert_eq(first, again);
        params.balanced = true;
        cr_assert_lt(simulate("scale-les3:872:ewns", "8x6", params, NULL),
                     first / 100 * 80);
    }
}

/* Where the nodes bind and not the links, other routes only disturb: then first
 * ones are kept. */
Test(identity, balanced_routes_never_lose)
{
    static const char *const patterns[] = {
        "scale-les3:872:all", "scale-les3:60:all", "scale-les3:218:diag"};
    size_t kept = 0, chosen = 0;

    for (uint64_t i = 0; i < 60; i++) {
        struct rs_world_params params = {
            .planner = i % 2 ? "bl4" : "rr4", .shuffled = i % 5 != 0,
            .mapping_seed = i, .jitter = i % 4 == 3 ? 2000000 : 0, .seed = i};
        const char *nodes = i % 3 == 0 ? "8x6" : i % 3 == 1 ? "3x3" : "5x7";
        const char *pattern = patterns[i / 3 % 3];
        uint64_t first = simulate(pattern, nodes, params, NULL), balanced;

        params.balanced = true;
        balanced = simulate(pattern, nodes, params, NULL);
        cr_assert_leq(balanced, first, "%" PRIu64, i);
        kept += balanced == first;
        chosen += balanced < first;
    }
    cr_assert_gt(kept, 0);
    cr_assert_gt(chosen, 0);
}

/* Four processes on the engines of one node. */
Test(identity, planning_a_node_together_gains)
{
    struct rs_world_params params = {.planner = "bl4", .processes = 4};
    uint64_t alone = simulate("scale-les3:218:all", "8x6", params, NULL);
    uint64_t together;

    params.together = true;
    together = simulate("scale-les3:218:all", "8x6", params, NULL);
    cr_assert_lt(together, alone);
}

/* What is chosen by runs with other starts is never worse than bl4. */
Test(identity, selection_is_robust)
{
    static const char *const patterns[] = {
        "scale-les3:872:ns", "scale-les3:872:ewns", "scale-les3:872:all",
        "scale-les3:218:diag", "scale-les3:60:ns", "scale-les3:60:ewns",
        "scale-les3:60:diag", "scale-les3:60:all", "scale-les3:327:all"};

    for (size_t p = 0; p < sizeof(patterns) / sizeof(*patterns);
         p += IDENTITY_SANITIZED) {
        for (uint64_t jitter = 0; jitter <= 5000000;
             jitter = jitter == 0 ? 1000000 : 5 * jitter) {
            struct rs_world_params params;
            struct rsched_pattern *pattern;
            uint64_t chosen = 0, bl4 = 0, mean;

            cr_assert_eq(rsched_pattern_builtin(patterns[p], &pattern), 0);
            rs_world_neighborhood(pattern, machine, jitter, &params);
            cr_assert_eq(params.nodes.count, 48);
            cr_assert_eq(rs_world_select(&params, &params.planner, &mean), 0);
            for (params.seed = 1; params.seed <= 5; params.seed++) {
                struct rs_world_params plain = params;

                plain.planner = "bl4";
                chosen += simulate(patterns[p], "8x6", params, NULL);
                bl4 += simulate(patterns[p], "8x6", plain, NULL);
            }
            cr_assert_leq(chosen, bl4, "%s, jitter %" PRIu64 " ps: %s",
                          patterns[p], jitter, params.planner);
            rsched_pattern_destroy(pattern);
        }
    }
}

struct told {
    size_t plans, searches, simulations;
};

static void count_planned(void *arg, size_t planned, size_t puts)
{
    struct told *told = arg;

    told->plans++;
    cr_assert_eq(planned, 0);
    cr_assert_eq(puts, 5600);
}

static void count_searched(void *arg, const struct rsched_search *search)
{
    struct told *told = arg;

    told->searches++;
    cr_assert_eq(search->nodes, 65536 * told->searches);
}

static void count_simulated(void *arg, size_t ended, size_t puts)
{
    struct told *told = arg;

    told->simulations++;
    cr_assert_leq(ended, puts);
    cr_assert_eq(puts, 5600);
}

/* All nodes share one plan. Who looks on changes nothing, and need not look at all
 * of it. */
Test(identity, tells_how_far_it_is)
{
    struct told told = {0};
    struct rs_world_watch watch = {count_planned, count_searched,
                                   count_simulated, &told};
    static const struct rs_world_watch none;
    struct rs_world_params params = {.planner = "exact"};
    uint64_t makespan = simulate("scale-les3:872:all", "20x20", params, NULL);

    params.watch = &watch;
    cr_assert_eq(simulate("scale-les3:872:all", "20x20", params, NULL),
                 makespan);
    cr_assert_eq(told.plans, 1);
    cr_assert_gt(told.searches, 1);
    cr_assert_gt(told.simulations, 0);
    params.watch = &none;
    params.planner = "bl4";
    simulate("scale-les3:872:all", "20x20", params, NULL);
}
