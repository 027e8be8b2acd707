/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/ring_gpu.h"

#include "engines/rdma/places.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

int rs_ring_gpu_take(struct rs_ring_gpu *g, int gpu,
                     struct rs_rdma_memory *memory)
{
    *g = (struct rs_ring_gpu){.number = gpu};
    if (gpu < 0)
        return 0;
    if (rs_config()->gpu_way == RS_CONFIG_GPU_WAY_STAGED)
        return rs_fail(RSCHED_ENOTSUP, "GPU memory is staged (RSCHED_GPU_WAY)");
    return rs_rdma_gpu_block_allocate(memory, gpu, &g->arrived);
}

void rs_ring_gpu_give_back(struct rs_ring_gpu *g)
{
    rs_rdma_gpu_block_release(g->arrived);
    g->arrived = NULL;
}

int rs_ring_gpu_find(const struct rs_ring_gpu *g,
                     const struct rsched_message *message, bool received,
                     struct rsched_gpu_hold **hold)
{
    struct rs_rdma_places places;
    int error = rs_rdma_places_find(message, &places);

    if (error != 0)
        return error;
    if (places.gpu < 0 && (g->arrived == NULL || !received)) {
        *hold = NULL;
        return 0;
    }
    if (g->arrived == NULL)
        return rs_fail(RSCHED_ENOTSUP,
                       "a message lies in GPU memory, and kernels are threads");
    if (!places.all || places.gpu != g->number)
        return rs_fail(RSCHED_ENOTSUP,
                       "not all of a message lies in the memory of GPU %d",
                       g->number);
    *hold = g->arrived->hold;
    return 0;
}

static int map(void *arg, void *host, uint64_t bytes, bool is_register,
               void **mapped)
{
    const struct rs_ring_gpu *g = arg;

    return rsched_gpus()->pages_map(g->arrived->hold, host, bytes, is_register, mapped);
}

static void unmap(void *arg, void *host, void *mapped)
{
    const struct rs_ring_gpu *g = arg;

    (void)mapped;
    rsched_gpus()->pages_unmap(g->arrived->hold, host);
}

struct rs_gpu_memory rs_ring_gpu_memory(struct rs_ring_gpu *g)
{
    if (g->arrived == NULL)
        return rs_gpu_memory_plain;
    return (struct rs_gpu_memory){.arg = g, .map = map, .unmap = unmap};
}
