/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory of random programs: of the driver in software, with processors let at
 * it, since the native MPI does not know it. */
#ifndef TESTS_MPI_PROGRAMS_GPU_H
#define TESTS_MPI_PROGRAMS_GPU_H

#include <stddef.h>

void gpu_memory_begin(void);
/** It stays until the next drop. Aborts if there is none. */
char *gpu_memory(size_t bytes);
void gpu_memory_drop(void);
void gpu_memory_end(void);

#endif
