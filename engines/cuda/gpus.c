/* SPDX-License-Identifier: BSD-3-Clause */
/* Which GPUs there are, what could join them, and which memory is theirs. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include <rsched/engine.h>

#include "engines/cuda/driver.h"
#include "engines/cuda/gdr.h"
#include "engines/cuda/hold.h"
#include "engines/cuda/order.h"
#include "engines/cuda/shared.h"
#include "librsched/base/error.h"
#include "librsched/base/ways.h"

/* What the driver says of an address. */
struct facts {
    CUmemorytype type; /* 0: it does not know the address */
    unsigned managed;
    int gpu;
    CUdeviceptr start; /* of mapped memory (cuMemMap): of all that was reserved */
    size_t bytes;
    void *host; /* where processors have host memory */
    CUcontext context; /* NULL: of no one in particular (cuMemMap, pools) */
};

static CUresult look_at(const struct rs_cuda_driver *driver,
                        const void *address, struct facts *facts)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                        CU_POINTER_ATTRIBUTE_CONTEXT};
    void *values[] = {&facts->type,  &facts->managed, &facts->gpu,
                      &facts->start, &facts->bytes,   &facts->host,
                      &facts->context};

    memset(facts, 0, sizeof(*facts));
    return driver->cuPointerGetAttributes(
        sizeof(attributes) / sizeof(attributes[0]), attributes, values,
        (CUdeviceptr)(uintptr_t)address);
}

static bool is_one_allocation(const struct facts *facts, const void *address,
                              uint64_t bytes)
{
    uint64_t offset = (CUdeviceptr)(uintptr_t)address - facts->start;

    return offset < facts->bytes && bytes <= facts->bytes - offset;
}

/* Where GPUs have pinned memory at another address than processors, that is none
 * of theirs. */
static bool is_the_hosts(const struct facts *facts, const void *address)
{
    return facts->type == 0 || facts->host == NULL || facts->host == address;
}

static enum rsched_place_kind kind_of(const struct facts *facts,
                                      const void *address, uint64_t bytes)
{
    /* Managed memory has the type of where it is now. */
    if (facts->managed == 0 &&
        (facts->type == 0 || facts->type == CU_MEMORYTYPE_HOST))
        return is_the_hosts(facts, address) ? RSCHED_PLACE_HOST
                                            : RSCHED_PLACE_UNKNOWN;
    if (!is_one_allocation(facts, address, bytes))
        return RSCHED_PLACE_UNKNOWN;
    if (facts->managed != 0)
        return RSCHED_PLACE_MANAGED;
    return facts->type == CU_MEMORYTYPE_DEVICE ? RSCHED_PLACE_GPU
                                               : RSCHED_PLACE_UNKNOWN;
}

/* The driver has not been initialised in this process, or is shutting down, or
 * has no context that could know the address. */
static bool knows_nothing(CUresult result)
{
    return result == CUDA_ERROR_NOT_INITIALIZED ||
           result == CUDA_ERROR_DEINITIALIZED ||
           result == CUDA_ERROR_INVALID_CONTEXT;
}

/* What was reserved need not be mapped, nor all of it on one GPU; holes between
 * the ends its copies find. */
static bool ends_likewise(const struct rs_cuda_driver *driver,
                          const struct facts *facts, const void *address,
                          uint64_t bytes)
{
    struct facts last;

    return bytes == 1 ||
           (look_at(driver, (const char *)address + bytes - 1, &last) ==
                CUDA_SUCCESS &&
            last.type == facts->type && last.gpu == facts->gpu &&
            last.start == facts->start);
}

/* A primary context is the same one for ever. */
static _Atomic(CUcontext) primaries[RS_CUDA_MOST_GPUS]; /* that are known */

/* It is not made for this: who has memory of it has made it. */
static bool is_primary(const struct rs_cuda_driver *driver, int gpu,
                       CUcontext context)
{
    CUstreamCaptureMode mode;
    CUcontext primary = NULL;
    CUdevice device;
    unsigned flags;
    bool same = false;
    int active = 0;

    if (atomic_load_explicit(&primaries[gpu], memory_order_relaxed) == context)
        return true;
    mode = rs_cuda_relax(driver);
    if (driver->cuDeviceGet(&device, gpu) == CUDA_SUCCESS &&
        driver->cuDevicePrimaryCtxGetState(device, &flags, &active) ==
            CUDA_SUCCESS &&
        active != 0) {
        CUresult result = driver->cuDevicePrimaryCtxRetain(&primary, device);

        /* Whoever needs it will be told why. */
        same = result != CUDA_SUCCESS || primary == context;
        if (result == CUDA_SUCCESS)
            driver->cuDevicePrimaryCtxRelease(device);
        if (primary == context)
            atomic_store_explicit(&primaries[gpu], context,
                                  memory_order_relaxed);
    }
    rs_cuda_restore(driver, mode);
    return same;
}

