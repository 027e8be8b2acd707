/* SPDX-License-Identifier: BSD-3-Clause */
/* How good fllf and exact are: the paper's halos, the families of an
 * independent study, and full enumeration. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plan/planned.h"

static const int grids[] = {60,  70,  80,  109, 218, 327,
                            436, 545, 654, 763, 872};
static const char *const sets[] = {"ew", "ns", "ewns", "diag", "all"};

enum { GRIDS = 11, SETS = 5 };

static struct rsched_pattern *open_case(int set, int grid)
{
    struct rsched_pattern *pattern;
    char name[64];

    snprintf(name, sizeof(name), "scale-les3:%d:%s", grids[grid], sets[set]);
    cr_assert_eq(rsched_pattern_builtin(name, &pattern), 0);
    return pattern;
}

/* How far a makespan is above another one, ppm. */
static uint64_t above(uint64_t makespan, uint64_t least)
{
    cr_assert_geq(makespan, least);
    return (makespan - least) * 1000000 / least;
}

/* All 55 optima are proven within 12 million nodes together; fllf is at most
 * 2 % above each, and 0.5 % on average. */
Test(optimum, paper, .timeout = 240)
{
    struct rsched_machine *machine;
    uint64_t nodes = 0, sum = 0, most = 0;

    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    for (int set = 0; set < SETS; set++) {
        for (int grid = 0; grid < GRIDS; grid++) {
            struct rsched_pattern *pattern = open_case(set, grid);
            struct rsched_schedule *exact =
                plan_with(pattern, machine, "exact");
            uint64_t best = rsched_schedule_makespan(exact);
            uint64_t gap = above(makespan_of(pattern, machine, "fllf"), best);

            cr_assert(rsched_schedule_is_proven(exact), "%s %d", sets[set],
                      grids[grid]);
            cr_assert_leq(gap, 20000, "%s %d: %" PRIu64 " ppm", sets[set],
                          grids[grid], gap);
            nodes += rsched_schedule_nodes(exact);
            sum += gap;
            most = gap > most ? gap : most;
            rsched_schedule_destroy(exact);
            rsched_pattern_destroy(pattern);
        }
    }
    rsched_machine_destroy(machine);
    cr_assert_leq(nodes, 12000000);
    cr_assert_leq(sum, 5000 * SETS * GRIDS);
    cr_log_info("%" PRIu64 " nodes; fllf above the optimum: mean %" PRIu64
                " ppm, most %" PRIu64 " ppm", nodes, sum / (SETS * GRIDS),
                most);
}

/* The optima that the study has proven in its own way. */
Test(optimum, agrees_with_the_study, .timeout = 240)
{
    json_t *cases = json_load_file(TEST_DIR "/golden/scale-les3.json", 0,
                                   NULL), *entry;
    struct rsched_machine *machine;
    size_t index;

    cr_assert_eq(json_array_size(cases), 20);
    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    json_array_foreach(cases, index, entry) {
        struct rsched_pattern *pattern;
        double wanted =
            json_number_value(json_object_get(entry, "optimum_us")) * 1e6;
        char name[64];

        snprintf(name, sizeof(name), "scale-les3:%d:%s",
                 (int)json_integer_value(json_object_get(entry, "grid")),
                 json_string_value(json_object_get(entry, "pattern")));
        cr_assert_eq(rsched_pattern_builtin(name, &pattern), 0);
        cr_assert(llabs((long long)makespan_of(pattern, machine, "exact") -
                        (long long)wanted) <= 1000, "%s", name);
        rsched_pattern_destroy(pattern);
    }
    rsched_machine_destroy(machine);
    json_decref(cases);
}

