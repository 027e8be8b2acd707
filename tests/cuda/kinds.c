/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts whose blocks lie in several kinds of memory, of a process with
 * itself. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/alone.h"

enum { HALF = 32 };

/* Of a process with itself: two halves, at addresses of their own. */
static int halves_of(struct rsched_context *context, void *const send[2],
                     void *const receive[2], enum rsched_memory memory,
                     struct rsched_exchange **exchange)
{
    const void *const *from = (const void *[]){NULL};
    struct rsched_run runs[2][2];
    struct rsched_put put = {.bytes = 2 * HALF, .memory = memory};
    struct rsched_pattern *pattern;
    int error;

    for (int i = 0; i < 2; i++) {
        runs[0][i] = (struct rsched_run){(intptr_t)send[i], HALF, 1, 0};
        runs[1][i] = (struct rsched_run){(intptr_t)receive[i], HALF, 1, 0};
    }
    cr_assert_eq(rsched_pattern_create("halves", &pattern), 0);
    put.layout = (struct rsched_layout){runs[0], 2};
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    put.layout = (struct rsched_layout){runs[1], 2};
    put.memory = RSCHED_MEMORY_HOST;
    cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
    error = rsched_exchange_create(context,
                                   &(struct rsched_exchange_params){
                                       .pattern = pattern,
                                       .send = from,
                                       .receive = (void *[]){NULL}},
                                   exchange);
    rsched_pattern_destroy(pattern);
    return error;
}

/* Whichever half is the first: processors copy the one, copy engines the
 * other. */
Test(kinds, a_put_lies_in_host_and_gpu_memory)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    char host[2][HALF], *device, *touch;
    struct program p;

    program_begin(&p, 1);
    device = alone_allocate(&p, ALONE_BYTES);
    touch = p.fakeTouch((CUdeviceptr)(uintptr_t)device);
    memset(host[0], 1, HALF);
    memset(touch, 2, HALF);
    cr_assert_eq(halves_of(context, (void *[]){host[0], device},
                           (void *[]){host[1], device + 100},
                           RSCHED_MEMORY_HOST, &exchange), 0,
                 "%s", rsched_last_error());
    alone_run(exchange);
    cr_assert_eq(memcmp(host[1], host[0], HALF), 0);
    cr_assert_eq(memcmp(touch + 100, touch, HALF), 0);
    cr_assert_eq(alone_copies(&p), 1, "the GPU's half");
    rsched_exchange_destroy(exchange);
    cr_assert_eq(halves_of(context, (void *[]){host[0], device},
                           (void *[]){device + 200, host[1]},
                           RSCHED_MEMORY_HOST, &exchange), 0,
                 "%s", rsched_last_error());
    alone_run(exchange);
    cr_assert_eq(memcmp(touch + 200, host[0], HALF), 0);
    cr_assert_eq(memcmp(host[1], touch, HALF), 0);
    cr_assert_eq(alone_copies(&p), 3, "both cross");
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 1);
}

Test(kinds, a_put_lies_in_managed_and_gpu_memory)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    char host[2][HALF], *device, *touch;
    CUdeviceptr managed;
    struct program p;

    program_begin(&p, 0);
    device = alone_allocate(&p, ALONE_BYTES);
    touch = p.fakeTouch((CUdeviceptr)(uintptr_t)device);
    cr_assert_eq(p.cuMemAllocManaged(&managed, ALONE_BYTES,
                                     CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    memset((void *)(uintptr_t)managed, 1, HALF);
    memset(touch, 2, HALF);
    cr_assert_eq(halves_of(context,
                           (void *[]){(void *)(uintptr_t)managed, device},
                           (void *[]){host[0], host[1]}, RSCHED_MEMORY_HOST,
                           &exchange), 0, "%s", rsched_last_error());
    alone_run(exchange);
    cr_assert_eq(memcmp(host[0], (void *)(uintptr_t)managed, HALF), 0);
    cr_assert_eq(memcmp(host[1], touch, HALF), 0);
    cr_assert_eq(alone_copies(&p), 1);
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    cr_assert_eq(p.cuMemFree(managed), CUDA_SUCCESS);
    program_end(&p, 0);
}

static void check_text(const char *text)
{
    cr_assert_not_null(strstr(rsched_last_error(), text), "%s",
                       rsched_last_error());
}

Test(kinds, a_declared_put_lies_elsewhere_in_part)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    struct program p, second;
    char host[2][HALF], *device, *other;
    void *receive[2] = {host[0], host[1]};

    program_begin(&second, 1);
    other = alone_allocate(&second, ALONE_BYTES);
    program_begin(&p, 0);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(halves_of(context, (void *[]){device, host[0]}, receive,
                           RSCHED_MEMORY_DEVICE, &exchange), RSCHED_EINVAL);
    check_text("put 0, run 1 of its layout, should lie in GPU memory, of which "
               "the driver knows nothing");
    cr_assert_eq(halves_of(context, (void *[]){device, other}, receive,
                           RSCHED_MEMORY_DEVICE, &exchange), RSCHED_EINVAL);
    check_text("put 0, run 1 of its layout, lies in the memory of GPU 1, not "
               "0");
    cr_assert_eq(halves_of(context,
                           (void *[]){device, device + ALONE_BYTES - 1},
                           receive, RSCHED_MEMORY_HOST, &exchange),
                 RSCHED_ENOTSUP);
    check_text("put 0, run 1 of its layout, does not lie in one allocation");
    rsched_context_destroy(context);
    program_end(&p, 0);
    program_end(&second, 1);
}

