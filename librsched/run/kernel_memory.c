/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/kernel_memory.h"

#include <stdlib.h>
#include <string.h>

#include <rsched/device_open.h>

#include "librsched/base/error.h"

int rs_kernel_memory_find(struct rs_kernel_memory *m, int gpu)
{
    m->gpus = NULL;
    if (gpu == RSCHED_NO_GPU)
        return 0;
    if (gpu < 0)
        return rs_fail(RSCHED_EINVAL, "GPU %d: no such number", gpu);
    if (rsched_gpus() == NULL)
        return rs_fail(RSCHED_ENOTSUP, "exchanges for kernels: built without "
                                       "cuda.h");
    if (!rsched_gpus()->attach())
        return rs_fail(RSCHED_ENOTSUP, "exchanges for kernels: no driver of "
                                       "GPUs is loaded");
    m->gpus = rsched_gpus();
    return 0;
}

static int plain_create(struct rsched_gpu_memory *m, uint64_t host_bytes,
                        uint64_t gpu_bytes)
{
    void *host = aligned_alloc(64, (host_bytes + 63) / 64 * 64);
    void *gpu = malloc(gpu_bytes);

    if (host == NULL || gpu == NULL) {
        free(host);
        free(gpu);
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    }
    *m = (struct rsched_gpu_memory){.host = host,
                                    .host_of_kernels = (uintptr_t)host,
                                    .gpu = (uintptr_t)gpu};
    return 0;
}

int rs_kernel_memory_create(struct rs_kernel_memory *m, int gpu,
                            uint64_t host_bytes, uint64_t gpu_bytes)
{
    m->bytes = gpu_bytes;
    return m->gpus == NULL
               ? plain_create(&m->at, host_bytes, gpu_bytes)
               : m->gpus->memory_create(gpu, host_bytes, gpu_bytes, &m->at);
}

void rs_kernel_memory_destroy(struct rs_kernel_memory *m)
{
    if (m->at.host == NULL)
        return;
    if (m->gpus != NULL) {
        m->gpus->memory_destroy(&m->at);
    } else {
        free(m->at.host);
        free(RS_OF_KERNELS(m->at.gpu));
    }
    m->at.host = NULL;
}

int rs_kernel_memory_fill(const struct rs_kernel_memory *m, const void *image)
{
    if (m->gpus != NULL)
        return m->gpus->memory_fill(&m->at, image, m->bytes);
    memcpy(RS_OF_KERNELS(m->at.gpu), image, m->bytes);
    return 0;
}

int rs_kernel_memory_look(const struct rs_kernel_memory *m, const void **own)
{
    void *copy;
    int error;

    if (m->gpus == NULL) {
        *own = RS_OF_KERNELS(m->at.gpu);
        return 0;
    }
    copy = malloc(m->bytes);
    if (copy == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to look at an opening's");
    error = m->gpus->memory_read(&m->at, copy, m->bytes);
    if (error != 0)
        free(copy);
    else
        *own = copy;
    return error;
}

void rs_kernel_memory_looked(const struct rs_kernel_memory *m, const void *own)
{
    if (m->gpus != NULL)
        free((void *)(uintptr_t)own);
}
