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
    *touch = program_touch(&program, device, bytes);
    return (char *)(uintptr_t)device;
}

/* What processors touch is the same memory over the fake. */
static void push(char *memory, const char *touch, uint64_t bytes)
{
    if (!program.is_fake)
        program_write(&program, (CUdeviceptr)(uintptr_t)memory, touch, bytes);
}

static void pull(char *touch, const char *memory, uint64_t bytes)
{
    if (!program.is_fake)
        program_read(&program, touch, (CUdeviceptr)(uintptr_t)memory, bytes);
}

static void release(char *memory, char *touch)
{
    program_untouch(&program, touch);
    if (program.cuMemFree((CUdeviceptr)(uintptr_t)memory) != CUDA_SUCCESS)
        abort();
}

void device_shapes(bool pulled)
{
    static struct shape_gpus gpus = {.allocate = allocate,
                                     .push = push,
                                     .pull = pull,
                                     .release = release,
                                     .late = program_finds_fake};

    gpus.pulled = pulled;
    shape_gpus = &gpus;
}
