/* SPDX-License-Identifier: BSD-3-Clause */
/* Words put as kernels put them, one thread at a time: the WQE that they write,
 * the ring's end, and what goes wrong. gpu_threads.c has many threads. */
#include <criterion/criterion.h>
#include <string.h>

#include "engines/mlx5/list.h"
#include "tests/mlx5/strip.h"

enum { WORDS = 128 };

static struct pair pair;
static struct rs_gpu_target *target;
static struct rsched_device_target *view;
static struct rs_gpu_proxy *proxy;
static uint64_t memory[WORDS];

static void begin(uint32_t blocks, struct rs_softnic_options nic,
                  bool with_proxy)
{
    struct pair_options options = {.nic = nic, .blocks = blocks};

    options.nic.free_ends = true;
    memset(memory, 0, sizeof(memory));
    pair_init(&pair, &options);
    cr_assert_eq(rs_gpu_proxy_create(&rs_gpu_memory_plain, 4, &proxy), 0);
    cr_assert_eq(rs_gpu_target_create(
                     &rs_gpu_memory_plain, &pair.a.memory, (uintptr_t)memory,
                     end_register(&pair.b, memory, sizeof(memory)),
                     sizeof(memory), with_proxy ? proxy : NULL, &target),
                 0);
    view = rs_gpu_target_view(target);
}

static void end(void)
{
    rs_gpu_target_destroy(target);
    rs_gpu_proxy_destroy(proxy);
    pair_fini(&pair);
}

static int put(uint64_t offset, uint64_t value)
{
    const struct rsched_device_group g = rsched_device_thread();

    return rsched_device_put(view, &g, offset, value);
}

/* What is behind the put in the ring is what the host's list would have been. */
Test(gpu_puts, a_put_is_the_hosts_own_wqe)
{
    enum { WRITTEN = 3 * RS_WQE_SEGMENT };
    struct rs_wqe_limits limits = {.max_segments = 63, .max_inline = 8};
    unsigned char before[RS_WQE_BLOCK - WRITTEN];
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE, .stamp = RS_STAMP_EPOCH};
    uint64_t value = UINT64_C(0x1122334455667788);
    struct rs_wqe_list *list;

    begin(64, (struct rs_softnic_options){.seed = 1}, false);
    memcpy(before, (char *)pair.a.memory.send_ring + WRITTEN, sizeof(before));
    limits.qpn = pair.a.memory.qpn;
    limits.blocks = 64;
    op.remote = (uintptr_t)&memory[5];
    op.rkey = view->rkey;
    cr_assert_eq(rs_wqe_list_create(&limits, &op, 1, &list), 0);
    memcpy(list->image + list->patches[0].offset, &value, sizeof(value));
    cr_assert_eq(put(5 * 8, value), 0);
    cr_expect_arr_eq((unsigned char *)pair.a.memory.send_ring, list->image,
                     WRITTEN);
    /* Nobody reads the rest of the block. */
    cr_expect_arr_eq((unsigned char *)pair.a.memory.send_ring + WRITTEN, before,
                     RS_WQE_BLOCK - WRITTEN);
    rs_softnic_settle(pair.nic);
    cr_expect_eq(memory[5], value);
    rs_wqe_list_destroy(list);
    end();
}

/* A GPU would read it slowly: what is rung is not taken from the ring. */
Test(gpu_puts, doorbells_are_not_read_from_the_ring)
{
    enum { BLOCKS = 4, AT = 70000 }; /* more than 16 bits */
    static uint64_t ring[BLOCKS * 8];
    uint64_t doorbells[2] = {0, 0};
    uint32_t dbrec = 0, second = rsched_device_big32(7 << 8 | 3);
    const struct rsched_device_queue queue = {
        .ring = (unsigned char *)ring,
        .mask = BLOCKS - 1,
        .qpn = 7,
        .dbrec = &dbrec,
        .doorbells = {&doorbells[0], &doorbells[1]}};
    struct rsched_device_target t = {.queue = queue,
                                     .published = (AT + 1) << 6 | 3};
    struct rsched_device_lane lane = {
        .queue = queue,
        .blocks = 2,
        .lists = {{.last_block = 1, .second_word = second}}};
    rsched_device_target_ring(&t, t.published);
    cr_expect_eq(doorbells[0],
                 (uint64_t)second << 32 |
                     rsched_device_big32((AT & 0xffff) << 8 | 8));
    rsched_device_lane_ring(&lane, AT / 2);
    cr_expect_eq(doorbells[0],
                 (uint64_t)second << 32 |
                     rsched_device_big32(((AT + 1) & 0xffff) << 8 | 8));
}

