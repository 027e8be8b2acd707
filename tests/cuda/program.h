/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that uses GPUs: it loads the driver by itself, as the CUDA runtime
 * does. */
#ifndef TESTS_CUDA_PROGRAM_H
#define TESTS_CUDA_PROGRAM_H

#include <cuda.h>

#include "tests/cuda/fake.h"

struct program {
#define XX(name) __typeof__(&name) name;
    FAKE_CALLS(XX)
#undef XX
    CUcontext context;
};

/** Load the driver, initialise it, and make the context of a GPU current.
 * Aborts if it cannot. */
void program_begin(struct program *program, int gpu);
void program_end(struct program *program, int gpu);

#endif
