/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/list.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

/* What the operations of a list add up to. */
struct extent {
    uint32_t wqes, patches;
    uint64_t blocks;
};

/* Where the next WQE goes. */
struct cursor {
    const struct rs_wqe_limits *limits;
    struct rs_wqe_list *list;
    uint32_t block;
};

static uint64_t total_bytes(const struct rs_rdma_op *op)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < op->num_pieces; i++)
        bytes += op->pieces[i].bytes;
    return bytes;
}

/* Pieces that hold something: a data segment of length 0 means 2^31 bytes. */
static uint32_t full_pieces(const struct rs_rdma_op *op)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < op->num_pieces; i++)
        n += op->pieces[i].bytes != 0;
    return n;
}

static bool has_payload_inside(const struct rs_rdma_op *op)
{
    return op->inlined || op->stamp == RS_STAMP_EPOCH;
}

static uint64_t inline_bytes(const struct rs_rdma_op *op)
{
    return op->stamp == RS_STAMP_EPOCH ? sizeof(uint64_t) : total_bytes(op);
}

static uint64_t count_segments(const struct rs_rdma_op *op)
{
    if (op->opcode == RS_RDMA_FETCH_ADD)
        return 4;
    if (has_payload_inside(op))
        return 2 + rs_wqe_inline_segments((uint32_t)inline_bytes(op));
    return 2 + (uint64_t)full_pieces(op);
}

static const char *find_nonsense(const struct rs_rdma_op *op)
{
    uint64_t bytes = total_bytes(op);

    if (op->opcode == RS_RDMA_FETCH_ADD)
        return op->num_pieces != 1 || bytes != 8 || op->remote % 8 != 0 ||
                       op->inlined || op->stamp != RS_STAMP_NONE
                   ? "fetch-and-add is on 8 aligned bytes"
                   : NULL;
    if (op->stamp == RS_STAMP_EPOCH &&
        (op->opcode != RS_RDMA_WRITE || op->num_pieces != 0))
        return "an epoch is all that its write carries";
    if (op->stamp == RS_STAMP_IMM && op->opcode != RS_RDMA_WRITE_IMM)
        return "only a write with immediate has one";
    if (op->opcode == RS_RDMA_WRITE && op->stamp == RS_STAMP_NONE && bytes == 0)
        return "a write of nothing";
    if (op->inlined && bytes == 0 && op->stamp == RS_STAMP_NONE)
        return "nothing to inline";
    return NULL;
}

static int check_op(const struct rs_wqe_limits *limits,
                    const struct rs_rdma_op *op, uint32_t number)
{
    const char *nonsense = find_nonsense(op);

    if (nonsense != NULL)
        return rs_fail(RSCHED_EINVAL, "mlx5 qp 0x%x: operation %u: %s",
                       limits->qpn, number, nonsense);
    if (total_bytes(op) > RS_WQE_MAX_BYTES)
        return rs_fail(RSCHED_ELIMIT,
                       "mlx5 qp 0x%x: operation %u: %llu bytes, at most %d",
                       limits->qpn, number,
                       (unsigned long long)total_bytes(op), RS_WQE_MAX_BYTES);
    if (has_payload_inside(op) && inline_bytes(op) > limits->max_inline)
        return rs_fail(RSCHED_ELIMIT,
                       "mlx5 qp 0x%x: operation %u: %llu bytes inline, at "
                       "most %u",
                       limits->qpn, number,
                       (unsigned long long)inline_bytes(op),
                       limits->max_inline);
    if (count_segments(op) > limits->max_segments)
        return rs_fail(RSCHED_ELIMIT,
                       "mlx5 qp 0x%x: operation %u: %llu segments, at most %u",
                       limits->qpn, number,
                       (unsigned long long)count_segments(op),
                       limits->max_segments);
    return 0;
}

/* Patches of an operation, at most: one more wherever a block ends. */
static uint32_t count_patches(const struct rs_rdma_op *op)
{
    return (op->stamp != RS_STAMP_NONE) +
           (op->inlined ? op->num_pieces + RS_WQE_MAX_BLOCKS : 0);
}

static int measure(const struct rs_wqe_limits *limits,
                   const struct rs_rdma_op *ops, uint32_t num_ops,
                   struct extent *extent)
{
    struct extent e = {.wqes = num_ops};

