/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Request_get_status_any, _all and _some of MPI 4.1, which look at several
 * requests and complete none, and MPICH's MPIX_Request_is_complete. A library
 * that has them would take our carriers for inactive requests. The header of the
 * MPI that we are built with may be older than the library we are loaded before
 * (MPICH 4.0 and 4.2 have the same soname), so they are always here, and what is
 * native of them is found when the object is loaded. */
#include "mpi/get_status.h"
#include "mpi/native.h"
#include "mpi/request.h"

#include <limits.h>

#define NATIVE(name, Name)                                                   \
    static __typeof__(rs_##name) *native_##name;                             \
    static void __attribute__((constructor)) find_##name(void)               \
    {                                                                        \
        *(void **)&native_##name = rs_native_if_any("P" #Name);              \
    }

NATIVE(get_status_any, MPI_Request_get_status_any)
NATIVE(get_status_all, MPI_Request_get_status_all)
NATIVE(get_status_some, MPI_Request_get_status_some)

/* ---- one request ---- */

/* What was found of it. */
enum look {
    IDLE, /* inactive or null */
    BUSY,
    DONE,
};

/* What no MPI writes into a status. */
enum { UNTOUCHED = INT_MIN + 4711 };

static bool is_empty(const MPI_Status *status)
{
    int count = -1, cancelled = -1;

    if (status->MPI_SOURCE != MPI_ANY_SOURCE || status->MPI_TAG != MPI_ANY_TAG)
        return false;
    PMPI_Get_count(status, MPI_BYTE, &count);
    PMPI_Test_cancelled(status, &cancelled);
    return count == 0 && !cancelled;
}

/* For a library without these calls. That a request is inactive shows in the empty
 * status, which no completed one has: receives know their source, and of sends
 * MPICH sets no more than whether it was cancelled. */
static enum look look_by_status(MPI_Request handle, MPI_Status *status,
                                int *error)
{
    int source = status->MPI_SOURCE, tag = status->MPI_TAG, flag = 0;

    status->MPI_SOURCE = status->MPI_TAG = UNTOUCHED;
    *error = PMPI_Request_get_status(handle, &flag, status);
    if (flag && is_empty(status))
        return IDLE;
    if (status->MPI_SOURCE == UNTOUCHED)
        status->MPI_SOURCE = source;
    if (status->MPI_TAG == UNTOUCHED)
        status->MPI_TAG = tag;
    return flag || *error != MPI_SUCCESS ? DONE : BUSY;
}

static enum look look_at_native(MPI_Request handle, MPI_Status *status,
                                int *error)
{
    int index = MPI_UNDEFINED, flag = 0;

    if (native_get_status_any == NULL)
        return look_by_status(handle, status, error);
    *error = native_get_status_any(1, &handle, &index, &flag, status);
    if (*error != MPI_SUCCESS)
        return DONE;
    return !flag ? BUSY : index == MPI_UNDEFINED ? IDLE : DONE;
}

/* Look at a request; *status is set when it is DONE, and *error to what the
 * native MPI has raised. An error of ours is that of the call which completes it. */
static enum look look_at(MPI_Request handle, MPI_Status *status, int *error)
{
    struct rs_request *request;
    MPI_Status seen;
    enum look look;

    *error = MPI_SUCCESS;
    if (handle == MPI_REQUEST_NULL)
        return IDLE;
    request = rs_request_find(handle);
    if (request != NULL) {
        if (request->state == RS_INACTIVE)
            return IDLE;
        if (!rs_request_poll(request))
            return BUSY;
        rs_set_status(request, status);
        return DONE;
    }
    seen = status != MPI_STATUS_IGNORE ? *status : rs_process.empty;
    look = look_at_native(handle, &seen, error);
    if (look == DONE && status != MPI_STATUS_IGNORE)
        *status = seen;
    return look;
}

/* ---- several ---- */

/* Whether the native call, if there is one, may have the array as it is. */
static bool none_is_ours(int count, const MPI_Request handles[])
{
    for (int i = 0; i < count; i++) {
        if (rs_request_find(handles[i]) != NULL)
            return false;
    }
    return true;
}

static MPI_Status *ith(MPI_Status statuses[], int i)
{
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

/* A native request has failed: the statuses, so far `num`, tell all errors from
 * now on. */
static void start_errors(int num, MPI_Status statuses[])
{
    for (int i = 0; i < num && statuses != MPI_STATUSES_IGNORE; i++)
        statuses[i].MPI_ERROR = MPI_SUCCESS;
}

static void set_error(MPI_Status *status, int error)
{
    if (status != MPI_STATUS_IGNORE)
        status->MPI_ERROR = error;
}

int rs_get_status_any(int count, const MPI_Request handles[], int *index,
                      int *flag, MPI_Status *status)
{
    bool active = false;

    rs_look();
    if (native_get_status_any != NULL && none_is_ours(count, handles))
        return native_get_status_any(count, handles, index, flag, status);
    for (int i = 0; i < count; i++) {
        int error;
        enum look look = look_at(handles[i], status, &error);

        active |= look == BUSY;
        if (look != DONE)
            continue;
        *index = i;
        *flag = 1;
        return error;
    }
    *index = MPI_UNDEFINED;
    *flag = !active;
    if (active)
        rs_native_progress();
    else
        rs_set_empty(status);
    return MPI_SUCCESS;
}

/* Go on with all of ours, and say whether none is left to wait for. */
static bool ours_are_done(int count, const MPI_Request handles[])
{
    bool done = true;

    for (int i = 0; i < count; i++) {
        struct rs_request *request = rs_request_find(handles[i]);

        if (request != NULL && !rs_request_poll(request))
            done = false;
    }
    return done;
}

int rs_get_status_all(int count, const MPI_Request handles[], int *flag,
                      MPI_Status statuses[])
{
    int result = MPI_SUCCESS, i;

    rs_look();
    if (native_get_status_all != NULL && none_is_ours(count, handles))
        return native_get_status_all(count, handles, flag, statuses);
    *flag = ours_are_done(count, handles);
    for (i = 0; i < count && *flag; i++) {
        MPI_Status *status = ith(statuses, i);
        int error;
        enum look look = look_at(handles[i], status, &error);

        if (look == BUSY) {
            *flag = 0;
            break;
        }
        if (look == IDLE)
            rs_set_empty(status);
        if (error != MPI_SUCCESS && result == MPI_SUCCESS) {
            start_errors(i, statuses);
            result = MPI_ERR_IN_STATUS;
        }
        if (result != MPI_SUCCESS)
            set_error(status, error);
    }
    for (; i < count && result != MPI_SUCCESS; i++)
        set_error(ith(statuses, i), MPI_ERR_PENDING);
    if (!*flag)
        rs_native_progress();
    return result;
}

int rs_get_status_some(int count, const MPI_Request handles[], int *num,
                       int indices[], MPI_Status statuses[])
{
    int result = MPI_SUCCESS, found = 0;
    bool active = false;

    rs_look();
    if (native_get_status_some != NULL && none_is_ours(count, handles))
        return native_get_status_some(count, handles, num, indices, statuses);
    for (int i = 0; i < count; i++) {
        MPI_Status *status = ith(statuses, found);
        int error;
        enum look look = look_at(handles[i], status, &error);

        active |= look != IDLE;
        if (look != DONE)
            continue;
        if (error != MPI_SUCCESS && result == MPI_SUCCESS) {
            start_errors(found, statuses);
            result = MPI_ERR_IN_STATUS;
        }
        if (result != MPI_SUCCESS)
            set_error(status, error);
        indices[found++] = i;
    }
    *num = active ? found : MPI_UNDEFINED;
    if (active && found == 0)
        rs_native_progress();
    return result;
}

/* ---- MPICH ---- */

#ifndef OPEN_MPI

int rs_is_complete(MPI_Request handle) RS_EXPORT(MPIX_Request_is_complete);

NATIVE(is_complete, MPIX_Request_is_complete)

/* MPICH's makes no progress, because something else does. For ours only who asks
 * does, whatever he asks for. */
int rs_is_complete(MPI_Request handle)
{
    struct rs_request *request = rs_request_find(handle);
    int flag = 0;

    rs_look();
    if (request != NULL)
        return request->state == RS_INACTIVE || rs_request_poll(request);
    if (native_is_complete != NULL)
        return native_is_complete(handle);
    PMPI_Request_get_status(handle, &flag, MPI_STATUS_IGNORE);
    return flag;
}

#endif
