/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/yaml.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "librsched/base/error.h"
#include "librsched/base/file.h"
#include "librsched/base/units.h"

/* Our formats need five levels; the limit keeps a hostile file cheap. */
enum { DEPTH = 12 };

struct builder {
    struct rs_yaml *yaml;
    yaml_parser_t parser;
    struct {
        struct rs_yaml_node *node;
        struct rs_yaml_node **tail; /* where the next item or key goes */
        struct rs_yaml_node *key;   /* waits for its value */
        struct rs_names seen;       /* of a map: the keys so far */
    } open[DEPTH];
    size_t depth;
};

static int fail_at(const struct rs_yaml *yaml, size_t line, size_t column,
                   const char *cause)
{
    return rs_fail(RSCHED_EPARSE, "%s:%zu:%zu: %s", yaml->name, line, column,
                   cause);
}

static int fail_mark(const struct rs_yaml *yaml, const yaml_mark_t *mark,
                     const char *cause)
{
    return fail_at(yaml, mark->line + 1, mark->column + 1, cause);
}

int rs_yaml_fail(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *format, ...)
{
    char cause[768];
    va_list args;

    va_start(args, format);
    vsnprintf(cause, sizeof(cause), format, args);
    va_end(args);
    /* Texts from the file must not break the line of the message. */
    for (char *c = cause; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    }
    if (node->file != NULL)
        return rs_fail(RSCHED_EPARSE, "%s:%zu:%zu: %s", node->file, node->line,
                       node->column, cause);
    return fail_at(yaml, node->line, node->column, cause);
}

/* The reader of libyaml reports a byte offset; find its line and column. */
static int fail_offset(const struct rs_yaml *yaml, const char *text,
                       size_t offset, const char *cause)
{
    size_t line = 1, column = 1;

    for (size_t i = 0; i < offset; i++) {
        column++;
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xc0) == 0x80) {
            column--;
        }
    }
    return fail_at(yaml, line, column, cause);
}

static int fail_parser(const struct builder *builder, const char *text,
                       size_t length)
{
    const yaml_parser_t *parser = &builder->parser;
    const char *problem = parser->problem ? parser->problem : "not YAML";
    size_t offset = parser->problem_offset;

    switch (parser->error) {
    case YAML_MEMORY_ERROR:
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", builder->yaml->name);
    case YAML_READER_ERROR:
        return fail_offset(builder->yaml, text,
                           offset < length ? offset : length, problem);
    default:
        return fail_mark(builder->yaml, &parser->problem_mark, problem);
    }
}

static struct rs_yaml_node *add_node(struct builder *builder,
                                     enum rs_yaml_kind kind,
                                     const yaml_mark_t *mark)
{
    struct rs_yaml_node *node = calloc(1, sizeof(*node));

    if (node == NULL) {
        rs_fail(RSCHED_ENOMEM, "%s: no memory", builder->yaml->name);
        return NULL;
    }
    node->kind = kind;
    node->line = mark->line + 1;
    node->column = mark->column + 1;
    node->all = builder->yaml->all;
    builder->yaml->all = node;
    return node;
}

/* A key of the innermost map has come. */
static int add_key(struct builder *builder, struct rs_yaml_node *node)
{
    struct rs_names *seen = &builder->open[builder->depth - 1].seen;
    size_t count = seen->count;
    int64_t number;

    if (node->kind != RS_YAML_SCALAR)
        return rs_yaml_fail(builder->yaml, node, "a key must be a word");
    number = rs_names_add(seen, node->text);
    if (number < 0)
        return (int)number;
    if (seen->count == count)
        return rs_yaml_fail(builder->yaml, node, "duplicate key '%s'",
                            node->text);
    builder->open[builder->depth - 1].key = node;
    return 0;
}

