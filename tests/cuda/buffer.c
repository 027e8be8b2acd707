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
    b->touch = p->fakeTouch(device);
}

/* Memory at an address that is reserved. */
static void map(struct program *p, struct buffer *b, CUdeviceptr device,
                bool exportable, int gpu)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                       : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu}};
    const CUmemAccessDesc access = {
        .location = prop.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    if (p->cuMemCreate(&b->memory, b->bytes, &prop, 0) != CUDA_SUCCESS ||
        p->cuMemMap(device, b->bytes, 0, b->memory, 0) != CUDA_SUCCESS ||
        p->cuMemSetAccess(device, b->bytes, &access, 1) != CUDA_SUCCESS)
        abort();
    b->address = (char *)(uintptr_t)device;
    b->touch = p->fakeTouch(device);
}

void buffer_map(struct program *p, struct buffer *b, size_t bytes,
                bool exportable, int gpu)
{
    CUdeviceptr device;

    bytes = (bytes + 4095) / 4096 * 4096;
    *b = (struct buffer){.bytes = bytes, .on_gpu = true};
    if (p->cuMemAddressReserve(&device, bytes, 0, 0, 0) != CUDA_SUCCESS)
        abort();
    map(p, b, device, exportable, gpu);
}

void buffer_remap(struct program *p, struct buffer *b, int gpu)
{
    CUdeviceptr device = (CUdeviceptr)(uintptr_t)b->address;

    p->cuMemUnmap(device, b->bytes);
    p->cuMemRelease(b->memory);
    map(p, b, device, true, gpu);
}

void buffer_fini(struct program *p, struct buffer *b)
{
    CUdeviceptr device = (CUdeviceptr)(uintptr_t)b->address;

    if (!b->on_gpu) {
        free(b->address);
    } else if (b->memory == 0) {
        p->cuMemFree(device);
    } else {
        p->cuMemUnmap(device, b->bytes);
        p->cuMemAddressFree(device, b->bytes);
        p->cuMemRelease(b->memory);
    }
}
