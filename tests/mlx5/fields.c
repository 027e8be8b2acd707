/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of every kind of WQE, against those that the vendor's own setters
 * and structures (mlx5dv.h) make. */
#include <criterion/criterion.h>

#ifdef HAVE_MLX5DV
#include <infiniband/mlx5dv.h>
#include <string.h>

#include <rsched/error.h>

#include "engines/mlx5/cq.h"
#include "engines/mlx5/list.h"

enum { QPN = 0xabcdef, ROUNDS = 200 };

static const struct rs_wqe_limits limits = {
    .qpn = QPN, .blocks = 1024, .max_segments = 63, .max_inline = 900};

static uint64_t random64(void)
{
    uint64_t value = 0;

    for (int i = 0; i < 5; i++)
        value = value << 15 ^ (uint64_t)rand();
    return value;
}

/* A WQE as the vendor's header has it. */
struct expected {
    union {
        struct mlx5_wqe_ctrl_seg ctrl;
        unsigned char bytes[RS_WQE_MAX_BLOCKS * RS_WQE_BLOCK];
    };
    size_t end;
};

static void *append(struct expected *e, size_t bytes)
{
    void *segment = e->bytes + e->end;

    e->end += bytes;
    return segment;
}

static void expect_raddr(struct expected *e, const struct rs_rdma_op *op)
{
    struct mlx5_wqe_raddr_seg *seg = append(e, sizeof(*seg));

    seg->raddr = htobe64(op->remote);
    seg->rkey = htobe32(op->rkey);
}

static void expect_data(struct expected *e, const struct rs_rdma_op *op)
{
    for (uint32_t i = 0; i < op->num_pieces; i++) {
        if (op->pieces[i].bytes != 0)
            mlx5dv_set_data_seg(append(e, 16), op->pieces[i].bytes,
                                op->pieces[i].lkey, op->pieces[i].address);
    }
}

static void expect_inline_header(struct expected *e, uint32_t bytes)
{
    struct mlx5_wqe_inl_data_seg *seg = append(e, sizeof(*seg));

    seg->byte_count = htobe32(bytes | MLX5_INLINE_SEG);
}

static void expect_ctrl(struct expected *e, uint16_t index, uint8_t opcode,
                        uint8_t flags, uint32_t imm)
{
    mlx5dv_set_ctrl_seg(&e->ctrl, index, opcode, 0, QPN, flags,
                        (uint8_t)((e->end + 15) / 16), 0, imm);
}

static struct rs_wqe_list *make(const struct rs_rdma_op *ops, uint32_t n)
{
    struct rs_wqe_list *list;

    cr_assert_eq(rs_wqe_list_create(&limits, ops, n, &list), 0, "%s",
                 rsched_last_error());
    return list;
}

static void compare(const struct rs_wqe_list *list, uint32_t wqe,
                    const struct expected *e)
{
    const unsigned char *got =
        list->image + (size_t)list->wqes[wqe].block * RS_WQE_BLOCK;
    size_t blocks = (e->end + RS_WQE_BLOCK - 1) / RS_WQE_BLOCK;

    for (size_t i = 0; i < blocks * RS_WQE_BLOCK; i++)
        cr_assert_eq(got[i], e->bytes[i], "byte %zu: 0x%02x, not 0x%02x", i,
                     got[i], e->bytes[i]);
}

static struct rs_rdma_op random_write(struct rs_rdma_piece *pieces, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        pieces[i] = (struct rs_rdma_piece){
            .address = random64(),
            .bytes = 1 + (uint32_t)random64() % 1000000,
            .lkey = (uint32_t)random64(),
        };
    return (struct rs_rdma_op){
        .opcode = RS_RDMA_WRITE,
        .remote = random64(),
        .rkey = (uint32_t)random64(),
        .pieces = pieces,
        .num_pieces = n,
    };
}

