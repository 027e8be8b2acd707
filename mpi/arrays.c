/* SPDX-License-Identifier: BSD-3-Clause */
/* Start, Wait and Test of several requests, ours and native ones mixed. */
#include "mpi/request.h"

#include <stdlib.h>

/* Those of an array that native calls may see, in order. */
struct natives {
    int num;
    MPI_Request *handles;
    int *places; /* in the caller's array */
    MPI_Status *statuses; /* one for each */
    MPI_Status *wanted; /* the same, or MPI_STATUSES_IGNORE */
    void *memory;
    MPI_Request few_handles[32];
    int few_places[32];
    MPI_Status few_statuses[32];
};

/* Sort an array: false when none of it is ours, and *natives is not set then.
 * *active tells whether something of ours is. */
static bool natives_init(struct natives *natives, int count,
                         MPI_Request *handles, const MPI_Status *statuses,
                         bool *active)
{
    bool ours = false;

    *active = false;
    for (int i = 0; handles != NULL && i < count; i++) {
        const struct rs_request *request = rs_request_find(handles[i]);

        if (request == NULL)
            continue;
        ours = true;
        *active |= request->state != RS_INACTIVE;
    }
    if (!ours)
        return false;
    rs_set_rested(false);
    natives->num = 0;
    natives->handles = natives->few_handles;
    natives->places = natives->few_places;
    natives->statuses = natives->few_statuses;
    natives->memory = NULL;
    if (count > (int)(sizeof(natives->few_places) / sizeof(int))) {
        size_t n = (size_t)count;
        char *memory = malloc(n * (sizeof(MPI_Status) + sizeof(MPI_Request) +
                                   sizeof(int)));

        if (memory == NULL) {
            rs_log(RS_LOG_ERROR, "out of memory for %d requests", count);
            PMPI_Abort(MPI_COMM_WORLD, 1);
        }
        natives->memory = memory;
        natives->statuses = (MPI_Status *)(void *)memory;
        memory += n * sizeof(MPI_Status);
        natives->handles = (MPI_Request *)(void *)memory;
        memory += n * sizeof(MPI_Request);
        natives->places = (int *)(void *)memory;
    }
    natives->wanted = statuses == MPI_STATUSES_IGNORE ? MPI_STATUSES_IGNORE
                                                      : natives->statuses;
    for (int i = 0; i < count; i++) {
        if (rs_request_find(handles[i]) != NULL)
            continue;
        natives->handles[natives->num] = handles[i];
        natives->places[natives->num++] = i;
    }
    return true;
}

/* Write back the handles, which native calls may have set to null: the end of a
 * call. */
static void natives_fini(struct natives *natives, MPI_Request *handles)
{
    rs_look_at_times();
    for (int i = 0; i < natives->num; i++)
        handles[natives->places[i]] = natives->handles[i];
    free(natives->memory);
}

/* The error of a call with several statuses. `failed`: the first of ours, or NULL;
 * its communicator's handler is called, unless the native call, which returned
 * `result`, has called one. */
static int raise_in_status(struct rs_request *failed, int result)
{
    if (LIKELY(failed == NULL))
        return result;
    if (result == MPI_SUCCESS)
        rs_request_raise(failed, MPI_ERR_IN_STATUS);
    return MPI_ERR_IN_STATUS;
}

/* An array with nothing in it, or a wrong one: the native call says which. */
static inline bool has_none(int count, const MPI_Request *handles)
{
    return count <= 0 || handles == NULL;
}

/* Start an array whose first request is not ours. */
static int startall_mixed(int count, MPI_Request *handles)
{
    int result = MPI_SUCCESS, natives = 0;

    while (natives < count && rs_request_find(handles[natives]) == NULL)
        natives++;
    if (natives == count)
        return PMPI_Startall(count, handles);
    for (int i = 0; i < count && result == MPI_SUCCESS; i++) {
        struct rs_request *request = rs_request_find(handles[i]);

        result = request != NULL ? rs_request_start(request) : PMPI_Start(&handles[i]);
    }
    return result;
}

struct rs_starting rs_starting;

