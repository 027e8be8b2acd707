/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue over its ring: laps, the wrap of indices, sharing, room, failure
 * and a new beginning. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/mlx5/pair.h"

enum { BYTES = 256, MAX_OPS = 16 };

/* A list of writes into memory of the peer, ended by an epoch. */
struct lane {
    char from[MAX_OPS][BYTES], to[MAX_OPS][BYTES];
    uint64_t flag;
    uint32_t lkey, rkey, flag_key, num_ops;
    struct rs_rdma_list *list;
};

static struct pair pair;

static void begin(uint32_t blocks, bool recur)
{
    struct pair_options options = {
        .nic = {.seed = blocks, .check_sources = true},
        .blocks = blocks,
        .recur = recur,
        .cqe_bytes = recur ? 128 : 64,
    };

    pair_init(&pair, &options);
}

static struct lane *lane_new(uint32_t num_ops, uint32_t pieces)
{
    struct lane *l = calloc(1, sizeof(*l));
    struct rs_rdma_piece p[MAX_OPS][8];
    struct rs_rdma_op ops[MAX_OPS];

    l->num_ops = num_ops;
    l->lkey = end_register(&pair.a, l->from, sizeof(l->from));
    l->rkey = end_register(&pair.b, l->to, sizeof(l->to));
    l->flag_key = end_register(&pair.b, &l->flag, sizeof(l->flag));
    for (uint32_t i = 0; i < num_ops - 1; i++) {
        for (uint32_t k = 0; k < pieces; k++)
            p[i][k] = (struct rs_rdma_piece){
                (uintptr_t)&l->from[i][k * (BYTES / pieces)], BYTES / pieces,
                l->lkey};
        ops[i] = (struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                                     .remote = (uintptr_t)l->to[i],
                                     .rkey = l->rkey,
                                     .pieces = p[i],
                                     .num_pieces = pieces};
    }
    ops[num_ops - 1] = (struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                                           .stamp = RS_STAMP_EPOCH,
                                           .remote = (uintptr_t)&l->flag,
                                           .rkey = l->flag_key};
    l->list = end_list(&pair.a, ops, num_ops);
    return l;
}

static void lane_free(struct lane *l)
{
    rs_mlx5_queue_ops.list_destroy(l->list);
    rs_softnic_deregister(pair.nic, l->lkey);
    rs_softnic_deregister(pair.nic, l->rkey);
    rs_softnic_deregister(pair.nic, l->flag_key);
    free(l);
}

static void fill(struct lane *l, uint64_t epoch)
{
    for (uint32_t i = 0; i + 1 < l->num_ops; i++)
        memset(l->from[i], (int)(epoch * 31 + i), BYTES);
}

static void expect_arrived(const struct lane *l, uint64_t epoch)
{
    cr_assert_eq(l->flag, epoch);
    for (uint32_t i = 0; i + 1 < l->num_ops; i++)
        cr_assert_arr_eq(l->to[i], l->from[i], BYTES);
}

static void expect_no_violation(void)
{
    cr_assert_str_empty(rs_softnic_violation(pair.nic));
}

static void run_epoch(struct lane *l, uint64_t epoch)
{
    struct rs_rdma_done done;

    fill(l, epoch);
    end_start(&pair.a, l->list, epoch, epoch ^ 0xf00);
    cr_assert(end_finish(&pair.a, &done), "epoch %llu: %s",
              (unsigned long long)epoch, rs_softnic_violation(pair.nic));
    cr_assert(!done.failed);
    cr_assert_eq(done.id, epoch ^ 0xf00);
    expect_arrived(l, epoch);
}

/* Three blocks in a ring of 8 meet its end at every place, and the index wraps
 * after 21846 epochs, in the middle of a list. */
Test(queue, indices_wrap_at_65536_and_blocks_at_the_rings_end)
{
    struct lane *l;

    begin(8, false);
    l = lane_new(2, 4); /* a write of two blocks, and the epoch */
    cr_assert_eq(((struct rs_wqe_list *)l->list)->blocks, 3);
    for (uint64_t epoch = 1; epoch < 45000; epoch++)
        run_epoch(l, epoch);
    cr_assert_gt(pair.a.queue.sq.posted, 2 * 65536);
    expect_no_violation();
    lane_free(l);
    pair_fini(&pair);
}

/* Padded to 8 blocks it meets the same slots in each lap: after the first two
 * laps nothing is copied any more. */
