/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds for every pattern and machine, over thousands of random ones. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plan/planned.h"

/* Every put is in one queue, behind the one before it; the command comes before
 * the bytes; no link, node or engine carries more than it can. */
struct loads {
    const struct rsched_schedule *schedule;
    uint64_t until;
};

static void check_loads(void *arg, uint64_t from, uint64_t to,
                        const uint64_t *loads)
{
    struct loads *seen = arg;
    const struct rsched_machine *machine =
        rsched_schedule_machine(seen->schedule);

    cr_assert_lt(from, to);
    cr_assert_geq(from, seen->until);
    seen->until = to;
    for (size_t l = 0; l < rsched_machine_num_links(machine); l++)
        cr_assert_leq(loads[l], rsched_machine_link(machine, l)->capacity);
}

static void expect_feasible(const struct rsched_schedule *schedule)
{
    const struct rsched_machine *machine = rsched_schedule_machine(schedule);
    const struct rsched_machine_costs *costs =
        rsched_machine_get_costs(machine);
    struct loads seen = {schedule, 0};
    uint64_t opened = 0, last = 0;
    size_t puts = 0;

    for (size_t e = 0; e < rsched_schedule_num_engines(schedule); e++) {
        const uint32_t *queue;
        size_t count = rsched_schedule_queue(schedule, e, &queue);
        uint64_t until = count > 0 ? opened++ * costs->engine_open : 0;
        uint64_t rate =
            rsched_machine_rail(machine, e % rsched_machine_num_rails(machine))
                ->rate;

        for (size_t i = 0; i < count; i++, puts++) {
            const struct rsched_placement *p =
                rsched_schedule_placement(schedule, queue[i]);
            unsigned __int128 least =
                (unsigned __int128)rsched_schedule_part(schedule, queue[i])
                    ->bytes * 1000000000000u / rate;

            cr_assert_eq(p->engine, e);
            cr_assert_eq(p->position, i);
            cr_assert_eq(p->start, until);
            cr_assert(p->data >= p->start + costs->command &&
                      p->data <= p->start + costs->command + 1);
            cr_assert(p->finish + 1 >= p->data + (uint64_t)least);
            until = p->finish;
        }
        last = until > last ? until : last;
    }
    cr_assert_eq(puts, rsched_schedule_num_parts(schedule));
    cr_assert_eq(last, rsched_schedule_makespan(schedule));
    cr_assert_leq(rsched_schedule_lower_bound(schedule), last);
    cr_assert_eq(rsched_schedule_occupancy(schedule, check_loads, &seen), 0);
}

/* No algorithm of the paper, seeded or not, beats fllf. */
static void expect_never_worse(const struct rsched_pattern *pattern,
                               struct rsched_machine *machine)
{
    struct rsched_schedule *fllf = plan_with(pattern, machine, "fllf");
    uint64_t makespan = rsched_schedule_makespan(fllf);
    const struct rsched_planner *planner;

    expect_feasible(fllf);
    for (size_t i = 0; (planner = rsched_planner_at(i)) != NULL; i++) {
        struct rsched_schedule *other;

        if (planner->exhaustive || strcmp(planner->name, "fllf") == 0)
            continue;
        other = plan_with(pattern, machine, planner->name);
        expect_feasible(other);
        cr_assert_leq(makespan, rsched_schedule_makespan(other), "%s",
                      planner->name);
        rsched_schedule_destroy(other);
    }
    rsched_schedule_destroy(fllf);
}

