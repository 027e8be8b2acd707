/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that kernels and threads of the host use together. */
#include "engines/cuda/shared.h"

#include "engines/cuda/driver.h"
#include "librsched/base/error.h"

static int hold_context(const struct rs_cuda_driver *driver, int gpu,
                        struct rsched_gpu_memory *m)
{
    CUdevice device;
    CUcontext context;
    int error = rs_cuda_error(driver, driver->cuDeviceGet(&device, gpu),
                              "cuDeviceGet");

    if (error == 0)
        error = rs_cuda_error(driver,
                              driver->cuDevicePrimaryCtxRetain(&context,
                                                               device),
                              "cuDevicePrimaryCtxRetain");
    if (error != 0)
        return error;
    m->number = gpu;
    m->context = context;
    return 0;
}

static void let_go(const struct rs_cuda_driver *driver,
                   const struct rsched_gpu_memory *m)
{
    CUdevice device;

    if (driver->cuDeviceGet(&device, m->number) == CUDA_SUCCESS)
        driver->cuDevicePrimaryCtxRelease(device);
}

/* The context is current. */
static int allocate(const struct rs_cuda_driver *driver, uint64_t host_bytes,
                    uint64_t gpu_bytes, struct rsched_gpu_memory *m)
{
    CUdeviceptr address = 0;
    int error = rs_cuda_error(driver,
                              driver->cuMemHostAlloc(
                                  &m->host, host_bytes,
                                  CU_MEMHOSTALLOC_PORTABLE |
                                      CU_MEMHOSTALLOC_DEVICEMAP),
                              "cuMemHostAlloc");

    if (error != 0)
        return error;
    error = rs_cuda_error(
        driver, driver->cuMemHostGetDevicePointer(&address, m->host, 0),
        "cuMemHostGetDevicePointer");
    m->host_of_kernels = address;
    if (error == 0)
        error = rs_cuda_error(driver, driver->cuMemAlloc(&address, gpu_bytes),
                              "cuMemAlloc");
    if (error != 0) {
        driver->cuMemFreeHost(m->host);
        return error;
    }
    m->gpu = address;
    return 0;
}

/* What the program has enqueued to other streams is not waited for. */
static int open_stream(const struct rs_cuda_driver *driver, CUstream *stream)
{
    int lowest, highest, error;

    error = rs_cuda_error(
        driver, driver->cuCtxGetStreamPriorityRange(&lowest, &highest),
        "cuCtxGetStreamPriorityRange");
    if (error == 0)
        error = rs_cuda_error(driver,
                              driver->cuStreamCreateWithPriority(
                                  stream, CU_STREAM_NON_BLOCKING, highest),
                              "cuStreamCreateWithPriority");
    return error;
}

static int copy(const struct rs_cuda_driver *driver, CUstream stream,
                CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    int error = rs_cuda_error(driver,
                              driver->cuMemcpyAsync(to, from, bytes, stream),
                              "cuMemcpyAsync");

    if (error == 0)
        error = rs_cuda_error(driver, driver->cuStreamSynchronize(stream),
                              "cuStreamSynchronize");
    return error;
}

int rs_cuda_copy(const struct rs_cuda_driver *driver, CUdeviceptr to,
                 CUdeviceptr from, uint64_t bytes)
{
    CUstream stream;
    int error = open_stream(driver, &stream);

    if (error != 0)
        return error;
    error = copy(driver, stream, to, from, bytes);
    driver->cuStreamDestroy(stream);
    return error;
}

/* The context is current. */
static int make(const struct rs_cuda_driver *driver, uint64_t host_bytes,
                uint64_t gpu_bytes, struct rsched_gpu_memory *m)
{
    CUstream stream;
    int error = open_stream(driver, &stream);

    if (error != 0)
        return error;
    error = allocate(driver, host_bytes, gpu_bytes, m);
    if (error != 0)
        driver->cuStreamDestroy(stream);
    else
        m->stream = stream;
    return error;
}

int rs_cuda_memory_create(int gpu, uint64_t host_bytes, uint64_t gpu_bytes,
                          struct rsched_gpu_memory *memory)
{
    struct rsched_gpu_memory m = {0};
    const struct rs_cuda_driver *driver;
    CUstreamCaptureMode mode;
    CUcontext context;
    int error = rs_cuda_driver_find(false, &driver);

    if (error != 0)
        return error;
    mode = rs_cuda_relax(driver);
    error = hold_context(driver, gpu, &m);
    if (error != 0)
        goto out;
    error = rs_cuda_error(driver, driver->cuCtxPushCurrent(m.context),
                          "cuCtxPushCurrent");
    if (error == 0) {
        error = make(driver, host_bytes, gpu_bytes, &m);
        driver->cuCtxPopCurrent(&context);
    }
    if (error == 0)
        *memory = m;
    else
        let_go(driver, &m);
out:
    rs_cuda_restore(driver, mode);
    return error == 0 ? 0 : rs_fail_within(error, "GPU %d", gpu);
}

static int copy_part(const struct rsched_gpu_memory *m, CUdeviceptr to,
                     CUdeviceptr from, uint64_t bytes)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUstreamCaptureMode mode = rs_cuda_relax(driver);
    CUcontext context;
    int error = rs_cuda_error(driver, driver->cuCtxPushCurrent(m->context),
                              "cuCtxPushCurrent");

    if (error == 0) {
        error = copy(driver, m->stream, to, from, bytes);
        driver->cuCtxPopCurrent(&context);
    }
    rs_cuda_restore(driver, mode);
    return error == 0 ? 0 : rs_fail_within(error, "GPU %d", m->number);
}

int rs_cuda_memory_fill(const struct rsched_gpu_memory *m, const void *image,
                        uint64_t bytes)
{
    return copy_part(m, m->gpu, (uintptr_t)image, bytes);
}

int rs_cuda_memory_read(const struct rsched_gpu_memory *m, void *image,
                        uint64_t bytes)
{
    return copy_part(m, (uintptr_t)image, m->gpu, bytes);
}

void rs_cuda_memory_destroy(struct rsched_gpu_memory *m)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUstreamCaptureMode mode = rs_cuda_relax(driver);
    CUcontext context;

    if (driver->cuCtxPushCurrent(m->context) == CUDA_SUCCESS) {
        driver->cuMemFree(m->gpu);
        driver->cuMemFreeHost(m->host);
        driver->cuStreamDestroy(m->stream);
        driver->cuCtxPopCurrent(&context);
    }
    let_go(driver, m);
    rs_cuda_restore(driver, mode);
}