Test(queue, a_list_that_recurs_is_copied_once)
{
    struct lane *l;

    begin(16, true);
    l = lane_new(5, 1);
    cr_assert_eq(((struct rs_wqe_list *)l->list)->blocks, 8);
    for (uint64_t epoch = 1; epoch < 20000; epoch++)
        run_epoch(l, epoch);
    cr_assert_eq(pair.a.queue.sq.stats.copied_blocks, 16);
    cr_assert_eq(pair.a.queue.sq.stats.blocks, 8 * 19999);
    cr_assert_gt(rs_softnic_stats(pair.nic).nops, 0);
    expect_no_violation();
    lane_free(l);
    pair_fini(&pair);
}

/* A list that was made long ago, and is still in the ring, is not taken for one
 * that is made after 2^32 others. */
Test(queue, numbers_of_lists_do_not_come_back)
{
    struct lane *old, *young;

    begin(16, true);
    old = lane_new(5, 1);
    for (uint64_t epoch = 1; epoch <= 3; epoch++)
        run_epoch(old, epoch);
    pair.a.queue.sq.lists += UINT32_MAX;
    young = lane_new(5, 1);
    for (uint64_t epoch = 4; epoch <= 9; epoch++)
        run_epoch(epoch % 3 == 0 ? old : young, epoch);
    expect_no_violation();
    lane_free(old);
    lane_free(young);
    pair_fini(&pair);
}

Test(queue, a_list_as_long_as_the_ring)
{
    struct lane *l;

    begin(8, true);
    l = lane_new(8, 1);
    for (uint64_t epoch = 1; epoch < 9000; epoch++)
        run_epoch(l, epoch);
    cr_assert_eq(pair.a.queue.sq.stats.copied_blocks, 8);
    expect_no_violation();
    lane_free(l);
    pair_fini(&pair);
}

/* Lists of all lengths take turns on one queue in an order that never repeats
 * in step with the ring. */
Test(queue, lists_share_a_queue)
{
    enum { LANES = 5 };
    struct lane *lanes[LANES];
    unsigned seed = 3;

    begin(32, false);
    for (uint32_t i = 0; i < LANES; i++)
        lanes[i] = lane_new(2 + 2 * i, UINT32_C(1) << i % 3);
    for (uint64_t epoch = 1; epoch < 8000; epoch++)
        run_epoch(lanes[rand_r(&seed) % LANES], epoch);
    expect_no_violation();
    for (int i = 0; i < LANES; i++)
        lane_free(lanes[i]);
    pair_fini(&pair);
}

/* Several posts are rung for once, and the queue says when it is full: each
 * completion makes room for one more post. */
Test(queue, one_doorbell_for_many_posts_up_to_the_rings_length)
{
    enum { FIT = 4, POSTS = 1000 };
    const struct rs_rdma_queue_ops *q = &rs_mlx5_queue_ops;
    struct rs_rdma_done done;
    struct lane *l;
    uint64_t next = 0;

    begin(2 * FIT, false);
    l = lane_new(2, 1);
    fill(l, 1);
    for (; next < FIT; next++)
        cr_assert(q->post(l->list, next, next));
    for (uint64_t i = 0; i < POSTS; i++) {
        cr_assert(!q->post(l->list, next, next));
        cr_assert_eq(q->ring(&pair.a.queue.base), 0);
        cr_assert(end_finish(&pair.a, &done));
        cr_assert_eq(done.id, i);
        cr_assert(q->post(l->list, next, next));
        next++;
    }
    cr_assert_eq(pair.a.queue.sq.stats.rings, POSTS);
    cr_assert_eq(pair.a.queue.sq.stats.posts, POSTS + FIT);
    expect_no_violation();
    lane_free(l);
    pair_fini(&pair);
}

/* Bytes of inlined operations are those of the moment of the post. */
Test(queue, inline_data_is_copied_when_posted)
{
    char from[300], to[300], first[300];
    struct rs_rdma_piece pieces[2] = {{(uintptr_t)from, 100, 0},
                                      {(uintptr_t)from + 100, 200, 0}};
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .inlined = true,
                            .remote = (uintptr_t)to,
                            .pieces = pieces,
                            .num_pieces = 2};
    struct rs_rdma_list *list;
    struct rs_rdma_done done;

    begin(8, false);
    op.rkey = end_register(&pair.b, to, sizeof(to));
    list = end_list(&pair.a, &op, 1);
    for (int epoch = 1; epoch < 50; epoch++) {
        memset(from, epoch, sizeof(from));
        memcpy(first, from, sizeof(first));
        end_start(&pair.a, list, (uint64_t)epoch, 0);
        memset(from, 0, sizeof(from)); /* the queue has them */
        cr_assert(end_finish(&pair.a, &done));
        cr_assert_arr_eq(to, first, sizeof(to));
    }
    expect_no_violation();
    rs_mlx5_queue_ops.list_destroy(list);
    pair_fini(&pair);
}

