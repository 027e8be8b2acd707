/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu.h"

#ifdef JACOBI_CUDA

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct gpu {
    int number;
    CUcontext context;
    CUstream stream;
    CUmodule module;
    CUfunction kernel;
    void *image; /* that nvcc has made */
};

enum { THREADS = 256 }; /* of the kernel's block */

static void needs(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "jacobi-device: %s: error %d of the driver\n", what,
            (int)result);
    exit(1);
}

const char *gpu_find(int *count)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol;

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
        cuda.cuDeviceGetCount(count) != CUDA_SUCCESS || *count == 0)
        return "the driver shows no GPU";
    return NULL;
}

static void *read_image(void)
{
    FILE *file = fopen(JACOBI_IMAGE, "rb");
    long bytes = -1;
    void *image = NULL;

    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    if (bytes > 0)
        image = malloc((size_t)bytes);
    if (image == NULL || fseek(file, 0, SEEK_SET) != 0 ||
        fread(image, (size_t)bytes, 1, file) != 1) {
        perror(JACOBI_IMAGE);
        exit(1);
    }
    fclose(file);
    return image;
}

struct gpu *gpu_open(int number)
{
    struct gpu *g = calloc(1, sizeof(*g));

    if (g == NULL)
        exit(1);
    g->number = number;
    g->image = read_image();
    needs(cuda.cuDevicePrimaryCtxRetain(&g->context, number), "context");
    needs(cuda.cuCtxSetCurrent(g->context), "context");
    needs(cuda.cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING), "stream");
    needs(cuda.cuModuleLoadData(&g->module, g->image), "module");
    needs(cuda.cuModuleGetFunction(&g->kernel, g->module, "jacobi_kernel"),
          "kernel");
    return g;
}

void gpu_close(struct gpu *g)
{
    needs(cuda.cuModuleUnload(g->module), "module");
    needs(cuda.cuStreamDestroy(g->stream), "stream");
    needs(cuda.cuDevicePrimaryCtxRelease(g->number), "context");
    free(g->image);
    free(g);
}

static void copy(struct gpu *g, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    needs(cuda.cuMemcpyAsync(to, from, bytes, g->stream), "copy");
    needs(cuda.cuStreamSynchronize(g->stream), "copy");
}

void *gpu_allocate(struct gpu *g, size_t bytes)
{
    CUdeviceptr memory;
    void *zeros = calloc(1, bytes);

    if (zeros == NULL)
        exit(1);
    needs(cuda.cuMemAlloc(&memory, bytes), "memory");
    copy(g, memory, (CUdeviceptr)(uintptr_t)zeros, bytes);
    free(zeros);
    return (void *)(uintptr_t)memory;
}

void gpu_free(struct gpu *g, void *memory)
{
    (void)g;
    needs(cuda.cuMemFree((CUdeviceptr)(uintptr_t)memory), "memory");
}

void gpu_write(struct gpu *g, void *to, const void *from, size_t bytes)
{
    copy(g, (CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes);
}

void gpu_read(struct gpu *g, void *to, const void *from, size_t bytes)
{
    gpu_write(g, to, from, bytes);
}

void gpu_run(struct gpu *g, void *jacobi)
{
    CUdeviceptr argument = (CUdeviceptr)(uintptr_t)jacobi;

    needs(cuda.cuLaunchKernel(g->kernel, 1, 1, 1, THREADS, 1, 1, 0, g->stream,
                              (void *[]){&argument}, NULL),
          "kernel");
    needs(cuda.cuStreamSynchronize(g->stream), "kernel");
}

#else /* without nvcc: nothing but the first function is called */

const char *gpu_find(int *count)
{
    *count = 0;
    return "built without nvcc";
}

struct gpu *gpu_open(int number)
{
    (void)number;
    return NULL;
}

void gpu_close(struct gpu *gpu)
{
    (void)gpu;
}

void *gpu_allocate(struct gpu *gpu, size_t bytes)
{
    (void)gpu;
    (void)bytes;
    return NULL;
}

void gpu_free(struct gpu *gpu, void *memory)
{
    (void)gpu;
    (void)memory;
}

void gpu_write(struct gpu *gpu, void *to, const void *from, size_t bytes)
{
    (void)gpu;
    (void)to;
    (void)from;
    (void)bytes;
}

void gpu_read(struct gpu *gpu, void *to, const void *from, size_t bytes)
{
    gpu_write(gpu, to, from, bytes);
}

void gpu_run(struct gpu *gpu, void *jacobi)
{
    (void)gpu;
    (void)jacobi;
}

#endif