/* The words of a group in one WQE of several blocks, wherever the ring ends. */
Test(gpu_puts, words_together_around_the_rings_end)
{
    begin(32, (struct rs_softnic_options){.seed = 2}, false);
    for (uint64_t round = 0; round < 30000; round++) {
        uint32_t words = 1 + (uint32_t)round % 32;
        uint32_t slot = (uint32_t)(round * 7) % (WORDS - 32);
        uint32_t segments = 2 + (8 * words + 4 + 15) / 16;
        uint32_t blocks = (segments + 3) / 4;
        uint64_t first = 0;

        cr_assert_eq(rsched_device_target_reserve(view, blocks, &first), 0);
        rsched_device_target_head(view, first, 8 * (uint64_t)slot, 8 * words,
                                  true);
        rsched_device_target_ends(view, first, words);
        for (uint32_t i = 0; i < words; i++)
            rsched_device_target_word(view, first, i, round << 8 | i);
        cr_assert_eq(rsched_device_target_publish(view, first, blocks,
                                                  segments, 1, words),
                     0);
        rs_softnic_settle(pair.nic);
        for (uint32_t i = 0; i < words; i++)
            cr_assert_eq(memory[slot + i], round << 8 | i, "round %d: %s",
                         (int)round, rs_softnic_violation(pair.nic));
        rsched_device_target_poll(view);
    }
    cr_expect_gt(view->published >> 6, UINT64_C(65536));
    cr_expect_eq(rsched_device_flush(view), 0);
    cr_expect_str_eq(rs_softnic_violation(pair.nic), "");
    end();
}

Test(gpu_puts, offsets_and_groups_that_are_wrong)
{
    struct rsched_device_group block = rsched_device_thread();

    begin(32, (struct rs_softnic_options){.seed = 3}, false);
    cr_expect_eq(put(4, 1), RSCHED_EINVAL);
    cr_expect_eq(put(8 * WORDS, 1), RSCHED_EINVAL);
    cr_expect_eq(put(UINT64_MAX - 7, 1), RSCHED_EINVAL);
    block.kind = RSCHED_DEVICE_BLOCK;
    cr_expect_eq(rsched_device_put(view, &block, 0, 1), RSCHED_EINVAL);
    cr_expect_eq(view->reserved, 0);
    cr_expect_eq(put(8 * (WORDS - 1), 1), 0);
    end();
}

Test(gpu_puts, failures)
{
    for (int with_proxy = 0; with_proxy < 2; with_proxy++) {
        begin(32, (struct rs_softnic_options){.seed = 4}, with_proxy);
        rs_softnic_qp_inject(pair.a.qp, 2, 0x15, 0x81);
        for (uint64_t i = 0; i < 3; i++) {
            cr_expect_eq(put(8 * i, 1), 0);
            rs_gpu_proxy_step(proxy);
            rs_softnic_settle(pair.nic);
        }
        rs_gpu_proxy_step(proxy);
        cr_expect_eq(rsched_device_flush(view), RSCHED_EPEER);
        cr_expect_eq(rs_gpu_target_check(target), RSCHED_EPEER);
        cr_expect(strstr(rsched_last_error(), "(index 2): transport retries") !=
                      NULL,
                  "%s", rsched_last_error());
        cr_expect_eq(put(0, 1), RSCHED_EPEER);
        cr_expect_eq(memory[1], 1);
        cr_expect_eq(memory[2], 0);
        end();
    }
}

