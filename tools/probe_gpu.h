/* SPDX-License-Identifier: BSD-3-Clause */
/* What `rsched probe` measures of GPU memory, between two processes of which each
 * has memory of one of two GPUs. */
#ifndef RS_TOOLS_PROBE_GPU_H
#define RS_TOOLS_PROBE_GPU_H

#include "tools/gpus.h"
#include "tools/probe.h"

enum { PROBE_GPU_ROWS = 48 };

/* What the ways cost between two GPUs. It lies in memory that processes share. */
struct probe_gpu {
    struct rs_numa_pair cores;
    struct gpus_pair where;
    unsigned rounds;
    uint64_t longest;
    const char *class; /* pair_choose_class() */
    uint64_t line; /* one way, ps */
    struct probe_way of[RS_NUM_GPU_WAYS];
    struct rs_way_costs costs[RS_NUM_GPU_WAYS]; /* fitted; given: it is possible */
};

/** Measure all ways and fit them, in processes of their own: each way by itself,
 * messages of 8 bytes to `longest`, one both ways (L, o and O) and several at once
 * in one direction (g and G). @return TOOL_OK or a status */
int probe_gpu_measure(struct probe_gpu *probe);

/** A table of the parameters. */
void probe_gpu_print(const struct probe_gpu *probe, FILE *out);

/** Measure each way by itself, and the one that `ways` has chosen, in turn, and
 * print them beside what `ways` says: messages of one put, alone and with others in
 * flight, and of eight. @return TOOL_OK or a status */
int probe_gpu_compare(const struct probe_gpu *probe, const struct rs_ways *ways,
                      FILE *out);

#endif
