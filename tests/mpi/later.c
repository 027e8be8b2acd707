/* SPDX-License-Identifier: BSD-3-Clause */
/* What an MPI of later has and ours lacks: MPI_Request_get_status_any, _all and
 * _some by their PMPI_ names, and MPICH's PMPIX_Request_is_complete. It tells what
 * requests it was shown. */
#include <limits.h>
#include <mpi.h>

#define EXPORT __attribute__((visibility("default")))
/* Headers that have them do not agree on what is const. */
#define AS(name) __asm__(#name) EXPORT

enum { MOST = 64 };

static MPI_Request seen[MOST];
static int num_seen, num_whole;

EXPORT int later_has_seen(MPI_Request handle)
{
    for (int i = 0; i < num_seen; i++) {
        if (seen[i] == handle)
            return 1;
    }
    return 0;
}

/* Calls with more than one request, which are those that were handed on. */
EXPORT int later_num_whole(void)
{
    return num_whole;
}

static void see(int count, const MPI_Request handles[])
{
    num_whole += count > 1;
    for (int i = 0; i < count; i++) {
        if (!later_has_seen(handles[i]) && num_seen < MOST)
            seen[num_seen++] = handles[i];
    }
}

/* 1: complete; 0: not; -1: null or inactive. */
static int look(MPI_Request handle, MPI_Status *status)
{
    int flag;

    status->MPI_SOURCE = status->MPI_TAG = INT_MIN;
    PMPI_Request_get_status(handle, &flag, status);
    return flag && status->MPI_SOURCE == MPI_ANY_SOURCE &&
                   status->MPI_TAG == MPI_ANY_TAG
               ? -1
               : flag;
}

int later_any(int count, const MPI_Request handles[], int *index, int *flag,
              MPI_Status *status)
    AS(PMPI_Request_get_status_any);
int later_any(int count, const MPI_Request handles[], int *index, int *flag,
              MPI_Status *status)
{
    MPI_Status found;
    int active = 0;

    see(count, handles);
    *index = MPI_UNDEFINED;
    for (int i = 0; i < count && *index == MPI_UNDEFINED; i++) {
        int what = look(handles[i], &found);

        active |= what >= 0;
        if (what == 1)
            *index = i;
    }
    *flag = *index != MPI_UNDEFINED || !active;
    if (!active)
        look(MPI_REQUEST_NULL, &found);
    if (*flag && status != MPI_STATUS_IGNORE)
        *status = found;
    return MPI_SUCCESS;
}

int later_all(int count, const MPI_Request handles[], int *flag,
              MPI_Status statuses[])
    AS(PMPI_Request_get_status_all);
int later_all(int count, const MPI_Request handles[], int *flag,
              MPI_Status statuses[])
{
    MPI_Status found;

    see(count, handles);
    *flag = 1;
    for (int i = 0; i < count; i++) {
        *flag &= look(handles[i], &found) != 0;
        if (statuses != MPI_STATUSES_IGNORE)
            statuses[i] = found;
    }
    return MPI_SUCCESS;
}

int later_some(int count, const MPI_Request handles[], int *num, int indices[],
               MPI_Status statuses[])
    AS(PMPI_Request_get_status_some);
int later_some(int count, const MPI_Request handles[], int *num, int indices[],
               MPI_Status statuses[])
{
    MPI_Status found;
    int active = 0;

    see(count, handles);
    *num = 0;
    for (int i = 0; i < count; i++) {
        int what = look(handles[i], &found);

        active |= what >= 0;
        if (what != 1)
            continue;
        if (statuses != MPI_STATUSES_IGNORE)
            statuses[*num] = found;
        indices[(*num)++] = i;
    }
    if (!active)
        *num = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

EXPORT int PMPIX_Request_is_complete(MPI_Request handle)
{
    MPI_Status found;

    see(1, &handle);
    return look(handle, &found) != 0;
}
