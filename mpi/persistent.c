/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that make persistent point-to-point requests. The rules' names are
 * those of docs/persistent.md. */
#include "mpi/native.h"
#include "mpi/message.h"

#include <stdlib.h>

RS_NATIVE(Send_init)
RS_NATIVE(Bsend_init)
RS_NATIVE(Ssend_init)
RS_NATIVE(Rsend_init)
RS_NATIVE(Recv_init)
#if MPI_VERSION >= 4
RS_NATIVE(Send_init_c)
RS_NATIVE(Bsend_init_c)
RS_NATIVE(Ssend_init_c)
RS_NATIVE(Rsend_init_c)
RS_NATIVE(Recv_init_c)
#endif

/* The lane, which is held for the request. */
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
        return rs_process.off;
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
    *lane = rs_lane_hold(name, sends, peer, tag, &reason);
    /* Whoever waits for a message does so by it. */
    if (*lane == NULL || rs_context() != NULL)
        return reason;
    rs_lane_release(*lane);
    return RS_REASON_CONTEXT;
}

/* Most are one block of the host's memory: no layout is made for them. */
static bool lay_out_block(struct rs_message *message, const void *buffer,
                          uint64_t count, const struct rs_flat *one)
{
    struct rs_flat all = {.num_runs = 1, .runs = &all.one};

    if (!rs_flat_is_block(one, count, &all.one))
        return false;
    all.size = all.one.bytes;
    message->gpu = rs_gpu_of(buffer, &all);
    if (message->gpu >= 0)
        return false;
    message->buffer = (void *)((uintptr_t)buffer + (uintptr_t)all.one.offset);
    message->bytes = all.size;
    return true;
}

static enum rs_reason lay_out(struct rs_message *message, const void *buffer,
                              MPI_Count count, MPI_Datatype type)
{
    struct rs_flat *one, *all;
    enum rs_reason reason = RS_ACCELERATED;

    if (count < 0)
        return RS_REASON_ARGUMENT;
    if (type == MPI_DATATYPE_NULL) /* natively taken, of nothing */
        return RS_ACCELERATED;
    one = rs_flat_get(type);
    if (one != NULL && lay_out_block(message, buffer, (uint64_t)count, one)) {
        rs_flat_drop(one);
        return RS_ACCELERATED;
    }
    all = one != NULL ? rs_flat_repeat(one, (uint64_t)count) : NULL;
    rs_flat_drop(one);
    if (all == NULL)
        return RS_REASON_MEMORY;
    message->buffer = (void *)(uintptr_t)buffer;
    message->bytes = all->size;
    message->gpu = all->opaque ? RS_GPU_NONE : rs_gpu_of(buffer, all);
    if (all->opaque) {
        reason = RS_REASON_LAYOUT;
    } else if (message->gpu >= 0) {
        message->layout = all;
        return RS_ACCELERATED;
    } else if (all->num_runs == 0 ||
               (all->num_runs == 1 && all->runs[0].count == 1)) {
        if (all->num_runs == 1)
            message->buffer = (void *)((uintptr_t)buffer +
                                       (uintptr_t)all->runs[0].offset);
    } else {
        message->layout = all;
        return RS_ACCELERATED;
    }
    rs_flat_drop(all);
    return reason;
}

