/* SPDX-License-Identifier: BSD-3-Clause */
#include "words_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

#ifdef WORDS_IMAGE

#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

/* cuda.h chooses the version of a function by a macro of its name. */
#define FUNCTIONS(XX)                                                        \
    XX(cuInit)                                                               \
    XX(cuDeviceGetCount)                                                     \
    XX(cuDevicePrimaryCtxRetain)                                             \
    XX(cuDevicePrimaryCtxRelease)                                            \
    XX(cuCtxSetCurrent)                                                      \
    XX(cuStreamCreate)                                                       \
    XX(cuStreamDestroy)                                                      \
    XX(cuStreamSynchronize)                                                  \
    XX(cuMemAlloc)                                                           \
    XX(cuMemFree)                                                            \
    XX(cuMemHostAlloc)                                                       \
    XX(cuMemFreeHost)                                                        \
    XX(cuMemHostRegister)                                                    \
    XX(cuMemHostUnregister)                                                  \
    XX(cuMemHostGetDevicePointer)                                            \
    XX(cuMemcpyAsync)                                                        \
    XX(cuModuleLoadData)                                                     \
    XX(cuModuleUnload)                                                       \
    XX(cuModuleGetFunction)                                                  \
    XX(cuLaunchKernel)
#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

static struct {
#define XX(name) __typeof__(&name) name;
    FUNCTIONS(XX)
#undef XX
} cuda;

/* Doorbell records of a queue pair lie in one page, which the driver takes once. */
struct pages {
    char *begin;
    uint64_t bytes;
    unsigned users;
};

enum { MOST_PAGES = 8 };

static struct {
    CUcontext context;
    CUstream stream;
    CUmodule module;
    CUfunction kernel;
    void *image;
    struct pages pages[MOST_PAGES];
} gpu;

static void needs(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "rsched-bench-words: %s: error %d of the driver\n", what,
            (int)result);
    exit(1);
}

static const char *find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol;
    int count;

    if (library == NULL)
        return "no driver (libcuda.so.1)";
#define XX(name)                                                             \
    symbol = dlsym(library, SYMBOL(name));                                   \
    if (symbol == NULL)                                                      \
        return "the driver has no " SYMBOL(name);                            \
    memcpy(&cuda.name, &symbol, sizeof(symbol));
    FUNCTIONS(XX)
#undef XX
    if (cuda.cuInit(0) != CUDA_SUCCESS ||
        cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
        return "the driver shows no GPU";
    return NULL;
}

/* ---- memory ---- */

static int pin(void *arg, uint64_t bytes, bool in_host, void **memory)
{
    (void)arg;
    (void)in_host; /* kernels are given copies in the GPU's memory */
    needs(cuda.cuMemHostAlloc(memory, bytes,
                              CU_MEMHOSTALLOC_PORTABLE |
                                  CU_MEMHOSTALLOC_DEVICEMAP),
          "pinned memory");
    memset(*memory, 0, bytes);
    return 0;
}

static void unpin(void *arg, void *memory)
{
    (void)arg;
    needs(cuda.cuMemFreeHost(memory), "pinned memory");
}

static void *seen(void *host)
{
    CUdeviceptr there;

    needs(cuda.cuMemHostGetDevicePointer(&there, host, 0), "address");
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
    needs(register_pages(&p, is_register), "registration of a queue pair");
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
            needs(cuda.cuMemHostUnregister(q->begin), "registration");
        return;
    }
}

static void copy(void *to, const void *from, uint64_t bytes)
{
    needs(cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)to,
                             (CUdeviceptr)(uintptr_t)from, bytes, gpu.stream),
          "copy");
    needs(cuda.cuStreamSynchronize(gpu.stream), "copy");
}

static void *allocate(uint64_t bytes)
{
    CUdeviceptr memory;
    void *zeros = calloc(1, bytes);

    if (zeros == NULL)
        exit(1);
    needs(cuda.cuMemAlloc(&memory, bytes), "memory");
    copy((void *)(uintptr_t)memory, zeros, bytes);
    free(zeros);
    return (void *)(uintptr_t)memory;
}

static void release(void *memory)
{
    needs(cuda.cuMemFree((CUdeviceptr)(uintptr_t)memory), "memory");
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

    needs(cuda.cuLaunchKernel(gpu.kernel, job->blocks, 1, 1,
                              job->groups * job->threads, 1, 1, 0, gpu.stream,
                              (void *[]){&argument}, NULL),
          "kernel");
    needs(cuda.cuStreamSynchronize(gpu.stream), "kernel");
}

static void end(void)
{
    needs(cuda.cuModuleUnload(gpu.module), "module");
    needs(cuda.cuStreamDestroy(gpu.stream), "stream");
    needs(cuda.cuDevicePrimaryCtxRelease(0), "context");
    free(gpu.image);
}

const char *words_begin_gpu(struct words_side *side)
{
    const char *reason = find_driver();

    if (reason != NULL)
        return reason;
    needs(cuda.cuDevicePrimaryCtxRetain(&gpu.context, 0), "context");
    needs(cuda.cuCtxSetCurrent(gpu.context), "context");
    needs(cuda.cuStreamCreate(&gpu.stream, CU_STREAM_NON_BLOCKING), "stream");
    gpu.image = read_image();
    needs(cuda.cuModuleLoadData(&gpu.module, gpu.image), "module");
    needs(cuda.cuModuleGetFunction(&gpu.kernel, gpu.module, "words_kernel"),
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
