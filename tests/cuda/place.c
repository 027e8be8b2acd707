/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory is a GPU's, and that no processor copies it. Criterion runs each
 * test in a process of its own, so each begins without a driver. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/engine.h>
#include <rsched/rsched.h>

#include "tests/cuda/program.h"

enum { BYTES = 10000 };

static enum rsched_place_kind kind_of(const void *address, uint64_t bytes)
{
    struct rsched_place place;

    rsched_gpus()->place(address, bytes, &place);
    cr_assert_eq(place.kind == RSCHED_PLACE_GPU, place.gpu >= 0);
    return place.kind;
}

static char *device_memory(struct program *p, size_t bytes)
{
    CUdeviceptr device;

    cr_assert_eq(p->cuMemAlloc(&device, bytes), CUDA_SUCCESS);
    return (char *)(uintptr_t)device;
}

/* Looking for the driver does not bring it in. */
Test(place, a_program_without_gpus_loads_no_driver)
{
    int on_stack;

    cr_assert_not(rsched_gpus()->attach());
    cr_assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_HOST);
}

Test(place, a_driver_that_is_not_initialised_has_no_memory)
{
    int on_stack;

    cr_assert_not_null(dlopen("libcuda.so.1", RTLD_NOW));
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_HOST);
}

Test(place, kinds_are_told_apart)
{
    struct program p;
    struct rsched_place place;
    CUdeviceptr managed;
    void *pinned;
    char *device, *heap = malloc(BYTES);

    program_begin(&p, 1);
    cr_assert(rsched_gpus()->attach());
    device = device_memory(&p, BYTES);
    cr_assert_eq(p.cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostAlloc(&pinned, BYTES, 0), CUDA_SUCCESS);

    rsched_gpus()->place(device, BYTES, &place);
    cr_assert_eq(place.kind, RSCHED_PLACE_GPU);
    cr_assert_eq(place.gpu, 1);
    cr_assert_eq(kind_of((void *)(uintptr_t)managed, BYTES),
                 RSCHED_PLACE_MANAGED);
    cr_assert_eq(kind_of(pinned, BYTES), RSCHED_PLACE_HOST);
    cr_assert_eq(kind_of(heap, BYTES), RSCHED_PLACE_HOST);

    cr_assert_eq(p.cuMemFree(managed), CUDA_SUCCESS);
    cr_assert_eq(p.cuMemFreeHost(pinned), CUDA_SUCCESS);
    cr_assert_eq(p.cuMemFree((CUdeviceptr)(uintptr_t)device), CUDA_SUCCESS);
    cr_assert_eq(kind_of(device, BYTES), RSCHED_PLACE_HOST,
                 "what has been freed is no GPU's");
    free(heap);
    program_end(&p, 1);
}

Test(place, an_allocation_has_a_number)
{
    uint64_t (*number)(const void *) = rsched_gpus()->allocation;
    struct program p;
    CUdeviceptr managed;
    void *pinned;
    char *first, *second, here;
    uint64_t of_first;

    cr_assert_eq(number(&here), 0);
    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    first = device_memory(&p, BYTES);
    second = device_memory(&p, BYTES);
    of_first = number(first);
    cr_assert_neq(of_first, 0);
    cr_assert_eq(number(first + BYTES - 1), of_first);
    cr_assert_neq(number(second), 0);
    cr_assert_neq(number(second), of_first);
    cr_assert_eq(p.cuMemFree((CUdeviceptr)(uintptr_t)first), CUDA_SUCCESS);
    cr_assert_eq(number(first), 0);
    cr_assert_eq(p.cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostAlloc(&pinned, BYTES, 0), CUDA_SUCCESS);
    cr_assert_eq(number((void *)(uintptr_t)managed), 0);
    cr_assert_eq(number(pinned), 0);
    cr_assert_eq(number(&here), 0);
    program_end(&p, 0);
}

