/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays of which all that is ours is native messages: one native call completes them, as it
 * would without us. While nothing is open nobody has to look meanwhile. */
#include "mpi/request.h"

#include <stdlib.h>

enum { FEW = 64 };

struct array {
    int num;
    struct rs_request **ours; /* or NULL, for each */
    MPI_Request *handles;     /* what the native call sees */
    MPI_Status *statuses;
    void *memory;
    struct rs_request *few_ours[FEW];
    MPI_Request few_handles[FEW];
    MPI_Status few_statuses[FEW];
};

static bool allocate(struct array *array, int count)
{
    size_t n = (size_t)count;
    char *memory;

    array->num = count;
    array->ours = array->few_ours;
    array->handles = array->few_handles;
    array->statuses = array->few_statuses;
    array->memory = NULL;
    if (count <= FEW)
        return true;
    memory = malloc(n * (sizeof(*array->ours) + sizeof(MPI_Request) + sizeof(MPI_Status)));
    if (memory == NULL)
        return false;
    array->memory = memory;
    array->ours = (struct rs_request **)(void *)memory;
    memory += n * sizeof(*array->ours);
    array->statuses = (MPI_Status *)(void *)memory;
    array->handles = (MPI_Request *)(void *)(memory + n * sizeof(MPI_Status));
    return true;
}

/* Ours that is complete, or inactive, or waits for something else. */
static bool is_native(const struct rs_request *request)
{
    return request->message != NULL && request->state == RS_NATIVE &&
           !request->message->is_copied;
}

/* False: something else is in the array, too. */
static bool fill(struct array *array, const MPI_Request *handles)
{
    struct rs_request *request = NULL;

    for (int i = 0; i < array->num; i++) {
        request = rs_request_find_after(request, handles[i]);
        array->ours[i] = request;
        if (request == NULL)
            array->handles[i] = handles[i];
        else if (is_native(request))
            array->handles[i] = *rs_message_native(request->message);
        else
            return false;
    }
    return true;
}

/* One of ours, if that is complete. The native call has called the error handler, and Open MPI
 * frees what has failed. */
static void take(struct rs_request *request, MPI_Request handle, const MPI_Status *status,
                 int result)
{
    int error = result == MPI_ERR_IN_STATUS ? status->MPI_ERROR : MPI_SUCCESS;

    *rs_message_native(request->message) = handle;
    if (error == MPI_ERR_PENDING)
        return;
    request->message->status = *status;
    rs_message_native_is_over(request, error);
    request->error = MPI_SUCCESS;
    request->state = RS_INACTIVE;
}

/* The native call is over. */
static void finish(struct array *array, MPI_Request *handles, MPI_Status *statuses, int result)
{
    for (int i = 0; i < array->num; i++) {
        if (result == MPI_SUCCESS)
            array->statuses[i].MPI_ERROR = MPI_SUCCESS;
        if (array->ours[i] == NULL)
            handles[i] = array->handles[i];
        else
            take(array->ours[i], array->handles[i], &array->statuses[i], result);
        if (statuses != MPI_STATUSES_IGNORE)
            statuses[i] = array->statuses[i];
    }
}

/* False: the array is none of these, and need not be freed. */
static bool begin(struct array *array, int count, const MPI_Request *handles)
{
    if (rs_num_open > 0 || !allocate(array, count))
        return false;
    if (fill(array, handles))
        return true;
    free(array->memory);
    return false;
}

static void end(struct array *array, bool over, MPI_Request *handles, MPI_Status *statuses,
                int result)
{
    if ((over && result == MPI_SUCCESS) || result == MPI_ERR_IN_STATUS)
        finish(array, handles, statuses, result);
    free(array->memory);
}

bool rs_waitall_natively(int count, MPI_Request *handles, MPI_Status *statuses, int *result)
{
    struct array array;

    if (!begin(&array, count, handles))
        return false;
    *result = PMPI_Waitall(count, array.handles, array.statuses);
    end(&array, true, handles, statuses, *result);
    return true;
}

bool rs_testall_natively(int count, MPI_Request *handles, int *flag, MPI_Status *statuses,
                         int *result)
{
    struct array array;

    if (!begin(&array, count, handles))
        return false;
    *result = PMPI_Testall(count, array.handles, flag, array.statuses);
    end(&array, *flag, handles, statuses, *result);
    return true;
}
