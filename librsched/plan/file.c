/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules in files, schedule/1; docs/formats.md describes it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "librsched/base/yaml.h"
#include "librsched/plan/schedule.h"
#include "models/machine.h"

static void write_us(FILE *out, const char *before, uint64_t ps)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, "%s%s", before, rs_format_us(ps, text));
}

static void write_gap(FILE *out, uint64_t ppm)
{
    if (ppm == UINT64_MAX)
        fputs("null", out);
    else
        fprintf(out, "%" PRIu64 ".%04" PRIu64, ppm / 10000, ppm % 10000);
}

static void write_head(const struct rsched_schedule *schedule,
                       const char *machine, FILE *out)
{
    fputs("rsched: schedule/1\npattern: ", out);
    rs_yaml_write_text(out, rsched_pattern_name(schedule->pattern));
    fputs("\nmachine: ", out);
    rs_yaml_write_text(out, machine);
    fputs("\nscheduler: ", out);
    rs_yaml_write_text(out, schedule->planner);
    write_us(out, "\nmakespan_us: ", schedule->makespan);
    write_us(out, "\ntotal_us: ", schedule->total);
    write_us(out, "\nlower_bound_us: ", schedule->lower_bound);
    fputs("\ngap_percent: ", out);
    write_gap(out, rsched_schedule_gap_ppm(schedule));
    fprintf(out, "\nproven: %s\n",
            rsched_schedule_is_proven(schedule) ? "true" : "false");
    if (schedule->findings.box_bound > 0) {
        write_us(out, "box_makespan_us: ", schedule->findings.box_makespan);
        write_us(out, "\nbox_lower_bound_us: ", schedule->findings.box_bound);
        fputc('\n', out);
    }
    if (rs_schedule_search(schedule) != NULL) {
        fputs("search: ", out);
        rs_yaml_write_text(out, rs_schedule_search(schedule));
        fputc('\n', out);
    }
}

static void write_queues(const struct rsched_schedule *schedule, FILE *out)
{
    fputs("engines:\n", out);
    for (size_t e = 0; e < schedule->problem.costs.num_engines; e++) {
        fputs("  - [", out);
        for (size_t i = schedule->queues[e]; i < schedule->queues[e + 1]; i++)
            fprintf(out, "%s%" PRIu32, i > schedule->queues[e] ? ", " : "",
                    schedule->order[i]);
        fputs("]\n", out);
    }
}

static void write_part(const struct rsched_schedule *schedule, size_t id,
                        FILE *out)
{
    const struct rsched_placement *p = &schedule->placements[id];
    const struct rsched_part *part = &schedule->problem.parts[id];

    fprintf(out, "  - {id: %zu, engine: %" PRIu32, id, p->engine);
    write_us(out, ", start_us: ", p->start);
    write_us(out, ", finish_us: ", p->finish);
    fputs(", path: ", out);
    rs_yaml_write_text(out, schedule->machine->path);
    fprintf(out, ", bytes: %" PRIu64 ", direction: ", part->bytes);
    rs_yaml_write_text(
        out, rsched_pattern_put(schedule->pattern, part->put)->direction);
    if (part->put != id)
        fprintf(out, ", put: %" PRIu32, part->put);
    fputs("}\n", out);
}

static void write_parts(const struct rsched_schedule *schedule, FILE *out)
{
    fputs(schedule->problem.num_puts > 0 ? "puts:\n" : "puts: []\n", out);
    for (size_t i = 0; i < schedule->problem.num_puts; i++)
        write_part(schedule, i, out);
}

int rsched_schedule_write(const struct rsched_schedule *schedule,
                          const char *machine, FILE *out)
{
    write_head(schedule, machine, out);
    write_queues(schedule, out);
    write_parts(schedule, out);
    if (ferror(out))
        return rs_fail(RSCHED_ESYS, "writing the schedule of %s: %m",
                       rsched_pattern_name(schedule->pattern));
    return 0;
}

/* What a file says; the rest follows from pattern, machine and queues. */
struct reader {
    const struct rs_yaml *yaml;
    struct rsched_pattern *pattern;
    size_t num_parts;
    uint64_t *bytes;     /* per put: of all its parts */
    struct rs_cut *cuts; /* the parts after the first ones */
    size_t num_cuts;
    uint32_t *engines;   /* per part */
    uint32_t *positions; /* per part */
    const char *scheduler;
    struct rs_findings findings; /* is believed */
};

