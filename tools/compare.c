/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched compare: every scheduler side by side. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/units.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tools/world.h"

enum { LIMIT_TEXT = 128 };

/* All schedules first, then all output: an error leaves no half table. */
struct table {
    struct rsched_schedule **schedules;
    struct rsched_limit *limits;
    uint64_t *jittered; /* mean makespans when nodes start late, ps */
    bool late;          /* `jittered` are there */
    uint64_t jitter;    /* ps */
    size_t count;
    size_t planners; /* schedules of a pattern */
    bool all;        /* also those that take long */
    bool explain;    /* in sentences, or in two more columns */
    size_t width; /* of the longest pattern name */
};

/* Those that take long only when they are asked for. */
static bool is_wanted(const struct rsched_planner *planner, bool all)
{
    return all || !planner->exhaustive;
}

static size_t count_planners(bool all)
{
    const struct rsched_planner *planner;
    size_t count = 0;

    for (size_t i = 0; (planner = rsched_planner_at(i)) != NULL; i++)
        count += is_wanted(planner, all);
    return count;
}

static void free_table(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        rsched_schedule_destroy(table->schedules[i]);
    free(table->schedules);
    free(table->limits);
    free(table->jittered);
}

static int add_schedule(struct table *table,
                        const struct rsched_pattern *pattern,
                        struct rsched_machine *machine, const char *planner)
{
    struct rsched_schedule **schedule = &table->schedules[table->count];
    const struct rsched_plan_options options = {.planner = planner};
    struct rs_world_params params;
    int error = tool_progress_plan(pattern, machine, &options, schedule);

    if (error != 0)
        return error;
    if (table->late) {
        struct tool_progress progress;

        rs_world_neighborhood(pattern, machine, table->jitter, &params);
        tool_progress_begin(&progress, planner);
        params.watch = &progress.watch;
        error = rs_world_try(&params, planner, &table->jittered[table->count]);
        tool_progress_end(&progress);
    }
    if (error != 0) {
        rsched_schedule_destroy(*schedule);
        return error;
    }
    return rsched_schedule_limit(*schedule, &table->limits[table->count++]);
}

/* Plan one pattern with every planner.
 * @param wanted NULL: the pattern's default machine */
static int add_pattern(struct table *table, const char *name,
                       struct rsched_machine *wanted)
{
    const struct rsched_planner *planner;
    struct rsched_pattern *pattern;
    struct rsched_machine *machine = wanted;
    int error = rsched_pattern_open(name, &pattern);
    size_t length;

    if (error != 0)
        return error;
    length = strlen(rsched_pattern_name(pattern));
    table->width = length > table->width ? length : table->width;
    if (wanted == NULL)
        error = rsched_machine_open(tool_default_machine(pattern), &machine);
    for (size_t i = 0; error == 0 && (planner = rsched_planner_at(i)) != NULL;
         i++) {
        if (is_wanted(planner, table->all))
            error = add_schedule(table, pattern, machine, planner->name);
    }
    if (wanted == NULL)
        rsched_machine_destroy(machine);
    rsched_pattern_destroy(pattern);
    return error;
}

static int add_patterns(struct table *table, char *const *names, size_t count,
                        const char *machine_name)
{
    struct rsched_machine *machine = NULL;
    int error = machine_name != NULL
                    ? rsched_machine_open(machine_name, &machine)
                    : 0;

    for (size_t i = 0; error == 0 && i < count; i++)
        error = add_pattern(table, names[i], machine);
    rsched_machine_destroy(machine);
    return error;
}

/* "link N": what holds a schedule up. */
static const char *name_limit(const struct rsched_schedule *schedule,
                              const struct rsched_limit *limit, char *buffer)
{
    const struct rsched_machine *machine = rsched_schedule_machine(schedule);

    switch (limit->kind) {
    case RSCHED_LIMIT_LINK:
        snprintf(buffer, LIMIT_TEXT, "link %s",
                 rsched_machine_link(machine, limit->number)->name);
        return buffer;
    case RSCHED_LIMIT_ENGINE:
        snprintf(buffer, LIMIT_TEXT, "engine %" PRIu32, limit->number);
        return buffer;
    case RSCHED_LIMIT_NODE:
        return "node";
    case RSCHED_LIMIT_COMMAND:
        return "command";
    case RSCHED_LIMIT_OPEN:
        return "opening";
    default:
        return "nothing";
    }
}

