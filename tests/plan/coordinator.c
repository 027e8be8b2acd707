/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way puts in GPU memory take. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include <rsched/rsched.h>

#include "librsched/base/coordinator.h"
#include "models/ways.h"

#define COST(o, rate) {(o), 1, {{0, UINT64_C(rate) * 1000000}}}
#define AT(way, distance) gpu[RS_WAY_##way - RS_NUM_HOST_WAYS]\
[RS_DISTANCE_##distance]

/* On one NUMA node, ps and bytes: staged L + S + o 3 us, 100 ps/B, gap 0.2 us;
 * IPC 9 us, 50 ps/B, gap 8.2 us. On one GPU IPC costs a quarter. GDRCopy costs
 * 1 us and 10 ns/B on one GPU only. */
static const struct rs_ways simple = {
    .AT(STAGED, SAME_NUMA) = {true, 1000000, COST(500000, 10000),
                              COST(200000, 10000), 0, 1500000},
    .AT(STAGED, SAME_GPU) = {true, 1000000, COST(500000, 10000),
                             COST(200000, 10000), 0, 1500000},
    .AT(CUDA_IPC, SAME_NUMA) = {true, 5000000, COST(3000000, 20000),
                                COST(8200000, 20000), 0, 1000000},
    .AT(CUDA_IPC, SAME_GPU) = {true, 1000000, COST(1000000, 80000),
                               COST(2050000, 80000), 0, 250000},
    .AT(GDRCOPY, SAME_GPU) = {true, 500000, COST(500000, 100),
                              COST(500000, 100), 0, 0},
};

static struct rs_gpu_put put_of(uint64_t bytes, enum rs_distance distance)
{
    return (struct rs_gpu_put){bytes, distance, RS_GPU_WAYS};
}

static enum rs_way way_of(uint64_t bytes, enum rs_distance distance,
                          uint64_t in_flight)
{
    const struct rs_gpu_put put = put_of(bytes, distance);

    return rs_gpu_way(&simple, &put, in_flight);
}

Test(coordinator, a_time_has_all_parameters)
{
    const struct rs_way_costs *staged =
        rs_gpu_way_costs(&simple, RS_WAY_STAGED, RS_DISTANCE_SAME_NUMA);

    cr_assert_eq(rs_gpu_way_time(staged, 1000, 1),
                 1000000 + 1500000 + 500000 + 100000);
    cr_assert_eq(rs_gpu_way_time(staged, 1000, 0),
                 rs_gpu_way_time(staged, 1000, 1));
    cr_assert_eq(rs_gpu_way_time(staged, 1000, 5),
                 3100000 + 4 * (200000 + 100000));
    cr_assert_eq(rs_gpu_way_time(staged, UINT64_MAX, 2), UINT64_MAX);
    cr_assert_eq(rs_gpu_way_time(staged, 1000, UINT64_MAX), UINT64_MAX);
}

/* 6 us are saved at 50 ps/B: at 120000 B both cost the same, and the first one
 * is taken. With two in flight it takes 14 us at twice 50 ps/B. */
Test(coordinator, the_cheapest_depends_on_what_is_in_flight)
{
    cr_assert_eq(way_of(120000, RS_DISTANCE_SAME_NUMA, 1), RS_WAY_STAGED);
    cr_assert_eq(way_of(120001, RS_DISTANCE_SAME_NUMA, 1), RS_WAY_CUDA_IPC);
    cr_assert_eq(way_of(120001, RS_DISTANCE_SAME_NUMA, 2), RS_WAY_STAGED);
    cr_assert_eq(way_of(140000, RS_DISTANCE_SAME_NUMA, 2), RS_WAY_STAGED);
    cr_assert_eq(way_of(140001, RS_DISTANCE_SAME_NUMA, 2), RS_WAY_CUDA_IPC);
}

Test(coordinator, the_cheapest_depends_on_the_distance)
{
    cr_assert_eq(way_of(64, RS_DISTANCE_SAME_NUMA, 1), RS_WAY_STAGED);
    cr_assert_eq(way_of(64, RS_DISTANCE_SAME_GPU, 1), RS_WAY_GDRCOPY);
    cr_assert_eq(way_of(1024, RS_DISTANCE_SAME_GPU, 1), RS_WAY_CUDA_IPC);
}

Test(coordinator, what_is_not_possible_is_not_chosen)
{
    struct rs_gpu_put put = put_of(1 << 20, RS_DISTANCE_SAME_NUMA);
    uint32_t ipc = RS_WAY_BIT(RS_WAY_CUDA_IPC);

    cr_assert_eq(rs_gpu_way(&simple, &put, 1), RS_WAY_CUDA_IPC);
    put.possible &= ~ipc;
    cr_assert_eq(rs_gpu_way(&simple, &put, 1), RS_WAY_STAGED);
    /* The only one that is possible has no costs. */
    put.possible = RS_WAY_BIT(RS_WAY_GDR_LOOPBACK);
    cr_assert_eq(rs_gpu_way(&simple, &put, 1), RS_WAY_GDR_LOOPBACK);
    put.possible = 0;
    cr_assert_eq(rs_gpu_way(&simple, &put, 1), RS_WAY_STAGED);
    /* Nothing is known of this distance. */
    put = put_of(1, RS_DISTANCE_OTHER_NUMA);
    cr_assert_eq(rs_gpu_way(&simple, &put, 1), RS_WAY_CUDA_IPC);
    put.possible &= ~ipc;
    cr_assert_eq(rs_gpu_way(&simple, &put, 1), RS_WAY_STAGED);
}

/* A put of 130000 B: alone IPC is cheaper by 0.5 of 16 us, with two in flight
 * staged is by 1 of 30.2 us, with 100 by 148 of 1470.8 us. */
Test(coordinator, counters_count_in_an_update_only)
{
    const struct rs_gpu_put put = put_of(130000, RS_DISTANCE_SAME_NUMA);
    struct rs_coordinator c;
    enum rs_way way;

    rs_coordinator_init(&c);
    way = rs_gpu_way(&simple, &put, rs_coordinator_in_flight(&c, 1));
    cr_assert_eq(way, RS_WAY_CUDA_IPC);
    for (int i = 0; i < RS_COORDINATOR_STARTS - 1; i++) {
        rs_coordinator_started(&c, 100);
        cr_assert_eq(rs_coordinator_now(&c), 100);
        cr_assert_eq(rs_coordinator_in_flight(&c, 1), 1);
        rs_coordinator_ended(&c, 100);
    }
    cr_assert_not(rs_coordinator_update(&c)); /* too few starts */
    rs_coordinator_started(&c, 100);
    cr_assert_eq(rs_coordinator_in_flight(&c, 1), 1);
    cr_assert(rs_coordinator_update(&c));
    cr_assert_eq(rs_coordinator_in_flight(&c, 1), 100);
    cr_assert_eq(rs_coordinator_in_flight(&c, 101), 101);
    cr_assert_eq(rs_gpu_way_again(&simple, &put, 100, way), RS_WAY_STAGED);
    rs_coordinator_ended(&c, 100);
    cr_assert_eq(rs_coordinator_now(&c), 0);
    cr_assert_not(rs_coordinator_update(&c)); /* nothing since */

    /* One at a time again. */
    for (int i = 0; i < RS_COORDINATOR_STARTS; i++) {
        rs_coordinator_started(&c, 1);
        rs_coordinator_ended(&c, 1);
    }
    cr_assert(rs_coordinator_update(&c));
    cr_assert_eq(rs_coordinator_in_flight(&c, 1), 1);
}

/* Exchanges that are started together: each has all of them beside it. */
Test(coordinator, puts_of_other_exchanges_are_seen)
{
    struct rs_coordinator c;

    rs_coordinator_init(&c);
    for (int i = 0; i < RS_COORDINATOR_STARTS; i++)
        rs_coordinator_started(&c, 2);
    cr_assert(rs_coordinator_update(&c)); /* none has ended yet */
    cr_assert_eq(rs_coordinator_in_flight(&c, 2), 2 * RS_COORDINATOR_STARTS);
    for (int i = 0; i < RS_COORDINATOR_STARTS; i++)
        rs_coordinator_ended(&c, 2);
    cr_assert_not(rs_coordinator_update(&c)); /* ends are no starts */
    for (int window = 0; window < 4; window++) {
        for (int i = 0; i < 7; i++)
            rs_coordinator_started(&c, 1);
        for (int i = 0; i < 7; i++)
            rs_coordinator_ended(&c, 1);
    }
    cr_assert(rs_coordinator_update(&c));
    cr_assert_eq(rs_coordinator_in_flight(&c, 1), 7);
}

/* By updates that change nothing, too. */
Test(coordinator, too_early_an_update_ends_no_count)
{
    struct rs_coordinator c;

    rs_coordinator_init(&c);
    for (int i = 0; i < RS_COORDINATOR_STARTS; i++) {
        cr_assert_not(rs_coordinator_update(&c));
        rs_coordinator_started(&c, 1);
    }
    for (int i = 0; i < RS_COORDINATOR_STARTS; i++)
        rs_coordinator_ended(&c, 1);
    cr_assert(rs_coordinator_update(&c));
    cr_assert_eq(rs_coordinator_in_flight(&c, 1), RS_COORDINATOR_STARTS);
}

/* Three at any time, each started when another one has ended. */
Test(coordinator, puts_that_take_turns_are_as_many_as_there_are_at_once)
{
    struct rs_coordinator c;

    rs_coordinator_init(&c);
    rs_coordinator_started(&c, 1);
    rs_coordinator_started(&c, 1);
    for (int i = 0; i < RS_COORDINATOR_STARTS; i++) {
        rs_coordinator_started(&c, 1);
        rs_coordinator_ended(&c, 1);
    }
    cr_assert(rs_coordinator_update(&c));
    cr_assert_eq(rs_coordinator_in_flight(&c, 1), 3);
}

/* More than there is room for. */
Test(coordinator, the_mean_of_very_many_is_theirs)
{
    const uint64_t many = UINT64_C(1) << 35;
    struct rs_coordinator c;

    rs_coordinator_init(&c);
    for (int i = 0; i < 100; i++) {
        rs_coordinator_started(&c, many);
        rs_coordinator_ended(&c, many);
    }
    cr_assert(rs_coordinator_update(&c));
    cr_assert_eq(rs_coordinator_in_flight(&c, 1), many);
}

Test(coordinator, a_put_does_not_go_to_and_fro)
{
    struct rs_gpu_put put = put_of(125000, RS_DISTANCE_SAME_NUMA);

    /* A quarter of a microsecond of 16 is less than a thirty-second. */
    cr_assert_eq(rs_gpu_way(&simple, &put, 1), RS_WAY_CUDA_IPC);
    cr_assert_eq(rs_gpu_way_again(&simple, &put, 1, RS_WAY_STAGED),
                 RS_WAY_STAGED);
    put.bytes = 200000; /* 19 us, 23 us */
    cr_assert_eq(rs_gpu_way_again(&simple, &put, 1, RS_WAY_STAGED),
                 RS_WAY_CUDA_IPC);
    put.possible = RS_WAY_BIT(RS_WAY_CUDA_IPC);
    put.bytes = 1; /* much dearer, but what was there is gone */
    cr_assert_eq(rs_gpu_way_again(&simple, &put, 1, RS_WAY_STAGED),
                 RS_WAY_CUDA_IPC);
    put.possible = RS_GPU_WAYS;
    put.distance = RS_DISTANCE_OTHER_NUMA; /* no costs */
    cr_assert_eq(rs_gpu_way_again(&simple, &put, 1, RS_WAY_GDRCOPY),
                 RS_WAY_GDRCOPY);
    put.distance = RS_DISTANCE_SAME_NUMA; /* costs, but not of this one */
    cr_assert_eq(rs_gpu_way_again(&simple, &put, 1, RS_WAY_GDRCOPY),
                 RS_WAY_STAGED);
}

/* C-GDR, table III. The benchmark of bandwidth has 64 messages in flight. */

enum { WINDOW = 64 };

static struct rsched_machine *cgdr;
static const struct rs_ways *reference;

static void open_reference(void)
{
    cr_assert_eq(rsched_machine_builtin("cgdr-k80-edr", &cgdr), 0, "%s",
                 rsched_last_error());
    reference = rs_machine_ways(cgdr);
    cr_assert_not_null(reference);
}

static void close_reference(void)
{
    rsched_machine_destroy(cgdr);
}

TestSuite(cgdr, .init = open_reference, .fini = close_reference);

static void check_switches(uint64_t in_flight,
                           const struct rs_way_switch *expected)
{
    struct rs_way_switch list[RS_WAY_SWITCHES];
    size_t count = rs_gpu_way_switches(reference, RS_DISTANCE_SAME_NUMA,
                                       RS_GPU_WAYS, in_flight, list);

    cr_assert_eq(count, 3);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(list[i].way, expected[i].way, "%s",
                     rs_way_name(list[i].way));
        cr_assert_eq(list[i].bytes, expected[i].bytes, "%llu",
                     (unsigned long long)list[i].bytes);
    }
}