/* Thousands of small patterns. */
Test(properties, never_worse, .timeout = 240)
{
    uint64_t random = 31;

    for (int round = 0; round < 2000; round++) {
        struct rsched_machine *machine =
            random_torus(&random, 8, round % 2 == 0);
        struct rsched_pattern *pattern = random_puts(&random, 7);

        expect_never_worse(pattern, machine);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* Where the route and the rate depend on the engine. */
Test(properties, never_worse_on_rails, .timeout = 240)
{
    uint64_t random = 35;

    for (int round = 0; round < 1000; round++) {
        struct rsched_machine *machine =
            random_machine(&random, 8, round % 2 == 0, true);
        struct rsched_pattern *pattern =
            random_puts(&random, round % 50 == 0 ? 60 : 7);

        expect_never_worse(pattern, machine);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* Fewer and larger ones; the last rounds are beyond what is searched, and
 * beyond what has all proposals. */
Test(properties, never_worse_with_many_puts, .timeout = 240)
{
    uint64_t random = 32;

    for (int round = 0; round < 60; round++) {
        struct rsched_machine *machine =
            random_torus(&random, 12, round % 2 == 0);
        struct rsched_pattern *pattern = random_puts(
            &random, round < 50 ? 60 : round < 58 ? 1500 : 10000);

        expect_never_worse(pattern, machine);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* The same pattern, its puts in another order. */
static struct rsched_pattern *shuffle(const struct rsched_pattern *pattern,
                                      uint64_t *random)
{
    size_t count = rsched_pattern_num_puts(pattern);
    size_t *order = calloc(count, sizeof(*order));
    struct rsched_pattern *shuffled;

    cr_assert_eq(rsched_pattern_create("shuffled", &shuffled), 0);
    for (size_t i = 0; i < count; i++) {
        size_t j = random_below(random, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < count; i++)
        cr_assert_geq(rsched_pattern_add_put(shuffled,
                                             rsched_pattern_put(pattern,
                                                                order[i])),
                      0);
    free(order);
    return shuffled;
}

/* What the order of the requests cannot change: the bound, and the optimum. */
Test(properties, order_of_requests, .timeout = 240)
{
    uint64_t random = 33;

    for (int round = 0; round < 150; round++) {
        struct rsched_machine *machine =
            random_torus(&random, 4, round % 2 == 0);
        struct rsched_pattern *pattern = random_puts(&random, 7);
        struct rsched_pattern *shuffled = shuffle(pattern, &random);
        struct rsched_schedule *a = plan_with(pattern, machine, "exact");
        struct rsched_schedule *b = plan_with(shuffled, machine, "exact");

        cr_assert(rsched_schedule_is_proven(a) &&
                  rsched_schedule_is_proven(b));
        cr_assert_eq(rsched_schedule_makespan(a), rsched_schedule_makespan(b));
        cr_assert_eq(rsched_schedule_lower_bound(a),
                     rsched_schedule_lower_bound(b));
        rsched_schedule_destroy(a);
        rsched_schedule_destroy(b);
        rsched_pattern_destroy(shuffled);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* A machine of links a to d and as many engines, with a time unit of `unit`
 * ns: when everything is `unit` times slower, everything takes longer by it. */
static struct rsched_machine *named_machine(const char *const *links,
                                            const char *const *directions,
                                            int engines, int unit)
{
    char text[1024];
    struct rsched_machine *machine;
    int length = snprintf(
        text, sizeof(text),
        "rsched: machine/1\nname: named\n"
        "engines: {count: %d, rate: %d kB/s, open: %d ns, command: %d ns}\n"
        "node: {inject: %d kB/s}\nlinks: {%s: %d kB/s, %s: %d kB/s}\n"
        "routes: {%s: [%s], %s: [%s], %s: [%s, %s]}\n",
        engines, 3840000 / unit, 1000 * unit, 200 * unit, 8960000 / unit,
        links[0], 4800000 / unit, links[1], 4160000 / unit, directions[0],
        links[0], directions[1], links[1], directions[2], links[0], links[1]);

    cr_assert_eq(rsched_machine_parse("named", text, (size_t)length, &machine),
                 0, "%s", rsched_last_error());
    return machine;
}

static struct rsched_pattern *named_pattern(const char *const *directions,
                                            uint64_t random)
{
    struct rsched_pattern *pattern;

    cr_assert_eq(rsched_pattern_create("named", &pattern), 0);
    for (int i = 0; i < 7; i++) {
        struct rsched_put put = {.bytes = random_below(&random, 100000),
                                 .source = RSCHED_ANY_PROCESS,
                                 .destination = RSCHED_ANY_PROCESS,
                                 .direction =
                                     directions[random_below(&random, 3)]};

        cr_assert_eq(rsched_pattern_add_put(pattern, &put), i);
    }
    return pattern;
}

static const char *const here[] = {"a", "b"}, *const there[] = {"x", "long"};
static const char *const ways[] = {"p", "q", "pq"},
                         *const names[] = {"up", "Z", "aside"};

/* Names of links and directions do not matter. */
Test(properties, names_do_not_matter)
{
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct rsched_machine *m = named_machine(here, ways, 3, 1);
        struct rsched_machine *n = named_machine(there, names, 3, 1);
        struct rsched_pattern *p = named_pattern(ways, seed);
        struct rsched_pattern *q = named_pattern(names, seed);
        struct rsched_schedule *s = plan_with(p, m, "fllf");
        struct rsched_schedule *t = plan_with(q, n, "fllf");

        for (size_t i = 0; i < rsched_schedule_num_puts(s); i++)
            cr_assert_arr_eq(rsched_schedule_placement(s, i),
                             rsched_schedule_placement(t, i),
                             sizeof(struct rsched_placement));
        rsched_schedule_destroy(s);
        rsched_schedule_destroy(t);
        rsched_pattern_destroy(p);
        rsched_pattern_destroy(q);
        rsched_machine_destroy(m);
        rsched_machine_destroy(n);
    }
}

/* A machine that is 4 times slower in everything takes 4 times longer: the
 * optimum and the bound, but for the rounding of each event. */
Test(properties, time_scales)
{
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct rsched_machine *fast = named_machine(here, ways, 3, 1);
        struct rsched_machine *slow = named_machine(here, ways, 3, 4);
        struct rsched_pattern *p = named_pattern(ways, seed);
        struct rsched_schedule *s = plan_with(p, fast, "exact");
        struct rsched_schedule *t = plan_with(p, slow, "exact");

        cr_assert(llabs((long long)(4 * rsched_schedule_makespan(s)) -
                        (long long)rsched_schedule_makespan(t)) <= 8);
        cr_assert(llabs((long long)(4 * rsched_schedule_lower_bound(s)) -
                        (long long)rsched_schedule_lower_bound(t)) <= 8);
        rsched_schedule_destroy(s);
        rsched_schedule_destroy(t);
        rsched_pattern_destroy(p);
        rsched_machine_destroy(fast);
        rsched_machine_destroy(slow);
    }
}

/* One more engine does not lengthen the optimum, since it may stay unused, and
 * does not raise the bound. (More capacity may lengthen a schedule: max-min
 * fairness gives it to a put that takes from others elsewhere.) */
Test(properties, more_engines_do_not_hurt, .timeout = 240)
{
    for (uint64_t seed = 1; seed < 30; seed++) {
        struct rsched_pattern *p = named_pattern(ways, seed);
        uint64_t before = UINT64_MAX, bound = UINT64_MAX;

        for (int engines = 1; engines <= 5; engines++) {
            struct rsched_machine *m = named_machine(here, ways, engines, 1);
            struct rsched_schedule *s = plan_with(p, m, "exact");

            cr_assert(rsched_schedule_is_proven(s));
            cr_assert_leq(rsched_schedule_makespan(s), before);
            cr_assert_leq(rsched_schedule_lower_bound(s), bound);
            before = rsched_schedule_makespan(s);
            bound = rsched_schedule_lower_bound(s);
            rsched_schedule_destroy(s);
            rsched_machine_destroy(m);
        }
        rsched_pattern_destroy(p);
    }
}

/* --------------------------------------------------------------- splitting */

static struct rsched_schedule *split_case(const char *name)
{
    struct rsched_plan_options options = {.planner = "fllf", .split = true};
    struct rsched_machine *machine;
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule;

    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    cr_assert_eq(rsched_pattern_builtin(name, &pattern), 0);
    cr_assert_eq(rsched_schedule_create_options(pattern, machine, &options,
                                                &schedule), 0);
    expect_feasible(schedule);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
    return schedule;
}

Test(properties, split_gains_east_west)
{
    struct rsched_schedule *s = split_case("scale-les3:872:ew");

    cr_assert_leq(rsched_schedule_total(s), 62500000);
    cr_assert_eq(rsched_schedule_num_puts(s), 2);
    cr_assert_eq(rsched_schedule_num_parts(s), 4);
    for (uint32_t i = 0; i < 2; i++) {
        const struct rsched_part *a = rsched_schedule_part(s, i);
        const struct rsched_part *b = rsched_schedule_part(s, i + 2);

        cr_assert(a->put == i && b->put == i);
        cr_assert(a->offset == 0 && b->offset == a->bytes);
        cr_assert_eq(a->bytes + b->bytes,
                     rsched_pattern_put(rsched_schedule_pattern(s), i)->bytes);
    }
    rsched_schedule_destroy(s);
}

Test(properties, split_only_where_it_gains, .timeout = 240)
{
    static const char *const names_of_sets[] = {"ns", "ewns", "all"};
    static const int grids[] = {60, 218, 872};
    struct rsched_schedule *s = split_case("scale-les3:60:ew");

    cr_assert_eq(rsched_schedule_num_parts(s), 2);
    rsched_schedule_destroy(s);
    for (int set = 0; set < 3; set++) {
        for (int grid = 0; grid < 3; grid++) {
            char name[64];

            snprintf(name, sizeof(name), "scale-les3:%d:%s", grids[grid],
                     names_of_sets[set]);
            s = split_case(name);
            cr_assert_eq(rsched_schedule_num_parts(s),
                         rsched_schedule_num_puts(s), "%s", name);
            rsched_schedule_destroy(s);
        }
    }
}

/* Splitting is never worse in total. */
Test(properties, split_never_worse, .timeout = 240)
{
    uint64_t random = 34;

    for (int round = 0; round < 60; round++) {
        struct rsched_plan_options options = {.planner = "fllf",
                                              .split = true};
        struct rsched_machine *machine = random_torus(&random, 6, false);
        struct rsched_pattern *pattern = random_puts(&random, 6);
        struct rsched_schedule *split, *whole;

        cr_assert_eq(rsched_schedule_create_options(pattern, machine, &options,
                                                    &split), 0);
        whole = plan_with(pattern, machine, "fllf");
        expect_feasible(split);
        cr_assert_leq(rsched_schedule_total(split),
                      rsched_schedule_total(whole));
        rsched_schedule_destroy(split);
        rsched_schedule_destroy(whole);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* ------------------------------------------------------------------ limits */

static enum rsched_limit_kind limit_of(const char *set, const char *planner,
                                       char link[16])
{
    struct rsched_machine *machine;
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule;
    struct rsched_limit limit;

    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    cr_assert_eq(rsched_pattern_builtin(set, &pattern), 0);
    schedule = plan_with(pattern, machine, planner);
    cr_assert_eq(rsched_schedule_limit(schedule, &limit), 0);
    cr_assert_leq(limit.makespan_without, rsched_schedule_makespan(schedule));
    if (limit.kind == RSCHED_LIMIT_LINK)
        snprintf(link, 16, "%s",
                 rsched_machine_link(machine, limit.number)->name);
    rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
    return limit.kind;
}

/* The paper's explanations: two puts for North fight for its link under rr2,
 * one engine after the other waits under rr1, the node binds all directions,
 * and the opening of engines small puts. */
Test(properties, what_limits_a_schedule)
{
    char link[16] = "";

    cr_assert_eq(limit_of("scale-les3:872:ns", "rr2", link),
                 RSCHED_LIMIT_LINK);
    cr_assert_str_eq(link, "N");
    cr_assert_eq(limit_of("scale-les3:872:ew", "rr1", link),
                 RSCHED_LIMIT_ENGINE);
    cr_assert_eq(limit_of("scale-les3:872:all", "bl4", link),
                 RSCHED_LIMIT_NODE);
    cr_assert_eq(limit_of("scale-les3:60:all", "bl4", link),
                 RSCHED_LIMIT_OPEN);
}
