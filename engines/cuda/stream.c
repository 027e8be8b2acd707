/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/stream.h"

#include <string.h>

#include "librsched/base/error.h"

static int make_events(struct rs_stream *s)
{
    int error = 0;

    for (int i = 0; i < RS_STREAM_EVENTS && error == 0; i++)
        error = rs_cuda_error(
            s->driver,
            s->driver->cuEventCreate(&s->events[i], CU_EVENT_DISABLE_TIMING),
            "cuEventCreate");
    return error;
}

static int make(struct rs_stream *s)
{
    int lowest, highest;
    int error = rs_cuda_error(
        s->driver, s->driver->cuCtxGetStreamPriorityRange(&lowest, &highest),
        "cuCtxGetStreamPriorityRange");

    /* A program's stream that waits for an exchange should not hold up what the
     * exchange needs: kernels in streams of different priorities share no queue of
     * the GPU's. Copies between host and GPU have no priorities. */
    if (error == 0)
        error = rs_cuda_error(
            s->driver,
            s->driver->cuStreamCreateWithPriority(
                &s->stream, CU_STREAM_NON_BLOCKING, highest),
            "cuStreamCreateWithPriority");

    return error != 0 ? error : make_events(s);
}

static void unmake(struct rs_stream *s)
{
    for (int i = 0; i < RS_STREAM_EVENTS; i++) {
        if (s->events[i] != NULL)
            s->driver->cuEventDestroy(s->events[i]);
    }
    if (s->stream != NULL)
        s->driver->cuStreamDestroy(s->stream);
}

int rs_stream_open(struct rs_stream *s, struct rsched_engine *engine, int gpu)
{
    struct rs_stream n = {.driver = rs_cuda_driver_found(), .gpu = gpu};
    int error = rs_cuda_context(engine, gpu, &n.context);

    if (error == 0)
        error = rs_stream_enter(&n);
    if (error != 0)
        return error;
    error = make(&n);
    if (error != 0)
        unmake(&n);
    rs_stream_leave(&n);
    if (error == 0)
        *s = n;
    return error;
}

void rs_stream_close(struct rs_stream *s)
{
    if (!rs_stream_is_open(s))
        return;
    rs_stream_drain(s);
    if (rs_stream_enter(s) == 0) {
        unmake(s);
        rs_stream_leave(s);
    }
    *s = (struct rs_stream){0};
}

/* Streams may be entered within others. */
static _Thread_local unsigned entered;
static _Thread_local CUstreamCaptureMode mode_outside;

int rs_stream_enter(const struct rs_stream *s)
{
    int error;

    if (!rs_stream_is_open(s))
        return 0;
    error = rs_cuda_error(s->driver, s->driver->cuCtxPushCurrent(s->context),
                          "cuCtxPushCurrent");
    if (error == 0 && entered++ == 0)
        mode_outside = rs_cuda_relax(s->driver);
    return error;
}

void rs_stream_leave(const struct rs_stream *s)
{
    CUcontext context;

    if (!rs_stream_is_open(s))
        return;
    if (--entered == 0)
        rs_cuda_restore(s->driver, mode_outside);
    s->driver->cuCtxPopCurrent(&context);
}

static int copy_block(struct rs_stream *s, char *to, const char *from,
                      uint64_t bytes)
{
    return rs_cuda_error(s->driver,
                         s->driver->cuMemcpyAsync(
                             (CUdeviceptr)(uintptr_t)to,
                             (CUdeviceptr)(uintptr_t)from, bytes, s->stream),
                         "cuMemcpyAsync");
}

/* Of copies in two dimensions: rows that do not overlap, and a pitch below what
 * every GPU takes. Within a GPU some drivers refuse a pitch that is not as
 * theirs (cuMemAllocPitch). */
static bool is_pitch(int64_t stride, uint64_t bytes)
{
    return stride > 0 && (uint64_t)stride >= bytes && stride <= INT32_MAX;
}

static CUresult copy_rows(struct rs_stream *s, char *to, int64_t to_stride,
                          const char *from, int64_t from_stride,
                          uint64_t bytes, uint64_t count)
{
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = (CUdeviceptr)(uintptr_t)from,
        .srcPitch = (size_t)from_stride,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = (CUdeviceptr)(uintptr_t)to,
        .dstPitch = (size_t)to_stride,
        .WidthInBytes = bytes,
        .Height = count,
    };

    return s->driver->cuMemcpy2DAsync(&copy, s->stream);
}

int rs_stream_copy(struct rs_stream *s, char *to, int64_t to_stride,
                   const char *from, int64_t from_stride, uint64_t bytes,
                   uint64_t count)
{
    int error = 0;

    s->busy = true;
    if (count == 1 ||
        (to_stride == (int64_t)bytes && from_stride == (int64_t)bytes))
        return copy_block(s, to, from, bytes * count);
    if (is_pitch(to_stride, bytes) && is_pitch(from_stride, bytes)) {
        CUresult result =
            copy_rows(s, to, to_stride, from, from_stride, bytes, count);

        if (result != CUDA_ERROR_INVALID_VALUE)
            return rs_cuda_error(s->driver, result, "cuMemcpy2DAsync");
    }
    for (uint64_t i = 0; i < count && error == 0; i++)
        error = copy_block(s, to + (int64_t)i * to_stride,
                           from + (int64_t)i * from_stride, bytes);
    return error;
}

/* Two rows go by a copy engine, whatever their length (H100, driver 580). Of an odd
 * number of bytes there are none. */
int rs_stream_copy_aside(struct rs_stream *s, char *to, const char *from,
                         uint64_t bytes)
{
    int64_t half = (int64_t)(bytes / 2);

    s->busy = true;
    if (bytes % 2 == 0 &&
        copy_rows(s, to, half, from, half, bytes / 2, 2) == CUDA_SUCCESS)
        return 0;
    return copy_block(s, to, from, bytes);
}

int rs_stream_launch(struct rs_stream *s, CUfunction kernel, void *parameter,
                     unsigned blocks, unsigned threads)
{
    s->busy = true;
    return rs_cuda_error(s->driver,
                         s->driver->cuLaunchKernel(
                             kernel, blocks, 1, 1, threads, 1, 1, 0, s->stream,
                             (void *[]){parameter}, NULL),
                         "cuLaunchKernel");
}

int rs_stream_wait(struct rs_stream *s)
{
    s->busy = false;
    return rs_cuda_error(s->driver, s->driver->cuStreamSynchronize(s->stream),
                         "cuStreamSynchronize");
}

int rs_stream_mark(struct rs_stream *s, unsigned number)
{
    s->busy = true;
    return rs_cuda_error(s->driver,
                         s->driver->cuEventRecord(s->events[number], s->stream),
                         "cuEventRecord");
}

int rs_stream_poll(struct rs_stream *s, unsigned number)
{
    CUresult result = s->driver->cuEventQuery(s->events[number]);

    if (result == CUDA_SUCCESS)
        return RSCHED_LANE_DONE;
    if (result == CUDA_ERROR_NOT_READY)
        return RSCHED_LANE_PENDING;
    return rs_cuda_error(s->driver, result, "what was enqueued");
}

void rs_stream_drain(struct rs_stream *s)
{
    if (!rs_stream_is_open(s) || !s->busy || rs_stream_enter(s) != 0)
        return;
    s->driver->cuStreamSynchronize(s->stream);
    s->busy = false;
    rs_stream_leave(s);
}
