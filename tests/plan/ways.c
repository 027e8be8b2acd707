/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs of ways within a node: fitted, read, written, and what follows. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "models/ways.h"

/* Uniform in [-1, 1]. */
static double draw(unsigned *seed)
{
    return 2.0 * rand_r(seed) / RAND_MAX - 1;
}

static size_t sample(const struct rs_way_cost *cost, uint64_t latency,
                     double noise, unsigned seed, struct rs_way_sample *samples)
{
    size_t count = 0;

    for (uint64_t bytes = 8; bytes <= UINT64_C(32) << 20; bytes *= 2)
        samples[count++] = (struct rs_way_sample){
            bytes, ((double)latency + (double)rs_way_cost_at(cost, bytes)) *
                       (1 + noise * draw(&seed))};
    return count;
}

static const struct rs_way_cost known = {
    .message = 700000,
    .num_ranges = 3,
    .ranges = {{0, UINT64_C(12000) * 1000000},
               {65536, UINT64_C(30000) * 1000000},
               {2097152, UINT64_C(6000) * 1000000}},
};

Test(ways, a_fit_recovers_what_was_put_in)
{
    struct rs_way_sample samples[RS_WAY_SAMPLES];
    struct rs_way_cost found;
    size_t count = sample(&known, 250000, 0, 1, samples);
    double error;

    cr_assert_eq(rs_way_fit(samples, count, 250000, &found, &error), 0);
    cr_assert_lt(error, 0.001);
    cr_assert_eq(found.num_ranges, known.num_ranges);
    cr_assert_lt(fabs((double)found.message - 700000.0), 1000);
    for (uint32_t i = 0; i < known.num_ranges; i++) {
        cr_assert_eq(found.ranges[i].from, known.ranges[i].from);
        cr_assert_lt(fabs((double)found.ranges[i].rate /
                              (double)known.ranges[i].rate - 1), 0.01);
    }
}

/* With noise of up to 4 % its times are within 5 % at every size, and it has no
 * more ranges than noise accounts for. */
Test(ways, a_fit_is_not_led_astray_by_noise)
{
    for (unsigned seed = 1; seed <= 30; seed++) {
        struct rs_way_sample samples[RS_WAY_SAMPLES];
        struct rs_way_cost found;
        size_t count = sample(&known, 250000, 0.04, seed, samples);
        double error;

        cr_assert_eq(rs_way_fit(samples, count, 250000, &found, &error), 0);
        cr_assert_lt(error, 0.04);
        cr_assert_lt(fabs((250000 + (double)found.message) / 950000.0 - 1),
                     0.05, "seed %u: o is %f us", seed,
                     (double)found.message / 1e6);
        for (uint64_t bytes = 8; bytes <= UINT64_C(32) << 20; bytes *= 2) {
            double truth = 250000 + (double)rs_way_cost_at(&known, bytes);
            double fitted = 250000 + (double)rs_way_cost_at(&found, bytes);

            cr_assert_lt(fabs(fitted / truth - 1), 0.05,
                         "seed %u: %f at %llu B", seed, fitted / truth,
                         (unsigned long long)bytes);
        }
    }
}

Test(ways, a_fit_has_no_negative_costs)
{
    /* Times that fall: no cost does. */
    const struct rs_way_sample falling[] = {{8, 1e6}, {64, 9e5}, {512, 8e5}};
    /* What is waited for is more than all that was measured. */
    const struct rs_way_sample fast[] = {{8, 1e5}, {64, 1e5}, {512, 2e5}};
    struct rs_way_cost cost;
    double error;

    cr_assert_eq(rs_way_fit(falling, 3, 0, &cost, &error), 0);
    cr_assert_lt(error, 0.2);
    cr_assert_eq(rs_way_fit(fast, 3, 1000000, &cost, &error), 0);
    cr_assert_eq(cost.message, 0);
    cr_assert_gt(error, 1);
    cr_assert_eq(rs_way_fit(fast, 1, 0, &cost, &error), RSCHED_EINVAL);
    cr_assert_eq(rs_way_fit((struct rs_way_sample[]){{8, 1}, {8, 2}}, 2, 0,
                            &cost, &error), RSCHED_EINVAL);
}

