/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/order.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engines/cuda/driver.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

enum { PENDING = 0, COMPLETE = 1 }; /* the word */

/* Starts that are enqueued and not reached. A stream has room for about a thousand
 * operations, also those of the program; a driver that has to wait for room might
 * keep what epochs need to go on. */
enum { MOST_AHEAD = 16 };

/* What a stream waits for, of one context: which the word holds, since whoever
 * comes by frees it, be the engines of that context closed or not. */
struct word {
    struct word *next; /* spare */
    CUdevice device;
    CUcontext context; /* NULL: it is not held yet */
    atomic_uint *word; /* pinned */
    CUdeviceptr word_of_stream;
    CUevent last; /* behind what was enqueued last */
};

struct rsched_order {
    struct rsched_order *next; /* without an exchange */
    const struct rs_cuda_driver *driver;
    pthread_mutex_t lock; /* guards what is between host functions and us */
    void (*call)(void *arg); /* NULL: the exchange has gone */
    void *arg;
    unsigned graphs; /* references of theirs */
    atomic_uint_fast64_t reached;
    atomic_uint ahead; /* starts that are enqueued and not reached, without graphs' */
    bool waits;    /* a start is enqueued, and its wait is not */
    bool captured; /* the same in a capture, which has the number: */
    cuuint64_t capture;
    struct word *word; /* NULL: nothing has been enqueued yet */
    bool stays;   /* for ever: what was enqueued could not be marked */
};
static_assert(sizeof(atomic_uint) == 4, "the stream's word");

static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rsched_order *late;
/* To free one the driver may wait for streams, so they are kept for the next
 * exchange. */
static struct word *spare;

static void sweep(void);

static int check(const struct rsched_order *o, CUresult result,
                 const char *what)
{
    return rs_cuda_error(o->driver, result, what);
}

/* The first launch of a kernel loads it then, for which the driver may wait for what
 * is enqueued: for a stream that waits for an exchange, too. */
static void tell_of_lazy_loading(const struct rs_cuda_driver *driver)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    CUmoduleLoadingMode mode;

    if (driver->cuModuleGetLoadingMode == NULL ||
        driver->cuModuleGetLoadingMode(&mode) != CUDA_SUCCESS ||
        mode != CU_MODULE_LAZY_LOADING || atomic_flag_test_and_set(&told))
        return;
    rs_log(RS_LOG_INFO,
           "cuda: kernels are loaded when they are launched first, which may wait "
           "for ever behind a wait on a stream: launch each once before "
           "(CUDA_MODULE_LOADING=EAGER loads them at once)");
}

int rs_cuda_order_create(void (*reached)(void *arg), void *arg,
                         struct rsched_order **order)
{
    const struct rs_cuda_driver *driver;
    struct rsched_order *o;
    int error = rs_cuda_driver_find(false, &driver);

    if (error != 0)
        return error;
    if (driver->no_streams != NULL)
        return rs_fail(RSCHED_ENOTSUP,
                       "cuda: libcuda.so.1 has no %s: too old a driver for "
                       "starts in streams",
                       driver->no_streams);
    tell_of_lazy_loading(driver);
    sweep();
    o = calloc(1, sizeof(*o));
    if (o == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for the order of streams");
    o->driver = driver;
    o->call = reached;
    o->arg = arg;
    pthread_mutex_init(&o->lock, NULL);
    *order = o;
    return 0;
}

static void set_word(struct rsched_order *o, unsigned value)
{
    /* Release: the stream, which sees this, sees what the epoch has written. */
    atomic_store_explicit(o->word->word, value, memory_order_release);
}

/* ---- what streams do ---- */

/* Of a graph; in a thread of the driver's. */
static void CUDA_CB replay_reached(void *arg)
{
    struct rsched_order *o = arg;

    pthread_mutex_lock(&o->lock);
    if (o->call == NULL) {
        set_word(o, COMPLETE);
    } else {
        /* Release: what was before the start in the stream is seen by those who
         * begin the epoch. Sequentially consistent: who is called then either has
         * the exchange, or its owner sees this when he lets it go. */
        atomic_fetch_add(&o->reached, 1);
        o->call(o->arg);
    }
    pthread_mutex_unlock(&o->lock);
}

/* Likewise; of those that were enqueued one by one. */
static void CUDA_CB start_reached(void *arg)
{
    struct rsched_order *o = arg;

    /* Who waits for it writes nothing that this one would read. */
    atomic_fetch_sub_explicit(&o->ahead, 1, memory_order_relaxed);
    replay_reached(arg);
}

/* A graph has gone; likewise. */
static void CUDA_CB graph_gone(void *arg)
{
    struct rsched_order *o = arg;

    pthread_mutex_lock(&o->lock);
    o->graphs--;
    pthread_mutex_unlock(&o->lock);
}

/* ---- enqueuing ---- */

static struct word *take_spare(CUcontext context)
{
    struct word **at = &spare, *w;

