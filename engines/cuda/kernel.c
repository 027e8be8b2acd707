/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel, as nvcc has compiled it, and loading it. */
#include "engines/cuda/node.h"
#include "librsched/base/embed.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

#if RSCHED_CUDA_KERNELS
extern const struct rs_embedded rs_cuda_images[]; /* one */
#define IMAGE rs_cuda_images[0].text
#else
#define IMAGE NULL
#endif

static bool is_gpu(int gpu)
{
    return gpu >= 0 && gpu < RS_CUDA_MOST_GPUS;
}

bool rs_cuda_has_kernels(struct rsched_engine *engine, int gpu)
{
    bool has;

    if (IMAGE == NULL || !is_gpu(gpu))
        return false;
    pthread_mutex_lock(&engine->lock);
    has = !engine->kernels[gpu].refused;
    pthread_mutex_unlock(&engine->lock);
    return has;
}

/* A driver older than the toolkit, or a GPU that it does not compile for:
 * nothing is wrong, and copy engines do. */
static int refuse(struct rs_cuda_kernels *k, int gpu, int error)
{
    if (error == RSCHED_ENOMEM)
        return error;
    k->refused = true;
    rs_log(RS_LOG_WARN, "cuda: GPU %d: blocks are copied without kernels: %s",
           gpu, rsched_last_error());
    return rs_fail(RSCHED_ENOTSUP, "no kernels");
}

/* With the lock, in a context of that GPU. */
static int load(struct rs_cuda_kernels *k, int gpu)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUdevice device;
    int error = rs_cuda_error(driver,
                              driver->cuModuleLoadData(&k->module, IMAGE),
                              "cuModuleLoadData");

    if (error != 0)
        return error;
    error = rs_cuda_error(driver,
                          driver->cuModuleGetFunction(&k->pack, k->module,
                                                      "rs_pack"),
                          "cuModuleGetFunction");
    if (error == 0)
        error = rs_cuda_error(driver, driver->cuDeviceGet(&device, gpu),
                              "cuDeviceGet");
    if (error == 0)
        error = rs_cuda_error(
            driver,
            driver->cuDeviceGetAttribute(
                &k->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                device),
            "cuDeviceGetAttribute");
    if (error != 0) {
        driver->cuModuleUnload(k->module);
        k->module = NULL;
    }
    return error;
}

int rs_cuda_kernel(struct rsched_engine *engine, int gpu, CUfunction *kernel,
                   unsigned *processors)
{
    struct rs_cuda_kernels *k = &engine->kernels[gpu];
    int error = 0;

    pthread_mutex_lock(&engine->lock);
    if (k->refused)
        error = rs_fail(RSCHED_ENOTSUP, "no kernels");
    else if (k->module == NULL)
        error = load(k, gpu);
    if (error == 0) {
        *kernel = k->pack;
        *processors = (unsigned)k->processors;
    } else if (!k->refused) {
        error = refuse(k, gpu, error);
    }
    pthread_mutex_unlock(&engine->lock);
    return error;
}

void rs_cuda_unload_kernels(struct rsched_engine *engine, int gpu)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUstreamCaptureMode mode;
    CUcontext context;

    if (engine->kernels[gpu].module == NULL ||
        driver->cuCtxPushCurrent(engine->contexts[gpu]) != CUDA_SUCCESS)
        return;
    mode = rs_cuda_relax(driver);
    driver->cuModuleUnload(engine->kernels[gpu].module);
    rs_cuda_restore(driver, mode);
    driver->cuCtxPopCurrent(&context);
}
