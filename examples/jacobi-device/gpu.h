/* SPDX-License-Identifier: BSD-3-Clause */
/** @file
 * GPU: what the solver needs of a GPU, from its driver, which is found at run
 * time. What fails ends the program, with a message. */
#ifndef JACOBI_GPU_H
#define JACOBI_GPU_H

#include <stddef.h>

/** Load the driver. @return NULL, or why no GPU can be used */
const char *gpu_find(int *count);

/** A rank's part: a context, a stream and the kernel. A thread uses its own. */
struct gpu;
struct gpu *gpu_open(int number);
void gpu_close(struct gpu *gpu);

/** Zeroed memory. */
void *gpu_allocate(struct gpu *gpu, size_t bytes);
void gpu_free(struct gpu *gpu, void *memory);
void gpu_write(struct gpu *gpu, void *to, const void *from, size_t bytes);
void gpu_read(struct gpu *gpu, void *to, const void *from, size_t bytes);

/** Run the kernel with a struct jacobi in GPU memory, and wait for its end. */
void gpu_run(struct gpu *gpu, void *jacobi);

#endif
