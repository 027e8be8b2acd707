/* SPDX-License-Identifier: BSD-3-Clause */
/* Prepared lists: their layout, padding, patches and limits. */
#include <criterion/criterion.h>
#include <string.h>

#include <rsched/error.h>

#include "engines/mlx5/list.h"

static struct rs_wqe_limits limits = {
    .qpn = 0x11, .blocks = 64, .max_segments = 30, .max_inline = 220};

static char data[4096];
static struct rs_rdma_piece many[64];

static struct rs_rdma_op write_of(uint32_t pieces)
{
    for (uint32_t i = 0; i < pieces; i++)
        many[i] = (struct rs_rdma_piece){(uintptr_t)data, 8, 5};
    return (struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                               .remote = 4096,
                               .pieces = many,
                               .num_pieces = pieces};
}

static const struct rs_rdma_op flag = {
    .opcode = RS_RDMA_WRITE, .stamp = RS_STAMP_EPOCH, .remote = 64};

static struct rs_wqe_list *make(const struct rs_rdma_op *ops, uint32_t n)
{
    struct rs_wqe_list *list;

    cr_assert_eq(rs_wqe_list_create(&limits, ops, n, &list), 0, "%s",
                 rsched_last_error());
    return list;
}

static void refuse(const struct rs_rdma_op *ops, uint32_t n, int error,
                   const char *text)
{
    struct rs_wqe_list *list;

    cr_assert_eq(rs_wqe_list_create(&limits, ops, n, &list), error);
    cr_assert_str_eq(rsched_last_error(), text);
}

Test(list, without_padding_is_as_long_as_its_operations)
{
    struct rs_rdma_op ops[3] = {write_of(1), write_of(10), flag};
    struct rs_wqe_list *list = make(ops, 3);

    cr_assert_eq(list->num_wqes, 3);
    cr_assert_eq(list->blocks, 1 + 3 + 1);
    cr_assert_eq(list->num_patches, 1);
    rs_wqe_list_destroy(list);
}

Test(list, padding_fills_up_to_a_power_of_two_before_the_last)
{
    struct rs_rdma_op ops[40];

    limits.recur = true;
    for (uint32_t n = 1; n <= 40; n++) {
        struct rs_wqe_list *list;
        uint32_t nops;

        for (uint32_t i = 0; i + 1 < n; i++)
            ops[i] = write_of(1);
        ops[n - 1] = flag;
        list = make(ops, n);
        cr_assert_eq(list->blocks & (list->blocks - 1), 0);
        cr_assert_geq(list->blocks, n);
        cr_assert_lt(list->blocks, 2 * n);
        nops = (list->blocks - n + 6) / 7; /* of whole blocks */
        cr_assert_eq(list->num_wqes, n + nops);
        /* The last one ends the list, and no NOP is behind it. */
        cr_assert_eq(list->wqes[list->num_wqes - 1].op, n - 1);
        cr_assert_eq(list->wqes[list->num_wqes - 1].block, list->blocks - 1);
        for (uint32_t i = 0; i < nops; i++)
            cr_assert_eq(list->wqes[n - 1 + i].opcode, RS_WQE_NOP);
        rs_wqe_list_destroy(list);
    }
}

Test(list, blocks_lead_back_to_operations)
{
    struct rs_rdma_op ops[3] = {write_of(10), write_of(1), flag};
    static const uint32_t expected[] = {0, 0, 0, 1, 2, 2, 2, 2};
    struct rs_wqe_list *list;

    limits.recur = true;
    list = make(ops, 3);
    cr_assert_eq(list->blocks, 8);
    for (uint32_t b = 0; b < 8; b++)
        cr_assert_eq(rs_wqe_list_op_at(list, b), expected[b]);
    rs_wqe_list_destroy(list);
}

