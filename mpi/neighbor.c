/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighborhood collectives, blocking, persistent and nonblocking. */
#include "mpi/persistent.h"

#include <stddef.h>

/* ---- blocking ---- */

/* Make the channel of a communicator's blocking calls: a variable exchange,
 * because one process cannot see whether another one's arguments change. All
 * five calls use it; they come in the same order everywhere. It takes GPU memory
 * where the first call has any. */
static int open_channel(struct rs_comm *comm, struct rs_plan *plan)
{
    enum rs_reason reason = rs_plan_reason(plan);

    comm->channel_tried = true;
    if (reason == RS_ACCELERATED && !rs_on_gpu_init(&comm->on_gpu, plan))
        reason = RS_REASON_MEMORY;
    comm->blocking = rs_comm_vote(comm, reason);
    if (comm->blocking != RS_ACCELERATED)
        return MPI_SUCCESS;
    rs_plan_look(plan);
    return rs_comm_exchange(comm, plan, RSCHED_EXCHANGE_VARIABLE | RSCHED_EXCHANGE_COMPARED,
                            &comm->channel, &comm->blocking);
}

/* The plan of these arguments, remade when they are not the same as last time.
 * NULL when out of memory. */
static struct rs_plan *current_plan(struct rs_comm *comm,
                                    const struct rs_args *args, bool same)
{
    struct rs_plan **plan = &comm->plans[args->kind];

    if (same) {
        if ((*plan)->send_buffer == args->send.buffer &&
            (*plan)->receive_buffer == args->receive.buffer &&
            rs_plan_is_in_place(*plan))
            return *plan;
        rs_plan_rebase(*plan, args->send.buffer, args->receive.buffer);
    } else {
        rs_plan_destroy(*plan);
        *plan = NULL;
        if (rs_plan_create(comm, args, plan) != RS_ACCELERATED)
            return NULL;
        if (!rs_plan_keep(*plan, comm, args)) {
            rs_plan_destroy(*plan);
            *plan = NULL;
            return NULL;
        }
    }
    comm->loaded = NULL;
    /* Whoever comes to GPU memory later cannot go native alone. */
    if (comm->channel_tried && comm->blocking == RS_ACCELERATED)
        *plan = rs_plan_off_gpu(comm, args, &comm->on_gpu, *plan);
    return *plan;
}

static int failed(struct rs_comm *comm, int error)
{
    rs_log(RS_LOG_ERROR, "%s", rsched_last_error());
    return rs_raise(comm, rs_error_class(error));
}

static int run(struct rs_comm *comm, struct rs_plan *plan)
{
    int error = rs_plan_check(plan);

    if (error != MPI_SUCCESS)
        return rs_raise(comm, error);
    if (comm->loaded != plan) {
        error = rsched_exchange_load(comm->channel, plan->pattern, plan->sends,
                                     plan->receives);
        if (error != 0)
            return failed(comm, error);
        comm->loaded = plan;
        comm->loads++;
    }
    if (plan->packed && (error = rs_plan_pack(plan)) != MPI_SUCCESS)
        return rs_raise(comm, error);
    error = rsched_exchange_start(comm->channel);
    if (error == 0)
        error = rsched_exchange_wait(comm->channel);
    if (error != 0)
        return failed(comm, error);
    if (plan->packed && (error = rs_plan_unpack(plan)) != MPI_SUCCESS)
        return rs_raise(comm, error);
    return MPI_SUCCESS;
}

/* False: the native MPI must do it. */
static bool blocking(MPI_Comm handle, const struct rs_args *args, int *result)
{
    enum rs_reason reason;
    struct rs_comm *comm = rs_comm_get(handle, &reason);
    struct rs_plan *plan;
    bool same;

    if (comm == NULL)
        goto native;
    plan = comm->plans[args->kind];
    same = plan != NULL && rs_plan_matches(plan, comm, args);
    if (!same &&
        (!rs_args_valid(comm, args) || !rs_types_valid(comm, args))) {
        reason = RS_REASON_ARGUMENT; /* for the native call to complain of */
        goto native;
    }
    plan = current_plan(comm, args, same);
    if (plan == NULL) {
        *result = rs_raise(comm, MPI_ERR_NO_MEM);
        return true;
    }
    if (!comm->channel_tried &&
        (*result = open_channel(comm, plan)) != MPI_SUCCESS)
        return true;
    reason = comm->blocking;
    if (reason != RS_ACCELERATED)
        goto native;
    *result = run(comm, plan);
    rs_look(); /* it need not have waited */
    rs_look_at_times();
    comm->calls[args->kind]++;
    return true;
native:
    rs_count_native((enum rs_call)args->kind, reason);
    return false;
}

/* ---- persistent ---- */

static bool persistent(MPI_Comm handle, const struct rs_args *args,
                       MPI_Request *handle_made, int *result)
{
    enum rs_call call = (enum rs_call)(RS_CALL_INIT + (int)args->kind);
    enum rs_reason reason;
    struct rs_comm *comm = rs_comm_get(handle, &reason);
    struct rsched_exchange *exchange = NULL;
    struct rs_request *request;
    struct rs_plan *plan = NULL;

    *result = MPI_SUCCESS;
    if (comm != NULL)
        reason = rs_process.requests;
    if (reason != RS_ACCELERATED) {
        rs_count_native(call, reason);
        return false;
    }
    reason = rs_args_valid(comm, args) && rs_types_valid(comm, args)
                 ? rs_plan_create(comm, args, &plan)
                 : RS_REASON_ARGUMENT;
    if (reason == RS_ACCELERATED)
        reason = rs_plan_reason(plan);
    request = rs_request_create();
    if (request == NULL && reason == RS_ACCELERATED)
        reason = RS_REASON_MEMORY;
    reason = rs_comm_vote(comm, reason);
    if (reason == RS_ACCELERATED)
        *result = rs_comm_exchange(comm, plan, 0, &exchange, &reason);
    if (reason != RS_ACCELERATED) {
        rs_request_discard(request);
        rs_plan_destroy(plan);
        if (*result == MPI_SUCCESS)
            rs_count_native(call, reason);
        return *result != MPI_SUCCESS;
    }
    rs_request_open(request, comm, exchange, plan);
    rs_count_accelerated(call, 1);
    *handle_made = request->handle;
    return true;
}