#define COST(o, rate) {(o), 1, {{0, UINT64_C(rate) * 1000000}}}

/* Landing: 0.3 us and 100 ps/B. Pull: 1.1 us and 50 ps/B. CMA: 3.3 us and
 * 40 ps/B. So a pull is cheaper by a sixteenth above 18714 B, CMA above
 * 56162 B. */
static const struct rs_host_ways simple = {
    .of[RS_WAY_LANDING] = {true, 100000, COST(200000, 10000),
                           COST(200000, 10000), 0, 0},
    .of[RS_WAY_PULL] = {true, 200000, COST(900000, 20000),
                        COST(900000, 20000), 0, 0},
    .of[RS_WAY_SHARED] = {true, 200000, COST(900000, 20000),
                          COST(25900000, 40000), 0, 0},
    .of[RS_WAY_CMA] = {true, 200000, COST(3100000, 25000),
                       COST(3100000, 25000), 100000, 0},
};

/* So nobody tries out another way, least of all while this one is measured. */
Test(ways, costs_that_somebody_sets_are_no_guess)
{
    static const struct rs_host_ways host;
    struct rs_ways ways = {.host_guessed = true};

    rs_ways_set_host(&ways, &host);
    cr_assert_not(ways.host_guessed);
}

Test(ways, the_cheapest_is_chosen)
{
    struct rs_way_parts parts = {.mapped = {18714, 1, 0}};

    cr_assert_not(rs_ways_choose(&simple, &parts).pull);
    parts.mapped.bytes = 18715;
    cr_assert(rs_ways_choose(&simple, &parts).pull);
    /* The rest has to land in any case, and o and L of that are paid. */
    parts.rest = (struct rs_way_part){1000000, 1, 0};
    cr_assert_not(rs_ways_choose(&simple, &parts).pull);
    parts.mapped.bytes = 200000;
    cr_assert(rs_ways_choose(&simple, &parts).pull);

    parts = (struct rs_way_parts){.readable = {56163, 1, 0}};
    cr_assert(rs_ways_choose(&simple, &parts).cma);
    parts.readable.blocks = 3; /* 0.2 us more */
    cr_assert_not(rs_ways_choose(&simple, &parts).cma);
    parts.readable.bytes = 65000;
    cr_assert(rs_ways_choose(&simple, &parts).cma);
}

/* 0.5 us and 40 ps/B less out of huge pages; what is in none lands, or is read. */
Test(ways, what_is_in_huge_pages_is_a_part_of_its_own)
{
    struct rs_host_ways ways = simple;
    struct rs_way_parts parts = {.readable = {40000, 1, 0}};
    struct rs_way_switch list[RS_WAY_SWITCHES];
    struct rs_way_choice choice;

    rs_way_parts_set_huge(&parts, 0);
    cr_assert_eq(parts.huge.blocks, 0);
    rs_way_parts_set_huge(&parts, 30000);
    cr_assert_eq(parts.huge.bytes, 30000);
    cr_assert_eq(parts.readable.bytes, 10000);
    choice = rs_ways_choose(&ways, &parts);
    cr_assert_not(choice.huge || choice.cma || choice.pull);
    cr_assert_not(rs_ways_tell(&ways, RS_WAY_MEMORY_HUGE));
    ways.of[RS_WAY_CMA_HUGE] = (struct rs_way_costs){
        true, 200000, COST(500000, 100000), COST(500000, 100000), 100000, 0};
    cr_assert(rs_ways_tell(&ways, RS_WAY_MEMORY_HUGE));
    choice = rs_ways_choose(&ways, &parts);
    cr_assert(choice.huge && !choice.cma && !choice.pull);
    /* L of both is waited for together, o of both is paid. */
    cr_assert_eq(rs_ways_time(&ways, &parts, choice),
                 200000 + 500000 + 30000 * 10 + 200000 + 10000 * 100);
    rs_way_parts_set_huge(&parts, 1 << 20); /* all that is left */
    cr_assert_eq(parts.huge.bytes, 40000);
    cr_assert_eq(parts.huge.blocks, 2);
    cr_assert_eq(parts.readable.bytes, 0);
    parts = (struct rs_way_parts){.readable = {10000000, 1, 0}};
    rs_way_parts_set_huge(&parts, 5000000);
    choice = rs_ways_choose(&ways, &parts);
    cr_assert(choice.huge && choice.cma);

    cr_assert_eq(rs_ways_switches(&ways, RS_WAY_MEMORY_HUGE, list), 2);
    cr_assert_eq(list[1].way, RS_WAY_CMA_HUGE);
    cr_assert_lt(list[1].bytes, 10000);
    cr_assert_eq(rs_ways_shortest_once(&ways), list[1].bytes);
}