Test(cgdr, latency_switches_above_16_B_and_at_16_KB)
{
    const struct rs_way_switch expected[] = {{1, RS_WAY_GDRCOPY},
                                             {17, RS_WAY_GDR_LOOPBACK},
                                             {16384, RS_WAY_CUDA_IPC}};

    check_switches(1, expected);
}

Test(cgdr, bandwidth_switches_above_16_B_and_above_512_KB)
{
    const struct rs_way_switch expected[] = {{1, RS_WAY_GDRCOPY},
                                             {17, RS_WAY_GDR_LOOPBACK},
                                             {524289, RS_WAY_CUDA_IPC}};

    check_switches(WINDOW, expected);
}

/* Without CUDA IPC, as between containers that do not share what it needs,
 * everything above 16 B goes through the NIC. */
Test(cgdr, what_containers_forbid_is_left_out)
{
    struct rs_way_switch list[RS_WAY_SWITCHES];
    uint32_t possible = RS_GPU_WAYS & ~RS_WAY_BIT(RS_WAY_CUDA_IPC);

    cr_assert_eq(rs_gpu_way_switches(reference, RS_DISTANCE_SAME_NUMA, possible,
                                     1, list), 2);
    cr_assert_eq(list[1].bytes, 17);
    cr_assert_eq(list[1].way, RS_WAY_GDR_LOOPBACK);
}

