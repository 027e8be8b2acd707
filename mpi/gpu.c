/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that are not plainly the host's: where they lie, and what becomes of
 * calls with them. */
#include "mpi/internal.h"

/* The table, if there may be anything but host memory. */
static const struct rsched_gpu_ops *attached(void)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();

    return gpus != NULL && gpus->attach() ? gpus : NULL;
}

/* All blocks of a run lie in one allocation. */
static void place_run(const struct rsched_gpu_ops *gpus, const void *address,
                      const struct rsched_run *run, struct rsched_place *place)
{
    int64_t last = (int64_t)(run->count - 1) * run->stride;
    int64_t low = run->offset + (last < 0 ? last : 0);
    uint64_t span = (uint64_t)(last < 0 ? -last : last);

    gpus->place((const void *)((uintptr_t)address + (uintptr_t)low),
                span + run->bytes, place);
}

void rs_place(const void *address, uint64_t bytes,
              const struct rsched_run *runs, size_t num_runs,
              struct rsched_place *place)
{
    const struct rsched_gpu_ops *gpus = bytes > 0 ? attached() : NULL;
    const struct rsched_run whole = {.bytes = bytes, .count = 1};

    *place = (struct rsched_place){RSCHED_PLACE_HOST, -1};
    if (gpus == NULL)
        return;
    if (num_runs == 0)
        runs = &whole;
    place_run(gpus, address, &runs[0], place);
    for (size_t i = 1; i < num_runs; i++) {
        struct rsched_place other;

        place_run(gpus, address, &runs[i], &other);
        if (other.kind == place->kind)
            continue;
        *place = (struct rsched_place){RSCHED_PLACE_UNKNOWN, -1};
        return;
    }
}

/* Where the i-th buffer of a plan lies; those that the native MPI packs are its
 * affair. */
static enum rsched_place_kind kind_of(const struct rs_plan *plan, bool send,
                                      size_t i)
{
    const struct rsched_put *put =
        (send ? rsched_pattern_put : rsched_pattern_receive)(plan->pattern, i);
    struct rsched_place place;

    if ((send ? plan->send_packed : plan->receive_packed)[i] != NULL)
        return RSCHED_PLACE_HOST;
    rs_place(send ? plan->sends[i] : plan->receives[i], put->bytes,
             put->layout.runs, put->layout.num_runs, &place);
    return place.kind;
}

static bool is_native(enum rsched_place_kind kind)
{
    return kind == RSCHED_PLACE_GPU ? !rs_process.gpu
                                    : kind != RSCHED_PLACE_HOST;
}

enum rs_reason rs_plan_reason(const struct rs_plan *plan)
{
    bool native = false;

    if (attached() == NULL)
        return RS_ACCELERATED;
    for (size_t i = 0; i < plan->num_sends && !native; i++)
        native = is_native(kind_of(plan, true, i));
    for (size_t i = 0; i < plan->num_receives && !native; i++)
        native = is_native(kind_of(plan, false, i));
    return native ? RS_REASON_GPU : RS_ACCELERATED;
}

bool rs_plan_on_gpu(const struct rs_plan *plan)
{
    bool any = false;

    if (attached() == NULL)
        return false;
    for (size_t i = 0; i < plan->num_sends && !any; i++)
        any = kind_of(plan, true, i) != RSCHED_PLACE_HOST;
    for (size_t i = 0; i < plan->num_receives && !any; i++)
        any = kind_of(plan, false, i) != RSCHED_PLACE_HOST;
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