/* A face of 4096 doubles across the rows of an array lies in 4096 lines: the
 * sender packs it, whose lines they are. Rows, and numbers that share lines,
 * are pulled. */
Test(ways, lines_of_the_peer_for_a_few_bytes_each_are_not_pulled)
{
    struct rs_host_ways ways = simple;
    struct rs_way_parts parts = {0};

    ways.of[RS_WAY_SELF].block = 2000;
    ways.of[RS_WAY_PULL].block = 36000;
    ways.of[RS_WAY_LANDING].block = 60000;
    rs_way_part_add(&parts.mapped, 8, 4096, 528);
    cr_assert_eq(parts.mapped.bytes, 32768);
    cr_assert_eq(parts.mapped.blocks, 0);
    cr_assert_eq(parts.mapped.scattered, 4096);
    cr_assert_not(rs_ways_choose(&ways, &parts).pull);
    cr_assert_eq(rs_ways_time(&ways, &parts, (struct rs_way_choice){.pull = true}),
                 UINT64_C(1100000) + 32768 * 50 + 4096 * 36000);
    cr_assert_eq(rs_ways_time(&ways, &parts, (struct rs_way_choice){.pull = false}),
                 UINT64_C(300000) + 32768 * 100 + 4096 * 2000);

    parts.mapped = (struct rs_way_part){0};
    rs_way_part_add(&parts.mapped, 16, 4096, -528);
    cr_assert_eq(parts.mapped.scattered, 4096);
    parts.mapped = (struct rs_way_part){0};
    rs_way_part_add(&parts.mapped, 512, 64, 528);
    rs_way_part_add(&parts.mapped, 8, 64, 16);
    rs_way_part_add(&parts.mapped, 8, 1, 0);
    cr_assert_eq(parts.mapped.blocks, 129);
    cr_assert_eq(parts.mapped.scattered, 0);
    cr_assert(rs_ways_choose(&ways, &parts).pull);
}

/* Receivers are ready for shorter ones only once they have been asked. */
Test(ways, short_messages_are_pulled_but_not_unasked)
{
    struct rs_host_ways ways = simple;
    struct rs_way_switch list[RS_WAY_SWITCHES];

    ways.least_pull = 20000;
    ways.least_once = 24576;
    cr_assert_eq(rs_ways_switches(&ways, RS_WAY_MEMORY_MAPPED, list), 3); /* then shared */
    cr_assert_eq(list[1].bytes, 20000);
    cr_assert_eq(list[1].way, RS_WAY_PULL);
    cr_assert_eq(rs_ways_shortest_once(&ways), 24576);
}

