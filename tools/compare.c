/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched compare: every scheduler side by side. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/units.h"
#include "tools/tool.h"

/* All schedules first, then all output: an error leaves no half table. */
struct table {
    struct rsched_schedule **schedules;
    size_t count;
    size_t width; /* of the longest pattern name */
};

static size_t count_planners(void)
{
    size_t count = 0;

    while (rsched_planner(count) != NULL)
        count++;
    return count;
}

static void free_table(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        rsched_schedule_destroy(table->schedules[i]);
    free(table->schedules);
}

/* Plan one pattern with every planner. */
static int add_pattern(struct table *table, const char *name,
                       const char *machine_name)
{
    struct rsched_pattern *pattern;
    struct rsched_machine *machine = NULL;
    int error = rsched_pattern_open(name, &pattern);
    size_t length;

    if (error != 0)
        return error;
    length = strlen(rsched_pattern_name(pattern));
    table->width = length > table->width ? length : table->width;
    if (machine_name == NULL)
        machine_name = tool_default_machine(pattern);
    error = rsched_machine_open(machine_name, &machine);
    for (size_t i = 0; error == 0 && rsched_planner(i) != NULL; i++) {
        error = rsched_schedule_create(pattern, machine,
                                       rsched_planner(i)->name,
                                       &table->schedules[table->count]);
        table->count += error == 0;
    }
    rsched_machine_destroy(machine);
    rsched_pattern_destroy(pattern);
    return error;
}

static void print_text(const struct table *table, FILE *out)
{
    int width = table->width < 7 ? 7 : (int)table->width;

    fprintf(out, "%-*s  %-10s  %-6s %12s %12s %12s %9s\n", width, "pattern",
            "scheduler", "label", "makespan us", "total us", "bound us",
            "gap %");
    for (size_t i = 0; i < table->count; i++) {
        const struct rsched_schedule *s = table->schedules[i];
        const char *planner = rsched_schedule_planner(s);
        char text[4][TOOL_TEXT];

        if (i > 0 && i % count_planners() == 0)
            fputc('\n', out);
        fprintf(out, "%-*s  %-10s  %-6s %12s %12s %12s %9s\n", width,
                rsched_pattern_name(rsched_schedule_pattern(s)), planner,
                tool_label(planner),
                tool_us(rsched_schedule_makespan(s), text[0]),
                tool_us(rsched_schedule_total(s), text[1]),
                tool_us(rsched_schedule_lower_bound(s), text[2]),
                tool_gap(s, text[3]));
    }
}

/* RFC 4180: in quotes when it has to be. */
static void print_field(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void print_csv(const struct table *table, FILE *out)
{
    fputs("pattern,scheduler,makespan_us,total_us,lower_bound_us,"
          "gap_percent\n", out);
    for (size_t i = 0; i < table->count; i++) {
        const struct rsched_schedule *s = table->schedules[i];
        char text[4][RS_UNITS_TEXT];

        print_field(out, rsched_pattern_name(rsched_schedule_pattern(s)));
        fprintf(out, ",%s,%s,%s,%s,%s\n", rsched_schedule_planner(s),
                rs_format_us(rsched_schedule_makespan(s), text[0]),
                rs_format_us(rsched_schedule_total(s), text[1]),
                rs_format_us(rsched_schedule_lower_bound(s), text[2]),
                tool_gap(s, text[3]));
    }
}

int tool_compare(const struct tool_command *command, int argc, char **argv)
{
    const char *machine = NULL, *format = "text", *path = NULL;
    const struct tool_option options[] = {
        {"machine", 'm', "M", "a machine file or built-in machine", &machine,
         NULL},
        {"format", 'f', "F", "text|csv (text)", &format, NULL},
        {"output", 'o', "FILE", "where to write (standard output)", &path,
         NULL},
        {0}};
    struct table table = {0};
    struct tool_output output;
    int first, number, error = 0;
    int status = tool_parse(command, argc, argv, options, &first, 1, INT_MAX);

    if (status != TOOL_GO_ON)
        return status;
    number = tool_word("format", format, "text|csv");
    if (number < 0)
        return TOOL_BAD_INPUT;
    table.schedules = calloc((size_t)(argc - first) * count_planners(),
                             sizeof(struct rsched_schedule *));
    if (table.schedules == NULL) {
        tool_bad("compare: no memory");
        return TOOL_FAILED;
    }
    for (int i = first; error == 0 && i < argc; i++)
        error = add_pattern(&table, argv[i], machine);
    status = error != 0 ? tool_library(error)
                        : tool_output_open(&output, path);
    if (status == TOOL_OK) {
        (number == 0 ? print_text : print_csv)(&table, output.file);
        status = tool_output_close(&output, 0);
    }
    free_table(&table);
    return status;
}
