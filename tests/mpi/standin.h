/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RS_TESTS_MPI_STANDIN_H
#define RS_TESTS_MPI_STANDIN_H

#include <stdbool.h>

/** A descriptor of which nobody knows what it can do; -1: the kernel has none. */
int standin_open(void);

extern bool standin_fails;     /* what is called */
extern unsigned standin_calls; /* so many functions */

#endif
