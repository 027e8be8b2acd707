/* SPDX-License-Identifier: BSD-3-Clause */
/* A program of two ranks that starts and waits for an exchange in a stream. */
#ifndef TESTS_CUDA_STREAMS_H
#define TESTS_CUDA_STREAMS_H

#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/program.h"
#include "tests/runtime/ranks.h"

enum { BYTES = 200000, MOST = 8 };

/* What the program has: what it computes lies in `result`, one for each epoch,
 * is copied to `send` by the stream before the start, and `receive` to `copy`
 * after the wait. */
struct world {
    struct program p;
    CUstream stream;
    CUdeviceptr send, receive, result[MOST], copy[MOST];
    struct rsched_exchange *x;
    uint64_t epochs; /* of the host's, before those in streams */
};

/* All bytes of memory. */
static inline void set(struct world *w, CUdeviceptr memory, int byte)
{
    unsigned char bytes[BYTES];

    memset(bytes, byte, BYTES);
    program_write(&w->p, memory, bytes, BYTES);
}

static inline bool holds(struct world *w, CUdeviceptr memory, int byte)
{
    unsigned char bytes[BYTES];

    program_read(&w->p, bytes, memory, BYTES);
    for (int i = 0; i < BYTES; i++) {
        if (bytes[i] != (unsigned char)byte)
            return false;
    }
    return true;
}

static inline CUdeviceptr allocate(struct world *w)
{
    CUdeviceptr memory;

    if (w->p.cuMemAlloc(&memory, BYTES) != CUDA_SUCCESS)
        abort();
    set(w, memory, 0);
    return memory;
}

/* An exchange with the rank beside it. */
static inline int create(struct rank *self, struct world *w)
{
    struct rsched_put put = {
        .bytes = BYTES, .source = self->rank, .destination = self->rank ^ 1};
    const void *send = (const void *)(uintptr_t)w->send;
    void *receive = (void *)(uintptr_t)w->receive;
    struct rsched_pattern *pattern;
    struct rsched_exchange_params params = {.send = &send, .receive = &receive};

    RANK_CHECK(rsched_pattern_create("streams", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = self->rank ^ 1;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &w->x) == 0);
    rsched_pattern_destroy(pattern);
    w->epochs = 0;
    return 0;
}

/* An epoch of the host's before those in streams: in the first one a real driver may
 * wait for them (docs/gpu.md). The fake does so only if it is told to. */
static inline int open_up(struct rank *self, struct world *w)
{
    if (w->p.is_fake)
        return 0;
    RANK_CHECK(rsched_exchange_start(w->x) == 0);
    RANK_CHECK(rsched_exchange_wait(w->x) == 0);
    w->epochs++;
    return 0;
}

static inline int begin(struct rank *self, struct world *w)
{
    *w = (struct world){0};
    program_begin(&w->p, self->rank);
    if (w->p.cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        abort();
    w->send = allocate(w);
    w->receive = allocate(w);
    for (int i = 0; i < MOST; i++) {
        w->result[i] = allocate(w);
        w->copy[i] = allocate(w);
    }
    RANK_CHECK(create(self, w) == 0);
    return open_up(self, w);
}

static inline int end(struct rank *self, struct world *w)
{
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    w->p.cuMemFree(w->send);
    w->p.cuMemFree(w->receive);
    for (int i = 0; i < MOST; i++) {
        w->p.cuMemFree(w->result[i]);
        w->p.cuMemFree(w->copy[i]);
    }
    RANK_CHECK(w->p.cuStreamDestroy(w->stream) == CUDA_SUCCESS);
    program_end(&w->p, self->rank);
    return 0;
}

static inline void compute(struct rank *self, struct world *w, int epoch)
{
    set(w, w->result[epoch % MOST], self->rank * 100 + epoch);
    set(w, w->copy[epoch % MOST], 0);
}

/* Of a real GPU copies of the program may be kept by streams that wait. */
static inline void all_have_computed(struct rank *self, struct world *w)
{
    if (!w->p.is_fake)
        mesh_barrier(self->end);
}

static inline bool came(struct rank *self, struct world *w, int slot, int epoch)
{
    return holds(w, w->copy[slot], (1 - self->rank) * 100 + epoch);
}

/* What the stream does in an epoch: all of it is done late. */
static inline int enqueue(struct rank *self, struct world *w, int slot)
{
    RANK_CHECK(w->p.cuMemcpyAsync(w->send, w->result[slot], BYTES, w->stream) ==
               CUDA_SUCCESS);
    RANK_CHECK(rsched_exchange_start_on(w->x, w->stream) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w->x, w->stream) == 0);
    RANK_CHECK(w->p.cuMemcpyAsync(w->copy[slot], w->receive, BYTES,
                                  w->stream) == CUDA_SUCCESS);
    return 0;
}

static inline int synchronize(struct rank *self, struct world *w)
{
    RANK_CHECK(w->p.cuStreamSynchronize(w->stream) == CUDA_SUCCESS);
    return 0;
}

/* Ranks may be threads: the program of one does nothing that breaks a capture
 * of the other. */
static inline void begin_capture(struct rank *self, struct world *w)
{
    mesh_barrier(self->end);
    if (w->p.cuStreamBeginCapture(w->stream, CU_STREAM_CAPTURE_MODE_GLOBAL) !=
        CUDA_SUCCESS)
        abort();
}

static inline int end_capture(struct rank *self, struct world *w, CUgraph *graph)
{
    CUresult result = w->p.cuStreamEndCapture(w->stream, graph);

    mesh_barrier(self->end);
    RANK_CHECK(result == CUDA_SUCCESS);
    return 0;
}

#endif
