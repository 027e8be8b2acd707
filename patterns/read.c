/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading pattern/1; docs/formats.md describes it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/file.h"
#include "librsched/base/yaml.h"
#include "patterns/pattern.h"

struct reader {
    const struct rs_yaml *yaml;
    struct rsched_pattern *pattern;
};

static int read_run(const struct rs_yaml *yaml,
                    const struct rs_yaml_node *node, struct rsched_run *run)
{
    static const struct rs_yaml_key keys[] = {{"offset", true},
                                              {"block", true},
                                              {"count", false},
                                              {"stride", false},
                                              {NULL, false}};
    const struct rs_yaml_node *value[4];
    int error = rs_yaml_map(yaml, node, "a layout", keys, value);

    *run = (struct rsched_run){.count = 1};
    if (error == 0)
        error = rs_yaml_signed(yaml, value[0], "offset", &run->offset);
    if (error == 0)
        error = rs_yaml_whole(yaml, value[1], "block", UINT64_MAX,
                              &run->bytes);
    if (error == 0)
        error = rs_yaml_whole(yaml, value[2], "count", UINT64_MAX,
                              &run->count);
    if (error == 0)
        error = rs_yaml_signed(yaml, value[3], "stride", &run->stride);
    if (error == 0 && run->count == 0)
        error = rs_yaml_fail(yaml, value[2], "count must be at least 1");
    if (error == 0 && run->count > 1 && value[3] == NULL)
        error = rs_yaml_fail(yaml, node, "a layout with a count above 1 has "
                                         "no key 'stride'");
    return error;
}

/* A layout is one run, or a list of runs. */
static int read_layout(const struct rs_yaml *yaml,
                       const struct rs_yaml_node *node,
                       struct rsched_layout *layout)
{
    bool list = node->kind == RS_YAML_LIST;
    const struct rs_yaml_node *item = list ? node->first : node;
    size_t count = list ? node->count : 1;
    struct rsched_run *runs;

    if (count == 0)
        return rs_yaml_fail(yaml, node, "layout is an empty list");
    runs = calloc(count, sizeof(*runs));
    if (runs == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    for (size_t i = 0; i < count; i++, item = item->next) {
        int error = read_run(yaml, item, &runs[i]);

        if (error != 0) {
            free(runs);
            return error;
        }
    }
    layout->runs = runs;
    layout->num_runs = count;
    return 0;
}

static int read_memory(const struct rs_yaml *yaml,
                       const struct rs_yaml_node *node, struct rsched_put *put)
{
    const char *word = "host";
    int error = rs_yaml_text(yaml, node, "memory", &word);

    if (error != 0)
        return error;
    if (strcmp(word, "device") == 0)
        put->memory = RSCHED_MEMORY_DEVICE;
    else if (strcmp(word, "host") != 0)
        return rs_yaml_fail(yaml, node, "memory must be host or device, not "
                                        "'%.64s'", word);
    return 0;
}

static int read_number(const struct rs_yaml *yaml,
                       const struct rs_yaml_node *node, const char *what,
                       int *number)
{
    uint64_t value = 0;
    int error = rs_yaml_whole(yaml, node, what, INT_MAX, &value);

    if (error == 0 && node != NULL)
        *number = (int)value;
    return error;
}

enum { BYTES, DIRECTION, FROM, TO, LAYOUT, MEMORY, DEVICE, NUM_PUT_KEYS };

static const struct rs_yaml_key put_keys[] = {
    {"bytes", true},   {"direction", true}, {"from", false},
    {"to", false},     {"layout", false},   {"memory", false},
    {"device", false}, {NULL, false}};

static int read_fields(const struct rs_yaml *yaml,
                       const struct rs_yaml_node *const *value,
                       struct rsched_put *put)
{
    int error = rs_yaml_whole(yaml, value[BYTES], "bytes", UINT64_MAX,
                              &put->bytes);

