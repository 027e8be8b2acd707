/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DRIVER: the functions of libcuda that we call.
 *
 * The library is looked for at run time under the name libcuda.so.1, so that
 * one build serves machines with and without it. A program that has GPU memory
 * has loaded it already, whichever way it came to it.
 *
 * The table is a member of each function's own name, so calls look as they
 * would if the library were linked: driver->cuInit(0). The macros of cuda.h
 * that choose a function's version choose it for the member and for the symbol
 * that is looked up.
 */
#ifndef RS_CUDA_DRIVER_H
#define RS_CUDA_DRIVER_H

#include <cuda.h>

#include <assert.h>
#include <stdbool.h>

/* Attributes of GPUs that the driver knows by number, and cuda.h by name since
 * CUDA 12.2 and 12.3; all else that we use, CUDA 12.0 has. A driver that does
 * not know them fails the question. */
#define RS_CUDA_HOST_NUMA_ID ((CUdevice_attribute)134)
#define RS_CUDA_MPS_ENABLED ((CUdevice_attribute)133)
#if CUDA_VERSION >= 12030
static_assert((int)RS_CUDA_HOST_NUMA_ID == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID &&
                  (int)RS_CUDA_MPS_ENABLED == CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
              "numbers of the driver's interface");
#endif

/* Each instance of a GPU that is divided (MIG) has a UUID of its own by this
 * version, which cuda.h chooses since CUDA 13; by the first all have the GPU's. */
#if CUDA_VERSION < 13000
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#endif

/* cuda.h chooses a later version since CUDA 13, which drivers have since 12.3. This
 * one has all that we ask for. */
#if CUDA_VERSION >= 13000
#undef cuStreamGetCaptureInfo
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream,
                                           CUstreamCaptureStatus *status,
                                           cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **nodes,
                                           size_t *number);
#endif

#define RS_CUDA_FUNCTIONS(XX)                                                \
    XX(cuInit)                                                               \
    XX(cuGetErrorName)                                                       \
    XX(cuGetErrorString)                                                     \
    XX(cuDeviceGetCount)                                                     \
    XX(cuDeviceGet)                                                          \
    XX(cuDeviceGetName)                                                      \
    XX(cuDeviceGetUuid)                                                      \
    XX(cuDeviceGetPCIBusId)                                                  \
    XX(cuDeviceGetAttribute)                                                 \
    XX(cuDeviceTotalMem)                                                     \
    XX(cuDeviceCanAccessPeer)                                                \
    XX(cuPointerGetAttributes)                                               \
    XX(cuPointerSetAttribute)                                                \
    XX(cuMemGetAddressRange)                                                 \
    XX(cuDevicePrimaryCtxGetState)                                           \
    XX(cuDevicePrimaryCtxRetain)                                             \
    XX(cuDevicePrimaryCtxRelease)                                            \
    XX(cuCtxPushCurrent)                                                     \
    XX(cuCtxPopCurrent)                                                      \
    XX(cuCtxGetDevice)                                                       \
    XX(cuCtxGetStreamPriorityRange)                                          \
    XX(cuStreamCreateWithPriority)                                           \
    XX(cuStreamDestroy)                                                      \
    XX(cuStreamSynchronize)                                                  \
    XX(cuThreadExchangeStreamCaptureMode)                                    \
    XX(cuEventCreate)                                                        \
    XX(cuEventDestroy)                                                       \
    XX(cuEventRecord)                                                        \
    XX(cuEventQuery)                                                         \
    XX(cuMemcpyAsync)                                                        \
    XX(cuMemcpy2DAsync)                                                      \
    XX(cuMemHostAlloc)                                                       \
    XX(cuMemFreeHost)                                                        \
    XX(cuMemHostRegister)                                                    \
    XX(cuMemHostUnregister)                                                  \
    XX(cuMemHostGetDevicePointer)                                            \
    XX(cuMemAlloc)                                                           \
    XX(cuMemFree)                                                            \
    XX(cuModuleLoadData)                                                     \
    XX(cuModuleUnload)                                                       \
    XX(cuModuleGetFunction)                                                  \
    XX(cuLaunchKernel)                                                       \
    XX(cuIpcGetMemHandle)                                                    \
    XX(cuIpcOpenMemHandle)                                                   \
    XX(cuIpcCloseMemHandle)                                                  \
    XX(cuMemRetainAllocationHandle)                                          \
    XX(cuMemExportToShareableHandle)                                         \
    XX(cuMemImportFromShareableHandle)                                       \
    XX(cuMemRelease)                                                         \
    XX(cuMemAddressReserve)                                                  \
    XX(cuMemAddressFree)                                                     \
    XX(cuMemMap)                                                             \
    XX(cuMemUnmap)                                                           \
    XX(cuMemSetAccess)

