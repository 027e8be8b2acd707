/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strict YAML, for every file format of ours. A document is read into a tree
 * in which each node knows its line and column; what our formats do not need
 * (several documents, anchors, aliases, tags, deep nesting) is an error.
 *
 * All errors are RSCHED_EPARSE with a text "name:line:column: cause", lines
 * and columns counted from 1. JSON is a subset of what is read.
 */
#ifndef RS_BASE_YAML_H
#define RS_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "librsched/base/names.h"

enum rs_yaml_kind { RS_YAML_SCALAR, RS_YAML_LIST, RS_YAML_MAP };

struct rs_yaml_node {
    enum rs_yaml_kind kind;
    bool quoted; /* a scalar in quotes is never a number */
    size_t line, column;
    const char *file; /* where it stands, when not in the document's file */
    char *text;                 /* of a scalar */
    struct rs_yaml_node *first; /* of a list: items; of a map: keys */
    struct rs_yaml_node *next;  /* the next item, or the next key */
    struct rs_yaml_node *value; /* of a key */
    size_t count;               /* items or keys */
    struct rs_yaml_node *all;   /* chain of all nodes of the document */
};

struct rs_yaml {
    char *name; /* the path in error texts */
    struct rs_yaml_node *root; /* never NULL */
    struct rs_yaml_node *all;
    struct rs_yaml *base; /* kept for its name; see rs_yaml_extend() */
};

/** One key that a map may have. */
struct rs_yaml_key {
    const char *name;
    bool required;
};

/**
 * Read one document from memory.
 *
 * @param name stands for the path in error texts
 * @return 0, RSCHED_EPARSE, RSCHED_ENOMEM; on success rs_yaml_destroy() it
 */
int rs_yaml_parse(const char *name, const char *text, size_t length,
                  struct rs_yaml **yaml);

/** As rs_yaml_parse(), from a file; "-" is standard input.
 * @return also RSCHED_ESYS, RSCHED_ELIMIT as rs_file_read() */
int rs_yaml_load(const char *path, struct rs_yaml **yaml);

void rs_yaml_destroy(struct rs_yaml *yaml);

/**
 * Add to a document whose root is a map what it lacks of another one: keys
 * that only `base` has, and likewise within the maps under the keys that both
 * have, unless `whole` names them. What the base has stands first, so that
 * additions follow it. Errors in nodes of the base name the base's file.
 *
 * @param base its root is a map; the document takes it over
 */
void rs_yaml_extend(struct rs_yaml *yaml, struct rs_yaml *base,
                    const char *const *whole);

/** Set the error text "name:line:column: cause" and return RSCHED_EPARSE. */
int rs_yaml_fail(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/** Fail unless a node is of a kind; `what` names it in the text. */
int rs_yaml_expect(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                   enum rs_yaml_kind kind, const char *what);

/**
 * Take a map apart: every key must be one of `keys`, once, and the required
 * ones must be there.
 *
 * @param keys   ends with a key whose name is NULL
 * @param values one per key: its value, or NULL when the key is absent
 */
int rs_yaml_map(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                const char *what, const struct rs_yaml_key *keys,
                const struct rs_yaml_node **values);

/** Check that the root is a map that starts a document of our format, for
 * instance "pattern/1", under the key "rsched". */
int rs_yaml_format(const struct rs_yaml *yaml, const char *format);

/* Scalars. On success the value is stored; it is left alone otherwise. A NULL
 * node (an absent key) is a success that leaves the value alone too. */
int rs_yaml_text(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *what, const char **value);
int rs_yaml_whole(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                  const char *what, uint64_t most, uint64_t *value);
int rs_yaml_signed(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                   const char *what, int64_t *value);
int rs_yaml_time(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *what, uint64_t *ps);
int rs_yaml_us(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
               const char *what, uint64_t *ps);
int rs_yaml_rate(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 const char *what, uint64_t *rate);

/** Write a text as a scalar, in double quotes when a plain one could be read
 * as something else. The text is UTF-8. */
void rs_yaml_write_text(FILE *out, const char *text);

#endif