enum {
    ID,
    ENGINE,
    START,
    FINISH,
    PATH,
    BYTES,
    DIRECTION,
    PUT,
    NUM_PUT_KEYS
};

static const struct rs_yaml_key put_keys[] = {
    {"id", true},        {"engine", true}, {"start_us", true},
    {"finish_us", true}, {"path", true},   {"bytes", true},
    {"direction", true}, {"put", false},    {NULL, false}};

/* A further part of a put: `put` says of which. */
static int read_cut(struct reader *reader,
                    const struct rs_yaml_node *const *value)
{
    struct rs_cut *cut = &reader->cuts[reader->num_cuts];
    uint64_t put = 0;
    int error = rs_yaml_whole(reader->yaml, value[PUT], "put", UINT32_MAX,
                              &put);

    if (error == 0)
        error = rs_yaml_whole(reader->yaml, value[BYTES], "bytes", UINT64_MAX,
                              &cut->bytes);
    if (error != 0)
        return error;
    if (put >= reader->num_parts)
        return rs_yaml_fail(reader->yaml, value[PUT], "put %" PRIu64 " does "
                            "not exist", put);
    cut->put = (uint32_t)put;
    if (__builtin_add_overflow(reader->bytes[put], cut->bytes,
                               &reader->bytes[put]))
        return rs_yaml_fail(reader->yaml, value[BYTES], "the parts of put %"
                            PRIu64 " are too long together", put);
    reader->num_cuts++;
    return 0;
}

/* An entry of the list: the parts of the puts first, then further ones. */
static int read_part(struct reader *reader, const struct rs_yaml_node *node,
                      uint64_t number)
{
    const struct rs_yaml *yaml = reader->yaml;
    const struct rs_yaml_node *value[NUM_PUT_KEYS];
    uint64_t id = 0, bytes = 0;
    int error = rs_yaml_map(yaml, node, "a put", put_keys, value);

    if (error == 0)
        error = rs_yaml_whole(yaml, value[ID], "id", UINT64_MAX, &id);
    if (error == 0 && id != number)
        error = rs_yaml_fail(yaml, value[ID], "put %" PRIu64 " stands in the "
                             "place of put %" PRIu64, id, number);
    if (error == 0 && value[PUT] != NULL)
        return read_cut(reader, value);
    if (error == 0 && reader->num_cuts > 0)
        error = rs_yaml_fail(yaml, node, "a put stands behind a part of "
                             "another one");
    if (error == 0)
        error = rs_yaml_whole(yaml, value[BYTES], "bytes", UINT64_MAX, &bytes);
    if (error == 0 && __builtin_add_overflow(reader->bytes[number], bytes,
                                             &reader->bytes[number]))
        error = rs_yaml_fail(yaml, value[BYTES], "the parts of put %" PRIu64
                             " are too long together", number);
    return error;
}

/* Add the put of an entry, which was read before. */
static int add_put(struct reader *reader, const struct rs_yaml_node *node)
{
    const struct rs_yaml_node *value[NUM_PUT_KEYS];
    struct rsched_put put = {.source = RSCHED_ANY_PROCESS,
                             .destination = RSCHED_ANY_PROCESS};
    int64_t added;
    int error = rs_yaml_map(reader->yaml, node, "a put", put_keys, value);

    if (error == 0)
        error = rs_yaml_text(reader->yaml, value[DIRECTION], "direction",
                             &put.direction);
    if (error != 0)
        return error;
    put.bytes = reader->bytes[rsched_pattern_num_puts(reader->pattern)];
    added = rsched_pattern_add_put(reader->pattern, &put);
    if (added == RSCHED_ENOMEM)
        return (int)added;
    return added < 0 ? rs_yaml_fail(reader->yaml, node, "%s",
                                    rsched_last_error())
                     : 0;
}

static int read_id(struct reader *reader, const struct rs_yaml_node *node,
                   uint32_t engine, uint32_t position)
{
    size_t puts = reader->num_parts;
    uint64_t id = 0;
    int error = rs_yaml_whole(reader->yaml, node, "put", UINT64_MAX, &id);

    if (error != 0)
        return error;
    if (id >= puts)
        return rs_yaml_fail(reader->yaml, node, "put %" PRIu64 " does not "
                            "exist: there are %zu", id, puts);
    if (reader->engines[id] != UINT32_MAX)
        return rs_yaml_fail(reader->yaml, node, "put %" PRIu64 " stands in "
                            "two queues", id);
    reader->engines[id] = engine;
    reader->positions[id] = position;
    return 0;
}

