/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that this release passes on, and counts. */
#include "mpi/internal.h"

static void pass_on(enum rs_call call)
{
    rs_count_native(call, rs_process.reason != RS_ACCELERATED
                              ? rs_process.reason
                              : RS_REASON_RELEASE);
}

#define RS_POINT_TO_POINT(Name, ID)                                          \
    int MPI_##Name##_init(const void *buf, int count, MPI_Datatype type,     \
                          int dest, int tag, MPI_Comm comm,                  \
                          MPI_Request *request)                              \
    {                                                                        \
        pass_on(RS_CALL_##ID##_INIT);                                        \
        return PMPI_##Name##_init(buf, count, type, dest, tag, comm,         \
                                  request);                                  \
    }

RS_POINT_TO_POINT(Send, SEND)
RS_POINT_TO_POINT(Bsend, BSEND)
RS_POINT_TO_POINT(Ssend, SSEND)
RS_POINT_TO_POINT(Rsend, RSEND)

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag,
                  MPI_Comm comm, MPI_Request *request)
{
    pass_on(RS_CALL_RECV_INIT);
    return PMPI_Recv_init(buf, count, type, source, tag, comm, request);
}

int MPI_Ineighbor_alltoall(const void *sendbuf, int sendcount,
                           MPI_Datatype sendtype, void *recvbuf, int recvcount,
                           MPI_Datatype recvtype, MPI_Comm comm,
                           MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLTOALL);
    return PMPI_Ineighbor_alltoall(sendbuf, sendcount, sendtype, recvbuf,
                                   recvcount, recvtype, comm, request);
}

int MPI_Ineighbor_alltoallv(const void *sendbuf, const int sendcounts[],
                            const int sdispls[], MPI_Datatype sendtype,
                            void *recvbuf, const int recvcounts[],
                            const int rdispls[], MPI_Datatype recvtype,
                            MPI_Comm comm, MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLTOALLV);
    return PMPI_Ineighbor_alltoallv(sendbuf, sendcounts, sdispls, sendtype,
                                    recvbuf, recvcounts, rdispls, recvtype,
                                    comm, request);
}

int MPI_Ineighbor_alltoallw(const void *sendbuf, const int sendcounts[],
                            const MPI_Aint sdispls[],
                            const MPI_Datatype sendtypes[], void *recvbuf,
                            const int recvcounts[], const MPI_Aint rdispls[],
                            const MPI_Datatype recvtypes[], MPI_Comm comm,
                            MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLTOALLW);
    return PMPI_Ineighbor_alltoallw(sendbuf, sendcounts, sdispls, sendtypes,
                                    recvbuf, recvcounts, rdispls, recvtypes,
                                    comm, request);
}

int MPI_Ineighbor_allgather(const void *sendbuf, int sendcount,
                            MPI_Datatype sendtype, void *recvbuf,
                            int recvcount, MPI_Datatype recvtype,
                            MPI_Comm comm, MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLGATHER);
    return PMPI_Ineighbor_allgather(sendbuf, sendcount, sendtype, recvbuf,
                                    recvcount, recvtype, comm, request);
}

int MPI_Ineighbor_allgatherv(const void *sendbuf, int sendcount,
                             MPI_Datatype sendtype, void *recvbuf,
                             const int recvcounts[], const int displs[],
                             MPI_Datatype recvtype, MPI_Comm comm,
                             MPI_Request *request)
{
    pass_on(RS_CALL_INEIGHBOR_ALLGATHERV);
    return PMPI_Ineighbor_allgatherv(sendbuf, sendcount, sendtype, recvbuf,
                                     recvcounts, displs, recvtype, comm,
                                     request);
}
