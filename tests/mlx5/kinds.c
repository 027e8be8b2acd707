/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mlx5/kinds.h"

#include <string.h>

enum {
    PIECES = 5,
    PIECE_BYTES = 64,
    PIECE_AT = 192,
    OP_AT = PIECES * PIECE_BYTES,
};

/* Addresses and keys are filled in for each run. Lengths are such that no
 * single bit makes one shorter that is legal. */
static const struct rs_rdma_piece one_piece = {.bytes = PIECE_BYTES};
static const struct rs_rdma_piece pieces_of[PIECES] = {{.bytes = PIECE_BYTES},
                                                       {.bytes = PIECE_BYTES},
                                                       {.bytes = PIECE_BYTES},
                                                       {.bytes = PIECE_BYTES},
                                                       {.bytes = PIECE_BYTES}};
static const struct rs_rdma_piece inline_piece = {.bytes = 100};
static const struct rs_rdma_piece result_piece = {.bytes = 8};

#define WRITE(p, n)                                                          \
    {                                                                        \
        .opcode = RS_RDMA_WRITE, .pieces = (p), .num_pieces = (n)            \
    }
#define EPOCH                                                                \
    {                                                                        \
        .opcode = RS_RDMA_WRITE, .stamp = RS_STAMP_EPOCH                     \
    }

const struct kind kinds[NUM_KINDS] = {
    [KIND_ONE_PIECE] = {.name = "write of one piece",
                        .ops = {WRITE(&one_piece, 1)},
                        .num_ops = 1,
                        .blocks = 1},
    [KIND_TWO_PIECES] = {.name = "write of two pieces",
                         .ops = {WRITE(pieces_of, 2)},
                         .num_ops = 1,
                         .blocks = 1},
    [KIND_MANY_PIECES] = {.name = "write of pieces over two blocks",
                          .ops = {WRITE(pieces_of, PIECES)},
                          .num_ops = 1,
                          .blocks = 2},
    [KIND_EPOCH] = {.name = "epoch",
                    .ops = {EPOCH},
                    .num_ops = 1,
                    .blocks = 1},
    [KIND_INLINE] = {.name = "inline data over three blocks",
                     .ops = {{.opcode = RS_RDMA_WRITE,
                              .inlined = true,
                              .pieces = &inline_piece,
                              .num_pieces = 1}},
                     .num_ops = 1,
                     .blocks = 3},
    [KIND_IMM_ALONE] = {.name = "immediate alone",
                        .ops = {{.opcode = RS_RDMA_WRITE_IMM, .imm = 0x1234}},
                        .num_ops = 1,
                        .blocks = 1},
    [KIND_IMM_BEHIND_DATA] = {.name = "immediate behind data",
                              .ops = {{.opcode = RS_RDMA_WRITE_IMM,
                                       .imm = 0x1234,
                                       .pieces = &one_piece,
                                       .num_pieces = 1}},
                              .num_ops = 1,
                              .blocks = 1},
    [KIND_FETCH_ADD] = {.name = "fetch-and-add",
                        .ops = {{.opcode = RS_RDMA_FETCH_ADD,
                                 .add = 1,
                                 .pieces = &result_piece,
                                 .num_pieces = 1}},
                        .num_ops = 1,
                        .blocks = 1},
    [KIND_PADDED] = {.name = "list with padding",
                     .ops = {WRITE(pieces_of, 2), WRITE(&one_piece, 1),
                             EPOCH},
                     .num_ops = 3,
                     .recur = true,
                     .blocks = 4},
};

static uint32_t bytes_of(const struct rs_rdma_op *op)
{
    uint32_t bytes = op->stamp == RS_STAMP_EPOCH ? 8 : 0;

    for (uint32_t i = 0; i < op->num_pieces; i++)
        bytes += op->pieces[i].bytes;
    return bytes;
}

/* Give an operation memory, registered to the byte. */
static void bind(struct pair *pair, struct kind_memory *m,
                 struct rs_rdma_op *op, struct rs_rdma_piece *pieces,
                 uint32_t at)
{
    uint32_t bytes = bytes_of(op);

    for (uint32_t i = 0; i < op->num_pieces; i++) {
        unsigned char *source = op->opcode == RS_RDMA_FETCH_ADD
                                    ? (unsigned char *)&m->result
                                    : m->from + at + i * PIECE_AT;

        pieces[i] = op->pieces[i];
        pieces[i].address = (uintptr_t)source;
        if (!op->inlined)
            pieces[i].lkey = end_register(&pair->a, source, pieces[i].bytes);
    }
    op->pieces = pieces;
    op->remote = (uintptr_t)m->to + at;
    op->rkey = end_register(&pair->b, m->to + at, bytes);
}

struct rs_rdma_list *kind_begin(const struct kind *kind,
                                const struct rs_softnic_options *nic,
                                struct pair *pair, struct kind_memory *memory)
{
    struct pair_options options = {.nic = *nic,
                                   .blocks = KIND_RING,
                                   .receives = 4,
                                   .recur = kind->recur};
    struct rs_rdma_piece pieces[KIND_MAX_OPS][PIECES];
    struct rs_rdma_op ops[KIND_MAX_OPS];

    memset(memory, KIND_UNTOUCHED, sizeof(*memory));
    pair_init(pair, &options);
    for (uint32_t i = 0; i < kind->num_ops; i++) {
        ops[i] = kind->ops[i];
        bind(pair, memory, &ops[i], pieces[i], i * OP_AT);
    }
    if (ops[kind->num_ops - 1].opcode == RS_RDMA_WRITE_IMM)
        rs_rq_post(&pair->b.rq, 1);
    return end_list(&pair->a, ops, kind->num_ops);
}

static bool is_destination(const struct kind *kind, uint32_t at)
{
    uint32_t op = at / OP_AT;

    return op < kind->num_ops && at % OP_AT < bytes_of(&kind->ops[op]);
}

bool kind_kept_within(const struct kind *kind, const struct kind_memory *memory)
{
    for (uint32_t i = 0; i < sizeof(memory->from); i++) {
        if (memory->from[i] != KIND_UNTOUCHED ||
            (memory->to[i] != KIND_UNTOUCHED && !is_destination(kind, i)))
            return false;
    }
    return true;
}
