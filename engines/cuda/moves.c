/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/moves.h"

#include <stdlib.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

/* What lies in one piece and is longer goes by a copy engine, which leaves the
 * processors of the GPU to the program. Within a GPU they copy in any case: a copy
 * of the driver's takes as long as the kernel, and some 5 us more for each further
 * one (H100). */
enum { SHORT_BYTES = 32768, SHORT_WITHIN = 4 << 20 };

static bool is_one_block(const struct rs_moves *m, const struct rs_copy *c)
{
    int64_t bytes = (int64_t)c->bytes;

    return c->count == 1 ||
           (c->stride == bytes &&
            (m->direction != RS_STRAIGHT || c->other_stride == bytes));
}

static bool suits_kernel(const struct rs_moves *m, const struct rs_copy *c,
                         enum rs_mover by)
{
    uint64_t most = by == RS_MOVER_WITHIN ? SHORT_WITHIN : SHORT_BYTES;

    if (!is_one_block(m, c))
        return rs_blocks_fit(c->bytes);
    return c->bytes <= most && c->count <= most / c->bytes;
}

/* Note who would do each copy of a chunk. @return whether it is worth a launch */
static bool choose(struct rs_moves *m, const struct rs_chunk *chunk,
                   rs_mover_fn *mover, const void *arg, uint32_t launch)
{
    uint32_t blocks = 0;
    bool needed = false;

    for (uint32_t i = chunk->first; i < chunk->end; i++) {
        const struct rs_copy *c = &m->copies.copies[i];
        enum rs_mover by = mover(arg, c);

        if (by >= RS_MOVER_KERNEL && !suits_kernel(m, c, by))
            by = RS_MOVER_COPY_ENGINE;
        m->movers[i] = (unsigned char)by;
        needed |= by == RS_MOVER_WITHIN ||
                  (by == RS_MOVER_KERNEL && !is_one_block(m, c));
        blocks += by == RS_MOVER_KERNEL;
    }
    return needed || blocks >= launch;
}

static int add_blocks(struct rs_moves *m, const struct rs_copy *c)
{
    uint64_t user = (uint64_t)(uintptr_t)c->user;
    int64_t dense = (int64_t)c->bytes;

    switch (m->direction) {
    case RS_PACKS:
        return rs_blocks_add(&m->blocks, c->offset, dense, user, c->stride,
                             c->bytes, c->count);
    case RS_UNPACKS:
        return rs_blocks_add(&m->blocks, user, c->stride, c->offset, dense,
                             c->bytes, c->count);
    default:
        return rs_blocks_add(&m->blocks, (uint64_t)(uintptr_t)c->other,
                             c->other_stride, user, c->stride, c->bytes,
                             c->count);
    }
}

static int make_room(struct rs_moves *m)
{
    size_t copies = (size_t)m->copies.num_copies + 1;
    size_t chunks = (size_t)m->copies.num_chunks + 1;
    unsigned char *movers =
        rs_array_grow(m->movers, &m->room_movers, copies, sizeof(*movers));
    uint32_t *blocks;

    if (movers != NULL)
        m->movers = movers;
    blocks = rs_array_grow(m->first_blocks, &m->room_first_blocks, chunks,
                           sizeof(*blocks));
    if (blocks != NULL)
        m->first_blocks = blocks;
    return movers != NULL && blocks != NULL
               ? 0
               : rs_fail(RSCHED_ENOMEM, "no memory for a copy list");
}

static int upload(struct rs_moves *m, struct rs_stream *stream)
{
    int error;

    if (m->blocks.num == 0)
        return 0;
    error = rs_stream_enter(stream);
    if (error != 0)
        return error;
    error = rs_blocks_upload(&m->blocks, stream);
    rs_stream_leave(stream);
    return error;
}

static int compile_chunk(struct rs_moves *m, const struct rs_chunk *chunk,
                         bool launches)
{
    int error = 0;

    for (uint32_t i = chunk->first; i < chunk->end && error == 0; i++) {
        if (m->movers[i] < RS_MOVER_KERNEL)
            continue;
        m->movers[i] = launches ? RS_MOVER_KERNEL : RS_MOVER_COPY_ENGINE;
        if (launches)
            error = add_blocks(m, &m->copies.copies[i]);
    }
    return error;
}

int rs_moves_compile(struct rs_moves *m, enum rs_direction direction,
                     rs_mover_fn *mover, const void *arg, uint32_t launch,
                     struct rs_stream *stream)
{
    const struct rs_copies *list = &m->copies;
    int error = make_room(m);

