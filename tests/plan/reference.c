/* SPDX-License-Identifier: BSD-3-Clause */
/* The 20 reference cases: queues, makespans, totals, boxes, lower bounds. The
 * values are those of an independent study of the paper's algorithms, rounded
 * to 0.1 ns (totals to 1 ns). */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include <rsched/rsched.h>

enum { NEAR = 1000 }; /* ps */

static json_t *cases;
static struct rsched_machine *machine;

static void setup(void)
{
    json_error_t error;

    cases = json_load_file(TEST_DIR "/golden/scale-les3.json", 0, &error);
    cr_assert_not_null(cases, "%s", error.text);
    cr_assert_eq(json_array_size(cases), 20);
    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
}

static void teardown(void)
{
    json_decref(cases);
    rsched_machine_destroy(machine);
}

TestSuite(reference, .init = setup, .fini = teardown);

static void expect_near(const json_t *object, const char *key, uint64_t ps,
                        const char *what)
{
    const json_t *value = json_object_get(object, key);
    double wanted;

    if (value == NULL)
        return;
    wanted = json_number_value(value) * 1e6;
    cr_assert(llabs((long long)(wanted + 0.5) - (long long)ps) <= NEAR,
              "%s: %s is %" PRIu64 " ps, wanted %.0f", what, key, ps, wanted);
}

static struct rsched_pattern *open_pattern(const json_t *entry)
{
    struct rsched_pattern *pattern;
    char name[64];

    snprintf(name, sizeof(name), "scale-les3:%d:%s",
             (int)json_integer_value(json_object_get(entry, "grid")),
             json_string_value(json_object_get(entry, "pattern")));
    cr_assert_eq(rsched_pattern_builtin(name, &pattern), 0);
    return pattern;
}

static void expect_queues(const json_t *queues,
                          const struct rsched_schedule *schedule,
                          const char *what)
{
    if (queues == NULL)
        return;
    cr_assert_eq(json_array_size(queues),
                 rsched_schedule_num_engines(schedule));
    for (size_t e = 0; e < json_array_size(queues); e++) {
        const json_t *queue = json_array_get(queues, e);
        const uint32_t *puts;

        cr_assert_eq(json_array_size(queue),
                     rsched_schedule_queue(schedule, e, &puts), "%s", what);
        for (size_t i = 0; i < json_array_size(queue); i++)
            cr_assert_eq(json_integer_value(json_array_get(queue, i)),
                         puts[i], "%s: engine %zu place %zu", what, e, i);
    }
}

Test(reference, patterns)
{
    size_t index;
    json_t *entry;

    json_array_foreach(cases, index, entry) {
        struct rsched_pattern *pattern = open_pattern(entry);
        const json_t *bytes = json_object_get(entry, "bytes");
        const json_t *directions = json_object_get(entry, "dirs");

        cr_assert_eq(rsched_pattern_num_puts(pattern), json_array_size(bytes));
        for (size_t i = 0; i < json_array_size(bytes); i++) {
            const struct rsched_put *put = rsched_pattern_put(pattern, i);

            cr_assert_eq(put->bytes, (uint64_t)json_integer_value(
                                         json_array_get(bytes, i)));
            cr_assert_str_eq(put->direction, json_string_value(json_array_get(
                                                 directions, i)));
        }
        rsched_pattern_destroy(pattern);
    }
}

Test(reference, schedules)
{
    size_t index;
    json_t *entry, *wanted;
    const char *planner;

    json_array_foreach(cases, index, entry) {
        struct rsched_pattern *pattern = open_pattern(entry);

        json_object_foreach(json_object_get(entry, "planners"), planner,
                            wanted) {
            struct rsched_schedule *schedule;
            char what[96];

            snprintf(what, sizeof(what), "%s %s", rsched_pattern_name(pattern),
                     planner);
            cr_assert_eq(rsched_schedule_create(pattern, machine, planner,
                                                &schedule), 0, "%s", what);
            expect_near(wanted, "makespan_us",
                        rsched_schedule_makespan(schedule), what);
            expect_near(wanted, "total_us", rsched_schedule_total(schedule),
                        what);
            expect_near(wanted, "box_us",
                        rsched_schedule_box_makespan(schedule), what);
            expect_near(entry, "lower_bound_us",
                        rsched_schedule_lower_bound(schedule), what);
            expect_queues(json_object_get(wanted, "queues"), schedule, what);
            rsched_schedule_destroy(schedule);
        }
        rsched_pattern_destroy(pattern);
    }
}