/* What would have to change. */
static const char *advise(const struct rsched_limit *limit)
{
    static const char *const advice[] = {
        [RSCHED_LIMIT_LINK] = "fewer puts on it at a time, or more capacity",
        [RSCHED_LIMIT_NODE] = "keep the node busy from start to end, or "
                              "raise the ceiling",
        [RSCHED_LIMIT_ENGINE] = "fewer bytes in its queue, larger puts split, "
                                "or faster engines",
        [RSCHED_LIMIT_COMMAND] = "fewer puts one after the other on an engine, "
                                 "or cheaper commands",
        [RSCHED_LIMIT_OPEN] = "fewer engines, with more to do for the early "
                              "ones, or cheaper openings",
    };

    return advice[limit->kind];
}

static void print_explanation(const struct table *table, size_t i, FILE *out)
{
    const struct rsched_schedule *s = table->schedules[i];
    const struct rsched_limit *limit = &table->limits[i];
    char name[LIMIT_TEXT], text[TOOL_TEXT];

    fprintf(out, "%s: ", rsched_schedule_planner(s));
    if (limit->kind == RSCHED_LIMIT_NONE) {
        fputs("limited by nothing: no single change of the machine makes the "
              "same queues shorter", out);
    } else {
        fputs("limited by ", out);
        text_line(out, name_limit(s, limit, name));
        fprintf(out, "; without that limit the same queues would take %s us. "
                     "To improve: %s", tool_us(limit->makespan_without, text),
                advise(limit));
    }
    fprintf(out, ".%s\n",
            rsched_schedule_is_proven(s) ? " It is proven optimal." : "");
}

/* Of one pattern: the highest of its schedules' bounds holds for all. */
static void print_explanations(const struct table *table, size_t first,
                               FILE *out)
{
    uint64_t bound = 0;
    char text[TOOL_TEXT];

    for (size_t i = first; i < first + table->planners; i++) {
        const struct rsched_schedule *s = table->schedules[i];
        uint64_t own = rsched_schedule_is_proven(s)
                           ? rsched_schedule_makespan(s)
                           : rsched_schedule_lower_bound(s);

        print_explanation(table, i, out);
        bound = own > bound ? own : bound;
    }
    fprintf(out, "No schedule on this machine is shorter than %s us.\n",
            tool_us(bound, text));
}

static void print_text(const struct table *table, FILE *out)
{
    size_t width = table->width < 7 ? 7 : table->width;

    text_column(out, width, "pattern");
    fprintf(out, "  %-10s  %-6s %12s %12s %12s %9s  %-10s %12s%s\n",
            "scheduler", "label", "makespan us", "total us",
            "bound us", "gap %", "limited by", "without us",
            table->late ? "    jittered us" : "");
    for (size_t i = 0; i < table->count; i++) {
        const struct rsched_schedule *s = table->schedules[i];
        const struct rsched_limit *limit = &table->limits[i];
        const char *planner = rsched_schedule_planner(s);
        char text[5][TOOL_TEXT], name[LIMIT_TEXT];

        if (i > 0 && i % table->planners == 0)
            fputc('\n', out);
        text_column(out, width,
                    rsched_pattern_name(rsched_schedule_pattern(s)));
        fprintf(out, "  %-10s  %-6s %12s %12s %12s %9s  ", planner,
                tool_label(planner),
                tool_us(rsched_schedule_makespan(s), text[0]),
                tool_us(rsched_schedule_total(s), text[1]),
                tool_us(rsched_schedule_lower_bound(s), text[2]),
                tool_gap(s, text[3]));
        text_column(out, 10, name_limit(s, limit, name));
        fprintf(out, " %12s", tool_us(limit->makespan_without, text[4]));
        if (table->late)
            fprintf(out, " %14s", tool_us(table->jittered[i], text[0]));
        fputc('\n', out);
        if (table->explain && (i + 1) % table->planners == 0)
            print_explanations(table, i + 1 - table->planners, out);
    }
}

