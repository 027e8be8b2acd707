/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory in exchanges of a process with itself: no processor copies it, and
 * what is wrong is an error. Each test is a process. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/engine.h>
#include <rsched/pull.h>
#include <rsched/rsched.h>

#include "tests/cuda/alone.h"

/* A put and a receive. */
static struct rsched_pattern *pattern_of(void)
{
    const struct rsched_put put = {.bytes = 64};
    struct rsched_pattern *pattern;

    cr_assert_eq(rsched_pattern_create("self", &pattern), 0);
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
    return pattern;
}

static int exchange_of(struct rsched_context *context, const void *send,
                       void *receive, struct rsched_exchange **exchange)
{
    struct rsched_pattern *pattern = pattern_of();
    const struct rsched_exchange_params params = {
        .pattern = pattern,
        .send = (const void *const[]){send},
        .receive = (void *const[]){receive},
    };
    int error = rsched_exchange_create(context, &params, exchange);

    rsched_pattern_destroy(pattern);
    return error;
}

/* From and to either kind of memory, by a copy engine. */
Test(self, a_process_sends_itself_gpu_memory)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    char host[2][64] = {{1}, {0}}, *device, *touch;
    struct rsched_stats stats;
    struct program p;

    program_begin(&p, 1);
    device = alone_allocate(&p, ALONE_BYTES);
    touch = p.fakeTouch((CUdeviceptr)(uintptr_t)device);
    cr_assert_eq(exchange_of(context, host[0], device + 100, &exchange), 0,
                 "%s", rsched_last_error());
    alone_run(exchange);
    cr_assert_eq(touch[100], 1);
    rsched_exchange_destroy(exchange);
    touch[100] = 2;
    cr_assert_eq(exchange_of(context, device + 100, host[1], &exchange), 0);
    alone_run(exchange);
    alone_run(exchange);
    cr_assert_eq(host[1][0], 2);
    rsched_exchange_get_stats(exchange, &stats);
    cr_assert_eq(stats.way_bytes[RSCHED_WAY_SELF], 128);
    cr_assert_eq(alone_copies(&p), 3, "a copy for each epoch");
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 1);
}

/* Such copies are synchronous by their name, and the driver's return before: the
 * stream of an exchange would copy what was there before, or be overtaken. */
Test(self, copies_of_the_program_are_over_when_they_return)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    CUdeviceptr send, receive, other;
    char *seen[3];
    struct program p;

    program_begin(&p, 0);
    send = (CUdeviceptr)(uintptr_t)alone_allocate(&p, ALONE_BYTES);
    receive = (CUdeviceptr)(uintptr_t)alone_allocate(&p, ALONE_BYTES);
    other = (CUdeviceptr)(uintptr_t)alone_allocate(&p, ALONE_BYTES);
    seen[0] = p.fakeTouch(send);
    seen[1] = p.fakeTouch(receive);
    seen[2] = p.fakeTouch(other);
    seen[2][0] = 1;
    cr_assert_eq(p.cuMemcpyDtoD(send, other, 64), CUDA_SUCCESS);
    cr_assert_eq(seen[0][0], 0, "the driver is as late as it may be");
    cr_assert_eq(exchange_of(context, (void *)(uintptr_t)send,
                             (void *)(uintptr_t)receive, &exchange), 0,
                 "%s", rsched_last_error());
    alone_run(exchange);
    cr_assert_eq(seen[1][0], 1, "what was copied before it was made");
    seen[2][0] = 2;
    cr_assert_eq(p.cuMemcpyDtoD(send, other, 64), CUDA_SUCCESS);
    alone_run(exchange);
    cr_assert_eq(seen[1][0], 2, "what was copied between two epochs");
    seen[2][0] = 3;
    cr_assert_eq(p.cuMemcpyDtoD(receive, other, 64), CUDA_SUCCESS);
    cr_assert_eq(seen[1][0], 3, "what an epoch writes over");
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

