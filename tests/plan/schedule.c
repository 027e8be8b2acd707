/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules as a whole: the orderings that the paper reports, the lower bound,
 * the large, the empty, and files. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "tests/plan/random.h"

static struct rsched_machine *tofu;

static void setup(void)
{
    cr_assert_eq(rsched_machine_builtin("tofu-k", &tofu), 0);
}

static void teardown(void)
{
    rsched_machine_destroy(tofu);
}

TestSuite(schedule, .init = setup, .fini = teardown);

static uint64_t makespan_on(struct rsched_machine *machine, const char *name,
                            const char *planner)
{
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule;
    uint64_t makespan;

    cr_assert_eq(rsched_pattern_builtin(name, &pattern), 0);
    cr_assert_eq(rsched_schedule_create(pattern, machine, planner, &schedule),
                 0);
    makespan = rsched_schedule_makespan(schedule);
    rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
    return makespan;
}

#define MAKESPAN(set, grid, planner)                                          \
    makespan_on(tofu, "scale-les3:" #grid ":" set, planner)

Test(schedule, east_west_only_rr1_differs)
{
    uint64_t one = MAKESPAN("ew", 872, "rr1");
    uint64_t best = MAKESPAN("ew", 872, "bl4");

    cr_assert_eq(MAKESPAN("ew", 872, "rr2"), best);
    cr_assert_eq(MAKESPAN("ew", 872, "rr4"), best);
    cr_assert_eq(MAKESPAN("ew", 872, "bl1"), best);
    cr_assert_eq(MAKESPAN("ew", 872, "bl2"), best);
    cr_assert(one * 100 > best * 190 && one * 100 < best * 205);
}

/* The paper's anomaly: contention wins, because one put leaves a fifth of its
 * link idle. With engines as fast as links it is gone. */
Test(schedule, north_south_anomaly)
{
    static const char fast[] =
        "rsched: machine/1\nname: fast\n"
        "engines: {count: 4, rate: 4830 MB/s, open: 1 us, command: 0.2 us}\n"
        "node: {inject: 13500 MB/s, eject: 13500 MB/s}\n"
        "links: {N: 4830 MB/s, S: 4830 MB/s}\nroutes: {N: [N], S: [S]}\n";
    struct rsched_machine *machine;

    cr_assert_lt(MAKESPAN("ns", 872, "rr4"), MAKESPAN("ns", 872, "bl4"));
    cr_assert_lt(MAKESPAN("ns", 872, "bl4"), MAKESPAN("ns", 872, "rr2"));
    cr_assert_lt(MAKESPAN("ns", 872, "rr2"), MAKESPAN("ns", 872, "rr1"));
    cr_assert_eq(rsched_machine_parse("fast", fast, strlen(fast), &machine),
                 0);
    cr_assert_gt(makespan_on(machine, "scale-les3:872:ns", "rr4"),
                 makespan_on(machine, "scale-les3:872:ns", "bl4"));
    rsched_machine_destroy(machine);
}

/* Nor is it there on rails of which one queue pair fills each: whoever keeps puts
 * of one direction apart loses nothing by it. */
Test(schedule, no_anomaly_where_an_engine_fills_its_link)
{
    static const char *const machines[] = {"soft-roce-2", "soft-roce-4"};
    static const char *const halos[] = {
        "scale-les3:60:ns", "scale-les3:218:ns", "scale-les3:872:ns"};
    static const char *const contending[] = {"rr1", "rr2", "rr4"};

    for (size_t m = 0; m < 2; m++) {
        struct rsched_machine *machine;

        cr_assert_eq(rsched_machine_builtin(machines[m], &machine), 0);
        for (size_t h = 0; h < 3; h++) {
            uint64_t avoiding = makespan_on(machine, halos[h], "bl4");

            for (size_t c = 0; c < 3; c++)
                cr_assert_leq(avoiding,
                              makespan_on(machine, halos[h], contending[c]),
                              "%s on %s: %s", halos[h], machines[m],
                              contending[c]);
        }
        rsched_machine_destroy(machine);
    }
}

Test(schedule, four_directions_avoiding_contention_wins)
{
    uint64_t best = MAKESPAN("ewns", 872, "bl4");

    cr_assert_lt(best, MAKESPAN("ewns", 872, "rr4"));
    cr_assert_lt(MAKESPAN("ewns", 872, "rr4"), MAKESPAN("ewns", 872, "rr2"));
    cr_assert_lt(MAKESPAN("ewns", 872, "rr2"), MAKESPAN("ewns", 872, "rr1"));
    cr_assert_lt(best, MAKESPAN("ns", 872, "rr2"));
}

Test(schedule, diagonals)
{
    cr_assert_lt(MAKESPAN("diag", 872, "bl4"), MAKESPAN("diag", 872, "bl2"));
    cr_assert_lt(MAKESPAN("diag", 872, "bl2"), MAKESPAN("diag", 872, "rr4"));
    cr_assert_lt(MAKESPAN("diag", 872, "rr4"), MAKESPAN("diag", 872, "rr2"));
    cr_assert_lt(MAKESPAN("diag", 327, "bl4"), MAKESPAN("diag", 327, "rr4"));
    cr_assert_lt(MAKESPAN("diag", 327, "rr4"), MAKESPAN("diag", 327, "bl2"));
    /* Small puts: fewer engines win. */
    cr_assert_lt(MAKESPAN("diag", 60, "bl2"), MAKESPAN("diag", 60, "bl1"));
    cr_assert_lt(MAKESPAN("diag", 60, "bl1"), MAKESPAN("diag", 60, "bl4"));
    cr_assert_lt(MAKESPAN("all", 60, "bl2"), MAKESPAN("all", 60, "bl4"));
    cr_assert_lt(MAKESPAN("all", 218, "bl4"), MAKESPAN("all", 218, "bl2"));
}

static struct rsched_machine *random_machine(uint64_t *random)
{
    char text[1024];
    struct rsched_machine *machine;
    int length = snprintf(
        text, sizeof(text),
        "rsched: machine/1\nname: random\n"
        "engines: {count: %d, rate: %d MB/s, open: %d ns, command: %d ns}\n"
        "node: {inject: %d MB/s}\n"
        "links: {W: %d MB/s, E: 4830 MB/s, N: %d MB/s, S: unlimited}\n"
        "routes: {W: [W], E: [E], N: [N], NE: [N, E], \"*\": [S, W]}\n",
        1 + (int)random_below(random, 9), 500 + (int)random_below(random, 8000),
        (int)random_below(random, 3) * 500, (int)random_below(random, 300),
        3000 + (int)random_below(random, 20000),
        1000 + (int)random_below(random, 9000),
        1000 + (int)random_below(random, 9000));

    cr_assert_eq(rsched_machine_parse("random", text, (size_t)length,
                                      &machine), 0, "%s",
                 rsched_last_error());
    return machine;
}

static struct rsched_pattern *random_pattern(uint64_t *random)
{
    static const char *const names[] = {"W", "E", "N", "NE", "odd", ""};
    size_t count = random_below(random, 40);
    struct rsched_pattern *pattern;

    cr_assert_eq(rsched_pattern_create("random", &pattern), 0);
    for (size_t i = 0; i < count; i++) {
        struct rsched_put put = {
            .bytes = random_below(random, 1 << (1 + random_below(random, 20))),
            .source = RSCHED_ANY_PROCESS,
            .destination = RSCHED_ANY_PROCESS,
            .direction = names[random_below(random, 6)]};

        cr_assert_eq(rsched_pattern_add_put(pattern, &put), (int64_t)i);
    }
    return pattern;
}

/* Every put is in one queue, the bound holds, and the same queues given by
 * hand take the same time. */
static void expect_sound(const struct rsched_schedule *schedule)
{
    size_t puts = rsched_schedule_num_puts(schedule), seen = 0;
    uint32_t engines[64], positions[64];
    struct rsched_schedule *again;

    cr_assert_leq(rsched_schedule_lower_bound(schedule),
                  rsched_schedule_makespan(schedule));
    for (size_t e = 0; e < rsched_schedule_num_engines(schedule); e++) {
        const uint32_t *queue;
        size_t count = rsched_schedule_queue(schedule, e, &queue);

        for (size_t i = 0; i < count; i++, seen++) {
            const struct rsched_placement *p =
                rsched_schedule_placement(schedule, queue[i]);

            cr_assert_eq(p->engine, e);
            cr_assert_eq(p->position, i);
            engines[queue[i]] = (uint32_t)e;
            positions[queue[i]] = (uint32_t)i;
        }
    }
    cr_assert_eq(seen, puts);
    cr_assert_eq(rsched_schedule_create_queues(
                     rsched_schedule_pattern(schedule),
                     rsched_schedule_machine(schedule), "again", engines,
                     positions, &again), 0);
    cr_assert_eq(rsched_schedule_makespan(again),
                 rsched_schedule_makespan(schedule));
    rsched_schedule_destroy(again);
}

Test(schedule, lower_bound_holds)
{
    uint64_t random = 11;

    for (int round = 0; round < 100; round++) {
        struct rsched_machine *machine = random_machine(&random);
        struct rsched_pattern *pattern = random_pattern(&random);

        for (size_t i = 0; rsched_planner_at(i) != NULL; i++) {
            struct rsched_schedule *schedule;

            if (rsched_planner_at(i)->exhaustive)
                continue; /* tests/plan/optimum.c */
            cr_assert_eq(rsched_schedule_create(pattern, machine,
                                                rsched_planner_at(i)->name,
                                                &schedule), 0);
            expect_sound(schedule);
            rsched_schedule_destroy(schedule);
        }
        rsched_pattern_destroy(pattern);
        rsched_machine_destroy(machine);
    }
}

/* No queues of a small pattern, whichever, beat the bound. */
Test(schedule, lower_bound_holds_for_all_queues)
{
    struct rsched_pattern *pattern;
    uint64_t best = UINT64_MAX, bound = 0;

    cr_assert_eq(rsched_pattern_builtin("scale-les3:60:ns", &pattern), 0);
    for (uint32_t code = 0; code < 256; code++) {
        uint32_t engines[4], positions[4], used[4] = {0};
        struct rsched_schedule *schedule;

        for (int i = 0; i < 4; i++) {
            engines[i] = code >> (2 * i) & 3;
            positions[i] = used[engines[i]]++;
        }
        cr_assert_eq(rsched_schedule_create_queues(pattern, tofu, "all",
                                                   engines, positions,
                                                   &schedule), 0);
        bound = rsched_schedule_lower_bound(schedule);
        if (rsched_schedule_makespan(schedule) < best)
            best = rsched_schedule_makespan(schedule);
        rsched_schedule_destroy(schedule);
    }
    cr_assert_leq(bound, best);
    cr_assert_eq(best / 1000, 4997, "the proven optimum is 4.9979 us");
    rsched_pattern_destroy(pattern);
}

Test(schedule, bad_queues_and_names)
{
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule = NULL;
    uint32_t engines[] = {0, 4}, same[] = {0, 0}, positions[] = {0, 1};

    cr_assert_eq(rsched_pattern_builtin("scale-les3:60:ew", &pattern), 0);
    cr_assert_eq(rsched_schedule_create_queues(pattern, tofu, "x", engines,
                                               positions, &schedule),
                 RSCHED_EINVAL);
    cr_assert_eq(rsched_schedule_create_queues(pattern, tofu, "x", same, same,
                                               &schedule), RSCHED_EINVAL);
    cr_assert_eq(rsched_schedule_create(pattern, tofu, "best", &schedule),
                 RSCHED_ENAME);
    cr_assert_str_eq(rsched_last_error(),
                     "no scheduler 'best' (there are: rr1 rr2 rr4 bl1 bl2 bl4 "
                     "bl1-seeded bl2-seeded bl4-seeded fllf exact)");
    cr_assert_null(schedule);
    rsched_pattern_destroy(pattern);
}

Test(schedule, outlives_pattern_and_machine)
{
    struct rsched_pattern *pattern;
    struct rsched_machine *machine;
    struct rsched_schedule *schedule;

    cr_assert_eq(rsched_pattern_builtin("halo3d:8x8x8:h1:26", &pattern), 0);
    cr_assert_eq(rsched_machine_builtin("torus3d", &machine), 0);
    cr_assert_eq(rsched_schedule_create(pattern, machine, "bl4", &schedule),
                 0);
    rsched_machine_destroy(machine);
    rsched_pattern_destroy(pattern);
    cr_assert_eq(rsched_schedule_num_puts(schedule), 26);
    cr_assert_str_eq(rsched_machine_name(rsched_schedule_machine(schedule)),
                     "torus3d");
    rsched_schedule_destroy(schedule);
}

/* The default machine of a node takes whatever direction there is. */
Test(schedule, host_takes_any_direction)
{
    struct rsched_machine *machine;
    struct rsched_schedule *schedule;
    uint64_t random = 5;
    struct rsched_pattern *pattern = random_pattern(&random);

    cr_assert_eq(rsched_machine_builtin("host", &machine), 0);
    cr_assert_eq(rsched_schedule_create(pattern, machine, "bl4", &schedule),
                 0);
    cr_assert_eq(rsched_schedule_num_engines(schedule), 1);
    cr_assert(rsched_schedule_is_proven(schedule));
    rsched_schedule_destroy(schedule);
    rsched_machine_destroy(machine);
    rsched_pattern_destroy(pattern);
}

static void count_stretch(void *arg, uint64_t from, uint64_t to,
                          const uint64_t *loads)
{
    uint64_t *sum = arg;

    for (size_t i = 0; i < 4; i++) {
        cr_assert_leq(loads[i], 4830000000u);
        sum[i] += (uint64_t)((unsigned __int128)loads[i] * (to - from) /
                             1000000);
    }
}

/* What goes over a link is what the routes put on it. */
Test(schedule, occupancy_adds_up)
{
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule;
    uint64_t sum[4] = {0}, load = (224256 + 4 * 14016);

    cr_assert_eq(rsched_pattern_builtin("scale-les3:872:all", &pattern), 0);
    cr_assert_eq(rsched_schedule_create(pattern, tofu, "bl4", &schedule), 0);
    cr_assert_eq(rsched_schedule_occupancy(schedule, count_stretch, sum), 0);
    for (size_t i = 0; i < 4; i++)
        cr_assert(llabs((long long)(sum[i] / 1000000) - (long long)load) <= 1,
                  "link %zu carries %" PRIu64 " bytes", i, sum[i] / 1000000);
    rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
}

Test(schedule, file_round_trip)
{
    char path[] = "/tmp/rsched-test-XXXXXX";
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule, *again;
    int fd = mkstemp(path);
    FILE *out = fdopen(fd, "w");

    cr_assert_eq(rsched_pattern_builtin("scale-les3:109:all", &pattern), 0);
    cr_assert_eq(rsched_schedule_create(pattern, tofu, "bl2", &schedule), 0);
    cr_assert_eq(rsched_schedule_write(schedule, "tofu-k", out), 0);
    fclose(out);
    cr_assert_eq(rsched_schedule_load(path, NULL, &again), 0, "%s",
                 rsched_last_error());
    unlink(path);
    cr_assert_str_eq(rsched_schedule_planner(again), "bl2");
    cr_assert_eq(rsched_schedule_num_puts(again), 14);
    for (size_t i = 0; i < 14; i++)
        cr_assert_arr_eq(rsched_schedule_placement(again, i),
                         rsched_schedule_placement(schedule, i),
                         sizeof(struct rsched_placement));
    rsched_schedule_destroy(again);
    rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
}

/* 100000 puts of many sizes: more holes than the packer remembers. */
Test(schedule, many_puts, .timeout = 120)
{
    struct rsched_pattern *pattern;
    uint64_t random = 3;

    cr_assert_eq(rsched_pattern_create("many", &pattern), 0);
    for (int i = 0; i < 100000; i++) {
        static const char *const names[] = {"W", "E", "N", "S", "NE", "SW"};
        struct rsched_put put = {.bytes = random_below(&random, 1 << 20),
                                 .source = RSCHED_ANY_PROCESS,
                                 .destination = RSCHED_ANY_PROCESS,
                                 .direction = names[i % 6]};

        cr_assert_eq(rsched_pattern_add_put(pattern, &put), i);
    }
    for (size_t i = 0; rsched_planner_at(i) != NULL; i++) {
        struct rsched_schedule *schedule;

        if (rsched_planner_at(i)->exhaustive)
            continue;
        cr_assert_eq(rsched_schedule_create(pattern, tofu,
                                            rsched_planner_at(i)->name,
                                            &schedule), 0);
        cr_assert_leq(rsched_schedule_lower_bound(schedule),
                      rsched_schedule_makespan(schedule));
        rsched_schedule_destroy(schedule);
    }
    rsched_pattern_destroy(pattern);
}

/* ---- puts within a node that go out and in again ---- */

/* Engines and ports of 1 GB/s, or 1000 bytes in 1 us, two of them as rails; a put
 * to N and one to the NIC's own node. */
static const char nic[] =
    "rsched: machine/1\nname: nic\n"
    "engines: {count: 2, rate: 1000 MB/s, command: 1 us}\n"
    "links: {p0: 1000 MB/s, p1: 1000 MB/s}\n"
    "routes: {N: [], loopback: []}\n"
    "rails: [{links: [p0]}, {links: [p1]}]\n";

enum { MICRO = 1000000 }; /* ps */

static struct rsched_machine *machine_of(const char *more)
{
    struct rsched_machine *machine;
    char text[1024];

    snprintf(text, sizeof(text), "%s%s", nic, more);
    cr_assert_eq(rsched_machine_parse("nic", text, strlen(text), &machine), 0,
                 "%s", rsched_last_error());
    return machine;
}

static struct rsched_schedule *schedule_of(const char *const *directions,
                                           struct rsched_machine *machine,
                                           const char *planner)
{
    struct rsched_schedule *schedule;
    struct rsched_pattern *pattern;

    cr_assert_eq(rsched_pattern_create("loopback", &pattern), 0);
    for (size_t i = 0; directions[i] != NULL; i++) {
        const struct rsched_put put = {.bytes = 100000,
                                       .direction = directions[i]};

        cr_assert_geq(rsched_pattern_add_put(pattern, &put), 0);
    }
    cr_assert_eq(rsched_schedule_create(pattern, machine, planner, &schedule),
                 0, "%s", rsched_last_error());
    rsched_pattern_destroy(pattern);
    return schedule;
}

static void add_load(void *arg, uint64_t from, uint64_t to,
                     const uint64_t *loads)
{
    double *moved = arg;

    for (int link = 0; link < 2; link++)
        moved[link] += (double)(to - from) / 1e12 * (double)loads[link];
}

/* Its engine is busy, and its link carries it, twice as long. */
Test(schedule, loopback_crosses_engine_and_link_twice)
{
    static const char *const one[] = {"loopback", NULL};
    struct rsched_machine *machine = machine_of("twice: [loopback]\n");
    struct rsched_schedule *schedule = schedule_of(one, machine, "fllf");
    const struct rsched_placement *p = rsched_schedule_placement(schedule, 0);
    double moved[2] = {0};

    cr_assert_eq(p->data - p->start, 1 * MICRO);
    cr_assert_eq(p->finish - p->data, 200 * MICRO);
    cr_assert_eq(rsched_schedule_lower_bound(schedule), 201 * MICRO);
    cr_assert_eq(rsched_schedule_part(schedule, 0)->bytes, 100000);
    cr_assert_eq(rsched_schedule_occupancy(schedule, add_load, moved), 0);
    cr_assert_float_eq(moved[p->engine], 200000, 1);
    cr_assert_float_eq(moved[1 - p->engine], 0, 1);
    rsched_schedule_destroy(schedule);
    rsched_machine_destroy(machine);
}

/* So the planner gives two others one port together, and loopback the other one:
 * 201 us and 202 us. If it counted once, two of three would take 202 us anyhow. */
Test(schedule, loopback_has_a_port_for_itself)
{
    static const char *const three[] = {"N", "loopback", "N", NULL};
    static const char *const planners[] = {"fllf", "exact", "bl1", NULL};
    struct rsched_machine *machine = machine_of("twice: [loopback]\n");

    for (int i = 0; planners[i] != NULL; i++) {
        struct rsched_schedule *s = schedule_of(three, machine, planners[i]);
        uint32_t loop = rsched_schedule_placement(s, 1)->engine;

        cr_assert_eq(rsched_schedule_makespan(s), 202 * MICRO, "%s: %llu",
                     planners[i],
                     (unsigned long long)rsched_schedule_makespan(s));
        cr_assert_eq(rsched_schedule_placement(s, 0)->engine, 1 - loop);
        cr_assert_eq(rsched_schedule_placement(s, 2)->engine, 1 - loop);
        rsched_schedule_destroy(s);
    }
    rsched_machine_destroy(machine);
}

/* Without the key it is a put like others, and the first one leaves with it. */
Test(schedule, a_direction_crosses_once_unless_the_machine_says_so)
{
    static const char *const one[] = {"loopback", NULL};
    struct rsched_machine *machine = machine_of("");
    struct rsched_schedule *schedule = schedule_of(one, machine, "fllf");

    cr_assert_eq(rsched_schedule_makespan(schedule), 101 * MICRO);
    cr_assert_eq(rsched_machine_find_route(machine, "loopback")->crossings, 1);
    rsched_schedule_destroy(schedule);
    rsched_machine_destroy(machine);
}

/* What is written says it too, and a schedule that is read again has the same
 * times. */
Test(schedule, crossings_are_written)
{
    static const char *const two[] = {"loopback", "N", NULL};
    struct rsched_machine *machine = machine_of("twice: [loopback]\n"), *again;
    struct rsched_schedule *schedule = schedule_of(two, machine, "fllf"), *read;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    cr_assert_eq(rsched_machine_write(machine, out), 0);
    fclose(out);
    cr_assert_eq(rsched_machine_parse("again", text, length, &again), 0);
    cr_assert_eq(rsched_machine_find_route(again, "loopback")->crossings, 2);
    cr_assert_eq(rsched_machine_find_route(again, "N")->crossings, 1);
    cr_assert_eq(rsched_machine_rail(again, 1)->routes[1].crossings, 2);
    free(text);
    out = open_memstream(&text, &length);
    cr_assert_eq(rsched_schedule_write(schedule, "nic", out), 0);
    fclose(out);
    cr_assert_eq(rsched_schedule_parse("read", text, length, again, &read), 0,
                 "%s", rsched_last_error());
    cr_assert_eq(rsched_schedule_makespan(read),
                 rsched_schedule_makespan(schedule));
    free(text);
    rsched_schedule_destroy(read);
    rsched_schedule_destroy(schedule);
    rsched_machine_destroy(again);
    rsched_machine_destroy(machine);
}

Test(schedule, loopback_of_a_network_is_refused)
{
    static const char text[] =
        "rsched: machine/1\nname: t\nengines: {count: 1, rate: 1 GB/s}\n"
        "topology: {type: torus, dims: [4, 4], link: 1 GB/s}\ntwice: [N]\n";
    struct rsched_machine *machine;

    cr_assert_eq(rsched_machine_parse("t", text, strlen(text), &machine),
                 RSCHED_EPARSE);
    cr_assert(strstr(rsched_last_error(), "twice") != NULL, "%s",
              rsched_last_error());
}
