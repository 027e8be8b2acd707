/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: memory, and what other processes open of it. */
#include "tests/cuda/fake_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* What is gone stays, without access, so that its addresses are nobody else's. */
static struct fake_memory *memories, *graves;

void fake_die(const char *what, const void *which)
{
    fprintf(stderr, "fake driver: %p %s\n", which, what);
    abort();
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
}

struct fake_memory *fake_find(const char *address, size_t bytes)
{
    struct fake_memory *m = memories;

    while (m != NULL &&
           (address < m->address || address >= m->address + m->bytes ||
            bytes > (size_t)(m->address + m->bytes - address)))
        m = m->next;
    return m;
}

bool fake_is_gone(const char *address)
{
    const struct fake_memory *m = graves;

    /* What was only registered may be anybody's again. */
    while (m != NULL && (m->registered || address < m->address ||
                         address >= m->address + m->bytes))
        m = m->next;
    return m != NULL;
}

static struct fake_memory *add(const struct fake_memory *memory)
{
    struct fake_memory *m = malloc(sizeof(*m));

    if (m == NULL)
        abort();
    *m = *memory;
    pthread_mutex_lock(&fake_lock);
    m->next = memories;
    memories = m;
    pthread_mutex_unlock(&fake_lock);
    return m;
}

static void bar(char *address, size_t bytes)
{
    if (mmap(address, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
}

/* With the lock. */
static void bury(struct fake_memory *m)
{
    struct fake_memory **at = &memories;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    m->gone = true;
    m->next = graves;
    graves = m;
    if (m->registered)
        return;
    if (m->touch != m->address)
        bar(m->touch, whole_pages(m->bytes));
    bar(m->address, whole_pages(m->bytes));
    if (m->fd >= 0)
        close(m->fd);
}

/* Memory lies back to back, as the driver may place it: whoever goes on behind
 * the end of one allocation is in the next. */
static void *next_place(size_t bytes)
{
    static const size_t much = (size_t)4 << 30;
    static char *arena;
    static size_t left;
    void *place;

    pthread_mutex_lock(&fake_lock);
    if (left < bytes) {
        left = bytes > much ? bytes : much;
        arena = mmap(NULL, left, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            abort();
    }
    place = arena;
    arena += bytes;
    left -= bytes;
    pthread_mutex_unlock(&fake_lock);
    return place;
}

/* Map a file where processors may not touch it, and where they may: somewhere,
 * unless it is said. */
static bool map_twice(struct fake_memory *m, void *at, void *touch)
{
    size_t bytes = whole_pages(m->bytes);

    m->address = mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, m->fd, 0);
    m->touch = mmap(touch, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | (touch != NULL ? MAP_FIXED : 0), m->fd, 0);
    return m->address != MAP_FAILED && m->touch != MAP_FAILED;
}

/* The name says what others must know. */
static int make_file(size_t bytes, unsigned long long id, int gpu)
{
    char name[64];
    int fd;

    snprintf(name, sizeof(name), "fake-%016llx-%d-%zu", id, gpu, bytes);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)whole_pages(bytes)) != 0)
        abort();
    return fd;
}

/* @return whether the descriptor at a path is one of make_file() */
static bool read_name(const char *path, unsigned long long *id, int *gpu,
                      size_t *bytes)
{
    char link[128];
    ssize_t length = readlink(path, link, sizeof(link) - 1);

    if (length <= 0)
        return false;
    link[length] = '\0';
    return sscanf(link, "/memfd:fake-%llx-%d-%zu", id, gpu, bytes) == 3;
}

static unsigned long long new_id(void)
{
    unsigned long long id;

    if (getrandom(&id, sizeof(id), 0) != sizeof(id))
        abort();
    return id;
}

