/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/region.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"

/* ---- exporting ---- */

/* What the driver says of an allocation. */
struct facts {
    CUdeviceptr start;
    size_t bytes;
    unsigned long long buffer;
    int gpu;
    unsigned legacy; /* it has a handle */
    CUmemAllocationHandleType types;
};

static int look_at(const struct rs_cuda_driver *driver, const char *address,
                   struct facts *facts)
{
    /* Where mapped memory begins and ends no attribute tells: those mean all
     * that was reserved. */
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    void *values[] = {&facts->buffer, &facts->gpu, &facts->legacy,
                      &facts->types};

    memset(facts, 0, sizeof(*facts));
    return rs_cuda_error(
        driver,
        driver->cuPointerGetAttributes(
            sizeof(attributes) / sizeof(attributes[0]), attributes, values,
            (CUdeviceptr)(uintptr_t)address),
        "cuPointerGetAttributes");
}

static int export_legacy(const struct rs_cuda_driver *driver,
                         struct rs_cuda_region *region)
{
    CUipcMemHandle handle;
    int error = rs_cuda_error(
        driver, driver->cuIpcGetMemHandle(&handle, (CUdeviceptr)region->start),
        "cuIpcGetMemHandle");

    region->kind = RS_CUDA_LEGACY;
    if (error == 0)
        memcpy(region->handle, &handle, sizeof(handle));
    return error;
}

static int export_descriptor(const struct rs_cuda_driver *driver,
                             const char *address,
                             struct rs_cuda_region *region)
{
    CUmemGenericAllocationHandle memory;
    int fd = -1;
    int error = rs_cuda_error(driver,
                              driver->cuMemRetainAllocationHandle(
                                  &memory, (void *)(uintptr_t)address),
                              "cuMemRetainAllocationHandle");

