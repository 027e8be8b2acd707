/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighborhood collectives, with the names, count and displacement types
 * that neighbor.c defines: it includes this once for each, so that there is no
 * guard. */

int RS_NAME(Neighbor_alltoall)(const void *sendbuf, RS_COUNT sendcount,
                               MPI_Datatype sendtype, void *recvbuf,
                               RS_COUNT recvcount, MPI_Datatype recvtype,
                               MPI_Comm comm)
{
    struct rs_args args = ALLTOALL_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return RS_PNAME(Neighbor_alltoall)(sendbuf, sendcount, sendtype, recvbuf,
                                       recvcount, recvtype, comm);
}

int RS_NAME(Neighbor_alltoallv)(const void *sendbuf,
                                const RS_COUNT sendcounts[],
                                const RS_DISPL sdispls[], MPI_Datatype sendtype,
                                void *recvbuf, const RS_COUNT recvcounts[],
                                const RS_DISPL rdispls[], MPI_Datatype recvtype,
                                MPI_Comm comm)
{
    struct rs_args args = ALLTOALLV_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return RS_PNAME(Neighbor_alltoallv)(sendbuf, sendcounts, sdispls, sendtype,
                                        recvbuf, recvcounts, rdispls, recvtype,
                                        comm);
}

int RS_NAME(Neighbor_alltoallw)(
    const void *sendbuf, const RS_COUNT sendcounts[], const MPI_Aint sdispls[],
    const MPI_Datatype sendtypes[], void *recvbuf, const RS_COUNT recvcounts[],
    const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm)
{
    struct rs_args args = ALLTOALLW_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return RS_PNAME(Neighbor_alltoallw)(sendbuf, sendcounts, sdispls, sendtypes,
                                        recvbuf, recvcounts, rdispls, recvtypes,
                                        comm);
}

int RS_NAME(Neighbor_allgather)(const void *sendbuf, RS_COUNT sendcount,
                                MPI_Datatype sendtype, void *recvbuf,
                                RS_COUNT recvcount, MPI_Datatype recvtype,
                                MPI_Comm comm)
{
    struct rs_args args = ALLGATHER_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return RS_PNAME(Neighbor_allgather)(sendbuf, sendcount, sendtype, recvbuf,
                                        recvcount, recvtype, comm);
}

int RS_NAME(Neighbor_allgatherv)(const void *sendbuf, RS_COUNT sendcount,
                                 MPI_Datatype sendtype, void *recvbuf,
                                 const RS_COUNT recvcounts[],
                                 const RS_DISPL displs[], MPI_Datatype recvtype,
                                 MPI_Comm comm)
{
    struct rs_args args = ALLGATHERV_ARGS;
    int result;

    if (blocking(comm, &args, &result))
        return result;
    return RS_PNAME(Neighbor_allgatherv)(sendbuf, sendcount, sendtype, recvbuf,
                                         recvcounts, displs, recvtype, comm);
}

