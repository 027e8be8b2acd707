/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software, see fake.h: GPUs and contexts. */
#include "tests/cuda/fake_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engines/cuda/driver.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
unsigned long long fake_counts[FAKE_NUM_COUNTS];
static _Atomic pid_t initialised; /* by cuInit: a child of a fork has to do without */
static struct CUctx_st contexts[FAKE_GPUS];

enum { CONTEXTS_DEEP = 16 };
static _Thread_local CUcontext stack[CONTEXTS_DEEP];
static _Thread_local int depth;

int fake_setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : atoi(text);
}

int fake_num_gpus(void)
{
    return fake_setting("FAKE_CUDA_GPUS", 2);
}

CUresult fake_initialised(void)
{
    return initialised == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult check_device(CUdevice device, const void *out)
{
    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device >= 0 && device < fake_num_gpus() ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_DEVICE;
}

CUcontext fake_current(void)
{
    CUcontext context = depth == 0 ? NULL : stack[depth - 1];

    return context != NULL && context->holders > 0 ? context : NULL;
}

/* An allocation needs a context that somebody holds. */
CUresult fake_check(const void *out, size_t bytes)
{
    if (fake_is_in_host_function())
        fake_die("is used in a host function", out);
    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_current() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return out == NULL || bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* FAKE_CUDA_FAIL=NAME:K:N[:M],... */
CUresult fake_injected(const char *name, int call)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    size_t length = strlen(name);

    while (text != NULL && *text != '\0') {
        int from, result, times;
        int read = strncmp(text, name, length) != 0
                       ? 0
                       : sscanf(text + length, ":%d:%d:%d", &from, &result,
                                &times);

        if (read >= 2 && from > 0 && call >= from &&
            (read == 2 || call - from < times))
            return (CUresult)result;
        text = strchr(text, ',');
        text = text == NULL ? NULL : text + 1;
    }
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuInit(unsigned flags)
{
    int result = fake_setting("FAKE_CUDA_INIT", CUDA_SUCCESS);

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return (CUresult)result;
    if (fake_num_gpus() == 0)
        return CUDA_ERROR_NO_DEVICE;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < FAKE_GPUS && initialised != getpid(); i++)
        contexts[i].gpu = i;
    if (initialised != getpid())
        initialised = getpid();
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} errors[] = {
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device is there"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT",
     "invalid context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "illegal memory access"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED",
     "resource already mapped"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED",
     "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
     "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported"},
};

API CUresult CUDAAPI cuGetErrorName(CUresult result, const char **name)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].result == result) {
            *name = errors[i].name;
            return CUDA_SUCCESS;
        }
    }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult CUDAAPI cuGetErrorString(CUresult result, const char **text)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].result == result) {
            *text = errors[i].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    CUresult result = fake_initialised();

    if (result == CUDA_SUCCESS)
        *count = fake_num_gpus();
    return result;
}

API CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = check_device(ordinal, device);

    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

API CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = check_device(device, name);

    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)length, "Fake %d", device);
    return result;
}

API CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = check_device(device, uuid);

    if (result == CUDA_SUCCESS) {
        for (size_t i = 0; i < sizeof(uuid->bytes); i++)
            uuid->bytes[i] = (char)(0xa0 + (int)i);
        uuid->bytes[15] = (char)device;
    }
    return result;
}

API CUresult CUDAAPI cuDeviceGetPCIBusId(char *bus, int length,
                                         CUdevice device)
{
    CUresult result = check_device(device, bus);

    if (result == CUDA_SUCCESS)
        snprintf(bus, (size_t)length, "0000:%02X:00.0", 0x1b + device);
    return result;
}

API CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    CUresult result = check_device(device, bytes);

    if (result == CUDA_SUCCESS)
        *bytes = (size_t)80 << 30;
    return result;
}

static int numa_node_of(CUdevice device)
{
    const char *text = getenv("FAKE_CUDA_NUMA");

    for (int i = 0; i < device && text != NULL; i++) {
        text = strchr(text, ',');
        text = text == NULL ? NULL : text + 1;
    }
    return text == NULL ? 0 : atoi(text);
}

