/* SPDX-License-Identifier: BSD-3-Clause */
/* SHARED: memory that kernels of the program and threads of the host use
 * together; see struct rsched_gpu_ops. */
#ifndef RS_CUDA_SHARED_H
#define RS_CUDA_SHARED_H

#include <rsched/engine.h>

#include "engines/cuda/driver.h"

int rs_cuda_memory_create(int gpu, uint64_t host_bytes, uint64_t gpu_bytes,
                          struct rsched_gpu_memory *memory);
int rs_cuda_memory_fill(const struct rsched_gpu_memory *memory,
                        const void *image, uint64_t bytes);
int rs_cuda_memory_read(const struct rsched_gpu_memory *memory, void *image,
                        uint64_t bytes);
void rs_cuda_memory_destroy(struct rsched_gpu_memory *memory);

/** Copy by a stream of its own, so that what the program has enqueued is not
 * waited for; it has been done when this returns. The context is current. */
int rs_cuda_copy(const struct rs_cuda_driver *driver, CUdeviceptr to,
                 CUdeviceptr from, uint64_t bytes);

#endif
