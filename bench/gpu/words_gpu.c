/* SPDX-License-Identifier: BSD-3-Clause */
#include "words_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

#ifdef WORDS_IMAGE

#include <unistd.h>

#include "driver.h"

/* Doorbell records of a queue pair lie in one page, which the driver takes once. */
struct pages {
    char *begin;
    uint64_t bytes;
    unsigned users;
};

enum { MOST_PAGES = 8 };

static struct {
    CUmodule module;
    CUfunction kernel;
    void *image;
    struct pages pages[MOST_PAGES];
} gpu;

/* ---- memory ---- */

static int pin(void *arg, uint64_t bytes, bool in_host, void **memory)
{
    (void)arg;
    (void)in_host; /* kernels are given copies in the GPU's memory */
    driver_needs(cuda.cuMemHostAlloc(memory, bytes,
                                     CU_MEMHOSTALLOC_PORTABLE |
                                         CU_MEMHOSTALLOC_DEVICEMAP),
                 "pinned memory");
    memset(*memory, 0, bytes);
    return 0;
}

static void unpin(void *arg, void *memory)
{
    (void)arg;
    driver_needs(cuda.cuMemFreeHost(memory), "pinned memory");
}

static void *seen(void *host)
{
    CUdeviceptr there;

    driver_needs(cuda.cuMemHostGetDevicePointer(&there, host, 0), "address");
    return (void *)(uintptr_t)there;
}

/* Pages of a device are registered as such; the registers of a softnic are memory,
 * which a driver that knows memory from devices takes as that. */
static CUresult register_pages(const struct pages *p, bool is_register)
{
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUresult result = cuda.cuMemHostRegister(p->begin, p->bytes, flags);

    if (result != CUDA_SUCCESS && is_register)
        result = cuda.cuMemHostRegister(p->begin, p->bytes,
                                        flags | CU_MEMHOSTREGISTER_IOMEMORY);
    return result;
}

static int map(void *arg, void *host, uint64_t bytes, bool is_register,
               void **mapped)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)host;
    struct pages p = {(char *)(at / page * page), 0, 1}, *free_one = NULL;

    (void)arg;
    p.bytes = (at + bytes + page - 1) / page * page - (uintptr_t)p.begin;
    for (int i = 0; i < MOST_PAGES; i++) {
        struct pages *q = &gpu.pages[i];

        if (q->users > 0 && q->begin == p.begin && q->bytes >= p.bytes) {
            q->users++;
            *mapped = seen(host);
            return 0;
        }
        if (q->users == 0)
            free_one = q;
    }
    if (free_one == NULL)
        return rs_fail(RSCHED_ELIMIT, "more pages than there is room for");
    driver_needs(register_pages(&p, is_register),
                 "registration of a queue pair");
    *free_one = p;
    *mapped = seen(host);
    return 0;
}

static void unmap(void *arg, void *host, void *mapped)
{
    (void)arg;
    (void)mapped;
    for (int i = 0; i < MOST_PAGES; i++) {
        struct pages *q = &gpu.pages[i];

        if (q->users == 0 || (char *)host < q->begin ||
            (char *)host >= q->begin + q->bytes)
            continue;
        if (--q->users == 0)
            driver_needs(cuda.cuMemHostUnregister(q->begin), "registration");
        return;
    }
}

static void copy(void *to, const void *from, uint64_t bytes)
{
    driver_needs(cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)to,
                                    (CUdeviceptr)(uintptr_t)from, bytes,
                                    cuda.stream),
                 "copy");
    driver_needs(cuda.cuStreamSynchronize(cuda.stream), "copy");
}

static void *allocate(uint64_t bytes)
{
    CUdeviceptr memory;
    void *zeros = calloc(1, bytes);

    if (zeros == NULL)
        exit(1);
    driver_needs(cuda.cuMemAlloc(&memory, bytes), "memory");
    copy((void *)(uintptr_t)memory, zeros, bytes);
    free(zeros);
    return (void *)(uintptr_t)memory;
}

static void release(void *memory)
{
    driver_needs(cuda.cuMemFree((CUdeviceptr)(uintptr_t)memory), "memory");
}

/* ---- the kernel ---- */

static void *read_image(void)
{
    FILE *file = fopen(WORDS_IMAGE, "rb");
    long bytes = -1;
    void *image = NULL;

    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    if (bytes > 0)
        image = malloc((size_t)bytes);
    if (image == NULL || fseek(file, 0, SEEK_SET) != 0 ||
        fread(image, (size_t)bytes, 1, file) != 1) {
        perror(WORDS_IMAGE);
        exit(1);
    }
    fclose(file);
    return image;
}

static void run(const struct words_job *there, const struct words_job *job)
{
    CUdeviceptr argument = (CUdeviceptr)(uintptr_t)there;

    driver_needs(cuda.cuLaunchKernel(gpu.kernel, job->blocks, 1, 1,
                                     job->groups * job->threads, 1, 1, 0,
                                     cuda.stream, (void *[]){&argument}, NULL),
                 "kernel");
    driver_needs(cuda.cuStreamSynchronize(cuda.stream), "kernel");
}

static void end(void)
{
    driver_needs(cuda.cuModuleUnload(gpu.module), "module");
    driver_end();
    free(gpu.image);
}

const char *words_begin_gpu(struct words_side *side)
{
    const char *reason = driver_begin();

    if (reason != NULL)
        return reason;
    gpu.image = read_image();
    driver_needs(cuda.cuModuleLoadData(&gpu.module, gpu.image), "module");
    driver_needs(cuda.cuModuleGetFunction(&gpu.kernel, gpu.module,
                                          "words_kernel"),
                 "kernel");
    *side = (struct words_side){.name = "a kernel of GPU 0",
                                .cycles = "the GPU's clock",
                                .warp = WORDS_WARP,
                                .most_groups = UINT32_MAX,
                                .memory = {.allocate = pin,
                                           .release = unpin,
                                           .map = map,
                                           .unmap = unmap},
                                .seen = seen,
                                .allocate = allocate,
                                .release = release,
                                .copy = copy,
                                .run = run,
                                .end = end};
    return NULL;
}

#else

const char *words_begin_gpu(struct words_side *side)
{
    (void)side;
    return "built without nvcc";
}

#endif
