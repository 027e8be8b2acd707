/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges started by the functions that kernels call, one step at a time:
 * the softnic sees every byte, and does what a device may. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/mlx5/strip.h"

static struct strip strip;
static unsigned seed;

static void expect_no_violation(void)
{
    cr_expect_str_eq(rs_softnic_violation(strip.nic), "");
}

static struct jacobi *jacobi_of(uint32_t rank)
{
    return &strip.ranks[rank].jacobi;
}

/* One step of a rank: start if it may, else see whether it is through, and then
 * compute. @return whether it has done all its steps */
static bool go_on(uint32_t rank, uint64_t steps, uint64_t *done, bool *started)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct jacobi *j = jacobi_of(rank);
    bool complete = false;

    if (*done == steps)
        return true;
    if (!*started) {
        cr_assert_eq(rsched_device_start(j->halo, &g), 0);
        *started = true;
        return false;
    }
    cr_assert_eq(rsched_device_test(j->halo, &g, &complete), 0, "%s",
                 rs_softnic_violation(strip.nic));
    if (complete) {
        for (uint32_t row = 1; row <= j->rows; row++)
            jacobi_row(j, *done, row, 0, 1);
        *started = false;
        ++*done;
    }
    return false;
}

/* Ranks, proxies and device take turns as they come; a rank may be an epoch
 * ahead of its neighbors. */
static void run(uint64_t steps)
{
    uint64_t done[STRIP_MAX_RANKS] = {0};
    bool started[STRIP_MAX_RANKS] = {false};
    uint32_t n = strip.options.ranks, finished = 0;

    while (finished < n) {
        uint32_t rank = (uint32_t)rand_r(&seed) % n;

        for (int i = rand_r(&seed) % 8; i >= 0; i--)
            rs_softnic_step(strip.nic);
        if (strip.options.proxy)
            rs_gpu_proxy_step(strip.ranks[rank].proxy);
        go_on(rank, steps, &done[rank], &started[rank]);
        finished = 0;
        for (uint32_t i = 0; i < n; i++)
            finished += done[i] == steps;
    }
    rs_softnic_settle(strip.nic);
}

static uint64_t count_lanes(void)
{
    return 2 * ((uint64_t)strip.options.ranks - 1);
}

/* One doorbell for each lane and epoch, by whom it should be, and nothing
 * else. */
static void expect_counts(uint64_t steps)
{
    struct rs_softnic_stats stats = rs_softnic_stats(strip.nic);
    bool proxy = strip.options.proxy;

    cr_expect_eq(stats.doorbells, count_lanes() * steps);
    for (uint32_t i = 0; i < strip.options.ranks; i++) {
        const struct rsched_device_exchange *x = jacobi_of(i)->halo;

        cr_expect_eq(rs_gpu_proxy_taken(strip.ranks[i].proxy),
                     proxy ? steps : 0);
        cr_expect_eq(proxy ? x->num_lanes : x->num_proxied, 0);
        cr_expect_eq(x->complete, steps);
        for (uint32_t l = 0; l < rsched_device_num_lanes(x); l++) {
            cr_expect_eq(rsched_device_lane_at(x, l)->queue.rings, steps);
            cr_expect_eq(rsched_device_lane_at(x, l)->completed, steps);
        }
    }
}

static void check(const struct strip_options *options, uint64_t steps)
{
    strip_init(&strip, options);
    run(steps);
    expect_no_violation();
    cr_expect_eq(strip_compare(&strip, steps), 0);
    expect_counts(steps);
    strip_fini(&strip);
}

Test(gpu, halos_of_all_shapes_and_seeds)
{
    for (unsigned s = 0; s < 60; s++) {
        struct strip_options o = {
            .nic = {.seed = s,
                    .mtu = s % 3 == 0 ? 64 : 0,
                    .late_steps = s % 4 == 0 ? 20 : 0,
                    .check_sources = true},
            .ranks = 1 + s % 4,
            .rows = 1 + s % 5,
            .width = 40 + s,
            .puts = 1 + s % 7,
            .odd_puts = 1 + s % 11,
            .blocks = 64,
            .proxy = s % 2 == 1,
        };

        seed = s;
        check(&o, 30);
    }
}