    if (num_ops == 0)
        return rs_fail(RSCHED_EINVAL, "mlx5 qp 0x%x: an empty list",
                       limits->qpn);
    for (uint32_t i = 0; i < num_ops; i++) {
        int error = check_op(limits, &ops[i], i);

        if (error != 0)
            return error;
        e.blocks += rs_wqe_blocks((uint32_t)count_segments(&ops[i]));
        e.patches += count_patches(&ops[i]);
    }
    if (e.blocks > limits->blocks)
        return rs_fail(RSCHED_ELIMIT,
                       "mlx5 qp 0x%x: a list of %llu blocks does not fit into "
                       "a send queue of %u",
                       limits->qpn, (unsigned long long)e.blocks,
                       limits->blocks);
    *extent = e;
    return 0;
}

/* Blocks of padding: up to the next power of two, which the ring has too. */
static uint32_t count_padding(const struct rs_wqe_limits *limits,
                              uint32_t blocks)
{
    uint32_t length = 1;

    while (length < blocks || length < limits->at_least)
        length *= 2;
    return limits->recur ? length - blocks : 0;
}

static void *begin_wqe(struct cursor *c, enum rs_wqe_opcode opcode,
                       uint32_t op, uint32_t segments, uint8_t flags,
                       uint32_t imm)
{
    struct rs_wqe_ctrl *ctrl =
        (void *)(c->list->image + (size_t)c->block * RS_WQE_BLOCK);

    c->list->wqes[c->list->num_wqes++] = (struct rs_wqe_entry){
        .block = (uint16_t)c->block,
        .opcode = (uint8_t)opcode,
        .op = op,
    };
    rs_wqe_set_ctrl(ctrl, (uint16_t)c->block, opcode, c->limits->qpn, segments,
                    flags, imm);
    c->block += rs_wqe_blocks(segments);
    return ctrl + 1;
}

static void add_patch(struct cursor *c, struct rs_wqe_patch patch,
                      const void *where)
{
    size_t at = (size_t)((const unsigned char *)where - c->list->image);

    patch.block = (uint16_t)(at / RS_WQE_BLOCK);
    patch.offset = (uint8_t)(at % RS_WQE_BLOCK);
    c->list->patches[c->list->num_patches++] = patch;
}

/* Bytes that are copied at each post, cut where blocks end. */
static unsigned char *add_inline_piece(struct cursor *c, unsigned char *to,
                                       const struct rs_rdma_piece *piece)
{
    const char *from = (const char *)(uintptr_t)piece->address;

    for (uint32_t left = piece->bytes; left > 0;) {
        uint32_t bytes =
            RS_WQE_BLOCK - (uint32_t)(to - c->list->image) % RS_WQE_BLOCK;

        if (bytes > left)
            bytes = left;
        add_patch(c,
                  (struct rs_wqe_patch){.kind = RS_PATCH_BYTES,
                                        .bytes = (uint8_t)bytes,
                                        .source = from},
                  to);
        to += bytes;
        from += bytes;
        left -= bytes;
    }
    return to;
}

static void add_inline(struct cursor *c, void *segment,
                       const struct rs_rdma_op *op)
{
    uint32_t header = rs_wqe_inline_header((uint32_t)inline_bytes(op));
    unsigned char *to = segment;

    memcpy(to, &header, sizeof(header));
    to += sizeof(header);
    if (op->stamp == RS_STAMP_EPOCH)
        add_patch(c, (struct rs_wqe_patch){.kind = RS_PATCH_EPOCH, .bytes = 8},
                  to);
    for (uint32_t i = 0; i < op->num_pieces; i++)
        to = add_inline_piece(c, to, &op->pieces[i]);
}

static void add_pieces(struct rs_wqe_data *segment, const struct rs_rdma_op *op)
{
    for (uint32_t i = 0; i < op->num_pieces; i++) {
        const struct rs_rdma_piece *p = &op->pieces[i];

        if (p->bytes != 0)
            rs_wqe_set_data(segment++, p->bytes, p->lkey, p->address);
    }
}

static void add_write(struct cursor *c, const struct rs_rdma_op *op,
                      uint32_t number, uint8_t flags)
{
    bool with_imm = op->opcode == RS_RDMA_WRITE_IMM;
    struct rs_wqe_raddr *raddr;

    if (with_imm && op->solicited)
        flags |= RS_WQE_SOLICITED;
    raddr = begin_wqe(c, with_imm ? RS_WQE_RDMA_WRITE_IMM : RS_WQE_RDMA_WRITE,
                      number, (uint32_t)count_segments(op), flags,
                      with_imm ? op->imm : 0);
    rs_wqe_set_raddr(raddr, op->remote, op->rkey);
    if (op->stamp == RS_STAMP_IMM) {
        struct rs_wqe_ctrl *ctrl = (struct rs_wqe_ctrl *)raddr - 1;

        add_patch(c,
                  (struct rs_wqe_patch){.kind = RS_PATCH_IMM,
                                        .bytes = 4,
                                        .imm = op->imm & 0xffff0000},
                  &ctrl->imm);
    }
    if (has_payload_inside(op))
        add_inline(c, raddr + 1, op);
    else
        add_pieces((struct rs_wqe_data *)(raddr + 1), op);
}

