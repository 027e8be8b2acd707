/* SPDX-License-Identifier: BSD-3-Clause */
#include "words_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *seen(void *host)
{
    return host;
}

static void *allocate(uint64_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (memory == NULL) {
        fputs("rsched-bench-words: no memory\n", stderr);
        exit(1);
    }
    return memset(memory, 0, bytes);
}

static void copy(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
}

static void run(const struct words_job *there, const struct words_job *job)
{
    (void)job;
    words_run_threads(there);
}

static void end(void)
{
}

void words_begin_threads(struct words_side *side)
{
    /* More threads than a few on some processors would measure the scheduler. */
    *side = (struct words_side){.name = "threads of the processors",
                                .cycles = "the processor's time stamp",
                                .warp = 4,
                                .most_groups = 2,
                                .memory = rs_gpu_memory_plain,
                                .seen = seen,
                                .allocate = allocate,
                                .release = free,
                                .copy = copy,
                                .run = run,
                                .end = end};
}
