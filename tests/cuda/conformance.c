/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance cases over the engine `cuda`, whose driver is the one in
 * software, by the way that RSCHED_GPU_WAY says:
 *
 *     RSCHED_GPU_WAY=staged|cuda-ipc conformance_cuda threads|processes cuda
 *
 * Messages lie in device memory at either end, and at both. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/shape.h"
#include "tests/cuda/program.h"

enum { GPUS = 2 };

/* Each rank has its GPU, in threads of one process too. */
static _Thread_local struct program program;
static _Thread_local bool begun;

static char *allocate(uint64_t bytes, char **touch)
{
    CUdeviceptr device;

    if (!begun)
        program_begin(&program, node_rank % GPUS);
    begun = true;
    if (program.cuMemAlloc(&device, bytes) != CUDA_SUCCESS)
        abort();
    *touch = program.fakeTouch(device);
    return (char *)(uintptr_t)device;
}

static void release(char *memory)
{
    if (program.cuMemFree((CUdeviceptr)(uintptr_t)memory) != CUDA_SUCCESS)
        abort();
}

const struct rsched_engine_ops *node_engine_at(size_t index)
{
    static struct shape_gpus gpus = {.allocate = allocate, .release = release};
    const char *way = getenv("RSCHED_GPU_WAY");

    assert(way != NULL);
    gpus.pulled = strcmp(way, "cuda-ipc") == 0;
    shape_gpus = &gpus;
    return rsched_engine_at(index);
}

bool node_device_outlives_process(void)
{
    return true;
}
