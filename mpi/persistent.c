/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent point-to-point requests: their calls, and a message's way through
 * a lane or the native MPI. The rules' names are those of docs/persistent.md. */
#include "mpi/native.h"
#include "mpi/persistent.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
    PATIENCE_NS = 100000, /* N6 */
    POLLS_PER_LOOK = 64,  /* at the clock */
    READY_NS = 20000,     /* how long the other side's bit is waited for */
    MOST_DOUBLINGS = 6,   /* of that */
    MANY_TRIES = 16,
    LEAST_POLLS = 30,
};

RS_NATIVE(Send_init)
RS_NATIVE(Bsend_init)
RS_NATIVE(Ssend_init)
RS_NATIVE(Rsend_init)
RS_NATIVE(Recv_init)
RS_NATIVE(Issend)
RS_NATIVE(Cancel)
#if MPI_VERSION >= 4
RS_NATIVE(Send_init_c)
RS_NATIVE(Bsend_init_c)
RS_NATIVE(Ssend_init_c)
RS_NATIVE(Rsend_init_c)
RS_NATIVE(Recv_init_c)
#endif

/* ---- the requests of an incarnation, as they started ---- */

static inline void open_push(struct rs_pair *pair, struct rs_request *request)
{
    struct rs_message *message = request->message;

    message->next_open = NULL;
    message->previous_open = pair->last;
    if (pair->last != NULL)
        pair->last->message->next_open = request;
    else
        pair->first = request;
    pair->last = request;
    rs_num_open++;
}

static inline void open_pull(struct rs_pair *pair, struct rs_message *message)
{
    if (message->next_open != NULL)
        message->next_open->message->previous_open = message->previous_open;
    else
        pair->last = message->previous_open;
    if (message->previous_open != NULL)
        message->previous_open->message->next_open = message->next_open;
    else
        pair->first = message->next_open;
    rs_num_open--;
}

/* ---- bytes ---- */

static void copy_runs(const struct rs_message *message, char *packed, bool in)
{
    const struct rs_flat *flat = message->layout;

    for (size_t i = 0; i < flat->num_runs; i++) {
        const struct rsched_run *run = &flat->runs[i];
        char *at = (char *)((uintptr_t)message->buffer +
                            (uintptr_t)run->offset);

        for (uint64_t k = 0; k < run->count; k++) {
            memcpy(in ? packed : at, in ? at : packed, run->bytes);
            packed += run->bytes;
            at += run->stride;
        }
    }
}

static inline void pack(const struct rs_message *message, char *to)
{
    if (LIKELY(message->layout == NULL))
        memcpy(to, message->buffer, message->bytes);
    else
        copy_runs(message, to, true);
}

/* As many bytes of a layout as have come. */
static void unpack_part(const struct rs_message *message, const char *from,
                        uint64_t bytes)
{
    const struct rs_flat *flat = message->layout;

    for (size_t i = 0; i < flat->num_runs; i++) {
        const struct rsched_run *run = &flat->runs[i];
        char *at = (char *)((uintptr_t)message->buffer +
                            (uintptr_t)run->offset);

        for (uint64_t k = 0; k < run->count && bytes > 0; k++) {
            uint64_t n = run->bytes < bytes ? run->bytes : bytes;

            memcpy(at, from, n);
            from += n;
            bytes -= n;
            at += run->stride;
        }
    }
}

static inline void unpack(const struct rs_message *message, char *from,
                          uint64_t bytes)
{
    if (LIKELY(message->layout == NULL))
        memcpy(message->buffer, from, bytes);
    else if (bytes == message->bytes)
        copy_runs(message, from, false);
    else
        unpack_part(message, from, bytes);
}

/* ---- completion ---- */

static void __attribute__((noinline))
make_status(struct rs_message *message, uint64_t bytes)
{
    message->status = rs_process.empty;
    message->status.MPI_SOURCE = message->lane->pair->peer;
    message->status.MPI_TAG = message->lane->tag;
    PMPI_Status_set_elements_x(&message->status, MPI_BYTE, (MPI_Count)bytes);
    PMPI_Status_set_cancelled(&message->status, 0);
    message->status_bytes = bytes;
}

static inline void complete(struct rs_request *request, uint64_t bytes)
{
    struct rs_message *message = request->message;

    open_pull(message->lane->pair, message);
    request->state = RS_COMPLETE;
    if (UNLIKELY(message->status_bytes != bytes))
        make_status(message, bytes);
}