static double us_of(enum rs_way way, uint64_t bytes, uint64_t in_flight)
{
    const struct rs_way_costs *costs =
        rs_gpu_way_costs(reference, way, RS_DISTANCE_SAME_NUMA);

    return (double)rs_gpu_way_time(costs, bytes, in_flight) / 1e6;
}

static double mb_per_s(enum rs_way way, uint64_t bytes)
{
    return WINDOW * (double)bytes / us_of(way, bytes, WINDOW);
}

static void check_near(double found, double told)
{
    cr_assert_lt(fabs(found / told - 1), 0.02, "%f, not %f", found, told);
}

/* What the text says in numbers. */
Test(cgdr, costs_are_those_of_the_paper)
{
    check_near(us_of(RS_WAY_GDRCOPY, 4, 1), 1.57);
    check_near(us_of(RS_WAY_GDR_LOOPBACK, 4, 1), 2.1);
    check_near(us_of(RS_WAY_GDR_LOOPBACK, 8192, 1), 7.34);
    check_near(mb_per_s(RS_WAY_GDRCOPY, 16), 12.55);
    check_near(mb_per_s(RS_WAY_GDR_LOOPBACK, 16), 10.14);
    check_near(mb_per_s(RS_WAY_GDR_LOOPBACK, 262144), 6430);
    check_near(us_of(RS_WAY_CUDA_IPC, 4 << 20, 1),
               (1 - 0.46) * us_of(RS_WAY_GDR_LOOPBACK, 4 << 20, 1));
    check_near(mb_per_s(RS_WAY_CUDA_IPC, 4 << 20),
               (1 + 0.32) * mb_per_s(RS_WAY_GDR_LOOPBACK, 4 << 20));
}

