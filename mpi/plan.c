/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of a neighborhood collective, made into a pattern and
 * addresses. */
#include "mpi/native.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

RS_NATIVE(Send)

/* ---- the arguments of one neighbor ---- */

struct block {
    int64_t at; /* bytes from the buffer */
    uint64_t count;
    MPI_Datatype type;
};

static MPI_Count side_count(const struct rs_side *side, int i)
{
    return side->wide ? ((const MPI_Count *)side->counts)[i]
                      : ((const int *)side->counts)[i];
}

static struct block side_block(const struct rs_side *side, int slot)
{
    struct block block;
    MPI_Aint lb, extent = 0;

    block.count = (uint64_t)side_count(side, side->many_counts ? slot : 0);
    block.type = side->types[side->many_types ? slot : 0];
    if (block.type == MPI_DATATYPE_NULL) /* of nothing, see may_be_null() */
        block.type = MPI_BYTE;
    if (side->spread == RS_SPREAD_DENSE || side->spread == RS_SPREAD_DISPLS)
        PMPI_Type_get_extent(block.type, &lb, &extent);
    switch (side->spread) {
    case RS_SPREAD_SAME:
        block.at = 0;
        break;
    case RS_SPREAD_DENSE:
        block.at = (int64_t)slot * (int64_t)block.count * extent;
        break;
    case RS_SPREAD_DISPLS:
        block.at = side->wide ? ((const MPI_Aint *)side->displs)[slot]
                              : ((const int *)side->displs)[slot];
        block.at *= extent;
        break;
    default:
        block.at = ((const MPI_Aint *)side->displs)[slot];
        break;
    }
    return block;
}

/* Whether the native MPI takes the type for messages: a handle that is none, or that
 * nobody has committed, is wrong; MPICH does not mind if nothing is sent. A message on
 * the backend's communicator calls no handler. (A persistent request to nobody would
 * not do: in MPICH 4.0 a persistent collective that is made of the object of such a
 * one never ends.) */
static bool type_valid(MPI_Datatype type, bool sent)
{
    char buffer;

    return native_Send(&buffer, sent, type, MPI_PROC_NULL, 0,
                       rs_process.comm) == MPI_SUCCESS;
}

/* Programs give no type to neighbors that they have not, with a count of 0. What one
 * process takes to be wrong the others do not see, so what MPICH takes must be taken. */
static bool may_be_null(const struct rs_side *side, int i, int counts)
{
    int first = side->many_types && side->many_counts ? i : 0;
    int end = side->many_types ? first + 1 : counts;

    for (int k = first; k < end; k++) {
        if (side_count(side, k) > 0)
            return false;
    }
    return type_valid(MPI_DATATYPE_NULL, false);
}

static bool side_valid(const struct rs_side *side, int slots)
{
    int counts = side->many_counts ? slots : 1;
    int types = side->many_types ? slots : 1;

    if ((side->many_counts || side->many_types) && slots == 0)
        return true;
    if (side->counts == NULL || side->types == NULL ||
        (side->spread >= RS_SPREAD_DISPLS && side->displs == NULL))
        return false;
    for (int i = 0; i < counts; i++) {
        if (side_count(side, i) < 0)
            return false;
    }
    for (int i = 0; i < types; i++) {
        if (side->types[i] == MPI_DATATYPE_NULL && !may_be_null(side, i, counts))
            return false;
    }
    return side->buffer != MPI_IN_PLACE;
}

bool rs_args_valid(const struct rs_comm *comm, const struct rs_args *args)
{
    return side_valid(&args->send, comm->num_sends) &&
           side_valid(&args->receive, comm->num_receives);
}

static bool side_types_valid(const struct rs_side *side, int slots)
{
    int num = side->many_counts || side->many_types ? slots : 1;
    MPI_Datatype last = MPI_DATATYPE_NULL; /* that is valid, with this */
    bool last_sent = false;

    for (int i = 0; i < num; i++) {
        MPI_Datatype type = side->types[side->many_types ? i : 0];
        bool sent = side_count(side, side->many_counts ? i : 0) > 0;

        if (type == last && sent == last_sent)
            continue;
        if (!type_valid(type, sent))
            return false;
        last = type;
        last_sent = sent;
    }
    return true;
}