/* What only starts and waits in streams need: a driver may be older. */
#define RS_CUDA_STREAM_FUNCTIONS(XX)                                         \
    XX(cuStreamGetCtx)                                                       \
    XX(cuStreamGetCaptureInfo)                                               \
    XX(cuLaunchHostFunc)                                                     \
    XX(cuStreamWaitValue32)                                                  \
    XX(cuStreamWriteValue32)                                                 \
    XX(cuUserObjectCreate)                                                   \
    XX(cuUserObjectRelease)                                                  \
    XX(cuGraphRetainUserObject)

/* What only engines need whose devices reach GPU memory; likewise. */
#define RS_CUDA_DIRECT_FUNCTIONS(XX)                                         \
    XX(cuMemGetHandleForAddressRange)                                        \
    XX(cuFlushGPUDirectRDMAWrites)

/* What is NULL where a driver does not have it. */
#define RS_CUDA_OPTIONAL_FUNCTIONS(XX) XX(cuModuleGetLoadingMode)

struct rs_cuda_driver {
    void *library;
    const char *no_direct;  /* the function that is missing for that, or NULL */
    const char *no_streams; /* the function that is missing for that, or NULL */
#define XX(name) __typeof__(&name) name;
    RS_CUDA_FUNCTIONS(XX)
    RS_CUDA_STREAM_FUNCTIONS(XX)
    RS_CUDA_DIRECT_FUNCTIONS(XX)
    RS_CUDA_OPTIONAL_FUNCTIONS(XX)
#undef XX
};

/**
 * The driver, looked for at first call and kept until the process ends.
 * Thread-safe.
 *
 * @param load load the library if the process has not
 * @return 0; RSCHED_ENOTSUP: there is none, or it lacks a function; the text
 *         says which. `driver` is set on success only.
 */
int rs_cuda_driver_find(bool load, const struct rs_cuda_driver **driver);

/** Whether the process has loaded the driver by now. A search is made only when
 * libraries have been loaded since the last one; else this is a look at a
 * counter of the dynamic linker. Thread-safe. */
bool rs_cuda_driver_attach(void);

/** The driver if one was found already, else NULL; a load from memory. */
const struct rs_cuda_driver *rs_cuda_driver_found(void);

/** Calls of this thread are ours until rs_cuda_restore(): while the program
 * captures a stream, in whichever thread, the driver fails calls that a capture
 * could miss, and the capture with them. Of ours there is nothing to miss, as
 * none of our own streams is captured. @return what restore is given */
CUstreamCaptureMode rs_cuda_relax(const struct rs_cuda_driver *driver);
void rs_cuda_restore(const struct rs_cuda_driver *driver,
                     CUstreamCaptureMode mode);

/** Set the error text "WHAT: NAME (text)" for a result of the driver and return
 * RSCHED_ENOTSUP; 0 for CUDA_SUCCESS. */
int rs_cuda_check(const struct rs_cuda_driver *driver, CUresult result,
                  const char *what);

/** The same while something runs: RSCHED_ENOMEM for want of memory,
 * RSCHED_ENOTSUP for what GPU or driver does not do, else RSCHED_ESYS. */
int rs_cuda_error(const struct rs_cuda_driver *driver, CUresult result,
                  const char *what);

#endif
