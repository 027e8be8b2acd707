/* SPDX-License-Identifier: BSD-3-Clause */
/* Random patterns and machines, and what the tests of planners ask of them. */
#ifndef RS_TESTS_PLANNED_H
#define RS_TESTS_PLANNED_H

#include <criterion/criterion.h>
#include <stdio.h>

#include <rsched/rsched.h>

#include "tests/plan/random.h"

/** Rails for the machine below: each has a link of its own (some the first one
 * as well), a rate, and sometimes another way west. */
static inline int write_rails(uint64_t *random, int engines, char *text,
                              size_t size)
{
    int rails = 1 + (int)random_below(random, engines < 4 ? engines : 4);
    bool alike = random_below(random, 3) == 0;
    int length = snprintf(text, size, "rails:\n");

    for (int r = 0; r < rails; r++) {
        length += snprintf(text + length, size - (size_t)length,
                           "  - {links: [P%d%s]", r,
                           r > 0 && random_below(random, 4) == 0 ? ", P0" : "");
        if (!alike && random_below(random, 2) == 0)
            length += snprintf(text + length, size - (size_t)length,
                               ", rate: %d MB/s",
                               500 + (int)random_below(random, 6000));
        length += snprintf(text + length, size - (size_t)length, "%s}\n",
                           !alike && random_below(random, 2) == 0
                               ? ", routes: {W: [L5], NW: [L2]}"
                               : "");
    }
    return length;
}

/** A machine with up to `engines` engines and six links of random capacities,
 * or the same for all when `even`; with rails if wanted. */
static inline struct rsched_machine *
random_machine(uint64_t *random, uint32_t engines, bool even, bool rails)
{
    char text[4096];
    struct rsched_machine *machine;
    int count = 1 + (int)random_below(random, engines);
    uint64_t rate = 1000 + random_below(random, 6000);
    uint64_t link = 1000 + random_below(random, 9000);
    int length = snprintf(
        text, sizeof(text),
        "rsched: machine/1\nname: random\n"
        "engines: {count: %d, rate: %d MB/s, open: %d ns, command: %d ns}\n"
        "node: {inject: %d MB/s}\nlinks: {",
        count, (int)rate, (int)random_below(random, 3) * 500,
        (int)random_below(random, 300),
        (int)rate + (int)random_below(random, 20000));

    for (int i = 0; i < 6; i++) {
        if (!even)
            link = 1000 + random_below(random, 9000);
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           "%sL%d: %d MB/s", i ? ", " : "", i, (int)link);
    }
    for (int i = 0; rails && i < 4; i++) {
        if (!even)
            link = 1000 + random_below(random, 9000);
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           ", P%d: %d MB/s", i, (int)link);
    }
    length += snprintf(
        text + length, sizeof(text) - (size_t)length,
        "}\nroutes: {W: [L0], E: [L1], N: [L2], S: [L3], NW: [L0, L2], "
        "SE: [L1, L3], up: [L4], NEd: [L1, L2, L5], \"\": []}\n");
    if (rails)
        length += write_rails(random, count, text + length,
                              sizeof(text) - (size_t)length);
    cr_assert_eq(rsched_machine_parse("random", text, (size_t)length,
                                      &machine), 0, "%s",
                 rsched_last_error());
    return machine;
}

static inline struct rsched_machine *
random_torus(uint64_t *random, uint32_t engines, bool even)
{
    return random_machine(random, engines, even, false);
}

/** A pattern of up to `most` puts for that machine; some are equal. */
static inline struct rsched_pattern *random_puts(uint64_t *random,
                                                 size_t most)
{
    static const char *const names[] = {"W", "E", "N", "S", "NW",
                                        "SE", "up", "NEd", ""};
    size_t count = 1 + random_below(random, most);
    uint64_t kinds = 2 + random_below(random, 7);
    uint64_t scale = 1 + random_below(random, 20);
    struct rsched_pattern *pattern;

    cr_assert_eq(rsched_pattern_create("random", &pattern), 0);
    for (size_t i = 0; i < count; i++) {
        struct rsched_put put = {
            .bytes = random_below(random, 5) * 1000 +
                     random_below(random, UINT64_C(1) << scale),
            .source = RSCHED_ANY_PROCESS,
            .destination = RSCHED_ANY_PROCESS,
            .direction = names[random_below(random, kinds)]};

        cr_assert_eq(rsched_pattern_add_put(pattern, &put), (int64_t)i);
        for (; i + 1 < count && random_below(random, 3) == 0; i++)
            cr_assert_gt(rsched_pattern_add_put(pattern, &put), 0);
    }
    return pattern;
}

static inline struct rsched_schedule *
plan_with(const struct rsched_pattern *pattern, struct rsched_machine *machine,
          const char *planner)
{
    struct rsched_schedule *schedule;

    cr_assert_eq(rsched_schedule_create(pattern, machine, planner, &schedule),
                 0, "%s", rsched_last_error());
    return schedule;
}

static inline uint64_t makespan_of(const struct rsched_pattern *pattern,
                                   struct rsched_machine *machine,
                                   const char *planner)
{
    struct rsched_schedule *schedule = plan_with(pattern, machine, planner);
    uint64_t makespan = rsched_schedule_makespan(schedule);

    rsched_schedule_destroy(schedule);
    return makespan;
}

#endif
