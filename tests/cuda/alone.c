/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/cuda/alone.h"

#include <criterion/criterion.h>

char *alone_allocate(struct program *p, size_t bytes)
{
    CUdeviceptr device;

    cr_assert_eq(p->cuMemAlloc(&device, bytes), CUDA_SUCCESS);
    return (char *)(uintptr_t)device;
}

struct rsched_context *alone_context(void)
{
    const struct rsched_context_params params = {.num_processes = 1,
                                                 .job = 1};
    struct rsched_context *context;

    cr_assert_eq(rsched_context_create(&params, &context), 0, "%s",
                 rsched_last_error());
    return context;
}

void alone_run(struct rsched_exchange *exchange)
{
    cr_assert_eq(rsched_exchange_start(exchange), 0, "%s",
                 rsched_last_error());
    cr_assert_eq(rsched_exchange_wait(exchange), 0, "%s", rsched_last_error());
}

uint64_t alone_copies(struct program *p)
{
    return p->fakeCount(FAKE_COPIES);
}
