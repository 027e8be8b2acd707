/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges over the interpreter. */
#ifndef TESTS_ONLY_H
#define TESTS_ONLY_H

#include "librsched/base/sources.h"
#include "tests/runtime/ranks.h"

/** Replace all engines of a rank's context by the one of engine.c.
 * @param sources its costs of strided memory, which stay as long as the
 *                context; NULL: the usual ones
 * @return 0 or an error */
int only_interpreter(struct rank *self, const struct rs_sources *sources);

#endif
