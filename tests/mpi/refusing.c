/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI that cannot start some requests: it is told how many. It counts the synchronous
 * sends of all tags. */
#include <dlfcn.h>
#include <mpi.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int refused_starts;
EXPORT int refused_sends; /* synchronous ones; the backend has some of its own, */
EXPORT int refused_tag;   /* of other tags */
EXPORT int synchronous_sends;

static int is_refused(int *left)
{
    if (*left == 0)
        return 0;
    --*left;
    return 1;
}

EXPORT int PMPI_Start(MPI_Request *request)
{
    int (*next)(MPI_Request *);

    *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Start");
    return is_refused(&refused_starts) ? MPI_ERR_OTHER : next(request);
}

EXPORT int PMPI_Issend(const void *buf, int count, MPI_Datatype type, int dest,
                       int tag, MPI_Comm comm, MPI_Request *request)
{
    int (*next)(const void *, int, MPI_Datatype, int, int, MPI_Comm,
                MPI_Request *);

    *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Issend");
    synchronous_sends++;
    return tag == refused_tag && is_refused(&refused_sends)
               ? MPI_ERR_OTHER
               : next(buf, count, type, dest, tag, comm, request);
}