    m->direction = direction;
    rs_blocks_clear(&m->blocks);
    for (uint32_t k = 0; k < list->num_chunks && error == 0; k++) {
        const struct rs_chunk *chunk = &list->chunks[k];

        m->first_blocks[k] = (uint32_t)m->blocks.num;
        error = compile_chunk(m, chunk, choose(m, chunk, mover, arg, launch));
    }
    if (error != 0)
        return error;
    m->first_blocks[list->num_chunks] = (uint32_t)m->blocks.num;
    return upload(m, stream);
}

int rs_moves_reserve(struct rs_moves *m, size_t copies,
                     const struct rs_stream *stream)
{
    int error = rs_stream_enter(stream);

    if (error != 0)
        return error;
    error = rs_blocks_reserve(&m->blocks, stream, copies);
    rs_stream_leave(stream);
    return error;
}

static int enqueue(const struct rs_moves *m, const struct rs_copy *c,
                   char *data, struct rs_stream *s)
{
    int64_t dense = (int64_t)c->bytes;

    switch (m->direction) {
    case RS_PACKS:
        return rs_stream_copy(s, data + c->offset, dense, c->user, c->stride,
                              c->bytes, c->count);
    case RS_UNPACKS:
        if (m->aside && is_one_block(m, c) &&
            c->bytes * c->count <= SHORT_BYTES)
            return rs_stream_copy_aside(s, c->user, data + c->offset,
                                        c->bytes * c->count);
        return rs_stream_copy(s, c->user, c->stride, data + c->offset, dense,
                              c->bytes, c->count);
    default:
        return rs_stream_copy(s, c->other, c->other_stride, c->user, c->stride,
                              c->bytes, c->count);
    }
}

static void copy_now(const struct rs_moves *m, uint32_t i, char *data)
{
    const struct rs_copy *c = &m->copies.copies[i];
    const struct rs_chunk one = {i, i + 1, c->bytes * c->count};

    if (m->direction == RS_PACKS)
        rs_copies_pack(&m->copies, &one, data);
    else if (m->direction == RS_UNPACKS)
        rs_copies_unpack(&m->copies, &one, data);
    else
        rs_copies_run_chunk(&m->copies, &one);
}

int rs_moves_begin(const struct rs_moves *m, uint32_t chunk, char *data,
                   CUdeviceptr data_of_kernel, struct rs_stream *stream,
                   struct rs_batch *batch, struct rs_begun *begun)
{
    const struct rs_chunk *range = &m->copies.chunks[chunk];
    uint32_t first = m->first_blocks[chunk], end = m->first_blocks[chunk + 1];
    int error = 0;

    *begun = (struct rs_begun){0};
    for (uint32_t i = range->first; i < range->end && error == 0; i++) {
        if (m->movers[i] == RS_MOVER_PROCESSOR) {
            copy_now(m, i, data);
        } else if (m->movers[i] == RS_MOVER_COPY_ENGINE) {
            error = enqueue(m, &m->copies.copies[i], data, stream);
            begun->enqueued = true;
        }
    }
    if (error == 0 && first < end)
        begun->ticket = rs_batch_add(
            batch, &m->blocks, first, end,
            m->direction == RS_PACKS ? data_of_kernel : 0,
            m->direction == RS_UNPACKS ? data_of_kernel : 0);
    return error;
}

int rs_moves_do(const struct rs_moves *m, uint32_t chunk, char *data,
                struct rs_mappings *mappings)
{
    const struct rs_chunk *range = &m->copies.chunks[chunk];
    int error = 0;

    for (uint32_t i = range->first; i < range->end && error == 0; i++) {
        const struct rs_copy *c = &m->copies.copies[i];
        uint64_t bytes = c->bytes * c->count;

        if (m->movers[i] == RS_MOVER_PROCESSOR)
            copy_now(m, i, data);
        else if (m->direction == RS_PACKS)
            error = rs_mappings_read(mappings, c->user, data + c->offset, bytes);
        else
            error = rs_mappings_write(mappings, c->user, data + c->offset, bytes);
    }
    return error;
}

void rs_moves_withdraw(struct rs_moves *m, const struct rs_stream *stream)
{
    rs_blocks_withdraw(&m->blocks, stream);
}

void rs_moves_fini(struct rs_moves *m)
{
    rs_copies_fini(&m->copies);
    rs_blocks_fini(&m->blocks);
    free(m->movers);
    free(m->first_blocks);
}
