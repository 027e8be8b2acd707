/* SPDX-License-Identifier: BSD-3-Clause */
/* The softnic sees what a producer must not do, and does to it all that a
 * device may. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/mlx5/pair.h"

enum { BYTES = 20000, SEEDS = 200 };

static struct pair pair;
static char from[BYTES], to[BYTES];
static _Alignas(8) uint64_t flag, counter, result;

static const struct rs_rdma_queue_ops *const q = &rs_mlx5_queue_ops;

enum notify { NOTIFY_FLAG, NOTIFY_ADD, NOTIFY_IMM };

/* Two halves of the data, then the notification. */
static struct rs_rdma_list *make_list(enum notify notify)
{
    uint32_t lkey = end_register(&pair.a, from, BYTES);
    uint32_t rkey = end_register(&pair.b, to, BYTES);
    struct rs_rdma_piece halves[2] = {
        {(uintptr_t)from, BYTES / 2, lkey},
        {(uintptr_t)from + BYTES / 2, BYTES / 2, lkey}};
    struct rs_rdma_piece sink = {(uintptr_t)&result, 8,
                                 end_register(&pair.a, &result, 8)};
    struct rs_rdma_op ops[3];

    for (int i = 0; i < 2; i++)
        ops[i] = (struct rs_rdma_op){
            .opcode = RS_RDMA_WRITE,
            .remote = (uintptr_t)to + (uint64_t)i * BYTES / 2,
            .rkey = rkey,
            .pieces = &halves[i],
            .num_pieces = 1};
    switch (notify) {
    case NOTIFY_FLAG:
        ops[2] = (struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                                     .stamp = RS_STAMP_EPOCH,
                                     .remote = (uintptr_t)&flag,
                                     .rkey = end_register(&pair.b, &flag, 8)};
        break;
    case NOTIFY_ADD:
        ops[2] =
            (struct rs_rdma_op){.opcode = RS_RDMA_FETCH_ADD,
                                .add = 1,
                                .remote = (uintptr_t)&counter,
                                .rkey = end_register(&pair.b, &counter, 8),
                                .pieces = &sink,
                                .num_pieces = 1};
        break;
    case NOTIFY_IMM:
        ops[2] = (struct rs_rdma_op){.opcode = RS_RDMA_WRITE_IMM,
                                     .stamp = RS_STAMP_IMM,
                                     .imm = 0xab000000};
        break;
    }
    return end_list(&pair.a, ops, 3);
}

static struct rs_rdma_list *begin(struct rs_softnic_options nic,
                                  enum notify notify)
{
    struct pair_options options = {.nic = nic, .blocks = 8, .receives = 8};

    flag = counter = 0;
    memset(from, 1, BYTES);
    memset(to, 0, BYTES);
    pair_init(&pair, &options);
    return make_list(notify);
}

static void end(struct rs_rdma_list *list)
{
    q->list_destroy(list);
    pair_fini(&pair);
}

static void expect_violation(const char *part)
{
    cr_expect(strstr(rs_softnic_violation(pair.nic), part) != NULL,
              "'%s', not '%s'", rs_softnic_violation(pair.nic), part);
}

static void expect_done(struct rs_rdma_list *list, uint64_t epoch)
{
    struct rs_rdma_done done;

    end_start(&pair.a, list, epoch, epoch);
    cr_assert(end_finish(&pair.a, &done), "%s",
              rs_softnic_violation(pair.nic));
    cr_assert(!done.failed, "%s", done.cause);
    cr_assert_arr_eq(to, from, BYTES);
}

/* ---- what a producer must not do ---- */

/* Runs until the doorbell has been seen, changes a byte of the ring, goes on. */
static void change_in_flight(unsigned steps, size_t at, const char *expected)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = steps}, NOTIFY_FLAG);
    struct rs_rdma_done done;

    end_start(&pair.a, list, 1, 1);
    for (unsigned i = 0; i < steps; i++)
        cr_assert(rs_softnic_step(pair.nic));
    ((char *)pair.a.memory.send_ring)[at] ^= 1;
    if (end_finish(&pair.a, &done))
        cr_expect(done.failed);
    expect_violation(expected);
    end(list);
}

Test(adversary, a_wqe_that_changes_too_early_is_seen)
{
    for (unsigned steps = 1; steps < 6; steps++) {
        change_in_flight(steps, 40, "changed");  /* an address */
        change_in_flight(steps, 63, "changed");  /* behind the last segment */
        change_in_flight(steps, 130, "changed"); /* the index of the last */
    }
}