/* Nobody posts but who should. */
Test(gpu_puts, who_posts_is_counted)
{
    for (int with_proxy = 0; with_proxy < 2; with_proxy++) {
        begin(32, (struct rs_softnic_options){.seed = 5}, with_proxy);
        for (uint64_t i = 0; i < 3; i++)
            cr_expect_eq(put(8 * i, i + 1), 0);
        cr_expect_eq(view->queue.rings, with_proxy ? 0 : 3);
        rs_softnic_settle(pair.nic);
        cr_expect_eq(memory[2], with_proxy ? 0 : 3);
        cr_expect_eq(rs_gpu_proxy_step(proxy), with_proxy);
        rs_softnic_settle(pair.nic);
        rs_gpu_proxy_step(proxy);
        cr_expect_eq(rs_gpu_proxy_taken(proxy), with_proxy ? 3 : 0);
        cr_expect_eq(rsched_device_flush(view), 0);
        cr_expect_eq(memory[2], 3);
        cr_expect_eq(rs_softnic_stats(pair.nic).wqes, 3);
        end();
    }
}

/* Others put all the while: a flush is for what was before it. */
Test(gpu_puts, flushes_do_not_wait_for_a_pause)
{
    enum { ROUNDS = 100 };

    begin(32, (struct rs_softnic_options){.seed = 8}, true);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        cr_expect_eq(put(8 * (i % WORDS), i), 0);
        rs_gpu_proxy_step(proxy);
        cr_expect_lt(view->queue.rings, ROUNDS);
        cr_expect_lt(*view->flushed, i + 1, "it is not complete");
        rs_softnic_settle(pair.nic);
    }
    cr_expect_geq(*view->flushed, ROUNDS - 2);
    rs_gpu_proxy_step(proxy);
    cr_expect_eq(rsched_device_flush(view), 0);
    end();
}

/* Nobody takes what is asked for. */
Test(gpu_puts, waits_for_the_proxy_can_be_ended, .timeout = 20)
{
    begin(32, (struct rs_softnic_options){.seed = 9}, true);
    for (uint64_t i = 0; i < 4; i++)
        cr_expect_eq(put(8 * i, 1), 0);
    rs_gpu_proxy_halt(proxy, RSCHED_ESTATE);
    cr_expect_eq(put(8, 1), RSCHED_ESTATE);
    cr_expect_eq(rsched_device_flush(view), RSCHED_ESTATE);
    end();
}

/* They have no object. */
Test(gpu_puts, requests_of_no_kind_are_passed_over)
{
    begin(32, (struct rs_softnic_options){.seed = 7}, true);
    cr_expect_eq(rsched_device_proxy_ask(view->proxy, 0, NULL, 0, 0), 0);
    cr_expect_eq(put(8, 5), 0);
    cr_expect_eq(rsched_device_proxy_ask(view->proxy, RSCHED_DEVICE_PUT + 1,
                                         NULL, 0, 0), 0);
    cr_expect(rs_gpu_proxy_step(proxy));
    cr_expect_eq(rs_gpu_proxy_taken(proxy), 3);
    rs_softnic_settle(pair.nic);
    rs_gpu_proxy_step(proxy);
    cr_expect_eq(rsched_device_flush(view), 0);
    cr_expect_eq(memory[1], 5);
    cr_expect_eq(rs_softnic_stats(pair.nic).wqes, 1);
    end();
}

Test(gpu_puts, targets_that_are_refused)
{
    struct rs_mlx5_memory queue;
    struct rs_gpu_target *t;

    begin(32, (struct rs_softnic_options){.seed = 6}, false);
    queue = pair.a.memory;
    cr_expect_eq(rs_gpu_target_create(&rs_gpu_memory_plain, &queue, 4, 1, 8,
                                      NULL, &t),
                 RSCHED_EINVAL);
    queue.max_inline = 4;
    cr_expect_eq(rs_gpu_target_create(&rs_gpu_memory_plain, &queue, 8, 1, 8,
                                      NULL, &t),
                 RSCHED_ENOTSUP);
    queue = pair.a.memory;
    queue.send_blocks = 16;
    cr_expect_eq(rs_gpu_target_create(&rs_gpu_memory_plain, &queue, 8, 1, 8,
                                      NULL, &t),
                 RSCHED_ENOTSUP);
    end();
}
