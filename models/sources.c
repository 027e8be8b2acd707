/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading and writing the key `sources`; docs/formats.md describes it. */
#include "models/sources.h"

#include "librsched/base/units.h"
#include "models/machine.h"

const struct rs_sources *rs_machine_sources(const struct rsched_machine *machine)
{
    return machine->has_sources ? &machine->sources : &rs_sources_usual;
}

static int read_gather(const struct rs_yaml *yaml,
                       const struct rs_yaml_node *node, struct rs_sources *s)
{
    static const struct rs_yaml_key keys[] = {
        {"o", true}, {"block", true}, {NULL, false}};
    const struct rs_yaml_node *value[2];
    int error = rs_yaml_map(yaml, node, "gather", keys, value);

    if (error == 0)
        error = rs_machine_read_time(yaml, value[0], "gather.o",
                                     &s->gather_message);
    if (error == 0)
        error = rs_machine_read_time(yaml, value[1], "gather.block",
                                     &s->gather_block);
    return error;
}

static int read_scatter(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *node, struct rs_sources *s)
{
    static const struct rs_yaml_key keys[] = {{"block", true}, {NULL, false}};
    const struct rs_yaml_node *value[1];
    int error = rs_yaml_map(yaml, node, "scatter", keys, value);

    if (error == 0)
        error = rs_machine_read_time(yaml, value[0], "scatter.block",
                                     &s->scatter_block);
    return error;
}

static int read_pack(const struct rs_yaml *yaml,
                     const struct rs_yaml_node *node, struct rs_sources *s)
{
    static const struct rs_yaml_key keys[] = {
        {"block", true}, {"rate", true}, {NULL, false}};
    const struct rs_yaml_node *value[2];
    int error = rs_yaml_map(yaml, node, "pack", keys, value);

    if (error == 0)
        error = rs_machine_read_time(yaml, value[0], "pack.block",
                                     &s->pack_block);
    if (error == 0)
        error = rs_yaml_rate(yaml, value[1], "pack.rate", &s->pack_rate);
    return error;
}

int rs_sources_read(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                    struct rs_sources *sources)
{
    static const struct rs_yaml_key keys[] = {
        {"gather", false}, {"scatter", false}, {"pack", false}, {NULL, false}};
    const struct rs_yaml_node *value[3];
    struct rs_sources read = rs_sources_usual;
    int error = rs_yaml_map(yaml, node, "sources", keys, value);

    if (error == 0 && value[0] != NULL)
        error = read_gather(yaml, value[0], &read);
    if (error == 0 && value[1] != NULL)
        error = read_scatter(yaml, value[1], &read);
    if (error == 0 && value[2] != NULL)
        error = read_pack(yaml, value[2], &read);
    if (error == 0)
        *sources = read;
    return error;
}

static void write_time(FILE *out, const char *before, uint64_t ps)
{
    char text[RS_UNITS_TEXT];

    fprintf(out, "%s%s us", before, rs_format_us(ps, text));
}

void rs_sources_write(const struct rs_sources *sources, FILE *out)
{
    char text[RS_UNITS_TEXT];

    write_time(out, "sources:\n  gather: {o: ", sources->gather_message);
    write_time(out, ", block: ", sources->gather_block);
    write_time(out, "}\n  scatter: {block: ", sources->scatter_block);
    write_time(out, "}\n  pack: {block: ", sources->pack_block);
    fprintf(out, ", rate: %s}\n", rs_format_rate(sources->pack_rate, text));
}