Test(fields, constants_are_the_vendors)
{
    cr_assert_eq(RS_WQE_NOP, (int)MLX5_OPCODE_NOP);
    cr_assert_eq(RS_WQE_RDMA_WRITE, (int)MLX5_OPCODE_RDMA_WRITE);
    cr_assert_eq(RS_WQE_RDMA_WRITE_IMM, (int)MLX5_OPCODE_RDMA_WRITE_IMM);
    cr_assert_eq(RS_WQE_FETCH_ADD, (int)MLX5_OPCODE_ATOMIC_FA);
    cr_assert_eq(RS_WQE_SIGNALLED, (int)MLX5_WQE_CTRL_CQ_UPDATE);
    cr_assert_eq(RS_WQE_SOLICITED, (int)MLX5_WQE_CTRL_SOLICITED);
    cr_assert_eq(RS_WQE_INLINE, (uint32_t)MLX5_INLINE_SEG);
    cr_assert_eq(RS_WQE_BLOCK, (int)MLX5_SEND_WQE_BB);
    cr_assert_eq(RS_MLX5_DBREC_RECEIVE, (int)MLX5_RCV_DBR);
    cr_assert_eq(RS_MLX5_DBREC_SEND, (int)MLX5_SND_DBR);
    cr_assert_eq(RS_CQE_SENT, (int)MLX5_CQE_REQ);
    cr_assert_eq(RS_CQE_RECEIVED_IMM, (int)MLX5_CQE_RESP_WR_IMM);
    cr_assert_eq(RS_CQE_SEND_ERROR, (int)MLX5_CQE_REQ_ERR);
    cr_assert_eq(RS_CQE_RECEIVE_ERROR, (int)MLX5_CQE_RESP_ERR);
    cr_assert_eq(RS_CQE_INVALID, (int)MLX5_CQE_INVALID);
    cr_assert_eq(RS_SYNDROME_FLUSHED, (int)MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

Test(fields, control_segment_for_every_index_and_length)
{
    struct mlx5_wqe_ctrl_seg theirs;
    struct rs_wqe_ctrl ours;

    for (unsigned index = 0; index < 65536; index++) {
        uint32_t qpn = (uint32_t)random64() & 0xffffff;
        uint32_t imm = (uint32_t)random64();
        uint8_t segments = (uint8_t)(1 + index % 63);

        rs_wqe_set_ctrl(&ours, (uint16_t)index, RS_WQE_RDMA_WRITE_IMM, qpn,
                        segments, RS_WQE_SIGNALLED | RS_WQE_SOLICITED, imm);
        memset(&theirs, 0, sizeof(theirs));
        mlx5dv_set_ctrl_seg(&theirs, (uint16_t)index,
                            MLX5_OPCODE_RDMA_WRITE_IMM, 0, qpn,
                            MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED,
                            segments, 0, htobe32(imm));
        cr_assert_arr_eq(&ours, &theirs, sizeof(ours));
        /* The word that a repeated start stores. */
        cr_assert_eq(ours.index_opcode,
                     rs_wqe_index_opcode((uint16_t)index,
                                         RS_WQE_RDMA_WRITE_IMM));
    }
}

Test(fields, writes_of_any_number_of_pieces)
{
    struct rs_rdma_piece pieces[61];

    for (uint32_t n = 1; n <= 61; n++) {
        struct rs_rdma_op op = random_write(pieces, n);
        struct expected e = {.end = sizeof(e.ctrl)};
        struct rs_wqe_list *list = make(&op, 1);

        expect_raddr(&e, &op);
        expect_data(&e, &op);
        expect_ctrl(&e, 0, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
        compare(list, 0, &e);
        rs_wqe_list_destroy(list);
    }
}

Test(fields, empty_pieces_are_left_out)
{
    struct rs_rdma_piece pieces[3];
    struct rs_rdma_op op = random_write(pieces, 3);
    struct expected e = {.end = sizeof(e.ctrl)};
    struct rs_wqe_list *list;

    pieces[0].bytes = pieces[2].bytes = 0;
    list = make(&op, 1);
    expect_raddr(&e, &op);
    expect_data(&e, &op);
    expect_ctrl(&e, 0, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
    cr_assert_eq(e.end, 48);
    compare(list, 0, &e);
    rs_wqe_list_destroy(list);
}

Test(fields, immediates)
{
    struct rs_rdma_piece piece;

    for (int round = 0; round < ROUNDS; round++) {
        struct rs_rdma_op op = random_write(&piece, (uint32_t)round % 2);
        struct expected e = {.end = sizeof(e.ctrl)};
        struct rs_wqe_list *list;

        op.opcode = RS_RDMA_WRITE_IMM;
        op.imm = (uint32_t)random64();
        op.solicited = round % 3 == 0;
        list = make(&op, 1);
        expect_raddr(&e, &op);
        expect_data(&e, &op);
        expect_ctrl(&e, 0, MLX5_OPCODE_RDMA_WRITE_IMM,
                    (uint8_t)(MLX5_WQE_CTRL_CQ_UPDATE |
                              (op.solicited ? MLX5_WQE_CTRL_SOLICITED : 0)),
                    htobe32(op.imm));
        compare(list, 0, &e);
        rs_wqe_list_destroy(list);
    }
}

/* The payload of inlined operations is put in when they are posted. */
Test(fields, inline_headers)
{
    char bytes[900];

    for (uint32_t n = 1; n <= sizeof(bytes); n++) {
        struct rs_rdma_piece piece = {.address = (uintptr_t)bytes, .bytes = n};
        struct rs_rdma_op op = random_write(&piece, 0);
        struct expected e = {.end = sizeof(e.ctrl)};
        struct rs_wqe_list *list;

        op.inlined = true;
        op.pieces = &piece;
        op.num_pieces = 1;
        list = make(&op, 1);
        expect_raddr(&e, &op);
        expect_inline_header(&e, n);
        append(&e, n);
        expect_ctrl(&e, 0, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
        compare(list, 0, &e);
        rs_wqe_list_destroy(list);
    }
}

Test(fields, fetch_and_add)
{
    struct rs_rdma_piece piece;

    for (int round = 0; round < ROUNDS; round++) {
        struct rs_rdma_op op = random_write(&piece, 1);
        struct expected e = {.end = sizeof(e.ctrl)};
        struct mlx5_wqe_atomic_seg *atomic;
        struct rs_wqe_list *list;

        op.opcode = RS_RDMA_FETCH_ADD;
        op.remote &= ~UINT64_C(7);
        op.add = random64();
        piece.bytes = 8;
        list = make(&op, 1);
        expect_raddr(&e, &op);
        atomic = append(&e, sizeof(*atomic));
        atomic->swap_add = htobe64(op.add);
        expect_data(&e, &op);
        expect_ctrl(&e, 0, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 0);
        compare(list, 0, &e);
        rs_wqe_list_destroy(list);
    }
}

/* In a list each WQE is at its block, and only the last one is signalled. */
Test(fields, lists_of_several)
{
    struct rs_rdma_piece pieces[20];
    struct rs_rdma_op ops[3] = {
        random_write(pieces, 1),
        random_write(pieces + 1, 18),
        random_write(pieces + 19, 1),
    };
    struct rs_wqe_list *list = make(ops, 3);
    uint16_t block = 0;

    for (uint32_t i = 0; i < 3; i++) {
        struct expected e = {.end = sizeof(e.ctrl)};

        expect_raddr(&e, &ops[i]);
        expect_data(&e, &ops[i]);
        expect_ctrl(&e, block, MLX5_OPCODE_RDMA_WRITE,
                    i == 2 ? MLX5_WQE_CTRL_CQ_UPDATE : 0, 0);
        cr_assert_eq(list->wqes[i].block, block);
        compare(list, i, &e);
        block = (uint16_t)(block + (e.end + 63) / 64);
    }
    cr_assert_eq(list->blocks, block);
    rs_wqe_list_destroy(list);
}

/* Ours reads completions as the vendor's structures have them. */
Test(fields, completions)
{
    union {
        struct mlx5_cqe64 good;
        struct mlx5_err_cqe bad;
        unsigned char bytes[64];
    } ring[2];
    _Atomic uint32_t dbrec = 0;
    struct rs_mlx5_memory memory = {.cq_ring = ring, .cq_entries = 2,
                                    .cqe_bytes = 64, .cq_dbrec = &dbrec};
    struct rs_cqe cqe;
    struct rs_cq cq;

    memset(ring, MLX5_CQE_INVALID << 4, sizeof(ring));
    rs_cq_init(&cq, &memory);
    cr_assert(!rs_cq_poll(&cq, &cqe));

    ring[0].good.wqe_counter = htobe16(0x1234);
    ring[0].good.sop_drop_qpn = htobe32(MLX5_OPCODE_RDMA_WRITE << 24 | QPN);
    ring[0].good.imm_inval_pkey = htobe32(0xfeed1234);
    ring[0].good.op_own = MLX5_CQE_RESP_WR_IMM << 4;
    cr_assert(rs_cq_poll(&cq, &cqe));
    cr_assert_eq(cqe.kind, MLX5_CQE_RESP_WR_IMM);
    cr_assert_eq(cqe.index, 0x1234);
    cr_assert_eq(cqe.qpn, QPN);
    cr_assert_eq(cqe.imm, 0xfeed1234);
    cr_assert_eq(be32toh(dbrec), 1);

    ring[1].bad.wqe_counter = htobe16(0xfffe);
    ring[1].bad.s_wqe_opcode_qpn = htobe32(QPN);
    ring[1].bad.syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    ring[1].bad.vendor_err_synd = 0x88;
    ring[1].bad.op_own = MLX5_CQE_REQ_ERR << 4;
    cr_assert(rs_cq_poll(&cq, &cqe));
    cr_assert_eq(cqe.kind, MLX5_CQE_REQ_ERR);
    cr_assert_eq(cqe.index, 0xfffe);
    cr_assert_eq(cqe.qpn, QPN);
    cr_assert_eq(cqe.syndrome, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    cr_assert_eq(cqe.vendor_error, 0x88);

    /* The first lap's completion is still there, but not a second one. */
    cr_assert(!rs_cq_poll(&cq, &cqe));
    mlx5dv_set_cqe_owner(&ring[0].good, 1);
    cr_assert(rs_cq_poll(&cq, &cqe));
    cr_assert_eq(be32toh(dbrec), 3);
}

Test(fields, every_syndrome_has_a_text)
{
    static const uint8_t known[] = {
        MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
        MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
        MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
        MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
        MLX5_CQE_SYNDROME_MW_BIND_ERR,
        MLX5_CQE_SYNDROME_BAD_RESP_ERR,
        MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR,
        MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
        MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
        MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
        MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
        MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
        MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR,
    };
    const char *unknown = rs_cqe_syndrome_text(0xff);
    size_t with_text = 0;

    for (size_t i = 0; i < sizeof(known); i++)
        cr_assert_str_neq(rs_cqe_syndrome_text(known[i]), unknown);
    for (int s = 0; s < 256; s++)
        with_text += strcmp(rs_cqe_syndrome_text((uint8_t)s), unknown) != 0;
    cr_assert_eq(with_text, sizeof(known));
}

#else

Test(fields, against_the_vendors_header)
{
    cr_skip_test("infiniband/mlx5dv.h is not installed");
}

#endif