Test(self, what_was_made_for_host_memory_stays_so)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    char host[2][64] = {{1}, {0}}, *device;
    struct program p;

    program_begin(&p, 1);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(exchange_of(context, host[0], host[1], &exchange), 0);
    cr_assert_eq(rsched_exchange_bind(exchange, (const void *[]){device},
                                      (void *[]){host[1]}),
                 RSCHED_ENOTSUP);
    cr_assert_not_null(strstr(rsched_last_error(), "put 0 lies in the memory "
                                                   "of GPU 1"),
                       "%s", rsched_last_error());
    cr_assert_eq(rsched_exchange_start(exchange), RSCHED_ESTATE);
    cr_assert_eq(rsched_exchange_bind(exchange, (const void *[]){host[0]},
                                      (void *[]){host[1]}), 0);
    alone_run(exchange);
    cr_assert_eq(host[1][0], 1);
    cr_assert_eq(alone_copies(&p), 0);
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 1);
}

/* What was made for GPU memory takes either. */
Test(self, gpu_buffers_may_become_host_buffers)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    char host[2][64] = {{1}, {0}}, *device;
    struct program p;

    program_begin(&p, 0);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(exchange_of(context, device, host[1], &exchange), 0);
    cr_assert_eq(rsched_exchange_bind(exchange, (const void *[]){host[0]},
                                      (void *[]){host[1]}), 0);
    alone_run(exchange);
    cr_assert_eq(host[1][0], 1);
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* Whether making an exchange of a process with itself, whose put is declared to
 * lie on GPU 0, fails, and with what text. */
static void refused(struct rsched_context *context, const void *send,
                    int error, const char *text)
{
    const struct rsched_put put = {.bytes = 64,
                                   .memory = RSCHED_MEMORY_DEVICE};
    const struct rsched_put receive = {.bytes = 64};
    struct rsched_pattern *pattern;
    struct rsched_exchange *exchange;
    char host[64];

    cr_assert_eq(rsched_pattern_create("self", &pattern), 0);
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    cr_assert_eq(rsched_pattern_add_receive(pattern, &receive), 0);
    cr_assert_eq(rsched_exchange_create(
                     context,
                     &(struct rsched_exchange_params){
                         .pattern = pattern,
                         .send = &send,
                         .receive = (void *const[]){host}},
                     &exchange),
                 error);
    cr_assert_not_null(strstr(rsched_last_error(), text), "%s",
                       rsched_last_error());
    rsched_pattern_destroy(pattern);
}

Test(self, wrong_buffers_are_named)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    char host[64], *device;
    struct program p;

    program_begin(&p, 1);
    device = alone_allocate(&p, ALONE_BYTES);
    refused(context, device, RSCHED_EINVAL,
            "put 0 lies in the memory of GPU 1, not 0");
    refused(context, host, RSCHED_EINVAL,
            "put 0 should lie in GPU memory, of which the driver knows nothing");
    cr_assert_eq(exchange_of(context, device + ALONE_BYTES - 1, host,
                             &exchange),
                 RSCHED_ENOTSUP);
    cr_assert_not_null(strstr(rsched_last_error(), "not lie in one allocation"),
                       "%s", rsched_last_error());
    cr_assert_eq(p.cuMemFree((CUdeviceptr)(uintptr_t)device), CUDA_SUCCESS);
    refused(context, device, RSCHED_EINVAL, "is it freed?");
    rsched_context_destroy(context);
    program_end(&p, 1);
}

/* What the driver says in a copy, or when something is made, is told; nothing
 * is left over (the driver aborts then). */