/* Whether a trial is to find out what the costs of blocks are here. */
Test(ways, short_blocks_are_in_doubt_but_not_those_among_cells_that_come)
{
    struct rs_way_part rows = {0}, face = {0}, lumps = {0};

    rs_way_part_add(&rows, 512, 64, 528);
    rs_way_part_add(&rows, 8, 128, 528); /* two edges of the same cube */
    cr_assert(rs_way_part_is_choppy(&rows));
    rs_way_part_add(&face, 512, 2, 528);
    rs_way_part_add(&face, 8, 4096, 528);
    cr_assert_not(rs_way_part_is_choppy(&face));
    rs_way_part_add(&lumps, 65536, 6, 65536);
    rs_way_part_add(&lumps, 8, 4, 0);
    cr_assert_not(rs_way_part_is_choppy(&lumps));
}

Test(ways, what_is_not_given_is_not_chosen)
{
    const struct rs_way_parts parts = {.mapped = {1 << 20, 1, 0},
                                       .readable = {1 << 20, 1, 0}};
    struct rs_host_ways ways = simple;

    cr_assert(rs_ways_choose(&ways, &parts).pull);
    cr_assert(rs_ways_choose(&ways, &parts).cma);
    ways.of[RS_WAY_CMA].given = false;
    cr_assert(rs_ways_choose(&ways, &parts).pull);
    cr_assert_not(rs_ways_choose(&ways, &parts).cma);
    ways.of[RS_WAY_PULL].given = false;
    cr_assert_not(rs_ways_choose(&ways, &parts).pull);
    ways.of[RS_WAY_SHARED].given = false;
    cr_assert_not(rs_ways_share(&ways, 1 << 30));
}

Test(ways, switch_points_are_exact)
{
    struct rs_way_switch list[RS_WAY_SWITCHES];

    cr_assert_eq(rs_ways_switches(&simple, RS_WAY_MEMORY_MAPPED, list), 3);
    cr_assert_eq(list[0].way, RS_WAY_LANDING);
    cr_assert_eq(list[1].bytes, 18715);
    cr_assert_eq(list[1].way, RS_WAY_PULL);
    cr_assert_eq(list[2].bytes, 1000001); /* 25 us saved at 25 ps/B */
    cr_assert_eq(list[2].way, RS_WAY_SHARED);
    cr_assert_eq(rs_ways_switches(&simple, RS_WAY_MEMORY_OTHER, list), 2);
    cr_assert_eq(list[1].bytes, 56163);
    cr_assert_eq(list[1].way, RS_WAY_CMA);
    cr_assert_eq(rs_ways_shortest_once(&simple), 18715);
}

/* Persistent messages: no part of them goes another way. */
Test(ways, what_goes_as_a_whole_is_copied_once_or_twice)
{
    struct rs_way_parts parts = {.mapped = {18714, 1, 0}};
    struct rs_host_ways ways = simple;
    struct rs_way_switch list[RS_WAY_SWITCHES];

    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    parts.mapped.bytes = 18715;
    cr_assert(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    /* Without the kernel's part 2.6 us less than landing, which is too little
     * with it. Short blocks are the kernel's too. */
    parts.mapped.bytes = 60000;
    parts.rest = (struct rs_way_part){100, 1, 0};
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    parts.mapped.bytes = 200000;
    cr_assert(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    ways.of[RS_WAY_CMA].given = false;
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    parts.rest.bytes = 0;
    cr_assert(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    ways.of[RS_WAY_PULL].given = false;
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));

    cr_assert_eq(rs_ways_switches_whole(&simple, RS_WAY_MEMORY_MAPPED, list), 2);
    cr_assert_eq(list[1].bytes, 18715);
    cr_assert_eq(list[1].way, RS_WAY_PULL);
    cr_assert_eq(rs_ways_switches_whole(&simple, RS_WAY_MEMORY_OTHER, list), 2);
    cr_assert_eq(list[1].bytes, 56163);
    cr_assert_eq(list[1].way, RS_WAY_CMA);

    /* What waits for its receiver is not short, whatever it costs. */
    ways = simple;
    ways.of[RS_WAY_LANDING].latency = 1000000000;
    ways.least_once = UINT64_MAX; /* not looked at */
    cr_assert_eq(rs_ways_switches_whole(&ways, RS_WAY_MEMORY_MAPPED, list), 2);
    cr_assert_eq(list[1].bytes, RS_WAY_WHOLE_LEAST + 1);
}

/* Where the receiver cannot map what the sender packs, packing is an additional
 * copy, and pays for many blocks. */
Test(ways, packed_for_the_kernel)
{
    struct rs_way_parts parts = {.readable = {1 << 20, 1, 0}};
    struct rs_host_ways ways = simple;

    ways.of[RS_WAY_SELF] = (struct rs_way_costs){
        true, 0, COST(0, 20000), COST(0, 20000), 1000, 0};
    cr_assert(rs_ways_choose_whole(&ways, &parts, RS_WAY_CMA));
    parts.readable.blocks = 500; /* 49.9 us for the kernel, 53 to pack */
    cr_assert(rs_ways_choose_whole(&ways, &parts, RS_WAY_CMA));
    parts.readable.blocks = 600;
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_CMA));
    ways.of[RS_WAY_CMA].given = false;
    parts.readable.blocks = 1;
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_CMA));
}

