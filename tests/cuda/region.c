/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles of memory that lies where freed memory lay. Its owner is a process of its
 * own, which allocates, tells, and does so anew whenever it is asked to.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/cuda/region.h"
#include "librsched/base/failpoint.h"
#include "tests/cuda/program.h"

enum { BYTES = 1 << 20, OPENERS = 2, LINGER_US = 300000 };

static int asks[2], tells[2];
static pid_t owner;
static struct program p;
static struct rsched_connection connection = {.peer = 1};

/* ---- the owner ---- */

static struct rs_cuda_region describe(CUdeviceptr memory)
{
    CUresult (*handle_of)(CUipcMemHandle *, CUdeviceptr);
    struct rs_cuda_region r = {.kind = RS_CUDA_LEGACY,
                               .fd = -1,
                               .owner = 1,
                               .start = memory,
                               .bytes = BYTES};
    static uint64_t buffer;
    CUipcMemHandle handle;
    void *symbol =
        dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuIpcGetMemHandle");

    memcpy(&handle_of, &symbol, sizeof(symbol));
    if (handle_of(&handle, memory) != CUDA_SUCCESS)
        abort();
    memcpy(r.handle, &handle, sizeof(handle));
    r.buffer = ++buffer;
    return r;
}

static void own(void)
{
    CUdeviceptr memory;
    char byte;

    program_begin(&p, 0);
    while (read(asks[0], &byte, 1) == 1) {
        struct rs_cuda_region r;

        if (p.cuMemAlloc(&memory, BYTES) != CUDA_SUCCESS)
            abort();
        r = describe(memory);
        if (write(tells[1], &r, sizeof(r)) != sizeof(r))
            abort();
        if (read(asks[0], &byte, 1) != 1)
            break;
        p.cuMemFree(memory);
    }
    _exit(0);
}

static struct rs_cuda_region allocate(void)
{
    struct rs_cuda_region r;

    cr_assert_eq(write(asks[1], "", 1), 1);
    cr_assert_eq(read(tells[0], &r, sizeof(r)), sizeof(r));
    return r;
}

static struct rs_cuda_region reallocate(const struct rs_cuda_region *old)
{
    struct rs_cuda_region r;

    cr_assert_eq(write(asks[1], "", 1), 1);
    r = allocate();
    cr_assert_eq(r.start, old->start, "elsewhere");
    return r;
}

/* ---- who opens it ---- */

static void begin(void)
{
    char linger[16];

    snprintf(linger, sizeof(linger), "%d", LINGER_US);
    setenv("FAKE_CUDA_REUSE", "1", 1);
    cr_assert_eq(pipe(asks), 0);
    cr_assert_eq(pipe(tells), 0);
    owner = fork();
    if (owner == 0) {
        close(asks[1]);
        own();
    }
    setenv("FAKE_CUDA_LINGER", linger, 1);
    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
}

static void end(void)
{
    close(asks[1]);
    waitpid(owner, NULL, 0);
    program_end(&p, 0);
}

static struct rs_cuda_opened *must_open(const struct rs_cuda_region *region)
{
    struct rs_cuda_opened *o;

    cr_assert_eq(rs_cuda_region_open(&connection, region, p.context, 0, &o), 0,
                 "%s", rsched_last_error());
    return o;
}

struct opener {
    pthread_t thread;
    const struct rs_cuda_region *region;
    int error;
    bool closed;
    struct rs_cuda_opened *opened;
};

/* As a message does whose sender has freed its buffer and has another one. */
static void *open_anew(void *arg)
{
    struct opener *o = arg;

    p.cuCtxSetCurrent(p.context);
    o->error =
        rs_cuda_region_open(&connection, o->region, p.context, 0, &o->opened);
    if (o->error == 0)
        return NULL;
    o->closed = rs_cuda_region_close_stale(o->region);
    if (o->closed)
        o->error = rs_cuda_region_open(&connection, o->region, p.context, 0,
                                       &o->opened);
    return NULL;
}

static void *close_last(void *arg)
{
    rs_cuda_region_close(arg);
    return NULL;
}

