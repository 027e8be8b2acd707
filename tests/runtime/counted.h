/* SPDX-License-Identifier: BSD-3-Clause */
/* What a thread allocates and which system calls it makes. A program that links
 * counted.c has its malloc(), calloc(), realloc() and free(). */
#ifndef TESTS_COUNTED_H
#define TESTS_COUNTED_H

#include <stdint.h>

#include "tests/runtime/ranks.h"

/* Sanitizers allocate and make system calls of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0
#else
#define COUNTED 1
#endif

struct counted {
    uint64_t allocations; /* and releases */
    int calls, last_call;
};

/** From now on each system call of this thread is counted instead of made, but
 * for write(), and what it takes to exit: a thread that has begun ends with its
 * process, by counted_end(). @return 0, or -1 with errno */
int counted_begin(void);

/** End the process of a rank, well, if it has allocated nothing and made no
 * system call since it began. @return otherwise: 1 */
int counted_end(const struct rank *self);

/** What this thread has done since it began, or, if it has not, what it has
 * allocated. */
struct counted counted_now(void);

#endif
