/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/cuda/buffer.h"

#include <stdlib.h>

void buffer_init(struct program *p, struct buffer *b, size_t bytes, bool on_gpu)
{
    CUdeviceptr device;

    *b = (struct buffer){.bytes = bytes, .on_gpu = on_gpu};
    if (!on_gpu) {
        b->address = b->touch = calloc(1, bytes);
        return;
    }
    if (p->cuMemAlloc(&device, bytes) != CUDA_SUCCESS)
        abort();
    b->address = (char *)(uintptr_t)device;
    b->touch = program_touch(p, device, bytes);
}

static CUdeviceptr device_of(const struct buffer *b)
{
    return (CUdeviceptr)(uintptr_t)b->address;
}

/* In which processors do not find it. */
static bool is_elsewhere(const struct program *p, const struct buffer *b)
{
    return b->on_gpu && !p->is_fake;
}

void buffer_push(struct program *p, const struct buffer *b)
{
    if (is_elsewhere(p, b))
        program_write(p, device_of(b), b->touch, b->bytes);
}

void buffer_pull(struct program *p, const struct buffer *b)
{
    if (is_elsewhere(p, b))
        program_read(p, b->touch, device_of(b), b->bytes);
}

static CUmemAllocationProp properties(struct program *p, bool exportable,
                                      int gpu)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                       : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                     .id = program_gpu(p, gpu)}};
}

/* Memory at an address that is reserved. */
static void map(struct program *p, struct buffer *b, CUdeviceptr device,
                bool exportable, int gpu)
{
    const CUmemAllocationProp prop = properties(p, exportable, gpu);
    const CUmemAccessDesc access = {
        .location = prop.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    if (p->cuMemCreate(&b->memory, b->bytes, &prop, 0) != CUDA_SUCCESS ||
        p->cuMemMap(device, b->bytes, 0, b->memory, 0) != CUDA_SUCCESS ||
        p->cuMemSetAccess(device, b->bytes, &access, 1) != CUDA_SUCCESS)
        abort();
    b->address = (char *)(uintptr_t)device;
    b->touch = program_touch(p, device, b->bytes);
}

void buffer_map(struct program *p, struct buffer *b, size_t bytes,
                bool exportable, int gpu)
{
    const CUmemAllocationProp prop = properties(p, exportable, gpu);
    CUdeviceptr device;
    size_t whole;

    if (p->cuMemGetAllocationGranularity(
            &whole, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        abort();
    bytes = (bytes + whole - 1) / whole * whole;
    *b = (struct buffer){.bytes = bytes, .on_gpu = true};
    if (p->cuMemAddressReserve(&device, bytes, 0, 0, 0) != CUDA_SUCCESS)
        abort();
    map(p, b, device, exportable, gpu);
}

void buffer_remap(struct program *p, struct buffer *b, int gpu)
{
    CUdeviceptr device = device_of(b);

    program_untouch(p, b->touch);
    p->cuMemUnmap(device, b->bytes);
    p->cuMemRelease(b->memory);
    map(p, b, device, true, gpu);
}

void buffer_fini(struct program *p, struct buffer *b)
{
    CUdeviceptr device = device_of(b);

    if (!b->on_gpu) {
        free(b->address);
        return;
    }
    program_untouch(p, b->touch);
    if (b->memory == 0) {
        p->cuMemFree(device);
    } else {
        p->cuMemUnmap(device, b->bytes);
        p->cuMemAddressFree(device, b->bytes);
        p->cuMemRelease(b->memory);
    }
}