Test(adversary, data_that_changes_too_early_is_seen)
{
    unsigned caught = 0;

    for (unsigned steps = 4; steps < 10; steps++) {
        struct rs_rdma_list *list = begin(
            (struct rs_softnic_options){.seed = steps, .check_sources = true},
            NOTIFY_FLAG);
        struct rs_rdma_done done;

        end_start(&pair.a, list, 1, 1);
        for (unsigned i = 0; i < steps; i++)
            rs_softnic_step(pair.nic);
        if (rs_softnic_stats(pair.nic).wqes == 3) {
            from[BYTES - 1] ^= 1;
            cr_assert(end_finish(&pair.a, &done));
            cr_expect(done.failed);
            expect_violation("were changed before its completion");
            caught++;
        }
        end(list);
    }
    cr_assert_gt(caught, 0);
}

Test(adversary, a_doorbell_without_its_record)
{
    static _Atomic uint32_t elsewhere;
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);

    cr_assert(q->post(list, 1, 1));
    pair.a.queue.sq.dbrec = &elsewhere;
    q->ring(&pair.a.queue.base);
    rs_softnic_settle(pair.nic);
    expect_violation("doorbell of block 2, but the record says 0");
    end(list);
}

/* Nothing looks at a record without a reason. */
Test(adversary, a_record_without_a_doorbell_starts_nothing)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);

    cr_assert(q->post(list, 1, 1));
    atomic_store(pair.a.queue.sq.dbrec, htobe32(3));
    cr_assert(!rs_softnic_step(pair.nic));
    cr_assert_eq(flag, 0);
    end(list);
}

Test(adversary, a_send_queue_that_overflows)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);

    for (int i = 0; i < 3; i++) {
        pair.a.queue.sq.retired = pair.a.queue.sq.posted; /* not true */
        cr_assert(q->post(list, 1, 1));
    }
    q->ring(&pair.a.queue.base);
    rs_softnic_settle(pair.nic);
    expect_violation("send queue overflow: record 9");
    end(list);
}

Test(adversary, a_completion_queue_that_overflows)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);
    _Atomic uint32_t elsewhere = 0;
    struct rs_rdma_done done;

    pair.a.queue.cq.dbrec = &elsewhere; /* so the device sees none taken */
    for (uint64_t i = 0; i < 8; i++)
        expect_done(list, i);
    end_start(&pair.a, list, 8, 8);
    cr_assert(!end_finish(&pair.a, &done));
    expect_violation("completion queue overflow: 8 entries, 0 taken");
    end(list);
}

static void ring_with(uint64_t turned, const char *expected)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);
    _Atomic uint64_t elsewhere;
    _Atomic uint64_t *doorbell = pair.a.queue.sq.doorbell;

    cr_assert(q->post(list, 1, 1));
    pair.a.queue.sq.doorbell = &elsewhere;
    q->ring(&pair.a.queue.base);
    atomic_store(doorbell, atomic_load(&elsewhere) ^ htobe64(turned));
    rs_softnic_settle(pair.nic);
    expect_violation(expected);
    end(list);
}

/* Every bit of a doorbell says something. */
Test(adversary, a_doorbell_that_is_not_the_beginning_of_the_wqe)
{
    for (int bit = 0; bit < 64; bit++)
        ring_with(UINT64_C(1) << bit, "doorbell");
}

/* ---- what a device may do ---- */

Test(adversary, lost_doorbells_are_made_up_for_by_the_record)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t percent = seed % 2 == 0 ? 100 : 30;
        struct rs_rdma_list *list = begin(
            (struct rs_softnic_options){.seed = seed, .drop_percent = percent},
            NOTIFY_FLAG);
        struct rs_softnic_stats stats;

        for (uint64_t epoch = 1; epoch < 100; epoch++) {
            memset(from, (int)epoch, BYTES);
            expect_done(list, epoch);
        }
        stats = rs_softnic_stats(pair.nic);
        cr_assert_gt(stats.dropped, 0);
        if (percent == 100)
            cr_assert_eq(stats.dropped, stats.doorbells);
        cr_assert_str_empty(rs_softnic_violation(pair.nic));
        end(list);
    }
}

/* @return how many notifications were seen before their data, at any step */
static unsigned count_early(enum notify notify, bool relaxed)
{
    unsigned early = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct rs_rdma_list *list = begin(
            (struct rs_softnic_options){.seed = seed, .relaxed = relaxed},
            notify);
        struct rs_cqe cqe;
        bool seen = false;

        rs_rq_post(&pair.b.rq, 8);
        end_start(&pair.a, list, 7, 0);
        while (!seen && rs_softnic_step(pair.nic))
            seen = notify == NOTIFY_FLAG  ? flag == 7
                   : notify == NOTIFY_ADD ? counter == 1
                                          : rs_cq_poll(&pair.b.receive_cq, &cqe);
        cr_assert(seen);
        if (notify == NOTIFY_IMM) {
            cr_assert_eq(cqe.kind, RS_CQE_RECEIVED_IMM);
            cr_assert_eq(cqe.imm, 0xab000007);
        }
        early += memcmp(from, to, BYTES) != 0;
        rs_softnic_settle(pair.nic);
        cr_assert_str_empty(rs_softnic_violation(pair.nic));
        end(list);
    }
    return early;
}

