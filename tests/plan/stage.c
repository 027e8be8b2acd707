/* SPDX-License-Identifier: BSD-3-Clause */
/* The planners' own simulation against the fluid simulator, and the work that
 * dispatch does. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>

#include "librsched/plan/dispatch.h"
#include "librsched/plan/planners.h"
#include "librsched/plan/weights.h"
#include "tests/plan/planned.h"

enum { ENGINES = 12 };

struct subject {
    struct rsched_machine *machine;
    struct rsched_pattern *pattern;
    struct rs_problem problem;
    struct rs_script script;
    struct rs_dispatch dispatch;
    struct rs_place *places;
    size_t queues[ENGINES + 1];
    uint32_t *order;
};

/* Every other machine has rails. */
static void make(struct subject *s, uint64_t *random, size_t puts)
{
    bool rails = random_below(random, 2) == 0;

    s->machine = random_machine(random, ENGINES, false, rails);
    s->pattern = random_puts(random, puts);
    cr_assert_eq(rs_problem_init(&s->problem, s->pattern, s->machine, NULL, 0),
                 0);
    cr_assert_eq(rs_script_init(&s->script, &s->problem), 0);
    cr_assert_eq(rs_dispatch_init(&s->dispatch, &s->script), 0);
    s->places = calloc(s->problem.num_puts, sizeof(*s->places));
    s->order = calloc(s->problem.num_puts, sizeof(*s->order));
}

static void destroy(struct subject *s)
{
    free(s->places);
    free(s->order);
    rs_dispatch_fini(&s->dispatch);
    rs_script_fini(&s->script);
    rs_problem_fini(&s->problem);
    rsched_pattern_destroy(s->pattern);
    rsched_machine_destroy(s->machine);
}

/* The simulator's makespan of the places, which the stage must have too. */
static uint64_t simulate(struct subject *s)
{
    uint64_t makespan;

    cr_assert_eq(rs_problem_queue(&s->problem, s->places, s->queues, s->order),
                 0);
    cr_assert_eq(rs_problem_simulate(&s->problem, s->queues, s->order, NULL,
                                     NULL, NULL, &makespan), 0);
    return makespan;
}

Test(stage, plays_what_the_simulator_says)
{
    uint64_t random = 1;

    for (int round = 0; round < 2000; round++) {
        struct subject s;
        uint64_t wanted;

        make(&s, &random, round % 20 == 0 ? 200 : 24);
        for (size_t i = 0; i < s.problem.num_puts; i++)
            s.places[i] = (struct rs_place){
                (uint32_t)random_below(&random, s.problem.costs.num_engines),
                random_below(&random, 1000)};
        wanted = simulate(&s);
        cr_assert_eq(rs_stage_play(s.dispatch.stage, s.queues, s.order,
                                   RS_NEVER), wanted);
        cr_assert_eq(rs_stage_play(s.dispatch.stage, s.queues, s.order,
                                   wanted), wanted);
        if (wanted > 0)
            cr_assert_eq(rs_stage_play(s.dispatch.stage, s.queues, s.order,
                                       wanted - 1), RS_NEVER);
        destroy(&s);
    }
}

/* Only the first engines are used, or only the fastest. */
static void expect_engines(const struct subject *s, uint32_t engines,
                           bool fastest)
{
    uint32_t used = 0;

    for (uint32_t e = 0; e < s->problem.costs.num_engines; e++) {
        uint32_t before = 0;

        if (s->queues[e] == s->queues[e + 1])
            continue;
        used++;
        for (uint32_t i = 0; i < s->problem.costs.num_engines; i++)
            before += fastest ? rs_problem_rate(&s->problem, i) >
                                    rs_problem_rate(&s->problem, e)
                              : i < e;
        cr_assert_lt(before, engines);
    }
    cr_assert_leq(used, engines);
}

Test(stage, dispatch_says_what_the_simulator_says)
{
    uint64_t random = 2;

    for (int round = 0; round < 300; round++) {
        struct subject s;

        make(&s, &random, 40);
        for (int rule = 0; rule < RS_NUM_RULES; rule++) {
            uint32_t engines = 1 + (uint32_t)random_below(
                                       &random, s.problem.costs.num_engines);
            bool fastest = random_below(&random, 2) == 0;
            uint64_t makespan = rs_dispatch_run(
                &s.dispatch, (enum rs_rule)rule, engines, fastest, s.places);

            cr_assert_eq(makespan, simulate(&s));
            expect_engines(&s, engines, fastest);
        }
        destroy(&s);
    }
}

/* No set of puts in flight earns more than weights say, however they were
 * found. */
Test(stage, weights_bound_every_set)
{
    uint64_t random = 3;

    for (int round = 0; round < 100; round++) {
        struct subject s;
        struct rs_sets sets;
        struct rs_weights found[2];
        uint64_t left[RS_WEIGHTS_CLASSES + 1];

        make(&s, &random, 30);
        if (rs_sets_init(&sets, &s.script) != 0) {
            destroy(&s);
            continue;
        }
        for (size_t c = 0; c <= sets.num_classes; c++)
            left[c] = random_below(&random, 1 << 20);
        cr_assert_eq(rs_weights_find(&sets, left, &found[0]), 0);
        rs_weights_plain(&s.script, &found[1]);
        for (size_t i = 0; i < sets.count; i++) {
            for (int w = 0; w < 2; w++) {
                unsigned __int128 sum = 0;

                for (size_t c = 0; c <= sets.num_classes; c++)
                    sum += (unsigned __int128)found[w].weight[c] *
                           sets.rates[i * (sets.num_classes + 1) + c];
                cr_assert(sum <= found[w].most[sets.engines[i]]);
            }
        }
        rs_sets_fini(&sets);
        destroy(&s);
    }
}