/* Indices go through 65536, and the ring around, many times. */
static void check_wrap(uint32_t puts, uint32_t blocks, bool proxy)
{
    struct strip_options o = {.nic = {.seed = puts},
                              .ranks = 2,
                              .rows = 1,
                              .width = 34,
                              .puts = puts,
                              .blocks = blocks,
                              .proxy = proxy};
    uint64_t steps;

    strip_init(&strip, &o);
    steps = 3 * UINT64_C(65536) / strip_list_blocks(&strip, 0) + 5;
    run(steps);
    expect_no_violation();
    cr_expect_eq(strip_compare(&strip, steps), 0);
    expect_counts(steps);
    strip_fini(&strip);
}

Test(gpu, indices_wrap)
{
    check_wrap(31, 64, false); /* lists of 32 blocks, two of them a ring */
    check_wrap(13, 128, false);
    check_wrap(31, 64, true);
    check_wrap(31, 32768, false);
}

Test(gpu, lost_doorbells)
{
    for (unsigned s = 0; s < 10; s++) {
        struct strip_options o = {
            .nic = {.seed = s, .drop_percent = s % 2 == 0 ? 100 : 40},
            .ranks = 3,
            .rows = 2,
            .width = 30,
            .puts = 3,
            .blocks = 32,
            .proxy = s % 3 == 0};

        seed = s;
        check(&o, 50);
    }
}

/* The two halves of the register take turns. */
Test(gpu, doorbells_alternate)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct strip_options o = {.nic = {.seed = 8},
                              .ranks = 2,
                              .rows = 1,
                              .width = 8,
                              .puts = 1,
                              .blocks = 8};
    _Atomic uint64_t *halves[2];

    strip_init(&strip, &o);
    halves[0] = strip.ranks[0].queues[1].doorbell;
    halves[1] =
        halves[0] + strip.ranks[0].queues[1].doorbell_bytes / sizeof(uint64_t);
    for (uint64_t k = 0; k < 6; k++) {
        cr_assert_eq(rsched_device_start(jacobi_of(0)->halo, &g), 0);
        cr_expect_neq(atomic_load(halves[k % 2]), 0);
        cr_expect_eq(atomic_load(halves[1 - k % 2]), 0);
        cr_assert_eq(rsched_device_start(jacobi_of(1)->halo, &g), 0);
        rs_softnic_settle(strip.nic);
        cr_assert_eq(rsched_device_wait(jacobi_of(0)->halo, &g), 0);
        cr_assert_eq(rsched_device_wait(jacobi_of(1)->halo, &g), 0);
    }
    strip_fini(&strip);
}

/* A neighbor may be an epoch ahead, and then writes the other set; what was
 * waited for stays until the next start. */
Test(gpu, a_neighbor_that_is_ahead)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct strip_options o = {.nic = {.seed = 7},
                              .ranks = 2,
                              .rows = 1,
                              .width = 40,
                              .puts = 2,
                              .blocks = 16};
    struct jacobi *a, *b;
    bool done = true;

    strip_init(&strip, &o);
    a = jacobi_of(0);
    b = jacobi_of(1);
    for (uint64_t k = 0; k < 9; k++) {
        /* Rank 1 reads row 0 of the set, which row 1 of rank 0 goes to. */
        double *row = a->grid[k % 2] + o.width;
        const double *halo = b->grid[k % 2], *next = b->grid[(k + 1) % 2];

        if (k == 0) {
            row[3] = 1000;
            cr_assert_eq(rsched_device_start(a->halo, &g), 0);
        }
        cr_assert_eq(rsched_device_start(b->halo, &g), 0);
        rs_softnic_settle(strip.nic);
        cr_assert_eq(rsched_device_wait(a->halo, &g), 0);
        a->grid[(k + 1) % 2][o.width + 3] = 1001 + (double)k;
        cr_assert_eq(rsched_device_start(a->halo, &g), 0);
        rs_softnic_settle(strip.nic);
        cr_assert_eq(next[3], 1001 + (double)k); /* it is ahead */
        cr_assert_eq(rsched_device_test(a->halo, &g, &done), 0);
        cr_assert(!done);
        cr_assert_eq(rsched_device_start(a->halo, &g), RSCHED_ESTATE);
        cr_assert_eq(rsched_device_wait(b->halo, &g), 0);
        cr_assert_eq(halo[3], 1000 + (double)k);
    }
    expect_no_violation();
    strip_fini(&strip);
}