    pthread_mutex_lock(&late_lock);
    while (*at != NULL && (*at)->context != context)
        at = &(*at)->next;
    w = *at;
    if (w != NULL)
        *at = w->next;
    pthread_mutex_unlock(&late_lock);
    return w;
}

/* Nothing waits for it any more. */
static void free_word(const struct rs_cuda_driver *driver, struct word *w)
{
    CUstreamCaptureMode mode = rs_cuda_relax(driver);
    CUcontext context;

    if (w->context != NULL &&
        driver->cuCtxPushCurrent(w->context) == CUDA_SUCCESS) {
        if (w->last != NULL)
            driver->cuEventDestroy(w->last);
        if (w->word != NULL)
            driver->cuMemFreeHost(w->word);
        driver->cuCtxPopCurrent(&context);
    }
    if (w->context != NULL)
        driver->cuDevicePrimaryCtxRelease(w->device);
    rs_cuda_restore(driver, mode);
    free(w);
}

/* The context is current. */
static int hold_context(const struct rsched_order *o, struct word *w,
                        CUcontext context)
{
    int error =
        check(o, o->driver->cuCtxGetDevice(&w->device), "cuCtxGetDevice");

    if (error == 0)
        error = check(
            o, o->driver->cuDevicePrimaryCtxRetain(&w->context, w->device),
            "cuDevicePrimaryCtxRetain");
    if (error != 0 || w->context == context)
        return error;
    return rs_fail(RSCHED_ENOTSUP, "cuda: a stream that is not of its GPU's "
                                   "primary context");
}

/* The context is current. */
static int make_word(const struct rsched_order *o, CUcontext context,
                     struct word **word)
{
    struct word *w = calloc(1, sizeof(*w));
    void *address = NULL;
    int error;

