/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mpi/programs_gpu.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/cuda/program.h"

enum { MOST = 4096 };

static struct program gpu;
static CUdeviceptr memory[MOST];
static int num;

void gpu_memory_begin(void)
{
    program_begin(&gpu, 0);
}

char *gpu_memory(size_t bytes)
{
    char *address;

    if (num == MOST || gpu.cuMemAlloc(&memory[num], bytes + 1) != CUDA_SUCCESS)
        abort();
    address = (char *)(uintptr_t)memory[num++];
    if (mprotect(address, bytes + 1, PROT_READ | PROT_WRITE) != 0)
        abort();
    return address;
}

void gpu_memory_drop(void)
{
    while (num > 0)
        gpu.cuMemFree(memory[--num]);
}

void gpu_memory_end(void)
{
    program_end(&gpu, 0);
}
