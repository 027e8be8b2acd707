/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: what message.h does not have inline. The rules' names are those of
 * docs/persistent.md. */
#include "mpi/native.h"
#include "mpi/message.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_MORE = 63, /* N6: times RS_PATIENCE_NS */
    LOOK_EVERY = 16, /* starts of what has no lane, at least */
};

RS_NATIVE(Cancel)

/* ---- status ---- */

const MPI_Status *rs_message_status(struct rs_message *message)
{
    MPI_Status *status = &message->status;

    if (message->got == message->status_bytes)
        return status;
    *status = rs_process.empty;
    status->MPI_SOURCE = message->lane->pair->peer;
    status->MPI_TAG = message->lane->tag;
    PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)message->got);
    PMPI_Status_set_cancelled(status, 0);
    message->status_bytes = message->got;
    return status;
}

/* ---- taking ---- */

void rs_message_complete(struct rs_message *message, uint64_t bytes, int error)
{
    if (rs_message_is_open(message))
        rs_message_matched();
    message->got = bytes;
    message->raised = false;
    message->request->error = error;
    message->request->state = RS_COMPLETE;
}

/* G2: the next start on the lane is a slow one. */
static void outgrow(struct rs_lane *lane)
{
    if (lane->pair->view.open == 0)
        return;
    lane->pair->outgrown = true;
    lane->limit = 0;
}

/* Where nothing of the sender can be read any more it is told, lest all that it
 * announces fails. */
static void __attribute__((cold)) look_whether_readable(struct rs_pair *pair)
{
    if (rs_sender_is_readable(pair->sender))
        return;
    rs_log(RS_LOG_WARN,
           "messages of process %d are not copied out of its memory any more",
           pair->world);
    atomic_store_explicit(&pair->view.words->refuses, 1, memory_order_relaxed);
}

void rs_message_taken(struct rs_message *message, struct rs_slot *slot,
                      uint64_t ns, bool failed)
{
    uint64_t sent = rs_slot_bytes(slot);
    uint64_t bytes = sent < message->bytes ? sent : message->bytes;
    bool pulled = rs_slot_announces(slot), direct = rs_slot_is_on_gpu(slot);
    int error = failed                  ? MPI_ERR_OTHER
                : sent > message->bytes ? MPI_ERR_TRUNCATE
                                        : MPI_SUCCESS;

    if (pulled && failed)
        look_whether_readable(message->lane->pair);
    if (rs_slot_is_timed(slot))
        slot->bytes = ns;
    rs_lane_consume(message->slots, message->number);
    if (pulled) {
        message->pulls++;
        rs_lane_wake(message->slots); /* the sender waits for it */
        if (sent > message->slots->room &&
            rs_lane_is_wanted(message->lane, sent))
            outgrow(message->lane);
    }
    if (message->gpu < 0 || direct || failed || bytes == 0)
        rs_message_complete(message, bytes, error);
    else if (!rs_gpu_spread(message, bytes, error))
        rs_message_complete(message, bytes, MPI_ERR_OTHER);
}

/* Whether it is a receive that is matched and not consumed, if it has been put. */
static bool is_to_take(const struct rs_message *message)
{
    return message->request->state == RS_GRANTED ||
           message->copying == RS_COPY_WAITS ||
           message->copying == RS_COPY_PULLS;
}

/* Those before it on the lane are there too, and slots are given back in their
 * order. False: a copy out of one of them is under way. */
static bool take_earlier(struct rs_message *message)
{
    struct rs_slots *slots = message->slots;
    struct rs_message *m = message->lane->pair->messages;

    while (slots->seen + 1 != message->number) {
        for (m = message->lane->pair->messages;
             m->slots != slots || !is_to_take(m) ||
             m->number != slots->seen + 1;
             m = m->next)
            ;
        if (m->request->state != RS_GRANTED)
            rs_gpu_poll(m);
        else
            rs_message_take(m->request, m, rs_slots_at(slots, m->number));
        if (m->number != slots->seen)
            return false;
    }
    return true;
}

/* The bytes are in the slot. */
static void take_slot(struct rs_message *message, struct rs_slot *slot)
{
    uint64_t begin = rs_slot_is_timed(slot) ? rs_now_ns() : 0;
    uint64_t bytes = rs_slot_bytes(slot);
    char *memory = NULL;

    if (bytes > message->bytes)
        bytes = message->bytes;
    if (message->gpu < 0)
        rs_message_unpack(message, slot->data, bytes);
    else if ((memory = rs_gpu_memory(message)) != NULL)
        memcpy(memory, slot->data, bytes);
    rs_message_taken(message, slot, begin > 0 ? rs_now_ns() - begin : 0,
                     message->gpu >= 0 && memory == NULL);
}