static void add_fetch_add(struct cursor *c, const struct rs_rdma_op *op,
                          uint32_t number, uint8_t flags)
{
    struct rs_wqe_raddr *raddr =
        begin_wqe(c, RS_WQE_FETCH_ADD, number, 4, flags, 0);
    struct rs_wqe_atomic *atomic = (void *)(raddr + 1);

    rs_wqe_set_raddr(raddr, op->remote, op->rkey);
    rs_wqe_set_atomic(atomic, op->add);
    add_pieces((struct rs_wqe_data *)(atomic + 1), op);
}

static void add_op(struct cursor *c, const struct rs_rdma_op *op,
                   uint32_t number, uint8_t flags)
{
    if (op->opcode == RS_RDMA_FETCH_ADD)
        add_fetch_add(c, op, number, flags);
    else
        add_write(c, op, number, flags);
}

/* A NOP is no longer than another WQE of the queue may be. */
static uint32_t nop_blocks(const struct rs_wqe_limits *limits)
{
    return limits->max_segments / RS_WQE_SEGMENTS_PER_BLOCK;
}

static void add_padding(struct cursor *c, uint32_t blocks)
{
    uint32_t most = nop_blocks(c->limits);

    while (blocks > 0) {
        uint32_t now = blocks < most ? blocks : most;

        begin_wqe(c, RS_WQE_NOP, RS_WQE_PADDING,
                  now * RS_WQE_SEGMENTS_PER_BLOCK, 0, 0);
        blocks -= now;
    }
}

static struct rs_wqe_list *allocate(const struct rs_wqe_limits *limits,
                                    const struct extent *extent,
                                    uint32_t padding)
{
    struct rs_wqe_list *list = calloc(1, sizeof(*list));
    uint32_t most = nop_blocks(limits);
    uint32_t nops = (padding + most - 1) / most;
    size_t bytes;

    if (list == NULL)
        return NULL;
    list->blocks = (uint32_t)extent->blocks + padding;
    bytes = (size_t)list->blocks * RS_WQE_BLOCK;
    list->wqes = calloc(extent->wqes + nops, sizeof(*list->wqes));
    list->patches = calloc(extent->patches + 1, sizeof(*list->patches));
    list->image = aligned_alloc(RS_WQE_BLOCK, bytes);
    if (list->wqes == NULL || list->patches == NULL || list->image == NULL) {
        rs_wqe_list_destroy(list);
        return NULL;
    }
    memset(list->image, 0, bytes);
    return list;
}

int rs_wqe_list_create(const struct rs_wqe_limits *limits,
                       const struct rs_rdma_op *ops, uint32_t num_ops,
                       struct rs_wqe_list **list)
{
    struct cursor c = {.limits = limits};
    struct extent extent = {0};
    uint32_t padding;
    int error = measure(limits, ops, num_ops, &extent);

    if (error != 0)
        return error;
    padding = count_padding(limits, (uint32_t)extent.blocks);
    c.list = allocate(limits, &extent, padding);
    if (c.list == NULL)
        return rs_fail(RSCHED_ENOMEM, "mlx5 qp 0x%x: no memory for a list",
                       limits->qpn);
    for (uint32_t i = 0; i + 1 < num_ops; i++)
        add_op(&c, &ops[i], i, 0);
    add_padding(&c, padding);
    add_op(&c, &ops[num_ops - 1], num_ops - 1, RS_WQE_SIGNALLED);
    *list = c.list;
    return 0;
}

void rs_wqe_list_destroy(struct rs_wqe_list *list)
{
    free(list->wqes);
    free(list->patches);
    free(list->image);
    free(list);
}

uint32_t rs_wqe_list_op_at(const struct rs_wqe_list *list, uint32_t block)
{
    uint32_t i = list->num_wqes - 1;

    while (i > 0 && list->wqes[i].block > block)
        i--;
    while (list->wqes[i].op == RS_WQE_PADDING)
        i++;
    return list->wqes[i].op;
}