    if (error == 0)
        error = rs_yaml_text(yaml, value[DIRECTION], "direction",
                             &put->direction);
    if (error == 0 && strlen(put->direction) > RSCHED_DIRECTION_MAX)
        error = rs_yaml_fail(yaml, value[DIRECTION], "a direction longer "
                             "than %d bytes", RSCHED_DIRECTION_MAX);
    if (error == 0)
        error = read_number(yaml, value[FROM], "from", &put->source);
    if (error == 0)
        error = read_number(yaml, value[TO], "to", &put->destination);
    if (error == 0)
        error = read_memory(yaml, value[MEMORY], put);
    if (error == 0)
        error = read_number(yaml, value[DEVICE], "device", &put->device);
    if (error == 0 && put->device > 0 && put->memory == RSCHED_MEMORY_HOST)
        error = rs_yaml_fail(yaml, value[DEVICE], "a device, but not "
                                                  "'memory: device'");
    return error;
}

static int read_put(struct reader *reader, const struct rs_yaml_node *node,
                    bool receive)
{
    const struct rs_yaml *yaml = reader->yaml;
    struct rsched_pattern *pattern = reader->pattern;
    struct rs_transfers *list = receive ? &pattern->receives : &pattern->puts;
    const struct rs_yaml_node *value[NUM_PUT_KEYS];
    struct rsched_put put = {.source = RSCHED_ANY_PROCESS,
                             .destination = RSCHED_ANY_PROCESS};
    int64_t id;
    int error = rs_yaml_map(yaml, node, receive ? "a receive" : "a put",
                            put_keys, value);

    if (error == 0)
        error = read_fields(yaml, value, &put);
    if (error == 0 && value[LAYOUT] != NULL)
        error = read_layout(yaml, value[LAYOUT], &put.layout);
    if (error != 0)
        return error;
    id = receive ? rsched_pattern_add_receive(pattern, &put)
                 : rsched_pattern_add_put(pattern, &put);
    free((void *)put.layout.runs);
    if (id < 0) {
        const struct rs_yaml_node *at = value[LAYOUT] ? value[LAYOUT] : node;
        char cause[512];

        if (id == RSCHED_ENOMEM)
            return (int)id;
        snprintf(cause, sizeof(cause), "%s", rsched_last_error());
        return rs_yaml_fail(yaml, at, "%s", cause);
    }
    list->items[id].line = (uint32_t)node->line;
    list->items[id].column = (uint32_t)node->column;
    return 0;
}

static int read_list(struct reader *reader, const struct rs_yaml_node *node,
                     bool receive)
{
    int error = 0;

    if (node == NULL)
        return 0;
    error = rs_yaml_expect(reader->yaml, node, RS_YAML_LIST,
                           receive ? "receives" : "puts");
    for (node = node->first; error == 0 && node != NULL; node = node->next)
        error = read_put(reader, node, receive);
    return error;
}

static int read_pattern(const struct rs_yaml *yaml,
                        struct rsched_pattern **pattern)
{
    static const struct rs_yaml_key keys[] = {{"rsched", true},
                                              {"name", true},
                                              {"puts", true},
                                              {"receives", false},
                                              {NULL, false}};
    const struct rs_yaml_node *value[4];
    struct reader reader = {.yaml = yaml};
    const char *name = NULL;
    int error = rs_yaml_format(yaml, "pattern/1");

    if (error == 0)
        error = rs_yaml_map(yaml, yaml->root, "a pattern", keys, value);
    if (error == 0)
        error = rs_yaml_text(yaml, value[1], "name", &name);
    if (error == 0)
        error = rsched_pattern_create(name, &reader.pattern);
    if (error != 0)
        return error;
    reader.pattern->source = strdup(yaml->name);
    if (reader.pattern->source == NULL)
        error = rs_fail(RSCHED_ENOMEM, "%s: no memory", yaml->name);
    if (error == 0)
        error = read_list(&reader, value[2], false);
    if (error == 0)
        error = read_list(&reader, value[3], true);
    if (error != 0) {
        rsched_pattern_destroy(reader.pattern);
        return error;
    }
    *pattern = reader.pattern;
    return 0;
}

int rsched_pattern_parse(const char *name, const char *text, size_t length,
                         struct rsched_pattern **pattern)
{
    struct rs_yaml *yaml;
    int error = rs_yaml_parse(name, text, length, &yaml);

    if (error != 0)
        return error;
    error = read_pattern(yaml, pattern);
    rs_yaml_destroy(yaml);
    return error;
}

int rsched_pattern_load(const char *path, struct rsched_pattern **pattern)
{
    struct rs_yaml *yaml;
    int error = rs_yaml_load(path, &yaml);

    if (error != 0)
        return error;
    error = read_pattern(yaml, pattern);
    rs_yaml_destroy(yaml);
    return error;
}

int rsched_pattern_open(const char *name, struct rsched_pattern **pattern)
{
    if (rs_file_is_meant(name))
        return rsched_pattern_load(name, pattern);
    return rsched_pattern_builtin(name, pattern);
}
