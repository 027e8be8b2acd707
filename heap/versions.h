/* SPDX-License-Identifier: BSD-3-Clause */
/* VERSIONS of symbols: what a library may have that we do not know. */
#ifndef RS_HEAP_VERSIONS_H
#define RS_HEAP_VERSIONS_H

#include <stdbool.h>

/**
 * Whether all versions of symbols that the library of a function defines are known:
 * `prefix`N with N up to `newest`, also `prefix`N.M, and whatever begins with `aside`.
 */
bool heap_versions_known(const void *function, const char *prefix, unsigned newest,
                         const char *aside);

#endif
