/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/world.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/array.h"
#include "librsched/base/file.h"
#include "librsched/base/units.h"
#include "models/machine.h"
#include "tools/progress.h"

size_t tool_world_options(struct tool_world_options *w,
                          const char *schedulers, struct tool_option *options)
{
    const struct tool_option table[TOOL_WORLD_OPTIONS] = {
        {"machine", 'm', "M", "a machine file or built-in machine",
         &w->machine, NULL},
        {"nodes", 'n', "AxB...", "the grid of nodes (the machine's dims)",
         &w->nodes, NULL},
        {"scheduler", 's', "S", schedulers, &w->planner, NULL},
        {"mapping", 0, "MAP", "row-major|random:SEED|FILE (row-major)",
         &w->mapping, NULL},
        {"routes", 0, "R", "first|balanced: choose among minimal routes "
         "(first)", &w->routes, NULL},
        {"receive", 0, "R", "planned|same|uncoordinated engines (planned)",
         &w->receive, NULL},
        {"processes", 'p', "N", "processes that share a node's engines",
         &w->processes, NULL},
        {"plan", 0, "P", "together|alone: the processes of a node (together)",
         &w->plan, NULL},
        {"jitter", 0, "US", "nodes start at random within this (0)",
         &w->jitter, NULL},
        {"seed", 0, "N", "of the jitter (1)", &w->seed, NULL},
    };

    memcpy(options, table, sizeof(table));
    return TOOL_WORLD_OPTIONS;
}

static int read_number(const char *option, const char *text, uint64_t least,
                       uint64_t most, uint64_t *value)
{
    const char *wrong;
    uint64_t number;

    if (text == NULL)
        return TOOL_OK;
    wrong = rs_parse_whole(text, &number);
    if (wrong != NULL)
        return tool_bad("--%s %s: %s", option, text, wrong);
    if (number < least || number > most)
        return tool_bad("--%s %s: it is from %llu to %llu", option, text,
                        (unsigned long long)least, (unsigned long long)most);
    *value = number;
    return TOOL_OK;
}

/* Where a file is read: the next byte, and the place of it. */
struct cursor {
    const char *at, *line_start;
    uint32_t line;
};

static uint32_t column_of(const struct cursor *cursor)
{
    return (uint32_t)(cursor->at - cursor->line_start) + 1;
}

/* @return the length of the word that the cursor stands before then; 0: none */
static size_t find_word(struct cursor *cursor)
{
    static const char space[] = " \t\r\n";

    for (; *cursor->at != '\0' && strchr(space, *cursor->at) != NULL;
         cursor->at++) {
        if (*cursor->at == '\n') {
            cursor->line++;
            cursor->line_start = cursor->at + 1;
        }
    }
    return strcspn(cursor->at, space);
}

static int read_seat(const char *name, const struct cursor *cursor,
                     size_t length, struct rs_world_seat *seat)
{
    uint32_t column = column_of(cursor);
    char word[33]; /* a longer one is no number either */
    const char *wrong;
    uint64_t node;

    snprintf(word, sizeof(word), "%.*s", (int)length, cursor->at);
    wrong = rs_parse_whole(word, &node);
    if (wrong == NULL && node >= RS_TOPOLOGY_MOST)
        wrong = "there is no such node";
    if (wrong != NULL)
        return tool_bad("%s:%u:%u: a node '%s': %s", name,
                        (unsigned)cursor->line, (unsigned)column, word, wrong);
    *seat = (struct rs_world_seat){(uint32_t)node, cursor->line, column};
    return TOOL_OK;
}

/* A mapping file: per process the number of its node, between white space. */
static int read_seats(const char *name, const char *text, size_t size,
                      struct tool_world *world)
{
    struct cursor cursor = {text, text, 1};
    size_t length, room = 0, *count = &world->params.num_mapping;
    int status = TOOL_OK;

    while (status == TOOL_OK && (length = find_word(&cursor)) > 0) {
        struct rs_world_seat *grown = rs_array_grow(world->seats, &room,
                                                    *count + 1,
                                                    sizeof(*grown));

        if (grown == NULL) {
            tool_bad("%s: no memory", name);
            return TOOL_FAILED;
        }
        world->seats = grown;
        status = read_seat(name, &cursor, length, &world->seats[(*count)++]);
        cursor.at += length;
    }
    world->params.mapping = world->seats;
    world->params.mapping_name = name;
    if (status == TOOL_OK && cursor.at < text + size)
        return tool_bad("%s:%u:%u: a mapping has no zero bytes", name,
                        (unsigned)cursor.line, (unsigned)column_of(&cursor));
    if (status == TOOL_OK && *count == 0)
        status = tool_bad("%s: the mapping is empty", name);
    return status;
}

static int read_mapping(const char *path, struct tool_world *world)
{
    size_t length;
    char *text;
    int error = rs_file_read(path, &text, &length);
    int status;

    if (error != 0)
        return tool_library(error);
    status = read_seats(strcmp(path, "-") == 0 ? "standard input" : path, text,
                        length, world);
    free(text);
    return status;
}

static int set_mapping(const char *word, struct tool_world *world)
{
    static const char random[] = "random:";
    const char *wrong;

    world->mapping = word != NULL ? word : "row-major";
    if (word == NULL || strcmp(word, "row-major") == 0)
        return TOOL_OK;
    if (strncmp(word, random, sizeof(random) - 1) == 0) {
        world->params.shuffled = true;
        wrong = rs_parse_whole(word + sizeof(random) - 1,
                               &world->params.mapping_seed);
        return wrong != NULL ? tool_bad("--mapping %s: %s", word, wrong)
                             : TOOL_OK;
    }
    if (!rs_file_is_meant(word))
        return tool_bad("--mapping %s: expected row-major, random:SEED (as in "
                        "random:1), or a file", word);
    return read_mapping(word, world);
}