    if (error != 0)
        return error;
    error = rs_cuda_error(
        driver,
        driver->cuMemExportToShareableHandle(
            &fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle");
    driver->cuMemRelease(memory);
    region->kind = RS_CUDA_DESCRIPTOR;
    region->fd = rs_descriptor_keep(fd);
    if (error == 0 && region->fd < 0)
        error = rs_fail(RSCHED_ESYS, "keeping the descriptor of GPU memory: %m");
    return error;
}

/* The context of its GPU is current. */
static int export_memory(const struct rsched_connection *connection,
                         const struct facts *facts, const char *address,
                         struct rs_cuda_region *r)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUdeviceptr start;
    size_t bytes;
    int error = rs_cuda_error(
        driver,
        driver->cuMemGetAddressRange(&start, &bytes,
                                     (CUdeviceptr)(uintptr_t)address),
        "cuMemGetAddressRange");

    if (error != 0)
        return error;
    r->start = start;
    r->bytes = bytes;
    /* What is mapped may be barred to other GPUs of the process. */
    if (connection->same_process)
        return facts->legacy != 0
                   ? 0
                   : rs_fail(RSCHED_ENOTSUP, "memory of GPU %d that another "
                                             "GPU may not access", facts->gpu);
    if (facts->legacy != 0)
        return export_legacy(driver, r);
    if ((facts->types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return export_descriptor(driver, address, r);
    return rs_fail(RSCHED_ENOTSUP,
                   "memory of GPU %d that no other process can open (of a "
                   "pool, or made without a type of handle)", facts->gpu);
}

int rs_cuda_region_export(const struct rsched_connection *connection,
                          const char *address, struct rs_cuda_region *region)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    struct rs_cuda_region r = {.kind = RS_CUDA_ADDRESS, .fd = -1};
    struct rs_cuda_end end;
    struct facts facts;
    CUcontext context;
    int error = look_at(driver, address, &facts);

    if (error == 0)
        error = rs_cuda_end_of(
            &(struct rsched_place){RSCHED_PLACE_GPU, facts.gpu}, &end);
    /* A message may have pieces on several GPUs. */
    if (error == 0)
        error = rs_cuda_context(connection->engine, facts.gpu, &context);
    if (error == 0)
        error = rs_cuda_error(driver, driver->cuCtxPushCurrent(context),
                              "cuCtxPushCurrent");
    if (error != 0)
        return error;
    r.buffer = facts.buffer;
    r.owner = connection->engine->memory.id;
    memcpy(r.gpu, end.id, sizeof(r.gpu));
    error = export_memory(connection, &facts, address, &r);
    driver->cuCtxPopCurrent(&context);
    if (error == 0)
        *region = r;
    return error;
}

void rs_cuda_region_withdraw(struct rs_cuda_region *region)
{
    if (region->fd >= 0)
        close(region->fd);
    region->fd = -1;
}

/* ---- opening ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t closed = PTHREAD_COND_INITIALIZER;
static struct rs_cuda_opened *list; /* of the process */

/* The descriptor's number may be another's by now; the rest says which
 * allocation is meant. */
static bool is_same(const struct rs_cuda_opened *o,
                    const struct rs_cuda_region *r, CUcontext context)
{
    return !o->stale && o->context == context && o->region.kind == r->kind &&
           o->region.owner == r->owner && o->region.buffer == r->buffer &&
           o->region.start == r->start && o->region.bytes == r->bytes &&
           memcmp(o->region.handle, r->handle, sizeof(r->handle)) == 0;
}

static int open_legacy(const struct rs_cuda_driver *driver,
                       struct rs_cuda_opened *o)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    int error;

    memcpy(&handle, o->region.handle, sizeof(handle));
    error = rs_cuda_error(driver,
                          driver->cuIpcOpenMemHandle(
                              &address, handle,
                              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                          "cuIpcOpenMemHandle");
    o->address = (char *)(uintptr_t)address;
    return error;
}

static int map_memory(const struct rs_cuda_driver *driver,
                      struct rs_cuda_opened *o, int gpu,
                      CUmemGenericAllocationHandle memory)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    size_t bytes = o->region.bytes;
    int error = rs_cuda_error(
        driver, driver->cuMemAddressReserve(&address, bytes, 0, 0, 0),
        "cuMemAddressReserve");

    if (error != 0)
        return error;
    error = rs_cuda_error(driver,
                          driver->cuMemMap(address, bytes, 0, memory, 0),
                          "cuMemMap");
    if (error != 0)
        goto err_free;
    error = rs_cuda_error(driver,
                          driver->cuMemSetAccess(address, bytes, &access, 1),
                          "cuMemSetAccess");
    if (error != 0)
        goto err_unmap;
    o->address = (char *)(uintptr_t)address;
    o->reserved = bytes;
    return 0;

err_unmap:
    driver->cuMemUnmap(address, bytes);
err_free:
    driver->cuMemAddressFree(address, bytes);
    return error;
}

/* Nothing but that was sent with the table, which may have been opened before. */
static int sent_before(const struct rs_cuda_region *region)
{
    for (const struct rs_cuda_opened *o = list; o != NULL; o = o->next) {
        if (o->fd >= 0 && is_same(o, region, o->context))
            return rs_descriptor_keep(fcntl(o->fd, F_DUPFD_CLOEXEC, 0));
    }
    return -1;
}

/* @param sent the descriptor that has come, or -1 */
static int get_descriptor(const struct rsched_connection *c,
                          const struct rs_cuda_region *region, int sent,
                          int *fd)
{
    if (region->fd >= 0) {
        *fd = rs_descriptor_keep(
            (int)syscall(SYS_pidfd_getfd, c->pidfd, region->fd, 0));
        return *fd >= 0 ? 0
                        : rs_fail(RSCHED_ENOTSUP, "taking the descriptor of its "
                                                  "memory (pidfd_getfd): %m");
    }
    *fd = sent >= 0 ? sent : sent_before(region);
    return *fd >= 0 ? 0
                    : rs_fail(RSCHED_ENOTSUP, "the descriptor of its memory has "
                                              "not come");
}

/* The descriptor is closed, or kept, if it was sent. */
static int import_descriptor(const struct rs_cuda_driver *driver,
                             struct rs_cuda_opened *o, int gpu, int fd)
{
    CUmemGenericAllocationHandle memory;
    int error;

    error = rs_cuda_error(driver,
                          driver->cuMemImportFromShareableHandle(
                              &memory, (void *)(uintptr_t)fd,
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                          "cuMemImportFromShareableHandle");
    if (error == 0) {
        error = map_memory(driver, o, gpu, memory);
        /* What is mapped stays. */
        driver->cuMemRelease(memory);
    }
    if (error == 0 && o->region.fd < 0)
        o->fd = fd;
    else
        close(fd);
    return error;
}

/* @param sent the descriptor that has come, or -1; it is taken over */
static int open_new(const struct rsched_connection *c,
                    const struct rs_cuda_region *region, CUcontext context,
                    int gpu, int sent, struct rs_cuda_opened **opened)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    struct rs_cuda_opened *o = calloc(1, sizeof(*o));
    int error, fd;

