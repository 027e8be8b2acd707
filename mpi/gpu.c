/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that are not plainly the host's, which the native MPI has to move. */
#include "mpi/internal.h"

#include <rsched/engine.h>

bool rs_on_gpu(const void *address, uint64_t bytes)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    struct rsched_place place;

    if (bytes == 0 || gpus == NULL || !gpus->attach())
        return false;
    gpus->place(address, bytes, &place);
    return place.kind != RSCHED_PLACE_HOST;
}

/* The first block of each; the rest is of the same allocation. */
static bool is_on_gpu(const struct rsched_put *put, const void *address)
{
    const struct rsched_layout *layout = &put->layout;

    if (put->bytes == 0)
        return false;
    if (layout->num_runs == 0)
        return rs_on_gpu(address, put->bytes);
    return rs_on_gpu((const void *)((uintptr_t)address +
                                    (uintptr_t)layout->runs[0].offset),
                     layout->runs[0].bytes);
}

bool rs_plan_on_gpu(const struct rs_plan *plan)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    bool any = false;

    if (gpus == NULL || !gpus->attach())
        return false;
    for (size_t i = 0; i < plan->num_sends && !any; i++)
        any = plan->send_packed[i] == NULL &&
              is_on_gpu(rsched_pattern_put(plan->pattern, i), plan->sends[i]);
    for (size_t i = 0; i < plan->num_receives && !any; i++)
        any = plan->receive_packed[i] == NULL &&
              is_on_gpu(rsched_pattern_receive(plan->pattern, i),
                        plan->receives[i]);
    return any;
}

struct rs_plan *rs_plan_off_gpu(const struct rs_comm *comm,
                                const struct rs_args *args,
                                struct rs_plan *plan)
{
    struct rs_plan *packed = NULL;

    if (!rs_plan_on_gpu(plan))
        return plan;
    rs_plan_destroy(plan);
    if (rs_plan_create_packed(comm, args, &packed) != RS_ACCELERATED)
        return NULL;
    if (rs_plan_keep(packed, comm, args))
        return packed;
    rs_plan_destroy(packed);
    return NULL;
}
