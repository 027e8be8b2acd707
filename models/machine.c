/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/machine.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/embed.h"
#include "librsched/base/error.h"
#include "librsched/base/file.h"

struct rsched_machine *rs_machine_hold(struct rsched_machine *machine)
{
    atomic_fetch_add_explicit(&machine->holders, 1, memory_order_relaxed);
    return machine;
}

static void free_routes(struct rsched_route *routes, size_t count)
{
    for (size_t i = 0; routes != NULL && i < count; i++)
        free((void *)routes[i].links);
    free(routes);
}

void rsched_machine_destroy(struct rsched_machine *machine)
{
    /* Whoever frees must see what the other holders did before they left. */
    if (machine == NULL || atomic_fetch_sub_explicit(&machine->holders, 1,
                                                     memory_order_acq_rel) > 1)
        return;
    for (size_t r = 0; r < machine->num_rails; r++) {
        free_routes((struct rsched_route *)machine->rails[r].routes,
                    machine->num_routes);
        free((void *)machine->rails[r].links);
    }
    free(machine->rails);
    free_routes(machine->routes, machine->num_routes);
    free(machine->links);
    rs_names_fini(&machine->link_names);
    rs_names_fini(&machine->directions);
    free(machine->path);
    free(machine->description);
    free(machine->label);
    free(machine->name);
    free(machine);
}

const char *rsched_machine_name(const struct rsched_machine *machine)
{
    return machine->name;
}

const char *rs_machine_label(const struct rsched_machine *machine)
{
    return machine->label;
}

const char *rsched_machine_description(const struct rsched_machine *machine)
{
    return machine->description;
}

const char *rsched_machine_path(const struct rsched_machine *machine)
{
    return machine->path;
}

const struct rsched_machine_costs *
rsched_machine_get_costs(const struct rsched_machine *machine)
{
    return &machine->costs;
}

const struct rs_topology_spec *
rs_machine_topology(const struct rsched_machine *machine)
{
    return &machine->topology;
}

size_t rsched_machine_num_links(const struct rsched_machine *machine)
{
    return machine->num_links;
}

const struct rsched_link *
rsched_machine_link(const struct rsched_machine *machine, size_t link)
{
    return &machine->links[link];
}

size_t rsched_machine_num_routes(const struct rsched_machine *machine)
{
    return machine->num_routes;
}

const struct rsched_route *
rsched_machine_route(const struct rsched_machine *machine, size_t route)
{
    return &machine->routes[route];
}

/* The number of a direction's route, or -1. */
static int64_t find_route(const struct rsched_machine *machine,
                          const char *direction)
{
    int64_t route = rs_names_find(&machine->directions, direction);

    return route >= 0 ? route : rs_names_find(&machine->directions,
                                              RSCHED_ANY_DIRECTION);
}

const struct rsched_route *
rsched_machine_find_route(const struct rsched_machine *machine,
                          const char *direction)
{
    int64_t route = find_route(machine, direction);

    return route < 0 ? NULL : &machine->routes[route];
}

size_t rsched_machine_num_rails(const struct rsched_machine *machine)
{
    return machine->num_rails;
}

const struct rsched_rail *
rsched_machine_rail(const struct rsched_machine *machine, size_t rail)
{
    return &machine->rails[rail];
}

const struct rsched_route *
rsched_machine_find_engine_route(const struct rsched_machine *machine,
                                 const char *direction, uint32_t engine)
{
    int64_t route = find_route(machine, direction);

    return route < 0 ? NULL
                     : &machine->rails[engine % machine->num_rails]
                            .routes[route];
}

const char *rsched_machine_builtin_name(size_t index)
{
    size_t count = 0;

    while (count < index && rs_machine_files[count].name != NULL)
        count++;
    return rs_machine_files[count].name;
}

int rsched_machine_builtin(const char *name, struct rsched_machine **machine)
{
    char names[256] = "";
    size_t length = 0;

    for (const struct rs_embedded *e = rs_machine_files; e->name; e++) {
        if (strcmp(e->name, name) == 0)
            return rsched_machine_parse(name, e->text, e->length, machine);
        if (length < sizeof(names))
            length += (size_t)snprintf(names + length, sizeof(names) - length,
                                       "%s%s", length ? ", " : "", e->name);
    }
    return rs_fail(RSCHED_ENAME, "no file and no built-in machine '%.200s' "
                   "(built in: %s)", name, names);
}

int rsched_machine_open(const char *name, struct rsched_machine **machine)
{
    if (rs_file_is_meant(name))
        return rsched_machine_load(name, machine);
    return rsched_machine_builtin(name, machine);
}
