/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/group.h"

#include <assert.h>
#include <stdlib.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

/* Enough to keep a GPU's link busy, and few enough to leave it to the program's
 * kernels. */
enum { BLOCKS_OF_PROCESSOR = 4 };

static_assert(sizeof(struct rs_pack_launch) <= RS_PACK_PARAMETERS,
              "a kernel's parameters");

int rs_cuda_group_create(struct rsched_engine *engine,
                         struct rsched_group **group)
{
    struct rsched_group *g = calloc(1, sizeof(*g));

    if (g == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for a group");
    g->engine = engine;
    *group = g;
    return 0;
}

void rs_cuda_group_destroy(struct rsched_group *group)
{
    while (group->batches != NULL) {
        struct rs_batch *b = group->batches;

        group->batches = b->next;
        rs_stream_close(&b->stream);
        free(b->jobs);
        free(b);
    }
    free(group);
}

void rs_group_join(struct rsched_group *group)
{
    group->num_lanes++;
}

void rs_group_leave(struct rsched_group *group)
{
    group->num_lanes--;
}

static int make_batch(struct rsched_group *group, int gpu,
                      struct rs_batch **batch)
{
    struct rs_batch *b = calloc(1, sizeof(*b));
    int error;

    if (b == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for launches");
    error = rs_stream_open(&b->stream, group->engine, gpu);
    if (error == 0)
        error = rs_stream_enter(&b->stream);
    if (error != 0)
        goto err_close;
    error = rs_cuda_kernel(group->engine, gpu, &b->kernel, &b->most_blocks);
    rs_stream_leave(&b->stream);
    if (error != 0)
        goto err_close;
    b->most_blocks *= BLOCKS_OF_PROCESSOR;
    b->next = group->batches;
    group->batches = b;
    *batch = b;
    return 0;

err_close:
    rs_stream_close(&b->stream);
    free(b);
    return error;
}

int rs_group_batch(struct rsched_group *group, int gpu, size_t jobs,
                   struct rs_batch **batch)
{
    struct rs_batch *b = group->batches;
    struct rs_pack_job *larger;
    int error = 0;

    if (!rs_cuda_has_kernels(group->engine, gpu))
        return rs_fail(RSCHED_ENOTSUP, "no kernels");
    while (b != NULL && b->stream.gpu != gpu)
        b = b->next;
    if (b == NULL)
        error = make_batch(group, gpu, &b);
    if (error != 0)
        return error;
    larger = rs_array_grow(b->jobs, &b->room_jobs, group->num_lanes * jobs,
                           sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for launches");
    b->jobs = larger;
    *batch = b;
    return 0;
}

uint64_t rs_batch_add(struct rs_batch *b, const struct rs_blocks *blocks,
                      uint32_t first, uint32_t end, uint64_t to, uint64_t from)
{
    uint64_t first_tile = blocks->entries[first].tiles_before;
    uint64_t end_tile =
        end < blocks->num ? blocks->entries[end].tiles_before : blocks->tiles;

    b->jobs[b->num_jobs++] =
        (struct rs_pack_job){.entries = blocks->device,
                             .from = from,
                             .to = to,
                             .first_tile = first_tile,
                             .tiles_before = end_tile - first_tile,
                             .first = first,
                             .end = end};
    return ++b->added;
}

static int see_what_is_done(struct rs_batch *b)
{
    while (b->finished < b->launched) {
        unsigned event = (unsigned)(b->finished % RS_STREAM_EVENTS);
        int status = rs_stream_poll(&b->stream, event);

        if (status != RSCHED_LANE_DONE)
            return status;
        b->done = b->last[event];
        b->finished++;
    }
    b->stream.busy = false;
    return 0;
}

/* @param first of the jobs that go into this launch */
static int launch(struct rs_batch *b, size_t first)
{
    struct rs_pack_launch *l = &b->launch;
    unsigned event = (unsigned)(b->launched % RS_STREAM_EVENTS);
    int error;

    l->tiles = 0;
    l->num_jobs = b->num_jobs - first < RS_PACK_JOBS ? b->num_jobs - first
                                                     : RS_PACK_JOBS;
    for (uint64_t i = 0; i < l->num_jobs; i++) {
        l->jobs[i] = b->jobs[first + i];
        l->jobs[i].tiles_before = l->tiles;
        l->tiles += b->jobs[first + i].tiles_before;
    }
    error = rs_stream_launch(&b->stream, b->kernel, l,
                             l->tiles < b->most_blocks ? (unsigned)l->tiles
                                                       : b->most_blocks,
                             RS_PACK_THREADS);
    if (error == 0)
        error = rs_stream_mark(&b->stream, event);
    if (error != 0)
        return error;
    b->last[event] = b->added - (b->num_jobs - first - l->num_jobs);
    b->launched++;
    return 0;
}

/* Those for which there is no event come later. */
static int launch_all(struct rs_batch *b)
{
    size_t first = 0;
    int error = 0;

    while (first < b->num_jobs && error == 0 &&
           b->launched - b->finished < RS_STREAM_EVENTS) {
        error = launch(b, first);
        first += b->launch.num_jobs;
    }
    for (size_t i = first; i < b->num_jobs; i++)
        b->jobs[i - first] = b->jobs[i];
    b->num_jobs -= first;
    return error;
}

static int flush(struct rs_batch *b)
{
    int error;

    if (b->num_jobs == 0 && b->launched == b->finished)
        return 0;
    error = rs_stream_enter(&b->stream);
    if (error != 0)
        return error;
    error = see_what_is_done(b);
    if (error == 0)
        error = launch_all(b);
    rs_stream_leave(&b->stream);
    return error == 0 ? 0 : rs_fail_within(error, "cuda: GPU %d: packing",
                                           b->stream.gpu);
}

int rs_cuda_group_flush(struct rsched_group *group)
{
    int error = 0;

    for (struct rs_batch *b = group->batches; b != NULL && error == 0;
         b = b->next)
        error = flush(b);
    return error;
}

void rs_batch_drain(struct rs_batch *b)
{
    if (b == NULL)
        return;
    b->num_jobs = 0;
    rs_stream_drain(&b->stream);
    b->done = b->added;
    b->finished = b->launched;
}