/* Hang a node where it belongs: root, item, key or value. */
static int attach(struct builder *builder, struct rs_yaml_node *node)
{
    size_t top = builder->depth - 1;
    struct rs_yaml_node *parent;
    int error = 0;

    if (builder->depth == 0) {
        builder->yaml->root = node;
        return 0;
    }
    parent = builder->open[top].node;
    if (builder->open[top].key != NULL) {
        builder->open[top].key->value = node;
        builder->open[top].key = NULL;
        return 0;
    }
    if (parent->kind == RS_YAML_MAP)
        error = add_key(builder, node);
    *builder->open[top].tail = node;
    builder->open[top].tail = &node->next;
    parent->count++;
    return error;
}

static int open_node(struct builder *builder, enum rs_yaml_kind kind,
                     const yaml_mark_t *mark)
{
    struct rs_yaml_node *node;
    int error;

    if (builder->depth == DEPTH)
        return fail_mark(builder->yaml, mark, "nested too deeply");
    node = add_node(builder, kind, mark);
    if (node == NULL)
        return RSCHED_ENOMEM;
    error = attach(builder, node);
    if (error != 0)
        return error;
    memset(&builder->open[builder->depth], 0, sizeof(builder->open[0]));
    builder->open[builder->depth].node = node;
    builder->open[builder->depth].tail = &node->first;
    builder->depth++;
    return 0;
}

static int add_scalar(struct builder *builder, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    struct rs_yaml_node *node;

    if (strlen(text) != event->data.scalar.length)
        return fail_mark(builder->yaml, &event->start_mark,
                         "a text must not contain a zero byte");
    node = add_node(builder, RS_YAML_SCALAR, &event->start_mark);
    if (node == NULL)
        return RSCHED_ENOMEM;
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = strdup(text);
    if (node->text == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", builder->yaml->name);
    return attach(builder, node);
}

/* Anchors and tags, which no format of ours has. */
static int check_plain(const struct builder *builder,
                       const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor != NULL)
        return fail_mark(builder->yaml, &event->start_mark,
                         "anchors are not allowed");
    if (tag != NULL)
        return fail_mark(builder->yaml, &event->start_mark,
                         "tags are not allowed");
    return 0;
}

