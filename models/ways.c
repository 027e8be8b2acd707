/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading and writing the key `ways`; docs/formats.md describes it. */
#include "models/ways.h"

#include <string.h>

#include "librsched/base/units.h"
#include "models/machine.h"

const struct rs_ways *rs_machine_ways(const struct rsched_machine *machine)
{
    const struct rs_ways *ways = &machine->ways;

    return rs_ways_have_host(ways) || rs_ways_have_gpu(ways) ||
                   rs_ways_have_verbs(ways)
               ? ways
               : NULL;
}

static int read_range(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node, const char *what,
                      struct rs_way_cost *cost)
{
    static const struct rs_yaml_key keys[] = {
        {"rate", true}, {"from", false}, {NULL, false}};
    struct rs_way_range range = {0, 0};
    const struct rs_yaml_node *value[2];
    int error = rs_yaml_map(yaml, node, what, keys, value);

    if (error == 0 && cost->num_ranges == RS_WAY_RANGES)
        error = rs_yaml_fail(yaml, node, "%s has more than %d ranges", what,
                             RS_WAY_RANGES);
    if (error == 0)
        error = rs_yaml_rate(yaml, value[0], "rate", &range.rate);
    if (error == 0)
        error = rs_yaml_whole(yaml, value[1], "from", UINT64_MAX, &range.from);
    if (error != 0)
        return error;
    if (cost->num_ranges == 0 && range.from != 0)
        return rs_yaml_fail(yaml, node, "the first range of %s begins at 0",
                            what);
    if (cost->num_ranges > 0 &&
        range.from <= cost->ranges[cost->num_ranges - 1].from)
        return rs_yaml_fail(yaml, node, "the ranges of %s must ascend", what);
    cost->ranges[cost->num_ranges++] = range;
    return 0;
}

static int read_cost(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *message, const char *message_is,
                     const struct rs_yaml_node *ranges, const char *ranges_are,
                     struct rs_way_cost *cost)
{
    int error = rs_machine_read_time(yaml, message, message_is, &cost->message);

    if (error == 0)
        error = rs_yaml_expect(yaml, ranges, RS_YAML_LIST, ranges_are);
    if (error != 0)
        return error;
    if (ranges->count == 0)
        return rs_yaml_fail(yaml, ranges, "%s has no range", ranges_are);
    for (const struct rs_yaml_node *r = ranges->first; r != NULL && error == 0;
         r = r->next)
        error = read_range(yaml, r, ranges_are, cost);
    return error;
}

/* L, o, O, g and G; S of GPU memory, or what a block costs in host memory, or nothing
 * else: what blocks cost a device stands in `sources`. */
static int read_costs(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node, const char *also,
                      struct rs_way_costs *costs)
{
    const struct rs_yaml_key keys[] = {
        {"L", true}, {"o", true}, {"O", true},      {"g", true},
        {"G", true}, {also, false}, {NULL, false}};
    const struct rs_yaml_node *value[6] = {NULL};
    int error = rs_yaml_map(yaml, node, "a way", keys, value);

    if (error == 0)
        error = rs_machine_read_time(yaml, value[0], "L", &costs->latency);
    if (error == 0)
        error = read_cost(yaml, value[1], "o", value[2], "O", &costs->work);
    if (error == 0)
        error = read_cost(yaml, value[3], "g", value[4], "G", &costs->gap);
    if (error == 0 && value[5] != NULL)
        error = rs_machine_read_time(yaml, value[5], also,
                                     strcmp(also, "S") == 0 ? &costs->sync
                                                            : &costs->block);
    costs->given = error == 0;
    return error;
}

static bool names_distance(const struct rs_yaml_node *node)
{
    for (enum rs_distance d = 0; d < RS_NUM_DISTANCES; d++) {
        if (node->kind == RS_YAML_MAP && node->first != NULL &&
            strcmp(node->first->text, rs_distance_name(d)) == 0)
            return true;
    }
    return false;
}