static CUresult allocate(size_t bytes, CUmemorytype type, bool managed,
                         void **address)
{
    bool device = type == CU_MEMORYTYPE_DEVICE && !managed;
    struct fake_memory m = {.bytes = bytes,
                            .type = type,
                            .managed = managed,
                            .gpu = fake_current()->gpu,
                            .fd = -1,
                            .id = new_id()};

    if (device) {
        m.fd = make_file(bytes, m.id, m.gpu);
        if (m.fd < 0 || !map_twice(&m, next_place(whole_pages(bytes)), NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        m.address = m.touch =
            mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m.address == MAP_FAILED)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = add(&m)->address;
    return CUDA_SUCCESS;
}

/* Of what no driver has given out, undefined; here the end. */
static CUresult release(void *address, CUmemorytype type)
{
    struct fake_memory *m;

    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    UNSAFE();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || m->address != address || m->type != type || m->opened ||
        m->registered || m->physical != NULL)
        fake_die("is freed and not allocated", address);
    if (m->fd >= 0)
        fake_counts[FAKE_DEVICE]--;
    bury(m);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemAlloc(CUdeviceptr *device, size_t bytes)
{
    CUresult result = fake_check(device, bytes);
    void *address;

    INJECT(cuMemAlloc);
    UNSAFE();
    if (result == CUDA_SUCCESS)
        result = allocate(bytes, CU_MEMORYTYPE_DEVICE, false, &address);
    if (result == CUDA_SUCCESS) {
        fake_count(FAKE_DEVICE, 1);
        *device = (CUdeviceptr)(uintptr_t)address;
    }
    return result;
}

API CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *device, size_t bytes,
                                       unsigned flags)
{
    CUresult result = fake_check(device, bytes);
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
    CUresult result = fake_check(address, bytes);

    if (flags != 0 &&
        flags != (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
        result = CUDA_ERROR_INVALID_VALUE;
    UNSAFE();
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

API void *fakeTouch(CUdeviceptr device)
{
    char *address = (char *)(uintptr_t)device, *touch = NULL;
    const struct fake_memory *m;

    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m != NULL && m->type == CU_MEMORYTYPE_DEVICE)
        touch = m->touch + (address - m->address);
    pthread_mutex_unlock(&fake_lock);
    return touch;
}

/* ---- host memory that copy engines reach ---- */

API CUresult CUDAAPI cuMemHostRegister(void *address, size_t bytes,
                                       unsigned flags)
{
    CUresult result = fake_check(address, bytes);
    struct fake_memory m = {.address = address,
                            .touch = address,
                            .bytes = bytes,
                            .type = CU_MEMORYTYPE_HOST,
                            .registered = true,
                            .fd = -1};

    INJECT(cuMemHostRegister);
    UNSAFE();
    if (result != CUDA_SUCCESS)
        return result;
    if (flags !=
        (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    if (fake_find(address, 1) != NULL)
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else
        fake_counts[FAKE_PINNED]++;
    pthread_mutex_unlock(&fake_lock);
    if (result == CUDA_SUCCESS)
        add(&m);
    return result;
}

API CUresult CUDAAPI cuMemHostUnregister(void *address)
{
    CUresult result = fake_check(address, 1);
    struct fake_memory *m;

    if (result != CUDA_SUCCESS)
        return result;
    UNSAFE();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || !m->registered || m->address != address)
        fake_die("is unregistered and not registered", address);
    fake_counts[FAKE_PINNED]--;
    bury(m);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* ---- handles ---- */

struct handle {
    unsigned long long magic, id;
    int pid, fd, gpu;
    size_t bytes;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "it fits");

#define HANDLE_MAGIC 0x66616b6568616e64ull

API CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle,
                                       CUdeviceptr device)
{
    const char *address = (const char *)(uintptr_t)device;
    CUresult result = fake_check(handle, 1);
    struct handle h = {.magic = HANDLE_MAGIC, .pid = getpid()};
    struct fake_memory *m;

    INJECT(cuIpcGetMemHandle);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || m->fd < 0 || m->opened || m->physical != NULL ||
        m->gpu != fake_current()->gpu) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        h.id = m->id;
        h.fd = m->fd;
        h.gpu = m->gpu;
        h.bytes = m->bytes;
    }
    pthread_mutex_unlock(&fake_lock);
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &h, sizeof(h));
    return result;
}

/* In the address space of the current context. With the lock. */
static CUresult check_handle(const struct handle *h, int gpu)
{
    if (h->magic != HANDLE_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (h->pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (h->gpu != gpu && fake_setting("FAKE_CUDA_PEERS", 1) == 0)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    for (const struct fake_memory *m = memories; m != NULL; m = m->next) {
        if (m->opened && m->id == h->id)
            fake_die("is open already: a handle is opened twice", m->address);
    }
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *device,
                                        CUipcMemHandle handle, unsigned flags)
{
    CUresult result = fake_check(device, 1);
    struct fake_memory m = {.type = CU_MEMORYTYPE_DEVICE,
                            .opened = true,
                            .context = fake_current()};
    unsigned long long id;
    struct handle h;
    char path[64];
    size_t bytes;
    int gpu;

    INJECT(cuIpcOpenMemHandle);
    UNSAFE();
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&h, &handle, sizeof(h));
    pthread_mutex_lock(&fake_lock);
    result = check_handle(&h, fake_current()->gpu);
    pthread_mutex_unlock(&fake_lock);
    if (result != CUDA_SUCCESS)
        return result;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.pid, h.fd);
    /* Freed meanwhile: the descriptor is closed, or another file's. */
    if (!read_name(path, &id, &gpu, &bytes) || id != h.id ||
        (m.fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    m.bytes = bytes;
    m.gpu = gpu;
    m.id = id;
    if (!map_twice(&m, next_place(whole_pages(m.bytes)), NULL))
        abort();
    pthread_mutex_lock(&fake_lock);
    fake_counts[FAKE_HANDLES]++;
    fake_counts[FAKE_HANDLES_OPEN]++;
    pthread_mutex_unlock(&fake_lock);
    *device = (CUdeviceptr)(uintptr_t)add(&m)->address;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr device)
{
    char *address = (char *)(uintptr_t)device;
    CUresult result = fake_check(&device, 1);
    struct fake_memory *m;

    if (result != CUDA_SUCCESS)
        return result;
    UNSAFE();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || !m->opened || m->physical != NULL || m->address != address)
        fake_die("is closed and not open", address);
    fake_counts[FAKE_HANDLES_OPEN]--;
    bury(m);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* ---- physical memory and its mappings ---- */

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
        .id = new_id(),
        .holders = 1,
        .exportable = (prop->requestedHandleTypes &
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0};
    p->fd = make_file(bytes, p->id, p->gpu);
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
    r->address = next_place(bytes);
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
    if (m.fd < 0 || !map_twice(&m, address, r->touch + (address - r->address)))
        abort();
    pthread_mutex_lock(&fake_lock);
    p->holders++;
    fake_counts[FAKE_IMPORTS_MAPPED] += p->imported;
    pthread_mutex_unlock(&fake_lock);
    add(&m);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemUnmap(CUdeviceptr device, size_t bytes)
{
    char *address = (char *)(uintptr_t)device;
    struct fake_memory *m;

    UNSAFE();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, bytes);
    if (m == NULL || m->physical == NULL || m->bytes != bytes)
        fake_die("is unmapped and not mapped", address);
    fake_counts[FAKE_IMPORTS_MAPPED] -= m->opened;
    put_physical(m->physical);
    bury(m);
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
        !read_name(path, &id, &gpu, &bytes))
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
    m = fake_find(address, 1);
    if (m == NULL && fake_seen_by_kernels(pointer, 1) != NULL)
        m = fake_find(fake_of_kernels(address), 1);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = tell(m, address, attributes[i], data[i]);
    pthread_mutex_unlock(&fake_lock);
    return result;
}
