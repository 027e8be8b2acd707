/* SPDX-License-Identifier: BSD-3-Clause */
/* SHARED: memory that kernels of the program and threads of the host use
 * together; see struct rsched_gpu_ops. */
#ifndef RS_CUDA_SHARED_H
#define RS_CUDA_SHARED_H

#include <rsched/engine.h>

int rs_cuda_memory_create(int gpu, uint64_t host_bytes, uint64_t gpu_bytes,
                          struct rsched_gpu_memory *memory);
int rs_cuda_memory_fill(const struct rsched_gpu_memory *memory,
                        const void *image, uint64_t bytes);
void rs_cuda_memory_destroy(struct rsched_gpu_memory *memory);

#endif
