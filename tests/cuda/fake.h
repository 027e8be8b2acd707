/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver in software: libcuda.so.1 for machines without one. Device memory is
 * host memory that processors may not touch: it has no access rights at the
 * address that the driver gives out, so whoever copies it like the host's dies
 * of SIGSEGV. It is strict: what the real driver forbids is an error, and what
 * it leaves undefined aborts.
 *
 * The environment says what there is:
 *
 *   FAKE_CUDA_GPUS=N      GPUs, 2 unless told; 0: cuInit finds none
 *   FAKE_CUDA_INIT=N      the result of cuInit
 *   FAKE_CUDA_NUMA=A,B,.. NUMA nodes of the GPUs; 0 for those left out
 *   FAKE_CUDA_PEERS=0     no GPU can access another one
 *   FAKE_CUDA_DIRECT=0    no GPUDirect RDMA
 *   FAKE_CUDA_MODE=N      compute mode of all
 *   FAKE_CUDA_MPS=1       there is a server that shares them
 *   FAKE_CUDA_POINTERS=N  the result of cuPointerGetAttributes
 *
 * What it cannot show: whether hardware does what the driver's documentation
 * says.
 */
#ifndef TESTS_CUDA_FAKE_H
#define TESTS_CUDA_FAKE_H

#include <cuda.h>

/* Functions that tests call by name, as programs do that use GPUs. */
#define FAKE_CALLS(XX)                                                       \
    XX(cuInit)                                                               \
    XX(cuDevicePrimaryCtxRetain)                                             \
    XX(cuDevicePrimaryCtxRelease)                                            \
    XX(cuCtxSetCurrent)                                                      \
    XX(cuMemAlloc)                                                           \
    XX(cuMemAllocManaged)                                                    \
    XX(cuMemHostAlloc)                                                       \
    XX(cuMemFree)                                                            \
    XX(cuMemFreeHost)

#endif
