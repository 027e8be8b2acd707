/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched plan: make one schedule and print it. */
#include <inttypes.h>
#include <string.h>

#include "librsched/base/units.h"
#include "librsched/plan/schedule.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tools/world.h"

/* A day. */
enum { BOX_SECONDS = 60, BOX_SECONDS_MOST = 86400 };

/* What is asked for, and what of that is no part of a schedule. */
struct request {
    struct rsched_plan_options plan;
    bool late;        /* choose the scheduler, under `jitter` */
    uint64_t jitter;  /* ps */
    uint64_t seconds; /* for box-optimal */
    bool limited;     /* which has used them up */
};

static void print_head(const struct rsched_schedule *schedule,
                       const char *machine, bool limited, FILE *out)
{
    const struct rsched_pattern *pattern = rsched_schedule_pattern(schedule);
    const char *planner = rsched_schedule_planner(schedule);
    const char *end = rs_schedule_search(schedule);
    char text[4][TOOL_TEXT];

    fputs("pattern      ", out);
    text_line(out, rsched_pattern_name(pattern));
    fprintf(out, " (%zu put%s, %" PRIu64 " bytes)\nmachine      ",
            rsched_pattern_num_puts(pattern),
            rsched_pattern_num_puts(pattern) == 1 ? "" : "s",
            rsched_pattern_total_bytes(pattern));
    text_line(out, machine);
    fprintf(out, "\nscheduler    %s (%s)\n", planner, tool_label(planner));
    fprintf(out, "makespan     %s us\n",
            tool_us(rsched_schedule_makespan(schedule), text[0]));
    fprintf(out, "lower bound  %s us (gap %s %%%s)\n",
            tool_us(rsched_schedule_lower_bound(schedule), text[1]),
            tool_gap(schedule, text[2]),
            rsched_schedule_is_proven(schedule) ? ", proven optimal" : "");
    fprintf(out, "total        %s us with the exchange's overhead\n",
            tool_us(rsched_schedule_total(schedule), text[3]));
    if (rsched_schedule_num_parts(schedule) >
        rsched_schedule_num_puts(schedule))
        fprintf(out, "split        %zu puts into %zu parts\n",
                rsched_schedule_num_puts(schedule),
                rsched_schedule_num_parts(schedule));
    if (rsched_schedule_box_bound(schedule) > 0)
        fprintf(out, "boxes        %s us high; no packing is below %s us%s\n",
                tool_us(rsched_schedule_box_makespan(schedule), text[0]),
                tool_us(rsched_schedule_box_bound(schedule), text[1]),
                limited ? " (ended by the limit of time)" : "");
    if (rsched_schedule_nodes(schedule) > 0)
        fprintf(out, "search       %" PRIu64 " nodes%s%s\n",
                rsched_schedule_nodes(schedule), end != NULL ? ", " : "",
                end != NULL ? end : "");
    else if (end != NULL)
        fprintf(out, "search       %s\n", end);
}

static void print_queues(const struct rsched_schedule *schedule, FILE *out)
{
    fputs("\nengine  puts in order\n", out);
    for (size_t e = 0; e < rsched_schedule_num_engines(schedule); e++) {
        const uint32_t *puts;
        size_t count = rsched_schedule_queue(schedule, e, &puts);

        fprintf(out, "%6zu ", e);
        for (size_t i = 0; i < count; i++)
            fprintf(out, " %" PRIu32, puts[i]);
        fputs(count == 0 ? " -\n" : "\n", out);
    }
}

static int print_text(const struct rsched_schedule *schedule,
                      const char *machine, bool limited, FILE *out)
{
    const struct rsched_pattern *pattern = rsched_schedule_pattern(schedule);

    print_head(schedule, machine, limited, out);
    print_queues(schedule, out);
    fprintf(out, "\n%6s  %-9s %12s  %6s %12s %12s\n", "put", "direction",
            "bytes", "engine", "start us", "finish us");
    for (size_t i = 0; i < rsched_schedule_num_parts(schedule); i++) {
        const struct rsched_placement *p =
            rsched_schedule_placement(schedule, i);
        const struct rsched_part *part = rsched_schedule_part(schedule, i);
        char text[2][TOOL_TEXT];

        fprintf(out, "%6zu  ", i);
        text_column(out, 9, rsched_pattern_put(pattern, part->put)->direction);
        fprintf(out, " %12" PRIu64 "  %6" PRIu32 " %12s %12s", part->bytes,
                p->engine, tool_us(p->start, text[0]),
                tool_us(p->finish, text[1]));
        if (part->put != i)
            fprintf(out, "  of put %" PRIu32, part->put);
        fputc('\n', out);
    }
    return 0;
}

static void json_us(FILE *out, const char *before, uint64_t ps)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, "%s%s", before, rs_format_us(ps, text));
}

static void json_string(FILE *out, const char *before, const char *text)
{
    fputs(before, out);
    text_json(out, text);
}

