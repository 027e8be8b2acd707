/* SPDX-License-Identifier: BSD-3-Clause */
/* MPICH: what mpi_f08 does by itself. */
#include "mpi/fortran.h"
#include "mpi/get_status.h"

#pragma GCC visibility push(default)

/* mpi_f08's types are those of C, and its requests and statuses lie in memory
 * alike. */
static_assert(sizeof(MPI_Request) == sizeof(MPI_Fint) &&
              sizeof(MPI_Comm) == sizeof(MPI_Fint), "handles are integers");

/* Where the module has its constants; MPICH 4.0 declares them in mpi.h, 4.2 nowhere. */
extern const char f08_status_ignore[]
    __asm__("MPIR_F08_MPI_STATUS_IGNORE_OBJ") __attribute__((weak));
extern const char f08_statuses_ignore[]
    __asm__("MPIR_F08_MPI_STATUSES_IGNORE_OBJ") __attribute__((weak));

#define F08(name, params)                                                    \
    void mpi_##name##_f08_ params;                                           \
    void mpi_##name##_f08_ params

static MPI_Status *one(MPI_Status *status)
{
    return (const void *)status == (const void *)f08_status_ignore
               ? MPI_STATUS_IGNORE
               : status;
}

static MPI_Status *many(MPI_Status *statuses)
{
    return (const void *)statuses == (const void *)f08_statuses_ignore
               ? MPI_STATUSES_IGNORE
               : statuses;
}

/* ---- communicators ---- */

/* All arguments are passed by reference; `made` is the last but one. */
#define MAKES_3(name)                                                        \
    F08(name, (void *a, MPI_Fint *made, MPI_Fint *ierr))                     \
    {                                                                        \
        void (*native)(void *, MPI_Fint *, MPI_Fint *);                      \
        MPI_Fint error;                                                      \
                                                                             \
        *(void **)&native = rs_fortran_next("mpi_" #name "_f08_");           \
        native(a, made, &error);                                             \
        rs_fortran_prepared(made, error, ierr);                              \
    }
#define MAKES_4(name)                                                        \
    F08(name, (void *a, void *b, MPI_Fint *made, MPI_Fint *ierr))            \
    {                                                                        \
        void (*native)(void *, void *, MPI_Fint *, MPI_Fint *);              \
        MPI_Fint error;                                                      \
                                                                             \
        *(void **)&native = rs_fortran_next("mpi_" #name "_f08_");           \
        native(a, b, made, &error);                                          \
        rs_fortran_prepared(made, error, ierr);                              \
    }
#define MAKES_7(name)                                                        \
    F08(name, (void *a, void *b, void *c, void *d, void *e, MPI_Fint *made,  \
               MPI_Fint *ierr))                                              \
    {                                                                        \
        void (*native)(void *, void *, void *, void *, void *, MPI_Fint *,   \
                       MPI_Fint *);                                          \
        MPI_Fint error;                                                      \
                                                                             \
        *(void **)&native = rs_fortran_next("mpi_" #name "_f08_");           \
        native(a, b, c, d, e, made, &error);                                 \
        rs_fortran_prepared(made, error, ierr);                              \
    }

MAKES_7(cart_create)
MAKES_4(cart_sub)
MAKES_7(graph_create)
MAKES_3(comm_dup)
MAKES_4(comm_dup_with_info)

F08(dist_graph_create,
    (void *comm, void *n, void *sources, void *degrees, void *destinations,
     void *weights, void *info, void *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    void (*native)(void *, void *, void *, void *, void *, void *, void *,
                   void *, MPI_Fint *, MPI_Fint *);
    MPI_Fint error;

    *(void **)&native = rs_fortran_next("mpi_dist_graph_create_f08_");
    native(comm, n, sources, degrees, destinations, weights, info, reorder,
           made, &error);
    rs_fortran_prepared(made, error, ierr);
}

F08(dist_graph_create_adjacent,
    (void *comm, void *indegree, void *sources, void *sourceweights,
     void *outdegree, void *destinations, void *destweights, void *info,
     void *reorder, MPI_Fint *made, MPI_Fint *ierr))
{
    void (*native)(void *, void *, void *, void *, void *, void *, void *,
                   void *, void *, MPI_Fint *, MPI_Fint *);
    MPI_Fint error;

    *(void **)&native = rs_fortran_next("mpi_dist_graph_create_adjacent_f08_");
    native(comm, indegree, sources, sourceweights, outdegree, destinations,
           destweights, info, reorder, made, &error);
    rs_fortran_prepared(made, error, ierr);
}

/* ---- requests ---- */

F08(start, (MPI_Request *request, MPI_Fint *ierr))
{
    set(ierr, MPI_Start(request));
}

F08(startall, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *ierr))
{
    set(ierr, MPI_Startall(*count, requests));
}

F08(request_free, (MPI_Request *request, MPI_Fint *ierr))
{
    set(ierr, MPI_Request_free(request));
}

F08(wait, (MPI_Request *request, MPI_Status *status, MPI_Fint *ierr))
{
    set(ierr, MPI_Wait(request, one(status)));
}

F08(test, (MPI_Request *request, logical *flag, MPI_Status *status,
           MPI_Fint *ierr))
{
    int done = 0;

    set(ierr, MPI_Test(request, &done, one(status)));
    *flag = done != 0;
}

F08(request_get_status, (MPI_Request *request, logical *flag,
                         MPI_Status *status, MPI_Fint *ierr))
{
    int done = 0;

    set(ierr, MPI_Request_get_status(*request, &done, one(status)));
    *flag = done != 0;
}

F08(waitall, (MPI_Fint *count, MPI_Request *requests, MPI_Status *statuses,
              MPI_Fint *ierr))
{
    set(ierr, MPI_Waitall(*count, requests, many(statuses)));
}

F08(testall, (MPI_Fint *count, MPI_Request *requests, logical *flag,
              MPI_Status *statuses, MPI_Fint *ierr))
{
    int done = 0;

    set(ierr, MPI_Testall(*count, requests, &done, many(statuses)));
    *flag = done != 0;
}

F08(waitany, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *index,
              MPI_Status *status, MPI_Fint *ierr))
{
    int place = MPI_UNDEFINED;

    set(ierr, MPI_Waitany(*count, requests, &place, one(status)));
    index_out(place, index);
}

F08(testany, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *index,
              logical *flag, MPI_Status *status, MPI_Fint *ierr))
{
    int place = MPI_UNDEFINED, done = 0;

    set(ierr, MPI_Testany(*count, requests, &place, &done, one(status)));
    *flag = done != 0;
    index_out(place, index);
}

F08(waitsome, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *outcount,
               MPI_Fint *indices, MPI_Status *statuses, MPI_Fint *ierr))
{
    set(ierr, MPI_Waitsome(*count, requests, outcount, indices,
                           many(statuses)));
    for (int i = 0; i < *outcount; i++)
        index_out(indices[i], &indices[i]);
}