static int handle(struct builder *builder, const yaml_event_t *event)
{
    int error = check_plain(builder, event);

    if (error != 0)
        return error;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (builder->yaml->root != NULL)
            return fail_mark(builder->yaml, &event->start_mark,
                             "a second document");
        return 0;
    case YAML_ALIAS_EVENT:
        return fail_mark(builder->yaml, &event->start_mark,
                         "aliases are not allowed");
    case YAML_SCALAR_EVENT:
        return add_scalar(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_node(builder, RS_YAML_LIST, &event->start_mark);
    case YAML_MAPPING_START_EVENT:
        return open_node(builder, RS_YAML_MAP, &event->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        rs_names_fini(&builder->open[--builder->depth].seen);
        return 0;
    default:
        return 0;
    }
}

static int build(struct builder *builder, const char *text, size_t length)
{
    yaml_event_type_t type;

    do {
        yaml_event_t event;
        int error;

        if (!yaml_parser_parse(&builder->parser, &event))
            return fail_parser(builder, text, length);
        type = event.type;
        error = handle(builder, &event);
        yaml_event_delete(&event);
        if (error != 0)
            return error;
    } while (type != YAML_STREAM_END_EVENT);
    if (builder->yaml->root == NULL)
        return fail_at(builder->yaml, 1, 1, "the document is empty");
    return 0;
}

int rs_yaml_parse(const char *name, const char *text, size_t length,
                  struct rs_yaml **yaml)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8 */
    struct builder builder = {0};
    int error;

    if (length >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0) {
        text += strlen(mark);
        length -= strlen(mark);
    }
    builder.yaml = calloc(1, sizeof(*builder.yaml));
    if (builder.yaml == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", name);
    builder.yaml->name = strdup(name);
    if (builder.yaml->name == NULL || !yaml_parser_initialize(&builder.parser)) {
        error = rs_fail(RSCHED_ENOMEM, "%s: no memory", name);
        goto err_destroy;
    }
    yaml_parser_set_encoding(&builder.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&builder.parser, (const unsigned char *)text,
                                 length);
    error = build(&builder, text, length);
    yaml_parser_delete(&builder.parser);
    while (builder.depth > 0)
        rs_names_fini(&builder.open[--builder.depth].seen);
    if (error != 0)
        goto err_destroy;
    *yaml = builder.yaml;
    return 0;

err_destroy:
    rs_yaml_destroy(builder.yaml);
    return error;
}

int rs_yaml_load(const char *path, struct rs_yaml **yaml)
{
    char *text;
    size_t length;
    int error = rs_file_read(path, &text, &length);

    if (error != 0)
        return error;
    error = rs_yaml_parse(strcmp(path, "-") == 0 ? "standard input" : path,
                          text, length, yaml);
    free(text);
    return error;
}

void rs_yaml_destroy(struct rs_yaml *yaml)
{
    if (yaml == NULL)
        return;
    while (yaml->all != NULL) {
        struct rs_yaml_node *node = yaml->all;

        yaml->all = node->all;
        free(node->text);
        free(node);
    }
    rs_yaml_destroy(yaml->base);
    free(yaml->name);
    free(yaml);
}

static bool is_whole(const char *text, const char *const *whole)
{
    while (*whole != NULL && strcmp(*whole, text) != 0)
        whole++;
    return *whole != NULL;
}

/* Move the keys of one map into another one, before its own; a key that both
 * have stands where the base has it. */
static void merge(struct rs_yaml_node *map, struct rs_yaml_node *base,
                  const char *const *whole)
{
    struct rs_yaml_node *own = map->first, **last = &map->first;

    for (struct rs_yaml_node *key = base->first, *next; key; key = next) {
        struct rs_yaml_node **found = &own;

        next = key->next;
        while (*found != NULL && strcmp((*found)->text, key->text) != 0)
            found = &(*found)->next;
        if (*found != NULL) {
            struct rs_yaml_node *over = *found;

            *found = over->next;
            if (whole != NULL && !is_whole(key->text, whole) &&
                over->value->kind == RS_YAML_MAP &&
                key->value->kind == RS_YAML_MAP)
                merge(over->value, key->value, NULL);
            key = over;
        } else {
            map->count++;
        }
        *last = key;
        last = &key->next;
    }
    *last = own;
    base->first = NULL;
}

void rs_yaml_extend(struct rs_yaml *yaml, struct rs_yaml *base,
                    const char *const *whole)
{
    struct rs_yaml_node **last = &yaml->all;

    for (struct rs_yaml_node *node = base->all; node; node = node->all) {
        if (node->file == NULL)
            node->file = base->name;
    }
    merge(yaml->root, base->root, whole);
    while (*last != NULL)
        last = &(*last)->all;
    *last = base->all;
    base->all = NULL;
    yaml->base = base;
}

int rs_yaml_expect(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                   enum rs_yaml_kind kind, const char *what)
{
    static const char *const words[] = {"a value", "a list", "a map"};

    if (node->kind == kind)
        return 0;
    return rs_yaml_fail(yaml, node, "%s must be %s, not %s", what, words[kind],
                        words[node->kind]);
}

static int fail_unknown(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *key, const char *what,
                        const struct rs_yaml_key *keys)
{
    char known[256] = "";
    size_t length = 0;

    for (; keys->name != NULL && length < sizeof(known); keys++)
        length += (size_t)snprintf(known + length, sizeof(known) - length,
                                   "%s%s", length ? ", " : "", keys->name);
    return rs_yaml_fail(yaml, key, "unknown key '%.64s' in %s (known: %s)",
                        key->text, what, known);
}

int rs_yaml_map(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                const char *what, const struct rs_yaml_key *keys,
                const struct rs_yaml_node **values)
{
    int error = rs_yaml_expect(yaml, node, RS_YAML_MAP, what);

    if (error != 0)
        return error;
    for (size_t i = 0; keys[i].name != NULL; i++)
        values[i] = NULL;
    for (const struct rs_yaml_node *key = node->first; key; key = key->next) {
        size_t i = 0;

        while (keys[i].name != NULL && strcmp(keys[i].name, key->text) != 0)
            i++;
        if (keys[i].name == NULL)
            return fail_unknown(yaml, key, what, keys);
        values[i] = key->value;
    }
    for (size_t i = 0; keys[i].name != NULL; i++) {
        if (keys[i].required && values[i] == NULL)
            return rs_yaml_fail(yaml, node, "%s has no key '%s'", what,
                                keys[i].name);
    }
    return 0;
}

int rs_yaml_format(const struct rs_yaml *yaml, const char *format)
{
    const struct rs_yaml_node *key;
    int error = rs_yaml_expect(yaml, yaml->root, RS_YAML_MAP, "the document");

    if (error != 0)
        return error;
    for (key = yaml->root->first; key != NULL; key = key->next) {
        if (strcmp(key->text, "rsched") == 0)
            break;
    }
    if (key == NULL)
        return rs_yaml_fail(yaml, yaml->root,
                            "the key 'rsched: %s' is missing", format);
    error = rs_yaml_expect(yaml, key->value, RS_YAML_SCALAR, "rsched");
    if (error == 0 && strcmp(key->value->text, format) != 0)
        error = rs_yaml_fail(yaml, key->value, "expected %s, not '%.64s'",
                             format, key->value->text);
    return error;
}

int rs_yaml_text(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *what, const char **value)
{
    int error;

    if (node == NULL)
        return 0;
    error = rs_yaml_expect(yaml, node, RS_YAML_SCALAR, what);
    if (error == 0 && *node->text == '\0' && !node->quoted)
        error = rs_yaml_fail(yaml, node, "%s has no value", what);
    if (error == 0)
        *value = node->text;
    return error;
}

static int fail_cause(const struct rs_yaml *yaml,
                      const struct rs_yaml_node *node, const char *what,
                      const char *cause)
{
    return rs_yaml_fail(yaml, node, "%s '%.64s': %s", what, node->text, cause);
}

/* Check that a node is a number without quotes; 1 means: go on. */
static int begin_number(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *node, const char *what)
{
    int error;

    if (node == NULL)
        return 0;
    error = rs_yaml_expect(yaml, node, RS_YAML_SCALAR, what);
    if (error == 0 && node->quoted)
        error = fail_cause(yaml, node, what, "expected a number, not a text");
    return error != 0 ? error : 1;
}

int rs_yaml_whole(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                  const char *what, uint64_t most, uint64_t *value)
{
    int go_on = begin_number(yaml, node, what);
    uint64_t number = 0;
    const char *cause;

    if (go_on != 1)
        return go_on;
    cause = rs_parse_whole(node->text, &number);
    if (cause != NULL)
        return fail_cause(yaml, node, what, cause);
    if (number > most)
        return rs_yaml_fail(yaml, node, "%s %" PRIu64 " is above %" PRIu64,
                            what, number, most);
    *value = number;
    return 0;
}

int rs_yaml_signed(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                   const char *what, int64_t *value)
{
    int go_on = begin_number(yaml, node, what);
    const char *cause;

    if (go_on != 1)
        return go_on;
    cause = rs_parse_signed(node->text, value);
    return cause != NULL ? fail_cause(yaml, node, what, cause) : 0;
}

int rs_yaml_us(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
               const char *what, uint64_t *ps)
{
    int go_on = begin_number(yaml, node, what);
    const char *cause;

    if (go_on != 1)
        return go_on;
    cause = rs_parse_us(node->text, ps);
    return cause != NULL ? fail_cause(yaml, node, what, cause) : 0;
}

int rs_yaml_time(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *what, uint64_t *ps)
{
    const char *text = NULL;
    const char *cause;
    int error = rs_yaml_text(yaml, node, what, &text);

    if (error != 0 || text == NULL)
        return error;
    cause = rs_parse_time(text, ps);
    return cause != NULL ? fail_cause(yaml, node, what, cause) : 0;
}

int rs_yaml_rate(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *what, uint64_t *rate)
{
    const char *text = NULL;
    const char *cause;
    int error = rs_yaml_text(yaml, node, what, &text);

    if (error != 0 || text == NULL)
        return error;
    cause = rs_parse_rate(text, rate);
    return cause != NULL ? fail_cause(yaml, node, what, cause) : 0;
}