static inline void take_slot(struct rs_request *request, struct rs_slot *slot)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    uint64_t bytes = slot->bytes;

    request->error = MPI_SUCCESS;
    if (UNLIKELY(bytes > message->bytes)) {
        request->error = MPI_ERR_TRUNCATE;
        unpack(message, rs_slot_data(slot, bytes), message->bytes);
        bytes = message->bytes;
    } else {
        unpack(message, rs_slot_data(slot, bytes), bytes);
    }
    rs_lane_consume(&lane->pair->view, lane->index, message->number);
    complete(request, bytes);
}

void rs_message_finish(struct rs_request *request)
{
    struct rs_message *message = request->message;

    if (message->sends) {
        request->error = MPI_SUCCESS;
        complete(request, message->bytes);
    } else {
        take_slot(request, rs_lane_is_put(
            &message->lane->pair->slots[message->lane->index],
            message->number));
    }
}

/* ---- the native way ---- */

static void start_native(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;

    message->natives++;
    request->state = RS_NATIVE;
    request->error = PMPI_Start(&message->native);
    if (request->error != MPI_SUCCESS) {
        message->raised = true;
        request->state = RS_COMPLETE;
        return;
    }
    lane->started = true;
    if (message->sends) {
        lane->quiet = false;
        message->native_number = ++lane->natives;
    } else {
        lane->posted++;
    }
}

void rs_message_go_native(struct rs_request *request)
{
    request->message->puts--;
    open_pull(request->message->lane->pair, request->message);
    start_native(request);
}

static void native_is_over(struct rs_request *request, int error)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;

    request->error = error;
    message->raised = error != MPI_SUCCESS;
    message->status_bytes = UINT64_MAX;
    request->state = RS_COMPLETE;
    if (!message->sends) {
        lane->posted--;
        rs_incarnation_open(lane->pair);
    } else if (message->synchronous &&
               message->native_number == lane->natives) {
        lane->quiet = true; /* O1 */
    }
}

/* A native send that tells when all messages of the lane have been matched.
 * From a copy: the request is complete at once. */
static bool send_sync(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    const struct rs_pair *pair = lane->pair;

    if (!lane->attached || message->synchronous ||
        message->reason != RS_ACCELERATED || pair->skip > 0 ||
        lane->sync != MPI_REQUEST_NULL || pair->name->comm == MPI_COMM_NULL ||
        message->bytes > pair->slots[lane->index].room)
        return false;
    lane->copy = malloc(message->bytes + 1);
    if (lane->copy == NULL)
        return false;
    pack(message, lane->copy);
    request->error = native_Issend(lane->copy, (int)message->bytes, MPI_BYTE,
                                   pair->peer, lane->tag, pair->name->comm,
                                   &lane->sync);
    message->raised = request->error != MPI_SUCCESS;
    message->natives++;
    lane->started = true;
    lane->quiet = false;
    lane->sync_number = ++lane->natives;
    request->state = RS_COMPLETE;
    if (message->status_bytes != message->bytes)
        make_status(message, message->bytes);
    return true;
}

/* ---- starting ---- */

static inline bool has_joined(const struct rs_lane *lane)
{
    return lane->attached && lane->pair->view.joined >> lane->index & 1;
}

/* S1 */
static inline bool put(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    struct rs_pair *pair = lane->pair;
    struct rs_slots *slots;
    struct rs_slot *slot;

    if (UNLIKELY(!has_joined(lane)))
        return false;
    slots = &pair->slots[lane->index];
    if (UNLIKELY(message->bytes > slots->room))
        return false;
    slot = rs_lane_next(&pair->view, slots, lane->index);
    if (UNLIKELY(slot == NULL))
        return false;
    pack(message, rs_slot_data(slot, message->bytes));
    message->number = rs_lane_put(slots, slot, message->bytes);
    message->puts++;
    message->vain = 0;
    pair->puts++;
    request->state = RS_PUT;
    rs_unfenced = true;
    open_push(pair, request);
    return true;
}

/* R1 */
static inline bool grant(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    struct rs_pair *pair = lane->pair;

    if (UNLIKELY(!has_joined(lane)))
        return false;
    message->number =
        rs_lane_grant(&pair->view, &pair->slots[lane->index], lane->index);
    message->puts++;
    request->state = RS_GRANTED;
    rs_unfenced = true;
    open_push(pair, request);
    return true;
}

/* The other side will most likely be ready in a moment; how long that is, is
 * tried out. Where it is not, attempts become rare. */
