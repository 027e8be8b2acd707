/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

struct driver cuda;

void driver_needs(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: %s: error %d of the driver\n",
            program_invocation_short_name, what, (int)result);
    exit(1);
}

static const char *find(void)
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
    DRIVER_FUNCTIONS(XX)
#undef XX
    if (cuda.cuInit(0) != CUDA_SUCCESS ||
        cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
        return "the driver shows no GPU";
    return NULL;
}

const char *driver_begin(void)
{
    const char *reason = find();
    CUcontext context;

    if (reason != NULL)
        return reason;
    driver_needs(cuda.cuDevicePrimaryCtxRetain(&context, 0), "context");
    driver_needs(cuda.cuCtxSetCurrent(context), "context");
    driver_needs(cuda.cuStreamCreate(&cuda.stream, CU_STREAM_NON_BLOCKING),
                 "stream");
    return NULL;
}

void driver_end(void)
{
    driver_needs(cuda.cuStreamDestroy(cuda.stream), "stream");
    driver_needs(cuda.cuDevicePrimaryCtxRelease(0), "context");
}
