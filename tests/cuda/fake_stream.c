/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: streams, events and copies. */
#include "tests/cuda/fake_inside.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/clock.h"

/* An end of a copy: the driver's memory, or whatever is at an address. */
struct end {
    struct fake_memory *memory; /* NULL: pageable */
    char *touch;
    size_t pitch;
};

struct copy {
    struct fake_launch *launch; /* of a kernel: no copy at all */
    struct end to, from;
    size_t width, height;
};

struct CUstream_st {
    CUcontext context;
    struct copy *copies; /* that were enqueued, from number `first` on */
    size_t first, done, number, room;
    CUresult failed; /* sticky */
};

struct CUevent_st {
    CUcontext context;
    CUstream stream; /* NULL: not recorded */
    size_t after;    /* copies of the stream */
    unsigned asked;
    uint64_t recorded_ps; /* when */
};

static CUresult make(void **object, size_t bytes, enum fake_count what)
{
    CUresult result = fake_check(object, bytes);
    CUcontext *o;

    if (result != CUDA_SUCCESS)
        return result;
    o = calloc(1, bytes);
    if (o == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o = fake_current(); /* the first member of both */
    pthread_mutex_lock(&fake_lock);
    fake_counts[what]++;
    pthread_mutex_unlock(&fake_lock);
    *object = o;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
    void *object;
    CUresult result;

    INJECT(cuStreamCreate);
    if (flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    result = make(&object, sizeof(**stream), FAKE_STREAMS);
    if (result == CUDA_SUCCESS)
        *stream = object;
    return result;
}

API CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags)
{
    void *object;
    CUresult result;

    INJECT(cuEventCreate);
    if (flags != CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_VALUE;
    result = make(&object, sizeof(**event), FAKE_EVENTS);
    if (result == CUDA_SUCCESS)
        *event = object;
    return result;
}

static void do_copy(CUstream s, const struct copy *c)
{
    if (c->launch != NULL) {
        s->failed = fake_run_kernel(s->context, c->launch);
        free(c->launch);
        return;
    }
    if ((c->to.memory != NULL && c->to.memory->gone) ||
        (c->from.memory != NULL && c->from.memory->gone)) {
        s->failed = CUDA_ERROR_ILLEGAL_ADDRESS;
        return;
    }
    for (size_t row = 0; row < c->height; row++)
        memmove(c->to.touch + row * c->to.pitch,
                c->from.touch + row * c->from.pitch, c->width);
    fake_counts[FAKE_COPIES]++;
}

/* With the lock. */
static CUresult run(CUstream s, size_t until)
{
    while (s->failed == CUDA_SUCCESS && s->done < until)
        do_copy(s, &s->copies[s->done++ - s->first]);
    return s->failed;
}

API CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
    CUresult result = fake_check(stream, 1);

    if (result != CUDA_SUCCESS)
        return result;
    if (fake_current() != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&fake_lock);
    result = run(stream, stream->number);
    pthread_mutex_unlock(&fake_lock);
    return result;
}

API CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    CUresult result = fake_check(stream, 1);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_lock);
    if (stream->failed == CUDA_SUCCESS && stream->done < stream->number)
        fake_die("is destroyed with copies under way", stream);
    fake_counts[FAKE_STREAMS]--;
    pthread_mutex_unlock(&fake_lock);
    while (stream->done < stream->number)
        free(stream->copies[stream->done++ - stream->first].launch);
    free(stream->copies);
    free(stream);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuEventDestroy(CUevent event)
{
    CUresult result = fake_check(event, 1);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_lock);
    fake_counts[FAKE_EVENTS]--;
    pthread_mutex_unlock(&fake_lock);
    free(event);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result = fake_check(event, 1);

    INJECT(cuEventRecord);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream == NULL || event->context != stream->context ||
        fake_current() != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&fake_lock);
    event->stream = stream;
    event->after = stream->number;
    event->asked = 0;
    event->recorded_ps = rs_clock_now();
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static bool has_happened(CUevent event)
{
    uint64_t late_ps = (uint64_t)fake_setting("FAKE_CUDA_LATE", 0) *
                       UINT64_C(1000000000);

    return ++event->asked >= (unsigned)fake_setting("FAKE_CUDA_ASKED", 2) &&
           rs_clock_now() - event->recorded_ps >= late_ps;
}