/* ---- what must not be done ---- */

static void begin(uint32_t ranks, struct rs_softnic_options nic)
{
    strip_init(&strip, &(struct strip_options){.nic = nic,
                                               .ranks = ranks,
                                               .rows = 2,
                                               .width = 64,
                                               .puts = 3,
                                               .blocks = 8});
}

Test(gpu, a_start_before_the_wait_changes_nothing)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct rsched_device_exchange *x;

    begin(2, (struct rs_softnic_options){.seed = 1});
    x = jacobi_of(0)->halo;
    cr_expect_eq(rsched_device_start(x, &g), 0);
    cr_expect_eq(rsched_device_start(x, &g), RSCHED_ESTATE);
    cr_expect_eq(x->epochs, 1);
    cr_expect_eq(x->lanes[0].queue.rings, 1);
    rs_softnic_settle(strip.nic);
    /* The card is through, but the neighbor has not started. */
    rsched_device_lane_poll(&x->lanes[0]);
    cr_expect_eq(x->lanes[0].completed, 1);
    cr_expect_eq(rsched_device_start(x, &g), RSCHED_ESTATE);
    cr_expect_eq(rsched_device_start(jacobi_of(1)->halo, &g), 0);
    rs_softnic_settle(strip.nic);
    cr_expect_eq(rsched_device_wait(x, &g), 0);
    cr_expect_eq(rsched_device_start(x, &g), 0);
    rs_softnic_settle(strip.nic);
    expect_no_violation();
    strip_fini(&strip);
}

/* Who believes in a completion that has not come writes WQEs that the card has. */
Test(gpu, a_list_written_too_early_is_seen)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct rsched_device_exchange *x;

    begin(2, (struct rs_softnic_options){.seed = 1, .late_steps = 1000});
    x = jacobi_of(0)->halo;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        for (int i = 0; i < 4; i++)
            rs_softnic_step(strip.nic);
        x->epochs = epoch + 1;
        rsched_device_begin(x, &g, epoch);
    }
    rs_softnic_settle(strip.nic);
    cr_expect_neq(strlen(rs_softnic_violation(strip.nic)), 0);
    strip_fini(&strip);
}

Test(gpu, an_index_that_is_not_patched_is_seen)
{
    struct rsched_device_exchange *x;

    begin(2, (struct rs_softnic_options){.seed = 1});
    x = jacobi_of(0)->halo;
    rsched_device_lane_ring(&x->lanes[0], 0); /* as the host has left them */
    rs_softnic_settle(strip.nic);
    expect_no_violation();
    rsched_device_lane_ring(&x->lanes[0], 1);
    rs_softnic_settle(strip.nic);
    cr_expect(strstr(rs_softnic_violation(strip.nic), "index") != NULL ||
                  strstr(rs_softnic_violation(strip.nic), "doorbell") != NULL,
              "%s", rs_softnic_violation(strip.nic));
    strip_fini(&strip);
}

/* ---- failures ---- */

static void check_failure(uint64_t wqe, uint8_t syndrome, bool proxy,
                          const char *part)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct strip_rank *r = &strip.ranks[1];
    bool done = false;
    int status = 0;

    strip_init(&strip,
               &(struct strip_options){.nic = {.seed = wqe, .late_steps = 3},
                                       .ranks = 3,
                                       .rows = 2,
                                       .width = 64,
                                       .puts = 3,
                                       .blocks = 8,
                                       .proxy = proxy});
    rs_softnic_qp_inject(r->qps[1], wqe, syndrome, 0x77);
    for (uint64_t epoch = 0; epoch < 20 && status == 0; epoch++) {
        for (uint32_t i = 0; i < 3; i++)
            cr_assert_eq(rsched_device_start(jacobi_of(i)->halo, &g), 0);
        for (done = false; !done && status == 0;) {
            for (uint32_t i = 0; i < 3; i++)
                rs_gpu_proxy_step(strip.ranks[i].proxy);
            rs_softnic_settle(strip.nic);
            status = rsched_device_test(jacobi_of(1)->halo, &g, &done);
        }
        /* The others, which may have got all that they wanted. */
        for (uint32_t i = 0; i < 3 && status == 0; i++)
            rsched_device_test(jacobi_of(i)->halo, &g, &done);
    }
    cr_expect_eq(status, RSCHED_EPEER);
    cr_expect_eq(rsched_device_start(jacobi_of(1)->halo, &g), RSCHED_EPEER);
    cr_expect_eq(rsched_device_wait(jacobi_of(1)->halo, &g), RSCHED_EPEER);
    cr_expect_eq(rsched_device_lane_at(jacobi_of(1)->halo, 1)->failure.syndrome,
                 syndrome);
    cr_expect_eq(rs_gpu_exchange_check(r->exchange), RSCHED_EPEER);
    cr_expect(strstr(rsched_last_error(), part) != NULL, "%s",
              rsched_last_error());
    expect_no_violation();
    strip_fini(&strip);
}

