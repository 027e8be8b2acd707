/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the driver in software share. */
#ifndef TESTS_CUDA_FAKE_INSIDE_H
#define TESTS_CUDA_FAKE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engines/cuda/pack.h"
#include "tests/cuda/fake.h"

#define API __attribute__((visibility("default")))

enum { FAKE_GPUS = 8, FAKE_PAGE = 4096 };

/* A context is the primary one of its GPU. */
struct CUctx_st {
    int gpu;
    _Atomic unsigned holders;
};

extern pthread_mutex_t fake_lock; /* guards all of this */
extern unsigned long long fake_counts[FAKE_NUM_COUNTS];

int fake_setting(const char *name, int otherwise);
int fake_num_gpus(void);
CUresult fake_initialised(void);
/** The thread's context if somebody holds it, else NULL. */
CUcontext fake_current(void);
/** Initialised, a context, somewhere to write to, and not nothing. */
CUresult fake_check(const void *out, size_t bytes);
CUresult fake_injected(const char *name, int call);

/** Return what FAKE_CUDA_FAIL says for this call of a function, if it does. */
#define INJECT(function)                                                     \
    do {                                                                     \
        static atomic_int fake_calls;                                        \
        CUresult fake_result = fake_injected(                                \
            #function, atomic_fetch_add(&fake_calls, 1) + 1);                \
                                                                             \
        if (fake_result != CUDA_SUCCESS)                                     \
            return fake_result;                                              \
    } while (0)

/* Memory that the driver knows. */
struct fake_memory {
    struct fake_memory *next;
    char *address;
    char *touch; /* the same bytes, for processors */
    size_t bytes;
    CUmemorytype type;
    bool managed;
    bool registered; /* the program's own */
    bool opened;     /* another process's, by its handle */
    bool gone;       /* freed, closed or unmapped: copies under way find out */
    CUcontext context; /* opened: in which */
    int gpu;
    int fd; /* of its file, -1: it has none */
    unsigned long long id;
    struct fake_physical *physical; /* of cuMemMap */
    unsigned access;                /* of cuMemSetAccess: a bit for each GPU */
};

/** What has these bytes, from end to end; NULL: no such memory. With the
 * lock. */
struct fake_memory *fake_find(const char *address, size_t bytes);
/** Whether the address was of memory that is gone. */
bool fake_is_gone(const char *address);

/* A kernel's, with what it is given. */
struct fake_launch {
    unsigned blocks;
    struct rs_pack_launch parameter;
};

/** Takes the launch, which malloc has made, if it returns CUDA_SUCCESS. */
CUresult fake_enqueue_launch(CUstream stream, struct fake_launch *launch);
/** With the lock. */
CUresult fake_run_kernel(CUcontext context, const struct fake_launch *launch);

/** Change a count. Without the lock. */
void fake_count(enum fake_count what, int by);

void fake_die(const char *what, const void *which)
    __attribute__((noreturn, cold));

#endif