static void try_to_open(struct rs_pair *pair)
{
    unsigned tries = pair->tries, polls = 0;
    uint64_t start, limit = READY_NS << (tries < MOST_DOUBLINGS
                                             ? tries
                                             : MOST_DOUBLINGS);

    if (pair->skip > 0) {
        pair->skip--;
        return;
    }
    rs_incarnations_prepare();
    if (pair->view.open != 0 || !rs_pair_is_ready(&pair->view))
        return;
    if (pair->rest > 0) {
        pair->rest--;
        return;
    }
    pair->tries++;
    if (pair->tries > MANY_TRIES)
        pair->rest = pair->tries;
    start = rs_now_ns();
    do {
        sched_yield();
        rs_incarnations_prepare();
    } while (pair->view.open == 0 &&
             (++polls < LEAST_POLLS || rs_now_ns() - start < limit));
}

static int __attribute__((noinline)) start_slowly(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    struct rs_pair *pair = lane->pair;

    rs_notes_poll();
    if (message->sends && !lane->offered &&
        message->reason == RS_ACCELERATED)
        rs_note_offer(lane, message->bytes);
    rs_incarnations_look();
    if (pair->view.open == 0 && lane->attached && !lane->barred)
        try_to_open(pair);
    if (pair->view.open == 0)
        rs_incarnation_unready(pair); /* O3 */
    if (pair->view.open != 0) {
        if (message->reason == RS_ACCELERATED &&
            (message->sends ? put(request) : grant(request)))
            return MPI_SUCCESS;
        if (has_joined(lane))
            rs_incarnation_close(pair); /* N1, N2 */
        else if (message->sends)
            rs_incarnation_settle(pair); /* N1 */
    }
    if (!message->sends || !send_sync(request))
        start_native(request);
    return request->state == RS_COMPLETE && message->raised ? request->error
                                                            : MPI_SUCCESS;
}

int rs_message_start(struct rs_request *request)
{
    struct rs_message *message = request->message;

    if (UNLIKELY(request->state != RS_INACTIVE))
        return rs_name_raise(message->lane->pair->name, MPI_ERR_REQUEST);
    if (LIKELY(message->reason == RS_ACCELERATED) &&
        LIKELY(message->sends ? put(request) : grant(request)))
        return MPI_SUCCESS;
    return start_slowly(request);
}

/* ---- going on ---- */

/* N6 */
static void lose_patience(struct rs_request *request)
{
    struct rs_message *message = request->message;

    if (++message->vain % POLLS_PER_LOOK != 0)
        return;
    if (message->vain == POLLS_PER_LOOK)
        message->since = rs_now_ns();
    else if (rs_now_ns() - message->since > PATIENCE_NS)
        rs_incarnation_stop(message->lane->pair);
}

static bool poll_native(struct rs_request *request)
{
    struct rs_message *message = request->message;
    int done = 0, error;

    if (request->state != RS_NATIVE)
        return true;
    rs_incarnations_look();
    error = PMPI_Test(&message->native, &done, &message->status);
    if (!done && error == MPI_SUCCESS)
        return false;
    native_is_over(request, error);
    return true;
}

static bool __attribute__((noinline)) poll_stopped(struct rs_request *request)
{
    rs_incarnation_stop(request->message->lane->pair);
    return poll_native(request);
}

bool rs_message_poll(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;
    struct rs_pair *pair = lane->pair;
    struct rs_slot *slot;

    if (UNLIKELY(request->state != RS_PUT && request->state != RS_GRANTED))
        return poll_native(request);
    if (rs_unfenced) {
        rs_lane_fence();
        rs_unfenced = false;
    }
    if (UNLIKELY(!rs_pair_is_open(&pair->view)))
        return poll_stopped(request);
    if (message->sends) { /* S2 */
        if (rs_lane_is_granted(&pair->view, lane->index, message->number)) {
            request->error = MPI_SUCCESS;
            complete(request, message->bytes);
            return true;
        }
        lose_patience(request);
        return request->state == RS_COMPLETE;
    }
    slot = rs_lane_is_put(&pair->slots[lane->index], message->number); /* R2 */
    if (slot == NULL)
        return false;
    take_slot(request, slot);
    return true;
}

void rs_message_wait(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rsched_pause pause = {0};

    while (!rs_message_poll(request)) {
        if (request->state == RS_NATIVE && rs_num_open == 0) {
            native_is_over(request, PMPI_Wait(&message->native,
                                              &message->status));
            return;
        }
        rsched_context_pause(rs_context(), &pause);
    }
}

int rs_message_raise(struct rs_request *request, int error)
{
    struct rs_message *message = request->message;

    if (message->raised) {
        message->raised = false;
        return error;
    }
    return rs_name_raise(message->lane->pair->name, error);
}

