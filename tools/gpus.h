/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPUs that this process is shown. */
#ifndef RS_TOOLS_GPUS_H
#define RS_TOOLS_GPUS_H

#include <stddef.h>

#include <rsched/engine.h>

#include "librsched/base/ways.h"

/** How far memory of two GPUs is apart. */
enum rs_distance gpus_distance(const struct rsched_gpu *a,
                               const struct rsched_gpu *b);

/** All of them, for free(). Loads the driver.
 * @return 0, RSCHED_ENOTSUP: why there is none, RSCHED_ENOMEM */
int gpus_describe(struct rsched_gpu **list, int *count);

/* Two GPUs, which may be one. */
struct gpus_pair {
    int gpus[2];
    enum rs_distance distance;
};

/* Whatever can be copied out of a process that ends. */
struct gpus_pairs {
    struct gpus_pair of[RS_NUM_DISTANCES]; /* the nearest first */
    size_t num;                            /* 0: there is no GPU */
    char reason[256];                      /* why */
};

/** A pair for each distance that there is: the first GPU with itself, then the
 * first two that are so far apart. The driver is loaded in a process of its own,
 * since those that are forked after it cannot use it. */
void gpus_find_pairs(struct gpus_pairs *pairs);

/** Have a forked process call a function, and wait for it to end. What it writes
 * into memory of gpus_share() the caller reads.
 * @return what the function has returned; TOOL_FAILED: it could not, after a line
 *         on standard error */
int gpus_run_apart(int (*main)(void *arg), void *arg);

/** Memory, all 0, that forked processes have in common; NULL: there is none. */
void *gpus_share(size_t bytes);
void gpus_unshare(void *memory, size_t bytes);

#endif