    if (w == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for the order of streams");
    error = hold_context(o, w, context);
    if (error == 0)
        error = check(o,
                      o->driver->cuMemHostAlloc(&address, sizeof(*w->word),
                                                CU_MEMHOSTALLOC_PORTABLE |
                                                    CU_MEMHOSTALLOC_DEVICEMAP),
                      "cuMemHostAlloc");
    w->word = address;
    if (error == 0)
        error = check(o, o->driver->cuMemHostGetDevicePointer(
                             &w->word_of_stream, w->word, 0),
                      "cuMemHostGetDevicePointer");
    if (error == 0)
        error = check(o, o->driver->cuEventCreate(&w->last,
                                                  CU_EVENT_DISABLE_TIMING),
                      "cuEventCreate");
    if (error != 0)
        free_word(o->driver, w);
    else
        *word = w;
    return error;
}

static int have_word(struct rsched_order *o, CUcontext context)
{
    struct word *w = take_spare(context);
    CUstreamCaptureMode mode;
    int error = 0;

    if (w == NULL) {
        mode = rs_cuda_relax(o->driver);
        error = make_word(o, context, &w);
        rs_cuda_restore(o->driver, mode);
    }
    if (error != 0)
        return error;
    o->word = w;
    set_word(o, PENDING);
    return 0;
}

/* The stream's context is current afterwards, with the word. */
static int enter(struct rsched_order *o, CUstream stream)
{
    CUcontext context;
    int error = check(o, o->driver->cuStreamGetCtx(stream, &context),
                      "cuStreamGetCtx");

    if (error != 0)
        return error;
    if (o->word != NULL && o->word->context != context)
        return rs_fail(RSCHED_EINVAL, "cuda: the streams of an exchange are of "
                                      "one context");
    error = check(o, o->driver->cuCtxPushCurrent(context), "cuCtxPushCurrent");
    if (error != 0 || o->word != NULL)
        return error;
    error = have_word(o, context);
    if (error != 0)
        o->driver->cuCtxPopCurrent(&context);
    return error;
}

static void leave(const struct rsched_order *o)
{
    CUcontext context;

    o->driver->cuCtxPopCurrent(&context);
}

/* The graph that the stream is captured into keeps the order. */
static int retain_by_graph(struct rsched_order *o, CUgraph graph)
{
    CUuserObject object;
    int error = check(o, o->driver->cuUserObjectCreate(
                             &object, o, graph_gone, 1,
                             CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                      "cuUserObjectCreate");

    if (error != 0)
        return error;
    pthread_mutex_lock(&o->lock);
    o->graphs++;
    pthread_mutex_unlock(&o->lock);
    error = check(o, o->driver->cuGraphRetainUserObject(
                         graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
                  "cuGraphRetainUserObject");
    if (error != 0)
        o->driver->cuUserObjectRelease(object, 1);
    return error;
}

/* Where something goes that is enqueued: into a stream, or into what it is
 * captured into. */
struct goal {
    CUgraph graph; /* NULL: no capture */
    cuuint64_t capture; /* no other one of the process has had this number */
};

static int find_goal(const struct rsched_order *o, CUstream stream,
                     struct goal *goal)
{
    CUstreamCaptureStatus status;
    CUresult result;

    *goal = (struct goal){0};
    result = o->driver->cuStreamGetCaptureInfo(stream, &status, &goal->capture,
                                               &goal->graph, NULL, NULL);
    if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        *goal = (struct goal){0};
    return check(o, result, "cuStreamGetCaptureInfo");
}

/* Starts and waits take turns in what streams are told, and in each capture: what
 * was captured is not done now, and a capture that fails is nothing. */
static bool is_turn(const struct rsched_order *o, const struct goal *goal,
                    bool wait)
{
    if (goal->graph == NULL)
        return o->waits == wait;
    return (o->captured && o->capture == goal->capture) == wait;
}

static void take_turn(struct rsched_order *o, const struct goal *goal, bool wait)
{
    if (goal->graph == NULL) {
        o->waits = !wait;
    } else {
        o->captured = !wait;
        o->capture = goal->capture;
    }
}

/* Behind it. Without an event nothing tells when the stream has passed. */
static void mark(struct rsched_order *o, CUstream stream)
{
    if (o->driver->cuEventRecord(o->word->last, stream) != CUDA_SUCCESS)
        o->stays = true;
}

/* How often a graph is launched is the program's affair. */
static int enqueue_start(struct rsched_order *o, CUstream stream, bool captured)
{
    int error;

    if (captured)
        return check(o, o->driver->cuLaunchHostFunc(stream, replay_reached, o),
                     "cuLaunchHostFunc");
    if (atomic_load_explicit(&o->ahead, memory_order_relaxed) >= MOST_AHEAD)
        return RSCHED_ORDER_FULL;
    atomic_fetch_add_explicit(&o->ahead, 1, memory_order_relaxed);
    error = check(o, o->driver->cuLaunchHostFunc(stream, start_reached, o),
                  "cuLaunchHostFunc");
    if (error != 0)
        atomic_fetch_sub_explicit(&o->ahead, 1, memory_order_relaxed);
    return error;
}

/* If the second one fails, the next attempt does both, which is no mistake. */
static int enqueue_wait(const struct rsched_order *o, CUstream stream)
{
    int error = check(o, o->driver->cuStreamWaitValue32(
                             stream, o->word->word_of_stream, COMPLETE,
                             CU_STREAM_WAIT_VALUE_EQ),
                      "cuStreamWaitValue32");

    if (error == 0)
        error = check(o, o->driver->cuStreamWriteValue32(
                             stream, o->word->word_of_stream, PENDING,
                             CU_STREAM_WRITE_VALUE_DEFAULT),
                      "cuStreamWriteValue32");
    return error;
}

/* The stream's context is current, with the word. */
static int enqueue_there(struct rsched_order *o, CUstream stream,
                         const struct goal *goal, bool wait)
{
    bool captured = goal->graph != NULL;
    int error;

    if (!is_turn(o, goal, wait))
        return rs_fail(RSCHED_ESTATE,
                       wait ? "no start on a stream to wait for"
                            : "started on a stream before the wait for the "
                              "start before");
    error = captured ? retain_by_graph(o, goal->graph) : 0;
    if (error != 0)
        return error;
    error = wait ? enqueue_wait(o, stream) : enqueue_start(o, stream, captured);
    if (!captured && error != RSCHED_ORDER_FULL)
        mark(o, stream);
    if (error == 0)
        take_turn(o, goal, wait);
    return error;
}

static int enqueue(struct rsched_order *o, CUstream stream, bool wait)
{
    struct goal goal;
    int error = enter(o, stream);

    if (error != 0)
        return error;
    error = find_goal(o, stream, &goal);
    if (error == 0)
        error = enqueue_there(o, stream, &goal, wait);
    leave(o);
    return error;
}

/* Of what was enqueued last. A context that is not to be had tells nothing. */
static CUresult query_last(const struct rsched_order *o)
{
    CUstreamCaptureMode mode;
    CUresult result;

    if (o->driver->cuCtxPushCurrent(o->word->context) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_READY;
    mode = rs_cuda_relax(o->driver);
    result = o->driver->cuEventQuery(o->word->last);
    rs_cuda_restore(o->driver, mode);
    leave(o);
    return result;
}

/* After an error in its context no stream comes to its host functions any more, so
 * whoever waited for room would wait for ever. */
static int check_streams(const struct rsched_order *o)
{
    CUresult result = query_last(o);

    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return RSCHED_ORDER_FULL;
    return check(o, result, "cuEventQuery");
}

int rs_cuda_order_start(struct rsched_order *o, void *stream)
{
    int error = enqueue(o, stream, false);

    return error == RSCHED_ORDER_FULL ? check_streams(o) : error;
}

int rs_cuda_order_wait(struct rsched_order *o, void *stream)
{
    return enqueue(o, stream, true);
}

/* ---- the exchange's side ---- */

uint64_t rs_cuda_order_reached(const struct rsched_order *o)
{
    return atomic_load(&o->reached); /* with replay_reached() */
}

void rs_cuda_order_complete(struct rsched_order *o)
{
    set_word(o, COMPLETE);
}

/* Whether the stream has passed what was enqueued last, or never will. */
static bool is_passed(const struct rsched_order *o)
{
    return o->word == NULL || query_last(o) != CUDA_ERROR_NOT_READY;
}

/* With late_lock. @return whether it is freed */
static bool free_if_over(struct rsched_order *o)
{
    bool kept;

    pthread_mutex_lock(&o->lock);
    kept = o->graphs > 0 || o->stays;
    pthread_mutex_unlock(&o->lock);
    if (kept || !is_passed(o))
        return false;
    if (o->word != NULL) {
        o->word->next = spare;
        spare = o->word;
    }
    pthread_mutex_destroy(&o->lock);
    free(o);
    return true;
}

static void sweep(void)
{
    pthread_mutex_lock(&late_lock);
    for (struct rsched_order **at = &late; *at != NULL;) {
        struct rsched_order *o = *at, *next = o->next;

        if (free_if_over(o))
            *at = next;
        else
            at = &o->next;
    }
    pthread_mutex_unlock(&late_lock);
}

void rs_cuda_orders_close(void)
{
    struct word *words;

    sweep();
    pthread_mutex_lock(&late_lock);
    words = spare;
    spare = NULL;
    pthread_mutex_unlock(&late_lock);
    while (words != NULL) {
        struct word *w = words;

        words = w->next;
        free_word(rs_cuda_driver_found(), w);
    }
}

void rs_cuda_order_destroy(struct rsched_order *o)
{
    pthread_mutex_lock(&o->lock);
    o->call = NULL;
    if (o->word != NULL)
        set_word(o, COMPLETE);
    pthread_mutex_unlock(&o->lock);
    pthread_mutex_lock(&late_lock);
    o->next = late;
    late = o;
    pthread_mutex_unlock(&late_lock);
    sweep();
}
