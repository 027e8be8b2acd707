/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that make communicators with neighbors. They are collective and
 * may wait, so this is where rsched sets up what nonblocking calls need. */
#include "mpi/internal.h"

void rs_comm_prepare(MPI_Comm comm)
{
    enum rs_reason reason;

    if (comm != MPI_COMM_NULL)
        rs_comm_get(comm, &reason);
}

static int prepared(int error, const MPI_Comm *made)
{
    if (error == MPI_SUCCESS)
        rs_comm_prepare(*made);
    return error;
}

int MPI_Cart_create(MPI_Comm comm, int ndims, const int dims[],
                    const int periods[], int reorder, MPI_Comm *made)
{
    return prepared(PMPI_Cart_create(comm, ndims, dims, periods, reorder, made),
                    made);
}

int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm *made)
{
    return prepared(PMPI_Cart_sub(comm, remain, made), made);
}

int MPI_Graph_create(MPI_Comm comm, int nnodes, const int index[],
                     const int edges[], int reorder, MPI_Comm *made)
{
    return prepared(
        PMPI_Graph_create(comm, nnodes, index, edges, reorder, made), made);
}

int MPI_Dist_graph_create(MPI_Comm comm, int n, const int sources[],
                          const int degrees[], const int destinations[],
                          const int weights[], MPI_Info info, int reorder,
                          MPI_Comm *made)
{
    return prepared(PMPI_Dist_graph_create(comm, n, sources, degrees,
                                           destinations, weights, info, reorder,
                                           made),
                    made);
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int indegree,
                                   const int sources[],
                                   const int sourceweights[], int outdegree,
                                   const int destinations[],
                                   const int destweights[], MPI_Info info,
                                   int reorder, MPI_Comm *made)
{
    return prepared(PMPI_Dist_graph_create_adjacent(
                        comm, indegree, sources, sourceweights, outdegree,
                        destinations, destweights, info, reorder, made),
                    made);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
    return prepared(PMPI_Comm_dup(comm, made), made);
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *made)
{
    return prepared(PMPI_Comm_dup_with_info(comm, info, made), made);
}
