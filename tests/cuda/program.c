/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/cuda/program.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

bool program_finds_fake(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    return library != NULL && dlsym(library, "fakeTouch") != NULL;
}

static void load(struct program *p)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol;

    assert(library != NULL);
    p->is_fake = program_finds_fake();
#define XX(name)                                                             \
    symbol = dlsym(library, SYMBOL(name));                                   \
    assert(symbol != NULL);                                                  \
    memcpy(&p->name, &symbol, sizeof(symbol));
    FAKE_CALLS(XX)
    if (!p->is_fake)
        return;
    FAKE_OWN(XX)
#undef XX
}

void program_begin(struct program *p, int gpu)
{
    load(p);
    assert(p->cuInit(0) == CUDA_SUCCESS);
    assert(p->cuDevicePrimaryCtxRetain(&p->context, program_gpu(p, gpu)) ==
           CUDA_SUCCESS);
    assert(p->cuCtxSetCurrent(p->context) == CUDA_SUCCESS);
}

void program_end(struct program *p, int gpu)
{
    assert(p->cuDevicePrimaryCtxRelease(program_gpu(p, gpu)) == CUDA_SUCCESS);
}

int program_gpu(struct program *p, int gpu)
{
    int number;

    if (p->is_fake)
        return gpu;
    assert(p->cuDeviceGetCount(&number) == CUDA_SUCCESS && number > 0);
    return gpu % number;
}

/* In the stream that is there without being made, as a driver may wait for others
 * to make one. */
static void copy(struct program *p, CUdeviceptr to, CUdeviceptr from,
                 size_t bytes)
{
    assert(p->cuMemcpyAsync(to, from, bytes, NULL) == CUDA_SUCCESS);
    assert(p->cuStreamSynchronize(NULL) == CUDA_SUCCESS);
}

void program_write(struct program *p, CUdeviceptr to, const void *from,
                   size_t bytes)
{
    if (p->is_fake)
        memcpy(p->fakeTouch(to), from, bytes);
    else
        copy(p, to, (CUdeviceptr)(uintptr_t)from, bytes);
}

void program_read(struct program *p, void *to, CUdeviceptr from, size_t bytes)
{
    if (p->is_fake)
        memcpy(to, p->fakeTouch(from), bytes);
    else
        copy(p, (CUdeviceptr)(uintptr_t)to, from, bytes);
}

void *program_touch(struct program *p, CUdeviceptr device, size_t bytes)
{
    void *touch;

    if (p->is_fake)
        return p->fakeTouch(device);
    touch = calloc(1, bytes);
    assert(touch != NULL);
    program_write(p, device, touch, bytes);
    return touch;
}

void program_untouch(struct program *p, void *touch)
{
    if (!p->is_fake)
        free(touch);
}

unsigned long long program_count(struct program *p, enum fake_count what)
{
    return p->is_fake ? p->fakeCount(what) : 0;
}

bool program_counted(struct program *p, enum fake_count what,
                     unsigned long long expected)
{
    return !p->is_fake || p->fakeCount(what) == expected;
}

/* By a child, as who has initialised a driver cannot fork. @return the number of
 * GPUs, or IS_FAKE */
enum { IS_FAKE = 100 };
static int look_at_driver(void)
{
    int status = 0, number = 0;
    pid_t child = fork();

    if (child == 0) {
        struct program p;

        load(&p);
        if (p.is_fake)
            number = IS_FAKE;
        else if (p.cuInit(0) != CUDA_SUCCESS ||
                 p.cuDeviceGetCount(&number) != CUDA_SUCCESS)
            number = 0;
        _exit(number);
    }
    waitpid(child, &status, 0);
    assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

bool program_skips(enum program_needs needs)
{
    int number = needs == ANY_DRIVER ? IS_FAKE : look_at_driver();
    const char *reason = NULL;

    if (number != IS_FAKE && needs == FAKE_DRIVER)
        reason = "it is about the driver in software";
    if (number != IS_FAKE && needs == TWO_GPUS && number < 2)
        reason = "there are no two GPUs";
    if (reason != NULL)
        printf("SKIP: %s\n", reason);
    return reason != NULL;
}
