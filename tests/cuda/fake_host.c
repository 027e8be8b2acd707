/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver in software: host memory that copy engines and kernels reach.
 *
 * The real driver pins whole pages, and has each at most once; whoever shares a
 * page with others has to share its registration. Registers of devices are no
 * memory: they are mapped as what they are, and nothing else is mapped so. Here a
 * page is one of registers if it is of a file whose name says so.
 */
#include "tests/cuda/fake_inside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    FLAGS = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
            CU_MEMHOSTREGISTER_IOMEMORY,
};

struct pages {
    const char *begin, *end;
    bool known; /* one of them at least is the driver's */
};

static struct pages pages_of(const char *address, size_t bytes)
{
    uintptr_t begin = (uintptr_t)address / FAKE_PAGE * FAKE_PAGE;
    uintptr_t end = ((uintptr_t)address + bytes + FAKE_PAGE - 1) / FAKE_PAGE *
                    FAKE_PAGE;

    return (struct pages){(const char *)begin, (const char *)end, false};
}

static void look_for_pages(const struct fake_memory *m, void *arg)
{
    const struct pages own = pages_of(m->address, m->bytes);
    struct pages *pages = arg;

    if (m->type == CU_MEMORYTYPE_HOST && own.begin < pages->end &&
        pages->begin < own.end)
        pages->known = true;
}

/* @return whether a line of the file `maps` is of all these pages */
static bool has_pages(const char *line, const struct pages *pages)
{
    unsigned long begin, end;

    return sscanf(line, "%lx-%lx", &begin, &end) == 2 &&
           begin <= (uintptr_t)pages->begin && (uintptr_t)pages->end <= end;
}

static bool are_registers(const struct pages *pages)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    bool registers = false;
    char line[512];

    if (maps == NULL)
        abort();
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (has_pages(line, pages))
            registers = strstr(line, "-registers") != NULL;
    }
    fclose(maps);
    return registers;
}

static bool is_allowed(const struct pages *pages, const char *address,
                       size_t bytes, unsigned flags)
{
    bool registers = (flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0;

    if ((flags & CU_MEMHOSTREGISTER_PORTABLE) == 0 || (flags & ~FLAGS) != 0)
        return false;
    if (registers && ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0 ||
                      (uintptr_t)address % FAKE_PAGE != 0 ||
                      bytes % FAKE_PAGE != 0))
        return false;
    return are_registers(pages) == registers;
}

API CUresult CUDAAPI cuMemHostRegister(void *address, size_t bytes,
                                       unsigned flags)
{
    CUresult result = fake_check(address, bytes);
    struct pages pages = pages_of(address, bytes);
    struct fake_memory m = {.address = address,
                            .touch = address,
                            .bytes = bytes,
                            .type = CU_MEMORYTYPE_HOST,
                            .registered = true,
                            .fd = -1};

    INJECT(cuMemHostRegister);
    UNSAFE();
    WAITS(cuMemHostRegister);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_allowed(&pages, address, bytes, flags))
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0 &&
        fake_setting("FAKE_CUDA_REGISTERS", 1) == 0)
        return CUDA_ERROR_NOT_PERMITTED;
    if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0)
        m.there = (char *)fake_next_place((size_t)(pages.end - pages.begin)) +
                  (m.address - pages.begin);
    pthread_mutex_lock(&fake_lock);
    fake_for_all(look_for_pages, &pages);
    if (pages.known) {
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else {
        fake_counts[FAKE_PINNED]++;
        fake_add_locked(&m);
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* Whoever unmaps it first leaves the driver with pages that are nobody's. */
static bool is_mapped(const struct fake_memory *m)
{
    struct pages pages = pages_of(m->address, m->bytes);

    return msync((void *)(uintptr_t)pages.begin,
                 (size_t)(pages.end - pages.begin), MS_ASYNC) == 0 ||
           errno != ENOMEM;
}

API CUresult CUDAAPI cuMemHostUnregister(void *address)
{
    CUresult result = fake_check(address, 1);
    struct fake_memory *m;

    if (result != CUDA_SUCCESS)
        return result;
    UNSAFE();
    fake_wait_for_streams();
    fake_linger();
    pthread_mutex_lock(&fake_lock);
    m = fake_find(address, 1);
    if (m == NULL || !m->registered || m->address != address)
        fake_die("is unregistered and not registered", address);
    if (!is_mapped(m))
        fake_die("is unregistered after it was unmapped", address);
    fake_counts[FAKE_PINNED]--;
    fake_bury(m);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *device, void *host,
                                               unsigned flags)
{
    CUresult result = fake_check(device, 1);
    struct fake_memory *m;

    INJECT(cuMemHostGetDevicePointer);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    m = fake_find(host, 1);
    if (m == NULL || m->there == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *device = (CUdeviceptr)(uintptr_t)(m->there +
                                           ((char *)host - m->address));
    pthread_mutex_unlock(&fake_lock);
    return result;
}
