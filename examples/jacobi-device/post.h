/* SPDX-License-Identifier: BSD-3-Clause */
/** @file
 * POST: an out-of-band way between the threads of a process, as struct rsched_oob
 * wants it. */
#ifndef JACOBI_POST_H
#define JACOBI_POST_H

#include <rsched/context.h>

struct post;

/** NULL when memory is short. */
struct post *post_create(void);
/** Nobody uses it any more. */
void post_destroy(struct post *post);

/** One rank's end of it. */
struct post_end {
    struct post *post;
    int rank;
};

/** The callbacks; the end must outlive the context. */
struct rsched_oob post_oob(struct post_end *end);

#endif