/* What is long and packed is not in the caches any more, whatever slots cost. */
Test(ways, packed_past_the_caches)
{
    struct rs_way_parts parts = {.readable = {RS_WAY_PACKED_MOST, 1, 0}};
    struct rs_host_ways ways = simple;
    struct rs_way_switch list[RS_WAY_SWITCHES];

    ways.of[RS_WAY_SELF] = (struct rs_way_costs){
        true, 0, COST(0, 20000), COST(0, 20000), 1000000, 0};
    ways.of[RS_WAY_CMA].work = (struct rs_way_cost)COST(0, 1000);
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    parts.readable.bytes++;
    cr_assert(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    ways.of[RS_WAY_CMA].block = 2000000;
    parts.readable.blocks = 1000; /* 2 ms for the kernel, 1 to pack */
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    parts = (struct rs_way_parts){.mapped = {1 << 20, 1, 0}};
    cr_assert(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));
    ways.of[RS_WAY_PULL].work = (struct rs_way_cost)COST(0, 1000);
    cr_assert_not(rs_ways_choose_whole(&ways, &parts, RS_WAY_LANDING));

    ways.of[RS_WAY_CMA].block = 0;
    cr_assert_eq(rs_ways_switches_whole(&ways, RS_WAY_MEMORY_OTHER, list), 2);
    cr_assert_eq(list[1].bytes, RS_WAY_PACKED_MOST + 1);
    ways.of[RS_WAY_CMA].given = false;
    cr_assert_eq(rs_ways_switches_whole(&ways, RS_WAY_MEMORY_OTHER, list), 1);
}

/* Eight, but none shorter than what is copied in 0.4 us at 20 GB/s, nearly. */
Test(ways, pieces_grow_with_the_message)
{
    struct rs_host_ways slow = simple;
    uint64_t last = 0;

    cr_assert_eq(rs_ways_share_chunk(&simple, 1 << 15), 16384);
    cr_assert_eq(rs_ways_share_chunk(&simple, 1 << 20), 131072);
    cr_assert_eq(rs_ways_share_chunk(&simple, 1 << 21), 262144);
    cr_assert_eq(rs_ways_share_chunk(&simple, 1 << 25), 1 << 20);
    slow.of[RS_WAY_PULL].latency *= 100;
    cr_assert_eq(rs_ways_share_chunk(&slow, 1 << 20), 1 << 20);
    for (int shift = 0; shift < 63; shift++) {
        uint64_t chunk = rs_ways_share_chunk(&simple, UINT64_C(1) << shift);

        cr_assert_geq(chunk, last);
        cr_assert_geq(chunk, RS_WAY_SHARED_LEAST / 2);
        cr_assert_leq((UINT64_C(1) << shift) / chunk, 2048);
        last = chunk;
    }
}

