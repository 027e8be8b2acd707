/* SPDX-License-Identifier: BSD-3-Clause */
/* A profiling tool as they all are: counts a few calls and passes them on with
 * their PMPI_ names. It has something from MPI_Init to MPI_Finalize, and for each
 * communicator, window and piece of memory from the call that makes it to the one
 * that frees it; whoever shows it an end without a beginning ends it. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int starts, waits, sends, ready_sends, allreduces, receives, probes;
static int intersections;

EXPORT int tool_count(const char *call)
{
    return strcmp(call, "start") == 0          ? starts
           : strcmp(call, "wait") == 0         ? waits
           : strcmp(call, "send") == 0         ? sends
           : strcmp(call, "rsend") == 0        ? ready_sends
           : strcmp(call, "irecv") == 0        ? receives
           : strcmp(call, "probe") == 0        ? probes
           : strcmp(call, "intersection") == 0 ? intersections
                                               : allreduces;
}

/* ---- what has a beginning and an end ---- */

static struct open {
    struct open *next;
    void *what; /* a handle, or where it lies */
} *first;

static int begun(int error, void *what)
{
    struct open *o;

    if (error != MPI_SUCCESS)
        return error;
    o = malloc(sizeof(*o));
    *o = (struct open){first, what};
    first = o;
    return error;
}

static void ended(void *what, const char *call)
{
    struct open **at = &first, *o;

    while (*at != NULL && (*at)->what != what)
        at = &(*at)->next;
    o = *at;
    if (o == NULL) {
        fprintf(stderr, "tool.c: %s of what was never made\n", call);
        PMPI_Abort(MPI_COMM_WORLD, 1);
        return;
    }
    *at = o->next;
    free(o);
}

/* Handles are pointers or numbers. */
#define HANDLE(handle) ((void *)(uintptr_t)(handle))

EXPORT int MPI_Init(int *argc, char ***argv)
{
    return begun(PMPI_Init(argc, argv), &first);
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return begun(PMPI_Init_thread(argc, argv, required, provided), &first);
}

EXPORT int MPI_Finalize(void)
{
    ended(&first, "MPI_Finalize");
    if (first != NULL) {
        fprintf(stderr, "tool.c: something is left in MPI_Finalize\n");
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    return PMPI_Finalize();
}

EXPORT int MPI_Cart_create(MPI_Comm comm, int ndims, const int dims[],
                           const int periods[], int reorder, MPI_Comm *made)
{
    int error = PMPI_Cart_create(comm, ndims, dims, periods, reorder, made);

    return begun(error, HANDLE(*made));
}

EXPORT int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
    int error = PMPI_Comm_dup(comm, made);

    return begun(error, HANDLE(*made));
}

EXPORT int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    int error = PMPI_Comm_split(comm, color, key, made);

    return begun(error, HANDLE(*made));
}

EXPORT int MPI_Comm_free(MPI_Comm *comm)
{
    ended(HANDLE(*comm), "MPI_Comm_free");
    return PMPI_Comm_free(comm);
}

EXPORT int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info,
                                   MPI_Comm comm, void *base, MPI_Win *win)
{
    int error = PMPI_Win_allocate_shared(size, unit, info, comm, base, win);

    return begun(error, HANDLE(*win));
}

EXPORT int MPI_Win_free(MPI_Win *win)
{
    ended(HANDLE(*win), "MPI_Win_free");
    return PMPI_Win_free(win);
}

EXPORT int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
    int error = PMPI_Alloc_mem(size, info, base);

    return begun(error, *(void **)base);
}

EXPORT int MPI_Free_mem(void *base)
{
    ended(base, "MPI_Free_mem");
    return PMPI_Free_mem(base);
}

/* ---- what is counted ---- */

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

EXPORT int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source,
                     int tag, MPI_Comm comm, MPI_Request *request)
{
    receives++;
    return PMPI_Irecv(buf, count, type, source, tag, comm, request);
}

/* No tool does that; what the backend asks for by this name would pass us by. */
EXPORT int PMPI_Group_intersection(MPI_Group one, MPI_Group other, MPI_Group *made)
{
    int (*native)(MPI_Group, MPI_Group, MPI_Group *);

    *(void **)&native = dlsym(RTLD_NEXT, "PMPI_Group_intersection");
    intersections++;
    return native(one, other, made);
}

EXPORT int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag,
                      MPI_Status *status)
{
    probes++;
    return PMPI_Iprobe(source, tag, comm, flag, status);
}
