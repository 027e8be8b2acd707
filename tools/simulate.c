/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched simulate: a pattern on all nodes of a machine. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "tools/text.h"
#include "tools/world.h"

/* One line of the result: a scheduler. */
struct line {
    const char *planner;
    struct rs_world_result result;
    struct rs_world_result alone; /* when processes share a node's engines */
    uint64_t planned;
    bool balanced; /* its routes */
};

struct table {
    struct tool_world asked;
    struct line *lines;
    size_t num_lines;
    /* Of the world, which is the same for all schedulers but for rails. */
    struct rs_topology topology;
    size_t num_puts, num_local;
    uint64_t first_load, load;
    uint32_t loaded_link;
};

static int run_once(struct table *table, const char *planner, bool together,
                    struct rs_world_result *result, struct line *line)
{
    struct tool_world *asked = &table->asked;
    struct rs_world *world;
    int error;

    error = tool_world_create(asked, planner, together, &world);
    if (error != 0)
        return error;
    error = tool_world_run(world, asked->machine, NULL, result);
    table->topology = world->topology;
    table->num_puts = world->num_puts;
    table->num_local = world->num_local;
    table->first_load = world->first_load;
    table->load = world->load;
    table->loaded_link = world->loaded_link;
    line->planned = world->planned;
    line->balanced = world->balanced;
    rs_world_destroy(world);
    return error;
}

static int run_line(struct table *table, const char *planner)
{
    struct line *line = &table->lines[table->num_lines];
    bool together = table->asked.together;
    struct line alone;
    int error = run_once(table, planner, together, &line->result, line);

    line->planner = planner;
    line->alone = line->result;
    if (error == 0 && together && table->asked.params.processes > 1)
        error = run_once(table, planner, false, &line->alone, &alone);
    table->num_lines += error == 0;
    return error;
}

static int run_all(struct table *table, const char *planner)
{
    const struct rsched_planner *p;
    size_t count = 0;
    int error = 0;

    while (rsched_planner_at(count) != NULL)
        count++;
    table->lines = calloc(count + 1, sizeof(*table->lines));
    if (table->lines == NULL) {
        tool_bad("no memory for a table");
        return TOOL_FAILED;
    }
    if (strcmp(planner, "all") != 0)
        error = run_line(table, planner);
    for (size_t i = 0; error == 0 && strcmp(planner, "all") == 0 &&
                       (p = rsched_planner_at(i)) != NULL; i++)
        error = run_line(table, p->name);
    return error != 0 ? tool_library(error) : TOOL_OK;
}

/* a / b - 1 in hundredths of a percent, rounded; 0 when b is. */
static int64_t change(uint64_t a, uint64_t b)
{
    __int128 difference = (__int128)a - b;

    if (b == 0)
        return 0;
    difference = difference * 20000 / (__int128)b;
    return (int64_t)((difference + (difference < 0 ? -1 : 1)) / 2);
}

static const char *percent(int64_t hundredths, char *buffer)
{
    uint64_t size = (uint64_t)(hundredths < 0 ? -hundredths : hundredths);

    snprintf(buffer, TOOL_TEXT, "%s%" PRIu64 ".%02" PRIu64 " %%",
             hundredths < 0 ? "-" : "+", size / 100, size % 100);
    return buffer;
}

static void print_head(const struct table *table, FILE *out)
{
    const struct tool_world *asked = &table->asked;
    const struct rs_world_params *params = &asked->params;
    char text[4][TOOL_TEXT];

    fputs("pattern      ", out);
    text_line(out, rsched_pattern_name(params->pattern));
    fprintf(out, " (%zu puts of %u processes between nodes, %zu within)\n"
            "machine      ", table->num_puts,
            params->nodes.count * params->processes, table->num_local);
    text_line(out, asked->machine_name);
    fprintf(out, ", %s of %u node%s, %u links\n",
            rs_topology_type_name(table->topology.spec.type),
            table->topology.num_nodes,
            table->topology.num_nodes == 1 ? "" : "s",
            table->topology.num_links);
    fprintf(out, "nodes        %s, %u process%s per node, ",
            rs_shape_text(&params->nodes, text[0], sizeof(text[0])),
            params->processes, params->processes > 1 ? "es" : "");
    text_line(out, asked->mapping);
    fprintf(out, "\nroutes       %s; the largest link load takes %s us (%s)",
            asked->routes, tool_us(table->load, text[0]),
            rs_topology_link_name(&table->topology, table->loaded_link,
                                  text[1], sizeof(text[1])));
    if (params->balanced)
        fprintf(out, ", %s to first routes",
                percent(change(table->load, table->first_load), text[2]));
    fprintf(out, "\nreceive      %s\n", asked->receive);
    if (params->jitter > 0)
        fprintf(out, "jitter       up to %s us, seed %" PRIu64 "\n",
                tool_us(params->jitter, text[0]), params->seed);
}

static int print_text(const struct table *table, FILE *out)
{
    bool both = table->asked.together && table->asked.params.processes > 1;
    char text[5][TOOL_TEXT];

    print_head(table, out);
    fprintf(out, "\n%-10s %-7s %12s %12s %12s", "scheduler", "label",
            "plan us", "makespan us", "total us");
    if (both)
        fprintf(out, " %12s %10s", "alone us", "together");
    fprintf(out, " %9s %12s\n", "rounds", "rates");
    for (size_t i = 0; i < table->num_lines; i++) {
        const struct line *line = &table->lines[i];

        fprintf(out, "%-10s %-7s %12s %12s %12s", line->planner,
                tool_label(line->planner), tool_us(line->planned, text[0]),
                tool_us(line->result.makespan, text[1]),
                tool_us(line->result.total, text[2]));
        if (both)
            fprintf(out, " %12s %10s", tool_us(line->alone.makespan, text[3]),
                    percent(change(line->result.makespan,
                                   line->alone.makespan), text[4]));
        fprintf(out, " %9" PRIu64 " %12" PRIu64 "%s\n",
                line->result.effort.rounds, line->result.effort.shared,
                table->asked.params.balanced && !line->balanced
                    ? "  first routes take less"
                    : "");
    }
    return 0;
}

