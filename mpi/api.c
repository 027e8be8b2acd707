/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of rsched/mpi.h that programs call by name: topologies that
 * need no communicator, requests on them, other buffers, statistics. */
#include "mpi/request.h"

#include <stdio.h>
#include <stdlib.h>

/* A record as a communicator has, which no communicator has. */
struct rsched_mpi_topology {
    struct rs_comm *record;
};

/* ---- topologies ---- */

static int fail(int error, const char *what, const char *why)
{
    char text[256];

    snprintf(text, sizeof(text), "%s: %s", what, why);
    return rsched_fail(error, text);
}

static int refuse(const char *what, enum rs_reason reason)
{
    const char *text = rs_reason_texts[reason];
    int finalized;

    PMPI_Finalized(&finalized);
    if (finalized)
        text = "MPI is finalized";
    rs_log(RS_LOG_WARN, "%s: %s", what, text);
    return fail(RSCHED_ENOTSUP, what, text);
}

static int invalid(const char *what, const char *why)
{
    rs_log(RS_LOG_ERROR, "%s: %s", what, why);
    return fail(RSCHED_EINVAL, what, why);
}

static int no_memory(const char *what)
{
    return fail(RSCHED_ENOMEM, what, "out of memory");
}

static bool ranks_valid(MPI_Comm comm, int num, const int *ranks)
{
    int size;

    PMPI_Comm_size(comm, &size);
    if (num < 0 || (num > 0 && ranks == NULL))
        return false;
    for (int i = 0; i < num; i++) {
        if (ranks[i] != MPI_PROC_NULL && (ranks[i] < 0 || ranks[i] >= size))
            return false;
    }
    return true;
}

/* What the two ways to make a topology have in common. */
static int check(const char *what, MPI_Comm comm, int tag)
{
    int inter;

    if (rs_process.reason != RS_ACCELERATED)
        return refuse(what, rs_process.reason);
    if (rs_process.requests != RS_ACCELERATED)
        return refuse(what, rs_process.requests);
    if (comm == MPI_COMM_NULL)
        return invalid(what, "the communicator is MPI_COMM_NULL");
    PMPI_Comm_test_inter(comm, &inter);
    if (inter)
        return invalid(what, "the communicator is an intercommunicator");
    if (tag < 0)
        return invalid(what, "the tag is negative");
    return 0;
}

static int finish(const char *what, struct rs_comm *record, int tag,
                  enum rs_reason reason, struct rsched_mpi_topology **topology)
{
    struct rsched_mpi_topology *made;

    if (record == NULL)
        return reason == RS_REASON_MEMORY ? no_memory(what)
                                          : refuse(what, reason);
    made = malloc(sizeof(*made));
    if (made == NULL) {
        rs_comm_drop(record);
        return no_memory(what);
    }
    record->id = RS_ID_LISTED | (unsigned)tag;
    made->record = record;
    *topology = made;
    return 0;
}

int rsched_mpi_topology_create(MPI_Comm comm, int indegree,
                               const int sources[], int outdegree,
                               const int destinations[], int tag,
                               struct rsched_mpi_topology **topology)
{
    const struct rs_lists lists = {indegree, outdegree, sources, destinations};
    struct rs_comm *record;
    enum rs_reason reason;
    int error = check(__func__, comm, tag);

    if (error != 0)
        return error;
    if (!ranks_valid(comm, indegree, sources))
        return invalid(__func__, "the sources are not ranks");
    if (!ranks_valid(comm, outdegree, destinations))
        return invalid(__func__, "the destinations are not ranks");
    record = rs_comm_describe(comm, MPI_UNDEFINED, &lists, &reason);
    return finish(__func__, record, tag, reason, topology);
}

int rsched_mpi_topology_from_comm(MPI_Comm comm, int tag,
                                  struct rsched_mpi_topology **topology)
{
    struct rs_comm *record;
    enum rs_reason reason;
    int error = check(__func__, comm, tag), kind;

    if (error != 0)
        return error;
    kind = rs_topology(comm);
    if (kind == MPI_UNDEFINED)
        return invalid(__func__, "the communicator has no topology");
    record = rs_comm_describe(comm, kind, NULL, &reason);
    return finish(__func__, record, tag, reason, topology);
}

