/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/hold.h"

#include <stdlib.h>

#include "librsched/base/error.h"

enum { FLUSH_NEEDED, FLUSH_NONE, FLUSH_IMPOSSIBLE };

static int attribute_or(const struct rsched_gpu_hold *h,
                        CUdevice_attribute attribute, int otherwise)
{
    CUdevice device;
    int value = 0;

    if (h->driver->cuDeviceGet(&device, h->gpu) != CUDA_SUCCESS ||
        h->driver->cuDeviceGetAttribute(&value, attribute, device) !=
            CUDA_SUCCESS)
        return otherwise;
    return value;
}

static int attribute_of(const struct rsched_gpu_hold *h,
                        CUdevice_attribute attribute)
{
    return attribute_or(h, attribute, 0);
}

/* Where the GPU uses the host's page tables what a device writes to its memory comes
 * through the processors' memory system, be it registered as a dma-buf or by its
 * address. The attribute of ordering is of what comes over the bus, and says nothing
 * of that. */
static bool has_host_tables(const struct rsched_gpu_hold *h)
{
    return attribute_of(
               h,
               CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) !=
           0;
}

/* Whose writes the GPU's own work sees in their order needs nothing done; a flush is
 * for all that there is. */
static int flush_of(const struct rsched_gpu_hold *h)
{
    if (!has_host_tables(h) &&
        attribute_of(h, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
            CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
        return FLUSH_NONE;
    if (h->driver->no_direct == NULL &&
        (attribute_of(
             h, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
         CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0)
        return FLUSH_NEEDED;
    return FLUSH_IMPOSSIBLE;
}

int rs_cuda_hold(int gpu, struct rsched_gpu_hold **hold)
{
    const struct rs_cuda_driver *driver;
    struct rsched_gpu_hold *h;
    int error = rs_cuda_driver_find(false, &driver);

    if (error != 0)
        return error;
    h = calloc(1, sizeof(*h));
    if (h == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    h->driver = driver;
    h->gpu = gpu;
    pthread_mutex_init(&h->contexts.lock, NULL);
    error = rs_cuda_context(&h->contexts, gpu, &h->context);
    if (error != 0) {
        rs_cuda_release(h);
        return error;
    }
    h->flush = flush_of(h);
    *hold = h;
    return 0;
}

void rs_cuda_release(struct rsched_gpu_hold *h)
{
    if (h == NULL)
        return;
    rs_cuda_contexts_fini(&h->contexts);
    pthread_mutex_destroy(&h->contexts.lock);
    free(h);
}

int rs_cuda_enter(const struct rsched_gpu_hold *h, CUstreamCaptureMode *mode)
{
    int error;

    *mode = rs_cuda_relax(h->driver);
    error = rs_cuda_error(h->driver, h->driver->cuCtxPushCurrent(h->context),
                          "cuCtxPushCurrent");
    if (error != 0)
        rs_cuda_restore(h->driver, *mode);
    return error;
}

void rs_cuda_leave(const struct rsched_gpu_hold *h, CUstreamCaptureMode mode)
{
    CUcontext context;

    h->driver->cuCtxPopCurrent(&context);
    rs_cuda_restore(h->driver, mode);
}

int rs_cuda_extent(struct rsched_gpu_hold *h, const void *address,
                   uintptr_t *begin, uintptr_t *end)
{
    CUstreamCaptureMode mode;
    CUdeviceptr start;
    size_t bytes;
    int error = rs_cuda_enter(h, &mode);

    if (error != 0)
        return error;
    error = rs_cuda_error(
        h->driver,
        h->driver->cuMemGetAddressRange(&start, &bytes,
                                        (CUdeviceptr)(uintptr_t)address),
        "cuMemGetAddressRange");
    rs_cuda_leave(h, mode);
    /* Who asks is about to have a device reach it. */
    if (error == 0)
        error = rs_cuda_synchronise(&h->contexts, h->gpu, address);
    if (error != 0)
        return error;
    *begin = start;
    *end = start + bytes;
    return 0;
}

int rs_cuda_dmabuf(struct rsched_gpu_hold *h, const void *address,
                   uint64_t bytes, int *fd)
{
    CUstreamCaptureMode mode;
    int error;

    if (h->driver->no_direct != NULL)
        return rs_fail(RSCHED_ENOTSUP,
                       "libcuda.so.1 has no %s: too old a driver",
                       h->driver->no_direct);
    if (attribute_of(h, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) == 0)
        return rs_fail(RSCHED_ENOTSUP,
                       "the driver exports no memory of GPU %d (the kernel or "
                       "its open modules are too old)",
                       h->gpu);
    error = rs_cuda_enter(h, &mode);
    if (error != 0)
        return error;
    error = rs_cuda_error(h->driver,
                          h->driver->cuMemGetHandleForAddressRange(
                              fd, (CUdeviceptr)(uintptr_t)address, bytes,
                              CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                          "cuMemGetHandleForAddressRange");
    rs_cuda_leave(h, mode);
    return error;
}

/* The RDMA stack would register what it takes for the host's, if anything. A driver
 * that does not know the question has no such GPU. */
int rs_cuda_peer_memory(struct rsched_gpu_hold *h)
{
    if (attribute_or(h, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1) != 0)
        return 0;
    return rs_fail(RSCHED_ENOTSUP, "GPU %d has no GPUDirect RDMA", h->gpu);
}

int rs_cuda_flush(struct rsched_gpu_hold *h)
{
    CUstreamCaptureMode mode;
    int error;

    if (h->flush == FLUSH_NONE)
        return 0;
    if (h->flush == FLUSH_IMPOSSIBLE)
        return rs_fail(RSCHED_ENOTSUP,
                       "GPU %d neither orders what devices write, nor lets "
                       "processors have it made visible",
                       h->gpu);
    error = rs_cuda_enter(h, &mode);
    if (error != 0)
        return error;
    error = rs_cuda_error(h->driver,
                          h->driver->cuFlushGPUDirectRDMAWrites(
                              CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                              CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
                          "cuFlushGPUDirectRDMAWrites");
    rs_cuda_leave(h, mode);
    return error;
}

int rs_cuda_orders(struct rsched_gpu_hold *h)
{
    if (h->flush == FLUSH_NONE)
        return 0;
    if (has_host_tables(h))
        return rs_fail(RSCHED_ENOTSUP,
                       "GPU %d uses the host's page tables, and tells no order of "
                       "what devices write so",
                       h->gpu);
    return rs_fail(RSCHED_ENOTSUP,
                   "kernels of GPU %d do not see what devices write in its order",
                   h->gpu);
}