/* ---- the end ---- */

/* Not in an incarnation any more: complete, or native (N5). */
static void leave_incarnation(struct rs_request *request)
{
    if (!rs_message_poll(request) && request->state != RS_NATIVE)
        rs_incarnation_stop(request->message->lane->pair);
}

int rs_message_cancel(struct rs_request *request)
{
    if (request->state == RS_INACTIVE)
        return rs_name_raise(request->message->lane->pair->name,
                             MPI_ERR_REQUEST);
    leave_incarnation(request);
    return request->state == RS_NATIVE
               ? native_Cancel(&request->message->native)
               : MPI_SUCCESS;
}

void rs_message_abandon(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_lane *lane = message->lane;

    if (request->state == RS_INACTIVE)
        return;
    leave_incarnation(request);
    if (request->state == RS_NATIVE && !message->sends) {
        /* Nobody will know when it is complete (N3). */
        lane->posted--;
        lane->barred = true;
        if (lane->attached)
            rs_pair_bar(&lane->pair->view, lane->index);
    }
    request->state = RS_INACTIVE;
}

enum rs_reason rs_message_reason(const struct rs_message *message)
{
    const struct rs_lane *lane = message->lane;

    if (message->puts > 0 || message->reason != RS_ACCELERATED)
        return message->puts > 0 ? RS_ACCELERATED : message->reason;
    if (lane->barred ||
        (lane->attached &&
         atomic_load(&lane->pair->view.words->barred) >> lane->index & 1))
        return RS_REASON_COVERED;
    return RS_REASON_PEER;
}

void rs_message_close(struct rs_request *request)
{
    struct rs_message *message = request->message;

    rs_count_message(message);
    PMPI_Request_free(&message->native);
    rs_flat_drop(message->layout);
    rs_lane_release(message->lane);
    free(message);
    request->message = NULL;
}

/* ---- making ---- */

static enum rs_reason find_lane(MPI_Comm comm, int peer, int tag, bool sends,
                                struct rs_lane **lane)
{
    enum rs_reason reason = rs_process.reason;
    struct rs_name *name;
    int size;

    if (reason != RS_ACCELERATED)
        return reason;
    if (rs_process.requests != RS_ACCELERATED)
        return rs_process.requests;
    if (!rs_process.persistent)
        return RS_REASON_OFF;
    if (rs_process.threads)
        return RS_REASON_THREADS;
    if (peer == MPI_ANY_SOURCE || tag == MPI_ANY_TAG)
        return RS_REASON_WILDCARD;
    if (peer == MPI_PROC_NULL)
        return RS_REASON_NO_PEER;
    if (comm == MPI_COMM_NULL)
        return RS_REASON_ARGUMENT;
    name = rs_name_find(comm);
    if (name == NULL)
        return RS_REASON_UNNAMED;
    PMPI_Comm_size(comm, &size);
    if (peer < 0 || peer >= size || tag < 0)
        return RS_REASON_ARGUMENT;
    *lane = rs_lane_get(name, sends, peer, tag, &reason);
    return reason;
}

static enum rs_reason lay_out(struct rs_message *message, const void *buffer,
                              MPI_Count count, MPI_Datatype type)
{
    struct rs_flat *one, *all;
    enum rs_reason reason = RS_ACCELERATED;

    if (count < 0 || type == MPI_DATATYPE_NULL)
        return RS_REASON_ARGUMENT;
    one = rs_flat_get(type);
    all = one != NULL ? rs_flat_repeat(one, (uint64_t)count) : NULL;
    rs_flat_drop(one);
    if (all == NULL)
        return RS_REASON_MEMORY;
    message->buffer = (void *)(uintptr_t)buffer;
    message->bytes = all->size;
    if (all->opaque) {
        reason = RS_REASON_LAYOUT;
    } else if (all->num_runs == 0 ||
               (all->num_runs == 1 && all->runs[0].count == 1)) {
        if (all->num_runs == 1)
            message->buffer = (void *)((uintptr_t)buffer +
                                       (uintptr_t)all->runs[0].offset);
    } else {
        message->layout = all;
        return reason;
    }
    rs_flat_drop(all);
    return reason;
}

struct arguments {
    const void *buffer;
    MPI_Count count;
    MPI_Datatype type;
    int peer, tag;
    MPI_Comm comm;
};

/* What the request becomes; NULL: it is none of ours, for *reason. One that
 * has a lane but may never use it is ours too, because each of its starts
 * concerns the lane (N1, N2). */