static void json_head(const struct rsched_schedule *schedule,
                      const char *machine, FILE *out)
{
    char text[TOOL_TEXT];

    fputs("{\n \"rsched\": \"schedule/1\"", out);
    json_string(out, ",\n \"pattern\": ",
                rsched_pattern_name(rsched_schedule_pattern(schedule)));
    json_string(out, ",\n \"machine\": ", machine);
    json_string(out, ",\n \"scheduler\": ", rsched_schedule_planner(schedule));
    json_us(out, ",\n \"makespan_us\": ", rsched_schedule_makespan(schedule));
    json_us(out, ",\n \"total_us\": ", rsched_schedule_total(schedule));
    json_us(out, ",\n \"lower_bound_us\": ",
            rsched_schedule_lower_bound(schedule));
    fprintf(out, ",\n \"gap_percent\": %s,\n \"proven\": %s",
            rsched_schedule_gap_ppm(schedule) == UINT64_MAX
                ? "null"
                : tool_gap(schedule, text),
            rsched_schedule_is_proven(schedule) ? "true" : "false");
    if (rsched_schedule_box_bound(schedule) > 0) {
        json_us(out, ",\n \"box_makespan_us\": ",
                rsched_schedule_box_makespan(schedule));
        json_us(out, ",\n \"box_lower_bound_us\": ",
                rsched_schedule_box_bound(schedule));
    }
    if (rs_schedule_search(schedule) != NULL)
        json_string(out, ",\n \"search\": ", rs_schedule_search(schedule));
}

static void json_queues(const struct rsched_schedule *schedule, FILE *out)
{
    fputs(",\n \"engines\": [", out);
    for (size_t e = 0; e < rsched_schedule_num_engines(schedule); e++) {
        const uint32_t *puts;
        size_t count = rsched_schedule_queue(schedule, e, &puts);

        fputs(e > 0 ? ",\n  [" : "\n  [", out);
        for (size_t i = 0; i < count; i++)
            fprintf(out, "%s%" PRIu32, i > 0 ? ", " : "", puts[i]);
        fputc(']', out);
    }
    fputs("\n ]", out);
}

static void json_puts(const struct rsched_schedule *schedule, FILE *out)
{
    const struct rsched_pattern *pattern = rsched_schedule_pattern(schedule);
    const char *path = rsched_machine_path(rsched_schedule_machine(schedule));

    fputs(",\n \"puts\": [", out);
    for (size_t i = 0; i < rsched_schedule_num_parts(schedule); i++) {
        const struct rsched_placement *p =
            rsched_schedule_placement(schedule, i);
        const struct rsched_part *part = rsched_schedule_part(schedule, i);

        fprintf(out, "%s\n  {\"id\": %zu, \"engine\": %" PRIu32,
                i > 0 ? "," : "", i, p->engine);
        json_us(out, ", \"start_us\": ", p->start);
        json_us(out, ", \"finish_us\": ", p->finish);
        json_string(out, ", \"path\": ", path);
        fprintf(out, ", \"bytes\": %" PRIu64, part->bytes);
        json_string(out, ", \"direction\": ",
                    rsched_pattern_put(pattern, part->put)->direction);
        if (part->put != i)
            fprintf(out, ", \"put\": %" PRIu32, part->put);
        fputc('}', out);
    }
    fputs("\n ]\n}\n", out);
}

/* The same keys as schedule/1, in the same order. Times are written as they
 * are, which a double would round, and no schedule be read that is rounded. */
static int print_json(const struct rsched_schedule *schedule,
                      const char *machine, FILE *out)
{
    json_head(schedule, machine, out);
    json_queues(schedule, out);
    json_puts(schedule, out);
    return 0;
}

/* The scheduler that does best when nodes start within `jitter` ps. */
static int choose_planner(const struct rsched_pattern *pattern,
                          struct rsched_machine *machine, uint64_t jitter,
                          const char **planner)
{
    struct rs_world_params params;
    struct tool_progress progress;
    uint64_t mean;
    int error;

    rs_world_neighborhood(pattern, machine, jitter, &params);
    tool_progress_begin(&progress, "choice of a scheduler");
    params.watch = &progress.watch;
    error = rs_world_select(&params, planner, &mean);
    tool_progress_end(&progress);
    return error;
}

static int make_boxes(const struct rsched_pattern *pattern,
                      struct rsched_machine *machine, struct request *request,
                      struct rsched_schedule **schedule)
{
    int error = tool_boxes_plan(pattern, machine, request->seconds, schedule,
                                &request->limited);

    if (error == 0 && request->limited)
        tool_bad("warning: " TOOL_BOXES " was ended by its limit of %" PRIu64
                 " s: another run may find a shorter packing, or a higher "
                 "bound", request->seconds);
    return error;
}

static int make_schedule(const char *pattern_name, const char **machine_name,
                         struct request *request,
                         struct rsched_schedule **schedule)
{
    struct rsched_plan_options *plan = &request->plan;
    struct rsched_pattern *pattern = NULL;
    struct rsched_machine *machine = NULL;
    int error = rsched_pattern_open(pattern_name, &pattern);