Test(cgdr, a_file_may_say_nothing_of_host_memory)
{
    cr_assert_not(rs_ways_have_host(reference));
    cr_assert(rs_ways_have_gpu(reference));
}

#define HEAD "rsched: machine/1\nname: x\nextends: host\nways:\n"
#define COSTS "{L: 1 us, S: 2 us, o: 3 us, O: [{rate: 4 MB/s}], g: 5 us, " \
              "G: [{rate: 6 MB/s}]}"

static int parse(const char *text, struct rsched_machine **machine)
{
    char all[2048];
    int length = snprintf(all, sizeof(all), "%s%s", HEAD, text);

    return rsched_machine_parse("a", all, (size_t)length, machine);
}

static struct rs_ways written_and_read(const char *text)
{
    struct rsched_machine *machine, *again;
    struct rs_ways ways;
    size_t length;
    char *written;
    FILE *out;

    cr_assert_eq(parse(text, &machine), 0, "%s", rsched_last_error());
    out = open_memstream(&written, &length);
    cr_assert_eq(rsched_machine_write(machine, out), 0);
    fclose(out);
    cr_assert_eq(rsched_machine_parse("b", written, length, &again), 0,
                 "%s\n%s", rsched_last_error(), written);
    ways = *rs_machine_ways(machine);
    cr_assert_eq(memcmp(rs_machine_ways(machine), rs_machine_ways(again),
                        sizeof(ways)), 0, "%s", written);
    free(written);
    rsched_machine_destroy(machine);
    rsched_machine_destroy(again);
    return ways;
}

