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

struct fake_memory *fake_find_there(const char *address, size_t bytes)
{
    struct fake_memory *m = memories;

    while (m != NULL &&
           (m->there == NULL || address < m->there ||
            address >= m->there + m->bytes ||
            bytes > (size_t)(m->there + m->bytes - address)))
        m = m->next;
    return m;
}

char *fake_of_kernels(const char *address)
{
    const struct fake_memory *m = fake_find_there(address, 1);

    return m == NULL ? NULL : m->address + (address - m->there);
}

void fake_for_all(void (*f)(const struct fake_memory *m, void *arg), void *arg)
{
    for (const struct fake_memory *m = memories; m != NULL; m = m->next)
        f(m, arg);
}

static bool was_in(const struct fake_memory *m, const char *address)
{
    if (m->there != NULL && address >= m->there &&
        address < m->there + m->bytes)
        return true;
    /* What was only registered may be anybody's again. */
    return !m->registered && address >= m->address &&
           address < m->address + m->bytes;
}

bool fake_is_gone(const char *address)
{
    const struct fake_memory *m = graves;

    while (m != NULL && !was_in(m, address))
        m = m->next;
    return m != NULL;
}

struct fake_memory *fake_add_locked(const struct fake_memory *memory)
{
    struct fake_memory *m = malloc(sizeof(*m));

    if (m == NULL)
        abort();
    *m = *memory;
    m->next = memories;
    memories = m;
    return m;
}

struct fake_memory *fake_add(const struct fake_memory *memory)
{
    struct fake_memory *m;

    pthread_mutex_lock(&fake_lock);
    m = fake_add_locked(memory);
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
void fake_bury(struct fake_memory *m)
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
void *fake_next_place(size_t bytes)
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
bool fake_map_twice(struct fake_memory *m, void *at, void *touch)
{
    size_t bytes = whole_pages(m->bytes);

    m->address =
        mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, m->fd, 0);
    m->touch = mmap(touch, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | (touch != NULL ? MAP_FIXED : 0), m->fd, 0);
    return m->address != MAP_FAILED && m->touch != MAP_FAILED;
}

/* The name says what others must know. */
int fake_make_file(size_t bytes, unsigned long long id, int gpu)
{
    char name[64];
    int fd;

    snprintf(name, sizeof(name), "fake-%016llx-%d-%zu", id, gpu, bytes);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)whole_pages(bytes)) != 0)
        abort();
    return fd;
}

/* @return whether the descriptor at a path is one of fake_make_file() */
bool fake_read_name(const char *path, unsigned long long *id, int *gpu,
                      size_t *bytes)
{
    char link[128];
    ssize_t length = readlink(path, link, sizeof(link) - 1);

    if (length <= 0)
        return false;
    link[length] = '\0';
    return sscanf(link, "/memfd:fake-%llx-%d-%zu", id, gpu, bytes) == 3;
}

unsigned long long fake_new_id(void)
{
    unsigned long long id;

    if (getrandom(&id, sizeof(id), 0) != sizeof(id))
        abort();
    return id;
}

/* The addresses of device memory of that size that was freed last: the driver
 * gives them out again at once. NULL: they are not, or there are none. */
static void *take_grave(size_t bytes)
{
    struct fake_memory **at = &graves, *m;

    if (fake_setting("FAKE_CUDA_REUSE", 0) == 0)
        return NULL;
    pthread_mutex_lock(&fake_lock);
    while (*at != NULL &&
           ((*at)->fd < 0 || (*at)->opened || (*at)->physical != NULL ||
            whole_pages((*at)->bytes) != whole_pages(bytes)))
        at = &(*at)->next;
    m = *at;
    if (m != NULL)
        *at = m->next; /* copies under way have it still */
    pthread_mutex_unlock(&fake_lock);
    return m == NULL ? NULL : m->address;
}