static const char *routes_of(const struct line *line)
{
    return line->balanced ? "balanced" : "first";
}

static int print_csv(const struct table *table, FILE *out)
{
    char text[4][RS_UNITS_TEXT];

    fputs("pattern,scheduler,plan_us,makespan_us,total_us,alone_us,rounds,"
          "rates,routes\n", out);
    for (size_t i = 0; i < table->num_lines; i++) {
        const struct line *line = &table->lines[i];

        text_csv(out, rsched_pattern_name(table->asked.params.pattern));
        fprintf(out, ",%s,%s,%s,%s,%s,%" PRIu64 ",%" PRIu64 ",%s\n",
                line->planner, rs_format_us(line->planned, text[0]),
                rs_format_us(line->result.makespan, text[1]),
                rs_format_us(line->result.total, text[2]),
                rs_format_us(line->alone.makespan, text[3]),
                line->result.effort.rounds, line->result.effort.shared,
                routes_of(line));
    }
    return 0;
}

static json_t *json_us(uint64_t ps)
{
    return json_real((double)ps / 1e6);
}

static json_t *json_line(const struct line *line)
{
    json_t *entry = json_object();

    json_object_set_new(entry, "scheduler", json_string(line->planner));
    json_object_set_new(entry, "plan_us", json_us(line->planned));
    json_object_set_new(entry, "makespan_us", json_us(line->result.makespan));
    json_object_set_new(entry, "total_us", json_us(line->result.total));
    json_object_set_new(entry, "alone_us", json_us(line->alone.makespan));
    json_object_set_new(entry, "rounds", json_integer((json_int_t)
                                             line->result.effort.rounds));
    json_object_set_new(entry, "rates", json_integer((json_int_t)
                                            line->result.effort.shared));
    json_object_set_new(entry, "routes", json_string(routes_of(line)));
    return entry;
}

static int print_json(const struct table *table, FILE *out)
{
    const struct tool_world *asked = &table->asked;
    const struct rs_world_params *params = &asked->params;
    json_t *root = json_object(), *lines = json_array();
    char text[TOOL_TEXT];
    int error;

    json_object_set_new(root, "pattern", json_string(rsched_pattern_name(
                                             params->pattern)));
    json_object_set_new(root, "machine", json_string(asked->machine_name));
    json_object_set_new(root, "nodes",
                        json_string(rs_shape_text(&params->nodes, text,
                                                  sizeof(text))));
    json_object_set_new(root, "processes_per_node",
                        json_integer(params->processes));
    json_object_set_new(root, "mapping", json_string(asked->mapping));
    json_object_set_new(root, "routes", json_string(asked->routes));
    json_object_set_new(root, "receive", json_string(asked->receive));
    json_object_set_new(root, "jitter_us", json_us(params->jitter));
    json_object_set_new(root, "puts", json_integer((json_int_t)
                                                       table->num_puts));
    json_object_set_new(root, "puts_within_nodes",
                        json_integer((json_int_t)table->num_local));
    json_object_set_new(root, "first_link_load_us",
                        json_us(table->first_load));
    json_object_set_new(root, "link_load_us", json_us(table->load));
    for (size_t i = 0; i < table->num_lines; i++)
        json_array_append_new(lines, json_line(&table->lines[i]));
    json_object_set_new(root, "schedulers", lines);
    error = json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    fputc('\n', out);
    json_decref(root);
    return error == 0 ? 0 : rs_fail(RSCHED_ESYS, "writing JSON: %m");
}

int tool_simulate(const struct tool_command *command, int argc, char **argv)
{
    static int (*const print[])(const struct table *, FILE *) = {
        print_text, print_json, print_csv};
    struct tool_world_options o = {.planner = TOOL_DEFAULT_PLANNER,
                                   .more_planners = "all|best"};
    const char *format = "text", *path = NULL;
    struct tool_option options[TOOL_WORLD_OPTIONS + 3];
    struct table table = {0};
    struct tool_output output;
    size_t count = tool_world_options(
        &o, "a scheduler (" TOOL_DEFAULT_PLANNER "), all, or best", options);
    int first, number, status;

    options[count++] = (struct tool_option){"format", 'f', "F",
                                            "text|json|csv (text)", &format,
                                            NULL};
    options[count++] = (struct tool_option){"output", 'o', "FILE",
                                            "where to write (standard output)",
                                            &path, NULL};
    options[count] = (struct tool_option){0};
    status = tool_parse(command, argc, argv, options, &first, 1, 1);
    if (status != TOOL_GO_ON)
        return status;
    number = tool_word("format", format, "text|json|csv");
    if (number < 0)
        return TOOL_BAD_INPUT;
    status = tool_output_check(path);
    if (status == TOOL_OK)
        status = tool_world_open(&o, argv[first], &table.asked);
    if (status == TOOL_OK)
        status = run_all(&table, table.asked.params.planner);
    if (status == TOOL_OK)
        status = tool_output_open(&output, path);
    if (status == TOOL_OK)
        status = tool_output_close(&output, print[number](&table,
                                                          output.file));
    free(table.lines);
    tool_world_close(&table.asked);
    return status;
}