static int read_queues(struct reader *reader, const struct rs_yaml_node *list,
                       const struct rsched_machine *machine)
{
    const struct rs_yaml *yaml = reader->yaml;
    const struct rs_yaml_node *queue;
    uint32_t engine = 0;
    int error = rs_yaml_expect(yaml, list, RS_YAML_LIST, "engines");

    if (error == 0 && list->count != machine->costs.num_engines)
        error = rs_yaml_fail(yaml, list, "%zu engines, but machine %s has %"
                             PRIu32, list->count, machine->label,
                             machine->costs.num_engines);
    if (error != 0)
        return error;
    for (queue = list->first; queue != NULL; queue = queue->next, engine++) {
        uint32_t position = 0;

        error = rs_yaml_expect(yaml, queue, RS_YAML_LIST, "a queue");
        for (const struct rs_yaml_node *node = queue->first;
             error == 0 && node != NULL; node = node->next)
            error = read_id(reader, node, engine, position++);
        if (error != 0)
            return error;
    }
    for (size_t i = 0; i < reader->num_parts; i++) {
        if (reader->engines[i] == UINT32_MAX)
            return rs_yaml_fail(yaml, list, "put %zu stands in no queue", i);
    }
    return 0;
}

enum {
    FORMAT,
    PATTERN,
    MACHINE,
    SCHEDULER,
    MAKESPAN,
    TOTAL,
    BOUND,
    GAP,
    PROVEN,
    QUEUES,
    PUTS,
    BOX_MAKESPAN,
    BOX_BOUND,
    SEARCH,
    NUM_KEYS
};

static const struct rs_yaml_key keys[] = {
    {"rsched", true},         {"pattern", true},  {"machine", true},
    {"scheduler", true},      {"makespan_us", true}, {"total_us", true},
    {"lower_bound_us", true}, {"gap_percent", true}, {"proven", true},
    {"engines", true},        {"puts", true},     {"box_makespan_us", false},
    {"box_lower_bound_us", false}, {"search", false}, {NULL, false}};

