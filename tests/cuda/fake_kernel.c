/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: modules, and the kernel of engines/cuda, compiled for
 * the processor from the very file that nvcc compiles. Each of its accesses is
 * looked at: it has to be aligned, and in memory that the context's GPU reaches
 * by the address that it has there. */
#include "tests/cuda/fake_inside.h"

#include <stdlib.h>
#include <string.h>

/* What a nvcc's fat binary begins with. */
enum { IMAGE_MAGIC = 0xba55ed50 };

struct CUmod_st {
    CUcontext context;
    struct CUfunc_st *function;
};

struct CUfunc_st {
    CUmodule module;
    CUhostFn body; /* NULL: rs_pack */
};

/* Kernels of programs, which have one parameter, a pointer. */
static const struct {
    const char *name;
    CUhostFn body;
} kernels[] = {{"rs_pack", NULL}, {"jacobi_kernel", fake_jacobi}, {"words_kernel", fake_words}};

/* Of the launch that runs; with the lock. */
static CUcontext running;
static bool failed;
static struct fake_memory *last; /* that was found */

bool fake_is_reached(const struct fake_memory *m, CUcontext context, bool there)
{
    if (m->type == CU_MEMORYTYPE_HOST || m->managed)
        return there != m->managed;
    if (there)
        return false;
    if (m->physical != NULL)
        return (m->access >> context->gpu & 1) != 0;
    return m->context == context;
}

/* @return where processors may touch what a kernel has at an address */
static char *touch_in(const struct fake_memory *m, char *at, size_t bytes)
{
    if (m->there != NULL && at >= m->there &&
        at + bytes <= m->there + m->bytes)
        return m->touch + (at - m->there);
    if (at >= m->address && at + bytes <= m->address + m->bytes)
        return fake_is_reached(m, running, false) ? m->touch + (at - m->address)
                                                  : NULL;
    return NULL;
}

static void *reach(uint64_t address, size_t bytes, bool store)
{
    static _Alignas(64) char nowhere[256];
    char *at = (char *)(uintptr_t)address;
    char *touch = last == NULL ? NULL : touch_in(last, at, bytes);

    (void)store;
    if (touch == NULL) {
        last = fake_find(at, bytes);
        if (last == NULL)
            last = fake_find_there(at, bytes);
        touch = last == NULL ? NULL : touch_in(last, at, bytes);
    }
    if (touch != NULL)
        return touch;
    if (!fake_is_gone(at))
        fake_die("is not in reach of a kernel", at);
    failed = true;
    return nowhere;
}

#include "tests/cuda/pack_here.h"

void *fake_seen_by_kernels(uint64_t address, size_t bytes)
{
    const char *at = (const char *)(uintptr_t)address;

    return fake_find_there(at, bytes) != NULL ? fake_of_kernels(at) : NULL;
}

CUresult fake_run_kernel(CUcontext context, const struct fake_launch *l)
{
    running = context;
    failed = false;
    last = NULL;
    run_launch(&l->parameter, l->blocks);
    return failed ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

/* The driver's own default is LAZY since CUDA 12.2. */
API CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *loading)
{
    *loading = (CUmoduleLoadingMode)fake_setting("FAKE_CUDA_LOADING",
                                                 CU_MODULE_EAGER_LOADING);
    return fake_initialised();
}

API CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    CUresult result = fake_check(module, 1);
    unsigned magic;
    CUmodule m;

    INJECT(cuModuleLoadData);
    UNSAFE();
    WAITS(cuModuleLoadData);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&magic, image, sizeof(magic));
    if (magic != IMAGE_MAGIC || (uintptr_t)image % 8 != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    m = calloc(1, sizeof(*m));
    if (m == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->context = fake_current();
    m->context->objects++;
    fake_linger();
    fake_count(FAKE_MODULES, 1);
    *module = m;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    if (fake_check(module, 1) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    UNSAFE();
    if (fake_current() != module->context)
        return CUDA_ERROR_INVALID_CONTEXT;
    fake_wait_for_streams();
    fake_linger();
    module->context->objects--;
    fake_count(FAKE_MODULES, -1);
    free(module->function);
    free(module);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module,
                                         const char *name)
{
    CUresult result = fake_check(function, 1);
    size_t i = 0;

    INJECT(cuModuleGetFunction);
    if (result != CUDA_SUCCESS)
        return result;
    while (i < sizeof(kernels) / sizeof(kernels[0]) &&
           strcmp(name, kernels[i].name) != 0)
        i++;
    if (i == sizeof(kernels) / sizeof(kernels[0]))
        return CUDA_ERROR_NOT_FOUND;
    if (module->function == NULL) {
        module->function = calloc(1, sizeof(*module->function));
        if (module->function == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        module->function->module = module;
        module->function->body = kernels[i].body;
    }
    *function = module->function;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned x, unsigned y,
                                    unsigned z, unsigned threads, unsigned ty,
                                    unsigned tz, unsigned shared,
                                    CUstream stream, void **parameters,
                                    void **extra)
{
    CUresult result = fake_check(f, 1);
    struct fake_work work = {.kind = FAKE_WORK_LAUNCH};
    struct fake_launch *l;

    INJECT(cuLaunchKernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (f->module->context != fake_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (f->body != NULL) {
        work.kind = FAKE_WORK_KERNEL;
        work.function = f->body;
        work.arg = *(void **)parameters[0];
        return fake_enqueue(stream, &work);
    }
    if (x == 0 || y != 1 || z != 1 || threads != RS_PACK_THREADS || ty != 1 ||
        tz != 1 || shared != 0 || parameters == NULL || extra != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    l = malloc(sizeof(*l));
    if (l == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    l->blocks = x;
    memcpy(&l->parameter, parameters[0], sizeof(l->parameter));
    work.launch = l;
    result = fake_enqueue(stream, &work);
    if (result == CUDA_SUCCESS)
        fake_count(FAKE_LAUNCHES, 1);
    else
        free(l);
    return result;
}