static inline int start_all(int count, MPI_Request *handles)
{
    struct rs_request *request = NULL;

    for (int i = 0; i < count; i++) {
        int error, num;

        request = rs_request_find_after(request, handles[i]);
        if (UNLIKELY(request == NULL))
            return startall_mixed(count - i, handles + i);
        if (request->message != NULL) {
            if (LIKELY(rs_message_start_at_once(request)))
                continue;
            num = rs_startall_natively(count - i, handles + i, &error);
            if (num > 0)
                i += num - 1;
            else
                error = rs_message_start_slowly(request);
        } else {
            error = rs_request_start(request);
        }
        if (UNLIKELY(error != MPI_SUCCESS))
            return error;
    }
    return MPI_SUCCESS;
}

int MPI_Startall(int count, MPI_Request *handles)
{
    int error;

    if (UNLIKELY(has_none(count, handles)))
        return PMPI_Startall(count, handles);
    if (rs_num_pairs == 0) /* threads may share what follows */
        return start_all(count, handles);
    rs_starting = (struct rs_starting){handles, count};
    error = start_all(count, handles);
    rs_starting.count = 0;
    return error;
}

/* Pass the natives' statuses on to the caller's array. */
static void copy_statuses(const struct natives *natives, MPI_Status *statuses,
                          int result)
{
    if (statuses == MPI_STATUSES_IGNORE)
        return;
    for (int i = 0; i < natives->num; i++) {
        MPI_Status *to = &statuses[natives->places[i]];

        *to = natives->statuses[i];
        if (result == MPI_SUCCESS)
            to->MPI_ERROR = MPI_SUCCESS;
    }
}

/* Wait for one of ours and set its status; *failed becomes the first that has
 * failed. */
static inline void wait_ours(struct rs_request *request, MPI_Request *handle,
                             MPI_Status *statuses, int i,
                             struct rs_request **failed)
{
    bool active = request->state != RS_INACTIVE;
    int error = MPI_SUCCESS;

    if (LIKELY(active))
        error = rs_request_finish(request, handle);
    if (UNLIKELY(error != MPI_SUCCESS) && *failed == NULL)
        *failed = request;
    rs_set_ith(request, active, statuses, i, error);
}

/* The natives of an array. They have moved on while ours were waited for,
 * because that drives their progress. */
static int waitall_natives(int count, MPI_Request *handles,
                           MPI_Status *statuses)
{
    struct natives natives;
    bool active;
    int result;

    rs_settle();
    if (!natives_init(&natives, count, handles, statuses, &active))
        return PMPI_Waitall(count, handles, statuses);
    result = PMPI_Waitall(natives.num, natives.handles, natives.wanted);
    copy_statuses(&natives, statuses, result);
    natives_fini(&natives, handles);
    return result;
}

/* Take a message that is complete. */
static inline void take_message(struct rs_request *request,
                                MPI_Status *statuses, int i,
                                struct rs_request **failed)
{
    int error = request->error;

    request->state = RS_INACTIVE;
    if (UNLIKELY(error != MPI_SUCCESS)) {
        request->error = MPI_SUCCESS;
        if (*failed == NULL)
            *failed = request;
    }
    rs_set_ith(request, true, statuses, i, error);
}

/* The same after one of ours has failed. If that was a nonblocking call its handle
 * is null by now, but its status is to say so. */
static int __attribute__((cold))
waitall_natives_after_failure(int count, MPI_Request *handles,
                              MPI_Status *statuses)
{
    int *errors = statuses == MPI_STATUSES_IGNORE
                      ? NULL
                      : malloc((size_t)count * sizeof(*errors));
    int result;

    for (int i = 0; errors != NULL && i < count; i++)
        errors[i] = handles[i] == MPI_REQUEST_NULL ? statuses[i].MPI_ERROR
                                                   : MPI_SUCCESS;
    result = waitall_natives(count, handles, statuses);
    for (int i = 0; errors != NULL && i < count; i++) {
        if (errors[i] != MPI_SUCCESS)
            statuses[i].MPI_ERROR = errors[i];
    }
    free(errors);
    return result;
}

/* A send that is not matched is waited for after the receives: those tell
 * that the other side has come, too. */
static inline bool is_for_later(struct rs_request *request)
{
    if (request->message->sends)
        return true;
    rs_message_wait(request);
    return false;
}

/* Of an array of which something is ours: native calls may leave these alone. */
static inline void clear_errors(MPI_Status *statuses, int begin, int end)
{
    for (int i = begin; i < end && statuses != MPI_STATUSES_IGNORE; i++)
        statuses[i].MPI_ERROR = MPI_SUCCESS;
}

