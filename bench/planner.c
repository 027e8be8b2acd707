/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long planning takes, and what it needs.
 *
 *   rsched-bench-planner            the table: user time, least of some runs
 *   rsched-bench-planner --once N   plan N puts once; prints the peak memory
 *
 * The many puts are those of a 3-D halo: 26 directions over 6 links, 8 engines,
 * sizes from 64 bytes to a megabyte.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <rsched/rsched.h>

#include "librsched/plan/dispatch.h"

enum { DIRECTIONS = 26, RUNS = 5 };

static double user_ms(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec * 1e3 +
           (double)usage.ru_utime.tv_usec / 1e3;
}

static long peak_kb(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static int die(void)
{
    fprintf(stderr, "rsched-bench-planner: %s\n", rsched_last_error());
    return 1;
}

static int make_machine(struct rsched_machine **machine)
{
    char text[4096];
    int direction = 0;
    int length = snprintf(
        text, sizeof(text),
        "rsched: machine/1\nname: many\n"
        "engines: {count: 8, rate: 3850 MB/s, open: 1 us, command: 0.2 us}\n"
        "node: {inject: 27000 MB/s, eject: 27000 MB/s}\n"
        "links: {a: 4830 MB/s, b: 4830 MB/s, c: 4830 MB/s, d: 4830 MB/s, "
        "e: 4830 MB/s, f: 4830 MB/s}\nroutes:\n");

    for (int code = 0; code < 27; code++) {
        const int steps[] = {code / 9, code / 3 % 3, code % 3};
        const char *comma = "";

        if (code == 13)
            continue;
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           "  d%d: [", direction++);
        for (int axis = 0; axis < 3; axis++) {
            if (steps[axis] == 1)
                continue;
            length += snprintf(text + length, sizeof(text) - (size_t)length,
                               "%s%c", comma,
                               'a' + 2 * axis + steps[axis] / 2);
            comma = ", ";
        }
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           "]\n");
    }
    return rsched_machine_parse("many", text, (size_t)length, machine);
}

static int make_pattern(size_t puts, struct rsched_pattern **pattern)
{
    uint64_t random = 7;
    int error = rsched_pattern_create("many", pattern);

    for (size_t i = 0; error == 0 && i < puts; i++) {
        char direction[8];
        struct rsched_put put = {.source = RSCHED_ANY_PROCESS,
                                 .destination = RSCHED_ANY_PROCESS,
                                 .direction = direction};
        int64_t added;

        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        snprintf(direction, sizeof(direction), "d%d",
                 (int)((random >> 33) % DIRECTIONS));
        put.bytes = 64 + ((random >> 40) % 16384 << (random >> 60) % 7);
        added = rsched_pattern_add_put(*pattern, &put);
        error = added < 0 ? (int)added : 0;
    }
    return error;
}

static int plan(const struct rsched_pattern *pattern,
                struct rsched_machine *machine, const char *planner,
                double *least)
{
    for (int run = 0; run < RUNS; run++) {
        struct rsched_schedule *schedule;
        double before = user_ms(), took;
        int error = rsched_schedule_create(pattern, machine, planner,
                                           &schedule);

        if (error != 0)
            return error;
        took = user_ms() - before;
        *least = run == 0 || took < *least ? took : *least;
        rsched_schedule_destroy(schedule);
        if (took > 2000)
            break;
    }
    return 0;
}

/* One rule: sorting, and dispatching, whose result is the score. */
static int dispatch_once(const struct rsched_pattern *pattern,
                         struct rsched_machine *machine,
                         struct rs_place *places)
{
    struct rs_problem problem;
    struct rs_script script;
    struct rs_dispatch made;
    int error = rs_problem_init(&problem, pattern, machine, NULL, 0);

    if (error != 0)
        return error;
    error = rs_script_init(&script, &problem);
    if (error != 0)
        goto err_problem;
    error = rs_dispatch_init(&made, &script);
    if (error != 0)
        goto err_script;
    rs_dispatch_run(&made, RS_RULE_G3, problem.costs.num_engines, false,
                    places);
    rs_dispatch_fini(&made);
err_script:
    rs_script_fini(&script);
err_problem:
    rs_problem_fini(&problem);
    return error;
}

static int dispatch(const struct rsched_pattern *pattern, size_t puts,
                    struct rsched_machine *machine, double *least)
{
    struct rs_place *places = calloc(puts, sizeof(*places));
    int error = 0;

    for (int run = 0; places != NULL && error == 0 && run < RUNS; run++) {
        double before = user_ms(), took;

        error = dispatch_once(pattern, machine, places);
        took = user_ms() - before;
        *least = run == 0 || took < *least ? took : *least;
    }
    free(places);
    return error;
}

static int print_many(size_t puts)
{
    struct rsched_machine *machine = NULL;
    struct rsched_pattern *pattern = NULL;
    double rule = 0, bl4 = 0, fllf = 0;
    int error = make_machine(&machine);

    if (error == 0)
        error = make_pattern(puts, &pattern);
    if (error == 0)
        error = dispatch(pattern, puts, machine, &rule);
    if (error == 0)
        error = plan(pattern, machine, "bl4", &bl4);
    if (error == 0)
        error = plan(pattern, machine, "fllf", &fllf);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
    if (error != 0)
        return die();
    printf("%10zu %12.1f %12.1f %12.1f %12ld\n", puts, rule, bl4, fllf,
           peak_kb() / 1024);
    return 0;
}

static int print_case(const char *name)
{
    struct rsched_machine *machine = NULL;
    struct rsched_pattern *pattern = NULL;
    double fllf = 0, exact = 0;
    int error = rsched_machine_builtin(name[0] == 'h' ? "torus3d" : "tofu-k",
                                       &machine);

    if (error == 0)
        error = rsched_pattern_builtin(name, &pattern);
    if (error == 0)
        error = plan(pattern, machine, "fllf", &fllf);
    if (error == 0)
        error = plan(pattern, machine, "exact", &exact);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
    if (error != 0)
        return die();
    printf("%-24s %12.1f %12.1f\n", name, fllf, exact);
    return 0;
}

static int once(size_t puts)
{
    struct rsched_machine *machine = NULL;
    struct rsched_pattern *pattern = NULL;
    struct rsched_schedule *schedule = NULL;
    int error = make_machine(&machine);

    if (error == 0)
        error = make_pattern(puts, &pattern);
    if (error == 0)
        error = rsched_schedule_create(pattern, machine, "fllf", &schedule);
    rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
    if (error != 0)
        return die();
    printf("%ld\n", peak_kb());
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t counts[] = {1000, 10000, 100000, 200000, 1000000};
    static const char *const cases[] = {"scale-les3:872:ns",
                                        "scale-les3:872:all",
                                        "scale-les3:60:all"};
    int status = 0;

    if (argc == 3 && strcmp(argv[1], "--once") == 0)
        return once(strtoull(argv[2], NULL, 10));
    if (argc != 1) {
        fprintf(stderr, "usage: %s [--once PUTS]\n", argv[0]);
        return 2;
    }
    printf("user time, ms\n%-24s %12s %12s\n", "pattern", "fllf", "exact");
    for (size_t i = 0; status == 0 && i < sizeof(cases) / sizeof(cases[0]);
         i++)
        status = print_case(cases[i]);
    printf("\n%10s %12s %12s %12s %12s\n", "puts", "sort+rule", "bl4", "fllf",
           "peak MiB");
    for (size_t i = 0; status == 0 && i < sizeof(counts) / sizeof(counts[0]);
         i++)
        status = print_many(counts[i]);
    return status;
}
