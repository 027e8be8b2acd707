/* SPDX-License-Identifier: BSD-3-Clause */
/* DRIVER: the functions of the CUDA driver that programs here call, found at run
 * time, and its first GPU. What it refuses ends the program. */
#ifndef BENCH_GPU_DRIVER_H
#define BENCH_GPU_DRIVER_H

#include <cuda.h>

/* cuda.h chooses the version of a function by a macro of its name. */
#define DRIVER_FUNCTIONS(XX)                                                 \
    XX(cuInit)                                                               \
    XX(cuDeviceGetCount)                                                     \
    XX(cuDevicePrimaryCtxRetain)                                             \
    XX(cuDevicePrimaryCtxRelease)                                            \
    XX(cuCtxSetCurrent)                                                      \
    XX(cuStreamCreate)                                                       \
    XX(cuStreamDestroy)                                                      \
    XX(cuStreamSynchronize)                                                  \
    XX(cuMemAlloc)                                                           \
    XX(cuMemFree)                                                            \
    XX(cuMemHostAlloc)                                                       \
    XX(cuMemFreeHost)                                                        \
    XX(cuMemHostRegister)                                                    \
    XX(cuMemHostUnregister)                                                  \
    XX(cuMemHostGetDevicePointer)                                            \
    XX(cuMemcpyAsync)                                                        \
    XX(cuModuleLoadData)                                                     \
    XX(cuModuleUnload)                                                       \
    XX(cuModuleGetFunction)                                                  \
    XX(cuLaunchKernel)

struct driver {
#define DRIVER_XX(name) __typeof__(&name) name;
    DRIVER_FUNCTIONS(DRIVER_XX)
#undef DRIVER_XX
    CUstream stream; /* of the first GPU, whose primary context is current */
};

extern struct driver cuda;

/** Find it. @return NULL, or why there is no GPU */
const char *driver_begin(void);
void driver_end(void);

/** End the program if that has failed. @param what what was asked for */
void driver_needs(CUresult result, const char *what);

#endif
