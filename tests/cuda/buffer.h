/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of tests, in host memory and in GPU memory. */
#ifndef TESTS_CUDA_BUFFER_H
#define TESTS_CUDA_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/cuda/program.h"

struct buffer {
    char *address; /* that rsched is told */
    char *touch;   /* where the processor finds the same bytes, or, of a real
                    * GPU, its own ones */
    size_t bytes;
    bool on_gpu;
    CUmemGenericAllocationHandle memory; /* of cuMemCreate, or 0 */
};

/** Host memory, or memory of the GPU whose context is current. Aborts if there
 * is none. */
void buffer_init(struct program *p, struct buffer *b, size_t bytes,
                 bool on_gpu);

/** Memory of that GPU which has no handle, but may be exported as a descriptor
 * if asked. */
void buffer_map(struct program *p, struct buffer *b, size_t bytes,
                bool exportable, int gpu);

/** Other memory at the address of what buffer_map() has made exportable. */
void buffer_remap(struct program *p, struct buffer *b, int gpu);

void buffer_fini(struct program *p, struct buffer *b);

/** Bring to the GPU what the processor has written. Before they are sent. */
void buffer_push(struct program *p, const struct buffer *b);
/** Bring to the processor what has come. */
void buffer_pull(struct program *p, const struct buffer *b);

#endif
