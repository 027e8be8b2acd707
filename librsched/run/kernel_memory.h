/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * KERNEL MEMORY: what kernels and the host use together: a part in pinned host
 * memory, and one in the GPU's. Where threads are the kernels all of it is memory.
 */
#ifndef RS_RUN_KERNEL_MEMORY_H
#define RS_RUN_KERNEL_MEMORY_H

#include <rsched/engine.h>

#define RS_OF_KERNELS(address) ((void *)(uintptr_t)(address))

struct rs_kernel_memory {
    const struct rsched_gpu_ops *gpus; /* NULL: processors */
    struct rsched_gpu_memory at;
    uint64_t bytes; /* in the GPU */
};

/** Whose kernels they are. @param gpu its number, or RSCHED_NO_GPU
 * @return 0, RSCHED_EINVAL, RSCHED_ENOTSUP: no driver */
int rs_kernel_memory_find(struct rs_kernel_memory *m, int gpu);
/** Have it, once they are found. @return 0, or what the driver said */
int rs_kernel_memory_create(struct rs_kernel_memory *m, int gpu,
                            uint64_t host_bytes, uint64_t gpu_bytes);
/** No kernel uses it. Nothing is done where there is none. */
void rs_kernel_memory_destroy(struct rs_kernel_memory *m);
/** Write the part in the GPU. */
int rs_kernel_memory_fill(const struct rs_kernel_memory *m, const void *image);
/** Look at that part: where it is, or, of a GPU, at a copy, which is freed by the
 * second one. Any thread. @return 0, or why that cannot be */
int rs_kernel_memory_look(const struct rs_kernel_memory *m, const void **own);
void rs_kernel_memory_looked(const struct rs_kernel_memory *m, const void *own);

#endif
