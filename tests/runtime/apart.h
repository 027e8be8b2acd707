/* SPDX-License-Identifier: BSD-3-Clause */
/* APART: ranks in namespaces of their own, as in containers. */
#ifndef TESTS_RUNTIME_APART_H
#define TESTS_RUNTIME_APART_H

#include "tests/runtime/ranks.h"

/** Whether the kernel lets us make such namespaces. @param spaces CLONE_NEW* */
bool apart_is_possible(int spaces);

/** Run `main` in a child of this rank's process, in namespaces of its own and with a
 * context of its own in place of the rank's, which is closed. @return what it
 * returns */
int apart_run(struct rank *self, int spaces, rank_fn *main);

#endif
