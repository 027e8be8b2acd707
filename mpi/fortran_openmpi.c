/* SPDX-License-Identifier: BSD-3-Clause */
/* Open MPI: communicators, collectives. */
#include "mpi/fortran.h"

#include <stdlib.h>

#pragma GCC visibility push(default)

/* ---- communicators ---- */

#define NEXT(name, params)                                                   \
    void(*native) params;                                                    \
    MPI_Fint error;                                                          \
                                                                             \
    *(void **)&native = rs_fortran_next("ompi_" #name "_f")

FORTRAN(Cart_create, CART_CREATE, cart_create,
        (MPI_Fint *comm, MPI_Fint *ndims, MPI_Fint *dims, logical *periods,
         logical *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(cart_create, (MPI_Fint *, MPI_Fint *, MPI_Fint *, logical *,
                       logical *, MPI_Fint *, MPI_Fint *));

    native(comm, ndims, dims, periods, reorder, made, &error);
    rs_fortran_prepared(made, error, ierr);
}

FORTRAN(Cart_sub, CART_SUB, cart_sub,
        (MPI_Fint *comm, logical *remain, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(cart_sub, (MPI_Fint *, logical *, MPI_Fint *, MPI_Fint *));

    native(comm, remain, made, &error);
    rs_fortran_prepared(made, error, ierr);
}

FORTRAN(Graph_create, GRAPH_CREATE, graph_create,
        (MPI_Fint *comm, MPI_Fint *nnodes, MPI_Fint *index, MPI_Fint *edges,
         logical *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(graph_create, (MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
                        logical *, MPI_Fint *, MPI_Fint *));

    native(comm, nnodes, index, edges, reorder, made, &error);
    rs_fortran_prepared(made, error, ierr);
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
    rs_fortran_prepared(made, error, ierr);
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
    rs_fortran_prepared(made, error, ierr);
}

FORTRAN(Comm_dup, COMM_DUP, comm_dup,
        (MPI_Fint *comm, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(comm_dup, (MPI_Fint *, MPI_Fint *, MPI_Fint *));

    native(comm, made, &error);
    rs_fortran_prepared(made, error, ierr);
}

FORTRAN(Comm_dup_with_info, COMM_DUP_WITH_INFO, comm_dup_with_info,
        (MPI_Fint *comm, MPI_Fint *info, MPI_Fint *made, MPI_Fint *ierr))
{
    NEXT(comm_dup_with_info,
         (MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *));

    native(comm, info, made, &error);
    rs_fortran_prepared(made, error, ierr);
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
        topology = rs_topology(comm);
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

#pragma GCC visibility pop
