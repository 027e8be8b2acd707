/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/world.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/array.h"
#include "librsched/base/file.h"
#include "librsched/base/units.h"
#include "models/machine.h"

size_t tool_world_options(struct tool_world_options *w,
                          struct tool_option *options)
{
    const struct tool_option table[TOOL_WORLD_OPTIONS] = {
        {"machine", 'm', "M", "a machine file or built-in machine",
         &w->machine, NULL},
        {"nodes", 'n', "AxB...", "the grid of nodes (the machine's dims)",
         &w->nodes, NULL},
        {"scheduler", 's', "S", "a scheduler (fllf), or best", &w->planner,
         NULL},
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
    if (wrong == NULL && (number < least || number > most))
        wrong = "out of range";
    if (wrong != NULL)
        return tool_bad("--%s %s: %s", option, text, wrong);
    *value = number;
    return TOOL_OK;
}

/* A mapping file: per process the number of its node, between white space. */
static int read_mapping(const char *path, struct tool_world *world)
{
    size_t length, room = 0, count = 0;
    char *text, *word, *rest = NULL;
    int error = rs_file_read(path, &text, &length);
    int status = TOOL_OK;

    if (error != 0)
        return tool_library(error);
    for (word = strtok_r(text, " \t\r\n", &rest);
         status == TOOL_OK && word != NULL;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        uint32_t *grown = rs_array_grow(world->nodes, &room, count + 1,
                                        sizeof(*grown));
        const char *wrong;
        uint64_t node;

        if (grown == NULL) {
            tool_bad("%s: no memory", path);
            status = TOOL_FAILED;
            break;
        }
        world->nodes = grown;
        wrong = rs_parse_whole(word, &node);
        if (wrong == NULL && node >= RS_TOPOLOGY_MOST)
            wrong = "there is no such node";
        if (wrong != NULL)
            status = tool_bad("%s: node of process %zu: '%.32s': %s", path,
                              count, word, wrong);
        else
            world->nodes[count++] = (uint32_t)node;
    }
    free(text);
    world->params.mapping = world->nodes;
    world->params.num_mapping = count;
    if (status == TOOL_OK && count == 0)
        status = tool_bad("%s: the mapping is empty", path);
    return status;
}

static int set_mapping(const char *word, struct tool_world *world)
{
    static const char random[] = "random:";

    world->mapping = word != NULL ? word : "row-major";
    if (word == NULL || strcmp(word, "row-major") == 0)
        return TOOL_OK;
    if (strncmp(word, random, sizeof(random) - 1) == 0) {
        world->params.shuffled = true;
        return read_number("mapping random", word + sizeof(random) - 1, 0,
                           UINT64_MAX, &world->params.mapping_seed);
    }
    return read_mapping(word, world);
}

int tool_jitter(const char *text, uint64_t *ps)
{
    const char *wrong = rs_parse_us(text, ps);

    if (wrong == NULL && *ps > UINT64_C(1000000000000))
        wrong = "above 1 s";
    return wrong != NULL ? tool_bad("--jitter %s: %s", text, wrong) : TOOL_OK;
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

int tool_world_open(const struct tool_world_options *words,
                    const char *pattern, struct tool_world *world)
{
    uint64_t processes;
    int error = rsched_pattern_open(pattern, &world->pattern);
    int status;

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
    if (status == TOOL_OK && strcmp(words->planner, "best") == 0) {
        uint64_t mean;

        world->params.together = world->together;
        error = rs_world_select(&world->params, &world->params.planner, &mean);
        status = error != 0 ? tool_library(error) : TOOL_OK;
    }
    return status;
}

void tool_world_close(struct tool_world *world)
{
    free(world->nodes);
    rsched_machine_destroy(world->machine);
    rsched_pattern_destroy(world->pattern);
}
