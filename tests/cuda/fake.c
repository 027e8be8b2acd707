/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software, see fake.h. */
#include "tests/cuda/fake.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum { GPUS_MOST = 8, PAGE = 4096 };

/* A context is the primary one of its GPU. */
struct CUctx_st {
    int gpu;
    unsigned holders;
};

struct allocation {
    char *address;
    size_t bytes;
    CUmemorytype type;
    bool managed;
    int gpu;
    struct allocation *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t initialised; /* by cuInit: a child of a fork has to do without */
static struct CUctx_st contexts[GPUS_MOST];
static struct allocation *allocations;
static _Thread_local CUcontext current;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : atoi(text);
}

static int num_gpus(void)
{
    return setting("FAKE_CUDA_GPUS", 2);
}

static CUresult check_initialised(void)
{
    return initialised == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult check_device(CUdevice device, const void *out)
{
    if (check_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device >= 0 && device < num_gpus() ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_DEVICE;
}

/* An allocation needs a context that somebody holds. */
static CUresult check_context(const void *out, size_t bytes)
{
    if (check_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (current == NULL || current->holders == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return out == NULL || bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API CUresult CUDAAPI cuInit(unsigned flags)
{
    int result = setting("FAKE_CUDA_INIT", CUDA_SUCCESS);

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return (CUresult)result;
    if (num_gpus() == 0)
        return CUDA_ERROR_NO_DEVICE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < GPUS_MOST; i++)
        contexts[i].gpu = i;
    initialised = getpid();
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} errors[] = {
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device is there"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device"},
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
    CUresult result = check_initialised();

    if (result == CUDA_SUCCESS)
        *count = num_gpus();
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
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        *value = setting("FAKE_CUDA_MODE", CU_COMPUTEMODE_DEFAULT);
        break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
        *value = setting("FAKE_CUDA_MPS", 0);
        break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        *value = setting("FAKE_CUDA_INTEGRATED", 0);
        break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = setting("FAKE_CUDA_DESCRIPTORS", 1);
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        *value = setting("FAKE_CUDA_DIRECT", 1);
        break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
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
        *can = device != peer && setting("FAKE_CUDA_PEERS", 1) != 0;
    return result;
}
#endif

API CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context,
                                              CUdevice device)
{
    CUresult result = check_device(device, context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    contexts[device].holders++;
    pthread_mutex_unlock(&lock);
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = check_device(device, &device);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    if (contexts[device].holders == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        contexts[device].holders--;
    pthread_mutex_unlock(&lock);
    return result;
}

API CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    if (check_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    current = context;
    return CUDA_SUCCESS;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static CUresult allocate(size_t bytes, CUmemorytype type, bool managed,
                         void **address)
{
    int access = type == CU_MEMORYTYPE_DEVICE && !managed
                     ? PROT_NONE
                     : PROT_READ | PROT_WRITE;
    struct allocation *a = malloc(sizeof(*a));
    void *memory = mmap(NULL, whole_pages(bytes), access,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (a == NULL || memory == MAP_FAILED) {
        free(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    *a = (struct allocation){memory, bytes, type, managed, current->gpu,
                             allocations};
    allocations = a;
    pthread_mutex_unlock(&lock);
    *address = memory;
    return CUDA_SUCCESS;
}

/* Of what no driver has given out, undefined; here the end. */
static CUresult release(void *address, CUmemorytype type)
{
    struct allocation **at = &allocations, *a;

    if (check_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    while (*at != NULL && (*at)->address != address)
        at = &(*at)->next;
    a = *at;
    if (a == NULL || a->type != type) {
        fprintf(stderr, "fake driver: %p is freed and not allocated\n",
                address);
        abort();
    }
    *at = a->next;
    pthread_mutex_unlock(&lock);
    munmap(a->address, whole_pages(a->bytes));
    free(a);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemAlloc(CUdeviceptr *device, size_t bytes)
{
    CUresult result = check_context(device, bytes);
    void *address;

    if (result == CUDA_SUCCESS)
        result = allocate(bytes, CU_MEMORYTYPE_DEVICE, false, &address);
    if (result == CUDA_SUCCESS)
        *device = (CUdeviceptr)(uintptr_t)address;
    return result;
}

API CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *device, size_t bytes,
                                       unsigned flags)
{
    CUresult result = check_context(device, bytes);
    void *address;

    if (flags != CU_MEM_ATTACH_GLOBAL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = allocate(bytes, CU_MEMORYTYPE_DEVICE, true, &address);
    if (result == CUDA_SUCCESS)
        *device = (CUdeviceptr)(uintptr_t)address;
    return result;
}

API CUresult CUDAAPI cuMemHostAlloc(void **address, size_t bytes,
                                    unsigned flags)
{
    CUresult result = check_context(address, bytes);

    if (flags != 0)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = allocate(bytes, CU_MEMORYTYPE_HOST, false, address);
    return result;
}

API CUresult CUDAAPI cuMemFree(CUdeviceptr device)
{
    return release((void *)(uintptr_t)device, CU_MEMORYTYPE_DEVICE);
}

API CUresult CUDAAPI cuMemFreeHost(void *address)
{
    return release(address, CU_MEMORYTYPE_HOST);
}

static const struct allocation *find(const char *address)
{
    const struct allocation *a = allocations;

    while (a != NULL &&
           (address < a->address || address >= a->address + a->bytes))
        a = a->next;
    return a;
}

/* Unknown attributes of unknown addresses are 0. */
static CUresult tell(const struct allocation *a, CUpointer_attribute attribute,
                     void *value)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)value = a == NULL ? (CUmemorytype)0 : a->type;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = a != NULL && a->managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = a == NULL ? CU_DEVICE_INVALID : a->gpu;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = a == NULL ? 0
                                          : (CUdeviceptr)(uintptr_t)a->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = a == NULL ? 0 : a->bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult CUDAAPI cuPointerGetAttributes(unsigned count,
                                            CUpointer_attribute *attributes,
                                            void **data, CUdeviceptr pointer)
{
    CUresult result = (CUresult)setting("FAKE_CUDA_POINTERS", CUDA_SUCCESS);
    const struct allocation *a;

    if (check_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    a = find((const char *)(uintptr_t)pointer);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = tell(a, attributes[i], data[i]);
    pthread_mutex_unlock(&lock);
    return result;
}
