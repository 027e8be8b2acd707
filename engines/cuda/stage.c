/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies between a message and host memory, for engines whose devices cannot
 * reach it. Copy engines do them; what lies in host memory itself, processors. */
#include <stdlib.h>

#include "engines/cuda/hold.h"
#include "engines/cuda/moves.h"
#include "librsched/base/error.h"

extern const struct rsched_gpu_ops rs_cuda_gpu_ops;

static_assert(RSCHED_STAGE_DEPTH <= (int)RS_STREAM_EVENTS,
              "each piece under way has an event");

struct rsched_gpu_stage {
    struct rs_moves moves; /* a chunk for each piece */
    struct rs_stream stream;
    struct rs_begun begun[RSCHED_STAGE_DEPTH]; /* piece modulo that */
    uint32_t last; /* that was begun */
    void *pinned;  /* NULL: nothing is */
};

static enum rs_mover mover_of(const void *arg, const struct rs_copy *c)
{
    struct rsched_place place;

    (void)arg;
    rs_cuda_gpu_ops.place(c->user, c->bytes, &place);
    return place.kind == RSCHED_PLACE_GPU ? RS_MOVER_COPY_ENGINE
                                          : RS_MOVER_PROCESSOR;
}

static int synchronise(struct rsched_gpu_hold *hold,
                       const struct rsched_message *message)
{
    int error = 0;

    for (size_t i = 0; i < message->num_pieces && error == 0; i++) {
        const struct rsched_piece *p = &message->pieces[i];
        struct rsched_place place;

        if (p->bytes == 0 || p->count == 0)
            continue;
        rs_cuda_gpu_ops.place(p->address, p->bytes, &place);
        if (place.kind == RSCHED_PLACE_GPU)
            error = rs_cuda_synchronise(&hold->contexts, place.gpu, p->address);
    }
    return error;
}

int rs_cuda_stage_create(struct rsched_gpu_hold *hold,
                         const struct rsched_message *message, bool to_host,
                         uint64_t piece_bytes, struct rsched_gpu_stage **stage)
{
    struct rsched_gpu_stage *s = calloc(1, sizeof(*s));
    int error;

    if (s == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    s->moves.copies.apart = true;
    error = rs_stream_open(&s->stream, &hold->contexts, hold->gpu);
    if (error == 0)
        error = synchronise(hold, message);
    if (error == 0)
        error = rs_copies_compile(&s->moves.copies, message, piece_bytes);
    if (error == 0)
        error = rs_moves_compile(&s->moves, to_host ? RS_PACKS : RS_UNPACKS,
                                 mover_of, NULL, UINT32_MAX, &s->stream);
    if (error != 0) {
        rs_cuda_stage_destroy(s);
        return error;
    }
    *stage = s;
    return 0;
}

int rs_cuda_stage_pin(struct rsched_gpu_stage *s, void *memory, uint64_t bytes)
{
    int error = rs_stream_enter(&s->stream);

    if (error != 0)
        return error;
    if (s->stream.driver->cuMemHostRegister(
            memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
        s->pinned = memory;
    rs_stream_leave(&s->stream);
    return 0;
}

int rs_cuda_stage_begin(struct rsched_gpu_stage *s, uint32_t piece, void *memory)
{
    struct rs_begun *begun = &s->begun[piece % RSCHED_STAGE_DEPTH];
    int error = rs_stream_enter(&s->stream);

    if (error != 0)
        return error;
    error = rs_moves_begin(&s->moves, piece, memory, 0, &s->stream, NULL,
                           begun);
    if (error == 0 && begun->enqueued)
        error = rs_stream_mark(&s->stream, piece % RSCHED_STAGE_DEPTH);
    s->last = piece;
    rs_stream_leave(&s->stream);
    return error;
}

int rs_cuda_stage_poll(struct rsched_gpu_stage *s, uint32_t piece)
{
    int status;

    if (!s->begun[piece % RSCHED_STAGE_DEPTH].enqueued)
        return RSCHED_LANE_DONE;
    status = rs_stream_enter(&s->stream);
    if (status != 0)
        return status;
    status = rs_stream_poll(&s->stream, piece % RSCHED_STAGE_DEPTH);
    rs_stream_leave(&s->stream);
    if (status == RSCHED_LANE_DONE && piece == s->last)
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
    if (s->pinned != NULL && rs_stream_enter(&s->stream) == 0) {
        s->stream.driver->cuMemHostUnregister(s->pinned);
        rs_stream_leave(&s->stream);
    }
    rs_moves_withdraw(&s->moves, &s->stream);
    rs_stream_close(&s->stream);
    rs_moves_fini(&s->moves);
    free(s);
}
