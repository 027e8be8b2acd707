/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel of words.h: blocks of threads that put alone, or of whole warps. */
#include "words.h"

extern "C" __global__ void words_kernel(const struct words_job *j)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const struct rsched_device_group group =
        j->threads == 1 ? rsched_device_thread() : rsched_device_warp();

    words_run(j, &group, thread / j->threads);
}
