/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that are not plainly the host's: where they lie, and what becomes of
 * calls with them. */
#include "mpi/internal.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The table, if there may be anything but host memory. */
static const struct rsched_gpu_ops *attached(void)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();

    return gpus != NULL && gpus->attach() ? gpus : NULL;
}

/* Where the runs of a layout lie (`bytes` in one piece, if there are none), as far
 * as the GPU's driver is loaded; UNKNOWN also if in memory of several kinds. */
static void find_place(const void *address, uint64_t bytes,
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
    rsched_place_run(gpus, address, &runs[0], place);
    for (size_t i = 1; i < num_runs; i++) {
        struct rsched_place other;

        rsched_place_run(gpus, address, &runs[i], &other);
        if (other.kind == place->kind)
            continue;
        *place = (struct rsched_place){RSCHED_PLACE_UNKNOWN, -1};
        return;
    }
}

int rs_gpu_of(const void *address, const struct rs_flat *layout)
{
    struct rsched_place place;
    int gpu = RS_GPU_NONE;

    if (layout->size == 0 || attached() == NULL)
        return RS_GPU_NONE;
    for (size_t i = 0; i < layout->num_runs; i++) {
        int other = RS_GPU_OTHER;

        rsched_place_run(rsched_gpus(), address, &layout->runs[i], &place);
        if (place.kind == RSCHED_PLACE_HOST)
            other = RS_GPU_NONE;
        else if (place.kind == RSCHED_PLACE_GPU && rs_process.gpu)
            other = place.gpu;
        if (i > 0 && other != gpu)
            return RS_GPU_OTHER;
        gpu = other;
    }
    return gpu;
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
    find_place(send ? plan->sends[i] : plan->receives[i], put->bytes,
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

    if (plan->too_long)
        return RS_REASON_LAYOUT;
    if (attached() == NULL)
        return RS_ACCELERATED;
    for (size_t i = 0; i < plan->num_sends && !native; i++)
        native = is_native(kind_of(plan, true, i));
    for (size_t i = 0; i < plan->num_receives && !native; i++)
        native = is_native(kind_of(plan, false, i));
    return native ? RS_REASON_GPU : RS_ACCELERATED;
}

/* Where a buffer begins: in the user's memory, also if it is packed. */
static const void *begin_of(const struct rs_plan *plan, bool send, size_t i)
{
    const struct rs_packed *packed =
        (send ? plan->send_packed : plan->receive_packed)[i];
    const void *buffer = send ? plan->send_buffer : plan->receive_buffer;

    if (packed == NULL)
        return send ? plan->sends[i] : plan->receives[i];
    return (const void *)((uintptr_t)buffer + (uintptr_t)packed->at);
}

/* All of a run lies in one allocation. @return false: no memory */
static bool add_buffer(struct rs_allocations *a, const struct rs_plan *plan,
                      bool send, size_t i)
{
    const struct rsched_put *put =
        (send ? rsched_pattern_put : rsched_pattern_receive)(plan->pattern, i);
    uintptr_t begin = (uintptr_t)begin_of(plan, send, i);
    const struct rsched_run whole = {.bytes = put->bytes, .count = 1};
    size_t num_runs = put->layout.num_runs;
    const struct rsched_run *runs = num_runs > 0 ? put->layout.runs : &whole;
    bool all = true;

    if (put->bytes == 0)
        return true;
    for (size_t k = 0; all && (k == 0 || k < num_runs); k++)
        all = rs_allocations_add(
            a, rsched_gpus()->allocation,
            (const void *)(begin + (uintptr_t)runs[k].offset));
    return all;
}

/* @return false: no memory */
static bool find_allocations(const struct rs_plan *plan,
                             struct rs_allocations *a)
{
    bool all = true;

    rs_allocations_fini(a);
    if (attached() == NULL)
        return true;
    for (size_t i = 0; i < plan->num_sends && all; i++)
        all = add_buffer(a, plan, true, i);
    for (size_t i = 0; i < plan->num_receives && all; i++)
        all = add_buffer(a, plan, false, i);
    return all;
}

void rs_plan_look(struct rs_plan *plan)
{
    plan->looked = find_allocations(plan, &plan->allocations) ? plan->serial : 0;
}

bool rs_plan_is_in_place(const struct rs_plan *plan)
{
    return plan->looked == plan->serial &&
           (plan->allocations.number == 0 ||
            rs_allocations_stay(&plan->allocations, rsched_gpus()->allocation));
}

/* ---- exchanges that take GPU memory for some puts ---- */

bool rs_on_gpu_init(struct rs_on_gpu *on_gpu, const struct rs_plan *plan)
{
    struct rs_allocations found = {0};
    struct rs_on_gpu made;
    bool all = find_allocations(plan, &found), any = found.number > 0;

    rs_allocations_fini(&found);
    if (!all || !any)
        return all;
    made.sends = calloc(plan->num_sends + 1, sizeof(bool));
    made.receives = calloc(plan->num_receives + 1, sizeof(bool));
    if (made.sends == NULL || made.receives == NULL) {
        rs_on_gpu_fini(&made);
        return false;
    }
    for (size_t i = 0; i < plan->num_sends; i++)
        made.sends[i] = kind_of(plan, true, i) == RSCHED_PLACE_GPU;
    for (size_t i = 0; i < plan->num_receives; i++)
        made.receives[i] = kind_of(plan, false, i) == RSCHED_PLACE_GPU;
    *on_gpu = made;
    return true;
}

void rs_on_gpu_fini(struct rs_on_gpu *on_gpu)
{
    free(on_gpu->sends);
    free(on_gpu->receives);
    *on_gpu = (struct rs_on_gpu){0};
}

static bool is_taken(enum rsched_place_kind kind, const bool *taken, size_t i)
{
    return kind == RSCHED_PLACE_HOST ||
           (kind == RSCHED_PLACE_GPU && taken != NULL && taken[i]);
}

static bool fits(const struct rs_plan *plan, const struct rs_on_gpu *on_gpu)
{
    bool all = true;

    for (size_t i = 0; i < plan->num_sends && all; i++)
        all = is_taken(kind_of(plan, true, i), on_gpu->sends, i);
    for (size_t i = 0; i < plan->num_receives && all; i++)
        all = is_taken(kind_of(plan, false, i), on_gpu->receives, i);
    return all;
}

struct rs_plan *rs_plan_off_gpu(const struct rs_comm *comm,
                                const struct rs_args *args,
                                const struct rs_on_gpu *on_gpu,
                                struct rs_plan *plan)
{
    struct rs_plan *other = NULL;

    if (rs_plan_is_in_place(plan))
        return plan;
    if (plan->off_gpu || (attached() != NULL && !fits(plan, on_gpu))) {
        rs_plan_destroy(plan);
        if (rs_plan_create_off_gpu(comm, args, on_gpu, &other) !=
            RS_ACCELERATED)
            return NULL;
        if (!rs_plan_keep(other, comm, args)) {
            rs_plan_destroy(other);
            return NULL;
        }
        plan = other;
    }
    rs_plan_look(plan);
    return plan;
}

/* ---- blocks that a GPU packs ---- */

/* Of `size`, in whole pages, which can be pinned. */
static size_t stage_bytes(const struct rs_packed *packed)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (packed->size + page - 1) / page * page;
}

