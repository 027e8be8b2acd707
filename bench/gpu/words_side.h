/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIDE: who runs the kernels, a GPU or processors in its place, and the memory that
 * they share with the host. Of a GPU it lies as the library's own openings have it:
 * what a kernel writes often in the GPU's memory, what the host writes in its own.
 * What fails ends the program, with a message.
 */
#ifndef BENCH_GPU_WORDS_SIDE_H
#define BENCH_GPU_WORDS_SIDE_H

#include "engines/mlx5/gpu.h"
#include "words.h"

struct words_side {
    const char *name;     /* of who runs them */
    const char *cycles;   /* whose they are */
    uint32_t warp;        /* threads of one */
    uint32_t most_groups; /* at once */
    struct rs_gpu_memory memory; /* the host's, and how kernels get to it */
    /** Where kernels have what memory.allocate has given. */
    void *(*seen)(void *host);
    /** Memory of the kernels' own, and copies to and from there. */
    void *(*allocate)(uint64_t bytes);
    void (*release)(void *memory);
    void (*copy)(void *to, const void *from, uint64_t bytes);
    /** Run a job, which lies there in the kernels' own memory, to its end. */
    void (*run)(const struct words_job *there, const struct words_job *job);
    void (*end)(void);
};

/** @return NULL, or why there is no GPU, or no kernel for it */
const char *words_begin_gpu(struct words_side *side);
void words_begin_threads(struct words_side *side);

#endif