/* ---- nonblocking ---- */

/* Local, so all processes must come to the same decision by themselves: it
 * was taken when the communicator was made. */
static bool nonblocking(MPI_Comm handle, const struct rs_args *args,
                        MPI_Request *handle_made, int *result)
{
    enum rs_call call = (enum rs_call)(RS_CALL_INEIGHBOR + (int)args->kind);
    enum rs_reason reason;
    struct rs_comm *comm = rs_comm_find(handle, &reason);
    struct rs_request *request;
    struct rs_plan *plan = NULL;

    if (comm != NULL)
        reason = rs_process.requests != RS_ACCELERATED ? rs_process.requests
                                                       : comm->nonblocking;
    if (reason == RS_ACCELERATED && !rs_args_valid(comm, args))
        reason = RS_REASON_ARGUMENT; /* for the native call to complain of */
    if (reason != RS_ACCELERATED) {
        rs_count_native(call, reason);
        return false;
    }
    request = rs_request_create();
    if (request != NULL)
        plan = rs_flight_plan(comm, args);
    if (plan == NULL && !rs_types_valid(comm, args)) {
        rs_request_discard(request);
        rs_count_native(call, RS_REASON_ARGUMENT);
        return false;
    }
    *result = plan == NULL ? MPI_ERR_NO_MEM : rs_plan_check(plan);
    if (*result == MPI_SUCCESS && plan->packed)
        *result = rs_plan_pack(plan);
    if (*result != MPI_SUCCESS) {
        rs_plan_destroy(plan);
        rs_request_discard(request);
        rs_raise(comm, *result);
        return true;
    }
    rs_request_open(request, comm, NULL, plan);
    rs_flight_start(request);
    rs_count_accelerated(call, 1);
    *handle_made = request->handle;
    return true;
}

/* ---- the functions ---- */

/* Arguments of the MPI functions as struct rs_args; the standard's names. */
#define SIDE_ONE(side, spread_)                                              \
    {.buffer = (void *)(uintptr_t)side##buf, .counts = &side##count,         \
     .types = &side##type, .wide = RS_WIDE, .spread = (spread_)}
#define SIDE_V(side, displs_)                                                \
    {.buffer = (void *)(uintptr_t)side##buf, .counts = side##counts,         \
     .types = &side##type, .displs = (displs_), .many_counts = true,         \
     .wide = RS_WIDE, .spread = RS_SPREAD_DISPLS}
#define SIDE_W(side, displs_)                                                \
    {.buffer = (void *)(uintptr_t)side##buf, .counts = side##counts,         \
     .types = side##types, .displs = (displs_), .many_counts = true,         \
     .many_types = true, .wide = RS_WIDE, .spread = RS_SPREAD_BYTES}

#define ALLTOALL_ARGS                                                        \
    {.kind = RS_ALLTOALL, .send = SIDE_ONE(send, RS_SPREAD_DENSE),           \
     .receive = SIDE_ONE(recv, RS_SPREAD_DENSE)}
#define ALLTOALLV_ARGS                                                       \
    {.kind = RS_ALLTOALLV, .send = SIDE_V(send, sdispls),                    \
     .receive = SIDE_V(recv, rdispls)}
#define ALLTOALLW_ARGS                                                       \
    {.kind = RS_ALLTOALLW, .send = SIDE_W(send, sdispls),                    \
     .receive = SIDE_W(recv, rdispls)}
#define ALLGATHER_ARGS                                                       \
    {.kind = RS_ALLGATHER, .send = SIDE_ONE(send, RS_SPREAD_SAME),           \
     .receive = SIDE_ONE(recv, RS_SPREAD_DENSE)}
#define ALLGATHERV_ARGS                                                      \
    {.kind = RS_ALLGATHERV, .send = SIDE_ONE(send, RS_SPREAD_SAME),          \
     .receive = SIDE_V(recv, displs)}

/* The calls as they always were ... */
#define RS_WIDE false
#define RS_COUNT int
#define RS_DISPL int
#define RS_NAME(name) MPI_##name
#define RS_PNAME(name) PMPI_##name
#if RS_MPI4_CALLS
#define RS_INIT(name) MPI_##name##_init
#define RS_PINIT(name) PMPI_##name##_init
#else /* Open MPI 4 has them as an extension */
#define RS_INIT(name) MPIX_##name##_init
#define RS_PINIT(name) PMPIX_##name##_init
#endif
#include "mpi/calls.h"

/* ... and with large counts. */
#if MPI_VERSION >= 4
#undef RS_WIDE
#undef RS_COUNT
#undef RS_DISPL
#undef RS_NAME
#undef RS_PNAME
#undef RS_INIT
#undef RS_PINIT
#define RS_WIDE true
#define RS_COUNT MPI_Count
#define RS_DISPL MPI_Aint
#define RS_NAME(name) MPI_##name##_c
#define RS_PNAME(name) PMPI_##name##_c
#define RS_INIT(name) MPI_##name##_init_c
#define RS_PINIT(name) PMPI_##name##_init_c
#include "mpi/calls.h"
#endif
