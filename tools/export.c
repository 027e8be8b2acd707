/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rsched export: the whole machine for other programs.
 *
 * GOAL is what LogGOPSim and ATLAHS read. Its rules, from their grammar: ranks
 * ascend; a label is defined before it is used; tag, cpu and nic stand in this
 * order and cpu and nic have 8 bits; a receive occupies its cpu as long as the
 * send does, and the message uses the send's cpu and nic at the receiver too.
 * So cpu = nic = engine on both ends, which is the receive map "same".
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "tools/text.h"
#include "tools/world.h"

enum { GOAL_ENGINES_MOST = 256 };

/* What is exported. */
struct job {
    struct tool_world asked;
    struct rs_world *world;
    struct rs_fluid_times *times;
    uint32_t *tags;   /* per put: its number among those of its node */
    uint32_t *by_destination; /* puts, by destination, source and tag */
};

/* ---- GOAL ---- */

static int compare_destinations(const void *left, const void *right, void *arg)
{
    const struct rs_world *world = arg;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    uint32_t x = world->transits[a].destination;
    uint32_t y = world->transits[b].destination;

    if (x != y)
        return x < y ? -1 : 1;
    return a < b ? -1 : a > b; /* puts are ordered by source */
}

static int prepare_goal(struct job *job)
{
    const struct rs_world *world = job->world;

    job->tags = calloc(world->num_puts + 1, sizeof(*job->tags));
    job->by_destination = calloc(world->num_puts + 1,
                                 sizeof(*job->by_destination));
    if (job->tags == NULL || job->by_destination == NULL) {
        tool_bad("no memory to export %zu puts", world->num_puts);
        return TOOL_FAILED;
    }
    for (uint32_t i = 0; i < world->num_puts; i++) {
        job->by_destination[i] = i;
        if (i > 0 && world->transits[i].source == world->transits[i - 1].source)
            job->tags[i] = job->tags[i - 1] + 1;
    }
    qsort_r(job->by_destination, world->num_puts, sizeof(uint32_t),
            compare_destinations, job->world);
    return TOOL_OK;
}

/* The queue of one engine: its opening, then its puts one after the other. */
static void write_queue(const struct job *job, uint32_t engine,
                        const struct rs_fluid_engine *e, FILE *out)
{
    char before[32] = "";

    if (e->num_queue > 0 && e->opens > 0) {
        snprintf(before, sizeof(before), "c%" PRIu32, engine);
        fprintf(out, "%s: calc %" PRIu64 " cpu %" PRIu32 "\n", before,
                e->opens, engine);
    }
    for (size_t i = 0; i < e->num_queue; i++) {
        uint32_t put = e->queue[i];
        const struct rs_transit *t = &job->world->transits[put];
        char label[32];

        if (t->bytes == 0) /* the grammar has none */
            continue;
        snprintf(label, sizeof(label), "s%" PRIu32, job->tags[put]);
        fprintf(out, "%s: send %" PRIu64 "b to %" PRIu32 " tag %" PRIu32
                " cpu %" PRIu32 " nic %" PRIu32 "\n", label, t->bytes,
                t->destination, job->tags[put], engine, engine);
        if (before[0] != '\0')
            fprintf(out, "%s requires %s\n", label, before);
        strcpy(before, label);
    }
}

static void write_rank(const struct job *job, uint32_t node, size_t *next,
                       FILE *out)
{
    const struct rs_world *world = job->world;

    fprintf(out, "rank %" PRIu32 " {\n", node);
    for (uint32_t e = 0; e < world->num_engines; e++)
        write_queue(job, e,
                    &world->fluid.engines[(size_t)node * world->num_engines +
                                          e], out);
    for (; *next < world->num_puts; (*next)++) {
        uint32_t put = job->by_destination[*next];
        const struct rs_transit *t = &world->transits[put];

        if (t->destination != node)
            break;
        if (t->bytes > 0)
            fprintf(out, "recv %" PRIu64 "b from %" PRIu32 " tag %" PRIu32
                    " cpu %" PRIu32 " nic %" PRIu32 "\n", t->bytes, t->source,
                    job->tags[put], t->engine, t->engine);
    }
    fputs("}\n", out);
}

static int write_goal(struct job *job, FILE *out)
{
    const struct rsched_machine_costs *costs =
        rsched_machine_get_costs(job->asked.machine);
    uint64_t rate = rsched_machine_rail(job->asked.machine, 0)->rate;
    size_t next = 0;

    for (size_t r = 1; r < rsched_machine_num_rails(job->asked.machine); r++) {
        if (rsched_machine_rail(job->asked.machine, r)->rate != rate)
            return rs_fail(RSCHED_EINVAL, "machine %s: rails have different "
                           "rates, but LogGOPS has one G",
                           job->asked.machine_name);
    }
    fputs("// ", out);
    text_line(out, rsched_pattern_name(job->asked.pattern));
    fputs(" on machine ", out);
    text_line(out, job->asked.machine_name);
    fprintf(out, ", scheduler %s; times in ps\n", job->asked.params.planner);
    fprintf(out, "// LogGOPSim -L 0 -o 0 -O 0 -g %" PRIu64 " -G %" PRIu64
            " -S 4294967295\n", costs->command,
            (UINT64_C(1000000000000) + rate / 2) / rate);
    fprintf(out, "num_ranks %" PRIu32 "\n", job->world->topology.num_nodes);
    for (uint32_t n = 0; n < job->world->topology.num_nodes; n++)
        write_rank(job, n, &next, out);
    return 0;
}

/* ---- trace ---- */

/* Times are numbers of microseconds; picoseconds are written as they are, which
 * a double of jansson would round. */