bool rs_types_valid(const struct rs_comm *comm, const struct rs_args *args)
{
    return side_types_valid(&args->send, comm->num_sends) &&
           side_types_valid(&args->receive, comm->num_receives);
}

/* ---- making ---- */

static char *address(const void *buffer, int64_t offset)
{
    /* As an integer: MPI_BOTTOM is a null pointer that is counted from. */
    return (char *)((uintptr_t)buffer + (uintptr_t)offset);
}

/* MPI_Pack counts bytes in an int: a datatype that is longer cannot be packed, since
 * it is packed as a whole. */
static bool is_too_long(const struct block *block, uint64_t size)
{
    return size / block->count > INT_MAX;
}

/* A block whose datatype the native MPI packs into memory of ours, which it has only
 * if it can be packed. The type is moved to its first byte: MPICH's MPI_Pack refuses
 * MPI_BOTTOM. */
static struct rs_packed *packed_create(const struct block *block, uint64_t size)
{
    struct rs_packed *packed = calloc(1, sizeof(*packed));
    MPI_Aint first, extent, back;
    int one = 1;

    if (packed == NULL)
        return NULL;
    packed->bytes = is_too_long(block, size) ? NULL : malloc(size);
    if (packed->bytes == NULL && !is_too_long(block, size)) {
        free(packed);
        return NULL;
    }
    PMPI_Type_get_true_extent(block->type, &first, &extent);
    back = -first;
    PMPI_Type_create_hindexed(1, &one, &back, block->type, &packed->type);
    PMPI_Type_commit(&packed->type);
    packed->count = block->count;
    packed->size = size;
    packed->at = block->at + first;
    return packed;
}

static void packed_destroy(struct rs_packed *packed)
{
    if (packed == NULL)
        return;
    if (packed->stage != NULL) {
        rs_stage_destroy(packed);
        return;
    }
    PMPI_Type_free(&packed->type);
    free(packed->bytes);
    free(packed);
}

/* A block that the exchange cannot have where it is: *packed, else NULL.
 * `on_gpu` is NULL if it was asked about GPU memory. @return false: no memory */
static bool pack_block(struct rs_plan *plan, const struct block *block,
                       const struct rs_flat *all, bool send,
                       const struct rs_on_gpu *on_gpu,
                       struct rs_packed **packed)
{
    const bool *taken = on_gpu == NULL ? NULL
                        : send         ? on_gpu->sends
                                       : on_gpu->receives;
    size_t i = send ? plan->num_sends : plan->num_receives;
    void *user = address(send ? plan->send_buffer : plan->receive_buffer,
                         block->at);
    bool native = all->opaque;

    *packed = NULL;
    if (!native && on_gpu != NULL) {
        if (!rs_block_off_gpu(all, user, send, taken != NULL && taken[i],
                              &native, packed))
            return false;
        plan->off_gpu = plan->off_gpu || native || *packed != NULL;
    }
    if (native) {
        *packed = packed_create(block, all->size);
        if (*packed == NULL)
            return false;
        if (is_too_long(block, all->size))
            plan->too_long = true;
        else
            rs_count_packed(1);
    } else if (*packed != NULL) {
        (*packed)->at = block->at + all->runs[0].offset;
    }
    plan->packed = plan->packed || *packed != NULL;
    return true;
}