/* Kernels have memory of their own context only, of whichever GPU it is, and ours
 * run in primary ones. */
static bool is_of_primary(const struct rs_cuda_driver *driver,
                          const struct facts *facts)
{
    return facts->context == NULL || facts->gpu < 0 ||
           facts->gpu >= RS_CUDA_MOST_GPUS ||
           is_primary(driver, facts->gpu, facts->context);
}

static void place_of(const void *address, uint64_t bytes,
                     struct rsched_place *place)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    struct facts facts;
    CUresult result;

    *place = (struct rsched_place){RSCHED_PLACE_HOST, -1};
    if (driver == NULL)
        return;
    result = look_at(driver, address, &facts);
    if (result == CUDA_SUCCESS)
        place->kind = kind_of(&facts, address, bytes);
    else if (!knows_nothing(result))
        place->kind = RSCHED_PLACE_UNKNOWN;
    if (place->kind == RSCHED_PLACE_GPU &&
        (!ends_likewise(driver, &facts, address, bytes) ||
         !is_of_primary(driver, &facts)))
        place->kind = RSCHED_PLACE_UNKNOWN;
    if (place->kind == RSCHED_PLACE_GPU)
        place->gpu = facts.gpu;
}

static uint64_t allocation_of(const void *address)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    unsigned long long number = 0;
    unsigned managed = 0;
    CUmemorytype type = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *values[] = {&type, &managed, &number};

    if (driver == NULL ||
        driver->cuPointerGetAttributes(
            sizeof(attributes) / sizeof(attributes[0]), attributes, values,
            (CUdeviceptr)(uintptr_t)address) != CUDA_SUCCESS)
        return 0;
    return type == CU_MEMORYTYPE_DEVICE && managed == 0 ? number : 0;
}

static int open_driver(int *count)
{
    const struct rs_cuda_driver *driver;
    int error = rs_cuda_driver_find(true, &driver), number = 0;

    if (error == 0)
        error = rs_cuda_check(driver, driver->cuInit(0), "cuInit");
    if (error == 0)
        error = rs_cuda_check(driver, driver->cuDeviceGetCount(&number),
                              "cuDeviceGetCount");
    if (error == 0 && number == 0)
        error = rs_fail(RSCHED_ENOTSUP, "the driver shows no GPU");
    if (error == 0)
        *count = number;
    return error;
}

static int attribute_of(CUdevice device, CUdevice_attribute attribute,
                        int otherwise)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    int value;

    return driver->cuDeviceGetAttribute(&value, attribute, device) ==
                   CUDA_SUCCESS
               ? value
               : otherwise;
}

static int numa_node_of(CUdevice device)
{
    int node = attribute_of(device, RS_CUDA_HOST_NUMA_ID, RSCHED_NUMA_UNKNOWN);

    return node >= RSCHED_NUMA_NONE ? node : RSCHED_NUMA_UNKNOWN;
}

static int device_of(int gpu, CUdevice *device)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();

    return rs_cuda_check(driver, driver->cuDeviceGet(device, gpu),
                         "cuDeviceGet");
}

static int describe(int gpu, struct rsched_gpu *description)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    struct rsched_gpu g = {0};
    CUdevice device;
    CUuuid id;
    size_t bytes;
    int error = device_of(gpu, &device);

    if (error == 0)
        error = rs_cuda_check(
            driver,
            driver->cuDeviceGetName(g.name, (int)sizeof(g.name), device),
            "cuDeviceGetName");
    if (error == 0)
        error = rs_cuda_check(driver, driver->cuDeviceGetUuid(&id, device),
                              "cuDeviceGetUuid");
    if (error == 0)
        error = rs_cuda_check(
            driver,
            driver->cuDeviceGetPCIBusId(g.bus, (int)sizeof(g.bus), device),
            "cuDeviceGetPCIBusId");
    if (error == 0)
        error = rs_cuda_check(driver, driver->cuDeviceTotalMem(&bytes, device),
                              "cuDeviceTotalMem");
    if (error != 0)
        return rs_fail_within(error, "GPU %d", gpu);
    static_assert(sizeof(g.id) == sizeof(id.bytes), "an id is a UUID");
    memcpy(g.id, id.bytes, sizeof(g.id));
    g.numa_node = numa_node_of(device);
    g.bytes = bytes;
    *description = g;
    return 0;
}

bool rs_cuda_gpu_is_served(int gpu)
{
    CUdevice device;

    return device_of(gpu, &device) == 0 &&
           attribute_of(device, RS_CUDA_MPS_ENABLED, 0) != 0;
}

