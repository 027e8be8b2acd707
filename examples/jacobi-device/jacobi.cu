/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel of jacobi.h: one block for a strip. */
#include "jacobi.h"

extern "C" __global__ void jacobi_kernel(struct jacobi *j)
{
    const struct rsched_device_group block = rsched_device_block();

    jacobi_run(j, &block);
}