int RS_INIT(Neighbor_alltoall)(const void *sendbuf, RS_COUNT sendcount,
                               MPI_Datatype sendtype, void *recvbuf,
                               RS_COUNT recvcount, MPI_Datatype recvtype,
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

int RS_INIT(Neighbor_alltoallv)(const void *sendbuf,
                                const RS_COUNT sendcounts[],
                                const RS_DISPL sdispls[], MPI_Datatype sendtype,
                                void *recvbuf, const RS_COUNT recvcounts[],
                                const RS_DISPL rdispls[], MPI_Datatype recvtype,
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

int RS_INIT(Neighbor_alltoallw)(
    const void *sendbuf, const RS_COUNT sendcounts[], const MPI_Aint sdispls[],
    const MPI_Datatype sendtypes[], void *recvbuf, const RS_COUNT recvcounts[],
    const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm,
    MPI_Info info, MPI_Request *request)
{
    struct rs_args args = ALLTOALLW_ARGS;
    int result;

    if (persistent(comm, &args, request, &result))
        return result;
    return RS_PINIT(Neighbor_alltoallw)(sendbuf, sendcounts, sdispls, sendtypes,
                                        recvbuf, recvcounts, rdispls, recvtypes,
                                        comm, info, request);
}

int RS_INIT(Neighbor_allgather)(const void *sendbuf, RS_COUNT sendcount,
                                MPI_Datatype sendtype, void *recvbuf,
                                RS_COUNT recvcount, MPI_Datatype recvtype,
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

int RS_INIT(Neighbor_allgatherv)(const void *sendbuf, RS_COUNT sendcount,
                                 MPI_Datatype sendtype, void *recvbuf,
                                 const RS_COUNT recvcounts[],
                                 const RS_DISPL displs[], MPI_Datatype recvtype,
                                 MPI_Comm comm, MPI_Info info,
                                 MPI_Request *request)
{
    struct rs_args args = ALLGATHERV_ARGS;
    int result;

    if (persistent(comm, &args, request, &result))
        return result;
    return RS_PINIT(Neighbor_allgatherv)(sendbuf, sendcount, sendtype, recvbuf,
                                         recvcounts, displs, recvtype, comm,
                                         info, request);
}

int RS_NAME(Ineighbor_alltoall)(const void *sendbuf, RS_COUNT sendcount,
                                MPI_Datatype sendtype, void *recvbuf,
                                RS_COUNT recvcount, MPI_Datatype recvtype,
                                MPI_Comm comm, MPI_Request *request)
{
    struct rs_args args = ALLTOALL_ARGS;
    int result;

    if (nonblocking(comm, &args, request, &result))
        return result;
    return RS_PNAME(Ineighbor_alltoall)(sendbuf, sendcount, sendtype, recvbuf,
                                        recvcount, recvtype, comm, request);
}

int RS_NAME(Ineighbor_alltoallv)(
    const void *sendbuf, const RS_COUNT sendcounts[], const RS_DISPL sdispls[],
    MPI_Datatype sendtype, void *recvbuf, const RS_COUNT recvcounts[],
    const RS_DISPL rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
    MPI_Request *request)
{
    struct rs_args args = ALLTOALLV_ARGS;
    int result;

    if (nonblocking(comm, &args, request, &result))
        return result;
    return RS_PNAME(Ineighbor_alltoallv)(sendbuf, sendcounts, sdispls, sendtype,
                                         recvbuf, recvcounts, rdispls, recvtype,
                                         comm, request);
}

int RS_NAME(Ineighbor_alltoallw)(
    const void *sendbuf, const RS_COUNT sendcounts[], const MPI_Aint sdispls[],
    const MPI_Datatype sendtypes[], void *recvbuf, const RS_COUNT recvcounts[],
    const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm,
    MPI_Request *request)
{
    struct rs_args args = ALLTOALLW_ARGS;
    int result;

    if (nonblocking(comm, &args, request, &result))
        return result;
    return RS_PNAME(Ineighbor_alltoallw)(sendbuf, sendcounts, sdispls,
                                         sendtypes, recvbuf, recvcounts,
                                         rdispls, recvtypes, comm, request);
}

int RS_NAME(Ineighbor_allgather)(const void *sendbuf, RS_COUNT sendcount,
                                 MPI_Datatype sendtype, void *recvbuf,
                                 RS_COUNT recvcount, MPI_Datatype recvtype,
                                 MPI_Comm comm, MPI_Request *request)
{
    struct rs_args args = ALLGATHER_ARGS;
    int result;

    if (nonblocking(comm, &args, request, &result))
        return result;
    return RS_PNAME(Ineighbor_allgather)(sendbuf, sendcount, sendtype, recvbuf,
                                         recvcount, recvtype, comm, request);
}

int RS_NAME(Ineighbor_allgatherv)(const void *sendbuf, RS_COUNT sendcount,
                                  MPI_Datatype sendtype, void *recvbuf,
                                  const RS_COUNT recvcounts[],
                                  const RS_DISPL displs[],
                                  MPI_Datatype recvtype, MPI_Comm comm,
                                  MPI_Request *request)
{
    struct rs_args args = ALLGATHERV_ARGS;
    int result;

    if (nonblocking(comm, &args, request, &result))
        return result;
    return RS_PNAME(Ineighbor_allgatherv)(sendbuf, sendcount, sendtype, recvbuf,
                                          recvcounts, displs, recvtype, comm,
                                          request);
}
