/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that go natively: by the native request that each of ours owns, or
 * for a send by a synchronous one. The rules' names are those of
 * docs/persistent.md. */
#include "mpi/native.h"
#include "mpi/message.h"

#include <limits.h>
#include <stdlib.h>

RS_NATIVE(Issend)

/* So many times as long as for a message in a slot: it is seldom, and more seldom if that was
 * in vain (T4). */
enum { COPY_PATIENCE = 16, MORE_PATIENCE = 8 };

/* Those of the next go may be put before the receiver has taken all of this one. */
enum { SLOTS_OF_ONE = 2 };

/* ---- errors ---- */

/* A call that completes several requests calls an error handler once, so the native
 * MPI must not do it for each. Only a program's own handler makes a difference, and
 * that of a communicator that is gone cannot be changed: MPI_ERRHANDLER_NULL. */
static MPI_Errhandler hold_errors(const struct rs_message *message)
{
    MPI_Comm comm = message->lane->pair->name->comm;
    MPI_Errhandler own;

    if (comm == MPI_COMM_NULL)
        return MPI_ERRHANDLER_NULL;
    PMPI_Comm_get_errhandler(comm, &own);
    if (own != MPI_ERRORS_ARE_FATAL && own != MPI_ERRORS_RETURN) {
        PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        return own;
    }
    PMPI_Errhandler_free(&own);
    return MPI_ERRHANDLER_NULL;
}

static void release_errors(struct rs_message *message, MPI_Errhandler own)
{
    message->raised = own == MPI_ERRHANDLER_NULL;
    if (message->raised)
        return;
    PMPI_Comm_set_errhandler(message->lane->pair->name->comm, own);
    PMPI_Errhandler_free(&own);
}

/* ---- starting ---- */

/* O1. Of messages that are started in one go the last one can tell of all: as many are to
 * come as did the last time, or where that differs, as at some time before. Where one was always
 * active, so that they are more than there are requests, any may be the last one. */
static void begin_go(struct rs_lane *lane)
{
    unsigned num = lane->in_go <= lane->requests ? lane->in_go : 1;

    if (lane->active > 0)
        return;
    if (lane->torn > 0)
        lane->torn--;
    else if (num > 0 && num != lane->last && lane->misses++ % 2 == 0)
        lane->last = num;
    lane->in_go = 0;
}

static void send_is_started(struct rs_message *message)
{
    struct rs_lane *lane = message->lane;

    begin_go(lane);
    lane->quiet = false;
    message->native_number = ++lane->natives;
    lane->in_go++;
    lane->active++;
    lane->pair->active++;
    if (lane->attached && SLOTS_OF_ONE * lane->active > lane->slots.num)
        rs_lane_want(lane, 0, SLOTS_OF_ONE * lane->active);
}

/* The native request has been started. */
static void is_started(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;

    message->natives++;
    request->state = RS_NATIVE;
    lane->started = ++lane->pair->native_starts;
    lane->pair->strays += !lane->attached;
    rs_cohort_started = true;
    if (message->sends) {
        send_is_started(message);
    } else {
        message->covers = lane->covers;
        message->native_number = lane->started;
        lane->posted++;
        lane->pair->new_receives = false;
    }
}

void rs_lane_send_is_over(struct rs_lane *lane)
{
    lane->active--;
    if (--lane->pair->active == 0)
        rs_incarnation_foresee(lane->pair);
}

static int start_native(struct rs_request *request)
{
    int error = PMPI_Start(rs_message_native(request->message));

    if (error == MPI_SUCCESS)
        is_started(request);
    return error;
}

void rs_message_go_native(struct rs_message *message)
{
    MPI_Errhandler own = hold_errors(message);
    int error;

    message->puts--;
    message->is_synced = message->is_copied = false;
    error = start_native(message->request);
    if (error == MPI_SUCCESS)
        rs_message_matched();
    else
        rs_message_complete(message, 0, error);
    release_errors(message, own);
}

/* Of the slots that the lane would have if the pair opened now (G3). */
static uint64_t room_to_come(const struct rs_lane *lane)
{
    return rs_place_room(rs_lane_place(lane));
}

/* Whether a native send that tells when all messages of the lane have been
 * matched is of use. */
static bool is_to_tell(const struct rs_message *message)
{
    const struct rs_lane *lane = message->lane;
    const struct rs_pair *pair = lane->pair;

    return lane->attached && !rs_lane_is_barred(lane) && !message->synchronous &&
           message->need != UINT64_MAX && rs_incarnation_is_tried(pair) &&
           lane->sync == MPI_REQUEST_NULL &&
           pair->name->comm != MPI_COMM_NULL && pair->greeted &&
           (rs_pair_pulls(pair) ||
            (message->gpu < 0 && message->bytes <= room_to_come(lane)));
}

/* One from a copy: the request need not wait for it. It is short: a longer one has a
 * synchronous send of its own. False: it cannot go that way, or there are more to come. */
