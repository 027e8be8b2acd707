/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.h as CUDA 12.0 has it, as far as we use it, out of a later one: what has
 * come or changed since then cannot be named. */
#ifndef CUDA_TWELVE_H
#define CUDA_TWELVE_H

#include_next <cuda.h>

#if CUDA_VERSION >= 12020
#pragma GCC poison CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
#endif
#if CUDA_VERSION >= 12030
#pragma GCC poison CU_DEVICE_ATTRIBUTE_MPS_ENABLED CUgraphEdgeData
#endif
#if CUDA_VERSION >= 13000
#undef cuDeviceGetUuid
CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
#undef cuStreamGetCaptureInfo
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream,
                                           CUstreamCaptureStatus *status,
                                           cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **nodes,
                                           size_t *number);
#endif
#undef CUDA_VERSION
#define CUDA_VERSION 12000

#endif
