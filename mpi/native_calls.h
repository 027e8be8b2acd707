/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are passed on, with the names, count and displacement types that
 * native.c defines: it includes this once for each, so that there is no
 * guard. */

RS_POINT_TO_POINT(Send, SEND)
RS_POINT_TO_POINT(Bsend, BSEND)
RS_POINT_TO_POINT(Ssend, SSEND)
RS_POINT_TO_POINT(Rsend, RSEND)

int RS_NAME(Recv_init)(void *buf, RS_COUNT count, MPI_Datatype type, int source,
                       int tag, MPI_Comm comm, MPI_Request *request)
{
    pass_on(RS_CALL_RECV_INIT);
    return RS_PNAME(Recv_init)(buf, count, type, source, tag, comm, request);
}

int RS_NAME(Ineighbor_alltoall)(const void *sendbuf, RS_COUNT sendcount,
                                MPI_Datatype sendtype, void *recvbuf,
                                RS_COUNT recvcount, MPI_Datatype recvtype,
                                MPI_Comm comm, MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLTOALL);
    return RS_PNAME(Ineighbor_alltoall)(sendbuf, sendcount, sendtype, recvbuf,
                                        recvcount, recvtype, comm, request);
}

int RS_NAME(Ineighbor_alltoallv)(
    const void *sendbuf, const RS_COUNT sendcounts[], const RS_DISPL sdispls[],
    MPI_Datatype sendtype, void *recvbuf, const RS_COUNT recvcounts[],
    const RS_DISPL rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
    MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLTOALLV);
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
    pass_on(RS_CALL_INEIGHBOR_ALLTOALLW);
    return RS_PNAME(Ineighbor_alltoallw)(sendbuf, sendcounts, sdispls,
                                         sendtypes, recvbuf, recvcounts,
                                         rdispls, recvtypes, comm, request);
}

int RS_NAME(Ineighbor_allgather)(const void *sendbuf, RS_COUNT sendcount,
                                 MPI_Datatype sendtype, void *recvbuf,
                                 RS_COUNT recvcount, MPI_Datatype recvtype,
                                 MPI_Comm comm, MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLGATHER);
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
    pass_on(RS_CALL_INEIGHBOR_ALLGATHERV);
    return RS_PNAME(Ineighbor_allgatherv)(sendbuf, sendcount, sendtype, recvbuf,
                                          recvcounts, displs, recvtype, comm,
                                          request);
}