Test(gpu, a_wqe_that_fails_is_named)
{
    for (int proxy = 0; proxy < 2; proxy++) {
        check_failure(0, 0x13, proxy, "operation 0 (index 0): remote access");
        check_failure(2, 0x15, proxy, "operation 2 (index 2): transport");
        check_failure(3, 0x04, proxy, "operation 3 (index 3): local prot");
        check_failure(13, 0x15, proxy, "operation 1 (index 13): transport");
    }
}

/* A neighbor that is gone without a trace. */
Test(gpu, the_host_ends_a_wait)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct strip_rank *r = &strip.ranks[0];

    begin(2, (struct rs_softnic_options){.seed = 1});
    cr_expect_eq(rs_gpu_exchange_check(r->exchange), 0);
    cr_expect_eq(rsched_device_start(r->jacobi.halo, &g), 0);
    rs_softnic_settle(strip.nic);
    rs_gpu_exchange_stop(r->exchange, RSCHED_ETIMEOUT);
    cr_expect_eq(rsched_device_wait(r->jacobi.halo, &g), RSCHED_ETIMEOUT);
    cr_expect_eq(rsched_device_start(r->jacobi.halo, &g), RSCHED_ETIMEOUT);
    cr_expect_eq(rs_gpu_exchange_check(r->exchange), RSCHED_ETIMEOUT);
    strip_fini(&strip);
}

Test(gpu, a_completion_that_nobody_asked_for)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct rsched_device_exchange *x;
    bool done = false;

    begin(2, (struct rs_softnic_options){.seed = 1});
    x = jacobi_of(0)->halo;
    cr_expect_eq(rsched_device_start(x, &g), 0);
    rs_softnic_settle(strip.nic);
    x->lanes[0].posted = 0;
    cr_expect_eq(rsched_device_test(x, &g, &done), RSCHED_ESYS);
    cr_expect_eq(rs_gpu_exchange_check(strip.ranks[0].exchange), RSCHED_ESYS);
    strip_fini(&strip);
}

/* ---- making ---- */

/* A GPU that has the host's memory at addresses of its own. */
static uint64_t seen_by_gpu;
static int mapped;

static int map_elsewhere(void *arg, void *host, uint64_t bytes,
                         bool is_register, void **there)
{
    *there = host == arg && !is_register && bytes == sizeof(seen_by_gpu)
                 ? &seen_by_gpu
                 : host;
    mapped++;
    return 0;
}

static void unmap_elsewhere(void *arg, void *host, void *there)
{
    if (host == arg)
        cr_expect_eq(there, &seen_by_gpu);
    mapped--;
}

