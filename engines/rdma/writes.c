/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/rdma/writes.h"

#include <stdlib.h>

#include "librsched/base/error.h"

/* Of one piece, and of one operation at the least limit of all devices. */
#define MAX_WRITE_BYTES (UINT64_C(1) << 30)

static int grow(void **array, uint32_t *room, uint32_t used, size_t size)
{
    uint32_t wanted = *room == 0 ? 16 : *room * 2;
    void *larger;

    if (used < *room)
        return 0;
    larger = realloc(*array, wanted * size);
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a list of writes");
    *array = larger;
    *room = wanted;
    return 0;
}

void rs_rdma_writes_clear(struct rs_rdma_writes *writes)
{
    writes->num_ops = writes->num_pieces = writes->head_ops = 0;
    writes->bytes = writes->head_bytes = 0;
}

void rs_rdma_writes_fini(struct rs_rdma_writes *writes)
{
    free(writes->ops);
    free(writes->pieces);
    *writes = (struct rs_rdma_writes){0};
}

static int add_piece(struct rs_rdma_writes *w, struct rs_rdma_piece piece)
{
    int error = grow((void **)&w->pieces, &w->room_pieces, w->num_pieces,
                     sizeof(*w->pieces));

    if (error == 0)
        w->pieces[w->num_pieces++] = piece;
    return error;
}

static int add_op(struct rs_rdma_writes *w, const struct rs_rdma_op *op)
{
    int error =
        grow((void **)&w->ops, &w->room_ops, w->num_ops, sizeof(*w->ops));

    if (error == 0)
        w->ops[w->num_ops++] = *op;
    return error;
}

int rs_rdma_writes_add_op(struct rs_rdma_writes *writes,
                          const struct rs_rdma_op *op)
{
    int error = add_op(writes, op);

    if (error == 0 && op->num_pieces > 0)
        error = add_piece(writes, op->pieces[0]);
    return error;
}

static uint64_t op_bytes(const struct rs_rdma_writes *w,
                         const struct rs_rdma_op *op)
{
    return w->end - op->remote;
}

/* A write that goes on where the last one ends, in memory of the same key. */
static bool goes_on(const struct rs_rdma_writes *w, uint64_t bytes,
                    uint64_t remote, uint32_t rkey)
{
    const struct rs_rdma_op *last;

    if (w->num_ops == w->head_ops)
        return false;
    last = &w->ops[w->num_ops - 1];
    return last->opcode == RS_RDMA_WRITE && last->stamp == RS_STAMP_NONE && last->rkey == rkey &&
           w->end == remote && op_bytes(w, last) + bytes <= MAX_WRITE_BYTES;
}

/* At most MAX_WRITE_BYTES. */
static int add_segment(struct rs_rdma_writes *w, uint64_t local, uint32_t lkey,
                       uint64_t bytes, uint64_t remote, uint32_t rkey)
{
    struct rs_rdma_piece piece = {
        .address = local, .bytes = (uint32_t)bytes, .lkey = lkey};
    bool on = goes_on(w, bytes, remote, rkey);
    struct rs_rdma_piece *last =
        on ? &w->pieces[w->num_pieces - 1] : NULL;
    int error = 0;

    w->end = remote + bytes;
    if (on && last->lkey == lkey && last->address + last->bytes == local) {
        last->bytes += (uint32_t)bytes;
        return 0;
    }
    if (!on || w->ops[w->num_ops - 1].num_pieces == w->max_pieces)
        error = add_op(w, &(struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                                               .remote = remote,
                                               .rkey = rkey});
    if (error == 0)
        error = add_piece(w, piece);
    if (error == 0)
        w->ops[w->num_ops - 1].num_pieces++;
    return error;
}

/* Of the next segment. */
static uint64_t most_bytes(const struct rs_rdma_writes *w)
{
    uint64_t left =
        w->head_bytes > w->bytes ? w->head_bytes - w->bytes : MAX_WRITE_BYTES;

    return left < MAX_WRITE_BYTES ? left : MAX_WRITE_BYTES;
}

int rs_rdma_writes_add(struct rs_rdma_writes *writes, uint64_t local,
                       uint32_t lkey, uint64_t bytes, uint64_t remote,
                       uint32_t rkey)
{
    int error = 0;

    while (bytes > 0 && error == 0) {
        uint64_t most = most_bytes(writes);
        uint64_t part = bytes < most ? bytes : most;

        error = add_segment(writes, local, lkey, part, remote, rkey);
        writes->bytes += part;
        if (writes->bytes == writes->head_bytes)
            writes->head_ops = writes->num_ops;
        local += part;
        remote += part;
        bytes -= part;
    }
    return error;
}

void rs_rdma_writes_finish(struct rs_rdma_writes *writes)
{
    const struct rs_rdma_piece *pieces = writes->pieces;

    for (uint32_t i = 0; i < writes->num_ops; i++) {
        writes->ops[i].pieces = pieces;
        pieces += writes->ops[i].num_pieces;
    }
}
