/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighborhood collectives, blocking and persistent. */
#include "mpi/internal.h"

#include <stddef.h>

/* ---- blocking ---- */

/* Make the channel of a communicator's blocking calls: a variable exchange,
 * because one process cannot see whether another one's arguments change. All
 * five calls use it; they come in the same order everywhere. */
static int open_channel(struct rs_comm *comm, const struct rs_plan *plan)
{
    comm->channel_tried = true;
    return rs_comm_exchange(comm, plan, true, &comm->channel, &comm->blocking);
}

/* The plan of these arguments, remade when they are not the same as last time.
 * NULL when out of memory. */
static struct rs_plan *current_plan(struct rs_comm *comm,
                                    const struct rs_args *args, bool same)
{
    struct rs_plan **plan = &comm->plans[args->kind];

    if (same) {
        if ((*plan)->send_buffer == args->send.buffer &&
            (*plan)->receive_buffer == args->receive.buffer)
            return *plan;
        rs_plan_rebase(*plan, args);
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
    return *plan;
}

static int failed(struct rs_comm *comm, int error)
{
    rs_log(RS_LOG_ERROR, "%s", rsched_last_error());
    return rs_raise(comm, rs_error_class(error));
}

static int run(struct rs_comm *comm, struct rs_plan *plan)
{
    int error;

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
    if (!same && !rs_args_valid(comm, args)) {
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
    if (comm == NULL) {
        rs_count_native(call, reason);
        return false;
    }
    reason = rs_args_valid(comm, args) ? rs_plan_create(comm, args, &plan)
                                       : RS_REASON_ARGUMENT;
    request = rs_request_create();
    if (request == NULL && reason == RS_ACCELERATED)
        reason = RS_REASON_MEMORY;
    reason = rs_comm_vote(comm, reason);
    if (reason == RS_ACCELERATED)
        *result = rs_comm_exchange(comm, plan, false, &exchange, &reason);
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

/* ---- the functions ---- */

/* Arguments of the MPI functions as struct rs_args; the standard's names. */
#define SIDE_ONE(side, spread_)                                              \
    {.buffer = (void *)(uintptr_t)side##buf, .counts = &side##count,         \
     .types = &side##type, .spread = (spread_)}
#define SIDE_V(side, displs_)                                                \
    {.buffer = (void *)(uintptr_t)side##buf, .counts = side##counts,         \
     .types = &side##type, .displs = (displs_), .many_counts = true,         \
     .spread = RS_SPREAD_DISPLS}
#define SIDE_W(side, displs_)                                                \
    {.buffer = (void *)(uintptr_t)side##buf, .counts = side##counts,         \
     .types = side##types, .displs = (displs_), .many_counts = true,         \
     .many_types = true, .spread = RS_SPREAD_BYTES}

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

int MPI_Neighbor_alltoall(const void *sendbuf, int sendcount,
                          MPI_Datatype sendtype, void *recvbuf, int recvcount,
                          MPI_Datatype recvtype, MPI_Comm comm)
{
    struct rs_args args = ALLTOALL_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return PMPI_Neighbor_alltoall(sendbuf, sendcount, sendtype, recvbuf,
                                  recvcount, recvtype, comm);
}

int MPI_Neighbor_alltoallv(const void *sendbuf, const int sendcounts[],
                           const int sdispls[], MPI_Datatype sendtype,
                           void *recvbuf, const int recvcounts[],
                           const int rdispls[], MPI_Datatype recvtype,
                           MPI_Comm comm)
{
    struct rs_args args = ALLTOALLV_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return PMPI_Neighbor_alltoallv(sendbuf, sendcounts, sdispls, sendtype,
                                   recvbuf, recvcounts, rdispls, recvtype,
                                   comm);
}

int MPI_Neighbor_alltoallw(const void *sendbuf, const int sendcounts[],
                           const MPI_Aint sdispls[],
                           const MPI_Datatype sendtypes[], void *recvbuf,
                           const int recvcounts[], const MPI_Aint rdispls[],
                           const MPI_Datatype recvtypes[], MPI_Comm comm)
{
    struct rs_args args = ALLTOALLW_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return PMPI_Neighbor_alltoallw(sendbuf, sendcounts, sdispls, sendtypes,
                                   recvbuf, recvcounts, rdispls, recvtypes,
                                   comm);
}

int MPI_Neighbor_allgather(const void *sendbuf, int sendcount,
                           MPI_Datatype sendtype, void *recvbuf, int recvcount,
                           MPI_Datatype recvtype, MPI_Comm comm)
{
    struct rs_args args = ALLGATHER_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return PMPI_Neighbor_allgather(sendbuf, sendcount, sendtype, recvbuf,
                                   recvcount, recvtype, comm);
}

int MPI_Neighbor_allgatherv(const void *sendbuf, int sendcount,
                            MPI_Datatype sendtype, void *recvbuf,
                            const int recvcounts[], const int displs[],
                            MPI_Datatype recvtype, MPI_Comm comm)
{
    struct rs_args args = ALLGATHERV_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return PMPI_Neighbor_allgatherv(sendbuf, sendcount, sendtype, recvbuf,
                                    recvcounts, displs, recvtype, comm);
}

int RS_INIT(Neighbor_alltoall)(const void *sendbuf, int sendcount,
                               MPI_Datatype sendtype, void *recvbuf,
                               int recvcount, MPI_Datatype recvtype,
                               MPI_Comm comm, MPI_Info info,
                               MPI_Request *request)
{
    struct rs_args args = ALLTOALL_ARGS;
    int result;

    if (persistent(comm, &args, request, &result))
        return result;
    return RS_PINIT(Neighbor_alltoall)(sendbuf, sendcount, sendtype, recvbuf,
                                       recvcount, recvtype, comm, info,
                                       request);
}

int RS_INIT(Neighbor_alltoallv)(const void *sendbuf, const int sendcounts[],
                                const int sdispls[], MPI_Datatype sendtype,
                                void *recvbuf, const int recvcounts[],
                                const int rdispls[], MPI_Datatype recvtype,
                                MPI_Comm comm, MPI_Info info,
                                MPI_Request *request)
{
    struct rs_args args = ALLTOALLV_ARGS;
    int result;

    if (persistent(comm, &args, request, &result))
        return result;
    return RS_PINIT(Neighbor_alltoallv)(sendbuf, sendcounts, sdispls, sendtype,
                                        recvbuf, recvcounts, rdispls, recvtype,
                                        comm, info, request);
}

int RS_INIT(Neighbor_alltoallw)(const void *sendbuf, const int sendcounts[],
                                const MPI_Aint sdispls[],
                                const MPI_Datatype sendtypes[], void *recvbuf,
                                const int recvcounts[],
                                const MPI_Aint rdispls[],
                                const MPI_Datatype recvtypes[], MPI_Comm comm,
                                MPI_Info info, MPI_Request *request)
{
    struct rs_args args = ALLTOALLW_ARGS;
    int result;

    if (persistent(comm, &args, request, &result))
        return result;
    return RS_PINIT(Neighbor_alltoallw)(sendbuf, sendcounts, sdispls,
                                        sendtypes, recvbuf, recvcounts,
                                        rdispls, recvtypes, comm, info,
                                        request);
}

int RS_INIT(Neighbor_allgather)(const void *sendbuf, int sendcount,
                                MPI_Datatype sendtype, void *recvbuf,
                                int recvcount, MPI_Datatype recvtype,
                                MPI_Comm comm, MPI_Info info,
                                MPI_Request *request)
{
    struct rs_args args = ALLGATHER_ARGS;
    int result;

    if (persistent(comm, &args, request, &result))
        return result;
    return RS_PINIT(Neighbor_allgather)(sendbuf, sendcount, sendtype, recvbuf,
                                        recvcount, recvtype, comm, info,
                                        request);
}

int RS_INIT(Neighbor_allgatherv)(const void *sendbuf, int sendcount,
                                 MPI_Datatype sendtype, void *recvbuf,
                                 const int recvcounts[], const int displs[],
                                 MPI_Datatype recvtype, MPI_Comm comm,
                                 MPI_Info info, MPI_Request *request)
{
    struct rs_args args = ALLGATHERV_ARGS;
    int result;

    if (persistent(comm, &args, request, &result))
        return result;
    return RS_PINIT(Neighbor_allgatherv)(sendbuf, sendcount, sendtype, recvbuf,
                                         recvcounts, displs, recvtype, comm,
                                         info, request);
}