/* Kernels look for notifications by themselves, also where a proxy starts. */
Test(gpu, notifications_are_mapped)
{
    struct rs_gpu_memory memory = rs_gpu_memory_plain;
    const struct pair_options options = {.blocks = 64};
    const struct rs_rdma_op notice = {.opcode = RS_RDMA_WRITE,
                                      .stamp = RS_STAMP_EPOCH};
    uint64_t arrived = 0;
    struct pair pair;
    const struct rs_gpu_lane lane = {.queue = &pair.a.memory,
                                     .ops = {&notice, &notice},
                                     .num_ops = {1, 1},
                                     .arrived = &arrived};

    pair_init(&pair, &options);
    memory.map = map_elsewhere;
    memory.unmap = unmap_elsewhere;
    memory.arg = &arrived;
    for (int with_proxy = 0; with_proxy < 2; with_proxy++) {
        struct rs_gpu_exchange *x;
        struct rs_gpu_proxy *proxy;

        cr_assert_eq(rs_gpu_proxy_create(&memory, 4, &proxy), 0);
        cr_assert_eq(rs_gpu_exchange_create(&memory, &lane, 1,
                                            with_proxy ? proxy : NULL, &x), 0,
                     "%s", rsched_last_error());
        cr_expect_eq(
            rsched_device_lane_at(rs_gpu_exchange_view(x), 0)->arrived,
            &seen_by_gpu);
        rs_gpu_exchange_destroy(x);
        rs_gpu_proxy_destroy(proxy);
        cr_expect_eq(mapped, 0);
    }
    pair_fini(&pair);
}

static void refuse(struct rs_gpu_lane lane, int error, const char *part)
{
    struct rs_gpu_exchange *x;

    cr_expect_eq(rs_gpu_exchange_create(&rs_gpu_memory_plain, &lane, 1, NULL,
                                        &x),
                 error);
    cr_expect(strstr(rsched_last_error(), part) != NULL, "%s",
              rsched_last_error());
}

Test(gpu, what_kernels_cannot_start_is_refused)
{
    struct rs_rdma_piece piece = {.address = 4096, .bytes = 8};
    struct rs_rdma_op write = {.opcode = RS_RDMA_WRITE,
                               .num_pieces = 1,
                               .pieces = &piece};
    struct rs_rdma_op notify = {.opcode = RS_RDMA_WRITE,
                                .stamp = RS_STAMP_EPOCH};
    struct rs_rdma_op good[2] = {write, notify}, bad[2] = {write, notify};
    struct rs_rdma_op many[5] = {write, write, write, write, notify};
    struct rs_mlx5_memory queue, odd;
    struct rs_gpu_lane lane = {.queue = &queue,
                               .ops = {good, good},
                               .num_ops = {2, 2}};
    uint64_t arrived = 0;

    begin(2, (struct rs_softnic_options){.seed = 1});
    queue = strip.ranks[0].queues[1];
    lane.arrived = &arrived;
    bad[0].inlined = true;
    lane.ops[1] = bad;
    refuse(lane, RSCHED_EINVAL, "nothing but the notification");
    lane.ops[1] = good;
    lane.num_ops[1] = 1;
    refuse(lane, RSCHED_EINVAL, "without a notification");
    lane.ops[1] = many;
    lane.num_ops[1] = 5;
    refuse(lane, RSCHED_ELIMIT, "does not fit into a send queue of 4");
    odd = queue;
    odd.cq_entries = 4;
    lane.queue = &odd;
    lane.num_ops[1] = 2;
    lane.ops[1] = good;
    refuse(lane, RSCHED_ENOTSUP, "completion queue of 4");
    strip_fini(&strip);
}

/* A neighbor that is gone ends waits for what it has not announced: neither those
 * for others nor those for what it has taken and not acknowledged yet. */
Test(gpu, only_what_the_gone_have_not_announced_is_missed)
{
    const struct rsched_device_group g = rsched_device_thread();
    const uint64_t announced[] = {1, 2, 1};
    const int32_t nobody[] = {0, 0, 0, 0};
    const int32_t gone[] = {1, 0, RSCHED_EPEER, RSCHED_EPEER};
    struct rsched_device_lane lanes[3] = {0};
    struct rsched_device_exchange x = {
        .lanes = lanes, .num_lanes = 3, .epochs = 2, .gone = nobody};

    for (int i = 0; i < 3; i++)
        lanes[i] = (struct rsched_device_lane){.arrived = &announced[i],
                                               .completed = 1};
    rsched_device_miss(&x, &g);
    cr_assert_eq(lanes[2].status, 0);
    x.gone = gone;
    rsched_device_miss(&x, &g);
    cr_assert_eq(lanes[0].status, 0, "it is there");
    cr_assert_eq(lanes[1].status, 0, "it has announced all");
    cr_assert_eq(lanes[2].status, RSCHED_EPEER);
    cr_assert_eq(rsched_device_lane_test(&x, 2), RSCHED_EPEER);
}