Test(place, an_allocation_has_two_ends)
{
    struct program p;
    char *device;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    device = device_memory(&p, BYTES);
    cr_assert_eq(kind_of(device, 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(device + BYTES - 1, 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(device + 1, BYTES - 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(device + 1, BYTES), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(kind_of(device, UINT64_MAX), RSCHED_PLACE_UNKNOWN);
    program_end(&p, 0);
}

/* Pages that are reserved at once, of which the first is mapped; and, where it
 * is asked for, the last one, on another GPU. */
Test(place, mapped_memory_ends_where_its_mapping_ends)
{
    enum { PAGE = 4096 };
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemGenericAllocationHandle memory[3];
    struct program p;
    CUdeviceptr start;
    char *address;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(p.cuMemAddressReserve(&start, 3 * PAGE, 0, 0, 0),
                 CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        prop.location.id = i == 2;
        cr_assert_eq(p.cuMemCreate(&memory[i], PAGE, &prop, 0), CUDA_SUCCESS);
    }
    address = (char *)(uintptr_t)start;
    cr_assert_eq(p.cuMemMap(start, PAGE, 0, memory[0], 0), CUDA_SUCCESS);
    cr_assert_eq(kind_of(address, PAGE), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(address + 1, PAGE), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.cuMemMap(start + PAGE, PAGE, 0, memory[1], 0), CUDA_SUCCESS);
    cr_assert_eq(kind_of(address + 1, 2 * PAGE - 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(address + 1, 2 * PAGE), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.cuMemMap(start + 2 * PAGE, PAGE, 0, memory[2], 0),
                 CUDA_SUCCESS);
    cr_assert_eq(kind_of(address + 1, 2 * PAGE), RSCHED_PLACE_UNKNOWN,
                 "another GPU's");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(p.cuMemUnmap(start + (CUdeviceptr)i * PAGE, PAGE),
                     CUDA_SUCCESS);
        cr_assert_eq(p.cuMemRelease(memory[i]), CUDA_SUCCESS);
    }
    cr_assert_eq(p.cuMemAddressFree(start, 3 * PAGE), CUDA_SUCCESS);
    program_end(&p, 0);
}

/* Processors have it elsewhere. */
Test(place, the_gpus_address_of_pinned_memory_is_not_the_hosts)
{
    struct program p;
    CUdeviceptr there;
    void *pinned;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(p.cuMemHostAlloc(&pinned, BYTES,
                                  CU_MEMHOSTALLOC_PORTABLE |
                                      CU_MEMHOSTALLOC_DEVICEMAP),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostGetDevicePointer(&there, pinned, 0), CUDA_SUCCESS);
    cr_assert_neq((uintptr_t)there, (uintptr_t)pinned);
    cr_assert_eq(kind_of((char *)pinned + 8, 8), RSCHED_PLACE_HOST);
    cr_assert_eq(kind_of((char *)(uintptr_t)there + 8, 8),
                 RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.cuMemFreeHost(pinned), CUDA_SUCCESS);
    program_end(&p, 0);
}

Test(place, a_driver_in_trouble_vouches_for_nothing)
{
    struct program p;
    int on_stack;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    setenv("FAKE_CUDA_POINTERS", "999", 1); /* CUDA_ERROR_UNKNOWN */
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_UNKNOWN);
    setenv("FAKE_CUDA_POINTERS", "201", 1); /* CUDA_ERROR_INVALID_CONTEXT */
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_HOST);
    program_end(&p, 0);
}

/* The driver does not survive a fork; neither does its memory. */
Test(place, a_child_has_host_memory_only)
{
    struct program p;
    char *device;
    int status;
    pid_t child;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    device = device_memory(&p, BYTES);
    child = fork();
    if (child == 0)
        _exit(kind_of(device, BYTES) == RSCHED_PLACE_HOST ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    program_end(&p, 0);
}

/* The double has teeth: what processors touch by mistake is not there. The
 * kernel says so without a signal. */
Test(place, processors_cannot_touch_it)
{
    struct program p;
    int ends[2];

    program_begin(&p, 0);
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(write(ends[1], device_memory(&p, BYTES), 1), -1);
    cr_assert_eq(errno, EFAULT);
    program_end(&p, 0);
}

/* Exchanges of a process with itself: a put and a receive. */

static struct rsched_pattern *pattern_of(void)
{
    const struct rsched_put put = {.bytes = 64};
    struct rsched_pattern *pattern;

    cr_assert_eq(rsched_pattern_create("self", &pattern), 0);
    cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
    cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
    return pattern;
}

static struct rsched_context *context_of(void)
{
    const struct rsched_context_params params = {.num_processes = 1,
                                                 .job = 1};
    struct rsched_context *context;

    cr_assert_eq(rsched_context_create(&params, &context), 0, "%s",
                 rsched_last_error());
    return context;
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

static void run(struct rsched_exchange *exchange)
{
    cr_assert_eq(rsched_exchange_start(exchange), 0, "%s",
                 rsched_last_error());
    cr_assert_eq(rsched_exchange_wait(exchange), 0, "%s", rsched_last_error());
}

static uint64_t copies(struct program *p)
{
    return p->fakeCount(FAKE_COPIES);
}

/* From and to either kind of memory, by a copy engine. */
Test(exchange, a_process_sends_itself_gpu_memory)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    char host[2][64] = {{1}, {0}}, *device, *touch;
    struct rsched_stats stats;
    struct program p;

    program_begin(&p, 1);
    device = device_memory(&p, BYTES);
    touch = p.fakeTouch((CUdeviceptr)(uintptr_t)device);
    cr_assert_eq(exchange_of(context, host[0], device + 100, &exchange), 0,
                 "%s", rsched_last_error());
    run(exchange);
    cr_assert_eq(touch[100], 1);
    rsched_exchange_destroy(exchange);
    touch[100] = 2;
    cr_assert_eq(exchange_of(context, device + 100, host[1], &exchange), 0);
    run(exchange);
    run(exchange);
    cr_assert_eq(host[1][0], 2);
    rsched_exchange_get_stats(exchange, &stats);
    cr_assert_eq(stats.way_bytes[RSCHED_WAY_SELF], 128);
    cr_assert_eq(copies(&p), 3, "a copy for each epoch");
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 1);
}

Test(exchange, what_was_made_for_host_memory_stays_so)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    char host[2][64] = {{1}, {0}}, *device;
    struct program p;

    program_begin(&p, 1);
    device = device_memory(&p, BYTES);
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
    run(exchange);
    cr_assert_eq(host[1][0], 1);
    cr_assert_eq(copies(&p), 0);
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 1);
}

