/* SPDX-License-Identifier: BSD-3-Clause */
/* Start, Wait and Test of one request. */
#include "mpi/request.h"

int rs_start_packed(struct rs_request *request)
{
    int error = rs_plan_pack(request->plan);

    return error == MPI_SUCCESS ? MPI_SUCCESS : rs_raise(request->comm, error);
}

int rs_start_failed(struct rs_request *request, int error)
{
    rs_log(RS_LOG_ERROR, "MPI_Start: %s", rsched_last_error());
    return rs_raise(request->comm, rs_error_class(error));
}

int rs_end_epoch(struct rs_request *request, int error)
{
    if (error != 0) {
        rs_log(RS_LOG_ERROR, "%s", rsched_last_error());
        return rs_error_class(error);
    }
    return request->packed ? rs_plan_unpack(request->plan) : MPI_SUCCESS;
}

static bool poll_flight(struct rs_request *request)
{
    if (!rs_flight_poll(request))
        return false;
    if (request->result != 0)
        request->error = rs_error_class(request->result); /* is logged */
    else
        request->error = request->packed ? rs_plan_unpack(request->plan)
                                         : MPI_SUCCESS;
    request->state = RS_COMPLETE;
    return true;
}

bool rs_poll_other(struct rs_request *request)
{
    return request->state != RS_FLYING || poll_flight(request);
}

int rs_wait_other(struct rs_request *request, MPI_Request *handle)
{
    if (request->message != NULL) {
        rs_message_wait(request);
    } else if (request->state == RS_FLYING) {
        rs_flight_wait(request);
        poll_flight(request);
    }
    return rs_request_take(request, handle);
}

int rs_request_raise(struct rs_request *request, int error)
{
    return request->message != NULL ? rs_message_raise(request, error)
                                    : rs_raise(request->comm, error);
}

int MPI_Start(MPI_Request *handle)
{
    struct rs_request *request = rs_request_at(handle);

    /* An error handler has left MPI_Startall for good. */
    if (UNLIKELY(rs_starting.count != 0))
        rs_starting.count = 0;
    return UNLIKELY(request == NULL) ? PMPI_Start(handle)
                                     : rs_request_start(request);
}

int MPI_Wait(MPI_Request *handle, MPI_Status *status)
{
    struct rs_request *request = rs_request_at(handle);
    int error;

    if (request == NULL) {
        rs_settle();
        return PMPI_Wait(handle, status);
    }
    if (UNLIKELY(request->state == RS_INACTIVE)) {
        rs_look();
        rs_set_empty(status);
        return MPI_SUCCESS;
    }
    error = rs_request_finish(request, handle);
    rs_set_status(request, status);
    rs_look_at_times();
    return LIKELY(error == MPI_SUCCESS) ? MPI_SUCCESS
                                        : rs_request_raise(request, error);
}

int MPI_Test(MPI_Request *handle, int *flag, MPI_Status *status)
{
    struct rs_request *request = rs_request_at(handle);
    int error;

    if (request == NULL) {
        rs_look();
        return PMPI_Test(handle, flag, status);
    }
    *flag = 1;
    if (UNLIKELY(request->state == RS_INACTIVE)) {
        rs_look();
        rs_set_empty(status);
        return MPI_SUCCESS;
    }
    if (!rs_request_poll(request)) {
        *flag = 0;
        rs_native_progress();
        return MPI_SUCCESS;
    }
    error = rs_request_take(request, handle);
    rs_set_status(request, status);
    rs_look_at_times();
    return LIKELY(error == MPI_SUCCESS) ? MPI_SUCCESS
                                        : rs_request_raise(request, error);
}

int MPI_Request_get_status(MPI_Request handle, int *flag, MPI_Status *status)
{
    struct rs_request *request = rs_request_find(handle);

    if (request == NULL) {
        rs_look();
        return PMPI_Request_get_status(handle, flag, status);
    }
    *flag = 1;
    rs_look_at_times();
    if (request->state == RS_INACTIVE) {
        rs_set_empty(status);
    } else if (rs_request_poll(request)) {
        rs_set_status(request, status);
    } else {
        *flag = 0;
        rs_native_progress();
    }
    return MPI_SUCCESS;
}
