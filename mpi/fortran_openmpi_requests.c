/* SPDX-License-Identifier: BSD-3-Clause */
/* Open MPI: starting and completing requests. */
#include "mpi/fortran.h"
#include "mpi/get_status.h"

#include <stdlib.h>

#pragma GCC visibility push(default)

/* ---- one request ---- */

FORTRAN(Start, START, start, (MPI_Fint *request, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    int error = MPI_Start(&handle);

    if (error == MPI_SUCCESS)
        *request = PMPI_Request_c2f(handle);
    set(ierr, error);
}

FORTRAN(Request_free, REQUEST_FREE, request_free,
        (MPI_Fint *request, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    int error = MPI_Request_free(&handle);

    if (error == MPI_SUCCESS)
        *request = PMPI_Request_c2f(handle);
    set(ierr, error);
}

/* A status in C for one in Fortran: calls with a single one leave MPI_ERROR
 * alone. NULL is MPI_STATUS_IGNORE. */
static MPI_Status *status_in(const MPI_Fint *status, MPI_Status *ours)
{
    if (no_status(status))
        return MPI_STATUS_IGNORE;
    PMPI_Status_f2c(status, ours);
    return ours;
}

static void status_out(const MPI_Status *ours, MPI_Fint *status)
{
    if (ours != MPI_STATUS_IGNORE)
        PMPI_Status_c2f(ours, status);
}

FORTRAN(Wait, WAIT, wait,
        (MPI_Fint *request, MPI_Fint *status, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    MPI_Status memory, *ours = status_in(status, &memory);
    int error = MPI_Wait(&handle, ours);

    *request = PMPI_Request_c2f(handle);
    if (error == MPI_SUCCESS)
        status_out(ours, status);
    set(ierr, error);
}

FORTRAN(Test, TEST, test,
        (MPI_Fint *request, logical *flag, MPI_Fint *status, MPI_Fint *ierr))
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    MPI_Status memory, *ours = status_in(status, &memory);
    int done = 0, error = MPI_Test(&handle, &done, ours);

    *flag = done != 0;
    if (done) {
        *request = PMPI_Request_c2f(handle);
        status_out(ours, status);
    }
    set(ierr, error);
}

FORTRAN(Request_get_status, REQUEST_GET_STATUS, request_get_status,
        (MPI_Fint *request, logical *flag, MPI_Fint *status, MPI_Fint *ierr))
{
    MPI_Status memory, *ours = status_in(status, &memory);
    int done = 0, error = MPI_Request_get_status(PMPI_Request_f2c(*request),
                                                 &done, ours);

    *flag = done != 0;
    if (done)
        status_out(ours, status);
    set(ierr, error);
}

/* ---- arrays ---- */

enum { STATUS_INTS = sizeof(MPI_Status) / sizeof(MPI_Fint) };

/* Fortran's arrays in C. */
struct arrays {
    int num;
    MPI_Fint *requests, *fortran_statuses;
    MPI_Request *handles;
    MPI_Status *statuses; /* or MPI_STATUSES_IGNORE */
    MPI_Request few_handles[32];
    MPI_Status few_statuses[32];
};

static void arrays_init(struct arrays *arrays, int num, MPI_Fint *requests,
                        MPI_Fint *statuses)
{
    size_t n = num > 0 ? (size_t)num : 0;

    arrays->num = num;
    arrays->requests = requests;
    arrays->fortran_statuses = statuses;
    arrays->handles = arrays->few_handles;
    arrays->statuses = arrays->few_statuses;
    if (n > sizeof(arrays->few_handles) / sizeof(MPI_Request)) {
        arrays->handles = malloc(n * sizeof(MPI_Request));
        arrays->statuses = calloc(n, sizeof(MPI_Status));
        if (arrays->handles == NULL || arrays->statuses == NULL) {
            rs_log(RS_LOG_ERROR, "out of memory for %d requests", num);
            PMPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (size_t i = 0; i < n; i++)
        arrays->handles[i] = PMPI_Request_f2c(requests[i]);
}

static MPI_Status *wanted(const struct arrays *arrays)
{
    return no_statuses(arrays->fortran_statuses) ? MPI_STATUSES_IGNORE
                                                 : arrays->statuses;
}

/* Write back the handles, and the first `statuses` statuses. */
static void arrays_fini(struct arrays *arrays, int statuses)
{
    for (int i = 0; i < arrays->num; i++)
        arrays->requests[i] = PMPI_Request_c2f(arrays->handles[i]);
    for (int i = 0; i < statuses && wanted(arrays) != MPI_STATUSES_IGNORE; i++)
        PMPI_Status_c2f(&arrays->statuses[i],
                        arrays->fortran_statuses + (ptrdiff_t)STATUS_INTS * i);
    if (arrays->handles != arrays->few_handles) {
        free(arrays->handles);
        free(arrays->statuses);
    }
}

static bool has_statuses(int error)
{
    return error == MPI_SUCCESS || error == MPI_ERR_IN_STATUS;
}

FORTRAN(Startall, STARTALL, startall,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierr))
{
    struct arrays arrays;
    int error;

    arrays_init(&arrays, *count, requests, NULL);
    error = MPI_Startall(*count, arrays.handles);
    arrays_fini(&arrays, 0);
    set(ierr, error);
}

FORTRAN(Waitall, WAITALL, waitall,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *statuses,
         MPI_Fint *ierr))
{
    struct arrays arrays;
    int error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Waitall(*count, arrays.handles, wanted(&arrays));
    arrays_fini(&arrays, has_statuses(error) ? *count : 0);
    set(ierr, error);
}

FORTRAN(Testall, TESTALL, testall,
        (MPI_Fint *count, MPI_Fint *requests, logical *flag,
         MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int done = 0, error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Testall(*count, arrays.handles, &done, wanted(&arrays));
    *flag = done != 0;
    arrays_fini(&arrays, error == MPI_ERR_IN_STATUS || done ? *count : 0);
    set(ierr, error);
}

FORTRAN(Waitany, WAITANY, waitany,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index,
         MPI_Fint *status, MPI_Fint *ierr))
{
    struct arrays arrays;
    MPI_Status memory, *ours = status_in(status, &memory);
    int place = MPI_UNDEFINED, error;

    arrays_init(&arrays, *count, requests, NULL);
    error = MPI_Waitany(*count, arrays.handles, &place, ours);
    index_out(place, index);
    arrays_fini(&arrays, 0);
    if (error == MPI_SUCCESS)
        status_out(ours, status);
    set(ierr, error);
}

FORTRAN(Testany, TESTANY, testany,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, logical *flag,
         MPI_Fint *status, MPI_Fint *ierr))
{
    struct arrays arrays;
    MPI_Status memory, *ours = status_in(status, &memory);
    int place = MPI_UNDEFINED, done = 0, error;

    arrays_init(&arrays, *count, requests, NULL);
    error = MPI_Testany(*count, arrays.handles, &place, &done, ours);
    *flag = done != 0;
    index_out(place, index);
    arrays_fini(&arrays, 0);
    if (done)
        status_out(ours, status);
    set(ierr, error);
}

static void some_out(struct arrays *arrays, int num, MPI_Fint *outcount,
                     MPI_Fint *indices)
{
    *outcount = num;
    for (int i = 0; i < num; i++)
        index_out(indices[i], &indices[i]);
    arrays_fini(arrays, num);
}

FORTRAN(Waitsome, WAITSOME, waitsome,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount,
         MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int num = 0, error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Waitsome(*count, arrays.handles, &num, indices,
                         wanted(&arrays));
    some_out(&arrays, num, outcount, indices);
    set(ierr, error);
}

FORTRAN(Testsome, TESTSOME, testsome,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount,
         MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int num = 0, error;

    arrays_init(&arrays, *count, requests, statuses);
    error = MPI_Testsome(*count, arrays.handles, &num, indices,
                         wanted(&arrays));
    some_out(&arrays, num, outcount, indices);
    set(ierr, error);
}

/* ---- arrays that are only looked at ---- */

/* The statuses are the program's at first: MPI_ERROR is left alone. */
static void looks_init(struct arrays *arrays, int num, MPI_Fint *requests,
                       MPI_Fint *statuses)
{
    arrays_init(arrays, num, requests, statuses);
    for (int i = 0; i < num && wanted(arrays) != MPI_STATUSES_IGNORE; i++)
        PMPI_Status_f2c(statuses + (ptrdiff_t)STATUS_INTS * i,
                        &arrays->statuses[i]);
}

static void looks_fini(struct arrays *arrays, int statuses)
{
    arrays->num = 0; /* the handles may be constants */
    arrays_fini(arrays, statuses);
}

FORTRAN(Request_get_status_any, REQUEST_GET_STATUS_ANY, request_get_status_any,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, logical *flag,
         MPI_Fint *status, MPI_Fint *ierr))
{
    struct arrays arrays;
    MPI_Status memory, *ours = status_in(status, &memory);
    int place = MPI_UNDEFINED, done = 0, error;

    arrays_init(&arrays, *count, requests, NULL);
    error = rs_get_status_any(*count, arrays.handles, &place, &done, ours);
    *flag = done != 0;
    index_out(place, index);
    looks_fini(&arrays, 0);
    if (done)
        status_out(ours, status);
    set(ierr, error);
}

FORTRAN(Request_get_status_all, REQUEST_GET_STATUS_ALL, request_get_status_all,
        (MPI_Fint *count, MPI_Fint *requests, logical *flag,
         MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int done = 0, error;

    looks_init(&arrays, *count, requests, statuses);
    error = rs_get_status_all(*count, arrays.handles, &done, wanted(&arrays));
    *flag = done != 0;
    looks_fini(&arrays, error == MPI_ERR_IN_STATUS || done ? *count : 0);
    set(ierr, error);
}

FORTRAN(Request_get_status_some, REQUEST_GET_STATUS_SOME,
        request_get_status_some,
        (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *outcount,
         MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierr))
{
    struct arrays arrays;
    int num = 0, error;

    looks_init(&arrays, *count, requests, statuses);
    error = rs_get_status_some(*count, arrays.handles, &num, indices,
                               wanted(&arrays));
    *outcount = num;
    for (int i = 0; i < num; i++)
        index_out(indices[i], &indices[i]);
    looks_fini(&arrays, num);
    set(ierr, error);
}

#pragma GCC visibility pop
