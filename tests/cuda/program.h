/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that uses GPUs: it loads the driver by itself, as the CUDA runtime
 * does. That is the one in software (fake.h), or a real one, as
 * tests/cuda/hardware has it: then processors have bytes of their own beside those
 * of the GPU, and nothing is counted.
 */
#ifndef TESTS_CUDA_PROGRAM_H
#define TESTS_CUDA_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda.h>

#include "tests/cuda/fake.h"

struct program {
#define XX(name) __typeof__(&name) name;
    FAKE_CALLS(XX)
    FAKE_OWN(XX) /* NULL if it is not the fake */
#undef XX
    CUcontext context;
    bool is_fake;
};

/** Whether the driver that would be loaded is the fake. Initialises nothing. */
bool program_finds_fake(void);

/** Load the driver, initialise it, and make the context of a GPU current.
 * Aborts if it cannot. */
void program_begin(struct program *program, int gpu);
void program_end(struct program *program, int gpu);

/** The number of a GPU; where there are fewer, that of the one in its place. */
int program_gpu(struct program *program, int gpu);

/** Copy between host memory and what lies in the GPU's. Nothing that this
 * overtakes is under way. */
void program_write(struct program *program, CUdeviceptr to, const void *from,
                   size_t bytes);
void program_read(struct program *program, void *to, CUdeviceptr from,
                  size_t bytes);

/** Where processors touch the bytes of GPU memory: there, or in host memory of
 * their own, which program_write() and program_read() keep like them. All bytes of
 * new memory are zero. */
void *program_touch(struct program *program, CUdeviceptr device, size_t bytes);
void program_untouch(struct program *program, void *touch);

/** What the fake has counted; 0 if it is another one. */
unsigned long long program_count(struct program *program, enum fake_count what);
/** Whether the fake has counted as much. Others do not say. */
bool program_counted(struct program *program, enum fake_count what,
                     unsigned long long expected);

/* What a test needs. */
enum program_needs {
    ANY_DRIVER,
    FAKE_DRIVER, /* its settings, or what it looks at */
    TWO_GPUS
};

/** Whether it cannot run here; why is told. A child loads the driver for it. */
bool program_skips(enum program_needs needs);

#endif