/* Add one put or receive and note where its bytes are. */
static enum rs_reason add(struct rs_plan *plan, const struct block *block,
                          int source, int destination, bool send,
                          const struct rs_on_gpu *on_gpu)
{
    struct rsched_put put = {.source = source, .destination = destination};
    struct rs_flat *one = rs_flat_get(block->type);
    struct rs_flat *all = one ? rs_flat_repeat(one, block->count) : NULL;
    size_t i = send ? plan->num_sends : plan->num_receives;
    struct rs_packed *packed = NULL;
    enum rs_reason reason = RS_REASON_MEMORY;
    int64_t at = block->at;

    if (all == NULL)
        goto out;
    put.bytes = all->size;
    if (!pack_block(plan, block, all, send, on_gpu, &packed))
        goto out;
    if (packed == NULL && all->num_runs > 0) {
        /* From the first byte, so that no address is null. */
        int64_t first = all->runs[0].offset;

        for (size_t k = 0; k < all->num_runs; k++)
            all->runs[k].offset -= first;
        at += first;
        put.layout.runs = all->runs;
        put.layout.num_runs = all->num_runs;
    }
    if ((send ? rsched_pattern_add_put(plan->pattern, &put)
              : rsched_pattern_add_receive(plan->pattern, &put)) < 0) {
        rs_log(RS_LOG_WARN, "%s", rsched_last_error());
        packed_destroy(packed);
        goto out;
    }
    (send ? plan->send_at : plan->receive_at)[i] = at;
    (send ? plan->send_packed : plan->receive_packed)[i] = packed;
    if (send)
        plan->num_sends++;
    else
        plan->num_receives++;
    reason = RS_ACCELERATED;
out:
    rs_flat_drop(all);
    rs_flat_drop(one);
    return reason;
}

static enum rs_reason add_all(struct rs_plan *plan, const struct rs_comm *comm,
                              const struct rs_args *args,
                              const struct rs_on_gpu *on_gpu)
{
    enum rs_reason reason;

    for (int i = 0; i < comm->num_sends; i++) {
        int slot = rs_comm_send_slot(comm, i);
        struct block block;

        if (comm->send_to[slot] == MPI_PROC_NULL)
            continue;
        block = side_block(&args->send, slot);
        reason = add(plan, &block, rs_process.rank, comm->send_to[slot], true,
                     on_gpu);
        if (reason != RS_ACCELERATED)
            return reason;
    }
    for (int i = 0; i < comm->num_receives; i++) {
        int slot = rs_comm_receive_slot(comm, i);
        struct block block;

        if (comm->receive_from[slot] == MPI_PROC_NULL)
            continue;
        block = side_block(&args->receive, slot);
        reason = add(plan, &block, comm->receive_from[slot], rs_process.rank,
                     false, on_gpu);
        if (reason != RS_ACCELERATED)
            return reason;
    }
    return RS_ACCELERATED;
}

static bool plan_allocate(struct rs_plan *plan, const struct rs_comm *comm)
{
    size_t sends = (size_t)comm->num_sends + 1;
    size_t receives = (size_t)comm->num_receives + 1;

    plan->sends = calloc(sends, sizeof(*plan->sends));
    plan->send_at = calloc(sends, sizeof(*plan->send_at));
    plan->send_packed = calloc(sends, sizeof(*plan->send_packed));
    plan->receives = calloc(receives, sizeof(*plan->receives));
    plan->receive_at = calloc(receives, sizeof(*plan->receive_at));
    plan->receive_packed = calloc(receives, sizeof(*plan->receive_packed));
    return plan->sends != NULL && plan->send_at != NULL &&
           plan->send_packed != NULL && plan->receives != NULL &&
           plan->receive_at != NULL && plan->receive_packed != NULL &&
           rsched_pattern_create(rs_call_names[0], &plan->pattern) == 0;
}

void rs_plan_rebase(struct rs_plan *plan, const void *send_buffer,
                    void *receive_buffer)
{
    static atomic_uint_least64_t serials;

    plan->serial = 1 + atomic_fetch_add_explicit(&serials, 1,
                                                 memory_order_relaxed);
    plan->send_buffer = send_buffer;
    plan->receive_buffer = receive_buffer;
    for (size_t i = 0; i < plan->num_sends; i++)
        plan->sends[i] = plan->send_packed[i] != NULL
                             ? plan->send_packed[i]->bytes
                             : address(send_buffer, plan->send_at[i]);
    for (size_t i = 0; i < plan->num_receives; i++)
        plan->receives[i] =
            plan->receive_packed[i] != NULL
                ? plan->receive_packed[i]->bytes
                : address(receive_buffer, plan->receive_at[i]);
}