static void print_csv(const struct table *table, FILE *out)
{
    fprintf(out, "pattern,scheduler,makespan_us,total_us,lower_bound_us,"
                 "gap_percent%s%s\n",
            table->explain ? ",limited_by,without_us" : "",
            table->late ? ",jittered_us" : "");
    for (size_t i = 0; i < table->count; i++) {
        const struct rsched_schedule *s = table->schedules[i];
        const struct rsched_limit *limit = &table->limits[i];
        char text[5][RS_UNITS_TEXT], name[LIMIT_TEXT];

        text_csv(out, rsched_pattern_name(rsched_schedule_pattern(s)));
        fprintf(out, ",%s,%s,%s,%s,%s", rsched_schedule_planner(s),
                rs_format_us(rsched_schedule_makespan(s), text[0]),
                rs_format_us(rsched_schedule_total(s), text[1]),
                rs_format_us(rsched_schedule_lower_bound(s), text[2]),
                tool_gap(s, text[3]));
        if (table->explain) {
            fputc(',', out);
            text_csv(out, name_limit(s, limit, name));
            fprintf(out, ",%s",
                    rs_format_us(limit->makespan_without, text[4]));
        }
        if (table->late)
            fprintf(out, ",%s", rs_format_us(table->jittered[i], text[0]));
        fputc('\n', out);
    }
}

int tool_compare(const struct tool_command *command, int argc, char **argv)
{
    const char *machine = NULL, *format = "text", *path = NULL;
    const char *jitter = NULL;
    struct table table = {0};
    const struct tool_option options[] = {
        {"machine", 'm', "M", "a machine file or built-in machine", &machine,
         NULL},
        {"format", 'f', "F", "text|csv (text)", &format, NULL},
        {"all", 'a', NULL, "also the schedulers that take long", NULL,
         &table.all},
        {"explain", 'e', NULL, "say what limits each schedule, in words or two "
         "more columns", NULL, &table.explain},
        {"jitter", 0, "US", "also the mean when nodes start at random within "
         "this", &jitter, NULL},
        {"output", 'o', "FILE", "where to write (standard output)", &path,
         NULL},
        {0}};
    struct tool_output output;
    int first, number, error;
    int status = tool_parse(command, argc, argv, options, &first, 1, INT_MAX);

    if (status != TOOL_GO_ON)
        return status;
    number = tool_word("format", format, "text|csv");
    if (number < 0)
        return TOOL_BAD_INPUT;
    status = jitter != NULL ? tool_jitter(jitter, &table.jitter) : TOOL_OK;
    if (status == TOOL_OK)
        status = tool_output_check(path);
    if (status != TOOL_OK)
        return status;
    table.late = jitter != NULL;
    table.planners = count_planners(table.all);
    table.schedules = calloc((size_t)(argc - first) * table.planners,
                             sizeof(*table.schedules));
    table.limits = calloc((size_t)(argc - first) * table.planners,
                          sizeof(*table.limits));
    table.jittered = calloc((size_t)(argc - first) * table.planners,
                            sizeof(*table.jittered));
    if (table.schedules == NULL || table.limits == NULL ||
        table.jittered == NULL) {
        tool_bad("compare: no memory");
        free_table(&table);
        return TOOL_FAILED;
    }
    error = add_patterns(&table, argv + first, (size_t)(argc - first),
                         machine);
    status = error != 0 ? tool_library(error)
                        : tool_output_open(&output, path);
    if (status == TOOL_OK) {
        (number == 0 ? print_text : print_csv)(&table, output.file);
        status = tool_output_close(&output, 0);
    }
    free_table(&table);
    return status;
}