Test(self, errors_of_the_driver_are_told)
{
    static const struct {
        const char *fail;
        int created, started;
    } cases[] = {
        {"cuDevicePrimaryCtxRetain:2:2", RSCHED_ENOMEM, 0},
        {"cuStreamCreateWithPriority:1:2", RSCHED_ENOMEM, 0},
        {"cuEventCreate:1:2", RSCHED_ENOMEM, 0},
        {"cuMemcpyAsync:1:2", 0, RSCHED_ENOMEM},
        {"cuMemcpyAsync:1:1", 0, RSCHED_ESYS},
        {"cuEventRecord:1:400", 0, RSCHED_ESYS},
    };
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    char host[64] = {0}, *device;
    struct program p;

    program_begin(&p, 0);
    device = alone_allocate(&p, ALONE_BYTES);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int error;

        setenv("FAKE_CUDA_FAIL", cases[i].fail, 1);
        error = exchange_of(context, device, host, &exchange);
        cr_assert_eq(error, cases[i].created, "%s: %s", cases[i].fail,
                     rsched_last_error());
        if (error == 0)
            cr_assert_eq(rsched_exchange_start(exchange), cases[i].started,
                         "%s", rsched_last_error());
        cr_assert_not_null(strstr(rsched_last_error(), "CUDA_ERROR"), "%s",
                           rsched_last_error());
        if (error == 0)
            rsched_exchange_destroy(exchange);
        unsetenv("FAKE_CUDA_FAIL");
    }
    cr_assert_eq(exchange_of(context, device, host, &exchange), 0);
    alone_run(exchange);
    cr_assert_eq(p.cuMemFree((CUdeviceptr)(uintptr_t)device), CUDA_SUCCESS);
    cr_assert_eq(rsched_exchange_start(exchange), RSCHED_ESYS);
    cr_assert_not_null(strstr(rsched_last_error(), "CUDA_ERROR_INVALID_VALUE"),
                       "%s", rsched_last_error());
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* A variable exchange is made before the program turns to GPUs. */
Test(self, a_driver_that_comes_later_is_noticed)
{
    struct rsched_context *context = alone_context();
    struct rsched_pattern *pattern = pattern_of();
    const struct rsched_exchange_params params = {
        .pattern = pattern, .flags = RSCHED_EXCHANGE_VARIABLE};
    struct rsched_exchange *exchange;
    struct program p;
    char host[2][64] = {{1}, {0}}, *device;

    cr_assert_eq(rsched_exchange_create(context, &params, &exchange), 0);
    cr_assert_eq(rsched_exchange_load(exchange, pattern,
                                      (const void *[]){host[0]},
                                      (void *[]){host[1]}), 0);
    alone_run(exchange);
    program_begin(&p, 0);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(rsched_exchange_load(exchange, pattern,
                                      (const void *[]){device},
                                      (void *[]){host[1]}), RSCHED_ENOTSUP,
                 "%s", rsched_last_error());
    cr_assert_eq(rsched_exchange_load(exchange, pattern,
                                      (const void *[]){host[0]},
                                      (void *[]){host[1]}), 0);
    alone_run(exchange);
    rsched_exchange_destroy(exchange);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

Test(self, managed_and_pinned_memory_is_moved)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    struct program p;
    CUdeviceptr managed;
    void *pinned;

    program_begin(&p, 0);
    cr_assert_eq(p.cuMemAllocManaged(&managed, ALONE_BYTES,
                                     CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostAlloc(&pinned, ALONE_BYTES, 0), CUDA_SUCCESS);
    memset((void *)(uintptr_t)managed, 7, 64);
    cr_assert_eq(exchange_of(context, (void *)(uintptr_t)managed, pinned,
                             &exchange), 0, "%s", rsched_last_error());
    alone_run(exchange);
    cr_assert_eq(memcmp(pinned, (void *)(uintptr_t)managed, 64), 0);
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* A load that fails for want of the kernels' stream; the next one has them. */
Test(self, a_load_that_failed_is_tried_with_kernels_again)
{
    const struct rsched_run rows = {.bytes = 8, .count = 20, .stride = 100};
    const struct rsched_put put = {.bytes = 160, .layout = {&rows, 1},
                                   .memory = RSCHED_MEMORY_DEVICE};
    struct rsched_context *context = alone_context();
    struct rsched_exchange_params params = {.flags = RSCHED_EXCHANGE_VARIABLE};
    struct rsched_exchange *exchange;
    struct rsched_pattern *pattern;
    struct program p;
    const void *send;
    void *receive;
    unsigned long long expected = rsched_gpus()->no_kernels == NULL;

    program_begin(&p, 0);
    send = alone_allocate(&p, ALONE_BYTES);
    receive = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(rsched_pattern_create("self", &pattern), 0);
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
    params.pattern = pattern;
    cr_assert_eq(rsched_exchange_create(context, &params, &exchange), 0);
    setenv("FAKE_CUDA_FAIL", "cuStreamCreateWithPriority:2:2:1", 1);
    cr_assert_eq(rsched_exchange_load(exchange, pattern, &send,
                                      &receive),
                 expected == 1 ? RSCHED_ENOMEM : 0);
    cr_assert_eq(rsched_exchange_load(exchange, pattern, &send,
                                      &receive), 0,
                 "%s", rsched_last_error());
    alone_run(exchange);
    cr_assert_eq(p.fakeCount(FAKE_LAUNCHES), expected);
    rsched_exchange_destroy(exchange);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

enum { BLOCKS = 8 };

/* Blocks that are pieces of their own, in one allocation. */
static struct rsched_message blocks_of(char *device,
                                       struct rsched_piece pieces[BLOCKS])
{
    for (int i = 0; i < BLOCKS; i++)
        pieces[i] = (struct rsched_piece){
            .address = device + 100 * i, .bytes = 16, .count = 1};
    return (struct rsched_message){
        .pieces = pieces, .num_pieces = BLOCKS, .bytes = BLOCKS * 16};
}

static void pull_once(const struct rsched_gpu_pull_ops *pull,
                      struct rsched_gpu_source *source,
                      struct rsched_gpu_target *target)
{
    struct rsched_pull_notice notice;
    uint64_t needs;
    int status;

    cr_assert_eq(pull->source_load(source, &notice, &needs), 0, "%s",
                 rsched_last_error());
    cr_assert_eq(pull->target_pull(target, &notice, BLOCKS * 16), 0, "%s",
                 rsched_last_error());
    while ((status = pull->target_poll(target)) == RSCHED_LANE_PENDING)
        ;
    cr_assert_eq(status, RSCHED_LANE_DONE);
}

/* With each message the driver is asked for the number of each allocation, not of
 * each block. */
Test(self, blocks_of_an_allocation_are_asked_for_at_once)
{
    struct rsched_piece pieces[2][BLOCKS];
    struct rsched_message from, to;
    const struct rsched_gpu_pull_ops *pull;
    struct rsched_gpu_peer *peer;
    struct rsched_gpu_source *source;
    struct rsched_gpu_target *target;
    unsigned long long asked;
    struct program p;
    char *device[2];

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    pull = rsched_gpus()->pull;
    for (int i = 0; i < 2; i++)
        device[i] = alone_allocate(&p, ALONE_BYTES);
    from = blocks_of(device[0], pieces[0]);
    to = blocks_of(device[1], pieces[1]);
    cr_assert_eq(pull->peer_create(getpid(), true, &peer), 0);
    cr_assert_eq(pull->source_create(peer, &from, &source), 0);
    cr_assert_eq(pull->target_create(peer, &to, -1, &target), 0);
    pull_once(pull, source, target);
    asked = p.fakeCount(FAKE_QUESTIONS);
    memset(p.fakeTouch((CUdeviceptr)(uintptr_t)device[0]), 5, ALONE_BYTES);
    pull_once(pull, source, target);
    cr_assert_eq(p.fakeCount(FAKE_QUESTIONS), asked + 2);
    for (int i = 0; i < BLOCKS; i++)
        cr_assert_eq(*(char *)p.fakeTouch(
                         (CUdeviceptr)(uintptr_t)pieces[1][i].address), 5);
    pull->target_destroy(target);
    pull->source_destroy(source);
    pull->peer_destroy(peer);
    program_end(&p, 0);
}
