/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading and writing the key `ways`; docs/formats.md describes it. */
#include "models/ways.h"

#include "librsched/base/clock.h"
#include "librsched/base/units.h"
#include "models/machine.h"

const struct rs_ways *rs_machine_ways(const struct rsched_machine *machine)
{
    return machine->ways.of[RS_WAY_LANDING].given ? &machine->ways : NULL;
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

static int read_time(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node, const char *what,
                     uint64_t *ps)
{
    int error = rs_yaml_time(yaml, node, what, ps);

    if (error == 0 && *ps > RS_PS_PER_S)
        error = rs_yaml_fail(yaml, node, "%s is above 1 s", what);
    return error;
}

static int read_cost(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *message, const char *message_is,
                     const struct rs_yaml_node *ranges, const char *ranges_are,
                     struct rs_way_cost *cost)
{
    int error = read_time(yaml, message, message_is, &cost->message);

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

static int read_way(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                    struct rs_way_costs *costs)
{
    static const struct rs_yaml_key keys[] = {
        {"L", true}, {"o", true}, {"O", true},      {"g", true},
        {"G", true}, {"block", false}, {NULL, false}};
    const struct rs_yaml_node *value[6];
    int error = rs_yaml_map(yaml, node, "a way", keys, value);

    if (error == 0)
        error = read_time(yaml, value[0], "L", &costs->latency);
    if (error == 0)
        error = read_cost(yaml, value[1], "o", value[2], "O", &costs->work);
    if (error == 0)
        error = read_cost(yaml, value[3], "g", value[4], "G", &costs->gap);
    if (error == 0)
        error = read_time(yaml, value[5], "block", &costs->block);
    costs->given = error == 0;
    return error;
}

int rs_ways_read(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 struct rs_ways *ways)
{
    struct rs_yaml_key keys[RS_NUM_WAYS + 1] = {{NULL, false}};
    const struct rs_yaml_node *value[RS_NUM_WAYS];
    struct rs_ways read = {0};
    int error;

    /* Slots are there for what can go no other way. */
    for (enum rs_way way = 0; way < RS_NUM_WAYS; way++)
        keys[way] = (struct rs_yaml_key){rs_way_name(way),
                                         way == RS_WAY_LANDING};
    error = rs_yaml_map(yaml, node, "ways", keys, value);
    for (enum rs_way way = 0; way < RS_NUM_WAYS && error == 0; way++) {
        if (value[way] != NULL)
            error = read_way(yaml, value[way], &read.of[way]);
    }
    read.least_once = RS_WAY_ONCE_LEAST;
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

void rs_ways_write(const struct rs_ways *ways, FILE *out)
{
    fputs("ways:\n", out);
    for (enum rs_way way = 0; way < RS_NUM_WAYS; way++) {
        const struct rs_way_costs *c = &ways->of[way];

        if (!c->given)
            continue;
        fprintf(out, "  %s:\n    {", rs_way_name(way));
        write_time(out, "L", c->latency);
        write_time(out, ",\n     o", c->work.message);
        write_ranges(out, ", O", &c->work);
        write_time(out, ",\n     g", c->gap.message);
        write_ranges(out, ", G", &c->gap);
        if (c->block > 0)
            write_time(out, ",\n     block", c->block);
        fputs("}\n", out);
    }
}