    if (error == 0 && *machine_name == NULL)
        *machine_name = tool_default_machine(pattern);
    if (error == 0)
        error = rsched_machine_open(*machine_name, &machine);
    if (error == 0 && request->late)
        error = choose_planner(pattern, machine, request->jitter,
                               &plan->planner);
    if (error == 0 && strcmp(plan->planner, TOOL_BOXES) == 0)
        error = make_boxes(pattern, machine, request, schedule);
    else if (error == 0)
        error = tool_progress_plan(pattern, machine, plan, schedule);
    if (error == 0 && rs_schedule_search(*schedule) != NULL)
        tool_bad("warning: %s has proven nothing: its search was %s",
                 plan->planner, rs_schedule_search(*schedule));
    rsched_machine_destroy(machine);
    rsched_pattern_destroy(pattern);
    return error != 0 ? tool_library(error) : TOOL_OK;
}

/* Options that another one makes useless are errors, not noise. */
static int check_options(const struct request *request, const char *nodes,
                         const char *seconds)
{
    const char *planner = request->plan.planner;

    if (request->late && (planner != NULL || request->plan.split))
        return tool_bad("plan: --jitter chooses the scheduler, and splits no "
                        "puts");
    if (planner == NULL)
        planner = TOOL_DEFAULT_PLANNER;
    if (request->plan.split && strcmp(planner, TOOL_BOXES) == 0)
        return tool_bad("plan: " TOOL_BOXES " splits no puts");
    if (nodes != NULL && strcmp(planner, "exact") != 0)
        return tool_bad("plan: --nodes is for --scheduler exact");
    if (seconds != NULL && strcmp(planner, TOOL_BOXES) != 0)
        return tool_bad("plan: --seconds is for --scheduler " TOOL_BOXES);
    return TOOL_OK;
}

static int print(const struct request *request,
                 const struct rsched_schedule *schedule, const char *machine,
                 int format, FILE *out)
{
    if (format == 0)
        return print_text(schedule, machine, request->limited, out);
    return (format == 1 ? print_json : rsched_schedule_write)(schedule, machine,
                                                              out);
}

int tool_plan(const struct tool_command *command, int argc, char **argv)
{
    struct request request = {.seconds = BOX_SECONDS};
    struct rsched_plan_options *plan = &request.plan;
    const char *machine = NULL, *nodes = NULL, *jitter = NULL;
    const char *format = "text", *path = NULL, *seconds = NULL;
    const struct tool_option options[] = {
        {"machine", 'm', "M", "a machine file or built-in machine", &machine,
         NULL},
        {"scheduler", 's', "S",
         "a scheduler (" TOOL_DEFAULT_PLANNER "): one that rsched info lists, "
         "or " TOOL_BOXES,
         &plan->planner, NULL},
        {"split", 0, NULL, "halve large puts where the total gains", NULL,
         &plan->split},
        {"jitter", 0, "US",
         "take the scheduler that does best when nodes start at random within "
         "this", &jitter, NULL},
        {"nodes", 0, "N", "exact: most nodes of a proof (12 million)", &nodes,
         NULL},
        {"seconds", 0, "N", TOOL_BOXES ": most that it may take (60)", &seconds,
         NULL},
        {"format", 'f', "F", "text|json|yaml (text)", &format, NULL},
        {"output", 'o', "FILE", "where to write (standard output)", &path,
         NULL},
        {0}};
    struct rsched_schedule *schedule;
    struct tool_output output;
    int first, number;
    int status = tool_parse(command, argc, argv, options, &first, 1, 1);

    if (status != TOOL_GO_ON)
        return status;
    number = tool_word("format", format, "text|json|yaml");
    if (number < 0)
        return TOOL_BAD_INPUT;
    request.late = jitter != NULL;
    if (plan->planner != NULL &&
        tool_scheduler(plan->planner, TOOL_BOXES) != TOOL_OK)
        return TOOL_BAD_INPUT;
    status = check_options(&request, nodes, seconds);
    if (plan->planner == NULL)
        plan->planner = TOOL_DEFAULT_PLANNER;
    if (status == TOOL_OK)
        status = tool_number("nodes", nodes, UINT64_MAX, &plan->nodes);
    if (status == TOOL_OK)
        status = tool_number("seconds", seconds, BOX_SECONDS_MOST,
                             &request.seconds);
    if (status == TOOL_OK && request.late)
        status = tool_jitter(jitter, &request.jitter);
    if (status == TOOL_OK)
        status = tool_output_check(path);
    if (status == TOOL_OK)
        status = make_schedule(argv[first], &machine, &request, &schedule);
    if (status != TOOL_OK)
        return status;
    status = tool_output_open(&output, path);
    if (status == TOOL_OK)
        status = tool_output_close(&output, print(&request, schedule, machine,
                                                  number, output.file));
    rsched_schedule_destroy(schedule);
    return status;
}
