/* SPDX-License-Identifier: BSD-3-Clause */
/* The key `rails` of machine/1: ways into the network that depend on the
 * engine. */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "models/machine.h"

static int no_memory(const struct rsched_machine *machine)
{
    return rs_fail(RSCHED_ENOMEM, "machine %s: no memory for rails",
                   machine->label);
}

static int allocate_rails(struct rsched_machine *machine, size_t count)
{
    machine->rails = calloc(count, sizeof(*machine->rails));
    if (machine->rails == NULL)
        return no_memory(machine);
    machine->num_rails = count;
    for (size_t r = 0; r < count; r++)
        machine->rails[r].rate = machine->costs.engine_rate;
    return 0;
}

/* A rail's routes: `ways` by number of route, or the machine's, each with the
 * rail's own links behind. */
static int fill_routes(const struct rsched_machine *machine,
                       struct rsched_rail *rail,
                       const struct rsched_route *ways)
{
    struct rsched_route *routes = calloc(machine->num_routes + 1,
                                         sizeof(*routes));

    if (routes == NULL)
        return no_memory(machine);
    rail->routes = routes;
    for (size_t i = 0; i < machine->num_routes; i++) {
        const struct rsched_route *way =
            ways != NULL && ways[i].links != NULL ? &ways[i]
                                                  : &machine->routes[i];
        size_t count = way->num_links + rail->num_links;
        uint32_t *links = calloc(count + 1, sizeof(*links));

        if (links == NULL)
            return no_memory(machine);
        if (way->num_links > 0)
            memcpy(links, way->links, way->num_links * sizeof(*links));
        if (rail->num_links > 0)
            memcpy(links + way->num_links, rail->links,
                   rail->num_links * sizeof(*links));
        routes[i] = machine->routes[i];
        routes[i].links = links;
        routes[i].num_links = count;
    }
    return 0;
}

int rs_machine_make_rails(struct rsched_machine *machine, size_t count)
{
    int error = allocate_rails(machine, count);

    machine->has_rails = true;
    for (size_t r = 0; error == 0 && r < count; r++) {
        uint32_t *link = calloc(1, sizeof(*link));

        if (link == NULL)
            return no_memory(machine);
        *link = (uint32_t)r;
        machine->rails[r].links = link;
        machine->rails[r].num_links = 1;
        error = fill_routes(machine, &machine->rails[r], NULL);
    }
    return error;
}

/* The routes that a rail replaces. */
static int read_ways(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node,
                     const struct rsched_machine *machine,
                     struct rsched_route *ways)
{
    int error = 0;

    if (node != NULL)
        error = rs_yaml_expect(yaml, node, RS_YAML_MAP, "routes");
    for (const struct rs_yaml_node *key = node ? node->first : NULL;
         error == 0 && key != NULL; key = key->next) {
        int64_t number = rs_names_find(&machine->directions, key->text);
        char what[64];
        uint32_t *links;

        if (number < 0)
            return rs_yaml_fail(yaml, key, "direction '%.31s' has no route "
                                "that the rail could replace", key->text);
        error = rs_yaml_expect(yaml, key->value, RS_YAML_LIST, "a route");
        if (error != 0)
            return error;
        links = calloc(key->value->count + 1, sizeof(*links));
        if (links == NULL)
            return no_memory(machine);
        ways[number].links = links;
        snprintf(what, sizeof(what), "route '%.31s' of the rail", key->text);
        error = rs_machine_read_way(yaml, key->value, machine, what, links,
                                    &ways[number].num_links);
    }
    return error;
}

/* No link stands twice on a route: the rail's own ones come behind it. */
static int check_routes(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *node,
                        const struct rsched_machine *machine,
                        const struct rsched_rail *rail)
{
    for (size_t i = 0; i < machine->num_routes; i++) {
        const struct rsched_route *route = &rail->routes[i];
        size_t way = route->num_links - rail->num_links;

        for (size_t k = 0; k < way; k++) {
            for (size_t l = 0; l < rail->num_links; l++) {
                if (route->links[k] == rail->links[l])
                    return rs_yaml_fail(
                        yaml, node, "route '%s' uses the link '%.64s' of the "
                        "rail already", route->direction,
                        machine->links[rail->links[l]].name);
            }
        }
    }
    return 0;
}