/* Two processes need two contexts, or a server that has one for both. */
static int check_shared(CUdevice device, int gpu)
{
    int mode = attribute_of(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
                            CU_COMPUTEMODE_DEFAULT);
    int served = attribute_of(device, RS_CUDA_MPS_ENABLED, 0);

    if (mode == CU_COMPUTEMODE_DEFAULT ||
        (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS && served != 0))
        return 0;
    return rs_fail(RSCHED_ENOTSUP, "GPU %d is not for two processes (its "
                   "compute mode)", gpu);
}

/* Legacy handles need a GPU with memory of its own; others have file
 * descriptors, if they are new enough. */
static int check_exports(CUdevice device, int gpu)
{
    if (attribute_of(device, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0) == 0 ||
        attribute_of(
            device,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            0) != 0)
        return 0;
    return rs_fail(RSCHED_ENOTSUP, "memory of GPU %d cannot be opened by "
                   "another process", gpu);
}

static int check_peers(CUdevice from, CUdevice to, int a, int b)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    int can = 0, error;

    /* The receiver copies. */
    error = rs_cuda_check(driver,
                          driver->cuDeviceCanAccessPeer(&can, to, from),
                          "cuDeviceCanAccessPeer");
    if (error != 0 || can != 0)
        return error;
    return rs_fail(RSCHED_ENOTSUP, "GPU %d cannot access the memory of GPU %d",
                   b, a);
}

static int check_ipc(CUdevice from, CUdevice to, int a, int b)
{
    int error = check_exports(from, a);

    return error != 0 || a == b ? error : check_peers(from, to, a, b);
}

/* @return 0, or that one of the two cannot be mapped by others on its bus */
static int check_direct(CUdevice from, CUdevice to, int a, int b)
{
    const CUdevice device[] = {from, to};
    const int gpu[] = {a, b};

    for (int i = 0; i < 2; i++) {
        if (attribute_of(device[i],
                         CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
                         0) == 0)
            return rs_fail(RSCHED_ENOTSUP, "GPU %d has no GPUDirect RDMA",
                           gpu[i]);
    }
    return 0;
}

static int check_gdrcopy(void)
{
    struct rs_gdr *gdr;
    int error = rs_gdr_open(&gdr);

    if (error == 0)
        rs_gdr_close(gdr);
    return error;
}

static int check_way(int from, int to, unsigned way)
{
    CUdevice a, b;
    int error = device_of(from, &a);

    if (error == 0)
        error = device_of(to, &b);
    if (error == 0 && from == to)
        error = check_shared(a, from);
    if (error != 0)
        return error;
    switch (way) {
    case RS_WAY_STAGED:
        return 0;
    case RS_WAY_CUDA_IPC:
        return check_ipc(a, b, from, to);
    case RS_WAY_GDRCOPY:
        error = check_direct(a, b, from, to);
        return error != 0 ? error : check_gdrcopy();
    case RS_WAY_GDR_LOOPBACK:
        return check_direct(a, b, from, to);
    default:
        return rs_fail(RSCHED_ENOTSUP, "not a way of GPU memory");
    }
}

extern const struct rsched_gpu_pull_ops rs_cuda_pull_ops;

const struct rsched_gpu_ops rs_cuda_gpu_ops = {
    .name = "cuda",
#if !RSCHED_CUDA_KERNELS
    .no_kernels = "built without nvcc",
#endif
    .attach = rs_cuda_driver_attach,
    .place = place_of,
    .allocation = allocation_of,
    .open = open_driver,
    .describe = describe,
    .check_way = check_way,
    .order_create = rs_cuda_order_create,
    .order_start = rs_cuda_order_start,
    .order_wait = rs_cuda_order_wait,
    .order_reached = rs_cuda_order_reached,
    .order_complete = rs_cuda_order_complete,
    .order_destroy = rs_cuda_order_destroy,
    .memory_create = rs_cuda_memory_create,
    .memory_fill = rs_cuda_memory_fill,
    .memory_read = rs_cuda_memory_read,
    .memory_destroy = rs_cuda_memory_destroy,
    .hold = rs_cuda_hold,
    .release = rs_cuda_release,
    .extent = rs_cuda_extent,
    .dmabuf = rs_cuda_dmabuf,
    .flush = rs_cuda_flush,
    .orders = rs_cuda_orders,
    .peer_memory = rs_cuda_peer_memory,
    .pages_map = rs_cuda_pages_map,
    .pages_unmap = rs_cuda_pages_unmap,
    .pages_create = rs_cuda_pages_create,
    .pages_clear = rs_cuda_pages_clear,
    .pages_destroy = rs_cuda_pages_destroy,
    .stage_create = rs_cuda_stage_create,
    .stage_pin = rs_cuda_stage_pin,
    .stage_begin = rs_cuda_stage_begin,
    .stage_poll = rs_cuda_stage_poll,
    .stage_drain = rs_cuda_stage_drain,
    .stage_destroy = rs_cuda_stage_destroy,
    .pull = &rs_cuda_pull_ops,
};