/* Whether it lies in memory that is neither the host's nor taken of a GPU. */
static bool is_of_no_lane(struct rs_message *message)
{
    return message->gpu == RS_GPU_OTHER ||
           (message->gpu >= 0 && !message->sends &&
            !rs_gpu_may_receive(message));
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
    struct rs_message *message;
    struct rs_lane *lane = NULL;

    *reason = find_lane(a->comm, a->peer, a->tag, sends, &lane);
    if (*reason != RS_ACCELERATED)
        return NULL;
    message = malloc(sizeof(*message)); /* calloc() is not as fast in every C library */
    if (message == NULL) {
        rs_lane_release(lane);
        *reason = RS_REASON_MEMORY;
        return NULL;
    }
    *message = (struct rs_message){.sends = sends, .gpu = RS_GPU_NONE};
    *reason = lay_out(message, a->buffer, a->count, a->type);
    if (*reason == RS_REASON_ARGUMENT) {
        rs_flat_drop(message->layout);
        free(message);
        rs_lane_release(lane);
        return NULL;
    }
    message->lane = lane;
    message->call = call;
    message->synchronous = call == RS_CALL_SSEND_INIT;
    message->got = message->status_bytes = RS_STATUS_NATIVE;
    message->native = message->synced = MPI_REQUEST_NULL;
    if (call == RS_CALL_BSEND_INIT)
        message->reason = RS_REASON_BUFFERED;
    else if (*reason != RS_ACCELERATED)
        message->reason = *reason; /* its layout is not known */
    else if (is_of_no_lane(message))
        message->reason = RS_REASON_GPU;
    message->need = message->reason != RS_ACCELERATED ? UINT64_MAX
                    : !sends                          ? 0
                    : message->gpu >= 0               ? RS_NEED_GPU
                                                      : message->bytes;
    return message;
}

/* Whether its lane may need a synchronous send of it that is none of a copy. */
static bool is_long(const struct rs_message *message)
{
    return message->sends && !message->synchronous &&
           message->need != UINT64_MAX && message->bytes > RS_LANE_SHORT_BYTES;
}

static void join_pair(struct rs_message *message, struct rs_request *request)
{
    message->request = request;
    rs_pair_add(message);
}

/* The request has been made natively: give the program ours instead. */
static int give(struct rs_message *message, int error, MPI_Request *handle)
{
    struct rs_request *request =
        error == MPI_SUCCESS ? rs_request_create() : NULL;

    if (request == NULL) {
        if (message->native != MPI_REQUEST_NULL)
            PMPI_Request_free(&message->native);
        if (message->synced != MPI_REQUEST_NULL)
            PMPI_Request_free(&message->synced);
        if (error == MPI_SUCCESS) {
            rs_log(RS_LOG_ERROR, "out of memory");
            error = rs_name_raise(message->lane->pair->name, MPI_ERR_NO_MEM);
        }
        rs_flat_drop(message->layout);
        rs_lane_release(message->lane);
        free(message);
        return error;
    }
    if (!message->sends && !message->lane->attached)
        rs_note_answer(message->lane);
    join_pair(message, request);
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
        rs_before_receive(a->comm, a->peer, a->tag, RS_COMES);
}

/* The native request comes first: what it was made of is right then, and may be
 * looked at. Ready sends become standard ones natively: a receive that was granted is
 * not posted there yet when an incarnation ends. */
#define RS_INIT_FUNCTION(Name, suffix, ID, Const, Native)                    \
    int PMPI_##Name##_init##suffix(Const void *buf, RS_COUNT count,          \
                                   MPI_Datatype type, int peer, int tag,     \
                                   MPI_Comm comm, MPI_Request *request)      \
    {                                                                        \
        const struct arguments a = {buf, count, type, peer, tag, comm};      \
        enum rs_reason reason = RS_REASON_ARGUMENT;                          \
        struct rs_message *message = NULL;                                   \
        MPI_Request made = MPI_REQUEST_NULL;                                 \
        int error = native_##Name##_init##suffix(buf, count, type, peer,     \
                                                 tag, comm, &made);          \
                                                                             \
        if (error == MPI_SUCCESS)                                            \
            message = message_create(RS_CALL_##ID##_INIT, &a, &reason);      \
        if (message == NULL) {                                               \
            pass_on(RS_CALL_##ID##_INIT, reason, &a);                        \
            if (error == MPI_SUCCESS)                                        \
                *request = made;                                             \
            return error;                                                    \
        }                                                                    \
        if (message->call == RS_CALL_RSEND_INIT) {                           \
            PMPI_Request_free(&made);                                        \
            error = native_##Native##_init##suffix(buf, count, type, peer,   \
                                                   tag, comm, &made);        \
        }                                                                    \
        message->native = made;                                              \
        if (error == MPI_SUCCESS && is_long(message))                        \
            error = native_Ssend_init##suffix(buf, count, type, peer, tag,   \
                                              comm, &message->synced);       \
        return give(message, error, request);                                \
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
