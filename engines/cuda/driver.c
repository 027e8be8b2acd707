/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <rsched/error.h>

#include "librsched/base/error.h"

#define LIBRARY "libcuda.so.1"

/* The name after cuda.h has chosen a version. */
#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rs_cuda_driver the_driver; /* written once, under the lock */
static _Atomic(const struct rs_cuda_driver *) found;

/* A pointer to an object as one to a function, as POSIX allows it. */
static bool look_up(void *library, const char *symbol, void *function)
{
    void *address = dlsym(library, symbol);

    memcpy(function, &address, sizeof(address));
    return address != NULL;
}

static int fill(struct rs_cuda_driver *driver)
{
#define XX(name)                                                             \
    if (!look_up(driver->library, SYMBOL(name), &driver->name))              \
        return rs_fail(RSCHED_ENOTSUP, "%s has no %s: too old a driver",     \
                       LIBRARY, SYMBOL(name));
    RS_CUDA_FUNCTIONS(XX)
#undef XX
#define XX(name)                                                             \
    if (!look_up(driver->library, SYMBOL(name), &driver->name))              \
        driver->no_streams = SYMBOL(name);
    RS_CUDA_STREAM_FUNCTIONS(XX)
#undef XX
#define XX(name)                                                             \
    if (!look_up(driver->library, SYMBOL(name), &driver->name))              \
        driver->no_direct = SYMBOL(name);
    RS_CUDA_DIRECT_FUNCTIONS(XX)
#undef XX
#define XX(name) look_up(driver->library, SYMBOL(name), &driver->name);
    RS_CUDA_OPTIONAL_FUNCTIONS(XX)
#undef XX
    return 0;
}

static int find(bool load)
{
    struct rs_cuda_driver driver = {
        .library = dlopen(LIBRARY, RTLD_NOW | (load ? 0 : RTLD_NOLOAD))};
    int error;

    if (driver.library == NULL)
        return rs_fail(RSCHED_ENOTSUP, "no driver: %s",
                       load ? dlerror() : LIBRARY " is not loaded");
    error = fill(&driver);
    if (error != 0) {
        dlclose(driver.library);
        return error;
    }
    the_driver = driver;
    /* Whoever finds the pointer sees the table. */
    atomic_store_explicit(&found, &the_driver, memory_order_release);
    return 0;
}

int rs_cuda_driver_find(bool load, const struct rs_cuda_driver **driver)
{
    int error = 0;

    if (rs_cuda_driver_found() == NULL) {
        pthread_mutex_lock(&lock);
        if (rs_cuda_driver_found() == NULL)
            error = find(load);
        pthread_mutex_unlock(&lock);
    }
    if (error == 0)
        *driver = rs_cuda_driver_found();
    return error;
}

static int take_adds(struct dl_phdr_info *info, size_t size, void *adds)
{
    (void)size;
    *(unsigned long long *)adds = info->dlpi_adds;
    return 1; /* the first one will do */
}

bool rs_cuda_driver_attach(void)
{
    static _Atomic unsigned long long seen;
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    struct rs_error_text kept;
    unsigned long long adds = 0;

    if (driver != NULL)
        return true;
    /* Read before the search: what is loaded later is searched for again. */
    dl_iterate_phdr(take_adds, &adds);
    if (atomic_load_explicit(&seen, memory_order_relaxed) == adds)
        return false;
    rs_error_save(&kept);
    if (rs_cuda_driver_find(false, &driver) == 0)
        return true;
    rs_error_restore(&kept);
    atomic_store_explicit(&seen, adds, memory_order_relaxed);
    return false;
}

const struct rs_cuda_driver *rs_cuda_driver_found(void)
{
    return atomic_load_explicit(&found, memory_order_acquire);
}

static int code_of(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return RSCHED_ENOMEM;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return RSCHED_ENOTSUP;
    default:
        return RSCHED_ESYS;
    }
}

static int fail(const struct rs_cuda_driver *driver, int error,
                CUresult result, const char *what)
{
    const char *name = NULL, *text = NULL;

    driver->cuGetErrorName(result, &name);
    driver->cuGetErrorString(result, &text);
    if (name == NULL || text == NULL)
        return rs_fail(error, "%s: error %d", what, (int)result);
    return rs_fail(error, "%s: %s (%s)", what, name, text);
}

int rs_cuda_check(const struct rs_cuda_driver *driver, CUresult result,
                  const char *what)
{
    return result == CUDA_SUCCESS
               ? 0
               : fail(driver, RSCHED_ENOTSUP, result, what);
}

int rs_cuda_error(const struct rs_cuda_driver *driver, CUresult result,
                  const char *what)
{
    return result == CUDA_SUCCESS
               ? 0
               : fail(driver, code_of(result), result, what);
}

CUstreamCaptureMode rs_cuda_relax(const struct rs_cuda_driver *driver)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    driver->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void rs_cuda_restore(const struct rs_cuda_driver *driver,
                     CUstreamCaptureMode mode)
{
    driver->cuThreadExchangeStreamCaptureMode(&mode);
}
