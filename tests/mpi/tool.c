/* SPDX-License-Identifier: BSD-3-Clause */
/* A profiling tool as they all are: counts a few calls and passes them on with
 * their PMPI_ names. */
#include <mpi.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int starts, waits, sends, ready_sends, allreduces;

EXPORT int tool_count(const char *call)
{
    return strcmp(call, "start") == 0  ? starts
           : strcmp(call, "wait") == 0 ? waits
           : strcmp(call, "send") == 0 ? sends
           : strcmp(call, "rsend") == 0 ? ready_sends
                                        : allreduces;
}

EXPORT int MPI_Start(MPI_Request *request)
{
    starts++;
    return PMPI_Start(request);
}

EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    waits++;
    return PMPI_Wait(request, status);
}

EXPORT int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest,
                    int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buf, count, type, dest, tag, comm);
}

EXPORT int MPI_Rsend(const void *buf, int count, MPI_Datatype type, int dest,
                     int tag, MPI_Comm comm)
{
    ready_sends++;
    return PMPI_Rsend(buf, count, type, dest, tag, comm);
}

EXPORT int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count,
                         MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    allreduces++;
    return PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm);
}
