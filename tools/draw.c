/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched draw: the picture of a schedule, which is read or made. */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/file.h"
#include "librsched/base/yaml.h"
#include "models/machine.h"
#include "tools/picture.h"
#include "tools/progress.h"
#include "tools/svg.h"
#include "tools/tool.h"

/* Whether a file's first word is that of a schedule. Files that cannot be
 * read are left to the reader of patterns, which says why. */
static bool is_schedule(const char *name, const char *text, size_t length)
{
    struct rs_yaml *yaml;
    bool found = false;

    if (rs_yaml_parse(name, text, length, &yaml) != 0)
        return false;
    for (const struct rs_yaml_node *key = yaml->root->first;
         key != NULL && yaml->root->kind == RS_YAML_MAP; key = key->next) {
        if (strcmp(key->text, "rsched") == 0 && key->value->text != NULL)
            found = strncmp(key->value->text, "schedule/", 9) == 0;
    }
    rs_yaml_destroy(yaml);
    return found;
}

struct request {
    const char *machine; /* name; NULL: what the file or the pattern says */
    const char *planner;
};

static int plan(const struct rsched_pattern *pattern, struct request *request,
                struct rsched_schedule **schedule)
{
    const struct rsched_plan_options options = {
        .planner = request->planner ? request->planner : TOOL_DEFAULT_PLANNER};
    struct rsched_machine *machine;
    int error;

    if (request->machine == NULL)
        request->machine = tool_default_machine(pattern);
    error = rsched_machine_open(request->machine, &machine);
    if (error != 0)
        return error;
    error = tool_progress_plan(pattern, machine, &options, schedule);
    rsched_machine_destroy(machine);
    return error;
}

static int load(const char *name, const char *text, size_t length,
                struct request *request, struct rsched_schedule **schedule)
{
    struct rsched_machine *machine = NULL;
    struct rsched_pattern *pattern;
    int error = 0;

    if (!is_schedule(name, text, length)) {
        error = rsched_pattern_parse(name, text, length, &pattern);
        if (error == 0) {
            error = plan(pattern, request, schedule);
            rsched_pattern_destroy(pattern);
        }
        return error;
    }
    if (request->planner != NULL)
        error = rs_fail(RSCHED_EINVAL, "draw: --scheduler is for a pattern, "
                        "and %s is a schedule", name);
    if (error == 0 && request->machine != NULL)
        error = rsched_machine_open(request->machine, &machine);
    if (error == 0)
        error = rsched_schedule_parse(name, text, length, machine, schedule);
    rsched_machine_destroy(machine);
    return error;
}

static int find_schedule(const char *name, struct request *request,
                         struct rsched_schedule **schedule)
{
    struct rsched_pattern *pattern;
    char *text;
    size_t length;
    int error;

    if (!rs_file_is_meant(name)) {
        error = rsched_pattern_builtin(name, &pattern);
        if (error != 0)
            return error;
        error = plan(pattern, request, schedule);
        rsched_pattern_destroy(pattern);
        return error;
    }
    error = rs_file_read(name, &text, &length);
    if (error != 0)
        return error;
    error = load(strcmp(name, "-") == 0 ? "standard input" : name, text,
                 length, request, schedule);
    free(text);
    return error;
}

static int draw(const struct rsched_schedule *schedule, const char *machine,
                const char *path, FILE *out)
{
    const char *name = rsched_pattern_name(rsched_schedule_pattern(schedule));
    bool html = path != NULL && tool_ends_in(path, ".html");
    int error;

    if (html) {
        fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
              "charset=\"utf-8\"><title>", out);
        svg_escape(out, name);
        fputs("</title></head>\n<body style=\"margin:0;background:#fff\">\n",
              out);
    }
    error = picture_draw(schedule, machine, out);
    if (html)
        fputs("</body></html>\n", out);
    return error;
}

int tool_draw(const struct tool_command *command, int argc, char **argv)
{
    struct request request = {0};
    const char *path = NULL, *machine;
    const struct tool_option options[] = {
        {"output", 'o', "FILE", "out.svg or out.html (standard output, SVG)",
         &path, NULL},
        {"machine", 'm', "M", "a machine file or built-in machine",
         &request.machine, NULL},
        {"scheduler", 's', "S",
         "for a pattern: the scheduler (" TOOL_DEFAULT_PLANNER ")",
         &request.planner, NULL},
        {0}};
    struct rsched_schedule *schedule;
    struct tool_output output;
    int first, error;
    int status = tool_parse(command, argc, argv, options, &first, 1, 1);

    if (status != TOOL_GO_ON)
        return status;
    if (path != NULL && strcmp(path, "-") != 0 &&
        !tool_ends_in(path, ".svg") && !tool_ends_in(path, ".html"))
        return tool_bad("draw: --output %s: expected a name that ends in .svg "
                        "or .html", path);
    status = tool_output_check(path);
    if (status != TOOL_OK)
        return status;
    error = find_schedule(argv[first], &request, &schedule);
    if (error != 0)
        return tool_library(error);
    machine = request.machine ? request.machine
                              : rs_machine_label(
                                    rsched_schedule_machine(schedule));
    status = tool_output_open(&output, path);
    if (status == TOOL_OK)
        status = tool_output_close(&output, draw(schedule, machine, path,
                                                 output.file));
    rsched_schedule_destroy(schedule);
    return status;
}
