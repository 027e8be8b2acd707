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
#ifdef FAKE_CUDA_CLOSED /* programs take it for a real one */
#define OWN
enum { FAKE_CLOSED = 1 };
#else
#define OWN API
enum { FAKE_CLOSED = 0 };
#endif

enum { FAKE_GPUS = 8, FAKE_PAGE = 4096 };

/* A context is the primary one of its GPU, or one of fakeContext(). */
struct CUctx_st {
    int gpu;
    _Atomic unsigned holders;
    atomic_int objects; /* streams, events and modules that are its own */
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
    char *there; /* the same, of host memory, for kernels; NULL: not for them */
    size_t bytes;
    CUmemorytype type;
    bool managed;
    bool registered; /* the program's own */
    bool synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    bool opened;     /* another process's, by its handle */
    bool gone;       /* freed, closed or unmapped: copies under way find out */
    CUcontext context; /* opened, or allocated: in which; NULL: in none */
    int pid;           /* opened by a handle: of which process, */
    char *exported;    /* and its address there */
    int gpu;
    int fd; /* of its file, -1: it has none */
    unsigned long long id;
    struct fake_physical *physical; /* of cuMemMap */
    struct fake_reserved *reserved; /* where it is mapped */
    unsigned access;                /* of cuMemSetAccess: a bit for each GPU */
};

/** What has these bytes, from end to end; NULL: no such memory. With the
 * lock. */
struct fake_memory *fake_find(const char *address, size_t bytes);
/** The same of bytes that may go on in further mappings of what was reserved at
 * once; all of it is accessible to the GPU. @return the first; NULL: it is not
 * so. With the lock. */
struct fake_memory *fake_find_mapped(const char *address, size_t bytes,
                                     int gpu);
/** The host memory that kernels see these bytes of at this address; NULL: none.
 * With the lock. */
struct fake_memory *fake_find_there(const char *address, size_t bytes);
/** What address of the host's it means; NULL: none. With the lock. */
char *fake_of_kernels(const char *address);
/** Know of memory from now on. @return it */
struct fake_memory *fake_add(const struct fake_memory *memory);
/** The same, with the lock. */
struct fake_memory *fake_add_locked(const struct fake_memory *memory);
/** It is freed, closed or unmapped: its addresses are nobody else's. With the
 * lock. */
void fake_bury(struct fake_memory *m);
/** Address space behind what was given out last. */
void *fake_next_place(size_t bytes);
/** A file for memory; its name says what others must know. */
int fake_make_file(size_t bytes, unsigned long long id, int gpu);
/** @return whether the descriptor at a path is one of fake_make_file() */
bool fake_read_name(const char *path, unsigned long long *id, int *gpu,
                    size_t *bytes);
/** Map a file where processors may not touch it, and where they may: somewhere,
 * unless it is said. */
bool fake_map_twice(struct fake_memory *m, void *at, void *touch);
unsigned long long fake_new_id(void);
/** Whether the address was of memory that is gone. */
bool fake_is_gone(const char *address);

/* A kernel's, with what it is given. */
struct fake_launch {
    unsigned blocks;
    struct rs_pack_launch parameter;
};

/* An end of a copy: the driver's memory, or whatever is at an address. */
struct fake_end {
    struct fake_memory *memory; /* NULL: pageable */
    char *address, *touch;
    size_t pitch;
};

enum fake_work_kind {
    FAKE_WORK_COPY,
    FAKE_WORK_LAUNCH,
    FAKE_WORK_HOST,
    FAKE_WORK_KERNEL, /* of the program: `function` */
    FAKE_WORK_WAIT, /* until a word has a value */
    FAKE_WORK_WRITE /* that value */
};

/* What a stream is told. */
struct fake_work {
    enum fake_work_kind kind;
    struct fake_end to, from; /* a copy */
    size_t width, height;
    struct fake_launch *launch; /* which malloc has made */
    CUhostFn function;
    void *arg;
    CUdeviceptr word;
    unsigned value;
};

/** Append it, or have the graph have it that the stream is captured into. */
CUresult fake_enqueue(CUstream stream, const struct fake_work *work);

CUgraph fake_graph_create(void);
void fake_graph_append(CUgraph graph, const struct fake_work *work);

/** Do what cuMemcpyDtoD has left undone. With the lock. */
void fake_do_late_copies(void);

/** Until no stream waits for a word: what a driver does that frees memory.
 * Without the lock. */
void fake_wait_for_streams(void);

/** The same if FAKE_CUDA_WAITS names the function. */
void fake_may_wait(const char *function);
#define WAITS(function) fake_may_wait(#function)

/** Where a word is that a stream names; NULL: nowhere. With the lock. */
atomic_uint *fake_word(CUdeviceptr address);
/** Host memory by the address that kernels and streams have of it. With the
 * lock. */
void *fake_seen_by_kernels(uint64_t address, size_t bytes);

/** Run a kernel of the program in a process of its own, which has nothing of host
 * memory but what is mapped for kernels, where it is mapped. It ends with this
 * call. Without the lock. */
void fake_run_program(CUcontext context, CUhostFn kernel, void *arg);
/** Do something with all memory that there is. With the lock. */
void fake_for_all(void (*f)(const struct fake_memory *m, void *arg), void *arg);
/** Whether a kernel in this context reaches it, by the address of the host's
 * (there) or the driver's. */
bool fake_is_reached(const struct fake_memory *m, CUcontext context, bool there);

/** Call a function that may not call the driver. Without the lock. */
void fake_call_host(CUhostFn function, void *arg);
bool fake_is_in_host_function(void);

/** Whether a capture forbids what would be missed by it; then it is broken. */
bool fake_is_prohibited(CUstream stream);

/** Return the error of what may not be called now, if a capture says so. */
#define UNSAFE()                                                             \
    do {                                                                     \
        if (fake_is_prohibited(NULL))                                        \
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;                    \
    } while (0)
/** With the lock. */
CUresult fake_run_kernel(CUcontext context, const struct fake_launch *launch);

/** Change a count. Without the lock. */
void fake_count(enum fake_count what, int by);

/** Take FAKE_CUDA_LINGER. Without the lock. */
void fake_linger(void);

/** The kernel of examples/jacobi-device, by one thread. */
void fake_jacobi(void *jacobi);
/** That of bench/gpu/words.c, by the threads that its job names. */
void fake_words(void *job);

void fake_die(const char *what, const void *which)
    __attribute__((noreturn, cold));

#endif
