/* SPDX-License-Identifier: BSD-3-Clause */
/* An exchange executes its puts in the order of its schedule. */
#include <criterion/criterion.h>

#include <rsched/rsched.h>

#include "librsched/run/order.h"
#include "librsched/run/run.h"

static struct rsched_exchange *make(struct rsched_context *context,
                                    const struct rsched_pattern *pattern,
                                    const struct rsched_schedule *schedule)
{
    static char buffers[2][64][4096];
    const void *send[64];
    void *receive[64];
    struct rsched_exchange_params params = {.pattern = pattern,
                                            .schedule = schedule,
                                            .send = send,
                                            .receive = receive};
    struct rsched_exchange *x;

    for (int i = 0; i < 64; i++) {
        send[i] = buffers[0][i];
        receive[i] = buffers[1][i];
    }
    cr_assert_eq(rsched_exchange_create(context, &params, &x), 0, "%s",
                 rsched_last_error());
    return x;
}

static struct rsched_pattern *make_pattern(const uint64_t *bytes, int n)
{
    struct rsched_pattern *pattern;

    cr_assert_eq(rsched_pattern_create("order", &pattern), 0);
    for (int i = 0; i < n; i++) {
        struct rsched_put put = {.bytes = bytes[i]};

        cr_assert_eq(rsched_pattern_add_put(pattern, &put), i);
        cr_assert_eq(rsched_pattern_add_receive(pattern, &put), i);
    }
    return pattern;
}

static struct rsched_context *make_context(void)
{
    struct rsched_context_params params = {.num_processes = 1};
    struct rsched_context *context;

    cr_assert_eq(rsched_context_create(&params, &context), 0, "%s",
                 rsched_last_error());
    return context;
}

Test(order, own_plan_is_executed)
{
    const uint64_t bytes[] = {8, 4096, 64, 512};
    const uint32_t planned[] = {1, 3, 2, 0}; /* bottom-left: longest first */
    struct rsched_context *context = make_context();
    struct rsched_pattern *pattern = make_pattern(bytes, 4);
    struct rsched_exchange *x = make(context, pattern, NULL);

    cr_assert_eq(x->num_out, 1);
    cr_assert_arr_eq(x->out[0].order, planned, sizeof(planned));
    cr_assert_arr_eq(x->in[0].order, planned, sizeof(planned));
    rsched_exchange_destroy(x);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
}

Test(order, given_schedule_is_executed)
{
    const uint64_t bytes[] = {8, 4096, 64, 512, 8, 8};
    const uint32_t engines[] = {0, 0, 0, 0, 0, 0};
    const uint32_t positions[] = {5, 0, 3, 2, 1, 4};
    const uint32_t planned[] = {1, 4, 3, 2, 5, 0};
    struct rsched_context *context = make_context();
    struct rsched_pattern *pattern = make_pattern(bytes, 6);
    struct rsched_machine *machine;
    struct rsched_schedule *schedule;
    struct rsched_exchange *x;

    cr_assert_eq(rsched_machine_open("host", &machine), 0);
    cr_assert_eq(rsched_schedule_create_queues(pattern, machine, "mine",
                                               engines, positions, &schedule),
                 0, "%s", rsched_last_error());
    x = make(context, pattern, schedule);
    rsched_schedule_destroy(schedule);
    rsched_machine_destroy(machine);
    cr_assert_arr_eq(x->out[0].order, planned, sizeof(planned));
    rsched_exchange_destroy(x);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
}

/* One of three equal puts crosses its rail twice: it has one for itself, whichever
 * it is. */
