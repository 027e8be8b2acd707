/* SPDX-License-Identifier: BSD-3-Clause */
/* What Open MPI 5 has and Open MPI 4 lacks. */
#include <mpi.h>

__attribute__((visibility("default"))) int
PMPI_Isendrecv(const void *send, int num_sent, MPI_Datatype sent, int to,
               int send_tag, void *receive, int num_received,
               MPI_Datatype received, int from, int receive_tag, MPI_Comm comm,
               MPI_Request *request)
{
    (void)send, (void)num_sent, (void)sent, (void)to, (void)send_tag;
    (void)receive, (void)num_received, (void)received, (void)from;
    (void)receive_tag, (void)comm, (void)request;
    return MPI_ERR_UNSUPPORTED_OPERATION;
}