static bool send_copy(struct rs_request *request, int *error)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    const struct rs_pair *pair = lane->pair;

    if (message->bytes > INT_MAX)
        return false;
    if (lane->in_go + 1 < lane->last)
        return false;
    lane->copy = malloc(message->bytes + 1);
    if (lane->copy == NULL)
        return false;
    if (message->gpu < 0) {
        rs_message_pack(message, lane->copy);
    } else if (!rs_gpu_pack(message, lane->copy)) {
        free(lane->copy);
        lane->copy = NULL;
        return false;
    }
    *error = native_Issend(lane->copy, (int)message->bytes, MPI_BYTE,
                           pair->peer, lane->tag, pair->name->comm,
                           &lane->sync);
    if (*error != MPI_SUCCESS) {
        lane->sync = MPI_REQUEST_NULL;
        free(lane->copy);
        lane->copy = NULL;
        return true;
    }
    message->natives++;
    lane->started = ++lane->pair->native_starts;
    send_is_started(message);
    lane->sync_number = message->native_number;
    message->is_copied = true;
    message->since = message->vain = 0;
    message->got = message->bytes;
    request->state = RS_NATIVE;
    return true;
}

/* An MPI library that has no room for the message just then may need calls of
 * this process until it is there, so the program does not have its request back
 * before; but only for a while, since a short one would be buffered. */
static bool is_copy_over(struct rs_message *message)
{
    struct rs_lane *lane = message->lane;
    struct rs_pair *pair = lane->pair;
    uint64_t now;

    if (rs_lane_is_quiet(lane) || lane->sync == MPI_REQUEST_NULL ||
        lane->sync_number != message->native_number || lane->started <= pair->given_up)
        return true;
    now = rs_now_ns();
    if (message->since == 0) /* the program may have computed up to now */
        message->since = now;
    if (now - message->since <=
        COPY_PATIENCE * RS_PATIENCE_NS + MORE_PATIENCE * rs_pair_more_ns(pair))
        return false;
    /* Nor for the others, which may be waited for one after the other. */
    pair->given_up = pair->native_starts;
    return true;
}

static bool poll_copy(struct rs_message *message)
{
    struct rs_pair *pair = message->lane->pair;

    if (!is_copy_over(message)) {
        if (rs_is_time_to_look(++message->vain))
            rs_incarnation_lose(pair, message->vain == 2);
        return false;
    }
    if (message->vain > 1)
        rs_incarnation_lose(pair, false);
    pair->new_sends = true;
    message->request->state = RS_COMPLETE;
    rs_lane_send_is_over(message->lane);
    return true;
}

int rs_message_start_natively(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    bool tells;
    int error;

    /* Nobody may have looked, and there is to be another one. */
    if (message->sends && lane->sync != MPI_REQUEST_NULL)
        rs_lane_is_quiet(lane);
    tells = message->sends && is_to_tell(message);
    if (message->sends)
        begin_go(lane);
    message->is_synced = tells && message->synced != MPI_REQUEST_NULL;
    message->is_copied = false;
    if (!tells || message->is_synced || !send_copy(request, &error))
        error = start_native(request);
    return error;
}

MPI_Request rs_message_start_in_array(struct rs_request *request)
{
    struct rs_message *message = request->message;

    message->is_synced = message->is_copied = false;
    if (message->sends)
        begin_go(message->lane);
    is_started(request);
    return message->native;
}

void rs_message_is_in_doubt(struct rs_message *message)
{
    message->in_doubt = true;
    if (!message->sends)
        message->lane->covers++; /* as if another receive had been posted */
}

/* ---- going on ---- */

/* A native receive or synchronous send that is over: not cancelled, and no failure of
 * which nobody knows what it means. */
static bool is_matched(const MPI_Status *status, int error)
{
    int cancelled = 1;

    if (error == MPI_SUCCESS)
        PMPI_Test_cancelled(status, &cancelled);
    return !cancelled;
}

void rs_message_native_is_over(struct rs_request *request, int error,
                               const MPI_Status *status)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;

    request->error = error;
    request->state = RS_COMPLETE;
    if (!message->sends) {
        lane->posted--;
        lane->pair->new_receives = true;
        if (message->native_number > lane->pair->latest_over)
            lane->pair->latest_over = message->native_number;
        if (lane->barred && is_matched(status, error))
            rs_lane_unbar(lane, message->covers);
        rs_incarnation_is_due(lane->pair);
        return;
    }
    lane->pair->new_sends = true;
    if ((message->synchronous || message->is_synced) &&
        message->native_number == lane->natives && is_matched(status, error))
        lane->quiet = true; /* O1 */
    rs_lane_send_is_over(lane);
}

/* The message's status is the native one. */
static void is_over(struct rs_request *request, int error)
{
    struct rs_message *message = request->message;

    message->got = message->status_bytes = RS_STATUS_NATIVE;
    rs_message_native_is_over(request, error, &message->status);
}

bool rs_message_poll_native(struct rs_request *request)
{
    struct rs_message *message = request->message;
    MPI_Errhandler own;
    int done = 0, error;

    if (message->is_copied) {
        rs_incarnations_look();
        return poll_copy(message);
    }
    own = hold_errors(message);
    error = PMPI_Test(rs_message_native(message), &done, &message->status);
    release_errors(message, own);
    if (!done && error == MPI_SUCCESS) {
        rs_incarnations_look();
        return false;
    }
    is_over(request, error);
    rs_look_at_times();
    return true;
}

void rs_message_wait_native(struct rs_request *request)
{
    struct rs_message *message = request->message;
    MPI_Errhandler own = hold_errors(message);
    int error = PMPI_Wait(rs_message_native(message), &message->status);

    release_errors(message, own);
    is_over(request, error);
}