static int read_puts(struct reader *reader,
                     const struct rs_yaml_node *const *value)
{
    const struct rs_yaml_node *node = value[PUTS];
    const char *name = NULL;
    size_t count, number = 0;
    int error = rs_yaml_text(reader->yaml, value[PATTERN], "pattern", &name);

    if (error == 0)
        error = rs_yaml_expect(reader->yaml, node, RS_YAML_LIST, "puts");
    if (error == 0)
        error = rsched_pattern_create(name, &reader->pattern);
    if (error != 0)
        return error;
    reader->num_parts = node->count;
    count = node->count + 1;
    reader->bytes = calloc(count, sizeof(*reader->bytes));
    reader->cuts = calloc(count, sizeof(*reader->cuts));
    reader->engines = malloc(count * sizeof(*reader->engines));
    reader->positions = calloc(count, sizeof(*reader->positions));
    if (reader->bytes == NULL || reader->cuts == NULL ||
        reader->engines == NULL || reader->positions == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", reader->yaml->name);
    memset(reader->engines, 0xff, count * sizeof(*reader->engines));
    for (node = node->first; error == 0 && node != NULL; node = node->next)
        error = read_part(reader, node, number++);
    node = value[PUTS]->first;
    for (; error == 0 && number-- > reader->num_cuts; node = node->next)
        error = add_put(reader, node);
    return error;
}

static bool is_built_in(const char *name)
{
    const char *known;

    for (size_t i = 0; (known = rsched_machine_builtin_name(i)) != NULL; i++) {
        if (strcmp(known, name) == 0)
            return true;
    }
    return false;
}

/* What a file names, from the working directory, else from the folder of the
 * file. */
static int open_named(const struct rs_yaml *yaml, const char *name,
                      struct rsched_machine **machine)
{
    const char *slash = strrchr(yaml->name, '/');
    char beside[4096];

    if (slash == NULL || name[0] == '/' || is_built_in(name) ||
        access(name, F_OK) == 0)
        return rsched_machine_open(name, machine);
    snprintf(beside, sizeof(beside), "%.*s%s", (int)(slash - yaml->name + 1),
             yaml->name, name);
    return access(beside, F_OK) == 0 ? rsched_machine_load(beside, machine)
                                     : rsched_machine_open(name, machine);
}

/* The machine that the file names, or the one that the caller wants. */
static int find_machine(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *node,
                        struct rsched_machine *wanted,
                        struct rsched_machine **machine)
{
    const char *name = NULL;
    int error = rs_yaml_text(yaml, node, "machine", &name);

    if (error != 0)
        return error;
    if (wanted != NULL) {
        *machine = rs_machine_hold(wanted);
        return 0;
    }
    if (strcmp(name, "-") == 0)
        return rs_yaml_fail(yaml, node, "the machine was standard input; now "
                            "it has to be given (--machine)");
    error = open_named(yaml, name, machine);
    if (error != 0 && error != RSCHED_ENOMEM)
        error = rs_yaml_fail(yaml, node, "%s", rsched_last_error());
    return error;
}

static int read_proven(struct reader *reader, const struct rs_yaml_node *node)
{
    const char *text = NULL;
    int error = rs_yaml_text(reader->yaml, node, "proven", &text);

    if (error != 0)
        return error;
    reader->findings.proven = strcmp(text, "true") == 0;
    if (!reader->findings.proven && strcmp(text, "false") != 0)
        return rs_yaml_fail(reader->yaml, node, "proven must be true or "
                            "false, not '%.64s'", text);
    return 0;
}

static int read_search(struct reader *reader, const struct rs_yaml_node *node)
{
    const char *text = NULL;
    int search = RS_PROOF_END_NONE + 1;
    int error = rs_yaml_text(reader->yaml, node, "search", &text);

    if (error != 0 || text == NULL)
        return error;
    while (search < RS_NUM_PROOF_ENDS &&
           strcmp(rs_proof_end_text((enum rs_proof_end)search), text) != 0)
        search++;
    if (search == RS_NUM_PROOF_ENDS)
        return rs_yaml_fail(reader->yaml, node, "no search ends like this: "
                            "'%.64s'", text);
    reader->findings.search = (enum rs_proof_end)search;
    return 0;
}

/* What the file says twice: what follows from pattern, machine and queues is
 * not taken from it, but has to be the same. */
static int check_us(const struct rs_yaml *yaml,
                    const struct rs_yaml_node *node, const char *what,
                    const struct rsched_schedule *made, uint64_t ps)
{
    char text[RS_UNITS_TEXT];
    uint64_t read = 0;
    int error = rs_yaml_us(yaml, node, what, &read);

    if (error != 0 || read == ps)
        return error;
    return rs_yaml_fail(yaml, node, "on machine %s %s of these queues is %s: "
                        "the file was written for another one",
                        made->machine->label, what, rs_format_us(ps, text));
}

static int check_text(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node, const char *what,
                      const char *wanted)
{
    const char *text = NULL;
    int error = rs_yaml_text(yaml, node, what, &text);

    if (error != 0 || strcmp(text, wanted) == 0)
        return error;
    return rs_yaml_fail(yaml, node, "%s must be '%.64s', not '%.64s'", what,
                        wanted, text);
}

static int check_part(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node,
                      const struct rsched_schedule *made, size_t id)
{
    const struct rsched_placement *p = &made->placements[id];
    const struct rsched_put *put =
        rsched_pattern_put(made->pattern, made->problem.parts[id].put);
    const struct rs_yaml_node *value[NUM_PUT_KEYS];
    uint64_t engine = 0;
    int error = rs_yaml_map(yaml, node, "a put", put_keys, value);

    if (error == 0)
        error = rs_yaml_whole(yaml, value[ENGINE], "engine", UINT64_MAX,
                              &engine);
    if (error == 0 && engine != p->engine)
        error = rs_yaml_fail(yaml, value[ENGINE], "put %zu stands in the queue "
                             "of engine %" PRIu32 ", not %" PRIu64, id,
                             p->engine, engine);
    if (error == 0)
        error = check_us(yaml, value[START], "start_us", made, p->start);
    if (error == 0)
        error = check_us(yaml, value[FINISH], "finish_us", made, p->finish);
    if (error == 0)
        error = check_text(yaml, value[PATH], "path", made->machine->path);
    if (error == 0)
        error = check_text(yaml, value[DIRECTION], "direction",
                           put->direction);
    return error;
}

/* A later version may know a better bound, so a lower one is no error. */
static int check_bound(const struct rs_yaml *yaml,
                       const struct rs_yaml_node *bound,
                       const struct rs_yaml_node *gap,
                       const struct rsched_schedule *made)
{
    const char *text = NULL;
    uint64_t ps = 0;
    int error = rs_yaml_us(yaml, bound, "lower_bound_us", &ps);

    if (error == 0 && ps > made->makespan)
        error = rs_yaml_fail(yaml, bound, "lower_bound_us is above the "
                             "makespan");
    if (error == 0)
        error = rs_yaml_text(yaml, gap, "gap_percent", &text);
    if (error == 0 && (gap->quoted || (strcmp(text, "null") != 0 &&
                                       rs_parse_us(text, &ps) != NULL)))
        error = rs_yaml_fail(yaml, gap, "gap_percent must be a number or null, "
                             "not '%.64s'", text);
    return error;
}

static int check(const struct rs_yaml *yaml,
                 const struct rs_yaml_node *const *value,
                 const struct rsched_schedule *made)
{
    size_t id = 0;
    int error = check_us(yaml, value[MAKESPAN], "makespan_us", made,
                         made->makespan);

    if (error == 0)
        error = check_us(yaml, value[TOTAL], "total_us", made, made->total);
    if (error == 0)
        error = check_bound(yaml, value[BOUND], value[GAP], made);
    for (const struct rs_yaml_node *node = value[PUTS]->first;
         error == 0 && node != NULL; node = node->next)
        error = check_part(yaml, node, made, id++);
    return error;
}

static int make(struct reader *reader, const struct rs_yaml_node *const *value,
                struct rsched_machine *machine,
                struct rsched_schedule **schedule)
{
    const struct rs_yaml *yaml = reader->yaml;
    struct rsched_schedule *made;
    int error = read_queues(reader, value[QUEUES], machine);

    if (error == 0)
        error = rs_yaml_text(yaml, value[SCHEDULER], "scheduler",
                             &reader->scheduler);
    if (error == 0)
        error = read_proven(reader, value[PROVEN]);
    if (error == 0)
        error = rs_yaml_us(yaml, value[BOX_MAKESPAN], "box_makespan_us",
                           &reader->findings.box_makespan);
    if (error == 0)
        error = rs_yaml_us(yaml, value[BOX_BOUND], "box_lower_bound_us",
                           &reader->findings.box_bound);
    if (error == 0)
        error = read_search(reader, value[SEARCH]);
    if (error != 0)
        return error;
    error = rs_schedule_create_parts(reader->pattern, machine,
                                      reader->scheduler, reader->cuts,
                                      reader->num_cuts, reader->engines,
                                      reader->positions, &made);
    if (error != 0 && error != RSCHED_ENOMEM)
        return rs_yaml_fail(yaml, value[QUEUES], "%s", rsched_last_error());
    if (error != 0)
        return error;
    error = check(yaml, value, made);
    if (error != 0) {
        rsched_schedule_destroy(made);
        return error;
    }
    made->findings = reader->findings;
    *schedule = made;
    return 0;
}

static int read_schedule(const struct rs_yaml *yaml,
                         struct rsched_machine *wanted,
                         struct rsched_schedule **schedule)
{
    const struct rs_yaml_node *value[NUM_KEYS];
    struct reader reader = {.yaml = yaml};
    struct rsched_machine *machine = NULL;
    int error = rs_yaml_format(yaml, "schedule/1");

    if (error == 0)
        error = rs_yaml_map(yaml, yaml->root, "a schedule", keys, value);
    if (error == 0)
        error = read_puts(&reader, value);
    if (error == 0)
        error = find_machine(yaml, value[MACHINE], wanted, &machine);
    if (error == 0)
        error = make(&reader, value, machine, schedule);
    rsched_machine_destroy(machine);
    rsched_pattern_destroy(reader.pattern);
    free(reader.bytes);
    free(reader.cuts);
    free(reader.engines);
    free(reader.positions);
    return error;
}

int rsched_schedule_load(const char *path, struct rsched_machine *machine,
                         struct rsched_schedule **schedule)
{
    struct rs_yaml *yaml;
    int error = rs_yaml_load(path, &yaml);

    if (error != 0)
        return error;
    error = read_schedule(yaml, machine, schedule);
    rs_yaml_destroy(yaml);
    return error;
}

int rsched_schedule_parse(const char *name, const char *text, size_t length,
                          struct rsched_machine *machine,
                          struct rsched_schedule **schedule)
{
    struct rs_yaml *yaml;
    int error = rs_yaml_parse(name, text, length, &yaml);

    if (error != 0)
        return error;
    error = read_schedule(yaml, machine, schedule);
    rs_yaml_destroy(yaml);
    return error;
}
