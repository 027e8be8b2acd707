/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of built-in patterns; each generator is one file. */
#ifndef RS_PATTERNS_BUILTIN_H
#define RS_PATTERNS_BUILTIN_H

#include <rsched/pattern.h>

/** How a generator is called. `arguments` are the parts of the specification
 * after the name, without the colons. */
struct rs_pattern_builtin {
    const char *name;
    size_t least, most; /* number of arguments */
    const char *help;   /* "SYNTAX\tdescription" */
    int (*fill)(const char *specification, char *const *arguments,
                size_t num_arguments, struct rsched_pattern *pattern);
};

int rs_pattern_fill_scale_les3(const char *specification,
                               char *const *arguments, size_t num_arguments,
                               struct rsched_pattern *pattern);
int rs_pattern_fill_halo2d(const char *specification, char *const *arguments,
                           size_t num_arguments,
                           struct rsched_pattern *pattern);
int rs_pattern_fill_halo3d(const char *specification, char *const *arguments,
                           size_t num_arguments,
                           struct rsched_pattern *pattern);

/** Append an SPMD put without layout. @return 0 or the error */
int rs_pattern_append(struct rsched_pattern *pattern, const char *direction,
                      uint64_t bytes);

#endif
