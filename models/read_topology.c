/* SPDX-License-Identifier: BSD-3-Clause */
/* The key `topology` of machine/1, and what one node sees of it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "models/machine.h"

enum { SIDE_MOST = 1 << 20 };

static int read_type(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node,
                     struct rs_topology_spec *spec)
{
    const struct rs_yaml_node *key;
    const char *word = NULL;
    int error = rs_yaml_expect(yaml, node, RS_YAML_MAP, "topology");

    if (error != 0)
        return error;
    for (key = node->first; key != NULL; key = key->next) {
        if (strcmp(key->text, "type") == 0)
            break;
    }
    if (key == NULL)
        return rs_yaml_fail(yaml, node, "topology has no key 'type'");
    error = rs_yaml_text(yaml, key->value, "type", &word);
    if (error != 0)
        return error;
    for (enum rs_topology_type type = RS_TOPOLOGY_TORUS;
         type <= RS_TOPOLOGY_DRAGONFLY; type++) {
        if (strcmp(rs_topology_type_name(type), word) == 0) {
            spec->type = type;
            return 0;
        }
    }
    return rs_yaml_fail(yaml, key->value, "unknown topology '%.64s' (known: "
                        "torus, mesh, tofu, fat-tree, dragonfly)", word);
}

/* A number that is at least 1; an absent one leaves the value alone. */
static int read_count(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node, const char *what,
                      uint32_t *value)
{
    uint64_t number = *value;
    int error = rs_yaml_whole(yaml, node, what, SIDE_MOST, &number);

    if (error == 0 && node != NULL && number == 0)
        error = rs_yaml_fail(yaml, node, "%s must be at least 1", what);
    *value = (uint32_t)number;
    return error;
}

static int read_dims(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node,
                     struct rs_topology_spec *spec)
{
    uint32_t most = RS_DIMENSIONS_MOST;
    uint64_t nodes = spec->type == RS_TOPOLOGY_TOFU ? 12 : 1;
    int error;

    if (node == NULL)
        return 0;
    error = rs_yaml_expect(yaml, node, RS_YAML_LIST, "dims");
    if (error == 0 && spec->type == RS_TOPOLOGY_TOFU && node->count != 3)
        error = rs_yaml_fail(yaml, node, "dims of a tofu are three: cells in "
                             "x, y and z");
    if (error == 0 && (node->count == 0 || node->count > most))
        error = rs_yaml_fail(yaml, node, "dims must be 1 to %u numbers", most);
    if (error != 0)
        return error;
    for (const struct rs_yaml_node *n = node->first; n; n = n->next) {
        error = read_count(yaml, n, "a dimension",
                           &spec->dims[spec->num_dims]);
        nodes *= spec->dims[spec->num_dims++];
        if (error == 0 && nodes > RS_TOPOLOGY_MOST)
            error = rs_yaml_fail(yaml, n, "more than %d nodes", RS_TOPOLOGY_MOST);
        if (error != 0)
            return error;
    }
    return 0;
}

static int read_grid(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node,
                     struct rs_topology_spec *spec)
{
    static const struct rs_yaml_key keys[] = {
        {"type", true}, {"dims", false}, {"link", true}, {NULL, false}};
    const struct rs_yaml_node *value[3];
    int error = rs_yaml_map(yaml, node, "topology", keys, value);

    if (error == 0)
        error = read_dims(yaml, value[1], spec);
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[2], "link",
                                         &spec->link);
    return error;
}

static int read_fat_tree(const struct rs_yaml *yaml,
                         const struct rs_yaml_node *node,
                         struct rs_topology_spec *spec)
{
    static const struct rs_yaml_key keys[] = {
        {"type", true},   {"leaf", true}, {"oversubscription", false},
        {"rails", false}, {"link", true}, {"up", false},
        {NULL, false}};
    const struct rs_yaml_node *value[6];
    int error = rs_yaml_map(yaml, node, "topology", keys, value);

    spec->oversubscription = 1;
    spec->rails = 1;
    if (error == 0)
        error = read_count(yaml, value[1], "leaf", &spec->leaf);
    if (error == 0)
        error = read_count(yaml, value[2], "oversubscription",
                           &spec->oversubscription);
    if (error == 0)
        error = read_count(yaml, value[3], "rails", &spec->rails);
    if (error == 0 && spec->rails > RS_ENGINES_MOST)
        error = rs_yaml_fail(yaml, value[3], "more than %d rails",
                             RS_ENGINES_MOST);
    if (error == 0 && spec->leaf % spec->oversubscription != 0)
        error = rs_yaml_fail(yaml, value[2], "oversubscription must divide "
                             "leaf: a leaf of %u nodes has leaf / "
                             "oversubscription links up", spec->leaf);
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[4], "link",
                                         &spec->link);
    spec->up = spec->link;
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[5], "up",
                                         &spec->up);
    return error;
}