Test(order, what_crosses_twice_is_planned_so)
{
    const uint64_t bytes[] = {100000, 100000, 100000};
    struct rsched_pattern *pattern = make_pattern(bytes, 3);
    struct rsched_context *context = make_context();
    const struct rsched_exchange_params params = {.pattern = pattern};

    for (int loop = 0; loop < 3; loop++) {
        const bool twice[3] = {loop == 0, loop == 1, loop == 2};
        int other = (loop + 1) % 3, third = (loop + 2) % 3;
        struct rs_plan plan = {0};

        cr_assert_eq(rs_plan_make(&plan, context, &params, 2, twice), 0, "%s",
                     rsched_last_error());
        cr_assert_eq(plan.engine[other], plan.engine[third], "put %d", loop);
        cr_assert_neq(plan.engine[loop], plan.engine[other], "put %d", loop);
        rs_plan_fini(&plan);
    }
    rsched_context_destroy(context);
    rsched_pattern_destroy(pattern);
}

/* Where the machine says it of the direction it is not counted again: a put that
 * is as long as two others has room for one of three beside it. */
Test(order, what_the_machine_has_cross_twice_is_not_planned_four_times)
{
    static const char text[] = "rsched: machine/1\n"
                               "name: two\n"
                               "engines: {count: 2, rate: 1000 MB/s}\n"
                               "routes: {loop: [], N: []}\n"
                               "twice: [loop]\n";
    static const bool twice[4] = {true, false, false, false};
    struct rsched_context *context = make_context();
    struct rsched_pattern *pattern;
    const struct rsched_exchange_params *params;
    struct rs_plan plan = {0};
    int beside = 0;

    cr_assert_eq(rsched_machine_parse("two", text, sizeof(text) - 1,
                                      &context->machine),
                 0, "%s", rsched_last_error());
    cr_assert_eq(rsched_pattern_create("four", &pattern), 0);
    for (int i = 0; i < 4; i++) {
        const struct rsched_put put = {.bytes = 100000,
                                       .direction = i == 0 ? "loop" : "N"};

        cr_assert_eq(rsched_pattern_add_put(pattern, &put), i);
    }
    params = &(struct rsched_exchange_params){.pattern = pattern};
    cr_assert_eq(rs_plan_make(&plan, context, params, 2, twice), 0, "%s",
                 rsched_last_error());
    for (int i = 1; i < 4; i++)
        beside += plan.engine[i] == plan.engine[0];
    cr_assert_eq(beside, 1);
    rs_plan_fini(&plan);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
}

static uint32_t plan_on_host(struct rsched_context *context, uint32_t rails)
{
    const uint64_t bytes[] = {8, 16};
    struct rsched_pattern *two = make_pattern(bytes, 2);
    const struct rsched_exchange_params params = {.pattern = two};
    struct rs_plan plan = {0};

    cr_assert_eq(rs_plan_make(&plan, context, &params, rails, NULL), 0, "%s",
                 rsched_last_error());
    rs_plan_fini(&plan);
    rsched_pattern_destroy(two);
    return rsched_machine_get_costs(context->host)->num_engines;
}

/* Where no machine is given, the host's is read for the first plan only, and again when
 * another number of rails is used. */
Test(order, the_host_is_read_once)
{
    struct rsched_context *context = make_context();
    const struct rsched_machine *host;

    cr_assert_eq(plan_on_host(context, 1), 1);
    host = context->host;
    cr_assert_eq(plan_on_host(context, 1), 1);
    cr_assert_eq(context->host, host);
    cr_assert_eq(plan_on_host(context, 3), 3);
    host = context->host;
    cr_assert_eq(plan_on_host(context, 3), 3);
    cr_assert_eq(context->host, host);
    cr_assert_eq(plan_on_host(context, 1), 1);
    rsched_context_destroy(context);
}

Test(order, schedule_of_another_pattern_is_refused)
{
    const uint64_t bytes[] = {8, 16};
    struct rsched_pattern *two = make_pattern(bytes, 2);
    struct rsched_machine *machine;
    struct rsched_schedule *schedule;
    struct rs_plan plan = {0};

    cr_assert_eq(rsched_machine_open("host", &machine), 0);
    cr_assert_eq(rsched_schedule_create(two, machine, "rr1", &schedule), 0);
    cr_assert_eq(rs_plan_init(&plan, schedule, 3), RSCHED_EINVAL);
    rsched_schedule_destroy(schedule);
    rsched_machine_destroy(machine);
    rsched_pattern_destroy(two);
}