bool rs_message_take_slowly(struct rs_message *message, struct rs_slot *slot)
{
    struct rs_slots *slots = message->slots;

    if (message->number != slots->seen + 1 && !take_earlier(message))
        return false;
    if (rs_slot_is_on_gpu(slot))
        rs_gpu_pull(message, slot);
    else if (rs_slot_announces(slot))
        rs_message_pull(message, slot);
    else
        take_slot(message, slot);
    return message->request->state == RS_COMPLETE;
}

/* A send that is matched: complete, unless the receiver has yet to pull it. */
static void send_is_matched(struct rs_message *message)
{
    rs_message_complete(message, message->bytes, MPI_SUCCESS);
    if (message->announced &&
        !rs_lane_is_consumed(message->slots, message->number))
        message->request->state = RS_MATCHED;
}

void rs_message_finish(struct rs_message *message)
{
    if (message->sends)
        send_is_matched(message);
    else if (!rs_message_take(message->request, message,
                              rs_slots_at(message->slots, message->number)) &&
             rs_message_is_open(message))
        rs_gpu_await(message);
}

/* ---- starting ---- */

static bool start_in_lane(struct rs_request *request)
{
    struct rs_message *message = request->message;

    return message->sends ? rs_message_put(request, message)
                          : rs_message_grant(request, message);
}

/* G2: longer slots can be used in the next incarnation. */
static void end_for_growth(struct rs_pair *pair)
{
    pair->outgrown = false;
    if (pair->view.open != 0)
        rs_incarnation_stop(pair);
    rs_pair_grow(pair);
}

/* Natively, as the sender might open the pair and the lane join. */
static bool must_not_be_posted(const struct rs_lane *lane)
{
    const struct rs_pair *pair = lane->pair;

    return rs_pair_is_alone(&pair->view) && !rs_lane_is_barred(lane) &&
           (lane->attached || pair->num_attached < RS_LANES);
}

/* Those of no lane may be many, and come after those of lanes, which each look goes over. */
static bool is_to_look(struct rs_pair *pair)
{
    unsigned every = pair->num_attached > LOOK_EVERY ? pair->num_attached : LOOK_EVERY;

    return pair->unlooked++ % every == 0;
}

int rs_message_start_slowly(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    struct rs_pair *pair = lane->pair;

    if (request->state != RS_INACTIVE)
        return rs_name_raise(pair->name, MPI_ERR_REQUEST);
    rs_notes_poll(1);
    if (rs_message_rests(message))
        return rs_message_start_natively(request);
    if (message->sends && message->need != UINT64_MAX) {
        if (!lane->attached)
            rs_note_offer(lane, message->gpu < 0 ? message->bytes : 0);
        else if (message->gpu >= 0)
            rs_gpu_ask(message);
        else if (message->bytes > lane->slots.room) /* G1 */
            rs_message_want(message);
    }
    if (message->need == UINT64_MAX)
        rs_lane_leave_native(lane); /* N7 */
    if (lane->attached || is_to_look(pair))
        rs_incarnations_look();
    /* Also when nothing is unmatched: this lane may be none of the open ones. */
    if (pair->view.open != 0 && !rs_incarnation_is_open(pair))
        rs_incarnation_stop(pair);
    if (pair->outgrown)
        end_for_growth(pair);
    if (message->sends && pair->view.open != 0 && message->need != UINT64_MAX)
        rs_incarnation_widen(lane);
    if (pair->view.open == 0 && lane->attached && !rs_lane_is_barred(lane))
        rs_incarnation_try(pair);
    if (!message->sends)
        rs_incarnation_before_posting(lane); /* O3 */
    if (pair->view.open != 0) {
        if (start_in_lane(request))
            return MPI_SUCCESS;
        if (lane->limit != 0 || must_not_be_posted(lane))
            rs_incarnation_close(pair); /* N1, N2, O3 */
        else if (message->sends)
            rs_incarnation_settle(pair); /* N1 */
    }
    return rs_message_start_natively(request);
}

/* ---- going on ---- */

/* Where attempts have become rare a receiver that has no core is worth waiting
 * for, and so is one where something is on its way to this process anyway. */
static bool is_patient(const struct rs_message *message, uint64_t ns)
{
    const struct rs_pair *pair = message->lane->pair;
    uint64_t more = pair->penalty / 4, patience = RS_PATIENCE_NS + rs_pair_more_ns(pair);
    const uint64_t most = RS_PATIENCE_NS * (1 + MOST_MORE);

    patience += RS_PATIENCE_NS * more;
    return ns <= (patience < most ? patience : most) ||
           (ns <= most && rs_incarnation_is_receiving());
}

/* N6. What is pulled, or so long that it would be if it were not strided, would
 * natively wait for its receiver too. Of GPU memory short messages are pulled, too,
 * that natively may not. */
static void lose_patience(struct rs_message *message)
{
    struct rs_pair *pair = message->lane->pair;

    if ((message->announced && message->gpu < 0) ||
        message->bytes > rs_pair_most(pair))
        return;
    if (message->waited != message->number) {
        message->waited = message->number;
        message->vain = 0;
    }
    if (!rs_is_time_to_look(++message->vain))
        return;
    rs_incarnation_lose(pair, message->vain == 2);
    if (message->vain == 2)
        message->since = rs_now_ns();
    else if (pair->view.open != 0 && !is_patient(message, rs_now_ns() - message->since))
        rs_incarnation_stop(pair);
}