static int read_dragonfly(const struct rs_yaml *yaml,
                          const struct rs_yaml_node *node,
                          struct rs_topology_spec *spec)
{
    static const struct rs_yaml_key keys[] = {
        {"type", true},  {"groups", true}, {"routers", true},
        {"nodes", true}, {"links", true},  {"link", true},
        {"local", false}, {"global", false}, {NULL, false}};
    static const char *const names[] = {"groups", "routers", "nodes", "links"};
    uint32_t *const counts[] = {&spec->groups, &spec->routers, &spec->nodes,
                                &spec->links};
    const struct rs_yaml_node *value[8];
    int error = rs_yaml_map(yaml, node, "topology", keys, value);

    for (size_t i = 0; error == 0 && i < 4; i++) {
        error = read_count(yaml, value[i + 1], names[i], counts[i]);
        if (error == 0 && *counts[i] > 4096)
            error = rs_yaml_fail(yaml, value[i + 1], "%s is above 4096",
                                 names[i]);
    }
    if (error == 0 && spec->groups - 1 > spec->routers * spec->links)
        error = rs_yaml_fail(yaml, value[4], "a group has %u global links, too "
                             "few to reach %u other groups",
                             spec->routers * spec->links, spec->groups - 1);
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[5], "link",
                                         &spec->link);
    spec->local = spec->link;
    spec->global = spec->link;
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[6], "local",
                                         &spec->local);
    if (error == 0)
        error = rs_machine_read_capacity(yaml, value[7], "global",
                                         &spec->global);
    return error;
}

int rs_machine_read_topology(const struct rs_yaml *yaml,
                             const struct rs_yaml_node *node,
                             struct rs_topology_spec *spec)
{
    struct rs_topology_spec read = {0};
    int error = read_type(yaml, node, &read);

    if (error == 0 && read.type == RS_TOPOLOGY_FAT_TREE)
        error = read_fat_tree(yaml, node, &read);
    else if (error == 0 && read.type == RS_TOPOLOGY_DRAGONFLY)
        error = read_dragonfly(yaml, node, &read);
    else if (error == 0)
        error = read_grid(yaml, node, &read);
    if (error == 0)
        *spec = read;
    return error;
}

static void write_capacity(FILE *out, const char *key, uint64_t rate)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, ", %s: %s", key,
            rate == RSCHED_UNLIMITED ? "unlimited" : rs_format_rate(rate, text));
}

void rs_machine_write_topology(const struct rs_topology_spec *spec, FILE *out)
{
    if (spec->type == RS_TOPOLOGY_NONE)
        return;
    fprintf(out, "topology: {type: %s", rs_topology_type_name(spec->type));
    if (spec->type == RS_TOPOLOGY_FAT_TREE)
        fprintf(out, ", leaf: %" PRIu32 ", oversubscription: %" PRIu32
                ", rails: %" PRIu32, spec->leaf, spec->oversubscription,
                spec->rails);
    if (spec->type == RS_TOPOLOGY_DRAGONFLY)
        fprintf(out, ", groups: %" PRIu32 ", routers: %" PRIu32 ", nodes: %"
                PRIu32 ", links: %" PRIu32, spec->groups, spec->routers,
                spec->nodes, spec->links);
    for (uint32_t d = 0; d < spec->num_dims; d++)
        fprintf(out, "%s%" PRIu32 "%s", d == 0 ? ", dims: [" : ", ",
                spec->dims[d], d + 1 == spec->num_dims ? "]" : "");
    write_capacity(out, "link", spec->link);
    if (spec->type == RS_TOPOLOGY_FAT_TREE)
        write_capacity(out, "up", spec->up);
    if (spec->type == RS_TOPOLOGY_DRAGONFLY) {
        write_capacity(out, "local", spec->local);
        write_capacity(out, "global", spec->global);
    }
    fputs("}\n", out);
}

/* ---- what one node sees ---- */

static int add_link(struct rsched_machine *machine, const char *name)
{
    int64_t number = rs_names_add(&machine->link_names, name);

    if (number < 0)
        return (int)number;
    machine->links[number] =
        (struct rsched_link){machine->link_names.text[number],
                             machine->topology.link};
    machine->num_links++;
    return 0;
}

