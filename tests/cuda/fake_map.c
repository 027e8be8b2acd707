/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: memory that is made, reserved and mapped one by one, and
 * what it tells of an address. */
#include "tests/cuda/fake_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct fake_physical {
    int fd, gpu;
    size_t bytes;
    unsigned long long id;
    unsigned holders; /* handles and mappings */
    bool exportable, imported;
};

static void put_physical(struct fake_physical *p)
{
    if (--p->holders > 0)
        return;
    close(p->fd);
    free(p);
}

static struct fake_physical *physical_of(CUmemGenericAllocationHandle handle)
{
    return (struct fake_physical *)(uintptr_t)handle;
}

API CUresult CUDAAPI cuMemGetAllocationGranularity(
    size_t *bytes, const CUmemAllocationProp *prop,
    CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *bytes = FAKE_PAGE;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle,
                                 size_t bytes, const CUmemAllocationProp *prop,
                                 unsigned long long flags)
{
    CUresult result = fake_initialised();
    struct fake_physical *p;

    INJECT(cuMemCreate);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || prop == NULL || flags != 0 || bytes == 0 ||
        bytes % FAKE_PAGE != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        prop->location.id < 0 || prop->location.id >= fake_num_gpus())
        return CUDA_ERROR_INVALID_VALUE;
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *p = (struct fake_physical){
        .gpu = prop->location.id,
        .bytes = bytes,
        .id = fake_new_id(),
        .holders = 1,
        .exportable = (prop->requestedHandleTypes &
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0};
    p->fd = fake_make_file(bytes, p->id, p->gpu);
    if (p->fd < 0)
        abort();
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&fake_lock);
    put_physical(physical_of(handle));
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* Address space: where it can be mapped, and where processors may touch that. */
struct fake_reserved {
    struct fake_reserved *next;
    char *address, *touch;
    size_t bytes;
};
static struct fake_reserved *reservations; /* with the lock */

static struct fake_reserved *find_reserved(const char *address)
{
    struct fake_reserved *r = reservations;

    while (r != NULL &&
           (address < r->address || address >= r->address + r->bytes))
        r = r->next;
    return r;
}

struct fake_memory *fake_find_mapped(const char *address, size_t bytes, int gpu)
{
    struct fake_memory *first = fake_find(address, 1);

    for (size_t at = 0; at < bytes;) {
        const struct fake_memory *m = fake_find(address + at, 1);

        if (m == NULL || m->physical == NULL ||
            m->reserved != first->reserved || (m->access >> gpu & 1) == 0)
            return NULL;
        at = (size_t)(m->address + m->bytes - address);
    }
    return first;
}

API CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *device, size_t bytes,
                                         size_t alignment, CUdeviceptr address,
                                         unsigned long long flags)
{
    struct fake_reserved *r;

    if (device == NULL || bytes == 0 || bytes % FAKE_PAGE != 0 ||
        alignment > FAKE_PAGE || address != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    r = malloc(sizeof(*r));
    if (r == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r->bytes = bytes;
    r->address = fake_next_place(bytes);
    r->touch = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->touch == MAP_FAILED)
        abort();
    pthread_mutex_lock(&fake_lock);
    r->next = reservations;
    reservations = r;
    pthread_mutex_unlock(&fake_lock);
    *device = (CUdeviceptr)(uintptr_t)r->address;
    return CUDA_SUCCESS;
}

/* The address is nobody else's for ever. */
API CUresult CUDAAPI cuMemAddressFree(CUdeviceptr device, size_t bytes)
{
    char *address = (char *)(uintptr_t)device;
    struct fake_reserved **at = &reservations, *r;

    pthread_mutex_lock(&fake_lock);
    while (*at != NULL && (*at)->address != address)
        at = &(*at)->next;
    r = *at;
    if (r == NULL || r->bytes != bytes)
        fake_die("is given up and not reserved", address);
    for (size_t i = 0; i < bytes; i += FAKE_PAGE) {
        if (fake_find(address + i, 1) != NULL)
            fake_die("is given up and mapped", address);
    }
    *at = r->next;
    munmap(r->touch, bytes);
    pthread_mutex_unlock(&fake_lock);
    free(r);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemMap(CUdeviceptr device, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle,
                              unsigned long long flags)
{
    struct fake_physical *p = physical_of(handle);
    struct fake_memory m = {.bytes = bytes,
                            .type = CU_MEMORYTYPE_DEVICE,
                            .opened = p->imported,
                            .gpu = p->gpu,
                            .id = p->id,
                            .physical = p};
    char *address = (char *)(uintptr_t)device;
    struct fake_reserved *r;

    INJECT(cuMemMap);
    WAITS(cuMemMap);
    UNSAFE();
    if (offset != 0 || flags != 0 || bytes != p->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    r = find_reserved(address);
    if (r == NULL || bytes > (size_t)(r->address + r->bytes - address) ||
        fake_find(address, 1) != NULL)
        fake_die("is mapped to where nothing is reserved", address);
    pthread_mutex_unlock(&fake_lock);
    m.reserved = r;
    m.fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    if (m.fd < 0 || !fake_map_twice(&m, address, r->touch + (address - r->address)))
        abort();
    pthread_mutex_lock(&fake_lock);
    p->holders++;
    fake_counts[FAKE_IMPORTS_MAPPED] += p->imported;
    pthread_mutex_unlock(&fake_lock);
    fake_add(&m);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemUnmap(CUdeviceptr device, size_t bytes)
{
    char *address = (char *)(uintptr_t)device;
    struct fake_memory *m;

    UNSAFE();
    fake_wait_for_streams();
    fake_linger();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, bytes);
    if (m == NULL || m->physical == NULL || m->bytes != bytes)
        fake_die("is unmapped and not mapped", address);
    fake_counts[FAKE_IMPORTS_MAPPED] -= m->opened;
    put_physical(m->physical);
    fake_bury(m);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemSetAccess(CUdeviceptr device, size_t bytes,
                                    const CUmemAccessDesc *access, size_t count)
{
    char *address = (char *)(uintptr_t)device;
    CUresult result = CUDA_SUCCESS;
    struct fake_memory *m;

    INJECT(cuMemSetAccess);
    UNSAFE();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, bytes);
    if (m == NULL || m->physical == NULL || m->bytes != bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (access[i].location.id != m->gpu &&
                 fake_setting("FAKE_CUDA_PEERS", 1) == 0)
            result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        else
            m->access |= 1u << access[i].location.id;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

API CUresult CUDAAPI cuMemRetainAllocationHandle(
    CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct fake_memory *m;

    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m != NULL && m->physical != NULL) {
        m->physical->holders++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)m->physical;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

API CUresult CUDAAPI cuMemExportToShareableHandle(
    void *shareable, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags)
{
    struct fake_physical *p = physical_of(handle);

    INJECT(cuMemExportToShareableHandle);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 ||
        !p->exportable)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)shareable = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *shareable,
    CUmemAllocationHandleType type)
{
    int fd = (int)(uintptr_t)shareable, gpu;
    struct fake_physical *p;
    unsigned long long id;
    char path[64];
    size_t bytes;

    INJECT(cuMemImportFromShareableHandle);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !fake_read_name(path, &id, &gpu, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *p = (struct fake_physical){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                .gpu = gpu,
                                .bytes = bytes,
                                .id = id,
                                .holders = 1,
                                .imported = true};
    pthread_mutex_lock(&fake_lock);
    fake_counts[FAKE_IMPORTS]++;
    pthread_mutex_unlock(&fake_lock);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return CUDA_SUCCESS;
}

/* ---- what an address is ---- */

API CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *start, size_t *bytes,
                                          CUdeviceptr device)
{
    CUresult result = fake_check(start, 1);
    const struct fake_memory *m;

    INJECT(cuMemGetAddressRange);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_lock);
    m = fake_find((const char *)(uintptr_t)device, 1);
    if (m == NULL || m->type != CU_MEMORYTYPE_DEVICE ||
        m->gpu != fake_current()->gpu) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        *start = (CUdeviceptr)(uintptr_t)m->address;
        *bytes = m->bytes;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* Unknown attributes of unknown addresses are 0. The range of mapped memory is
 * all that was reserved with it. */
static CUresult tell(const struct fake_memory *m, const char *pointer,
                     CUpointer_attribute attribute, void *value)
{
    const struct fake_reserved *r = m != NULL ? m->reserved
                                              : find_reserved(pointer);

    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)value = m == NULL ? (CUmemorytype)0 : m->type;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = m != NULL && m->managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = m == NULL ? CU_DEVICE_INVALID : m->gpu;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = r != NULL ? (CUdeviceptr)(uintptr_t)r->address
                                : m == NULL
                                    ? 0
                                    : (CUdeviceptr)(uintptr_t)m->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = r != NULL ? r->bytes : m == NULL ? 0 : m->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(const void **)value =
            m == NULL || (m->type != CU_MEMORYTYPE_HOST && !m->managed) ? NULL
            : fake_of_kernels(pointer) != NULL ? fake_of_kernels(pointer)
                                               : pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = m == NULL ? NULL : m->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = m == NULL ? 0 : m->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)value = m != NULL && m->fd >= 0 && m->physical == NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(CUmemAllocationHandleType *)value =
            m != NULL && m->physical != NULL && m->physical->exportable
                ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                : CU_MEM_HANDLE_TYPE_NONE;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult CUDAAPI cuPointerSetAttribute(const void *value,
                                           CUpointer_attribute attribute,
                                           CUdeviceptr pointer)
{
    CUresult result = fake_check(value, 1);
    struct fake_memory *m;

    if (result != CUDA_SUCCESS)
        return result;
    UNSAFE();
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    m = fake_find((const char *)(uintptr_t)pointer, 1);
    if (m == NULL || m->type != CU_MEMORYTYPE_DEVICE || m->managed ||
        m->physical != NULL || m->gpu != fake_current()->gpu) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        m->synchronous = *(const unsigned *)value != 0;
        fake_do_late_copies();
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

API CUresult CUDAAPI cuPointerGetAttributes(unsigned count,
                                            CUpointer_attribute *attributes,
                                            void **data, CUdeviceptr pointer)
{
    CUresult result = (CUresult)fake_setting("FAKE_CUDA_POINTERS",
                                             CUDA_SUCCESS);
    const char *address = (const char *)(uintptr_t)pointer;
    const struct fake_memory *m;

    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&fake_lock);
    fake_counts[FAKE_QUESTIONS]++;
    m = fake_find(address, 1);
    if (m == NULL && fake_seen_by_kernels(pointer, 1) != NULL)
        m = fake_find(fake_of_kernels(address), 1);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = tell(m, address, attributes[i], data[i]);
    pthread_mutex_unlock(&fake_lock);
    return result;
}
