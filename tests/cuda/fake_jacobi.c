/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: the kernel of a program, compiled for the processor from
 * what nvcc compiles. */
#include "examples/jacobi-device/jacobi.h"
#include "tests/cuda/fake_inside.h"

void fake_jacobi(void *jacobi)
{
    const struct rsched_device_group alone = rsched_device_thread();

    jacobi_run(jacobi, &alone);
}