/* Memory to stage through. @return 0, or an error that is in the log */
static int stage_memory(struct rs_packed *packed)
{
    size_t bytes = stage_bytes(packed);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    int error;

    if (memory == MAP_FAILED) {
        rs_log(RS_LOG_ERROR, "%zu bytes to stage through: %m", bytes);
        return RSCHED_ENOMEM;
    }
    packed->bytes = memory;
    error = rsched_gpus()->stage_pin(packed->stage, memory, bytes);
    if (error != 0)
        rs_log(RS_LOG_ERROR, "%s", rsched_last_error());
    return error;
}

static bool stage_create(const struct rs_flat *block, void *address, bool send,
                         int gpu, struct rs_packed *packed)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    struct rsched_message message = {.num_pieces = block->num_runs,
                                     .bytes = block->size};
    struct rsched_piece *pieces = calloc(block->num_runs, sizeof(*pieces));
    int error;

    if (pieces == NULL)
        return false;
    for (size_t i = 0; i < block->num_runs; i++) {
        const struct rsched_run *run = &block->runs[i];

        pieces[i] = (struct rsched_piece){
            (char *)((uintptr_t)address + (uintptr_t)run->offset), run->bytes,
            run->count, run->stride};
    }
    message.pieces = pieces;
    error = gpus->hold(gpu, &packed->gpu);
    if (error == 0)
        error = gpus->stage_create(packed->gpu, &message, send, block->size,
                                   &packed->stage);
    free(pieces);
    packed->size = block->size;
    if (error == 0)
        return stage_memory(packed) == 0;
    rs_log(RS_LOG_ERROR, "%s", rsched_last_error());
    return false;
}

void rs_stage_destroy(struct rs_packed *packed)
{
    rsched_gpus()->stage_destroy(packed->stage);
    rsched_gpus()->release(packed->gpu);
    if (packed->bytes != NULL)
        munmap(packed->bytes, stage_bytes(packed));
    free(packed);
}

bool rs_block_off_gpu(const struct rs_flat *block, void *address, bool send,
                      bool taken, bool *native, struct rs_packed **packed)
{
    struct rsched_place place;
    struct rs_packed *made;

    find_place(address, block->size, block->runs, block->num_runs, &place);
    *native = is_native(place.kind);
    if (*native || is_taken(place.kind, &taken, 0))
        return true;
    made = calloc(1, sizeof(*made));
    if (made == NULL)
        return false;
    if (!stage_create(block, address, send, place.gpu, made)) {
        rs_stage_destroy(made);
        return false;
    }
    *packed = made;
    return true;
}

static int stage_failed(int error)
{
    rs_log(RS_LOG_ERROR, "%s", rsched_last_error());
    return rs_error_class(error);
}

int rs_stage_begin(const struct rs_packed *packed)
{
    int error = rsched_gpus()->stage_begin(packed->stage, 0, packed->bytes);

    return error == 0 ? MPI_SUCCESS : stage_failed(error);
}

int rs_stage_finish(const struct rs_packed *packed)
{
    int status;

    while ((status = rsched_gpus()->stage_poll(packed->stage, 0)) ==
           RSCHED_LANE_PENDING)
        sched_yield(); /* nobody else has to do anything for that */
    if (status < 0)
        return stage_failed(status);
    rs_count_number(RS_NUMBER_STAGED, packed->size);
    return MPI_SUCCESS;
}
