/* SPDX-License-Identifier: BSD-3-Clause */
/* The pattern's inside, for planners and for the folder's own files. */
#ifndef RS_PATTERNS_PATTERN_H
#define RS_PATTERNS_PATTERN_H

#include <rsched/pattern.h>

#include "librsched/base/names.h"

/** A put or a receive. */
struct rs_transfer {
    struct rsched_put put;   /* its strings and runs belong to the pattern */
    struct rsched_run *runs; /* what put.layout.runs points at */
    uint32_t direction;      /* number of put.direction in `directions` */
    uint32_t line, column;   /* where it stands in the file, or 0 */
};

struct rs_transfers {
    struct rs_transfer *items;
    size_t count;
    size_t capacity;
    uint64_t bytes;
};

struct rsched_pattern {
    char *name;
    char *source; /* the file it was read from, or NULL */
    struct rs_names directions; /* all that occur, each once */
    struct rs_transfers puts;
    struct rs_transfers receives;
};

/** Copy a pattern. @return 0, RSCHED_ENOMEM */
int rs_pattern_copy(const struct rsched_pattern *pattern,
                    struct rsched_pattern **copy);

/** Fail with "file:line:column: put ID: cause", or without the place when the
 * pattern was not read from a file. */
int rs_pattern_fail(const struct rsched_pattern *pattern, size_t put,
                    int error, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

#endif