F08(testsome, (MPI_Fint *count, MPI_Request *requests, MPI_Fint *outcount,
               MPI_Fint *indices, MPI_Status *statuses, MPI_Fint *ierr))
{
    set(ierr, MPI_Testsome(*count, requests, outcount, indices,
                           many(statuses)));
    for (int i = 0; i < *outcount; i++)
        index_out(indices[i], &indices[i]);
}

F08(request_get_status_any,
    (MPI_Fint *count, MPI_Request *requests, MPI_Fint *index, logical *flag,
     MPI_Status *status, MPI_Fint *ierr))
{
    int place = MPI_UNDEFINED, done = 0;

    set(ierr, rs_get_status_any(*count, requests, &place, &done, one(status)));
    *flag = done != 0;
    index_out(place, index);
}

F08(request_get_status_all,
    (MPI_Fint *count, MPI_Request *requests, logical *flag,
     MPI_Status *statuses, MPI_Fint *ierr))
{
    int done = 0;

    set(ierr, rs_get_status_all(*count, requests, &done, many(statuses)));
    *flag = done != 0;
}

F08(request_get_status_some,
    (MPI_Fint *count, MPI_Request *requests, MPI_Fint *outcount,
     MPI_Fint *indices, MPI_Status *statuses, MPI_Fint *ierr))
{
    *outcount = 0;
    set(ierr, rs_get_status_some(*count, requests, outcount, indices,
                                 many(statuses)));
    for (int i = 0; i < *outcount; i++)
        index_out(indices[i], &indices[i]);
}

#pragma GCC visibility pop