int tool_jitter(const char *text, uint64_t *ps)
{
    const char *wrong = rs_parse_us(text, ps);

    if (wrong == NULL && *ps > UINT64_C(1000000000000))
        wrong = "above 1 s";
    return wrong != NULL ? tool_bad("--jitter %s: %s (such as 1.5, at most "
                                    "1000000)", text, wrong)
                         : TOOL_OK;
}

static int set_jitter(const struct tool_world_options *words,
                      struct tool_world *world)
{
    int status;

    world->params.seed = 1;
    if (words->jitter == NULL)
        return words->seed == NULL ? TOOL_OK
                                   : tool_bad("--seed without --jitter");
    status = tool_jitter(words->jitter, &world->params.jitter);
    if (status != TOOL_OK)
        return status;
    return read_number("seed", words->seed, 0, UINT64_MAX,
                       &world->params.seed);
}

/* The grid that is asked for, or the machine's own. */
static int set_nodes(const char *word, struct tool_world *world)
{
    const struct rs_topology_spec *spec = rs_machine_topology(world->machine);
    struct rs_shape *shape = &world->params.nodes;
    int error;

    if (word != NULL) {
        error = rs_shape_parse(word, shape);
        return error != 0 ? tool_bad("--nodes: %s", rsched_last_error())
                          : TOOL_OK;
    }
    if (spec->num_dims == 0 || spec->type == RS_TOPOLOGY_TOFU)
        return tool_bad("--nodes is needed: machine %s does not say how many "
                        "nodes there are, or not as a grid",
                        world->machine_name);
    shape->num_dims = spec->num_dims;
    shape->count = 1;
    for (uint32_t d = 0; d < spec->num_dims; d++) {
        shape->dims[d] = spec->dims[d];
        shape->count *= spec->dims[d];
    }
    return TOOL_OK;
}

static int set_words(const struct tool_world_options *words,
                     struct tool_world *world)
{
    static const enum rs_world_receive receive[] = {
        RS_RECEIVE_PLANNED, RS_RECEIVE_SAME, RS_RECEIVE_UNCOORDINATED};
    const char *plan = words->plan != NULL ? words->plan : "together";
    int number;

    world->routes = words->routes != NULL ? words->routes : "first";
    world->receive = words->receive != NULL ? words->receive : "planned";
    number = tool_word("routes", world->routes, "first|balanced");
    if (number < 0)
        return TOOL_BAD_INPUT;
    world->params.balanced = number == 1;
    number = tool_word("receive", world->receive,
                       "planned|same|uncoordinated");
    if (number < 0)
        return TOOL_BAD_INPUT;
    world->params.receive = receive[number];
    number = tool_word("plan", plan, "together|alone");
    world->together = number == 0;
    return number < 0 ? TOOL_BAD_INPUT : TOOL_OK;
}

static int select_planner(struct tool_world *world)
{
    struct rs_world_params params = world->params;
    struct tool_progress progress;
    uint64_t mean;
    int error;

    params.together = world->together;
    tool_progress_begin(&progress, "choice of a scheduler");
    params.watch = &progress.watch;
    error = rs_world_select(&params, &world->params.planner, &mean);
    tool_progress_end(&progress);
    return error != 0 ? tool_library(error) : TOOL_OK;
}

int tool_world_open(const struct tool_world_options *words,
                    const char *pattern, struct tool_world *world)
{
    uint64_t processes;
    int status = tool_scheduler(words->planner, words->more_planners);
    int error;

    if (status != TOOL_OK)
        return status;
    error = rsched_pattern_open(pattern, &world->pattern);
    if (error != 0)
        return tool_library(error);
    world->machine_name = words->machine;
    if (world->machine_name == NULL)
        world->machine_name = tool_default_machine(world->pattern);
    error = rsched_machine_open(world->machine_name, &world->machine);
    if (error != 0)
        return tool_library(error);
    world->params.pattern = world->pattern;
    world->params.machine = world->machine;
    world->params.planner = words->planner;
    processes = rsched_machine_get_costs(world->machine)->node_processes;
    status = read_number("processes", words->processes, 1, 1024, &processes);
    world->params.processes = (uint32_t)processes;
    if (status == TOOL_OK)
        status = set_nodes(words->nodes, world);
    if (status == TOOL_OK)
        status = set_words(words, world);
    if (status == TOOL_OK)
        status = set_jitter(words, world);
    if (status == TOOL_OK)
        status = set_mapping(words->mapping, world);
    if (status == TOOL_OK && strcmp(words->planner, "best") == 0)
        status = select_planner(world);
    return status;
}

int tool_world_create(const struct tool_world *asked, const char *planner,
                      bool together, struct rs_world **world)
{
    struct rs_world_params params = asked->params;
    struct tool_progress progress;
    int error;

    params.planner = planner;
    params.together = together;
    tool_progress_begin(&progress, planner);
    params.watch = &progress.watch;
    error = rs_world_create(&params, world);
    tool_progress_end(&progress);
    return error;
}

int tool_world_run(struct rs_world *world, struct rsched_machine *machine,
                   struct rs_fluid_times *times, struct rs_world_result *result)
{
    struct tool_progress progress;
    int error;

    tool_progress_begin(&progress, "simulation");
    error = rs_world_run(world, machine, times, &progress.watch, result);
    tool_progress_end(&progress);
    return error;
}

void tool_world_close(struct tool_world *world)
{
    free(world->seats);
    rsched_machine_destroy(world->machine);
    rsched_pattern_destroy(world->pattern);
}