#define HEAD "rsched: machine/1\nname: probed\nextends: host\n"
#define LANDING "  landing: {L: 1 ns, o: 2 ns, O: [{rate: 3 MB/s}], " \
                "g: 4 ns, G: [{rate: 5 MB/s}, {from: 9, rate: 6 MB/s}]}\n"

#define NONTEMPORAL "  nontemporal: 12345678\n"

Test(ways, a_machine_keeps_them)
{
    struct rsched_machine *machine, *again;
    char *text;
    size_t length;
    FILE *out;

    cr_assert_eq(rsched_machine_parse("a", HEAD "ways:\n" LANDING NONTEMPORAL,
                                      strlen(HEAD "ways:\n" LANDING NONTEMPORAL),
                                      &machine),
                 0, "%s", rsched_last_error());
    cr_assert_eq(rs_machine_ways(machine)->host[0].of[RS_WAY_LANDING].gap.ranges[1].from, 9);
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++)
        cr_assert_eq(rs_machine_ways(machine)->host[d].nontemporal, 12345678);
    /* What it does not have is not taken from what it extends. */
    cr_assert_not(rs_machine_ways(machine)->host[0].of[RS_WAY_PULL].given);
    out = open_memstream(&text, &length);
    cr_assert_eq(rsched_machine_write(machine, out), 0);
    fclose(out);
    cr_assert_eq(rsched_machine_parse("b", text, length, &again), 0, "%s\n%s",
                 rsched_last_error(), text);
    cr_assert_eq(memcmp(rs_machine_ways(machine), rs_machine_ways(again),
                        sizeof(struct rs_ways)), 0);
    free(text);
    rsched_machine_destroy(machine);
    rsched_machine_destroy(again);
}

#define FAR "  landing:\n    same-numa: {L: 1 ns, o: 2 ns, O: [{rate: 3 MB/s}], " \
            "g: 4 ns, G: [{rate: 5 MB/s}]}\n    other-numa: {L: 7 ns, o: 2 ns, " \
            "O: [{rate: 3 MB/s}], g: 4 ns, G: [{rate: 5 MB/s}], block: 8 ns}\n" \
            "  pull:\n    other-numa: {L: 9 ns, o: 2 ns, O: [{rate: 3 MB/s}], " \
            "g: 4 ns, G: [{rate: 5 MB/s}]}\n"

static const struct rs_way_costs *host_costs(const struct rs_ways *ways,
                                             enum rs_distance distance,
                                             enum rs_way way)
{
    return &rs_ways_host(ways, distance)->of[way];
}

Test(ways, costs_differ_by_distance)
{
    struct rsched_machine *machine, *again;
    const struct rs_ways *ways;
    char *text;
    size_t length;
    FILE *out;

    cr_assert_eq(rsched_machine_parse("a", HEAD "ways:\n" FAR,
                                      strlen(HEAD "ways:\n" FAR), &machine),
                 0, "%s", rsched_last_error());
    ways = rs_machine_ways(machine);
    cr_assert_not(rs_ways_host_is_even(ways));
    cr_assert_eq(host_costs(ways, RS_DISTANCE_SAME_NUMA, RS_WAY_LANDING)->latency,
                 1000);
    cr_assert_eq(host_costs(ways, RS_DISTANCE_OTHER_NUMA, RS_WAY_LANDING)->latency,
                 7000);
    cr_assert_eq(host_costs(ways, RS_DISTANCE_OTHER_NUMA, RS_WAY_LANDING)->block,
                 8000);
    cr_assert_not(host_costs(ways, RS_DISTANCE_SAME_NUMA, RS_WAY_PULL)->given);
    cr_assert(host_costs(ways, RS_DISTANCE_OTHER_NUMA, RS_WAY_PULL)->given);
    out = open_memstream(&text, &length);
    cr_assert_eq(rsched_machine_write(machine, out), 0);
    fclose(out);
    cr_assert_eq(rsched_machine_parse("b", text, length, &again), 0, "%s\n%s",
                 rsched_last_error(), text);
    cr_assert_eq(memcmp(ways, rs_machine_ways(again), sizeof(*ways)), 0, "%s",
                 text);
    free(text);
    rsched_machine_destroy(machine);
    rsched_machine_destroy(again);
}