/* Costs by distance from `first` on, or those of all distances. */
static int read_way(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                    enum rs_distance first, struct rs_way_costs *at)
{
    struct rs_yaml_key keys[RS_NUM_DISTANCES + 1] = {{NULL, false}};
    const struct rs_yaml_node *value[RS_NUM_DISTANCES];
    const char *also = first == 0 ? "S" : "block";
    int error = 0;

    if (!names_distance(node)) {
        error = read_costs(yaml, node, also, &at[first]);
        for (int d = (int)first + 1; d < RS_NUM_DISTANCES && error == 0; d++)
            at[d] = at[first];
        return error;
    }
    for (enum rs_distance d = first; d < RS_NUM_DISTANCES; d++)
        keys[d - first].name = rs_distance_name(d);
    error = rs_yaml_map(yaml, node, "a way", keys, value);
    for (enum rs_distance d = first; d < RS_NUM_DISTANCES && error == 0; d++) {
        if (value[d - first] != NULL)
            error = read_costs(yaml, value[d - first], also, &at[d]);
    }
    return error;
}

/* Slots are there for what can go no other way, so what they cost is known at
 * every distance. */
static int read_host_way(const struct rs_yaml *yaml,
                         const struct rs_yaml_node *node, enum rs_way way,
                         struct rs_ways *ways)
{
    struct rs_way_costs at[RS_NUM_DISTANCES] = {{0}};
    int error = read_way(yaml, node, RS_FIRST_HOST_DISTANCE, at);

    for (int d = 0; d < RS_NUM_HOST_DISTANCES && error == 0; d++) {
        ways->host[d].of[way] = at[RS_FIRST_HOST_DISTANCE + d];
        if (way == RS_WAY_LANDING && !ways->host[d].of[way].given)
            error = rs_yaml_fail(yaml, node, "landing has no costs for %s",
                                 rs_distance_name(
                                     (enum rs_distance)(
                                         RS_FIRST_HOST_DISTANCE + d)));
    }
    return error;
}

int rs_ways_read(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 struct rs_ways *ways)
{
    enum { VERBS = RS_NUM_WAYS, NONTEMPORAL = VERBS + RS_NUM_VERBS_WAYS, NUM_KEYS };
    struct rs_yaml_key keys[NUM_KEYS + 1] = {{NULL, false}};
    const struct rs_yaml_node *value[NUM_KEYS];
    struct rs_ways read = {0};
    uint64_t nontemporal = 0;
    bool host = false;
    int error;

    for (enum rs_way way = 0; way < RS_NUM_WAYS; way++)
        keys[way].name = rs_way_name(way);
    for (int way = 0; way < RS_NUM_VERBS_WAYS; way++)
        keys[VERBS + way].name = rs_verbs_way_name((enum rs_verbs_way)way);
    keys[NONTEMPORAL].name = "nontemporal";
    error = rs_yaml_map(yaml, node, "ways", keys, value);
    for (enum rs_way way = 0; way < RS_NUM_HOST_WAYS && error == 0; way++) {
        if (value[way] == NULL)
            continue;
        host = true;
        error = read_host_way(yaml, value[way], way, &read);
    }
    for (int way = 0; way < RS_NUM_GPU_WAYS && error == 0; way++) {
        if (value[RS_NUM_HOST_WAYS + way] != NULL)
            error = read_way(yaml, value[RS_NUM_HOST_WAYS + way], 0,
                             read.gpu[way]);
    }
    for (int way = 0; way < RS_NUM_VERBS_WAYS && error == 0; way++) {
        if (value[VERBS + way] != NULL)
            error = read_costs(yaml, value[VERBS + way], NULL, &read.verbs[way]);
    }
    if (error == 0 && value[RS_WAY_LANDING] == NULL &&
        (host || (!rs_ways_have_gpu(&read) && !rs_ways_have_verbs(&read))))
        error = rs_yaml_fail(yaml, node, "ways has no key 'landing'");
    if (error == 0)
        error = rs_yaml_whole(yaml, value[NONTEMPORAL], "nontemporal",
                              UINT64_MAX, &nontemporal);
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++) {
        read.host[d].least_once = RS_WAY_ONCE_LEAST;
        read.host[d].least_pull = RS_WAY_PULL_LEAST;
        read.host[d].nontemporal = nontemporal;
    }
    read.nontemporal_given = value[NONTEMPORAL] != NULL;
    if (error == 0)
        *ways = read;
    return error;
}