/* What a failure names, what is told after it, and a new beginning. */
Test(queue, failures_name_the_operation_and_a_reset_mends)
{
    struct rs_rdma_done done;
    struct lane *l, *other;

    begin(16, true);
    l = lane_new(5, 1);
    other = lane_new(2, 1);
    for (uint64_t fail = 0; fail < 5; fail++) {
        uint64_t nops = fail == 4 ? 1 : 0; /* stand before the last one */

        for (uint64_t epoch = 1; epoch < 4; epoch++)
            run_epoch(l, epoch);
        rs_softnic_qp_inject(pair.a.qp, fail + nops, 0x15, 0x81);
        fill(l, 9);
        cr_assert(rs_mlx5_queue_ops.post(l->list, 9, 77));
        end_start(&pair.a, other->list, 9, 78);
        cr_assert(end_finish(&pair.a, &done));
        cr_assert(done.failed);
        cr_assert(!done.flushed);
        cr_assert_eq(done.id, 77);
        cr_assert_eq(done.op, fail);
        cr_assert_str_eq(done.cause, "transport retries exceeded");
        cr_assert_eq(done.vendor_error, 0x81);
        cr_assert(end_finish(&pair.a, &done));
        cr_assert(done.failed && done.flushed);
        cr_assert_eq(done.id, 78);
        cr_assert_neq(other->flag, 9, "what is behind it is not done");
        cr_assert(!end_finish(&pair.a, &done));
        cr_assert(!rs_mlx5_queue_ops.post(l->list, 10, 79));
        pair_reset(&pair);
        cr_assert_eq(pair.a.queue.sq.posted, 0);
        run_epoch(l, 10);
        run_epoch(other, 10);
        other->flag = 0;
    }
    expect_no_violation();
    lane_free(l);
    lane_free(other);
    pair_fini(&pair);
}

/* The next completion, as the device has written it. */
static unsigned char *next_cqe(void)
{
    const struct rs_cq *cq = &pair.a.queue.cq;

    return cq->ring + (size_t)(cq->taken & (cq->entries - 1)) * cq->stride;
}

static void expect_unexpected(struct lane *l, struct lane *other)
{
    struct rs_rdma_done done;

    cr_assert_eq(rs_mlx5_queue_ops.poll(&pair.a.queue.base, &done),
                 RSCHED_ESYS);
    cr_assert(strstr(rsched_last_error(), "unexpected completion") != NULL);
    cr_assert(!rs_mlx5_queue_ops.post(l->list, 10, 1), "it is to be reset");
    cr_assert(!rs_mlx5_queue_ops.post(other->list, 10, 1));
    cr_assert_eq(rs_mlx5_queue_ops.poll(&pair.a.queue.base, &done), 0);
    pair_reset(&pair);
    run_epoch(l, 11);
    run_epoch(other, 11);
}

/* Of a WQE that is not the last one of a list, of another queue pair, of a kind that
 * is not the send queue's, of an index that is nobody's; and one that comes twice. */
Test(queue, a_completion_that_nobody_asked_for_is_a_failure)
{
    static const struct {
        int at; /* of its 64 bytes */
        unsigned char changes;
    } wrong[] = {{61, 1}, {59, 1}, {63, RS_CQE_RECEIVED_IMM << 4}, {60, 0x80}};
    struct lane *l, *other;

    begin(16, true);
    l = lane_new(5, 1);
    other = lane_new(2, 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        run_epoch(l, 8);
        fill(l, 9);
        end_start(&pair.a, l->list, 9, 9);
        rs_softnic_settle(pair.nic);
        next_cqe()[wrong[i].at] ^= wrong[i].changes;
        expect_unexpected(l, other);
    }
    run_epoch(l, 9);
    pair.a.queue.cq.taken--;
    expect_unexpected(l, other);
    lane_free(l);
    lane_free(other);
    pair_fini(&pair);
}

Test(queue, memory_that_cannot_be_driven_is_refused)
{
    struct rs_mlx5_memory m;
    struct rs_mlx5_queue q;

    begin(16, false);
    m = pair.a.memory;
    m.send_blocks = 24;
    cr_assert_eq(rs_mlx5_queue_init(&q, &m, false), RSCHED_ENOTSUP);
    m.send_blocks = 65536;
    cr_assert_eq(rs_mlx5_queue_init(&q, &m, false), RSCHED_ENOTSUP);
    m.send_blocks = 32;
    cr_assert_eq(rs_mlx5_queue_init(&q, &m, false), RSCHED_ENOTSUP);
    cr_assert(strstr(rsched_last_error(), "a completion queue of 16 entries "
                                          "for 32 blocks") != NULL);
    m = pair.a.memory;
    m.cqe_bytes = 32;
    cr_assert_eq(rs_mlx5_queue_init(&q, &m, false), RSCHED_ENOTSUP);
    pair_fini(&pair);
}