int MPI_Waitall(int count, MPI_Request *handles, MPI_Status *statuses)
{
    struct rs_request *request = NULL, *failed = NULL;
    int later = 0, natives = 0, result = MPI_SUCCESS;

    if (UNLIKELY(has_none(count, handles)))
        return waitall_natives(count, handles, statuses);
    if (!rs_have_requests()) {
        rs_settle();
        return PMPI_Waitall(count, handles, statuses);
    }
    for (int i = 0; i < count; i++) {
        request = rs_request_find_after(request, handles[i]);
        if (UNLIKELY(request == NULL)) {
            natives++;
            if (natives <= i)
                clear_errors(statuses, i, i + 1);
            continue;
        }
        if (UNLIKELY(natives == i && i > 0))
            clear_errors(statuses, 0, i);
        if (request->message == NULL || request->state == RS_INACTIVE) {
            wait_ours(request, &handles[i], statuses, i, &failed);
        } else if (UNLIKELY(request->state == RS_NATIVE) && i == natives &&
                   rs_waitall_natively(count, handles, statuses, &result)) {
            return result; /* none before it is ours */
        } else if (LIKELY(rs_message_poll(request)) || !is_for_later(request)) {
            take_message(request, statuses, i, &failed);
        } else {
            later++;
        }
    }
    if (natives == count) { /* the native call goes on with all that is native */
        rs_settle();
        result = PMPI_Waitall(count, handles, statuses);
        if (rs_num_pairs > 0 || UNLIKELY(rs_flights_queue()))
            rs_look_at_times();
        return result;
    }
    for (int i = 0; i < count && later > 0; i++) {
        request = rs_request_find(handles[i]);
        if (request == NULL || request->state == RS_INACTIVE)
            continue;
        wait_ours(request, &handles[i], statuses, i, &failed);
        later--;
    }
    if (natives > 0)
        result = (LIKELY(failed == NULL)
                      ? waitall_natives
                      : waitall_natives_after_failure)(count, handles, statuses);
    rs_look_at_times();
    return raise_in_status(failed, result);
}

int MPI_Testall(int count, MPI_Request *handles, int *flag,
                MPI_Status *statuses)
{
    struct rs_request *failed = NULL;
    struct natives natives;
    bool active, done = true;
    int result = MPI_SUCCESS;

    if (!natives_init(&natives, count, handles, statuses, &active)) {
        rs_look();
        return PMPI_Testall(count, handles, flag, statuses);
    }
    if (rs_testall_natively(count, handles, flag, statuses, &result)) {
        free(natives.memory);
        return result;
    }
    for (int i = 0; i < count; i++) {
        struct rs_request *request = rs_request_find(handles[i]);

        if (request != NULL && !rs_request_poll(request))
            done = false;
    }
    /* The natives only when it can become true: they are gone then. */
    *flag = done;
    if (done)
        result = PMPI_Testall(natives.num, natives.handles, flag,
                              natives.wanted);
    else
        rs_native_progress();
    for (int i = 0; i < count && (*flag || result != MPI_SUCCESS); i++) {
        struct rs_request *request = rs_request_find(handles[i]);
        bool was_active;
        int error;

        if (request == NULL)
            continue;
        was_active = request->state != RS_INACTIVE;
        error = rs_request_take(request, &handles[i]);
        if (error != MPI_SUCCESS && failed == NULL)
            failed = request;
        rs_set_ith(request, was_active, statuses, i, error);
    }
    if (*flag || result != MPI_SUCCESS)
        copy_statuses(&natives, statuses, result);
    natives_fini(&natives, handles);
    return raise_in_status(failed, result);
}

/* One look at an array for a call that completes one request. True when the
 * call is over: *index and *result are set then. *active says whether
 * something is left to wait for. */
static bool any_once(int count, MPI_Request *handles, struct natives *natives,
                     int *index, MPI_Status *status, bool *active, int *result)
{
    int flag = 0, place = MPI_UNDEFINED;

    *result = MPI_SUCCESS;
    *active = false;
    for (int i = 0; i < count; i++) {
        struct rs_request *request = rs_request_find(handles[i]);

        if (request == NULL || request->state == RS_INACTIVE)
            continue;
        *active = true;
        if (!rs_request_poll(request))
            continue;
        *index = i;
        rs_set_status(request, status);
        *result = rs_request_take(request, &handles[i]);
        if (*result != MPI_SUCCESS)
            rs_request_raise(request, *result);
        return true;
    }
    if (natives->num == 0)
        return false;
    *result = PMPI_Testany(natives->num, natives->handles, &place, &flag,
                           status);
    if (flag && place == MPI_UNDEFINED) {
        natives->num = 0; /* none of them will ever complete */
        return false;
    }
    *active = true;
    if (!flag && *result == MPI_SUCCESS)
        return false;
    *index = place;
    if (place != MPI_UNDEFINED) {
        *index = natives->places[place];
        handles[*index] = natives->handles[place];
    }
    return true;
}