static enum rs_reason create(const struct rs_comm *comm,
                             const struct rs_args *args,
                             const struct rs_on_gpu *on_gpu,
                             struct rs_plan **created)
{
    struct rs_plan *plan = calloc(1, sizeof(*plan));
    enum rs_reason reason = RS_REASON_MEMORY;

    if (plan == NULL)
        return reason;
    plan->kind = args->kind;
    plan->send_buffer = args->send.buffer;
    plan->receive_buffer = args->receive.buffer;
    plan->generation = rs_type_generation();
    if (plan_allocate(plan, comm))
        reason = add_all(plan, comm, args, on_gpu);
    if (reason != RS_ACCELERATED) {
        rs_plan_destroy(plan);
        return reason;
    }
    rs_plan_rebase(plan, args->send.buffer, args->receive.buffer);
    *created = plan;
    return RS_ACCELERATED;
}

enum rs_reason rs_plan_create(const struct rs_comm *comm,
                              const struct rs_args *args,
                              struct rs_plan **created)
{
    return create(comm, args, NULL, created);
}

enum rs_reason rs_plan_create_off_gpu(const struct rs_comm *comm,
                                      const struct rs_args *args,
                                      const struct rs_on_gpu *on_gpu,
                                      struct rs_plan **created)
{
    return create(comm, args, on_gpu, created);
}

void rs_plan_destroy(struct rs_plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->num_sends; i++)
        packed_destroy(plan->send_packed[i]);
    for (size_t i = 0; i < plan->num_receives; i++)
        packed_destroy(plan->receive_packed[i]);
    for (int side = 0; side < 2; side++) {
        free(plan->counts[side]);
        free(plan->types[side]);
        free(plan->displs[side]);
    }
    rsched_pattern_destroy(plan->pattern);
    free(plan->sends);
    free(plan->send_at);
    free(plan->send_packed);
    free(plan->receives);
    free(plan->receive_at);
    free(plan->receive_packed);
    rs_allocations_fini(&plan->allocations);
    free(plan);
}

/* ---- packing ---- */

int rs_plan_check(const struct rs_plan *plan)
{
    if (!plan->too_long)
        return MPI_SUCCESS;
    rs_log(RS_LOG_ERROR, "%s: a datatype that only the native MPI packs is longer "
                         "than MPI_Pack takes (%d bytes); persistent requests and "
                         "a communicator's first blocking call go native for that",
           rs_call_names[plan->kind], INT_MAX);
    return MPI_ERR_COUNT;
}

/* Of several repetitions at most so many bytes are packed at once. */
enum { PACK_BYTES = 1 << 30 };

static uint64_t pack_step(const struct rs_packed *packed)
{
    uint64_t each = packed->size / packed->count;

    return each > PACK_BYTES ? 1 : PACK_BYTES / each;
}

static int move(const struct rs_packed *packed, const void *buffer, bool pack)
{
    uint64_t step = pack_step(packed);
    uint64_t each = packed->size / packed->count;
    MPI_Aint lb, extent;
    int error = MPI_SUCCESS;

    PMPI_Type_get_extent(packed->type, &lb, &extent);
    for (uint64_t i = 0; i < packed->count && error == MPI_SUCCESS; i += step) {
        uint64_t n = packed->count - i < step ? packed->count - i : step;
        char *user = address(buffer, packed->at + (int64_t)i * extent);
        char *ours = packed->bytes + i * each;
        int position = 0;

        if (pack)
            error = PMPI_Pack(user, (int)n, packed->type, ours,
                              (int)(n * each), &position, MPI_COMM_SELF);
        else
            error = PMPI_Unpack(ours, (int)(n * each), &position, user,
                                (int)n, packed->type, MPI_COMM_SELF);
    }
    return error;
}