Test(ways, a_machine_need_not_have_them)
{
    struct rsched_machine *machine;

    cr_assert_eq(rsched_machine_builtin("tofu-k", &machine), 0);
    cr_assert_null(rs_machine_ways(machine));
    rsched_machine_destroy(machine);
    cr_assert_eq(rsched_machine_builtin("host", &machine), 0);
    cr_assert_not_null(rs_machine_ways(machine));
    rsched_machine_destroy(machine);
}

Test(ways, mistakes_are_told_with_their_place)
{
    static const char *const bad[][2] = {
        {"ways: 7\n", "a:4:7: "},
        {"ways: {}\n", "'landing'"},
        {"ways:\n" LANDING "  teleport: {}\n", "a:6:3: "},
        {"ways:\n  landing: {L: 1 ns}\n", "a:5:"},
        {"ways:\n" LANDING "  nontemporal: never\n", "a:6:16: "},
        {"ways:\n  landing:\n    same-numa: {L: 1 ns, o: 2 ns, O: [{rate: 3 "
         "MB/s}], g: 4 ns, G: [{rate: 5 MB/s}]}\n",
         "landing has no costs for other-numa"},
        {"ways:\n  landing:\n    same-gpu: {L: 1 ns, o: 2 ns, O: [{rate: 3 "
         "MB/s}], g: 4 ns, G: [{rate: 5 MB/s}]}\n", "a:6:5: "},
        {"ways:\n  landing: {L: 1, o: 2 ns, O: [{rate: 3 MB/s}], g: 4 ns, "
         "G: [{rate: 5 MB/s}]}\n", "a:5:16: "},
        {"ways:\n  landing: {L: 1 ns, o: 2 s, O: [{rate: 3 MB/s}], g: 4 ns, "
         "G: [{rate: 5 MB/s}]}\n", "o is above 1 s"},
        {"ways:\n  landing: {L: 1 ns, o: 2 ns, O: [], g: 4 ns, "
         "G: [{rate: 5 MB/s}]}\n", "O has no range"},
        {"ways:\n  landing: {L: 1 ns, o: 2 ns, O: [{from: 1, rate: 3 MB/s}], "
         "g: 4 ns, G: [{rate: 5 MB/s}]}\n", "begins at 0"},
        {"ways:\n  landing: {L: 1 ns, o: 2 ns, O: [{rate: 3 MB/s}, {rate: 3 "
         "MB/s}], g: 4 ns, G: [{rate: 5 MB/s}]}\n", "must ascend"},
        {"ways:\n  landing: {L: 1 ns, o: 2 ns, O: [{rate: 3 MB/s}, "
         "{from: 1, rate: 1 MB/s}, {from: 2, rate: 1 MB/s}, "
         "{from: 3, rate: 1 MB/s}, {from: 4, rate: 1 MB/s}, "
         "{from: 5, rate: 1 MB/s}, {from: 6, rate: 1 MB/s}], g: 4 ns, "
         "G: [{rate: 5 MB/s}]}\n", "more than 6 ranges"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct rsched_machine *machine;
        char text[1024];
        int length = snprintf(text, sizeof(text), "%s%s", HEAD, bad[i][0]);

        cr_assert_eq(rsched_machine_parse("a", text, (size_t)length, &machine),
                     RSCHED_EPARSE, "%s", bad[i][0]);
        cr_assert_not_null(strstr(rsched_last_error(), bad[i][1]), "%s: %s",
                           bad[i][0], rsched_last_error());
        cr_assert_eq(strncmp(rsched_last_error(), "a:", 2), 0, "%s",
                     rsched_last_error());
    }
}