void rsched_mpi_topology_destroy(struct rsched_mpi_topology *topology)
{
    if (topology == NULL)
        return;
    if (rs_process.reason != RS_ACCELERATED) /* MPI_Finalize has freed it */
        topology->record->errhandler = MPI_ERRHANDLER_NULL;
    rs_comm_drop(topology->record);
    free(topology);
}

/* ---- requests ---- */

static int make(const char *what, struct rs_comm *record, const struct rs_args *args,
                MPI_Request *handle)
{
    struct rsched_exchange *exchange = NULL;
    struct rs_request *request = rs_request_create();
    struct rs_plan *plan = NULL;
    enum rs_reason reason;
    int error;

    if (request == NULL)
        return no_memory(what);
    reason = rs_plan_create(record, args, &plan);
    if (reason != RS_ACCELERATED)
        error = reason == RS_REASON_MEMORY ? no_memory(what) : refuse(what, reason);
    else if (plan->too_long)
        error = refuse(what, RS_REASON_LAYOUT);
    else
        error = rs_comm_exchange_create(record, plan, 0, &exchange);
    if (error != 0) {
        rs_plan_destroy(plan);
        rs_request_discard(request);
        return error;
    }
    rs_request_open(request, record, exchange, plan);
    rs_count_accelerated(RS_CALL_API_INIT, 1);
    *handle = request->handle;
    return 0;
}

int rsched_mpi_alltoallw_init(
    const void *sendbuf, const MPI_Count sendcounts[],
    const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
    const MPI_Count recvcounts[], const MPI_Aint rdispls[],
    const MPI_Datatype recvtypes[], struct rsched_mpi_topology *topology,
    MPI_Request *request)
{
    const struct rs_args args = {
        .kind = RS_ALLTOALLW,
        .send = {.buffer = (void *)(uintptr_t)sendbuf, .counts = sendcounts,
                 .types = sendtypes, .displs = sdispls, .many_counts = true,
                 .many_types = true, .wide = true, .spread = RS_SPREAD_BYTES},
        .receive = {.buffer = recvbuf, .counts = recvcounts,
                    .types = recvtypes, .displs = rdispls,
                    .many_counts = true, .many_types = true, .wide = true,
                    .spread = RS_SPREAD_BYTES},
    };

    if (rs_process.reason != RS_ACCELERATED)
        return refuse(__func__, rs_process.reason);
    if (topology == NULL || request == NULL)
        return invalid(__func__, "there is no topology or no request");
    if (!rs_args_valid(topology->record, &args) ||
        !rs_types_valid(topology->record, &args))
        return invalid(__func__, "a count, datatype or displacement is wrong");
    if (rs_context() == NULL)
        return refuse(__func__, RS_REASON_CONTEXT);
    return make(__func__, topology->record, &args, request);
}

static const char not_ours[] = "it is no persistent request of the backend's";

/* The persistent request in use with this handle, or NULL: what is in the pool, a
 * message or nonblocking has no exchange. */
static struct rs_request *look_up(MPI_Request handle)
{
    struct rs_request *request = rs_request_find(handle);

    return request != NULL && request->exchange != NULL ? request : NULL;
}

int rsched_mpi_rebind(MPI_Request handle, const void *sendbuf, void *recvbuf)
{
    struct rs_request *request = look_up(handle);
    struct rs_plan *plan;

    if (request == NULL)
        return fail(RSCHED_ENOTSUP, __func__, not_ours);
    if (request->state != RS_INACTIVE)
        return fail(RSCHED_ESTATE, __func__, "the request is active");
    plan = request->plan;
    rs_plan_rebase(plan, sendbuf, recvbuf);
    return rsched_exchange_bind(request->exchange, plan->sends,
                                plan->receives);
}

int rsched_mpi_request_stats(MPI_Request handle, struct rsched_stats *stats)
{
    const struct rs_request *request = look_up(handle);

    if (request == NULL)
        return fail(RSCHED_ENOTSUP, __func__, not_ours);
    rsched_exchange_get_stats(request->exchange, stats);
    return 0;
}
