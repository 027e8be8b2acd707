/* SPDX-License-Identifier: BSD-3-Clause */
/* Fortran's bindings where they call PMPI_ functions, which would pass us by.
 *
 * Open MPI: ompi_NAME_f of libmpi_mpifh is what mpif.h and the mpi module mean,
 * by aliases in the compilers' spellings. mpi_f08 has functions of its own with
 * the same arguments, for a handle is a structure of one integer. All these
 * names are defined here for what is accelerated, and call our C functions.
 *
 * MPICH: mpif.h and the mpi module call MPI_ functions, and so do mpi_f08's
 * calls with buffers; its other ones are defined here. A program must not
 * begin a request in one way and complete it in the other. */
#include "mpi/internal.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>

static_assert(sizeof(MPI_Fint) == sizeof(int),
              "arrays of integers are passed on as they are");

typedef MPI_Fint logical;

static void set(MPI_Fint *ierr, int error)
{
    if (ierr != NULL)
        *ierr = error;
}

/* Numbers count from 1. */
static void index_out(int index, MPI_Fint *to)
{
    *to = index == MPI_UNDEFINED ? MPI_UNDEFINED : index + 1;
}

/* What we stand before. It has all conversions that we need not know. */
static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        rs_log(RS_LOG_ERROR, "%s is not in the MPI library", name);
        abort();
    }
    return found;
}

/* The end of a call that makes a communicator. */
static void prepared(const MPI_Fint *made, MPI_Fint error, MPI_Fint *ierr)
{
    if (error == MPI_SUCCESS)
        rs_comm_prepare(PMPI_Comm_f2c(*made));
    set(ierr, error);
}

#pragma GCC visibility push(default)

#ifdef OPEN_MPI

/* A Fortran function NAME in all its spellings; X is empty, or x for Open
 * MPI's extensions. */