/* What was made for GPU memory takes either. */
Test(exchange, gpu_buffers_may_become_host_buffers)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    char host[2][64] = {{1}, {0}}, *device;
    struct program p;

    program_begin(&p, 0);
    device = device_memory(&p, BYTES);
    cr_assert_eq(exchange_of(context, device, host[1], &exchange), 0);
    cr_assert_eq(rsched_exchange_bind(exchange, (const void *[]){host[0]},
                                      (void *[]){host[1]}), 0);
    run(exchange);
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

Test(exchange, wrong_buffers_are_named)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    char host[64], *device;
    struct program p;

    program_begin(&p, 1);
    device = device_memory(&p, BYTES);
    refused(context, device, RSCHED_EINVAL,
            "put 0 lies in the memory of GPU 1, not 0");
    refused(context, host, RSCHED_EINVAL,
            "put 0 should lie in GPU memory, of which the driver knows nothing");
    cr_assert_eq(exchange_of(context, device + BYTES - 1, host, &exchange),
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
Test(exchange, errors_of_the_driver_are_told)
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
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    char host[64] = {0}, *device;
    struct program p;

    program_begin(&p, 0);
    device = device_memory(&p, BYTES);
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
    run(exchange);
    cr_assert_eq(p.cuMemFree((CUdeviceptr)(uintptr_t)device), CUDA_SUCCESS);
    cr_assert_eq(rsched_exchange_start(exchange), RSCHED_ESYS);
    cr_assert_not_null(strstr(rsched_last_error(), "CUDA_ERROR_INVALID_VALUE"),
                       "%s", rsched_last_error());
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* A variable exchange is made before the program turns to GPUs. */
Test(exchange, a_driver_that_comes_later_is_noticed)
{
    struct rsched_context *context = context_of();
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
    run(exchange);
    program_begin(&p, 0);
    device = device_memory(&p, BYTES);
    cr_assert_eq(rsched_exchange_load(exchange, pattern,
                                      (const void *[]){device},
                                      (void *[]){host[1]}), RSCHED_ENOTSUP,
                 "%s", rsched_last_error());
    cr_assert_eq(rsched_exchange_load(exchange, pattern,
                                      (const void *[]){host[0]},
                                      (void *[]){host[1]}), 0);
    run(exchange);
    rsched_exchange_destroy(exchange);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

Test(exchange, managed_and_pinned_memory_is_moved)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    struct program p;
    CUdeviceptr managed;
    void *pinned;

    program_begin(&p, 0);
    cr_assert_eq(p.cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostAlloc(&pinned, BYTES, 0), CUDA_SUCCESS);
    memset((void *)(uintptr_t)managed, 7, 64);
    cr_assert_eq(exchange_of(context, (void *)(uintptr_t)managed, pinned,
                             &exchange), 0, "%s", rsched_last_error());
    run(exchange);
    cr_assert_eq(memcmp(pinned, (void *)(uintptr_t)managed, 64), 0);
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* A load that fails for want of the kernels' stream; the next one has them. */
Test(exchange, a_load_that_failed_is_tried_with_kernels_again)
{
    const struct rsched_run rows = {.bytes = 8, .count = 20, .stride = 100};
    const struct rsched_put put = {.bytes = 160, .layout = {&rows, 1},
                                   .memory = RSCHED_MEMORY_DEVICE};
    struct rsched_context *context = context_of();
    struct rsched_exchange_params params = {.flags = RSCHED_EXCHANGE_VARIABLE};
    struct rsched_exchange *exchange;
    struct rsched_pattern *pattern;
    struct program p;
    const void *send;
    void *receive;
    unsigned long long expected = rsched_gpus()->no_kernels == NULL;

    program_begin(&p, 0);
    send = device_memory(&p, BYTES);
    receive = device_memory(&p, BYTES);
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
    run(exchange);
    cr_assert_eq(p.fakeCount(FAKE_LAUNCHES), expected);
    rsched_exchange_destroy(exchange);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* ---- puts in several kinds of memory ---- */

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
Test(blocks, a_put_lies_in_host_and_gpu_memory)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    char host[2][HALF], *device, *touch;
    struct program p;

    program_begin(&p, 1);
    device = device_memory(&p, BYTES);
    touch = p.fakeTouch((CUdeviceptr)(uintptr_t)device);
    memset(host[0], 1, HALF);
    memset(touch, 2, HALF);
    cr_assert_eq(halves_of(context, (void *[]){host[0], device},
                           (void *[]){host[1], device + 100},
                           RSCHED_MEMORY_HOST, &exchange), 0,
                 "%s", rsched_last_error());
    run(exchange);
    cr_assert_eq(memcmp(host[1], host[0], HALF), 0);
    cr_assert_eq(memcmp(touch + 100, touch, HALF), 0);
    cr_assert_eq(copies(&p), 1, "the GPU's half");
    rsched_exchange_destroy(exchange);
    cr_assert_eq(halves_of(context, (void *[]){host[0], device},
                           (void *[]){device + 200, host[1]},
                           RSCHED_MEMORY_HOST, &exchange), 0,
                 "%s", rsched_last_error());
    run(exchange);
    cr_assert_eq(memcmp(touch + 200, host[0], HALF), 0);
    cr_assert_eq(memcmp(host[1], touch, HALF), 0);
    cr_assert_eq(copies(&p), 3, "both cross");
    rsched_exchange_destroy(exchange);
    rsched_context_destroy(context);
    program_end(&p, 1);
}

Test(blocks, a_put_lies_in_managed_and_gpu_memory)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    char host[2][HALF], *device, *touch;
    CUdeviceptr managed;
    struct program p;

    program_begin(&p, 0);
    device = device_memory(&p, BYTES);
    touch = p.fakeTouch((CUdeviceptr)(uintptr_t)device);
    cr_assert_eq(p.cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    memset((void *)(uintptr_t)managed, 1, HALF);
    memset(touch, 2, HALF);
    cr_assert_eq(halves_of(context,
                           (void *[]){(void *)(uintptr_t)managed, device},
                           (void *[]){host[0], host[1]}, RSCHED_MEMORY_HOST,
                           &exchange), 0, "%s", rsched_last_error());
    run(exchange);
    cr_assert_eq(memcmp(host[0], (void *)(uintptr_t)managed, HALF), 0);
    cr_assert_eq(memcmp(host[1], touch, HALF), 0);
    cr_assert_eq(copies(&p), 1);
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

Test(blocks, a_declared_put_lies_elsewhere_in_part)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    struct program p, second;
    char host[2][HALF], *device, *other;
    void *receive[2] = {host[0], host[1]};

    program_begin(&second, 1);
    other = device_memory(&second, BYTES);
    program_begin(&p, 0);
    device = device_memory(&p, BYTES);
    cr_assert_eq(halves_of(context, (void *[]){device, host[0]}, receive,
                           RSCHED_MEMORY_DEVICE, &exchange), RSCHED_EINVAL);
    check_text("put 0, run 1 of its layout, should lie in GPU memory, of which "
               "the driver knows nothing");
    cr_assert_eq(halves_of(context, (void *[]){device, other}, receive,
                           RSCHED_MEMORY_DEVICE, &exchange), RSCHED_EINVAL);
    check_text("put 0, run 1 of its layout, lies in the memory of GPU 1, not "
               "0");
    cr_assert_eq(halves_of(context, (void *[]){device, device + BYTES - 1},
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

Test(blocks, a_run_lies_in_one_kind_of_memory)
{
    struct rsched_context *context = context_of();
    static char below[HALF];
    char above[HALF], *device;
    struct program p;

    program_begin(&p, 0);
    device = device_memory(&p, BYTES);
    cr_assert(below < device && device < above);
    one_run(context, below, device);
    one_run(context, above, device);
    rsched_context_destroy(context);
    program_end(&p, 0);
}

/* An exchange that was made for host memory, loaded so that the second half of
 * its put is a GPU's: the first half stays the host's. */
Test(blocks, a_later_block_is_noticed_when_loaded)
{
    struct rsched_context *context = context_of();
    struct rsched_exchange *exchange;
    struct program p;
    char host[2][HALF], *device, *low = malloc(BYTES);
    struct rsched_run runs[2] = {{0, HALF, 1, 0}, {0, HALF, 1, 0}};
    struct rsched_put put = {.bytes = sizeof(host), .layout = {runs, 2}};
    struct rsched_exchange_params params = {.flags = RSCHED_EXCHANGE_VARIABLE};
    struct rsched_pattern *pattern;

    program_begin(&p, 1);
    device = device_memory(&p, BYTES);
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