static int add_route(struct rsched_machine *machine, const char *name,
                     const uint32_t *links, size_t num_links)
{
    int64_t number = rs_names_add(&machine->directions, name);
    uint32_t *copy = calloc(num_links + 1, sizeof(*copy));

    if (number < 0 || copy == NULL) {
        free(copy);
        return RSCHED_ENOMEM;
    }
    if (num_links > 0)
        memcpy(copy, links, num_links * sizeof(*copy));
    machine->routes[number] =
        (struct rsched_route){machine->directions.text[number], copy,
                              num_links, UINT32_MAX, 1};
    machine->num_routes++;
    return 0;
}

/* "-x" or "W": the name of a step in a dimension. */
static const char *step_name(uint32_t dims, uint32_t dim, bool plus)
{
    static const char *const flat[] = {"W", "E", "N", "S"};
    static const char *const deep[] = {"-x", "+x", "-y", "+y", "-z", "+z"};

    return dims == 2 ? flat[2 * dim + plus] : deep[2 * dim + plus];
}

/* The digit of a dimension in the number of a direction, base 3:
 * 0 absent, 1 back, 2 ahead. */
static int add_direction(struct rsched_machine *machine, uint32_t dims,
                         uint32_t number)
{
    uint32_t links[3], digit[3], count = 0;
    char name[8] = "";

    for (uint32_t d = 0; d < dims; d++, number /= 3)
        digit[d] = number % 3;
    for (uint32_t d = 0; d < dims; d++) {
        if (digit[d] > 0)
            links[count++] = 2 * d + digit[d] - 1;
    }
    for (uint32_t i = 0; i < dims; i++) {
        uint32_t d = dims == 2 ? 1 - i : i; /* NW, but -x-y */

        if (digit[d] > 0)
            strcat(name, step_name(dims, d, digit[d] == 2));
    }
    return add_route(machine, name, links, count);
}

/* In order of the number of links; opposite directions stand together, as they
 * share no link. */
static int add_directions(struct rsched_machine *machine, uint32_t dims)
{
    uint32_t count = dims == 1 ? 3 : dims == 2 ? 9 : 27;
    int error = 0;

    for (uint32_t length = 1; error == 0 && length <= dims; length++) {
        for (uint32_t i = 1; error == 0 && i < count; i++) {
            uint32_t links = 0, opposite = 0;

            for (uint32_t n = i, place = 1; n > 0; n /= 3, place *= 3) {
                links += n % 3 > 0;
                opposite += (3 - n % 3) % 3 * place;
            }
            if (links != length || opposite < i)
                continue;
            error = add_direction(machine, dims, i);
            if (error == 0)
                error = add_direction(machine, dims, opposite);
        }
    }
    return error;
}

/* Nodes that reach the network over one link, or one for each rail. */
static int add_ports(struct rsched_machine *machine)
{
    const struct rs_topology_spec *spec = &machine->topology;
    uint32_t rails = spec->type == RS_TOPOLOGY_FAT_TREE ? spec->rails : 1;
    int error = 0;

    for (uint32_t r = 0; error == 0 && r < rails &&
                         r < machine->costs.num_engines; r++) {
        char name[16];

        snprintf(name, sizeof(name), "rail%u", (unsigned)r);
        error = add_link(machine, name);
    }
    if (error == 0)
        error = add_route(machine, RSCHED_ANY_DIRECTION, NULL, 0);
    return error;
}

int rs_machine_generate(struct rsched_machine *machine)
{
    const struct rs_topology_spec *spec = &machine->topology;
    bool grid = spec->type == RS_TOPOLOGY_TORUS ||
                spec->type == RS_TOPOLOGY_MESH;
    uint32_t dims = spec->num_dims > 0 ? spec->num_dims : 2;
    int error = 0;

    grid = grid && dims <= 3;
    machine->generated = true;
    machine->links = calloc(6 + spec->rails, sizeof(*machine->links));
    machine->routes = calloc(27, sizeof(*machine->routes));
    if (machine->links == NULL || machine->routes == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for routes");
    for (uint32_t i = 0; grid && error == 0 && i < 2 * dims; i++)
        error = add_link(machine, step_name(dims, i / 2, i % 2));
    if (error == 0 && grid)
        error = add_directions(machine, dims);
    else if (error == 0 && (spec->type == RS_TOPOLOGY_FAT_TREE ||
                            spec->type == RS_TOPOLOGY_DRAGONFLY))
        error = add_ports(machine);
    else if (error == 0)
        error = add_route(machine, RSCHED_ANY_DIRECTION, NULL, 0);
    return error != 0 ? rs_fail(RSCHED_ENOMEM, "no memory for routes") : 0;
}