Test(coordinator, a_machine_keeps_them)
{
    struct rs_ways ways = written_and_read("  staged: " COSTS "\n");

    for (int d = 0; d < RS_NUM_DISTANCES; d++) {
        const struct rs_way_costs *c = rs_gpu_way_costs(&ways, RS_WAY_STAGED, d);

        cr_assert(c->given);
        cr_assert_eq(c->sync, 2000000);
        cr_assert_eq(rs_gpu_way_time(c, 4, 1), 7000000);
    }
    ways = written_and_read("  cuda-ipc: {other-numa: " COSTS ", same-gpu: "
                            COSTS "}\n  staged: " COSTS "\n");
    cr_assert(ways.AT(CUDA_IPC, OTHER_NUMA).given);
    cr_assert(ways.AT(CUDA_IPC, SAME_GPU).given);
    cr_assert_not(ways.AT(CUDA_IPC, SAME_NUMA).given);
    cr_assert_not(rs_ways_have_host(&ways));
}

Test(coordinator, a_machine_keeps_those_over_devices)
{
    struct rs_ways ways = written_and_read(
        "  verbs-landing: {L: 1 us, o: 3 us, O: [{rate: 4 MB/s}], g: 5 us, "
        "G: [{rate: 6 MB/s}]}\n");

    cr_assert(rs_ways_have_verbs(&ways));
    cr_assert_not(rs_ways_have_host(&ways));
    cr_assert_eq(rs_way_time(&ways.verbs[RS_VERBS_LANDING], 4), 5000000);
    cr_assert_not(ways.verbs[RS_VERBS_DIRECT].given);
}

Test(coordinator, mistakes_are_told_with_their_place)
{
    static const char *const bad[][2] = {
        {"  staged: 7\n", "a:5:11: "},
        {"  staged: {}\n", "'L'"},
        {"  staged: {same-numa: " COSTS ", near: " COSTS "}\n", "'near'"},
        {"  staged: {near: " COSTS "}\n", "'near'"},
        {"  staged: {same-gpu: {L: 1 us}}\n", "a:5:22: "},
        {"  staged: {L: 1 us, block: 1 us}\n", "'block'"},
        {"  staged: {L: 1 us, S: 2 s, o: 3 us, O: [{rate: 4 MB/s}], g: 5 us, "
         "G: [{rate: 6 MB/s}]}\n", "S is above 1 s"},
        {"  landing: " COSTS "\n", "'S'"},
        {"  verbs-direct: " COSTS "\n", "'S'"},
        {"  verbs-landing: {same-numa: " COSTS "}\n", "'same-numa'"},
        {"  landing: {same-gpu: " COSTS "}\n", "'same-gpu'"},
        {"  pull: {L: 1 us, o: 3 us, O: [{rate: 4 MB/s}], g: 5 us, G: [{rate: "
         "6 MB/s}]}\n  staged: " COSTS "\n", "no key 'landing'"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct rsched_machine *machine;

        cr_assert_eq(parse(bad[i][0], &machine), RSCHED_EPARSE, "%s",
                     bad[i][0]);
        cr_assert_not_null(strstr(rsched_last_error(), bad[i][1]), "%s: %s",
                           bad[i][0], rsched_last_error());
        cr_assert_eq(strncmp(rsched_last_error(), "a:", 2), 0, "%s",
                     rsched_last_error());
    }
}
