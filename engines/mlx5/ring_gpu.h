/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a ring needs of a GPU whose kernels write it. The queue pair stays in host
 * memory, where its driver has put it, and is mapped for the GPU with the page of
 * its doorbell register. What says that data is there lies where the data do, in the
 * GPU's memory: to two places a device's writes arrive in any order, and a kernel,
 * which looks at the one while it runs, would read the other too early.
 *
 * Threads: the caller holds the engine's lock.
 */
#ifndef RS_MLX5_RING_GPU_H
#define RS_MLX5_RING_GPU_H

#include "engines/mlx5/gpu.h"
#include "engines/rdma/memory.h"

struct rs_ring_gpu {
    int number; /* negative: kernels are threads */
    struct rs_rdma_gpu_block *arrived; /* of its memory; NULL: none is taken */
};

/** @param gpu its number; negative: kernels are threads, and nothing is taken
 * @return 0; RSCHED_ENOTSUP: the text says why there can be no ring; or what the
 *         driver said: nothing is taken */
int rs_ring_gpu_take(struct rs_ring_gpu *g, int gpu,
                     struct rs_rdma_memory *memory);
/** Neither kernels nor devices use it. Nothing is done where nothing is taken. */
void rs_ring_gpu_give_back(struct rs_ring_gpu *g);

/** How a message that is received, or sent, is registered.
 * @param hold set to that of its memory, or to NULL: it is the host's
 * @return 0; RSCHED_ENOTSUP: it lies where these kernels cannot use it */
int rs_ring_gpu_find(const struct rs_ring_gpu *g,
                     const struct rsched_message *message, bool received,
                     struct rsched_gpu_hold **hold);

/** How its kernels get to the queue pair; as long as it is taken. */
struct rs_gpu_memory rs_ring_gpu_memory(struct rs_ring_gpu *g);

#endif