Test(list, inline_pieces_are_cut_where_blocks_end)
{
    struct rs_rdma_piece pieces[3] = {{(uintptr_t)data, 27, 0},
                                      {(uintptr_t)data + 100, 0, 0},
                                      {(uintptr_t)data + 200, 130, 0}};
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .inlined = true,
                            .pieces = pieces,
                            .num_pieces = 3};
    struct rs_wqe_list *list = make(&op, 1);
    uint32_t at = 36, total = 0;

    for (uint32_t i = 0; i < list->num_patches; i++) {
        const struct rs_wqe_patch *p = &list->patches[i];

        cr_assert_eq(p->kind, RS_PATCH_BYTES);
        cr_assert_eq(p->block * 64u + p->offset, at);
        cr_assert_leq(p->offset + p->bytes, 64);
        cr_assert_eq((const char *)p->source,
                     total < 27 ? data + total : data + 200 + total - 27);
        at += p->bytes;
        total += p->bytes;
    }
    cr_assert_eq(total, 157);
    cr_assert_eq(list->num_patches, 5); /* 27; 1, 64, 64, 1 */
    rs_wqe_list_destroy(list);
}

Test(list, the_longest_inline_data_fits_its_blocks)
{
    struct rs_rdma_piece piece = {(uintptr_t)data, 220, 0};
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .inlined = true,
                            .pieces = &piece,
                            .num_pieces = 1};
    struct rs_wqe_list *list = make(&op, 1);

    cr_assert_eq(list->blocks, 4);
    rs_wqe_list_destroy(list);
    piece.bytes = 221;
    refuse(&op, 1, RSCHED_ELIMIT,
           "mlx5 qp 0x11: operation 0: 221 bytes inline, at most 220");
}

Test(list, limits_are_told)
{
    struct rs_rdma_op ops[65];
    struct rs_rdma_op huge;

    for (int i = 0; i < 65; i++)
        ops[i] = write_of(1);
    refuse(ops, 0, RSCHED_EINVAL, "mlx5 qp 0x11: an empty list");
    refuse(ops, 65, RSCHED_ELIMIT,
           "mlx5 qp 0x11: a list of 65 blocks does not fit into a send queue "
           "of 64");
    ops[1] = write_of(29);
    refuse(ops, 2, RSCHED_ELIMIT,
           "mlx5 qp 0x11: operation 1: 31 segments, at most 30");
    huge = write_of(2);
    many[0].bytes = many[1].bytes = 1 << 29;
    rs_wqe_list_destroy(make(&huge, 1));
    many[1].bytes++;
    refuse(&huge, 1, RSCHED_ELIMIT,
           "mlx5 qp 0x11: operation 0: 1073741825 bytes, at most 1073741824");
}

Test(list, nonsense_is_refused)
{
    struct rs_rdma_piece eight = {(uintptr_t)data, 8, 5};
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE};

    refuse(&op, 1, RSCHED_EINVAL,
           "mlx5 qp 0x11: operation 0: a write of nothing");
    op = (struct rs_rdma_op){.opcode = RS_RDMA_WRITE_IMM, .inlined = true};
    refuse(&op, 1, RSCHED_EINVAL,
           "mlx5 qp 0x11: operation 0: nothing to inline");
    op = flag;
    op.num_pieces = 1;
    op.pieces = &eight;
    refuse(&op, 1, RSCHED_EINVAL,
           "mlx5 qp 0x11: operation 0: an epoch is all that its write carries");
    op = (struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                             .stamp = RS_STAMP_IMM,
                             .num_pieces = 1,
                             .pieces = &eight};
    refuse(&op, 1, RSCHED_EINVAL,
           "mlx5 qp 0x11: operation 0: only a write with immediate has one");
    op = (struct rs_rdma_op){.opcode = RS_RDMA_FETCH_ADD,
                             .remote = 12,
                             .num_pieces = 1,
                             .pieces = &eight};
    refuse(&op, 1, RSCHED_EINVAL,
           "mlx5 qp 0x11: operation 0: fetch-and-add is on 8 aligned bytes");
}

/* A write of no bytes with an immediate is legal. */
Test(list, an_immediate_needs_no_bytes)
{
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE_IMM, .imm = 7};
    struct rs_wqe_list *list = make(&op, 1);

    cr_assert_eq(list->image[7], 2);
    rs_wqe_list_destroy(list);
}