/* Whoever comes second waits for the first one to close it. */
Test(region, several_close_what_is_in_the_way)
{
    struct opener openers[OPENERS];
    struct rs_cuda_region old, new;
    struct rs_cuda_opened *stale;

    begin();
    old = allocate();
    stale = must_open(&old);
    new = reallocate(&old);
    for (int i = 0; i < OPENERS; i++) {
        openers[i] = (struct opener){.region = &new};
        pthread_create(&openers[i].thread, NULL, open_anew, &openers[i]);
    }
    for (int i = 0; i < OPENERS; i++)
        pthread_join(openers[i].thread, NULL);
    for (int i = 0; i < OPENERS; i++) {
        cr_assert_eq(openers[i].error, 0, "one of %d", OPENERS);
        rs_cuda_region_close(openers[i].opened);
    }
    rs_cuda_region_close(stale);
    end();
}

Test(region, what_is_being_closed_is_waited_for)
{
    struct opener opener = {.region = NULL};
    struct rs_cuda_region old, new;
    struct rs_cuda_opened *stale;
    pthread_t closer;

    begin();
    old = allocate();
    stale = must_open(&old);
    new = reallocate(&old);
    pthread_create(&closer, NULL, close_last, stale);
    usleep(LINGER_US / 3); /* it is at it */
    opener.region = &new;
    open_anew(&opener);
    cr_assert_eq(opener.error, 0);
    pthread_join(closer, NULL);
    rs_cuda_region_close(opener.opened);
    end();
}

/* The driver does not say in which of them it is in the way. */
Test(region, it_is_closed_in_contexts_of_all_gpus)
{
    struct opener opener = {.region = NULL};
    struct rs_cuda_region old, new;
    struct rs_cuda_opened *stale;
    CUcontext other;

    begin();
    old = allocate();
    cr_assert_eq(p.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
    p.cuCtxSetCurrent(other);
    cr_assert_eq(rs_cuda_region_open(&connection, &old, other, 1, &stale), 0);
    new = reallocate(&old);
    opener.region = &new;
    open_anew(&opener);
    cr_assert_eq(opener.error, 0);
    cr_assert(opener.closed);
    rs_cuda_region_close(opener.opened);
    rs_cuda_region_close(stale);
    p.cuDevicePrimaryCtxRelease(1);
    end();
}

/* ---- descriptors ---- */

/* Memory of GPU 0, of which the descriptor has been sent to this process. */
static struct rs_cuda_region send_descriptor(struct rs_cuda_notes *from)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const struct rs_cuda_region r = {.kind = RS_CUDA_DESCRIPTOR,
                                     .fd = -1,
                                     .buffer = 7,
                                     .owner = 1,
                                     .start = 4096,
                                     .bytes = BYTES};
    const struct rs_cuda_note note = {1, 1, r.buffer, r.start};
    CUmemGenericAllocationHandle memory;
    int fd;

    cr_assert_eq(p.cuMemCreate(&memory, BYTES, &prop, 0), CUDA_SUCCESS);
    cr_assert_eq(p.cuMemExportToShareableHandle(
                     &fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemRelease(memory), CUDA_SUCCESS);
    rs_cuda_notes_init(from);
    rs_cuda_notes_init(&connection.notes);
    connection.notes.in = rs_cuda_notes_open(from);
    cr_assert_eq(rs_cuda_notes_send(from, &note, fd), 0);
    close(fd);
    return r;
}

/* Another GPU's context opens it while the first one's is being closed: by the
 * descriptor that came for that. */
Test(region, what_is_being_closed_has_its_descriptor)
{
    struct rs_cuda_opened *first, *second;
    struct rs_cuda_region region;
    struct rs_cuda_notes from;
    CUcontext other;
    pthread_t closer;

    setenv("RSCHED_FAILPOINTS", "region:closed=delay:300ms", 1);
    cr_assert_eq(rs_failpoints_arm(0), 0);
    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(p.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
    region = send_descriptor(&from);
    close(0); /* the kernel gives this number first */
    first = must_open(&region);
    pthread_create(&closer, NULL, close_last, first);
    usleep(LINGER_US / 3); /* it is at it */
    p.cuCtxSetCurrent(other);
    cr_assert_eq(rs_cuda_region_open(&connection, &region, other, 1, &second),
                 0, "%s", rsched_last_error());
    cr_assert(second->fd > 2);
    pthread_join(closer, NULL);
    rs_cuda_region_close(second);
    rs_cuda_notes_fini(&connection.notes);
    rs_cuda_notes_fini(&from);
    p.cuDevicePrimaryCtxRelease(1);
    program_end(&p, 0);
}