static int read_links(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node,
                      const struct rsched_machine *machine,
                      struct rsched_rail *rail)
{
    uint32_t *links;
    int error;

    if (node == NULL)
        return 0;
    error = rs_yaml_expect(yaml, node, RS_YAML_LIST, "links");
    if (error != 0)
        return error;
    links = calloc(node->count + 1, sizeof(*links));
    if (links == NULL)
        return no_memory(machine);
    rail->links = links;
    return rs_machine_read_way(yaml, node, machine, "the rail", links,
                               &rail->num_links);
}

static int read_rail(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node,
                     const struct rsched_machine *machine,
                     struct rsched_rail *rail)
{
    static const struct rs_yaml_key keys[] = {
        {"rate", false}, {"links", false}, {"routes", false}, {NULL, false}};
    const struct rs_yaml_node *value[3];
    struct rsched_route *ways = calloc(machine->num_routes + 1,
                                       sizeof(*ways));
    int error = ways == NULL ? no_memory(machine)
                             : rs_yaml_map(yaml, node, "a rail", keys, value);

    if (error == 0)
        error = rs_yaml_rate(yaml, value[0], "rate", &rail->rate);
    if (error == 0)
        error = read_links(yaml, value[1], machine, rail);
    if (error == 0)
        error = read_ways(yaml, value[2], machine, ways);
    if (error == 0)
        error = fill_routes(machine, rail, ways);
    if (error == 0)
        error = check_routes(yaml, node, machine, rail);
    for (size_t i = 0; ways != NULL && i < machine->num_routes; i++)
        free((void *)ways[i].links);
    free(ways);
    return error;
}

int rs_machine_read_rails(const struct rs_yaml *yaml,
                          const struct rs_yaml_node *node,
                          struct rsched_machine *machine)
{
    struct rsched_rail *rail;
    int error;

    if (node == NULL) {
        error = allocate_rails(machine, 1);
        return error != 0 ? error
                          : fill_routes(machine, &machine->rails[0], NULL);
    }
    error = rs_yaml_expect(yaml, node, RS_YAML_LIST, "rails");
    if (error == 0 && node->count == 0)
        error = rs_yaml_fail(yaml, node, "there must be at least one rail");
    if (error == 0 && node->count > machine->costs.num_engines)
        error = rs_yaml_fail(yaml, node, "%zu rails, but %u engines",
                             (size_t)node->count,
                             (unsigned)machine->costs.num_engines);
    if (error == 0)
        error = allocate_rails(machine, node->count);
    machine->has_rails = true;
    rail = machine->rails;
    for (node = node->first; error == 0 && node != NULL; node = node->next)
        error = read_rail(yaml, node, machine, rail++);
    return error;
}

/* Whether a rail has another way than the machine, apart from its own links. */
static bool replaces(const struct rsched_machine *machine,
                     const struct rsched_rail *rail, size_t route)
{
    const struct rsched_route *base = &machine->routes[route];
    const struct rsched_route *own = &rail->routes[route];
    size_t way = own->num_links - rail->num_links;

    return way != base->num_links ||
           (way > 0 && memcmp(own->links, base->links,
                              way * sizeof(*own->links)) != 0);
}

static void write_rail(const struct rsched_machine *machine,
                       const struct rsched_rail *rail, FILE *out)
{
    char text[RS_UNITS_TEXT];
    bool any = false;

    fprintf(out, "  - {rate: %s, links: ", rs_format_rate(rail->rate, text));
    rs_machine_write_way(machine, rail->links, rail->num_links, out);
    for (size_t i = 0; i < machine->num_routes; i++) {
        if (!replaces(machine, rail, i))
            continue;
        fputs(any ? ", " : ", routes: {", out);
        any = true;
        rs_yaml_write_text(out, machine->routes[i].direction);
        fputs(": ", out);
        rs_machine_write_way(machine, rail->routes[i].links,
                             rail->routes[i].num_links - rail->num_links, out);
    }
    fputs(any ? "}}\n" : "}\n", out);
}

void rs_machine_write_rails(const struct rsched_machine *machine, FILE *out)
{
    fputs("rails:\n", out);
    for (size_t r = 0; r < machine->num_rails; r++)
        write_rail(machine, &machine->rails[r], out);
}
