/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: streams, events and copies. */
#include "tests/cuda/fake_inside.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engines/cuda/driver.h"
#include "librsched/base/clock.h"

struct CUstream_st {
    CUcontext context;
    struct fake_work *works; /* that were enqueued, from number `first` on */
    size_t first, done, number, room;
    bool running;     /* somebody is doing them, without the lock */
    bool waiting;     /* for a word */
    CUresult failed;  /* sticky */
    CUgraph captured; /* NULL: no capture */
    CUstream next;    /* destroyed */
    unsigned broken;  /* captures there were when it began */
    cuuint64_t capture; /* its number */
};

struct CUevent_st {
    CUcontext context;
    CUstream stream; /* NULL: not recorded */
    size_t after;    /* works of the stream */
    unsigned asked;
    uint64_t recorded_ps; /* when */
};

static atomic_uint breaks; /* of captures */

/* The stream of no number, which nothing of rsched's uses: only programs that take
 * the driver for a real one copy in it. */
static bool is_default(CUstream stream)
{
    return FAKE_CLOSED && stream == NULL;
}

static bool is_broken(CUstream s)
{
    return s->captured != NULL && breaks != s->broken;
}

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
    (*o)->objects++;
    pthread_mutex_lock(&fake_lock);
    fake_counts[what]++;
    pthread_mutex_unlock(&fake_lock);
    *object = o;
    return CUDA_SUCCESS;
}

static CUresult make_stream(CUstream *stream, unsigned flags)
{
    void *object = NULL;
    CUresult result;

    if (flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    result = make(&object, sizeof(**stream), FAKE_STREAMS);
    if (result == CUDA_SUCCESS)
        *stream = object;
    return result;
}

API CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
    return make_stream(stream, flags);
}

enum { LOWEST_PRIORITY = 0, HIGHEST_PRIORITY = -5 };

API CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *lowest, int *highest)
{
    CUresult result = fake_check(lowest, 1);

    *lowest = LOWEST_PRIORITY;
    *highest = HIGHEST_PRIORITY;
    return result;
}

/* A stream of the lowest priority might wait in the queue of one that waits for
 * what it does. */
API CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream,
                                                unsigned flags, int priority)
{
    INJECT(cuStreamCreateWithPriority);
    return priority == HIGHEST_PRIORITY ? make_stream(stream, flags)
                                        : CUDA_ERROR_INVALID_VALUE;
}

API CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags)
{
    void *object = NULL;
    CUresult result;

    INJECT(cuEventCreate);
    if (flags != CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_VALUE;
    result = make(&object, sizeof(**event), FAKE_EVENTS);
    if (result == CUDA_SUCCESS)
        *event = object;
    return result;
}

/* ---- doing what was enqueued ---- */

static _Thread_local bool in_host_function;

bool fake_is_in_host_function(void)
{
    return in_host_function;
}

void fake_call_host(CUhostFn function, void *arg)
{
    in_host_function = true;
    function(arg);
    in_host_function = false;
}

atomic_uint *fake_word(CUdeviceptr address)
{
    return fake_seen_by_kernels(address, sizeof(unsigned));
}

static bool is_gone(CUstream s, const struct fake_work *w,
                    const struct fake_end *end)
{
    const struct fake_memory *m = end->memory;

    return m != NULL &&
           (m->gone ||
            (m->physical != NULL &&
             fake_find_mapped(end->address,
                              (w->height - 1) * end->pitch + w->width,
                              s->context->gpu) == NULL));
}

static CUresult do_copy(CUstream s, const struct fake_work *w)
{
    if (is_gone(s, w, &w->to) || is_gone(s, w, &w->from))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (size_t row = 0; row < w->height; row++)
        memmove(w->to.touch + row * w->to.pitch,
                w->from.touch + row * w->from.pitch, w->width);
    fake_counts[FAKE_COPIES]++;
    return CUDA_SUCCESS;
}

/* @return CUDA_ERROR_NOT_READY: it waits for a word */
static CUresult do_word(CUstream s, const struct fake_work *w)
{
    atomic_uint *word = fake_word(w->word);

    if (word == NULL)
        fake_die("is a word that is freed, and a stream comes to it", s);
    if (w->kind == FAKE_WORK_WRITE)
        atomic_store_explicit(word, w->value, memory_order_release);
    else if (atomic_load_explicit(word, memory_order_acquire) != w->value)
        return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
}

static int waiting; /* streams, for a word or a kernel; with the lock */

static CUresult do_work(CUstream s, const struct fake_work *w)
{
    switch (w->kind) {
    case FAKE_WORK_COPY:
        return do_copy(s, w);
    case FAKE_WORK_LAUNCH: {
        CUresult result = fake_run_kernel(s->context, w->launch);

        free(w->launch);
        return result;
    }
    case FAKE_WORK_KERNEL:
        waiting++;
        pthread_mutex_unlock(&fake_lock);
        fake_run_program(s->context, w->function, w->arg);
        pthread_mutex_lock(&fake_lock);
        waiting--;
        return CUDA_SUCCESS;
    case FAKE_WORK_HOST:
        pthread_mutex_unlock(&fake_lock);
        fake_call_host(w->function, w->arg);
        pthread_mutex_lock(&fake_lock);
        return CUDA_SUCCESS;
    default:
        return do_word(s, w);
    }
}

void fake_wait_for_streams(void)
{
    pthread_mutex_lock(&fake_lock);
    while (waiting > 0) {
        pthread_mutex_unlock(&fake_lock);
        sched_yield();
        pthread_mutex_lock(&fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
}

void fake_may_wait(const char *function)
{
    const char *names = getenv("FAKE_CUDA_WAITS");

    if (names != NULL && strstr(names, function) != NULL)
        fake_wait_for_streams();
}

/* With the lock, which is given up meanwhile. @return CUDA_ERROR_NOT_READY: a
 * word is waited for, or somebody else is at it */
static CUresult run(CUstream s, size_t until)
{
    if (s->running)
        return CUDA_ERROR_NOT_READY;
    s->running = true;
    while (s->failed == CUDA_SUCCESS && s->done < until) {
        const struct fake_work work = s->works[s->done - s->first];
        CUresult result = do_work(s, &work);

        waiting += (result == CUDA_ERROR_NOT_READY) - s->waiting;
        s->waiting = result == CUDA_ERROR_NOT_READY;
        if (s->waiting) {
            s->running = false;
            return result;
        }
        s->failed = result;
        s->done++;
    }
    s->running = false;
    return s->failed;
}

API CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
    CUresult result = fake_check(stream, 1);

    if (is_default(stream))
        return CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    if (fake_current() != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fake_is_prohibited(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&fake_lock);
    while ((result = run(stream, stream->number)) == CUDA_ERROR_NOT_READY) {
        pthread_mutex_unlock(&fake_lock);
        sched_yield();
        pthread_mutex_lock(&fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

static CUstream destroyed; /* with the lock */

API CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    CUresult result = fake_check(stream, 1);

    if (result != CUDA_SUCCESS)
        return result;
    fake_linger();
    stream->context->objects--;
    pthread_mutex_lock(&fake_lock);
    if (stream->failed == CUDA_SUCCESS && stream->done < stream->number)
        fake_die("is destroyed with work under way", stream);
    fake_counts[FAKE_STREAMS]--;
    while (stream->done < stream->number)
        free(stream->works[stream->done++ - stream->first].launch);
    free(stream->works);
    stream->works = NULL;
    /* Events of others may have been recorded in it. */
    stream->next = destroyed;
    destroyed = stream;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuEventDestroy(CUevent event)
{
    CUresult result = fake_check(event, 1);

    if (result != CUDA_SUCCESS)
        return result;
    fake_linger();
    event->context->objects--;
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
    if (is_broken(stream))
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->captured != NULL)
        fake_die("records an event of others into a graph", event);
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
    UNSAFE();
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
                         size_t height, size_t pitch, struct fake_end *end)
{
    char *at = (char *)(uintptr_t)address;
    size_t span = (height - 1) * pitch + width;
    struct fake_memory *m = fake_find(at, span);

    if (m == NULL)
        m = fake_find_mapped(at, span, context->gpu);
    *end = (struct fake_end){m, at, at, pitch};
    if (m == NULL) /* a part of one, or of what was one */
        return fake_find(at, 1) != NULL || fake_is_gone(at)
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_SUCCESS;
    end->touch = m->touch + (at - m->address);
    if (m->physical != NULL && (m->access >> context->gpu & 1) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* A stream has room for so much that was not done yet; who comes then is kept in the
 * driver. With the lock, which is given up meanwhile. */
static void wait_for_room(CUstream s)
{
    size_t room = (size_t)fake_setting("FAKE_CUDA_QUEUE", 1024);

    if (s->captured != NULL || s->number - s->done < room)
        return;
    fake_counts[FAKE_FULL]++;
    while (s->failed == CUDA_SUCCESS && s->number - s->done >= room) {
        run(s, s->done + 1);
        pthread_mutex_unlock(&fake_lock);
        sched_yield();
        pthread_mutex_lock(&fake_lock);
    }
}

static void append(CUstream s, const struct fake_work *work)
{
    if (s->captured != NULL) {
        fake_graph_append(s->captured, work);
        return;
    }
    if (s->number == s->done)
        s->first = s->done;
    if (s->number - s->first == s->room) {
        s->room = s->room == 0 ? 64 : 2 * s->room;
        s->works = realloc(s->works, s->room * sizeof(*s->works));
        if (s->works == NULL)
            abort();
    }
    s->works[s->number++ - s->first] = *work;
}

CUresult fake_enqueue(CUstream stream, const struct fake_work *work)
{
    if (stream == NULL || fake_current() != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (is_broken(stream))
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    pthread_mutex_lock(&fake_lock);
    wait_for_room(stream);
    append(stream, work);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static CUresult enqueue(CUstream stream, CUdeviceptr to, size_t to_pitch,
                        CUdeviceptr from, size_t from_pitch, size_t width,
                        size_t height)
{
    struct fake_work c = {.kind = FAKE_WORK_COPY,
                          .width = width,
                          .height = height};
    CUresult result;

    if (fake_current() != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (is_broken(stream))
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    pthread_mutex_lock(&fake_lock);
    wait_for_room(stream);
    result = find_end(stream->context, to, width, height, to_pitch, &c.to);
    if (result == CUDA_SUCCESS)
        result = find_end(stream->context, from, width, height, from_pitch,
                          &c.from);
    if (result == CUDA_SUCCESS)
        append(stream, &c);
    pthread_mutex_unlock(&fake_lock);
    return result;
}

static CUresult copy_now(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUresult result = fake_check(&to, bytes);
    struct fake_end at[2];

    UNSAFE();
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_lock);
    result = find_end(fake_current(), to, bytes, 1, bytes, &at[0]);
    if (result == CUDA_SUCCESS)
        result = find_end(fake_current(), from, bytes, 1, bytes, &at[1]);
    if (result == CUDA_SUCCESS)
        memmove(at[0].touch, at[1].touch, bytes);
    pthread_mutex_unlock(&fake_lock);
    return result;
}

API CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from,
                                   size_t bytes, CUstream stream)
{
    CUresult result;

    if (is_default(stream))
        return copy_now(to, from, bytes);
    result = fake_check(stream, bytes);
    INJECT(cuMemcpyAsync);
    return result != CUDA_SUCCESS
               ? result
               : enqueue(stream, to, bytes, from, bytes, bytes, 1);
}

/* What the program has copied in the stream of no number, where it is late. */
static struct late_copy {
    struct late_copy *next;
    struct fake_end to, from;
    size_t bytes;
} *late_copies;

void fake_do_late_copies(void)
{
    while (late_copies != NULL) {
        struct late_copy *c = late_copies;

        late_copies = c->next;
        memmove(c->to.touch, c->from.touch, c->bytes);
        free(c);
    }
}

API CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from,
                                  size_t bytes)
{
    CUresult result = fake_check(&to, bytes);
    struct late_copy *c;

    if (result != CUDA_SUCCESS)
        return result;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->bytes = bytes;
    pthread_mutex_lock(&fake_lock);
    fake_do_late_copies();
    result = find_end(fake_current(), to, bytes, 1, bytes, &c->to);
    if (result == CUDA_SUCCESS)
        result = find_end(fake_current(), from, bytes, 1, bytes, &c->from);
    if (result != CUDA_SUCCESS || c->to.memory == NULL ||
        c->from.memory == NULL)
        fake_die("is copied to, not within device memory", (void *)to);
    late_copies = c;
    if (c->to.memory->synchronous || c->from.memory->synchronous)
        fake_do_late_copies();
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static bool is_device(CUdeviceptr address)
{
    const struct fake_memory *m;

    pthread_mutex_lock(&fake_lock);
    m = fake_find((const char *)(uintptr_t)address, 1);
    pthread_mutex_unlock(&fake_lock);
    return m != NULL && m->type == CU_MEMORYTYPE_DEVICE && !m->managed;
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
    if ((c->srcPitch | c->dstPitch) %
                (size_t)fake_setting("FAKE_CUDA_PITCH", 16) !=
            0 &&
        is_device(c->srcDevice) && is_device(c->dstDevice))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    fake_counts[FAKE_ROWS]++;
    pthread_mutex_unlock(&fake_lock);
    return enqueue(stream, c->dstDevice, c->dstPitch, c->srcDevice, c->srcPitch,
                   c->WidthInBytes, c->Height);
}

/* ---- capture ---- */

static _Thread_local CUstreamCaptureMode mode; /* GLOBAL is 0 */
static _Thread_local unsigned capturing;       /* streams, not relaxed */
static atomic_uint capturing_globally;
static bool is_prohibited(CUstream stream)
{
    if (stream != NULL && stream->captured != NULL)
        return true;
    return mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
           (capturing > 0 || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                              capturing_globally > 0));
}

bool fake_is_prohibited(CUstream stream)
{
    bool prohibited = is_prohibited(stream);

    if (prohibited)
        breaks++;
    return prohibited;
}

API CUresult CUDAAPI
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *other)
{
    CUstreamCaptureMode before = mode;

    mode = *other;
    *other = before;
    return CUDA_SUCCESS;
}

/* Of the modes, the strictest only. */
API CUresult CUDAAPI cuStreamBeginCapture(CUstream stream,
                                          CUstreamCaptureMode wanted)
{
    static _Atomic cuuint64_t captures;
    CUresult result = fake_check(stream, 1);

    if (result != CUDA_SUCCESS)
        return result;
    if (wanted != CU_STREAM_CAPTURE_MODE_GLOBAL || stream->captured != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->captured = fake_graph_create();
    stream->broken = breaks;
    stream->capture = ++captures;
    capturing++;
    capturing_globally++;
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUresult result = fake_check(stream, 1);
    bool broken;

    if (result != CUDA_SUCCESS)
        return result;
    if (stream->captured == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    broken = is_broken(stream);
    *graph = stream->captured;
    stream->captured = NULL;
    capturing--;
    capturing_globally--;
    if (!broken)
        return CUDA_SUCCESS;
    cuGraphDestroy(*graph);
    *graph = NULL;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

/* Later versions only newer drivers have. Number and graph are of captures that are
 * not broken. */
API CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream,
                                            CUstreamCaptureStatus *status,
                                            cuuint64_t *id, CUgraph *graph,
                                            const CUgraphNode **nodes,
                                            size_t *number)
{
    CUresult result = fake_check(stream, 1);

    if (nodes != NULL || number != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->captured == NULL) {
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
    } else if (is_broken(stream)) {
        *status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    } else {
        *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        *id = stream->capture;
        *graph = stream->captured;
    }
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    CUresult result = fake_check(stream, 1);

    INJECT(cuStreamGetCtx);
    if (result == CUDA_SUCCESS)
        *context = stream->context;
    return result;
}