/* The same picoseconds with every compiler and sanitizer. */
Test(optimum, same_everywhere)
{
    static const struct {
        const char *name;
        uint64_t makespan;
    } wanted[] = {
        {"scale-les3:872:all", 79799775},
        {"scale-les3:60:all", 7559872},
        {"scale-les3:327:ewns", 27648950},
        {"halo3d:64x64x64:h2:26", 36794163},
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        struct rsched_pattern *pattern;
        struct rsched_machine *machine;

        cr_assert_eq(rsched_pattern_builtin(wanted[i].name, &pattern), 0);
        cr_assert_eq(rsched_machine_builtin(
                         wanted[i].name[0] == 'h' ? "torus3d" : "tofu-k",
                         &machine), 0);
        cr_assert_eq(makespan_of(pattern, machine, "fllf"),
                     wanted[i].makespan, "%s: %" PRIu64, wanted[i].name,
                     makespan_of(pattern, machine, "fllf"));
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* --------------------------------------------------------------- families */

static struct rsched_machine *open_machine(const json_t *entry)
{
    char text[8192];
    struct rsched_machine *machine;
    int node = (int)json_integer_value(json_object_get(entry, "node_MBps"));
    int length = snprintf(
        text, sizeof(text),
        "rsched: machine/1\nname: family\n"
        "engines: {count: %d, rate: 3850 MB/s, open: 1 us, command: 0.2 us}\n"
        "node: {inject: %d MB/s, eject: %d MB/s}\nlinks: {",
        (int)json_integer_value(json_object_get(entry, "engines")), node,
        node);
    json_t *puts = json_object_get(entry, "puts"), *put;
    json_t *known = json_object();
    size_t index;

    for (int i = 0; i < 6; i++)
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           "%sL%d: 4830 MB/s", i ? ", " : "", i);
    length += snprintf(text + length, sizeof(text) - (size_t)length,
                       "}\nroutes:\n");
    json_array_foreach(puts, index, put) {
        const char *name = json_string_value(json_array_get(put, 1));
        json_t *links = json_array_get(put, 2);

        if (json_object_get(known, name) != NULL)
            continue;
        json_object_set_new(known, name, json_true());
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           "  %s: [", name);
        for (size_t i = 0; i < json_array_size(links); i++)
            length += snprintf(
                text + length, sizeof(text) - (size_t)length, "%sL%d",
                i ? ", " : "",
                (int)json_integer_value(json_array_get(links, i)));
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           "]\n");
    }
    json_decref(known);
    cr_assert_eq(rsched_machine_parse("family", text, (size_t)length,
                                      &machine), 0, "%s", rsched_last_error());
    return machine;
}

static struct rsched_pattern *open_pattern(const json_t *entry)
{
    struct rsched_pattern *pattern;
    json_t *put;
    size_t index;

    cr_assert_eq(rsched_pattern_create("family", &pattern), 0);
    json_array_foreach(json_object_get(entry, "puts"), index, put) {
        struct rsched_put added = {
            .bytes = (uint64_t)json_integer_value(json_array_get(put, 0)),
            .source = RSCHED_ANY_PROCESS,
            .destination = RSCHED_ANY_PROCESS,
            .direction = json_string_value(json_array_get(put, 1))};

        cr_assert_geq(rsched_pattern_add_put(pattern, &added), 0);
    }
    return pattern;
}

/* 3-D halos, sparse, small, unsymmetric, rails: at most 3 % above the best that
 * the study knows, and above no algorithm of the paper. */
