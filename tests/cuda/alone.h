/* SPDX-License-Identifier: BSD-3-Clause */
/* ALONE: a process that exchanges with itself. What does not work fails the test,
 * which is Criterion's. */
#ifndef TESTS_CUDA_ALONE_H
#define TESTS_CUDA_ALONE_H

#include <stdint.h>

#include <rsched/rsched.h>

#include "tests/cuda/program.h"

enum { ALONE_BYTES = 10000 };

/** Memory of the GPU whose context is current. */
char *alone_allocate(struct program *p, size_t bytes);
struct rsched_context *alone_context(void);
/** An epoch. */
void alone_run(struct rsched_exchange *exchange);
/** That the driver has done. */
uint64_t alone_copies(struct program *p);

#endif
