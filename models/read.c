/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading machine/1; docs/formats.md describes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/embed.h"
#include "librsched/base/error.h"
#include "librsched/base/utf8.h"
#include "librsched/base/yaml.h"
#include "models/machine.h"
#include "models/sources.h"
#include "models/ways.h"

enum { EXTENDS_MOST = 8, PROCESSES_MOST = 1024 };

int rs_machine_read_capacity(const struct rs_yaml *yaml,
                             const struct rs_yaml_node *node,
                             const char *what, uint64_t *capacity)
{
    if (node != NULL && node->kind == RS_YAML_SCALAR &&
        strcmp(node->text, "unlimited") == 0) {
        *capacity = RSCHED_UNLIMITED;
        return 0;
    }
    return rs_yaml_rate(yaml, node, what, capacity);
}

/* More than a second is a wrong unit, and could overflow sums. */
int rs_machine_read_time(const struct rs_yaml *yaml,
                         const struct rs_yaml_node *node, const char *what,
                         uint64_t *ps)
{
    int error = rs_yaml_time(yaml, node, what, ps);

    if (error == 0 && *ps > UINT64_C(1000000000000))
        error = rs_yaml_fail(yaml, node, "%s is above 1 s", what);
    return error;
}

static int read_engines(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *node,
                        struct rsched_machine_costs *costs)
{
    static const struct rs_yaml_key keys[] = {{"count", true},
                                              {"rate", true},
                                              {"open", false},
                                              {"command", false},
                                              {NULL, false}};
    const struct rs_yaml_node *value[4];
    uint64_t count = 0;
    int error = rs_yaml_map(yaml, node, "engines", keys, value);

    if (error == 0)
        error = rs_yaml_whole(yaml, value[0], "count", RS_ENGINES_MOST,
                              &count);
    if (error == 0 && count == 0)
        error = rs_yaml_fail(yaml, value[0], "count must be at least 1");
    if (error == 0)
        error = rs_yaml_rate(yaml, value[1], "rate", &costs->engine_rate);
    if (error == 0)
        error = rs_machine_read_time(yaml, value[2], "open",
                                     &costs->engine_open);
    if (error == 0)
        error = rs_machine_read_time(yaml, value[3], "command",
                                     &costs->command);
    costs->num_engines = (uint32_t)count;
    return error;
}

static int read_node(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node,
                     struct rsched_machine_costs *costs)
{
    static const struct rs_yaml_key keys[] = {{"inject", false},
                                              {"eject", false},
                                              {"processes", false},
                                              {NULL, false}};
    const struct rs_yaml_node *value[3];
    uint64_t processes = 1;
    int error;

    costs->node_inject = RSCHED_UNLIMITED;
    costs->node_eject = RSCHED_UNLIMITED;
    costs->node_processes = 1;
    if (node == NULL)
        return 0;
    error = rs_yaml_map(yaml, node, "node", keys, value);
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[0], "inject",
                                         &costs->node_inject);
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[1], "eject",
                                         &costs->node_eject);
    if (error == 0)
        error = rs_yaml_whole(yaml, value[2], "processes", PROCESSES_MOST,
                              &processes);
    if (error == 0 && processes == 0)
        error = rs_yaml_fail(yaml, value[2], "processes must be at least 1");
    costs->node_processes = (uint32_t)processes;
    return error;
}

static int read_exchange(const struct rs_yaml *yaml,
                         const struct rs_yaml_node *node,
                         struct rsched_machine_costs *costs)
{
    static const struct rs_yaml_key keys[] = {
        {"base", false}, {"per_put", false}, {NULL, false}};
    const struct rs_yaml_node *value[2];
    int error;

    if (node == NULL)
        return 0;
    error = rs_yaml_map(yaml, node, "exchange", keys, value);
    if (error == 0)
        error = rs_machine_read_time(yaml, value[0], "base",
                                     &costs->exchange_base);
    if (error == 0)
        error = rs_machine_read_time(yaml, value[1], "per_put",
                                     &costs->exchange_per_put);
    return error;
}

static int read_links(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node,
                      struct rsched_machine *machine)
{
    const struct rs_yaml_node *key;
    int error;