#define ALIAS(name, target, params)                                          \
    void name params __attribute__((alias(#target)))
#define FORTRAN_X(x, X, Name, NAME, name, params)                            \
    void ompi##x##_##name##_f params;                                        \
    ALIAS(mpi##x##_##name, ompi##x##_##name##_f, params);                    \
    ALIAS(mpi##x##_##name##_, ompi##x##_##name##_f, params);                 \
    ALIAS(mpi##x##_##name##__, ompi##x##_##name##_f, params);                \
    ALIAS(MPI##X##_##NAME, ompi##x##_##name##_f, params);                    \
    ALIAS(MPI##X##_##Name##_f, ompi##x##_##name##_f, params);                \
    ALIAS(MPI##X##_##Name##_f08, ompi##x##_##name##_f, params);              \
    ALIAS(mpi##x##_##name##_f08_, ompi##x##_##name##_f, params);             \
    void ompi##x##_##name##_f params
#define FORTRAN(Name, NAME, name, params)                                    \
    FORTRAN_X(, , Name, NAME, name, params)

#if MPI_VERSION >= 4
#define FORTRAN_INIT(Name, NAME, name, params)                               \
    FORTRAN(Name##_init, NAME##_INIT, name##_init, params)
#define INIT(name) MPI_##name##_init
#else
#define FORTRAN_INIT(Name, NAME, name, params)                               \
    FORTRAN_X(x, X, Name##_init, NAME##_INIT, name##_init, params)
#define INIT(name) MPIX_##name##_init
#endif

/* ---- special addresses ---- */

/* Common blocks, in the compiler's spelling; weak: C programs have none. */
#pragma weak mpi_fortran_bottom
#pragma weak mpi_fortran_bottom_
#pragma weak mpi_fortran_bottom__
#pragma weak MPI_FORTRAN_BOTTOM
#pragma weak mpi_fortran_in_place
#pragma weak mpi_fortran_in_place_
#pragma weak mpi_fortran_in_place__
#pragma weak MPI_FORTRAN_IN_PLACE
#pragma weak mpi_fortran_status_ignore
#pragma weak mpi_fortran_status_ignore_
#pragma weak mpi_fortran_status_ignore__
#pragma weak MPI_FORTRAN_STATUS_IGNORE
#pragma weak mpi_fortran_statuses_ignore
#pragma weak mpi_fortran_statuses_ignore_
#pragma weak mpi_fortran_statuses_ignore__
#pragma weak MPI_FORTRAN_STATUSES_IGNORE
extern int mpi_fortran_bottom, mpi_fortran_bottom_, mpi_fortran_bottom__,
    MPI_FORTRAN_BOTTOM;
extern int mpi_fortran_in_place, mpi_fortran_in_place_, mpi_fortran_in_place__,
    MPI_FORTRAN_IN_PLACE;
extern int mpi_fortran_status_ignore, mpi_fortran_status_ignore_,
    mpi_fortran_status_ignore__, MPI_FORTRAN_STATUS_IGNORE;
extern int mpi_fortran_statuses_ignore, mpi_fortran_statuses_ignore_,
    mpi_fortran_statuses_ignore__, MPI_FORTRAN_STATUSES_IGNORE;

#define IS(at, name, NAME)                                                   \
    ((at) != NULL && ((void *)(at) == (void *)&name##_ ||                    \
                      (void *)(at) == (void *)&name##__ ||                   \
                      (void *)(at) == (void *)&name ||                       \
                      (void *)(at) == (void *)&NAME))

static void *buffer(void *at)
{
    if (IS(at, mpi_fortran_bottom, MPI_FORTRAN_BOTTOM))
        return MPI_BOTTOM;
    if (IS(at, mpi_fortran_in_place, MPI_FORTRAN_IN_PLACE))
        return MPI_IN_PLACE;
    return at;
}

static bool no_status(const MPI_Fint *at)
{
    return IS(at, mpi_fortran_status_ignore, MPI_FORTRAN_STATUS_IGNORE);
}

static bool no_statuses(const MPI_Fint *at)
{
    return IS(at, mpi_fortran_statuses_ignore, MPI_FORTRAN_STATUSES_IGNORE);
}

/* ---- start of the program, communicators ---- */

#define NEXT(name, params)                                                   \
    void(*native) params;                                                    \
    MPI_Fint error;                                                          \
                                                                             \
    *(void **)&native = next("ompi_" #name "_f")

FORTRAN(Init, INIT, init, (MPI_Fint *ierr))
{
    set(ierr, MPI_Init(NULL, NULL));
}

FORTRAN(Init_thread, INIT_THREAD, init_thread,
        (MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierr))
{
    set(ierr, MPI_Init_thread(NULL, NULL, *required, provided));
}

FORTRAN(Cart_create, CART_CREATE, cart_create,
        (MPI_Fint *comm, MPI_Fint *ndims, MPI_Fint *dims, logical *periods,
         logical *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(cart_create, (MPI_Fint *, MPI_Fint *, MPI_Fint *, logical *,
                       logical *, MPI_Fint *, MPI_Fint *));

    native(comm, ndims, dims, periods, reorder, made, &error);
    prepared(made, error, ierr);
}

FORTRAN(Cart_sub, CART_SUB, cart_sub,
        (MPI_Fint *comm, logical *remain, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(cart_sub, (MPI_Fint *, logical *, MPI_Fint *, MPI_Fint *));

    native(comm, remain, made, &error);
    prepared(made, error, ierr);
}

FORTRAN(Graph_create, GRAPH_CREATE, graph_create,
        (MPI_Fint *comm, MPI_Fint *nnodes, MPI_Fint *index, MPI_Fint *edges,
         logical *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(graph_create, (MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
                        logical *, MPI_Fint *, MPI_Fint *));

    native(comm, nnodes, index, edges, reorder, made, &error);
    prepared(made, error, ierr);
}

FORTRAN(Dist_graph_create, DIST_GRAPH_CREATE, dist_graph_create,
        (MPI_Fint *comm, MPI_Fint *n, MPI_Fint *sources, MPI_Fint *degrees,
         MPI_Fint *destinations, MPI_Fint *weights, MPI_Fint *info,
         logical *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(dist_graph_create,
         (MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
          MPI_Fint *, MPI_Fint *, logical *, MPI_Fint *, MPI_Fint *));

    native(comm, n, sources, degrees, destinations, weights, info, reorder,
           made, &error);
    prepared(made, error, ierr);
}

FORTRAN(Dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT,
        dist_graph_create_adjacent,
        (MPI_Fint *comm, MPI_Fint *indegree, MPI_Fint *sources,
         MPI_Fint *sourceweights, MPI_Fint *outdegree, MPI_Fint *destinations,
         MPI_Fint *destweights, MPI_Fint *info, logical *reorder,
         MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(dist_graph_create_adjacent,
         (MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
          MPI_Fint *, MPI_Fint *, MPI_Fint *, logical *, MPI_Fint *,
          MPI_Fint *));

    native(comm, indegree, sources, sourceweights, outdegree, destinations,
           destweights, info, reorder, made, &error);
    prepared(made, error, ierr);
}

FORTRAN(Comm_dup, COMM_DUP, comm_dup,
        (MPI_Fint *comm, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(comm_dup, (MPI_Fint *, MPI_Fint *, MPI_Fint *));

    native(comm, made, &error);
    prepared(made, error, ierr);
}

FORTRAN(Comm_dup_with_info, COMM_DUP_WITH_INFO, comm_dup_with_info,
        (MPI_Fint *comm, MPI_Fint *info, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(comm_dup_with_info,
         (MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *));

    native(comm, info, made, &error);
    prepared(made, error, ierr);
}

/* What MPI_Alloc_mem of C has given out. */
FORTRAN(Free_mem, FREE_MEM, free_mem, (void *base, MPI_Fint *ierr))
{
    set(ierr, MPI_Free_mem(base));
}

/* ---- collectives ---- */

#define F2C(type) PMPI_Type_f2c(*(type))
#define COMM PMPI_Comm_f2c(*comm)
#define BLOCKING MPI_Fint *comm, MPI_Fint *ierr
#define NONBLOCKING MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierr
#define PERSISTENT                                                           \
    MPI_Fint *comm, MPI_Fint *info, MPI_Fint *request, MPI_Fint *ierr
#define INFO PMPI_Info_f2c(*info)

/* The end of a call that makes a request. */
static void made(int error, MPI_Request handle, MPI_Fint *request,
                 MPI_Fint *ierr)
{
    if (error == MPI_SUCCESS)
        *request = PMPI_Request_c2f(handle);
    set(ierr, error);
}

/* One side is PARAMS in all three forms of a call, and ARGS are these for C. */
#define CALLS(Name, NAME, name, INAME, Iname, iname, PARAMS, ARGS)           \
    FORTRAN(Name, NAME, name, (PARAMS, BLOCKING))                            \
    {                                                                        \
        set(ierr, MPI_##Name(ARGS, COMM));                                   \
    }                                                                        \
    FORTRAN(Iname, INAME, iname, (PARAMS, NONBLOCKING))                      \
    {                                                                        \
        MPI_Request handle = MPI_REQUEST_NULL;                               \
        int error = MPI_##Iname(ARGS, COMM, &handle);                        \
                                                                             \
        made(error, handle, request, ierr);                                  \
    }                                                                        \
    FORTRAN_INIT(Name, NAME, name, (PARAMS, PERSISTENT))                     \
    {                                                                        \
        MPI_Request handle = MPI_REQUEST_NULL;                               \
        int error = INIT(Name)(ARGS, COMM, INFO, &handle);                   \
                                                                             \
        made(error, handle, request, ierr);                                  \
    }

#define ONE_ONE                                                              \
    void *sendbuf, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recvbuf,   \
        MPI_Fint *recvcount, MPI_Fint *recvtype
#define ONE_ONE_ARGS                                                         \
    buffer(sendbuf), *sendcount, F2C(sendtype), buffer(recvbuf), *recvcount, \
        F2C(recvtype)
#define ONE_V                                                                \
    void *sendbuf, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recvbuf,   \
        MPI_Fint *recvcounts, MPI_Fint *displs, MPI_Fint *recvtype
#define ONE_V_ARGS                                                           \
    buffer(sendbuf), *sendcount, F2C(sendtype), buffer(recvbuf), recvcounts, \
        displs, F2C(recvtype)
#define V_V                                                                  \
    void *sendbuf, MPI_Fint *sendcounts, MPI_Fint *sdispls,                  \
        MPI_Fint *sendtype, void *recvbuf, MPI_Fint *recvcounts,             \
        MPI_Fint *rdispls, MPI_Fint *recvtype
#define V_V_ARGS                                                             \
    buffer(sendbuf), sendcounts, sdispls, F2C(sendtype), buffer(recvbuf),    \
        recvcounts, rdispls, F2C(recvtype)

CALLS(Neighbor_alltoall, NEIGHBOR_ALLTOALL, neighbor_alltoall,
      INEIGHBOR_ALLTOALL, Ineighbor_alltoall, ineighbor_alltoall, ONE_ONE,
      ONE_ONE_ARGS)
CALLS(Neighbor_allgather, NEIGHBOR_ALLGATHER, neighbor_allgather,
      INEIGHBOR_ALLGATHER, Ineighbor_allgather, ineighbor_allgather, ONE_ONE,
      ONE_ONE_ARGS)
CALLS(Neighbor_allgatherv, NEIGHBOR_ALLGATHERV, neighbor_allgatherv,
      INEIGHBOR_ALLGATHERV, Ineighbor_allgatherv, ineighbor_allgatherv, ONE_V,
      ONE_V_ARGS)
CALLS(Neighbor_alltoallv, NEIGHBOR_ALLTOALLV, neighbor_alltoallv,
      INEIGHBOR_ALLTOALLV, Ineighbor_alltoallv, ineighbor_alltoallv, V_V,
      V_V_ARGS)

/* The datatypes of both sides of an alltoallw. */
struct types {
    MPI_Datatype *send, *receive;
};

static void get_degrees(MPI_Comm comm, int *sends, int *receives)
{
    int topology = MPI_UNDEFINED, rank, weighted;

    *sends = *receives = 0;
    if (comm != MPI_COMM_NULL)
        PMPI_Topo_test(comm, &topology);
    if (topology == MPI_CART) {
        PMPI_Cartdim_get(comm, sends);
        *sends *= 2;
        *receives = *sends;
    } else if (topology == MPI_GRAPH) {
        PMPI_Comm_rank(comm, &rank);
        PMPI_Graph_neighbors_count(comm, rank, sends);
        *receives = *sends;
    } else if (topology == MPI_DIST_GRAPH) {
        PMPI_Dist_graph_neighbors_count(comm, receives, sends, &weighted);
    }
}

static int types_init(struct types *types, MPI_Comm comm, const MPI_Fint *send,
                      const MPI_Fint *receive)
{
    int sends, receives;

    get_degrees(comm, &sends, &receives);
    types->send = malloc(((size_t)sends + (size_t)receives + 1) *
                         sizeof(*types->send));
    if (types->send == NULL)
        return MPI_ERR_NO_MEM;
    types->receive = types->send + sends;
    for (int i = 0; i < sends; i++)
        types->send[i] = PMPI_Type_f2c(send[i]);
    for (int i = 0; i < receives; i++)
        types->receive[i] = PMPI_Type_f2c(receive[i]);
    return MPI_SUCCESS;
}

#define W_W                                                                  \
    void *sendbuf, MPI_Fint *sendcounts, MPI_Aint *sdispls,                  \
        MPI_Fint *sendtypes, void *recvbuf, MPI_Fint *recvcounts,            \
        MPI_Aint *rdispls, MPI_Fint *recvtypes
#define W_W_ARGS                                                             \
    buffer(sendbuf), sendcounts, sdispls, types.send, buffer(recvbuf),       \
        recvcounts, rdispls, types.receive

FORTRAN(Neighbor_alltoallw, NEIGHBOR_ALLTOALLW, neighbor_alltoallw,
        (W_W, BLOCKING))
{
    struct types types;
    int error = types_init(&types, COMM, sendtypes, recvtypes);

    if (error == MPI_SUCCESS) {
        error = MPI_Neighbor_alltoallw(W_W_ARGS, COMM);
        free(types.send);
    }
    set(ierr, error);
}

FORTRAN(Ineighbor_alltoallw, INEIGHBOR_ALLTOALLW, ineighbor_alltoallw,
        (W_W, NONBLOCKING))
{
    MPI_Request handle = MPI_REQUEST_NULL;
    struct types types;
    int error = types_init(&types, COMM, sendtypes, recvtypes);

    if (error == MPI_SUCCESS) {
        error = MPI_Ineighbor_alltoallw(W_W_ARGS, COMM, &handle);
        free(types.send); /* as Open MPI's binding does */
    }
    made(error, handle, request, ierr);
}

FORTRAN_INIT(Neighbor_alltoallw, NEIGHBOR_ALLTOALLW, neighbor_alltoallw,
             (W_W, PERSISTENT))
{
    MPI_Request handle = MPI_REQUEST_NULL;
    struct types types;
    int error = types_init(&types, COMM, sendtypes, recvtypes);

    if (error == MPI_SUCCESS) {
        error = INIT(Neighbor_alltoallw)(W_W_ARGS, COMM, INFO, &handle);
        free(types.send);
    }
    made(error, handle, request, ierr);
}

/* ---- one request ---- */

FORTRAN(Start, START, start, (MPI_Fint *request, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    int error = MPI_Start(&handle);

    if (error == MPI_SUCCESS)
        *request = PMPI_Request_c2f(handle);
    set(ierr, error);
}

FORTRAN(Request_free, REQUEST_FREE, request_free,
        (MPI_Fint *request, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    int error = MPI_Request_free(&handle);

    if (error == MPI_SUCCESS)
        *request = PMPI_Request_c2f(handle);
    set(ierr, error);
}

/* A status in C for one in Fortran: calls with a single one leave MPI_ERROR
 * alone. NULL is MPI_STATUS_IGNORE. */
static MPI_Status *status_in(const MPI_Fint *status, MPI_Status *ours)
{
    if (no_status(status))
        return MPI_STATUS_IGNORE;
    PMPI_Status_f2c(status, ours);
    return ours;
}

static void status_out(const MPI_Status *ours, MPI_Fint *status)
{
    if (ours != MPI_STATUS_IGNORE)
        PMPI_Status_c2f(ours, status);
}

FORTRAN(Wait, WAIT, wait,
        (MPI_Fint *request, MPI_Fint *status, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    MPI_Status memory, *ours = status_in(status, &memory);
    int error = MPI_Wait(&handle, ours);

    *request = PMPI_Request_c2f(handle);
    if (error == MPI_SUCCESS)
        status_out(ours, status);
    set(ierr, error);
}

FORTRAN(Test, TEST, test,
        (MPI_Fint *request, logical *flag, MPI_Fint *status, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    MPI_Status memory, *ours = status_in(status, &memory);
    int done = 0, error = MPI_Test(&handle, &done, ours);

    *flag = done != 0;
    if (done) {
        *request = PMPI_Request_c2f(handle);
        status_out(ours, status);
    }
    set(ierr, error);
}

FORTRAN(Request_get_status, REQUEST_GET_STATUS, request_get_status,
        (MPI_Fint *request, logical *flag, MPI_Fint *status, MPI_Fint *ierr))
{
    MPI_Status memory, *ours = status_in(status, &memory);
    int done = 0, error = MPI_Request_get_status(PMPI_Request_f2c(*request),
                                                 &done, ours);

    *flag = done != 0;
    if (done)
        status_out(ours, status);
    set(ierr, error);
}

/* ---- arrays ---- */

enum { STATUS_INTS = sizeof(MPI_Status) / sizeof(MPI_Fint) };

/* Fortran's arrays in C. */
struct arrays {
    int num;
    MPI_Fint *requests, *fortran_statuses;
    MPI_Request *handles;
    MPI_Status *statuses; /* or MPI_STATUSES_IGNORE */
    MPI_Request few_handles[32];
    MPI_Status few_statuses[32];
};

static void arrays_init(struct arrays *arrays, int num, MPI_Fint *requests,
                        MPI_Fint *statuses)
{
    size_t n = num > 0 ? (size_t)num : 0;

    arrays->num = num;
    arrays->requests = requests;
    arrays->fortran_statuses = statuses;
    arrays->handles = arrays->few_handles;
    arrays->statuses = arrays->few_statuses;
    if (n > sizeof(arrays->few_handles) / sizeof(MPI_Request)) {
        arrays->handles = malloc(n * sizeof(MPI_Request));
        arrays->statuses = calloc(n, sizeof(MPI_Status));
        if (arrays->handles == NULL || arrays->statuses == NULL) {
            rs_log(RS_LOG_ERROR, "out of memory for %d requests", num);
            PMPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (size_t i = 0; i < n; i++)
        arrays->handles[i] = PMPI_Request_f2c(requests[i]);
}

static MPI_Status *wanted(const struct arrays *arrays)
{
    return no_statuses(arrays->fortran_statuses) ? MPI_STATUSES_IGNORE
                                                 : arrays->statuses;
}

/* Write back the handles, and the first `statuses` statuses. */
static void arrays_fini(struct arrays *arrays, int statuses)
{
    for (int i = 0; i < arrays->num; i++)
        arrays->requests[i] = PMPI_Request_c2f(arrays->handles[i]);
    for (int i = 0; i < statuses && wanted(arrays) != MPI_STATUSES_IGNORE; i++)
        PMPI_Status_c2f(&arrays->statuses[i],
                        arrays->fortran_statuses + (ptrdiff_t)STATUS_INTS * i);
    if (arrays->handles != arrays->few_handles) {
        free(arrays->handles);
        free(arrays->statuses);
    }
}

static bool has_statuses(int error)
{
    return error == MPI_SUCCESS || error == MPI_ERR_IN_STATUS;
}

FORTRAN(Startall, STARTALL, startall,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierr))
{
    struct arrays arrays;
    int error;

    arrays_init(&arrays, *count, requests, NULL);
    error = MPI_Startall(*count, arrays.handles);
    arrays_fini(&arrays, 0);
    set(ierr, error);
}

FORTRAN(Waitall, WAITALL, waitall,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *statuses,
         MPI_Fint *ierr))
{
    struct arrays arrays;
    int error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Waitall(*count, arrays.handles, wanted(&arrays));
    arrays_fini(&arrays, has_statuses(error) ? *count : 0);
    set(ierr, error);
}

FORTRAN(Testall, TESTALL, testall,
        (MPI_Fint *count, MPI_Fint *requests, logical *flag,
         MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int done = 0, error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Testall(*count, arrays.handles, &done, wanted(&arrays));
    *flag = done != 0;
    arrays_fini(&arrays, error == MPI_ERR_IN_STATUS || done ? *count : 0);
    set(ierr, error);
}

FORTRAN(Waitany, WAITANY, waitany,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index,
         MPI_Fint *status, MPI_Fint *ierr))
{
    struct arrays arrays;
    MPI_Status memory, *ours = status_in(status, &memory);
    int place = MPI_UNDEFINED, error;

    arrays_init(&arrays, *count, requests, NULL);
    error = MPI_Waitany(*count, arrays.handles, &place, ours);
    index_out(place, index);
    arrays_fini(&arrays, 0);
    if (error == MPI_SUCCESS)
        status_out(ours, status);
    set(ierr, error);
}

FORTRAN(Testany, TESTANY, testany,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, logical *flag,
         MPI_Fint *status, MPI_Fint *ierr))
{
    struct arrays arrays;
    MPI_Status memory, *ours = status_in(status, &memory);
    int place = MPI_UNDEFINED, done = 0, error;

    arrays_init(&arrays, *count, requests, NULL);
    error = MPI_Testany(*count, arrays.handles, &place, &done, ours);
    *flag = done != 0;
    index_out(place, index);
    arrays_fini(&arrays, 0);
    if (done)
        status_out(ours, status);
    set(ierr, error);
}

static void some_out(struct arrays *arrays, int num, MPI_Fint *outcount,
                     MPI_Fint *indices)
{
    *outcount = num;
    for (int i = 0; i < num; i++)
        index_out(indices[i], &indices[i]);
    arrays_fini(arrays, num);
}

FORTRAN(Waitsome, WAITSOME, waitsome,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount,
         MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int num = 0, error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Waitsome(*count, arrays.handles, &num, indices,
                         wanted(&arrays));
    some_out(&arrays, num, outcount, indices);
    set(ierr, error);
}

FORTRAN(Testsome, TESTSOME, testsome,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount,
         MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int num = 0, error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Testsome(*count, arrays.handles, &num, indices,
                         wanted(&arrays));
    some_out(&arrays, num, outcount, indices);
    set(ierr, error);
}

#else /* MPICH */

/* mpi_f08's types are those of C, and its requests and statuses lie in memory
 * alike. */
static_assert(sizeof(MPI_Request) == sizeof(MPI_Fint) &&
              sizeof(MPI_Comm) == sizeof(MPI_Fint), "handles are integers");

#pragma weak MPIR_F08_MPI_STATUS_IGNORE_OBJ
#pragma weak MPIR_F08_MPI_STATUSES_IGNORE_OBJ

#define F08(name, params)                                                    \
    void mpi_##name##_f08_ params;                                           \
    void mpi_##name##_f08_ params

static MPI_Status *one(MPI_Status *status)
{
    return (void *)status == (void *)&MPIR_F08_MPI_STATUS_IGNORE_OBJ
               ? MPI_STATUS_IGNORE
               : status;
}

static MPI_Status *many(MPI_Status *statuses)
{
    return (void *)statuses == (void *)MPIR_F08_MPI_STATUSES_IGNORE_OBJ
               ? MPI_STATUSES_IGNORE
               : statuses;
}

/* ---- start of the program, communicators ---- */

F08(init, (MPI_Fint *ierr))
{
    set(ierr, MPI_Init(NULL, NULL));
}

F08(init_thread, (MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierr))
{
    set(ierr, MPI_Init_thread(NULL, NULL, *required, provided));
}

/* All arguments are passed by reference; `made` is the last but one. */
#define MAKES_3(name)                                                        \
    F08(name, (void *a, MPI_Fint *made, MPI_Fint *ierr))                     \
    {                                                                        \
        void (*native)(void *, MPI_Fint *, MPI_Fint *);                      \
        MPI_Fint error;                                                      \
                                                                             \
        *(void **)&native = next("mpi_" #name "_f08_");                      \
        native(a, made, &error);                                               \
        prepared(made, error, ierr);                                                \
    }
#define MAKES_4(name)                                                        \
    F08(name, (void *a, void *b, MPI_Fint *made, MPI_Fint *ierr))            \
    {                                                                        \
        void (*native)(void *, void *, MPI_Fint *, MPI_Fint *);              \
        MPI_Fint error;                                                      \
                                                                             \
        *(void **)&native = next("mpi_" #name "_f08_");                      \
        native(a, b, made, &error);                                            \
        prepared(made, error, ierr);                                                \
    }
#define MAKES_7(name)                                                        \
    F08(name, (void *a, void *b, void *c, void *d, void *e, MPI_Fint *made,  \
               MPI_Fint *ierr))                                              \
    {                                                                        \
        void (*native)(void *, void *, void *, void *, void *, MPI_Fint *,   \
                       MPI_Fint *);                                          \
        MPI_Fint error;                                                      \
                                                                             \
        *(void **)&native = next("mpi_" #name "_f08_");                      \
        native(a, b, c, d, e, made, &error);                                   \
        prepared(made, error, ierr);                                                \
    }

MAKES_7(cart_create)
MAKES_4(cart_sub)
MAKES_7(graph_create)
MAKES_3(comm_dup)
MAKES_4(comm_dup_with_info)

F08(dist_graph_create,
    (void *comm, void *n, void *sources, void *degrees, void *destinations,
     void *weights, void *info, void *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    void (*native)(void *, void *, void *, void *, void *, void *, void *,
                   void *, MPI_Fint *, MPI_Fint *);
    MPI_Fint error;

    *(void **)&native = next("mpi_dist_graph_create_f08_");
    native(comm, n, sources, degrees, destinations, weights, info, reorder,
           made, &error);
    prepared(made, error, ierr);
}

F08(dist_graph_create_adjacent,
    (void *comm, void *indegree, void *sources, void *sourceweights,
     void *outdegree, void *destinations, void *destweights, void *info,
     void *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    void (*native)(void *, void *, void *, void *, void *, void *, void *,
                   void *, void *, MPI_Fint *, MPI_Fint *);
    MPI_Fint error;

    *(void **)&native = next("mpi_dist_graph_create_adjacent_f08_");
    native(comm, indegree, sources, sourceweights, outdegree, destinations,
           destweights, info, reorder, made, &error);
    prepared(made, error, ierr);
}

/* ---- requests ---- */

F08(start, (MPI_Request *request, MPI_Fint *ierr))
{
    set(ierr, MPI_Start(request));
}

F08(startall, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *ierr))
{
    set(ierr, MPI_Startall(*count, requests));
}

F08(request_free, (MPI_Request *request, MPI_Fint *ierr))
{
    set(ierr, MPI_Request_free(request));
}

F08(wait, (MPI_Request *request, MPI_Status *status, MPI_Fint *ierr))
{
    set(ierr, MPI_Wait(request, one(status)));
}

F08(test, (MPI_Request *request, logical *flag, MPI_Status *status,
           MPI_Fint *ierr))
{
    int done = 0;

    set(ierr, MPI_Test(request, &done, one(status)));
    *flag = done != 0;
}

F08(request_get_status, (MPI_Request *request, logical *flag,
                         MPI_Status *status, MPI_Fint *ierr))
{
    int done = 0;

    set(ierr, MPI_Request_get_status(*request, &done, one(status)));
    *flag = done != 0;
}

F08(waitall, (MPI_Fint *count, MPI_Request *requests, MPI_Status *statuses,
              MPI_Fint *ierr))
{
    set(ierr, MPI_Waitall(*count, requests, many(statuses)));
}

F08(testall, (MPI_Fint *count, MPI_Request *requests, logical *flag,
              MPI_Status *statuses, MPI_Fint *ierr))
{
    int done = 0;

    set(ierr, MPI_Testall(*count, requests, &done, many(statuses)));
    *flag = done != 0;
}

F08(waitany, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *index,
              MPI_Status *status, MPI_Fint *ierr))
{
    int place = MPI_UNDEFINED;

    set(ierr, MPI_Waitany(*count, requests, &place, one(status)));
    index_out(place, index);
}

F08(testany, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *index,
              logical *flag, MPI_Status *status, MPI_Fint *ierr))
{
    int place = MPI_UNDEFINED, done = 0;

    set(ierr, MPI_Testany(*count, requests, &place, &done, one(status)));
    *flag = done != 0;
    index_out(place, index);
}

F08(waitsome, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *outcount,
               MPI_Fint *indices, MPI_Status *statuses, MPI_Fint *ierr))
{
    set(ierr, MPI_Waitsome(*count, requests, outcount, indices,
                           many(statuses)));
    for (int i = 0; i < *outcount; i++)
        index_out(indices[i], &indices[i]);
}

F08(testsome, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *outcount,
               MPI_Fint *indices, MPI_Status *statuses, MPI_Fint *ierr))
{
    set(ierr, MPI_Testsome(*count, requests, outcount, indices,
                           many(statuses)));
    for (int i = 0; i < *outcount; i++)
        index_out(indices[i], &indices[i]);
}

#endif

#pragma GCC visibility pop
