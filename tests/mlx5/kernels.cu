/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of rsched/device.h in a kernel, to be compiled. */
#include <rsched/device.h>

extern "C" __global__ void exchange_by_thread(struct rsched_device_exchange *x,
                                              int *status)
{
    const struct rsched_device_group thread = rsched_device_thread();
    bool done = false;

    status[0] = rsched_device_start(x, &thread);
    while (!done && status[0] == 0)
        status[0] = rsched_device_test(x, &thread, &done);
}

extern "C" __global__ void exchange_by_warp(struct rsched_device_exchange *x,
                                            int *status)
{
    const struct rsched_device_group warp = rsched_device_warp();

    status[threadIdx.x] = rsched_device_start(x, &warp);
    if (status[threadIdx.x] == 0)
        status[threadIdx.x] = rsched_device_wait(x, &warp);
}

extern "C" __global__ void puts_by_warp(struct rsched_device_target *t,
                                        const uint64_t *values, int *status)
{
    const struct rsched_device_group warp = rsched_device_warp();
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

    status[i] = rsched_device_put(t, &warp, 8 * (uint64_t)i, values[i]);
}

extern "C" __global__ void puts_by_thread(struct rsched_device_target *t,
                                          const uint64_t *offsets, int *status)
{
    const struct rsched_device_group thread = rsched_device_thread();
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

    status[i] = rsched_device_put(t, &thread, offsets[i], i);
    if (status[i] == 0)
        status[i] = rsched_device_flush(t);
}