    if (node == NULL)
        return 0;
    error = rs_yaml_expect(yaml, node, RS_YAML_MAP, "links");
    if (error != 0)
        return error;
    machine->links = calloc(node->count + 1, sizeof(*machine->links));
    if (machine->links == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    for (key = node->first; key != NULL; key = key->next) {
        int64_t number = rs_names_add(&machine->link_names, key->text);

        if (number < 0)
            return (int)number;
        machine->links[number].name = machine->link_names.text[number];
        machine->num_links++;
        error = rs_machine_read_capacity(yaml, key->value, "link",
                                         &machine->links[number].capacity);
        if (error != 0)
            return error;
    }
    return 0;
}

int rs_machine_read_way(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *node,
                        const struct rsched_machine *machine,
                        const char *what, uint32_t *links, size_t *num_links)
{
    int error = 0;

    for (node = node->first; node != NULL; node = node->next) {
        const char *name = NULL;
        int64_t link;

        error = rs_yaml_text(yaml, node, "a link", &name);
        if (error != 0)
            return error;
        link = rs_names_find(&machine->link_names, name);
        if (link < 0)
            return rs_yaml_fail(yaml, node, "%s uses the unknown link '%.64s'",
                                what, name);
        for (size_t i = 0; i < *num_links; i++) {
            if (links[i] == (uint32_t)link)
                return rs_yaml_fail(yaml, node, "%s uses the link '%.64s' "
                                    "twice", what, name);
        }
        links[(*num_links)++] = (uint32_t)link;
    }
    return error;
}

static int read_route(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node,
                      const struct rsched_machine *machine,
                      struct rsched_route *route)
{
    char what[64];
    uint32_t *links;
    int error = rs_yaml_expect(yaml, node, RS_YAML_LIST, "a route");

    if (error != 0)
        return error;
    links = calloc(node->count + 1, sizeof(*links));
    if (links == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    route->links = links;
    snprintf(what, sizeof(what), "route '%s'", route->direction);
    return rs_machine_read_way(yaml, node, machine, what, links,
                               &route->num_links);
}

static int read_routes(const struct rs_yaml *yaml,
                       const struct rs_yaml_node *node,
                       struct rsched_machine *machine)
{
    const struct rs_yaml_node *key;
    int error = rs_yaml_expect(yaml, node, RS_YAML_MAP, "routes");

    if (error != 0)
        return error;
    if (node->count == 0)
        return rs_yaml_fail(yaml, node, "there must be at least one route");
    machine->routes = calloc(node->count, sizeof(*machine->routes));
    if (machine->routes == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    for (key = node->first; key != NULL; key = key->next) {
        int64_t number;

        if (strlen(key->text) > 31 || !rs_utf8_valid(key->text))
            return rs_yaml_fail(yaml, key, "a direction longer than 31 bytes");
        number = rs_names_add(&machine->directions, key->text);
        if (number < 0)
            return (int)number;
        machine->routes[number].direction = machine->directions.text[number];
        machine->routes[number].rank = UINT32_MAX;
        machine->routes[number].crossings = 1;
        machine->num_routes++;
        error = read_route(yaml, key->value, machine,
                           &machine->routes[number]);
        if (error != 0)
            return error;
    }
    return 0;
}

static int find_direction(const struct rs_yaml *yaml,
                          const struct rs_yaml_node *node,
                          const struct rsched_machine *machine,
                          int64_t *number)
{
    const char *name = NULL;
    int error = rs_yaml_text(yaml, node, "a direction", &name);

    if (error != 0)
        return error;
    *number = rs_names_find(&machine->directions, name);
    if (*number >= 0)
        return 0;
    if (rs_names_find(&machine->directions, RSCHED_ANY_DIRECTION) >= 0)
        return rs_yaml_fail(yaml, node, "direction '%.64s' has no route of its "
                            "own; '" RSCHED_ANY_DIRECTION "' stands for all "
                            "without one", name);
    return rs_yaml_fail(yaml, node, "direction '%.64s' has no route", name);
}

/* The machine has no network of nodes: nothing says what loopback means there. */
static int read_twice(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node,
                      struct rsched_machine *machine)
{
    int error = 0;

    if (node == NULL)
        return 0;
    if (machine->topology.type != RS_TOPOLOGY_NONE)
        return rs_yaml_fail(yaml, node, "twice beside a topology");
    error = rs_yaml_expect(yaml, node, RS_YAML_LIST, "twice");
    for (node = node->first; error == 0 && node != NULL; node = node->next) {
        int64_t number;

        error = find_direction(yaml, node, machine, &number);
        if (error != 0)
            break;
        if (machine->routes[number].crossings != 1)
            return rs_yaml_fail(yaml, node, "direction '%.64s' stands twice",
                                node->text);
        machine->routes[number].crossings = 2;
    }
    return error;
}

/* Directions that the order leaves out follow, in the order of the routes. */
static int read_order(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node,
                      struct rsched_machine *machine)
{
    uint32_t rank = 0;
    int error = 0;

