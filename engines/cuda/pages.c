/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages that kernels reach besides their own memory: the host's and those of
 * devices' registers, mapped, and pages of GPU memory for devices.
 *
 * The driver has each page of the host once in a process, and in all contexts. What
 * several want to have mapped lies in the same pages: libmlx5 has doorbell records
 * of many queue pairs in one page, and their registers in another. So there is one
 * list for all, and who unmaps last unregisters. It also keeps the context that the
 * pages were registered in.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "engines/cuda/hold.h"
#include "engines/cuda/shared.h"
#include "librsched/base/error.h"

struct pages {
    struct pages *next;
    uintptr_t begin, end;
    bool registers;
    unsigned users;
    struct rsched_gpu_hold *hold;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pages *all_pages;

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static uintptr_t round_up(uintptr_t address)
{
    return (address + page_bytes() - 1) / page_bytes() * page_bytes();
}

static int register_pages(const struct pages *p)
{
    const struct rs_cuda_driver *driver = p->hold->driver;
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUstreamCaptureMode mode;
    int error = rs_cuda_enter(p->hold, &mode);

    if (error != 0)
        return error;
    if (p->registers)
        flags |= CU_MEMHOSTREGISTER_IOMEMORY;
    error = rs_cuda_error(driver,
                          driver->cuMemHostRegister((void *)p->begin,
                                                    p->end - p->begin, flags),
                          p->registers
                              ? "cuMemHostRegister of a register (needs root, or "
                                "PeerMappingOverride=1)" /* docs/gpu.md */
                              : "cuMemHostRegister");
    rs_cuda_leave(p->hold, mode);
    return error;
}

static void unregister_pages(const struct pages *p)
{
    CUstreamCaptureMode mode;

    if (rs_cuda_enter(p->hold, &mode) != 0)
        return;
    p->hold->driver->cuMemHostUnregister((void *)p->begin);
    rs_cuda_leave(p->hold, mode);
}

static int add_pages(const struct rsched_gpu_hold *h, uintptr_t begin,
                     uintptr_t end, bool registers, struct pages **pages)
{
    struct pages *p = calloc(1, sizeof(*p));
    int error;

    if (p == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    p->begin = begin;
    p->end = end;
    p->registers = registers;
    error = rs_cuda_hold(h->gpu, &p->hold);
    if (error == 0)
        error = register_pages(p);
    if (error != 0) {
        rs_cuda_release(p->hold);
        free(p);
        return error;
    }
    p->next = all_pages;
    all_pages = p;
    *pages = p;
    return 0;
}

static void put_pages(struct pages *p)
{
    struct pages **at = &all_pages;

    if (--p->users > 0)
        return;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    unregister_pages(p);
    rs_cuda_release(p->hold);
    free(p);
}

static int take_pages(const struct rsched_gpu_hold *h, uintptr_t begin,
                      uintptr_t end, bool registers, struct pages **pages)
{
    struct pages *p = all_pages;
    int error = 0;

    while (p != NULL && (end <= p->begin || p->end <= begin))
        p = p->next;
    if (p == NULL)
        error = add_pages(h, begin, end, registers, &p);
    else if (begin < p->begin || end > p->end || registers != p->registers)
        error = rs_fail(RSCHED_ENOTSUP, "pages of which some are mapped for "
                                        "kernels with others");
    if (error != 0)
        return error;
    p->users++;
    *pages = p;
    return 0;
}

static int address_of(const struct rsched_gpu_hold *h, const struct pages *p,
                      CUdeviceptr *address)
{
    CUstreamCaptureMode mode;
    int error = rs_cuda_enter(h, &mode);

    if (error != 0)
        return error;
    error = rs_cuda_error(h->driver,
                          h->driver->cuMemHostGetDevicePointer(
                              address, (void *)p->begin, 0),
                          "cuMemHostGetDevicePointer");
    rs_cuda_leave(h, mode);
    return error;
}

int rs_cuda_pages_map(struct rsched_gpu_hold *h, void *host, uint64_t bytes,
                      bool is_register, void **mapped)
{
    uintptr_t address = (uintptr_t)host;
    uintptr_t begin = address / page_bytes() * page_bytes();
    CUdeviceptr there = 0;
    struct pages *p;
    int error;

    pthread_mutex_lock(&lock);
    error = take_pages(h, begin, round_up(address + bytes), is_register, &p);
    if (error == 0) {
        error = address_of(h, p, &there);
        there += address - p->begin;
        if (error != 0)
            put_pages(p);
    }
    pthread_mutex_unlock(&lock);
    if (error != 0)
        return rs_fail_within(error, "mapping for GPU %d", h->gpu);
    *mapped = (void *)(uintptr_t)there;
    return 0;
}

void rs_cuda_pages_unmap(struct rsched_gpu_hold *h, void *host)
{
    uintptr_t address = (uintptr_t)host;
    struct pages *p;

    (void)h;
    pthread_mutex_lock(&lock);
    p = all_pages;
    while (address < p->begin || address >= p->end)
        p = p->next;
    put_pages(p);
    pthread_mutex_unlock(&lock);
}

/* ---- in GPU memory ---- */

/* A page more than is asked for, so that there is nothing of others in the first
 * and the last one. */
int rs_cuda_pages_create(struct rsched_gpu_hold *h, uint64_t bytes, void **pages)
{
    CUstreamCaptureMode mode;
    CUdeviceptr memory = 0;
    int error = rs_cuda_enter(h, &mode);

    if (error != 0)
        return error;
    error = rs_cuda_error(h->driver,
                          h->driver->cuMemAlloc(&memory, round_up(bytes) +
                                                             page_bytes()),
                          "cuMemAlloc");
    rs_cuda_leave(h, mode);
    if (error == 0)
        *pages = (void *)round_up(memory);
    return error;
}

int rs_cuda_pages_clear(struct rsched_gpu_hold *h, void *memory, uint64_t bytes)
{
    CUstreamCaptureMode mode;
    char *zeros = calloc(1, bytes);
    int error;

    if (zeros == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    error = rs_cuda_enter(h, &mode);
    if (error == 0) {
        error = rs_cuda_copy(h->driver, (uintptr_t)memory, (uintptr_t)zeros,
                             bytes);
        rs_cuda_leave(h, mode);
    }
    free(zeros);
    return error;
}

void rs_cuda_pages_destroy(struct rsched_gpu_hold *h, void *pages)
{
    CUstreamCaptureMode mode;
    CUdeviceptr memory;
    size_t bytes;

    if (rs_cuda_enter(h, &mode) != 0)
        return;
    if (h->driver->cuMemGetAddressRange(&memory, &bytes, (uintptr_t)pages) ==
        CUDA_SUCCESS)
        h->driver->cuMemFree(memory);
    rs_cuda_leave(h, mode);
}