/* Two blocks of one run, one in host memory: nobody knows what is between. */
static void one_run(struct rsched_context *context, char *host, char *device)
{
    const struct rsched_run run = {.bytes = HALF, .count = 2,
                                   .stride = (intptr_t)device - (intptr_t)host};
    struct rsched_put put = {.bytes = 2 * HALF, .layout = {&run, 1}};
    struct rsched_pattern *pattern;
    struct rsched_exchange *exchange;

    cr_assert_eq(rsched_pattern_create("rows", &pattern), 0);
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    put.layout = (struct rsched_layout){0};
    cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
    cr_assert_eq(rsched_exchange_create(context,
                                        &(struct rsched_exchange_params){
                                            .pattern = pattern,
                                            .send = (const void *[]){host},
                                            .receive = (void *[]){device}},
                                        &exchange),
                 RSCHED_ENOTSUP);
    check_text("put 0 does not lie in one allocation");
    rsched_pattern_destroy(pattern);
}

Test(kinds, a_run_lies_in_one_kind_of_memory)
{
    struct rsched_context *context = alone_context();
    static char below[HALF];
    char above[HALF], *device;
    struct program p;

    program_begin(&p, 0);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert(below < device && device < above);
    one_run(context, below, device);
    one_run(context, above, device);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* A put of three blocks: those of one run lie in host memory on either side of a
 * GPU's, in which the other run is. */
static void around(struct rsched_context *context, char *below, char *above,
                   char *device, bool gpu_first, char *receive)
{
    const struct rsched_run host = {.offset = (intptr_t)below,
                                    .bytes = HALF,
                                    .count = 2,
                                    .stride = above - below};
    const struct rsched_run gpu = {(intptr_t)device, HALF, 1, 0};
    const struct rsched_run runs[2] = {gpu_first ? gpu : host,
                                       gpu_first ? host : gpu};
    const void *const *from = (const void *[]){NULL};
    struct rsched_put put = {.bytes = 3 * HALF, .layout = {runs, 2}};
    struct rsched_pattern *pattern;
    struct rsched_exchange *exchange;

    cr_assert_eq(rsched_pattern_create("around", &pattern), 0);
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    put.layout = (struct rsched_layout){0};
    cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
    cr_assert_eq(rsched_exchange_create(context,
                                        &(struct rsched_exchange_params){
                                            .pattern = pattern,
                                            .send = from,
                                            .receive = (void *[]){receive}},
                                        &exchange), 0, "%s",
                 rsched_last_error());
    rsched_pattern_destroy(pattern);
    alone_run(exchange);
    rsched_exchange_destroy(exchange);
}

Test(kinds, blocks_of_host_memory_lie_around_a_gpus)
{
    struct rsched_context *context = alone_context();
    static char below[HALF];
    char above[HALF], receive[3 * HALF], *device;
    struct program p;

    program_begin(&p, 0);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert(below < device && device < above);
    memset(below, 1, HALF);
    memset(above, 2, HALF);
    memset(p.fakeTouch((CUdeviceptr)(uintptr_t)device), 3, HALF);
    for (int gpu_first = 0; gpu_first < 2; gpu_first++) {
        memset(receive, 0, sizeof(receive));
        around(context, below, above, device, gpu_first != 0, receive);
        for (int i = 0; i < 3 * HALF; i++)
            cr_assert_eq(receive[i], (i / HALF + 2 * gpu_first) % 3 + 1);
        cr_assert_eq(alone_copies(&p), (uint64_t)gpu_first + 1);
    }
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* An exchange that was made for host memory, loaded so that the second half of
 * its put is a GPU's: the first half stays the host's. */
Test(kinds, a_later_block_is_noticed_when_loaded)
{
    struct rsched_context *context = alone_context();
    struct rsched_exchange *exchange;
    struct program p;
    char host[2][HALF], *device, *low = malloc(ALONE_BYTES);
    struct rsched_run runs[2] = {{0, HALF, 1, 0}, {0, HALF, 1, 0}};
    struct rsched_put put = {.bytes = sizeof(host), .layout = {runs, 2}};
    struct rsched_exchange_params params = {.flags = RSCHED_EXCHANGE_VARIABLE};
    struct rsched_pattern *pattern;

    program_begin(&p, 1);
    device = alone_allocate(&p, ALONE_BYTES);
    runs[1].offset = (intptr_t)device - (intptr_t)low;
    cr_assert_eq(rsched_pattern_create("later", &pattern), 0);
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    put.layout = (struct rsched_layout){0};
    cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
    params.pattern = pattern;
    cr_assert_eq(rsched_exchange_create(context, &params, &exchange), 0);
    cr_assert_eq(rsched_exchange_load(exchange, pattern, (const void *[]){low},
                                      (void *[]){host}), RSCHED_ENOTSUP);
    check_text("put 0 lies in the memory of GPU 1, but was in host memory");
    rsched_exchange_destroy(exchange);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
    free(low);
    program_end(&p, 1);
}
