/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GROUP: the lanes of one exchange, as far as kernels copy for them.
 *
 * What start or progress of a lane wants copied becomes a job; the flush after
 * all of them have been called launches one kernel for all the jobs of a GPU.
 * A job has a ticket: the number that it has on its GPU. Tickets are done in
 * their order.
 *
 * A lane without a group, outside of exchanges, has one of its own, which it
 * flushes by itself.
 */
#ifndef RS_CUDA_GROUP_H
#define RS_CUDA_GROUP_H

#include "engines/cuda/blocks.h"
#include "engines/cuda/node.h"
#include "engines/cuda/stream.h"

/* What a group has on one GPU. */
struct rs_batch {
    struct rs_batch *next;
    struct rs_stream stream;
    CUfunction kernel;
    unsigned most_blocks; /* of a launch */
    struct rs_pack_job *jobs; /* to be launched; their tiles_before has their
                                 own number of tiles until then */
    size_t num_jobs, room_jobs;
    uint64_t added, done;            /* tickets */
    uint64_t launched, finished;     /* launches; each has an event */
    uint64_t last[RS_STREAM_EVENTS]; /* ticket of a launch */
    struct rs_pack_launch launch;
};

struct rsched_group {
    struct rsched_engine *engine;
    struct rs_batch *batches;
    size_t num_lanes;
};

int rs_cuda_group_create(struct rsched_engine *engine,
                         struct rsched_group **group);
/** All lanes have left. */
void rs_cuda_group_destroy(struct rsched_group *group);

/** Launch what has been added, and see what is done. Never waits.
 * @return 0, or what the driver said */
int rs_cuda_group_flush(struct rsched_group *group);

/** One more lane, when it is made, and one less. */
void rs_group_join(struct rsched_group *group);
void rs_group_leave(struct rsched_group *group);

/** What the group has on a GPU, made at first use, with room for `jobs` of each
 * lane. @return 0; RSCHED_ENOTSUP: there are no kernels; or what the driver
 * said */
int rs_group_batch(struct rsched_group *group, int gpu, size_t jobs,
                   struct rs_batch **batch);

/** Add entries [first, end) of a table that has been uploaded, with what is
 * added to their addresses. @return the ticket, at least 1 */
uint64_t rs_batch_add(struct rs_batch *b, const struct rs_blocks *blocks,
                      uint32_t first, uint32_t end, uint64_t to, uint64_t from);

static inline bool rs_batch_is_done(const struct rs_batch *b, uint64_t ticket)
{
    return ticket <= b->done;
}

/** Wait until nothing is under way; what has not been launched never is. For
 * all lanes of the group: none of them goes on. NULL is allowed. */
void rs_batch_drain(struct rs_batch *b);

#endif
