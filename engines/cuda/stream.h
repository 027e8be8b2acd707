/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * STREAM: copies or kernels that a lane or a group has enqueued, and events.
 *
 * What is in one stream is done in the order in which it was enqueued. All
 * functions but init, open and close are called between enter and leave, which
 * make the stream's context current on the calling thread: any thread may go on
 * with a lane, one at a time.
 *
 * The stream does not wait for the program's: what has been enqueued to others
 * must have been waited for before an epoch is started.
 */
#ifndef RS_CUDA_STREAM_H
#define RS_CUDA_STREAM_H

#include "engines/cuda/node.h"

enum { RS_STREAM_EVENTS = 4 };

/* Zero it to initialise: then it is not open. */
struct rs_stream {
    const struct rs_cuda_driver *driver;
    CUcontext context; /* NULL: not open */
    CUstream stream;
    CUevent events[RS_STREAM_EVENTS];
    int gpu;
    bool busy; /* something may be under way */
};

static inline bool rs_stream_is_open(const struct rs_stream *s)
{
    return s->context != NULL;
}

/** @return 0, or what the driver said */
int rs_stream_open(struct rs_stream *s, struct rsched_engine *engine, int gpu);
/** Waits for what is under way. Nothing if it is not open. */
void rs_stream_close(struct rs_stream *s);

/** Nothing if it is not open. */
int rs_stream_enter(const struct rs_stream *s);
void rs_stream_leave(const struct rs_stream *s);

/** Enqueue the copy of `count` blocks, block i from from + i*from_stride to
 * to + i*to_stride. Either side may be GPU memory. */
int rs_stream_copy(struct rs_stream *s, char *to, int64_t to_stride,
                   const char *from, int64_t from_stride, uint64_t bytes,
                   uint64_t count);

/** Enqueue the copy of a short block to GPU memory by a copy engine. By itself a
 * driver has processors of the GPU do it, which are quicker unless another process
 * has them. */
int rs_stream_copy_aside(struct rs_stream *s, char *to, const char *from,
                         uint64_t bytes);

/** Enqueue a kernel that has one parameter. */
int rs_stream_launch(struct rs_stream *s, CUfunction kernel, void *parameter,
                     unsigned blocks, unsigned threads);

/** Wait for what is enqueued. @return 0, or what the driver said */
int rs_stream_wait(struct rs_stream *s);

/** Record event `number`, below RS_STREAM_EVENTS, behind what is enqueued. */
int rs_stream_mark(struct rs_stream *s, unsigned number);

/** @return RSCHED_LANE_DONE: all before the mark is done, and its bytes are
 * there for whoever looks next; RSCHED_LANE_PENDING; or what the driver said */
int rs_stream_poll(struct rs_stream *s, unsigned number);

/** Wait until nothing is under way; enters and leaves by itself. An error is of
 * no matter: nothing is under way then either. */
void rs_stream_drain(struct rs_stream *s);

#endif