API CUresult CUDAAPI cuDeviceGetAttribute(int *value,
                                          CUdevice_attribute attribute,
                                          CUdevice device)
{
    CUresult result = check_device(device, value);

    if (result != CUDA_SUCCESS)
        return result;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = fake_setting("FAKE_CUDA_PROCESSORS", 2);
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        *value = fake_setting("FAKE_CUDA_MODE", CU_COMPUTEMODE_DEFAULT);
        break;
    case RS_CUDA_MPS_ENABLED:
        *value = fake_setting("FAKE_CUDA_MPS", 0);
        break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        *value = fake_setting("FAKE_CUDA_INTEGRATED", 0);
        break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = fake_setting("FAKE_CUDA_DESCRIPTORS", 1);
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        *value = fake_setting("FAKE_CUDA_DIRECT", 1);
        break;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
        *value = fake_setting("FAKE_CUDA_HOST_TABLES", 0);
        break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        *value = fake_setting("FAKE_CUDA_DMABUF", 1);
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
        *value = fake_setting("FAKE_CUDA_ORDERING", 0);
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
        *value = fake_setting("FAKE_CUDA_FLUSH", 1) != 0
                     ? CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
                     : 0;
        break;
    case RS_CUDA_HOST_NUMA_ID:
        *value = numa_node_of(device);
        if (*value == -9) /* a driver that does not know the attribute */
            return CUDA_ERROR_INVALID_VALUE;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

#ifndef FAKE_CUDA_OLD /* the driver before the one that had this */
API CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device,
                                           CUdevice peer)
{
    CUresult result = check_device(device, can);

    if (result == CUDA_SUCCESS)
        result = check_device(peer, can);
    if (result == CUDA_SUCCESS)
        *can = device != peer && fake_setting("FAKE_CUDA_PEERS", 1) != 0;
    return result;
}
#endif

API CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context,
                                              CUdevice device)
{
    CUresult result = check_device(device, context);

    INJECT(cuDevicePrimaryCtxRetain);
    UNSAFE();
    if (result != CUDA_SUCCESS)
        return result;
    fake_linger();
    pthread_mutex_lock(&fake_lock);
    contexts[device].holders++;
    fake_counts[FAKE_CONTEXTS]++;
    pthread_mutex_unlock(&fake_lock);
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device,
                                                unsigned *flags, int *active)
{
    CUresult result = check_device(device, active);

    if (result != CUDA_SUCCESS)
        return result;
    *flags = 0;
    *active = contexts[device].holders > 0;
    return CUDA_SUCCESS;
}

OWN CUcontext fakeContext(int gpu)
{
    static struct CUctx_st others[FAKE_GPUS];

    others[gpu].gpu = gpu;
    others[gpu].holders = 1;
    return &others[gpu];
}

API CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = check_device(device, &device);

    UNSAFE();
    if (result != CUDA_SUCCESS)
        return result;
    fake_linger();
    pthread_mutex_lock(&fake_lock);
    if (contexts[device].holders == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (contexts[device].holders == 1 && contexts[device].objects > 0)
        fake_die("is given up with streams, events or modules of its own",
                 &contexts[device]);
    else
        contexts[device].holders--;
    if (result == CUDA_SUCCESS)
        fake_counts[FAKE_CONTEXTS]--;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

API CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (depth == 0)
        depth = 1;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    *context = depth == 0 ? NULL : stack[depth - 1];
    return fake_initialised();
}

API CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    CUresult result = fake_check(device, 1);

    if (result == CUDA_SUCCESS)
        *device = fake_current()->gpu;
    return result;
}

API CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (context == NULL || context->holders == 0 || depth == CONTEXTS_DEEP)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    fake_count(FAKE_PUSHES, 1);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context)
{
    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

OWN unsigned long long fakeCount(enum fake_count what)
{
    unsigned long long count;

    pthread_mutex_lock(&fake_lock);
    count = fake_counts[what];
    pthread_mutex_unlock(&fake_lock);
    return count;
}

void fake_count(enum fake_count what, int by)
{
    pthread_mutex_lock(&fake_lock);
    fake_counts[what] += (unsigned long long)(long long)by;
    pthread_mutex_unlock(&fake_lock);
}

void fake_linger(void)
{
    long us = fake_setting("FAKE_CUDA_LINGER", 100);

    nanosleep(&(struct timespec){.tv_sec = us / 1000000,
                                 .tv_nsec = us % 1000000 * 1000},
              NULL);
}

static void __attribute__((destructor)) look_for_leaks(void)
{
    static const enum fake_count kept[] = {FAKE_HANDLES_OPEN, FAKE_MODULES,
                                           FAKE_IMPORTS_MAPPED, FAKE_STREAMS,
                                           FAKE_EVENTS, FAKE_PINNED,
                                           FAKE_GRAPHS};

    if (fake_initialised() != CUDA_SUCCESS)
        return;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (fake_counts[kept[i]] == 0)
            continue;
        fprintf(stderr, "fake driver: %llu of kind %d are left at the end\n",
                fake_counts[kept[i]], (int)kept[i]);
        abort();
    }
}