    if (o == NULL) {
        if (sent >= 0)
            close(sent);
        return rs_fail(RSCHED_ENOMEM, "no memory for a handle");
    }
    o->region = *region;
    o->context = context;
    o->fd = -1;
    if (region->kind == RS_CUDA_ADDRESS && c->same_process) {
        o->address = (char *)(uintptr_t)region->start;
        error = 0;
    } else if (region->kind == RS_CUDA_LEGACY && !c->same_process) {
        error = open_legacy(driver, o);
    } else if (region->kind == RS_CUDA_DESCRIPTOR && !c->same_process) {
        error = get_descriptor(c, region, sent, &fd);
        if (error == 0)
            error = import_descriptor(driver, o, gpu, fd);
    } else {
        error = rs_fail(RSCHED_EMISMATCH, "a handle that is none");
    }
    if (error != 0) {
        free(o);
        return error;
    }
    o->next = list;
    list = o;
    *opened = o;
    return 0;
}

/* With the lock. @return it, or NULL */
static struct rs_cuda_opened *find(const struct rs_cuda_region *region,
                                   CUcontext context)
{
    struct rs_cuda_opened *o = list;

    while (o != NULL && !is_same(o, region, context))
        o = o->next;
    return o;
}

void rs_cuda_region_collect(struct rsched_connection *connection)
{
    pthread_mutex_lock(&lock);
    rs_cuda_notes_collect(&connection->notes);
    pthread_mutex_unlock(&lock);
}

int rs_cuda_region_open(struct rsched_connection *connection,
                        const struct rs_cuda_region *region, CUcontext context,
                        int gpu, struct rs_cuda_opened **opened)
{
    struct rs_cuda_opened *o;
    int error = 0, sent = -1;

    pthread_mutex_lock(&lock);
    if (region->kind == RS_CUDA_DESCRIPTOR && region->fd < 0)
        sent = rs_cuda_notes_take(&connection->notes, region->buffer,
                                  region->start);
    while ((o = find(region, context)) != NULL && o->closing)
        pthread_cond_wait(&closed, &lock);
    if (o == NULL)
        error = open_new(connection, region, context, gpu, sent, &o);
    else if (sent >= 0)
        close(sent);
    if (error == 0) {
        o->users++;
        *opened = o;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static void close_now(struct rs_cuda_opened *o)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)o->address;
    CUstreamCaptureMode mode = rs_cuda_relax(driver);
    CUcontext popped;

    if (o->region.kind == RS_CUDA_DESCRIPTOR) {
        driver->cuMemUnmap(address, o->reserved);
        driver->cuMemAddressFree(address, o->reserved);
    } else if (o->region.kind == RS_CUDA_LEGACY &&
               driver->cuCtxPushCurrent(o->context) == CUDA_SUCCESS) {
        driver->cuIpcCloseMemHandle(address);
        driver->cuCtxPopCurrent(&popped);
    }
    rs_cuda_restore(driver, mode);
}

void rs_cuda_region_close(struct rs_cuda_opened *opened)
{
    struct rs_cuda_opened **at = &list;
    bool last;

    pthread_mutex_lock(&lock);
    last = opened->closing = --opened->users == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    if (!opened->stale)
        close_now(opened);
    RS_FAILPOINT("region:closed");
    pthread_mutex_lock(&lock);
    while (*at != opened)
        at = &(*at)->next;
    *at = opened->next;
    pthread_cond_broadcast(&closed);
    pthread_mutex_unlock(&lock);
    /* Not before: those who find it in the list have its descriptor copied. */
    if (opened->fd >= 0)
        close(opened->fd);
    free(opened);
}

/* Two allocations do not share addresses, so one of them has been freed; and the
 * region's owner has told of that one last. In which of its contexts the driver
 * minds, it does not say. */
static bool is_in_the_way(const struct rs_cuda_opened *o,
                          const struct rs_cuda_region *r)
{
    return !o->closed && o->region.kind == RS_CUDA_LEGACY &&
           r->kind == RS_CUDA_LEGACY && o->region.owner == r->owner &&
           o->region.buffer != r->buffer &&
           o->region.start < r->start + r->bytes &&
           r->start < o->region.start + o->region.bytes;
}

/* With the lock. */
static struct rs_cuda_opened *
find_in_the_way(const struct rs_cuda_region *region)
{
    struct rs_cuda_opened *o = list;

    while (o != NULL && !is_in_the_way(o, region))
        o = o->next;
    return o;
}

/* With the lock, but while the driver closes it. */
static void close_for_all(struct rs_cuda_opened *o)
{
    o->stale = true;
    o->users++; /* it stays that long */
    pthread_mutex_unlock(&lock);
    close_now(o);
    pthread_mutex_lock(&lock);
    o->closed = true;
    pthread_cond_broadcast(&closed);
    pthread_mutex_unlock(&lock);
    rs_cuda_region_close(o);
    pthread_mutex_lock(&lock);
}

bool rs_cuda_region_close_stale(const struct rs_cuda_region *region)
{
    struct rs_cuda_opened *o;
    bool any = false;

    pthread_mutex_lock(&lock);
    while ((o = find_in_the_way(region)) != NULL) {
        any = true;
        if (o->stale || o->closing)
            pthread_cond_wait(&closed, &lock); /* somebody closes it */
        else
            close_for_all(o);
    }
    pthread_mutex_unlock(&lock);
    return any;
}