/* Why the notification is chosen by what a device promises: with relaxed
 * ordering a flag may overtake the data, others may not. */
Test(adversary, only_a_flag_can_overtake_data_and_only_if_relaxed)
{
    cr_assert_eq(count_early(NOTIFY_FLAG, false), 0);
    cr_assert_eq(count_early(NOTIFY_ADD, false), 0);
    cr_assert_eq(count_early(NOTIFY_IMM, false), 0);
    cr_assert_gt(count_early(NOTIFY_FLAG, true), 0);
    cr_assert_eq(count_early(NOTIFY_ADD, true), 0);
    cr_assert_eq(count_early(NOTIFY_IMM, true), 0);
}

Test(adversary, a_fetch_and_add_counts_and_returns_what_was)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1, .late_steps = 9},
              NOTIFY_ADD);

    counter = 1000;
    for (uint64_t epoch = 1; epoch < 100; epoch++) {
        expect_done(list, epoch);
        cr_assert_eq(counter, 1000 + epoch);
        cr_assert_eq(result, 999 + epoch);
    }
    end(list);
}

/* An immediate waits for a receive, for ever or for a while. */
Test(adversary, an_immediate_waits_for_a_receive)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_IMM);
    struct rs_rdma_done done;
    struct rs_cqe cqe;

    for (uint16_t i = 0; i < 100; i++) {
        end_start(&pair.a, list, i, i);
        cr_assert(!end_finish(&pair.a, &done));
        rs_rq_post(&pair.b.rq, 1);
        cr_assert(end_finish(&pair.a, &done));
        cr_assert(!done.failed);
        rs_softnic_settle(pair.nic);
        cr_assert(rs_cq_poll(&pair.b.receive_cq, &cqe));
        cr_assert_eq(cqe.index, i);
        cr_assert_eq(cqe.imm, 0xab000000 + i);
        rs_rq_take(&pair.b.rq);
    }
    end(list);

    list = begin((struct rs_softnic_options){.seed = 1, .rnr_steps = 5},
                 NOTIFY_IMM);
    end_start(&pair.a, list, 1, 1);
    cr_assert(end_finish(&pair.a, &done));
    cr_assert(done.failed);
    cr_assert_eq(done.op, 2);
    cr_assert_str_eq(done.cause, "receiver-not-ready retries exceeded");
    cr_assert_str_empty(rs_softnic_violation(pair.nic));
    end(list);
}

/* ---- errors that are nobody's violation ---- */

static void expect_error(struct rs_rdma_op op, const char *cause)
{
    struct rs_rdma_list *list = end_list(&pair.a, &op, 1);
    struct rs_rdma_done done;

    end_start(&pair.a, list, 1, 1);
    cr_assert(end_finish(&pair.a, &done));
    cr_assert(done.failed);
    cr_expect_str_eq(done.cause, cause);
    rs_softnic_settle(pair.nic);
    cr_expect_str_empty(rs_softnic_violation(pair.nic));
    q->list_destroy(list);
    pair_reset(&pair);
}

Test(adversary, memory_that_may_not_be_accessed)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);
    uint32_t lkey = end_register(&pair.a, from, BYTES);
    uint32_t rkey = end_register(&pair.b, to, BYTES);
    struct rs_rdma_piece piece = {(uintptr_t)from, 64, lkey};
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .remote = (uintptr_t)to,
                            .rkey = rkey,
                            .pieces = &piece,
                            .num_pieces = 1};
    uint32_t read_only;

    cr_assert_eq(rs_softnic_register(pair.nic, 2, to, BYTES, 0, &read_only), 0);
    op.rkey = read_only;
    expect_error(op, "remote access error");
    op.rkey = lkey; /* of the other domain */
    expect_error(op, "remote access error");
    op.rkey = rkey;
    op.remote = (uintptr_t)to - 1;
    expect_error(op, "remote access error");
    op.remote = (uintptr_t)to + BYTES - 63;
    expect_error(op, "remote access error");
    op.remote = UINT64_MAX - 10;
    expect_error(op, "remote access error");
    op.remote = (uintptr_t)to;
    piece.lkey = rkey;
    expect_error(op, "local protection error");
    piece.lkey = lkey;
    piece.address = (uintptr_t)from + BYTES - 63;
    expect_error(op, "local protection error");
    rs_softnic_deregister(pair.nic, lkey);
    piece.address = (uintptr_t)from;
    expect_error(op, "local protection error");
    expect_done(list, 5);
    end(list);
}