int MPI_Testany(int count, MPI_Request *handles, int *index, int *flag,
                MPI_Status *status)
{
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, NULL, &active)) {
        rs_look();
        return PMPI_Testany(count, handles, index, flag, status);
    }
    *flag = 1;
    if (!any_once(count, handles, &natives, index, status, &active, &result)) {
        *index = MPI_UNDEFINED;
        if (active) {
            *flag = 0;
            rs_native_progress();
        } else {
            rs_set_empty(status);
        }
    }
    natives.num = 0; /* written back */
    natives_fini(&natives, handles);
    return result;
}

int MPI_Waitany(int count, MPI_Request *handles, int *index,
                MPI_Status *status)
{
    struct rs_rest rest = {0};
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, NULL, &active)) {
        rs_settle();
        return PMPI_Waitany(count, handles, index, status);
    }
    while (!any_once(count, handles, &natives, index, status, &active,
                     &result)) {
        if (!active) {
            *index = MPI_UNDEFINED;
            rs_set_empty(status);
            break;
        }
        rs_rest(&rest, count, handles);
    }
    natives.num = 0; /* written back */
    natives_fini(&natives, handles);
    return result;
}

/* One look at an array for a call that completes some requests. Sets *num,
 * MPI_UNDEFINED when nothing is active. */
static int some_once(int count, MPI_Request *handles, struct natives *natives,
                     int *num, int *indices, MPI_Status *statuses)
{
    struct rs_request *failed = NULL;
    int more = MPI_UNDEFINED, result = MPI_SUCCESS;
    bool active = false;
    int *places = indices;

    *num = 0;
    for (int i = 0; i < count; i++) {
        struct rs_request *request = rs_request_find(handles[i]);
        int error;

        if (request == NULL || request->state == RS_INACTIVE)
            continue;
        active = true;
        if (!rs_request_poll(request))
            continue;
        error = rs_request_take(request, &handles[i]);
        if (error != MPI_SUCCESS && failed == NULL)
            failed = request;
        rs_set_ith(request, true, statuses, *num, error);
        indices[(*num)++] = i;
    }
    if (natives->num > 0) {
        places += *num;
        result = PMPI_Testsome(natives->num, natives->handles, &more, places,
                               natives->wanted);
    }
    for (int i = 0; more != MPI_UNDEFINED && i < more; i++) {
        int place = places[i];

        if (statuses != MPI_STATUSES_IGNORE) {
            statuses[*num] = natives->statuses[i];
            if (result == MPI_SUCCESS)
                statuses[*num].MPI_ERROR = MPI_SUCCESS;
        }
        places[i] = natives->places[place];
        handles[places[i]] = natives->handles[place];
        (*num)++;
    }
    if (!active && more == MPI_UNDEFINED)
        *num = MPI_UNDEFINED;
    return raise_in_status(failed, result);
}

int MPI_Testsome(int count, MPI_Request *handles, int *num, int *indices,
                 MPI_Status *statuses)
{
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, statuses, &active)) {
        rs_look();
        return PMPI_Testsome(count, handles, num, indices, statuses);
    }
    result = some_once(count, handles, &natives, num, indices, statuses);
    if (*num == 0)
        rs_native_progress();
    natives.num = 0; /* written back */
    natives_fini(&natives, handles);
    return result;
}

int MPI_Waitsome(int count, MPI_Request *handles, int *num, int *indices,
                 MPI_Status *statuses)
{
    struct rs_rest rest = {0};
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, statuses, &active)) {
        rs_settle();
        return PMPI_Waitsome(count, handles, num, indices, statuses);
    }
    for (;;) {
        result = some_once(count, handles, &natives, num, indices, statuses);
        if (*num != 0 || result != MPI_SUCCESS)
            break;
        rs_rest(&rest, count, handles);
    }
    natives.num = 0; /* written back */
    natives_fini(&natives, handles);
    return result;
}
