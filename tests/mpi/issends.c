/* SPDX-License-Identifier: BSD-3-Clause */
/* MPICH from 4.2 on, which keeps the communicator of a request until somebody has found
 * the request complete: with each synchronous send of let_go.c's tag a receive is posted
 * on the communicator, and canceled then. Preloaded behind the backend. */
#include <dlfcn.h>
#include <mpi.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { MOST = 256, OF_LET_GO = 4711 /* its tag */ };

static struct {
    MPI_Request send, receive;
} started[MOST];
static int num_started, num_ever, nowhere;

/* All of the library itself: the backend's would count them as the program's. */
static __typeof__(PMPI_Issend) *native_Issend;
static __typeof__(PMPI_Irecv) *native_Irecv;
static __typeof__(PMPI_Cancel) *native_Cancel;
static __typeof__(PMPI_Test) *native_Test;
static __typeof__(PMPI_Wait) *native_Wait;

static void __attribute__((constructor)) find(void)
{
    *(void **)&native_Issend = dlsym(RTLD_NEXT, "PMPI_Issend");
    *(void **)&native_Irecv = dlsym(RTLD_NEXT, "PMPI_Irecv");
    *(void **)&native_Cancel = dlsym(RTLD_NEXT, "PMPI_Cancel");
    *(void **)&native_Test = dlsym(RTLD_NEXT, "PMPI_Test");
    *(void **)&native_Wait = dlsym(RTLD_NEXT, "PMPI_Wait");
}

EXPORT int issends_left(void)
{
    return num_started;
}

EXPORT int issends_ever(void)
{
    return num_ever;
}

EXPORT int PMPI_Issend(const void *buf, int count, MPI_Datatype datatype, int dest,
                       int tag, MPI_Comm comm, MPI_Request *request)
{
    int error = native_Issend(buf, count, datatype, dest, tag, comm, request);

    if (error == MPI_SUCCESS && tag == OF_LET_GO && num_started < MOST) {
        native_Irecv(&nowhere, 0, MPI_BYTE, dest, tag + 1, comm,
                     &started[num_started].receive);
        started[num_started++].send = *request;
        num_ever++;
    }
    return error;
}

EXPORT int PMPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    const MPI_Request handle = *request;
    int error = native_Test(request, flag, status);

    for (int i = 0; i < num_started && *flag; i++) {
        if (started[i].send != handle)
            continue;
        native_Cancel(&started[i].receive);
        native_Wait(&started[i].receive, MPI_STATUS_IGNORE);
        started[i] = started[--num_started];
        break;
    }
    return error;
}