static void write_time(FILE *out, const char *name, uint64_t ps)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, "%s: %s us", name, rs_format_us(ps, text));
}

static void write_ranges(FILE *out, const char *name,
                         const struct rs_way_cost *cost)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, "%s: [", name);
    for (uint32_t i = 0; i < cost->num_ranges; i++) {
        fputs(i > 0 ? ", {" : "{", out);
        if (i > 0)
            fprintf(out, "from: %llu, ",
                    (unsigned long long)cost->ranges[i].from);
        fprintf(out, "rate: %s}", rs_format_rate(cost->ranges[i].rate, text));
    }
    fputc(']', out);
}

static void write_costs(FILE *out, const struct rs_way_costs *c)
{
    write_time(out, "{L", c->latency);
    if (c->sync > 0)
        write_time(out, ", S", c->sync);
    write_time(out, ",\n     o", c->work.message);
    write_ranges(out, ", O", &c->work);
    write_time(out, ",\n     g", c->gap.message);
    write_ranges(out, ", G", &c->gap);
    if (c->block > 0)
        write_time(out, ",\n     block", c->block);
    fputs("}\n", out);
}

/* Costs from `first` on, by distance where they differ. */
static void write_way(FILE *out, enum rs_way way, enum rs_distance first,
                      const struct rs_way_costs *at)
{
    bool any = false, equal = true;

    for (enum rs_distance d = first; d < RS_NUM_DISTANCES; d++) {
        any = any || at[d].given;
        equal = equal && rs_way_costs_equal(&at[d], &at[first]);
    }
    if (!any)
        return;
    fprintf(out, "  %s:\n    ", rs_way_name(way));
    if (equal) {
        write_costs(out, &at[first]);
        return;
    }
    any = false;
    for (enum rs_distance d = first; d < RS_NUM_DISTANCES; d++) {
        if (!at[d].given)
            continue;
        fprintf(out, "%s%s: ", any ? "    " : "", rs_distance_name(d));
        write_costs(out, &at[d]);
        any = true;
    }
}

static void write_host_way(FILE *out, enum rs_way way,
                           const struct rs_ways *ways)
{
    struct rs_way_costs at[RS_NUM_DISTANCES];

    for (enum rs_distance d = RS_FIRST_HOST_DISTANCE; d < RS_NUM_DISTANCES; d++)
        at[d] = rs_ways_host(ways, d)->of[way];
    write_way(out, way, RS_FIRST_HOST_DISTANCE, at);
}

void rs_ways_write(const struct rs_ways *ways, FILE *out)
{
    fputs("ways:\n", out);
    for (enum rs_way way = 0; way < RS_NUM_WAYS; way++) {
        if (way >= RS_NUM_HOST_WAYS)
            write_way(out, way, 0, ways->gpu[way - RS_NUM_HOST_WAYS]);
        else
            write_host_way(out, way, ways);
    }
    for (int way = 0; way < RS_NUM_VERBS_WAYS; way++) {
        if (!ways->verbs[way].given)
            continue;
        fprintf(out, "  %s:\n    ", rs_verbs_way_name((enum rs_verbs_way)way));
        write_costs(out, &ways->verbs[way]);
    }
    if (ways->host[0].nontemporal > 0)
        fprintf(out, "  nontemporal: %llu\n",
                (unsigned long long)ways->host[0].nontemporal);
}
