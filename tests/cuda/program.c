/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/cuda/program.h"

#include <assert.h>
#include <dlfcn.h>
#include <string.h>

#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

void program_begin(struct program *p, int gpu)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol;

    assert(library != NULL);
#define XX(name)                                                             \
    symbol = dlsym(library, SYMBOL(name));                                   \
    assert(symbol != NULL);                                                  \
    memcpy(&p->name, &symbol, sizeof(symbol));
    FAKE_CALLS(XX)
#undef XX
    assert(p->cuInit(0) == CUDA_SUCCESS);
    assert(p->cuDevicePrimaryCtxRetain(&p->context, gpu) == CUDA_SUCCESS);
    assert(p->cuCtxSetCurrent(p->context) == CUDA_SUCCESS);
}

void program_end(struct program *p, int gpu)
{
    assert(p->cuDevicePrimaryCtxRelease(gpu) == CUDA_SUCCESS);
}