    if (node != NULL)
        error = rs_yaml_expect(yaml, node, RS_YAML_LIST, "direction_order");
    for (node = node ? node->first : NULL; error == 0 && node != NULL;
         node = node->next) {
        int64_t number;

        error = find_direction(yaml, node, machine, &number);
        if (error != 0)
            break;
        if (machine->routes[number].rank != UINT32_MAX)
            return rs_yaml_fail(yaml, node, "direction '%.64s' stands twice",
                                node->text);
        machine->routes[number].rank = rank++;
    }
    for (size_t i = 0; i < machine->num_routes; i++) {
        if (machine->routes[i].rank == UINT32_MAX)
            machine->routes[i].rank = rank++;
    }
    return error;
}

static int read_word(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node, const char *what,
                     const char *initial, char **word)
{
    int error = rs_yaml_text(yaml, node, what, &initial);

    if (error != 0)
        return error;
    *word = strdup(initial);
    if (*word == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    return 0;
}

enum {
    FORMAT,
    NAME,
    DESCRIPTION,
    PATH,
    ENGINES,
    NODE,
    EXCHANGE,
    LINKS,
    ROUTES,
    ORDER,
    EXTENDS,
    TOPOLOGY,
    RAILS,
    WAYS,
    SOURCES,
    TWICE,
    NUM_KEYS
};

static const struct rs_yaml_key machine_keys[] = {
    {"rsched", true},    {"name", true},
    {"description", false}, {"path", false},
    {"engines", true},   {"node", false},
    {"exchange", false}, {"links", false},
    {"routes", false},   {"direction_order", false},
    {"extends", false},  {"topology", false},
    {"rails", false},    {"ways", false},
    {"sources", false},  {"twice", false},
    {NULL, false}};

/* Links and routes are given, or those of the topology. */
static int read_ways(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *const *value,
                     struct rsched_machine *machine)
{
    int error = 0;

    if (value[TOPOLOGY] != NULL)
        error = rs_machine_read_topology(yaml, value[TOPOLOGY],
                                         &machine->topology);
    if (error != 0)
        return error;
    if (value[ROUTES] == NULL && value[TOPOLOGY] == NULL)
        return rs_yaml_fail(yaml, yaml->root, "a machine has no key 'routes' "
                            "and no topology to take them from");
    if (value[ROUTES] == NULL && value[LINKS] != NULL)
        return rs_yaml_fail(yaml, value[LINKS], "links without routes");
    if (value[ROUTES] == NULL && value[RAILS] != NULL)
        return rs_yaml_fail(yaml, value[RAILS], "rails without routes");
    if (value[ROUTES] == NULL)
        return rs_machine_generate(machine);
    error = read_links(yaml, value[LINKS], machine);
    if (error == 0)
        error = read_routes(yaml, value[ROUTES], machine);
    return error;
}

/* Generated links are those of a node into its network, one for each rail. */
static bool has_ports(const struct rsched_machine *machine)
{
    return machine->generated &&
           (machine->topology.type == RS_TOPOLOGY_FAT_TREE ||
            machine->topology.type == RS_TOPOLOGY_DRAGONFLY);
}

static int fill(const struct rs_yaml *yaml, struct rsched_machine *machine)
{
    const struct rs_yaml_node *value[NUM_KEYS];
    int error = rs_yaml_map(yaml, yaml->root, "a machine", machine_keys, value);

    if (error == 0)
        error = read_word(yaml, value[NAME], "name", "", &machine->name);
    if (error == 0)
        error = read_word(yaml, value[DESCRIPTION], "description", "",
                          &machine->description);
    if (error == 0 && strpbrk(machine->description, "\r\n") != NULL)
        error = rs_yaml_fail(yaml, value[DESCRIPTION], "description has more "
                             "than one line");
    if (error == 0)
        error = read_word(yaml, value[PATH], "path", "rdma", &machine->path);
    if (error == 0 && *machine->path == '\0')
        error = rs_yaml_fail(yaml, value[PATH], "path has no value");
    if (error == 0)
        error = read_engines(yaml, value[ENGINES], &machine->costs);
    if (error == 0)
        error = read_node(yaml, value[NODE], &machine->costs);
    if (error == 0)
        error = read_exchange(yaml, value[EXCHANGE], &machine->costs);
    if (error == 0)
        error = read_ways(yaml, value, machine);
    if (error == 0)
        error = read_order(yaml, value[ORDER], machine);
    if (error == 0)
        error = read_twice(yaml, value[TWICE], machine);
    if (error == 0 && has_ports(machine))
        error = rs_machine_make_rails(machine, machine->num_links);
    else if (error == 0)
        error = rs_machine_read_rails(yaml, value[RAILS], machine);
    if (error == 0 && value[WAYS] != NULL)
        error = rs_ways_read(yaml, value[WAYS], &machine->ways);
    machine->has_sources = value[SOURCES] != NULL;
    if (error == 0 && machine->has_sources)
        error = rs_sources_read(yaml, value[SOURCES], &machine->sources);
    return error;
}

/* What `extends` names, as a path relative to the file that says so. */
static int open_base(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node, struct rs_yaml **base)
{
    const char *name = NULL, *slash = strrchr(yaml->name, '/');
    char path[4096];
    int error = rs_yaml_text(yaml, node, "extends", &name);

    if (error != 0)
        return error;
    for (const struct rs_embedded *e = rs_machine_files; e->name; e++) {
        if (strcmp(e->name, name) == 0)
            return rs_yaml_parse(name, e->text, e->length, base);
    }
    if (strcmp(name, "-") == 0)
        return rs_yaml_fail(yaml, node, "extends: '-' is neither a file nor a "
                            "built-in machine");
    if (name[0] == '/' || slash == NULL)
        snprintf(path, sizeof(path), "%s", name);
    else
        snprintf(path, sizeof(path), "%.*s%s", (int)(slash - yaml->name + 1),
                 yaml->name, name);
    error = rs_yaml_load(path, base);
    if (error == RSCHED_ESYS)
        error = rs_yaml_fail(yaml, node, "extends: %.600s, and no machine of "
                             "this name is built in", rsched_last_error());
    return error;
}

static bool has_key(const struct rs_yaml *yaml, const char *name)
{
    const struct rs_yaml_node *key = yaml->root->first;

    while (key != NULL && strcmp(key->text, name) != 0)
        key = key->next;
    return key != NULL;
}

/* A file with a topology of its own that says nothing of links and routes means
 * those of the topology, not those of what it extends. */
static void drop_ways(const struct rs_yaml *yaml, struct rs_yaml *base)
{
    static const char *const names[] = {"links", "routes", "rails",
                                        "direction_order", "twice"};

    if (!has_key(yaml, "topology") || has_key(yaml, "links") ||
        has_key(yaml, "routes"))
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct rs_yaml_node **key = &base->root->first;

        while (*key != NULL && strcmp((*key)->text, names[i]) != 0)
            key = &(*key)->next;
        if (*key == NULL)
            continue;
        *key = (*key)->next;
        base->root->count--;
    }
}

/* Add what the document extends, and what that extends. */
static int extend(struct rs_yaml *yaml, int depth)
{
    static const char *const whole[] = {"topology", "ways", NULL};
    const struct rs_yaml_node *key;
    struct rs_yaml *base = NULL;
    int error = rs_yaml_format(yaml, "machine/1");

    if (error != 0)
        return error;
    for (key = yaml->root->first; key != NULL; key = key->next) {
        if (strcmp(key->text, "extends") == 0)
            break;
    }
    if (key == NULL)
        return 0;
    if (depth == EXTENDS_MOST)
        return rs_yaml_fail(yaml, key, "more than %d machines extend each "
                            "other", EXTENDS_MOST);
    error = open_base(yaml, key->value, &base);
    if (error == 0)
        error = extend(base, depth + 1);
    if (error != 0) {
        rs_yaml_destroy(base);
        return error;
    }
    drop_ways(yaml, base);
    rs_yaml_extend(yaml, base, whole);
    return 0;
}

static int read_machine(struct rs_yaml *yaml, struct rsched_machine **machine)
{
    struct rsched_machine *made;
    int error = extend(yaml, 0);

    if (error != 0)
        return error;
    made = calloc(1, sizeof(*made));
    if (made == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    atomic_init(&made->holders, 1);
    made->label = strdup(yaml->name);
    error = made->label != NULL
                ? fill(yaml, made)
                : rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    if (error != 0) {
        rsched_machine_destroy(made);
        return error;
    }
    *machine = made;
    return 0;
}

int rsched_machine_parse(const char *name, const char *text, size_t length,
                         struct rsched_machine **machine)
{
    struct rs_yaml *yaml;
    int error = rs_yaml_parse(name, text, length, &yaml);

    if (error != 0)
        return error;
    error = read_machine(yaml, machine);
    rs_yaml_destroy(yaml);
    return error;
}

int rsched_machine_load(const char *path, struct rsched_machine **machine)
{
    struct rs_yaml *yaml;
    int error = rs_yaml_load(path, &yaml);

    if (error != 0)
        return error;
    error = read_machine(yaml, machine);
    rs_yaml_destroy(yaml);
    return error;
}