static struct rs_message *message_create(enum rs_call call,
                                         const struct arguments *a,
                                         enum rs_reason *reason)
{
    bool sends = call != RS_CALL_RECV_INIT;
    struct rs_message *message = NULL;
    struct rs_lane *lane = NULL;

    *reason = find_lane(a->comm, a->peer, a->tag, sends, &lane);
    if (*reason != RS_ACCELERATED)
        return NULL;
    message = calloc(1, sizeof(*message));
    *reason = message == NULL
                  ? RS_REASON_MEMORY
                  : lay_out(message, a->buffer, a->count, a->type);
    if (*reason != RS_ACCELERATED && *reason != RS_REASON_LAYOUT) {
        free(message);
        return NULL;
    }
    message->lane = lane;
    message->call = call;
    message->sends = sends;
    message->synchronous = call == RS_CALL_SSEND_INIT;
    message->status_bytes = UINT64_MAX;
    message->native = MPI_REQUEST_NULL;
    if (call == RS_CALL_BSEND_INIT)
        message->reason = RS_REASON_BUFFERED;
    else if (*reason == RS_REASON_LAYOUT)
        message->reason = RS_REASON_LAYOUT;
    else if (sends && message->bytes > rs_lane_most())
        message->reason = RS_REASON_SIZE;
    return message;
}

/* The request has been made natively: give the program ours instead. */
static int give(struct rs_message *message, int error, MPI_Request *handle)
{
    struct rs_request *request =
        error == MPI_SUCCESS ? rs_request_create() : NULL;

    if (request == NULL) {
        if (error == MPI_SUCCESS) {
            rs_log(RS_LOG_ERROR, "out of memory");
            PMPI_Request_free(&message->native);
            error = rs_name_raise(message->lane->pair->name, MPI_ERR_NO_MEM);
        }
        rs_flat_drop(message->layout);
        free(message);
        return error;
    }
    rs_lane_hold(message->lane);
    rs_request_open_message(request, message);
    *handle = request->handle;
    return MPI_SUCCESS;
}

/* The call is the native MPI's alone. A receive may be posted by it from now
 * on at any time (N3). */
static void pass_on(enum rs_call call, enum rs_reason reason,
                    const struct arguments *a)
{
    rs_count_native(call, reason);
    if (reason == RS_REASON_WILDCARD)
        rs_before_receive(a->comm, a->peer, a->tag, true);
}

/* Ready sends become standard ones natively: a receive that was granted is not
 * posted there yet when an incarnation ends. */
#define RS_INIT_FUNCTION(Name, suffix, ID, Const, Native)                    \
    int PMPI_##Name##_init##suffix(Const void *buf, RS_COUNT count,          \
                                   MPI_Datatype type, int peer, int tag,     \
                                   MPI_Comm comm, MPI_Request *request)      \
    {                                                                        \
        const struct arguments a = {buf, count, type, peer, tag, comm};      \
        enum rs_reason reason;                                               \
        struct rs_message *message =                                         \
            message_create(RS_CALL_##ID##_INIT, &a, &reason);                \
                                                                             \
        if (message != NULL)                                                 \
            return give(message,                                             \
                        native_##Native##_init##suffix(buf, count, type,     \
                                                       peer, tag, comm,      \
                                                       &message->native),    \
                        request);                                            \
        pass_on(RS_CALL_##ID##_INIT, reason, &a);                            \
        return native_##Name##_init##suffix(buf, count, type, peer, tag,     \
                                            comm, request);                  \
    }                                                                        \
    int MPI_##Name##_init##suffix(Const void *, RS_COUNT, MPI_Datatype, int, \
                                  int, MPI_Comm, MPI_Request *)              \
        __attribute__((alias("PMPI_" #Name "_init" #suffix)));

#define RS_INIT_FUNCTIONS(suffix)                                            \
    RS_INIT_FUNCTION(Send, suffix, SEND, const, Send)                        \
    RS_INIT_FUNCTION(Bsend, suffix, BSEND, const, Bsend)                     \
    RS_INIT_FUNCTION(Ssend, suffix, SSEND, const, Ssend)                     \
    RS_INIT_FUNCTION(Rsend, suffix, RSEND, const, Send)                      \
    RS_INIT_FUNCTION(Recv, suffix, RECV, , Recv)

#define RS_COUNT int
RS_INIT_FUNCTIONS()
#if MPI_VERSION >= 4
#undef RS_COUNT
#define RS_COUNT MPI_Count
RS_INIT_FUNCTIONS(_c)
#endif