/* Nobody else pulls what a process sends to itself. */
static bool poll_matched(struct rs_request *request)
{
    struct rs_message *message = request->message;

    if (!message->sends)
        return rs_gpu_poll(message);
    if (message->lane->pair->world == rs_process.rank)
        rs_incarnations_look();
    if (!rs_lane_is_consumed(message->slots, message->number))
        return false;
    request->state = RS_COMPLETE;
    return true;
}

static bool poll_put(struct rs_message *message)
{
    if (rs_lane_is_granted(message->slots, message->number))
        send_is_matched(message);
    else
        lose_patience(message);
    return message->request->state != RS_PUT;
}

bool rs_message_poll_slowly(struct rs_request *request)
{
    struct rs_message *message = request->message;

    if (rs_message_is_open(message)) {
        if (!rs_incarnation_is_open(message->lane->pair))
            rs_incarnation_stop(message->lane->pair);
        else if (rs_message_is_open(message) && (!message->sends || !poll_put(message)))
            return false;
    }
    return request->state == RS_NATIVE    ? rs_message_poll_native(request)
           : request->state == RS_MATCHED ? poll_matched(request)
                                          : true;
}

void rs_message_wait(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_rest rest = {0};
    bool was_put = false, in_vain = false;

    rs_set_rested(false);
    while (!rs_message_poll(request)) {
        rs_num_awaited += !message->sends && in_vain;
        in_vain = true;
        was_put = request->state == RS_PUT;
        if (request->state == RS_NATIVE && !message->is_copied &&
            rs_num_open == 0 && !rs_flights_queue()) {
            rs_message_wait_native(request);
            return;
        }
        rs_rest(&rest, 1, &request->handle);
    }
    /* A match is found without a look at the clock. */
    if (was_put && message->vain > 1 && message->waited == message->number)
        rs_incarnation_lose(message->lane->pair, false);
}

int rs_message_raise(struct rs_request *request, int error)
{
    struct rs_message *message = request->message;

    return message->raised ? error
                           : rs_name_raise(message->lane->pair->name, error);
}

/* ---- the end ---- */

/* Not in an incarnation any more: matched, or native (N5). */
static void leave_incarnation(struct rs_request *request)
{
    rs_message_poll(request);
    if (rs_message_is_open(request->message))
        rs_incarnation_stop(request->message->lane->pair);
}

int rs_message_cancel(struct rs_request *request)
{
    if (request->state == RS_INACTIVE)
        return rs_name_raise(request->message->lane->pair->name,
                             MPI_ERR_REQUEST);
    leave_incarnation(request);
    return request->state == RS_NATIVE && !request->message->is_copied
               ? native_Cancel(rs_message_native(request->message))
               : MPI_SUCCESS;
}

void rs_message_abandon(struct rs_request *request)
{
    struct rs_message *message = request->message;

    message->in_doubt = true;
    if (request->state == RS_INACTIVE)
        return;
    leave_incarnation(request);
    if (request->state == RS_NATIVE && message->sends)
        rs_lane_send_is_over(message->lane);
    else if (request->state == RS_NATIVE)
        rs_lane_lose_receive(message->lane);
    if (request->state != RS_MATCHED)
        request->state = RS_INACTIVE;
}

enum rs_reason rs_message_reason(const struct rs_message *message)
{
    const struct rs_lane *lane = message->lane;

    if (message->puts > 0 || message->reason != RS_ACCELERATED)
        return message->puts > 0 ? RS_ACCELERATED : message->reason;
    if (rs_lane_is_barred(lane))
        return RS_REASON_COVERED;
    /* Whether the receiver pulls is known with the pair's words. */
    if (message->sends && lane->pair->view.words != NULL && message->bytes > rs_lane_most() &&
        !rs_pair_pulls(lane->pair))
        return RS_REASON_SIZE;
    if (lane->attached && rs_incarnation_is_futile(lane->pair))
        return RS_REASON_POSTED;
    return !lane->attached && lane->pair->num_attached == RS_LANES
               ? RS_REASON_LANES
               : RS_REASON_PEER;
}

void rs_message_close(struct rs_request *request)
{
    struct rs_message *message = request->message;

    rs_count_message(message);
    rs_pair_remove(message);
    if (message->native != MPI_REQUEST_NULL) /* Open MPI frees what has failed */
        PMPI_Request_free(&message->native);
    if (message->synced != MPI_REQUEST_NULL)
        PMPI_Request_free(&message->synced);
    rs_gpu_close(message);
    rs_flat_drop(message->layout);
    rsched_pull_source_destroy(message->source);
    rsched_pull_target_destroy(message->target);
    rs_lane_release(message->lane);
    free(message);
    request->message = NULL;
}
