/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies between a message and host memory, for engines whose devices cannot
 * reach it. Copy engines do them; what lies in host memory itself, processors. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engines/cuda/hold.h"
#include "engines/cuda/moves.h"
#include "librsched/base/error.h"

extern const struct rsched_gpu_ops rs_cuda_gpu_ops;

struct rsched_gpu_stage {
    struct rs_moves moves; /* one chunk */
    struct rs_stream stream;
    struct rs_begun begun;
    void *memory;
    size_t bytes;
    bool pinned;
};

static enum rs_mover mover_of(const void *arg, const struct rs_copy *c)
{
    struct rsched_place place;

    (void)arg;
    rs_cuda_gpu_ops.place(c->user, c->bytes, &place);
    return place.kind == RSCHED_PLACE_GPU ? RS_MOVER_COPY_ENGINE
                                          : RS_MOVER_PROCESSOR;
}

/* Whole pages, which devices register. What cannot be pinned is copied all the
 * same, with the driver's help. */
static int make_memory(struct rsched_gpu_stage *s, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int error;

    s->bytes = (bytes + page - 1) / page * page;
    s->memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (s->memory == MAP_FAILED) {
        s->memory = NULL;
        return rs_fail(RSCHED_ENOMEM, "cuda: %llu bytes to stage through: %m",
                       (unsigned long long)bytes);
    }
    error = rs_stream_enter(&s->stream);
    if (error != 0)
        return error;
    s->pinned = s->stream.driver->cuMemHostRegister(
                    s->memory, s->bytes, CU_MEMHOSTREGISTER_PORTABLE) ==
                CUDA_SUCCESS;
    rs_stream_leave(&s->stream);
    return 0;
}

int rs_cuda_stage_create(struct rsched_gpu_hold *hold,
                         const struct rsched_message *message, bool to_host,
                         struct rsched_gpu_stage **stage, void **memory)
{
    struct rsched_gpu_stage *s = calloc(1, sizeof(*s));
    int error;

    if (s == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    s->moves.copies.apart = true;
    error = rs_stream_open(&s->stream, &hold->contexts, hold->gpu);
    if (error == 0)
        error = make_memory(s, message->bytes);
    if (error == 0)
        error = rs_copies_compile(&s->moves.copies, message, message->bytes);
    if (error == 0)
        error = rs_moves_compile(&s->moves, to_host ? RS_PACKS : RS_UNPACKS,
                                 mover_of, NULL, &s->stream);
    if (error != 0) {
        rs_cuda_stage_destroy(s);
        return error;
    }
    *stage = s;
    *memory = s->memory;
    return 0;
}

int rs_cuda_stage_begin(struct rsched_gpu_stage *s)
{
    int error = rs_stream_enter(&s->stream);

    if (error != 0)
        return error;
    error = rs_moves_begin(&s->moves, 0, s->memory, 0, &s->stream, NULL,
                           &s->begun);
    if (error == 0 && s->begun.enqueued)
        error = rs_stream_mark(&s->stream, 0);
    rs_stream_leave(&s->stream);
    return error;
}

int rs_cuda_stage_poll(struct rsched_gpu_stage *s)
{
    int status;

    if (!s->begun.enqueued)
        return RSCHED_LANE_DONE;
    status = rs_stream_enter(&s->stream);
    if (status != 0)
        return status;
    status = rs_stream_poll(&s->stream, 0);
    rs_stream_leave(&s->stream);
    if (status == RSCHED_LANE_DONE)
        s->stream.busy = false;
    return status;
}

void rs_cuda_stage_drain(struct rsched_gpu_stage *s)
{
    rs_stream_drain(&s->stream);
}

void rs_cuda_stage_destroy(struct rsched_gpu_stage *s)
{
    if (s == NULL)
        return;
    rs_stream_drain(&s->stream);
    if (s->pinned && rs_stream_enter(&s->stream) == 0) {
        s->stream.driver->cuMemHostUnregister(s->memory);
        rs_stream_leave(&s->stream);
    }
    rs_moves_withdraw(&s->moves, &s->stream);
    rs_stream_close(&s->stream);
    rs_moves_fini(&s->moves);
    if (s->memory != NULL)
        munmap(s->memory, s->bytes);
    free(s);
}