static CUresult allocate(size_t bytes, CUmemorytype type, bool managed,
                         void **address)
{
    bool device = type == CU_MEMORYTYPE_DEVICE && !managed;
    struct fake_memory m = {.bytes = bytes,
                            .type = type,
                            .managed = managed,
                            .context = fake_current(),
                            .gpu = fake_current()->gpu,
                            .fd = -1,
                            .id = fake_new_id()};

    if (device) {
        void *place = take_grave(bytes);

        if (place == NULL)
            place = fake_next_place(whole_pages(bytes));
        m.fd = fake_make_file(bytes, m.id, m.gpu);
        if (m.fd < 0 || !fake_map_twice(&m, place, NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        m.address = m.touch =
            mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (m.address == MAP_FAILED)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (!managed)
            m.there = fake_next_place(whole_pages(bytes));
    }
    *address = fake_add(&m)->address;
    return CUDA_SUCCESS;
}

/* Of what no driver has given out, undefined; here the end. */
static CUresult release(void *address, CUmemorytype type)
{
    struct fake_memory *m;

    if (fake_initialised() != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    UNSAFE();
    fake_wait_for_streams();
    fake_linger();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || m->address != address || m->type != type || m->opened ||
        m->registered || m->physical != NULL)
        fake_die("is freed and not allocated", address);
    if (m->fd >= 0)
        fake_counts[FAKE_DEVICE]--;
    fake_bury(m);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemAlloc(CUdeviceptr *device, size_t bytes)
{
    CUresult result = fake_check(device, bytes);
    void *address;

    INJECT(cuMemAlloc);
    UNSAFE();
    WAITS(cuMemAlloc);
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
    WAITS(cuMemHostAlloc);
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

OWN void *fakeTouch(CUdeviceptr device)
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

/* ---- handles ---- */

struct handle {
    unsigned long long magic, id;
    int pid, fd, gpu;
    char *address; /* there */
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
        h.address = m->address;
        h.bytes = m->bytes;
    }
    pthread_mutex_unlock(&fake_lock);
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &h, sizeof(h));
    return result;
}

/* In the address space of the current context, of which a process has one for each
 * GPU. With the lock. */
static CUresult check_handle(const struct handle *h, CUcontext context)
{
    if (h->magic != HANDLE_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (h->pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (h->gpu != context->gpu && fake_setting("FAKE_CUDA_PEERS", 1) == 0)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    for (const struct fake_memory *m = memories; m != NULL; m = m->next) {
        if (m->opened && m->id == h->id && m->context == context)
            fake_die("is open already: a handle is opened twice", m->address);
        /* What was freed there, and is open here. */
        if (m->opened && m->id != h->id && m->pid == h->pid &&
            m->physical == NULL && h->address < m->exported + m->bytes &&
            m->exported < h->address + h->bytes)
            return CUDA_ERROR_ALREADY_MAPPED;
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
    WAITS(cuIpcOpenMemHandle);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&h, &handle, sizeof(h));
    pthread_mutex_lock(&fake_lock);
    result = check_handle(&h, fake_current());
    pthread_mutex_unlock(&fake_lock);
    if (result != CUDA_SUCCESS)
        return result;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.pid, h.fd);
    /* Freed meanwhile: the descriptor is closed, or another file's. */
    if (!fake_read_name(path, &id, &gpu, &bytes) || id != h.id ||
        (m.fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    m.bytes = bytes;
    m.gpu = gpu;
    m.id = id;
    m.pid = h.pid;
    m.exported = h.address;
    if (!fake_map_twice(&m, fake_next_place(whole_pages(m.bytes)), NULL))
        abort();
    pthread_mutex_lock(&fake_lock);
    fake_counts[FAKE_HANDLES]++;
    fake_counts[FAKE_HANDLES_OPEN]++;
    pthread_mutex_unlock(&fake_lock);
    *device = (CUdeviceptr)(uintptr_t)fake_add(&m)->address;
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
    fake_wait_for_streams();
    fake_linger();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || !m->opened || m->physical != NULL || m->address != address)
        fake_die("is closed and not open", address);
    fake_counts[FAKE_HANDLES_OPEN]--;
    fake_bury(m);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}
