/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: what devices on the bus get of its memory. */
#include "tests/cuda/fake_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void (*flushed)(void); /* with the lock */

/* The descriptor's position is where the range begins in the memory's file. */
static int open_range(const struct fake_memory *m, const char *address)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", m->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        lseek(fd, address - m->address, SEEK_SET);
    return fd;
}

/* Whole pages, of one allocation; a page that it shares with nobody counts. */
API CUresult CUDAAPI cuMemGetHandleForAddressRange(
    void *handle, CUdeviceptr device, size_t bytes,
    CUmemRangeHandleType type, unsigned long long flags)
{
    CUresult result = fake_check(handle, bytes);
    const char *address = (const char *)(uintptr_t)device;
    const struct fake_memory *m;
    int fd = -1;

    INJECT(cuMemGetHandleForAddressRange);
    if (result != CUDA_SUCCESS)
        return result;
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 ||
        device % FAKE_PAGE != 0 || bytes % FAKE_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || m->type != CU_MEMORYTYPE_DEVICE || m->managed ||
        m->opened || m->gpu != fake_current()->gpu ||
        bytes > (size_t)(m->address - address) +
                    (m->bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (m->fd < 0)
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        fd = open_range(m, address);
    pthread_mutex_unlock(&fake_lock);
    if (result == CUDA_SUCCESS && fd < 0)
        return CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS)
        *(int *)handle = fd;
    return result;
}

API CUresult CUDAAPI cuFlushGPUDirectRDMAWrites(
    CUflushGPUDirectRDMAWritesTarget target,
    CUflushGPUDirectRDMAWritesScope scope)
{
    CUresult result = fake_check(&target, 1);
    void (*hook)(void);

    INJECT(cuFlushGPUDirectRDMAWrites);
    if (result != CUDA_SUCCESS)
        return result;
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
        scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_setting("FAKE_CUDA_FLUSH", 1) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&fake_lock);
    hook = flushed;
    fake_counts[FAKE_FLUSHES]++;
    pthread_mutex_unlock(&fake_lock);
    if (hook != NULL)
        hook();
    return CUDA_SUCCESS;
}

OWN void fakeOnFlush(void (*hook)(void))
{
    pthread_mutex_lock(&fake_lock);
    flushed = hook;
    pthread_mutex_unlock(&fake_lock);
}