/* GPUs copy while the native MPI packs. */
static int move_all(struct rs_packed *const *packed, size_t num,
                    const void *buffer, bool pack)
{
    int error = MPI_SUCCESS;

    for (size_t i = 0; i < num && error == MPI_SUCCESS; i++) {
        if (packed[i] != NULL && packed[i]->stage != NULL)
            error = rs_stage_begin(packed[i]);
    }
    for (size_t i = 0; i < num && error == MPI_SUCCESS; i++) {
        if (packed[i] != NULL && packed[i]->stage == NULL)
            error = move(packed[i], buffer, pack);
    }
    for (size_t i = 0; i < num && error == MPI_SUCCESS; i++) {
        if (packed[i] != NULL && packed[i]->stage != NULL)
            error = rs_stage_finish(packed[i]);
    }
    return error;
}

int rs_plan_pack(struct rs_plan *plan)
{
    return move_all(plan->send_packed, plan->num_sends, plan->send_buffer,
                    true);
}

int rs_plan_unpack(struct rs_plan *plan)
{
    return move_all(plan->receive_packed, plan->num_receives,
                    plan->receive_buffer, false);
}

/* ---- the same again? ---- */

static size_t count_size(const struct rs_side *side)
{
    return side->wide ? sizeof(MPI_Count) : sizeof(int);
}

static size_t displ_size(const struct rs_side *side)
{
    if (side->spread == RS_SPREAD_BYTES)
        return sizeof(MPI_Aint);
    if (side->spread == RS_SPREAD_DISPLS)
        return side->wide ? sizeof(MPI_Aint) : sizeof(int);
    return 0;
}

static void *copy(const void *array, size_t bytes, bool *good)
{
    void *mine = malloc(bytes + 1);

    if (mine == NULL)
        *good = false;
    else if (bytes > 0)
        memcpy(mine, array, bytes);
    return mine;
}

static bool equal(const void *mine, const void *array, size_t bytes)
{
    return bytes == 0 || memcmp(mine, array, bytes) == 0;
}

bool rs_plan_keep(struct rs_plan *plan, const struct rs_comm *comm,
                  const struct rs_args *args)
{
    bool good = true;

    plan->wide = args->send.wide;
    for (int i = 0; i < 2; i++) {
        const struct rs_side *side = i ? &args->receive : &args->send;
        size_t slots = (size_t)(i ? comm->num_receives : comm->num_sends);
        size_t counts = side->many_counts ? slots : 1;
        size_t types = side->many_types ? slots : 1;

        plan->counts[i] = copy(side->counts, counts * count_size(side), &good);
        plan->types[i] =
            copy(side->types, types * sizeof(MPI_Datatype), &good);
        plan->displs[i] =
            copy(side->displs, slots * displ_size(side), &good);
    }
    return good;
}

bool rs_plan_matches(const struct rs_plan *plan, const struct rs_comm *comm,
                     const struct rs_args *args)
{
    if (plan->wide != args->send.wide ||
        plan->generation != rs_type_generation())
        return false;
    for (int i = 0; i < 2; i++) {
        const struct rs_side *side = i ? &args->receive : &args->send;
        size_t slots = (size_t)(i ? comm->num_receives : comm->num_sends);
        size_t counts = side->many_counts ? slots : 1;
        size_t types = side->many_types ? slots : 1;

        if (side->counts == NULL || side->types == NULL ||
            (displ_size(side) != 0 && side->displs == NULL) ||
            side->buffer == MPI_IN_PLACE)
            return false;
        if (!equal(plan->counts[i], side->counts,
                   counts * count_size(side)) ||
            !equal(plan->types[i], side->types,
                   types * sizeof(MPI_Datatype)) ||
            !equal(plan->displs[i], side->displs, slots * displ_size(side)))
            return false;
    }
    return true;
}