API CUresult CUDAAPI cuEventQuery(CUevent event)
{
    CUresult result = fake_check(event, 1);

    INJECT(cuEventQuery);
    if (result != CUDA_SUCCESS)
        return result;
    if (fake_current() != event->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->stream == NULL)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&fake_lock);
    if (!has_happened(event))
        result = event->stream->failed != CUDA_SUCCESS ? event->stream->failed
                                                       : CUDA_ERROR_NOT_READY;
    else
        result = run(event->stream, event->after);
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* With the lock. */
static CUresult find_end(CUcontext context, CUdeviceptr address, size_t width,
                         size_t height, size_t pitch, struct end *end)
{
    char *at = (char *)(uintptr_t)address;
    struct fake_memory *m = fake_find(at, (height - 1) * pitch + width);

    *end = (struct end){m, at, pitch};
    if (m == NULL) /* a part of one, or of what was one */
        return fake_find(at, 1) != NULL || fake_is_gone(at)
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_SUCCESS;
    end->touch = m->touch + (at - m->address);
    if (m->physical != NULL && (m->access >> context->gpu & 1) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static void append(CUstream s, const struct copy *c)
{
    if (s->number == s->done)
        s->first = s->done;
    if (s->number - s->first == s->room) {
        s->room = s->room == 0 ? 64 : 2 * s->room;
        s->copies = realloc(s->copies, s->room * sizeof(*s->copies));
        if (s->copies == NULL)
            abort();
    }
    s->copies[s->number++ - s->first] = *c;
}

CUresult fake_enqueue_launch(CUstream stream, struct fake_launch *launch)
{
    const struct copy c = {.launch = launch};

    if (stream == NULL || fake_current() != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&fake_lock);
    append(stream, &c);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static CUresult enqueue(CUstream stream, CUdeviceptr to, size_t to_pitch,
                        CUdeviceptr from, size_t from_pitch, size_t width,
                        size_t height)
{
    struct copy c = {.width = width, .height = height};
    CUresult result;

    if (fake_current() != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&fake_lock);
    result = find_end(stream->context, to, width, height, to_pitch, &c.to);
    if (result == CUDA_SUCCESS)
        result = find_end(stream->context, from, width, height, from_pitch,
                          &c.from);
    if (result == CUDA_SUCCESS)
        append(stream, &c);
    pthread_mutex_unlock(&fake_lock);
    return result;
}

API CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from,
                                   size_t bytes, CUstream stream)
{
    CUresult result = fake_check(stream, bytes);

    INJECT(cuMemcpyAsync);
    return result != CUDA_SUCCESS
               ? result
               : enqueue(stream, to, bytes, from, bytes, bytes, 1);
}

API CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream stream)
{
    CUresult result = fake_check(stream, c->WidthInBytes * c->Height);

    INJECT(cuMemcpy2DAsync);
    if (result != CUDA_SUCCESS)
        return result;
    if (c->srcMemoryType != CU_MEMORYTYPE_UNIFIED ||
        c->dstMemoryType != CU_MEMORYTYPE_UNIFIED || c->srcXInBytes != 0 ||
        c->srcY != 0 || c->dstXInBytes != 0 || c->dstY != 0 ||
        c->srcPitch < c->WidthInBytes || c->dstPitch < c->WidthInBytes ||
        c->srcPitch > INT32_MAX || c->dstPitch > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, c->dstDevice, c->dstPitch, c->srcDevice, c->srcPitch,
                   c->WidthInBytes, c->Height);
}
