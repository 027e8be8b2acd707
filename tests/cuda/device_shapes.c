/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/cuda/device_shapes.h"

#include <stdlib.h>

#include "tests/cuda/program.h"

enum { GPUS = 2 };

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

void device_shapes(bool pulled)
{
    static struct shape_gpus gpus = {.allocate = allocate, .release = release};

    gpus.pulled = pulled;
    shape_gpus = &gpus;
}