Test(optimum, families, .timeout = 240)
{
    json_t *cases = json_load_file(TEST_DIR "/golden/families.json", 0, NULL);
    json_t *entry;
    size_t index;

    cr_assert_eq(json_array_size(cases), 24);
    json_array_foreach(cases, index, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        double best =
            json_number_value(json_object_get(entry, "best_known_us")) * 1e6;
        struct rsched_machine *machine = open_machine(entry);
        struct rsched_pattern *pattern = open_pattern(entry);
        struct rsched_schedule *schedule =
            plan_with(pattern, machine, "fllf");
        uint64_t makespan = rsched_schedule_makespan(schedule);
        double bound =
            json_number_value(json_object_get(entry, "lower_bound_us")) * 1e6;

        cr_assert(llabs((long long)rsched_schedule_lower_bound(schedule) -
                        (long long)bound) <= 1000, "%s: the bound", name);
        cr_assert_leq(makespan, (uint64_t)(best * 1.03), "%s: %" PRIu64, name,
                      makespan);
        if (strcmp(json_string_value(json_object_get(entry, "status")),
                   "opt") == 0)
            cr_assert_geq(makespan + 1000, (uint64_t)best, "%s", name);
        rsched_schedule_destroy(schedule);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
    json_decref(cases);
}

/* ------------------------------------------------------------- enumeration */

enum { PUTS = 6 };

struct enumeration {
    const struct rsched_pattern *pattern;
    struct rsched_machine *machine;
    uint32_t num_puts, num_engines;
    uint32_t engines[PUTS], positions[PUTS];
    uint64_t best;
};

static void try_queues(struct enumeration *all)
{
    struct rsched_schedule *schedule;

    cr_assert_eq(rsched_schedule_create_queues(
                     all->pattern, all->machine, "all", all->engines,
                     all->positions, &schedule), 0);
    if (rsched_schedule_makespan(schedule) < all->best)
        all->best = rsched_schedule_makespan(schedule);
    rsched_schedule_destroy(schedule);
}

/* Insert put `put` at every place of every queue. Engines are not alike: they
 * open one after the other. */
static void insert(struct enumeration *all, uint32_t put)
{
    if (put == all->num_puts || put == PUTS) {
        try_queues(all);
        return;
    }
    for (uint32_t e = 0; e < all->num_engines; e++) {
        uint32_t length = 0;

        for (uint32_t i = 0; i < put; i++)
            length += all->engines[i] == e;
        for (uint32_t at = 0; at <= length; at++) {
            for (uint32_t i = 0; i < put; i++)
                all->positions[i] += all->engines[i] == e &&
                                     all->positions[i] >= at;
            all->engines[put] = e;
            all->positions[put] = at;
            insert(all, put + 1);
            for (uint32_t i = 0; i < put; i++)
                all->positions[i] -= all->engines[i] == e &&
                                     all->positions[i] > at;
        }
    }
}

/* All queues of up to 6 puts: exact finds the best of them and proves it, and
 * the bound is below. Returns how far fllf is above, ppm. */
static uint64_t expect_enumerated(const struct rsched_pattern *pattern,
                                  struct rsched_machine *machine, int round)
{
    struct rsched_schedule *exact = plan_with(pattern, machine, "exact");
    struct enumeration all = {
        .pattern = pattern,
        .machine = machine,
        .num_puts = (uint32_t)rsched_pattern_num_puts(pattern),
        .num_engines = (uint32_t)rsched_schedule_num_engines(exact),
        .best = UINT64_MAX};

    insert(&all, 0);
    cr_assert(rsched_schedule_is_proven(exact));
    cr_assert_eq(rsched_schedule_makespan(exact), all.best,
                 "round %d: exact %" PRIu64 ", enumeration %" PRIu64, round,
                 rsched_schedule_makespan(exact), all.best);
    cr_assert_leq(rsched_schedule_lower_bound(exact), all.best);
    rsched_schedule_destroy(exact);
    return all.best == 0 ? 0
                         : above(makespan_of(pattern, machine, "fllf"),
                                 all.best);
}

Test(optimum, equals_enumeration, .timeout = 240)
{
    uint64_t random = 21;

    for (int round = 0; round < 200; round++) {
        struct rsched_machine *machine =
            random_torus(&random, 3, round % 2 == 0);
        struct rsched_pattern *pattern =
            random_puts(&random, round % 10 == 0 ? 6 : 5);

        expect_enumerated(pattern, machine, round);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* The same where the route and the rate depend on the engine; there fllf is
 * near the optimum as well. */
Test(optimum, equals_enumeration_on_rails, .timeout = 240)
{
    enum { ROUNDS = 300 };
    uint64_t random = 22, sum = 0;

    for (int round = 0; round < ROUNDS; round++) {
        struct rsched_machine *machine =
            random_machine(&random, 3, round % 2 == 0, true);
        struct rsched_pattern *pattern =
            random_puts(&random, round % 10 == 0 ? 6 : 5);

        sum += expect_enumerated(pattern, machine, round);
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
    cr_assert_leq(sum / ROUNDS, 1000, "%" PRIu64 " ppm", sum / ROUNDS);
}

/* A proof that is not finished says so. */
Test(optimum, honest_about_its_limit)
{
    struct rsched_plan_options options = {.planner = "exact", .nodes = 1000};
    struct rsched_machine *machine;
    struct rsched_pattern *pattern = open_case(4, 10);
    struct rsched_schedule *schedule;

    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    cr_assert_eq(rsched_schedule_create_options(pattern, machine, &options,
                                                &schedule), 0);
    cr_assert_not(rsched_schedule_is_proven(schedule));
    cr_assert_leq(rsched_schedule_nodes(schedule), 1001);
    cr_assert_leq(rsched_schedule_makespan(schedule),
                  makespan_of(pattern, machine, "fllf"));
    rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
}

/* --------------------------------------------------------------- progress */

enum { TOLD_EVERY = 65536 };

struct told {
    uint64_t calls, most_nodes;
    struct rsched_search last;
};

/* Numbers as the header has them; and the library may be used meanwhile. */
static void follow(void *arg, const struct rsched_search *search)
{
    struct told *told = arg;
    struct rsched_machine *machine;
    struct rsched_pattern *pattern = open_case(0, 0);

    told->calls++;
    cr_assert_str_eq(search->planner, "exact");
    cr_assert_eq(search->nodes, told->calls * TOLD_EVERY);
    cr_assert_eq(search->most_nodes, told->most_nodes);
    cr_assert_leq(search->lower_bound, search->makespan);
    if (told->calls > 1) {
        cr_assert_leq(search->makespan, told->last.makespan);
        cr_assert_eq(search->lower_bound, told->last.lower_bound);
    }
    told->last = *search;
    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    cr_assert_gt(makespan_of(pattern, machine, "exact"), 0);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
}

static char *write_schedule(const struct rsched_schedule *schedule)
{
    size_t size;
    char *text;
    FILE *out = open_memstream(&text, &size);

    cr_assert_not_null(out);
    cr_assert_eq(rsched_schedule_write(schedule, "tofu-k", out), 0);
    fclose(out);
    return text;
}

/* Plan with a limit of nodes, or with 0, watched and not: the same schedule. */
static void expect_told(const char *name, uint64_t nodes, struct told *told)
{
    struct rsched_plan_options options = {.planner = "exact", .nodes = nodes};
    struct rsched_schedule *alone, *watched;
    struct rsched_pattern *pattern;
    struct rsched_machine *machine;
    char *texts[2];

    *told = (struct told){.most_nodes = nodes != 0 ? nodes : 12000000};
    cr_assert_eq(rsched_pattern_builtin(name, &pattern), 0);
    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    cr_assert_eq(rsched_schedule_create_options(pattern, machine, &options,
                                                &alone), 0);
    options.progress = follow;
    options.progress_arg = told;
    cr_assert_eq(rsched_schedule_create_options(pattern, machine, &options,
                                                &watched), 0);
    texts[0] = write_schedule(alone);
    texts[1] = write_schedule(watched);
    cr_assert_str_eq(texts[0], texts[1]);
    cr_assert_eq(rsched_schedule_nodes(alone), rsched_schedule_nodes(watched));
    if (told->calls > 0) {
        cr_assert_leq(told->last.nodes, rsched_schedule_nodes(watched));
        cr_assert_leq(rsched_schedule_makespan(watched), told->last.makespan);
        cr_assert_leq(told->last.makespan,
                      makespan_of(pattern, machine, "fllf"));
        cr_assert_eq(told->last.lower_bound,
                     rsched_schedule_lower_bound(watched));
    }
    free(texts[0]);
    free(texts[1]);
    rsched_schedule_destroy(alone);
    rsched_schedule_destroy(watched);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
}

Test(optimum, tells_how_far_it_is)
{
    struct told told;

    expect_told("scale-les3:763:all", 0, &told);
    cr_assert_gt(told.calls, 2);
    expect_told("scale-les3:763:all", TOLD_EVERY, &told);
    cr_assert_eq(told.calls, 1);
    expect_told("scale-les3:763:all", TOLD_EVERY - 1, &told);
    cr_assert_eq(told.calls, 0);
    expect_told("scale-les3:60:ew", 0, &told);
    cr_assert_eq(told.calls, 0);
}