/* A request that the peer refuses fails the peer's side of the connection, and
 * who talks to a side that has failed gets no answer. */
Test(adversary, both_sides_of_a_connection_fail)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE, .stamp = RS_STAMP_EPOCH};
    struct rs_rdma_list *back = end_list(&pair.b, &op, 1);
    struct rs_rdma_done done;

    rs_softnic_qp_inject(pair.b.qp, 0, 0x22, 0);
    end_start(&pair.b, back, 1, 1);
    cr_assert(end_finish(&pair.b, &done));
    cr_assert_str_eq(done.cause, "remote aborted");
    end_start(&pair.a, list, 1, 1);
    cr_assert(end_finish(&pair.a, &done));
    cr_assert(done.failed);
    cr_assert_eq(done.op, 0);
    cr_assert_str_eq(done.cause, "transport retries exceeded");
    pair_reset(&pair);
    expect_done(list, 2);
    q->list_destroy(back);
    end(list);
}

Test(adversary, any_syndrome_can_be_had_and_all_behind_it_is_flushed)
{
    struct rs_rdma_list *list =
        begin((struct rs_softnic_options){.seed = 1}, NOTIFY_FLAG);

    for (unsigned s = 1; s < 256; s++) {
        struct rs_cqe cqe;

        rs_softnic_qp_inject(pair.a.qp, s % 3, (uint8_t)s, (uint8_t)~s);
        end_start(&pair.a, list, s, s);
        rs_softnic_settle(pair.nic);
        for (unsigned i = s % 3; i < 3; i++) {
            cr_assert(rs_cq_poll(&pair.a.queue.cq, &cqe));
            cr_assert_eq(cqe.kind, RS_CQE_SEND_ERROR);
            cr_assert_eq(cqe.index, i);
            cr_assert_eq(cqe.syndrome, i == s % 3 ? s : RS_SYNDROME_FLUSHED);
            cr_assert_eq(cqe.vendor_error, i == s % 3 ? (uint8_t)~s : 0);
        }
        cr_assert(!rs_cq_poll(&pair.a.queue.cq, &cqe));
        pair_reset(&pair);
    }
    expect_done(list, 999);
    end(list);
}

/* ---- itself ---- */

static struct rs_softnic_stats run_seed(uint64_t seed)
{
    struct rs_softnic_options options = {.seed = seed,
                                         .drop_percent = 20,
                                         .late_steps = 30,
                                         .relaxed = true,
                                         .mtu = 512};
    struct rs_rdma_list *list = begin(options, NOTIFY_ADD);
    struct rs_softnic_stats stats;

    for (uint64_t epoch = 1; epoch < 50; epoch++)
        expect_done(list, epoch);
    stats = rs_softnic_stats(pair.nic);
    end(list);
    return stats;
}

Test(adversary, the_same_seed_gives_the_same_run)
{
    struct rs_softnic_stats first = run_seed(5), second = run_seed(5),
                            other = run_seed(6);

    cr_assert_arr_eq(&first, &second, sizeof(first));
    cr_assert_neq(first.steps, other.steps);
}

Test(adversary, sizes_that_make_no_sense_are_refused)
{
    struct rs_softnic_options options = {.mtu = 5000};
    struct rs_softnic_qp_attr attr = {
        .send_blocks = 8, .cq_entries = 8, .cqe_bytes = 64};
    struct rs_softnic_qp *qp;
    struct rs_softnic *nic;

    cr_assert_eq(rs_softnic_create(&options, &nic), RSCHED_EINVAL);
    options.mtu = 0;
    cr_assert_eq(rs_softnic_create(&options, &nic), 0);
    cr_assert_eq(rs_softnic_qp_create(nic, &attr, &qp), 0);
    attr.send_blocks = 12;
    cr_assert_eq(rs_softnic_qp_create(nic, &attr, &qp), RSCHED_EINVAL);
    attr.send_blocks = 65536;
    cr_assert_eq(rs_softnic_qp_create(nic, &attr, &qp), RSCHED_EINVAL);
    attr.send_blocks = 8;
    attr.cqe_bytes = 32;
    cr_assert_eq(rs_softnic_qp_create(nic, &attr, &qp), RSCHED_EINVAL);
    rs_softnic_destroy(nic);
}
