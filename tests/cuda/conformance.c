/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance cases over the engine `cuda`, whose driver is the one in
 * software, by the way that RSCHED_GPU_WAY says:
 *
 *     RSCHED_GPU_WAY=staged|cuda-ipc|auto conformance_cuda threads|processes cuda
 *
 * auto: processors copy what they can, the rest is staged.
 * Messages lie in device memory at either end, and at both. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/device_shapes.h"

const struct rsched_engine_ops *node_engine_at(size_t index)
{
    const char *way = getenv("RSCHED_GPU_WAY");

    assert(way != NULL);
    device_shapes(strcmp(way, "cuda-ipc") == 0);
    return rsched_engine_at(index);
}

bool node_device_outlives_process(void)
{
    return true;
}
