/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays of which all that is ours is native messages: one native call starts or completes them,
 * as it would without us. While nothing is open and nothing queues nobody has to look meanwhile, and to
 * start some nobody has to wait for what is open elsewhere. */
#include "mpi/request.h"

#include <stdlib.h>

enum { FEW = 64 };

/* An MPI may start an array in any order, and what a synchronous send tells depends on it (O1).
 * Open MPI frees what has failed. */
static bool can_start_in_array(const struct rs_request *request)
{
    const struct rs_message *message = request->message;

    return message != NULL && request->state == RS_INACTIVE && !message->synchronous &&
           message->native != MPI_REQUEST_NULL && rs_message_rests(message);
}

int rs_startall_natively(int count, const MPI_Request *handles, int *error)
{
    struct rs_request *requests[FEW], *request = NULL;
    MPI_Request natives[FEW];
    int num = 0;

    for (; num < count && num < FEW; num++) {
        request = rs_request_find_after(request, handles[num]);
        if (request == NULL || !can_start_in_array(request))
            break;
        requests[num] = request;
        natives[num] = rs_message_start_in_array(request);
    }
    if (num == 0)
        return 0;
    *error = PMPI_Startall(num, natives);
    for (int i = 0; i < num; i++) {
        requests[i]->message->native = natives[i];
        if (*error != MPI_SUCCESS)
            rs_message_is_in_doubt(requests[i]->message);
    }
    rs_notes_poll((unsigned)num);
    return num;
}

struct array {
    uint64_t mark; /* no other array has it */
    int num;
    struct rs_request **ours; /* or NULL, for each */
    MPI_Request *handles;     /* what the native call sees */
    MPI_Status *statuses;
    void *memory;
    struct rs_request *few_ours[FEW];
    MPI_Request few_handles[FEW];
    MPI_Status few_statuses[FEW];
};

static bool allocate_many(struct array *array, size_t num)
{
    char *memory =
        malloc(num * (sizeof(*array->ours) + sizeof(MPI_Request) + sizeof(MPI_Status)));

    if (memory == NULL)
        return false;
    array->memory = memory;
    array->ours = (struct rs_request **)(void *)memory;
    memory += num * sizeof(*array->ours);
    array->statuses = (MPI_Status *)(void *)memory;
    array->handles = (MPI_Request *)(void *)(memory + num * sizeof(MPI_Status));
    return true;
}

/* @param statuses that the native call may write, or MPI_STATUSES_IGNORE */
static bool allocate(struct array *array, int count, MPI_Status *statuses)
{
    static uint64_t marks;

    array->mark = ++marks;
    array->num = count;
    array->ours = array->few_ours;
    array->handles = array->few_handles;
    array->statuses = array->few_statuses;
    array->memory = NULL;
    if (count > FEW && !allocate_many(array, (size_t)count))
        return false;
    if (statuses != MPI_STATUSES_IGNORE)
        array->statuses = statuses;
    return true;
}

static void release(struct array *array)
{
    if (array->memory != NULL)
        free(array->memory);
}

/* Not one that is complete, or inactive, or waits for something else, or is in the array
 * twice. */
static bool is_native(const struct array *array, const struct rs_request *request)
{
    struct rs_message *message = request->message;

    if (message == NULL || request->state != RS_NATIVE || message->is_copied ||
        message->mark == array->mark)
        return false;
    message->mark = array->mark;
    return true;
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
        else if (is_native(array, request))
            array->handles[i] = *rs_message_native(request->message);
        else
            return false;
        array->statuses[i].MPI_ERROR = MPI_SUCCESS; /* MPICH sets it only after an error */
    }
    return true;
}

static int class_of(int error)
{
    int class = error;

    if (error != MPI_SUCCESS)
        PMPI_Error_class(error, &class);
    return class;
}

/* One of ours, if that is complete. Open MPI frees what has failed. */
static void take(struct rs_request *request, MPI_Request handle, const MPI_Status *status)
{
    *rs_message_native(request->message) = handle;
    if (class_of(status->MPI_ERROR) == MPI_ERR_PENDING)
        return;
    rs_message_native_is_over(request, status->MPI_ERROR, status);
    request->error = MPI_SUCCESS;
    request->state = RS_INACTIVE;
}

/* The native call is over. Where it has an error it has called the handler. Open MPI's may say
 * of what is persistent and has failed that all is well, but for the status.
 * @return the result */
static int finish(struct array *array, MPI_Request *handles, MPI_Status *statuses, int result)
{
    struct rs_request *failed = NULL;

    for (int i = 0; i < array->num; i++) {
        struct rs_request *request = array->ours[i];

        if (request == NULL) {
            handles[i] = array->handles[i];
        } else {
            take(request, array->handles[i], &array->statuses[i]);
            if (failed == NULL && array->statuses[i].MPI_ERROR != MPI_SUCCESS)
                failed = request;
        }
        if (statuses != MPI_STATUSES_IGNORE && statuses != array->statuses)
            statuses[i] = array->statuses[i];
    }
    if (result != MPI_SUCCESS || failed == NULL)
        return result;
    failed->message->raised = false;
    rs_request_raise(failed, MPI_ERR_IN_STATUS);
    return MPI_ERR_IN_STATUS;
}

/* False: the array is none of these, and need not be freed. Where there are no pairs there are no
 * messages of ours, and perhaps several threads. */
static bool begin(struct array *array, int count, const MPI_Request *handles,
                  MPI_Status *statuses)
{
    if (rs_num_pairs == 0 || rs_num_open > 0 || !allocate(array, count, statuses))
        return false;
    if (fill(array, handles))
        return true;
    release(array);
    return false;
}

static int end(struct array *array, bool over, MPI_Request *handles, MPI_Status *statuses,
               int result)
{
    if ((over && result == MPI_SUCCESS) || class_of(result) == MPI_ERR_IN_STATUS)
        result = finish(array, handles, statuses, result);
    release(array);
    return result;
}

bool rs_waitall_natively(int count, MPI_Request *handles, MPI_Status *statuses, int *result)
{
    struct array array;

    if (rs_flights_queue() || !begin(&array, count, handles, statuses))
        return false;
    *result = PMPI_Waitall(count, array.handles, array.statuses);
    *result = end(&array, true, handles, statuses, *result);
    return true;
}

bool rs_testall_natively(int count, MPI_Request *handles, int *flag, MPI_Status *statuses,
                         int *result)
{
    struct array array;

    /* The caller's stay as they are if not all is complete. */
    if (!begin(&array, count, handles, MPI_STATUSES_IGNORE))
        return false;
    *result = PMPI_Testall(count, array.handles, flag, array.statuses);
    *result = end(&array, *flag, handles, statuses, *result);
    if (!*flag)
        rs_native_progress();
    return true;
}
