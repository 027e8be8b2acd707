/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing machine/1. */
#include <inttypes.h>
#include <stdlib.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "librsched/base/yaml.h"
#include "models/machine.h"
#include "models/sources.h"
#include "models/ways.h"

static void write_time(FILE *out, const char *before, uint64_t ps)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, "%s%s us", before, rs_format_us(ps, text));
}

static void write_capacity(FILE *out, const char *before, uint64_t rate)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, "%s%s", before,
            rate == RSCHED_UNLIMITED ? "unlimited" : rs_format_rate(rate, text));
}

static void write_costs(FILE *out, const struct rsched_machine_costs *costs)
{
    fprintf(out, "engines: {count: %" PRIu32, costs->num_engines);
    write_capacity(out, ", rate: ", costs->engine_rate);
    write_time(out, ", open: ", costs->engine_open);
    write_time(out, ", command: ", costs->command);
    write_capacity(out, "}\nnode: {inject: ", costs->node_inject);
    write_capacity(out, ", eject: ", costs->node_eject);
    if (costs->node_processes != 1)
        fprintf(out, ", processes: %" PRIu32, costs->node_processes);
    write_time(out, "}\nexchange: {base: ", costs->exchange_base);
    write_time(out, ", per_put: ", costs->exchange_per_put);
    fputs("}\n", out);
}

void rs_machine_write_way(const struct rsched_machine *machine,
                          const uint32_t *links, size_t num_links, FILE *out)
{
    fputc('[', out);
    for (size_t k = 0; k < num_links; k++) {
        fputs(k > 0 ? ", " : "", out);
        rs_yaml_write_text(out, machine->links[links[k]].name);
    }
    fputc(']', out);
}

static void write_routes(const struct rsched_machine *machine, FILE *out)
{
    fputs("routes:\n", out);
    for (size_t i = 0; i < machine->num_routes; i++) {
        const struct rsched_route *route = &machine->routes[i];

        fputs("  ", out);
        rs_yaml_write_text(out, route->direction);
        fputs(": ", out);
        rs_machine_write_way(machine, route->links, route->num_links, out);
        fputc('\n', out);
    }
}

static int write_order(const struct rsched_machine *machine, FILE *out)
{
    uint32_t *by_rank = calloc(machine->num_routes, sizeof(*by_rank));

    if (by_rank == NULL)
        return rs_fail(RSCHED_ENOMEM, "writing machine %s: no memory",
                       machine->name);
    for (uint32_t i = 0; i < machine->num_routes; i++)
        by_rank[machine->routes[i].rank] = i;
    fputs("direction_order:\n", out);
    for (size_t i = 0; i < machine->num_routes; i++) {
        fputs("  - ", out);
        rs_yaml_write_text(out, machine->routes[by_rank[i]].direction);
        fputc('\n', out);
    }
    free(by_rank);
    return 0;
}

static void write_twice(const struct rsched_machine *machine, FILE *out)
{
    bool any = false;

    for (size_t i = 0; i < machine->num_routes; i++) {
        if (machine->routes[i].crossings == 1)
            continue;
        fputs(any ? ", " : "twice: [", out);
        rs_yaml_write_text(out, machine->routes[i].direction);
        any = true;
    }
    if (any)
        fputs("]\n", out);
}

static void write_ways(const struct rsched_machine *machine, FILE *out)
{
    fputs(machine->num_links > 0 ? "links:\n" : "links: {}\n", out);
    for (size_t i = 0; i < machine->num_links; i++) {
        fputs("  ", out);
        rs_yaml_write_text(out, machine->links[i].name);
        write_capacity(out, ": ", machine->links[i].capacity);
        fputc('\n', out);
    }
    write_routes(machine, out);
    if (machine->has_rails)
        rs_machine_write_rails(machine, out);
}

int rsched_machine_write(const struct rsched_machine *machine, FILE *out)
{
    int error;

    fputs("rsched: machine/1\nname: ", out);
    rs_yaml_write_text(out, machine->name);
    fputs("\ndescription: ", out);
    rs_yaml_write_text(out, machine->description);
    fputs("\npath: ", out);
    rs_yaml_write_text(out, machine->path);
    fputc('\n', out);
    write_costs(out, &machine->costs);
    rs_machine_write_topology(&machine->topology, out);
    if (!machine->generated)
        write_ways(machine, out);
    error = write_order(machine, out);
    write_twice(machine, out);
    if (rs_machine_ways(machine) != NULL)
        rs_ways_write(&machine->ways, out);
    if (machine->has_sources)
        rs_sources_write(&machine->sources, out);
    if (error == 0 && ferror(out))
        error = rs_fail(RSCHED_ESYS, "writing machine %s: %m", machine->name);
    return error;
}