static void write_name(FILE *out, const char *what, uint32_t node,
                       uint32_t engine, const char *name, uint32_t number)
{
    fprintf(out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%"
            PRIu32 ",\"args\":{\"name\":\"%s %" PRIu32 "\"}},\n", what, node,
            engine, name, number);
}

static void write_put(const struct job *job, uint32_t put, uint32_t engine,
                      FILE *out)
{
    const struct rs_world *world = job->world;
    const struct rs_transit *t = &world->transits[put];
    const struct rs_world_put *w = &world->puts[put];
    const struct rs_fluid_times *times = &job->times[put];
    const char *direction =
        rsched_pattern_put(job->asked.pattern, w->id)->direction;
    char text[3][RS_UNITS_TEXT], name[80];

    snprintf(name, sizeof(name), "put %" PRIu32 "%s%s", w->id,
             *direction ? " " : "", direction);
    fputs("{\"ph\":\"X\",\"name\":", out);
    text_json(out, name);
    fprintf(out, ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":%s,"
            "\"dur\":%s,\"args\":{\"bytes\":%" PRIu64 ",\"to\":%" PRIu32
            ",\"receive_engine\":%" PRIu32 ",\"data_us\":%s}}",
            t->source, engine, rs_format_us(times->start, text[0]),
            rs_format_us(times->finish - times->start, text[1]), t->bytes,
            t->destination, w->receive_engine,
            rs_format_us(times->data, text[2]));
}

static int write_trace(struct job *job, FILE *out)
{
    const struct rs_world *world = job->world;
    bool first = true;

    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"pattern\":", out);
    text_json(out, rsched_pattern_name(job->asked.pattern));
    fputs(",\"machine\":", out);
    text_json(out, job->asked.machine_name);
    fputs(",\"scheduler\":", out);
    text_json(out, job->asked.params.planner);
    fputs("},\n\"traceEvents\":[\n", out);
    for (uint32_t n = 0; n < world->topology.num_nodes; n++) {
        write_name(out, "process_name", n, 0, "node", n);
        for (uint32_t e = 0; e < world->num_engines; e++)
            write_name(out, "thread_name", n, e, "engine", e);
    }
    for (size_t e = 0; e < world->fluid.num_engines; e++) {
        const struct rs_fluid_engine *engine = &world->fluid.engines[e];

        for (size_t i = 0; i < engine->num_queue; i++) {
            fputs(first ? "" : ",\n", out);
            first = false;
            write_put(job, engine->queue[i], (uint32_t)(e % world->num_engines),
                      out);
        }
    }
    /* A list must not end with a comma. */
    if (first)
        fputs("{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":0,\"tid\":0,"
              "\"args\":{\"labels\":\"no puts\"}}", out);
    fputs("\n]}\n", out);
    return 0;
}

/* ---- the command ---- */

static int make_world(struct job *job, bool goal)
{
    struct rs_world_result result;
    int error;

    if (goal)
        job->asked.params.receive = RS_RECEIVE_SAME;
    error = tool_world_create(&job->asked, job->asked.params.planner,
                              job->asked.together, &job->world);
    if (error != 0)
        return tool_library(error);
    if (goal && job->world->num_engines > GOAL_ENGINES_MOST)
        return tool_bad("export: GOAL has at most %d engines, machine %s has "
                        "%u", GOAL_ENGINES_MOST, job->asked.machine_name,
                        job->world->num_engines);
    if (goal)
        return prepare_goal(job);
    job->times = calloc(job->world->num_puts + 1, sizeof(*job->times));
    if (job->times == NULL) {
        tool_bad("no memory to export %zu puts", job->world->num_puts);
        return TOOL_FAILED;
    }
    error = tool_world_run(job->world, job->asked.machine, job->times,
                           &result);
    return error != 0 ? tool_library(error) : TOOL_OK;
}

int tool_export(const struct tool_command *command, int argc, char **argv)
{
    static int (*const writers[])(struct job *, FILE *) = {write_goal,
                                                           write_trace};
    struct tool_world_options o = {.planner = TOOL_DEFAULT_PLANNER,
                                   .more_planners = "best"};
    const char *format = NULL, *path = NULL;
    struct tool_option options[TOOL_WORLD_OPTIONS + 3];
    struct job job = {0};
    struct tool_output output;
    size_t count = tool_world_options(
        &o, "a scheduler (" TOOL_DEFAULT_PLANNER "), or best", options);
    int first, number, status;

    options[count++] = (struct tool_option){"format", 'f', "F", "goal|trace; to be given",
                                            &format, NULL};
    options[count++] = (struct tool_option){"output", 'o', "FILE",
                                            "where to write (standard output)",
                                            &path, NULL};
    options[count] = (struct tool_option){0};
    status = tool_parse(command, argc, argv, options, &first, 1, 1);
    if (status != TOOL_GO_ON)
        return status;
    if (format == NULL)
        return tool_bad("export: --format goal|trace is needed");
    number = tool_word("format", format, "goal|trace");
    if (number < 0)
        return TOOL_BAD_INPUT;
    if (number == 0 && o.receive != NULL && strcmp(o.receive, "same") != 0)
        return tool_bad("export: --receive %s: GOAL has the same engine on "
                        "both ends", o.receive);
    status = tool_output_check(path);
    if (status == TOOL_OK)
        status = tool_world_open(&o, argv[first], &job.asked);
    if (status == TOOL_OK)
        status = make_world(&job, number == 0);
    if (status == TOOL_OK)
        status = tool_output_open(&output, path);
    if (status == TOOL_OK)
        status = tool_output_close(&output, writers[number](&job, output.file));
    free(job.by_destination);
    free(job.tags);
    free(job.times);
    rs_world_destroy(job.world);
    tool_world_close(&job.asked);
    return status;
}
