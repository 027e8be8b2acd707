/* SPDX-License-Identifier: BSD-3-Clause */
/* MESSAGE: the part of a request that is persistent point-to-point, and its
 * way through a lane as far as the calls that start and complete requests have
 * it inline. The rules' names are those of docs/persistent.md.
 *
 * States of such a request: RS_INACTIVE -> RS_PUT or RS_GRANTED (open: it is
 * not known to be matched) -> RS_COMPLETE, or RS_NATIVE -> RS_COMPLETE. A send
 * that the receiver pulls is RS_MATCHED in between, and so is a receive of which a
 * copy is under way. */
#ifndef RS_MPI_MESSAGE_H
#define RS_MPI_MESSAGE_H

#include "mpi/persistent.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* What each message runs through, whatever the compiler thinks of its size. */
#define RS_INLINE static inline __attribute__((always_inline))

/* Of receives that are RS_MATCHED. */
enum rs_copying {
    RS_COPYING_NOT,
    RS_COPY_WAITS,   /* for its turn, after a stop */
    RS_COPY_PULLS,   /* out of the sender's GPU memory */
    RS_COPY_SPREADS, /* into GPU memory; it has been consumed */
};

struct rs_message {
    /* What each start and completion touches. */
    struct rs_lane *lane;
    struct rs_slots *slots; /* the lane's, which has some once it is attached */
    void *buffer;   /* first byte, if the layout is contiguous */
    uint64_t bytes;
    uint64_t need;  /* send: `bytes`, receive: 0; UINT64_MAX: always native;
                       RS_NEED_GPU: a send out of GPU memory */
    uint64_t number; /* of the put or grant */
    struct rs_flat *layout; /* NULL: contiguous, and in host memory */
    uint64_t got;    /* bytes of the last one; RS_STATUS_NATIVE */
    uint64_t order;  /* of the start, among those of the pair */
    uint64_t puts;   /* starts through the lane */
    bool sends, synchronous;
    bool announced; /* send: the last put; its bytes are not in the slot */
    bool is_synced; /* `synced` has been started in the place of `native` (O1) */
    bool is_copied; /* or the lane's, from a copy */
    bool raised;    /* the native MPI calls the error handler itself */
    int gpu;                /* in whose memory it lies; RS_GPU_NONE */
    MPI_Request native;     /* the same request, natively */
    uint64_t natives;       /* native starts */
    uint64_t native_number; /* of the last native start: a send's among the lane's, a
                               receive's among the pair's */
    uint64_t covers; /* receive: the lane's, at the last native start */
    uint64_t mark;   /* of the last array of native messages that it was in */

    uint64_t pulls;  /* receives that were pulled */
    uint64_t mapped; /* of them, all out of mapped memory */
    uint64_t packed; /* sends that were packed to be pulled */
    uint64_t nontemporal; /* receives that were copied past the caches, sends that
                             were written so */
    uint64_t prefetched; /* receives with more lines under way at a time */
    uint64_t step; /* receive: number of the last one in which it was pulled */
    uint64_t timed;  /* send: number of one that is timed, or 0 */
    uint64_t took;   /* ns that its packing took */
    uint64_t opened; /* receives pulled out of GPU memory */
    struct rsched_pull_source *source; /* send: NULL: none yet */
    struct rsched_pull_target *target; /* receive: likewise */
    struct rsched_gpu_source *gpu_source; /* the same of GPU memory */
    struct rsched_gpu_target *gpu_target;
    enum rs_copying copying;
    int copied; /* RS_COPY_SPREADS: the error that it will have */
    struct rs_message *next_copying;
    enum rs_call call;
    enum rs_reason reason; /* RS_ACCELERATED, or why it never can be any more */
    uint64_t waited; /* number of the put that is waited for */
    unsigned vain;   /* polls of it, or of the copy */
    uint64_t since;  /* the first look at the clock, ns */
    uint64_t excused; /* receive: its starts when it last excused a sender's wait */
    unsigned excuses; /* times since then */
    bool in_doubt; /* send: it may be over while its state says that it is under way, since the
                      program has freed it, or its native start has failed */
    MPI_Request synced; /* a long send, synchronous; or null */
    MPI_Status status;
    uint64_t status_bytes; /* that `status` is for */
    struct rs_request *request;
    struct rs_message *next, *previous; /* of the pair */
    struct rs_message *next_open; /* in a list that somebody makes */
};

/* More than any slot has room for, and less than what no lane carries. */
#define RS_NEED_GPU (UINT64_MAX - 1)

/* N6: how long a send is waited for that natively would be buffered, at first. */
#define RS_PATIENCE_NS UINT64_C(100000)

/* `status` is what the native MPI has said. */
#define RS_STATUS_NATIVE UINT64_MAX

/** Start what the inline part cannot. */
int rs_message_start_slowly(struct rs_request *request);
/** Whether what the inline part did not find complete is. */
bool rs_message_poll_slowly(struct rs_request *request);
/** Take a message that is announced, timed, longer than the receive, out of turn,
 * or not contiguous here. True: the receive is complete. */
bool rs_message_take_slowly(struct rs_message *message, struct rs_slot *slot);
void rs_message_wait(struct rs_request *request);

/** How long somebody has waited for some of an array; zero at first. */
struct rs_rest {
    struct rsched_pause pause;
    bool for_exchanges; /* and for nothing else */
    uint64_t since;     /* the first time that he was to sleep, ps */
};

/** One step of waiting for any of an array, with native requests or without,
 * of which none is complete (rest.c). */
void rs_rest(struct rs_rest *rest, int count, const MPI_Request *handles);

/** Whether somebody has been in rs_rest() since this was set to false; only for pairs, which no
 * threads share. */
extern bool rs_has_rested __attribute__((visibility("hidden")));

static inline void rs_set_rested(bool rested)
{
    if (rs_num_pairs > 0)
        rs_has_rested = rested;
}

/** Whether a sender that has polled a message so often in vain looks at the clock: after twice
 * as many polls each time at first, since the program may compute between them. Not at the first
 * one: many a message is not matched then that is at the second. */
static inline bool rs_is_time_to_look(unsigned vain)
{
    enum { POLLS_PER_LOOK = 64 }; /* at most */

    return vain > 1 && ((vain & (vain - 1)) == 0 || vain % POLLS_PER_LOOK == 0);
}

int rs_message_raise(struct rs_request *request, int error);
int rs_message_cancel(struct rs_request *request);
/** The program has freed it. */
void rs_message_abandon(struct rs_request *request);
void rs_message_close(struct rs_request *request);
/** For the end of an incarnation: complete it, or start it natively. */
void rs_message_finish(struct rs_message *message);
void rs_message_go_native(struct rs_message *message);

/** The native way (native_message.c): start it; a send is synchronous where that
 * shows that the lane is quiet (O1). After an error, which has been raised, it is
 * inactive. */
int rs_message_start_natively(struct rs_request *request);
/** The same of one that rs_message_rests() and is not synchronous, but for the native call: what
 * is returned is to be started next, with others. */
MPI_Request rs_message_start_in_array(struct rs_request *request);
/** That call has failed, and may not have started it. The native MPI may say that it is complete,
 * as of any inactive request, but that tells nothing of its lane. */
void rs_message_is_in_doubt(struct rs_message *message);
bool rs_message_poll_native(struct rs_request *request);
/** It is over, with this error and this status. */
void rs_message_native_is_over(struct rs_request *request, int error,
                               const MPI_Status *status);
/** Only while nothing is open and nothing queues: nobody looks meanwhile. */
void rs_message_wait_native(struct rs_request *request);
/** Why it has been native so far. */
enum rs_reason rs_message_reason(const struct rs_message *message);
/** The status of the last epoch. */
const MPI_Status *rs_message_status(struct rs_message *message);
/** The runs of a layout, at their addresses (layout.c). */
void rs_message_pieces(const struct rs_message *message,
                       struct rsched_piece *pieces);
/** All bytes of a message, in the order of its type map. */
void rs_message_pack(const struct rs_message *message, char *to);
/** The first `bytes` of them, at most as many as it has. */
void rs_message_unpack(const struct rs_message *message, const char *from,
                       uint64_t bytes);

/** Messages that are not short (announced.c). Send: write the bytes into the
 * slot, or where they are. False: neither is possible. */
bool rs_message_write(struct rs_message *message, struct rs_slot *slot);
/** Send: how often it was tried out which way is faster, and after how many of
 * these another one was taken. */
void rs_message_trials(const struct rs_message *message, uint64_t *trials,
                       uint64_t *changes);
/** Send: it does not fit into its slots. Ask for longer ones if the message should rather
 * go through them (G1); it is native from now on if there is no way at all. */
void rs_message_want(struct rs_message *message);
/** Receive: take what is announced in the slot, and more of the pair. */
void rs_message_pull(struct rs_message *message, struct rs_slot *slot);
/** Send: the message lies in GPU memory; say where, in the slot. False: it cannot
 * go that way (gpu_message.c). */
bool rs_gpu_announce(struct rs_message *message, struct rs_slot *slot);
/** Send: see to it that the receiver is asked whether it opens that memory. */
void rs_gpu_ask(struct rs_message *message);
/** Send: bring the bytes to host memory, and wait for that. */
bool rs_gpu_pack(const struct rs_message *message, char *to);
/** Receive: whether a message of any kind can come to where it lies, a GPU's
 * memory; looked at when the request is made. */
bool rs_gpu_may_receive(struct rs_message *message);
/** Receive into GPU memory: where its bytes are to be written for that to bring
 * them there. NULL: there is no memory. */
char *rs_gpu_memory(struct rs_message *message);
/** Receive: it is matched, and what comes before it on the lane has to be
 * consumed first. */
void rs_gpu_await(struct rs_message *message);
/** Receive: begin to copy what is announced in the slot. It is complete if that
 * fails. */
void rs_gpu_pull(struct rs_message *message, struct rs_slot *slot);
/** Receive: begin to copy `bytes` from rs_gpu_memory(). False: it fails. */
bool rs_gpu_spread(struct rs_message *message, uint64_t bytes, int error);
/** Receive: go on with a copy. True: it is over. */
bool rs_gpu_poll(struct rs_message *message);
/** The request goes. */
void rs_gpu_close(struct rs_message *message);

/** It is over. */
void rs_message_complete(struct rs_message *message, uint64_t bytes, int error);
/** Receive: it has been taken out of the slot, or out of the sender's memory, which
 * took so many ns, if it is timed. */
void rs_message_taken(struct rs_message *message, struct rs_slot *slot,
                      uint64_t ns, bool failed);

/** From now on it is native. */
static inline void rs_message_never(struct rs_message *message, enum rs_reason reason)
{
    message->need = UINT64_MAX;
    message->reason = reason;
}

/** Whether its start can only be native (rs_incarnation_rests()). */
static inline bool rs_message_rests(const struct rs_message *message)
{
    return message->need < RS_NEED_GPU && message->gpu < 0 &&
           rs_incarnation_rests(message->lane);
}

/** The native request that has been started last, if none from a copy was. */
static inline MPI_Request *rs_message_native(struct rs_message *message)
{
    return message->is_synced ? &message->synced : &message->native;
}

static inline bool rs_message_is_open(const struct rs_message *message)
{
    return message->request->state == RS_PUT ||
           message->request->state == RS_GRANTED;
}

/* ---- starting ---- */

/* Stores to slots wait for the lines that other cores have, and all stores behind
 * them do. So what most often is as it shall be already is looked at, not written. */

static inline void rs_message_opened(struct rs_message *message,
                                     struct rs_pair *pair)
{
    message->order = ++pair->starts;
    message->puts++;
    rs_num_open++;
    if (!rs_unfenced)
        rs_unfenced = true;
}

/* Short ones are most, and a call costs more than they do. */
RS_INLINE void rs_copy(char *to, const char *from, uint64_t bytes)
{
    uint64_t first, last;

    if (LIKELY(bytes == 8)) {
        memcpy(to, from, 8);
    } else if (LIKELY(bytes - 8 <= 8)) {
        memcpy(&first, from, 8);
        memcpy(&last, from + bytes - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + bytes - 8, &last, 8);
    } else {
        memcpy(to, from, bytes);
    }
}

/* S1 */
RS_INLINE bool rs_message_put(struct rs_request *request,
                              struct rs_message *message)
{
    struct rs_lane *lane = message->lane;
    struct rs_slots *slots = message->slots;
    uint64_t bytes = message->bytes;
    struct rs_slot *slot;

    if (UNLIKELY(message->need >= lane->limit))
        return false;
    slot = rs_lane_next(slots);
    if (UNLIKELY(slot == NULL))
        return false;
    if (UNLIKELY(message->announced))
        message->announced = false;
    if (UNLIKELY(message->need > slots->short_room)) {
        if (!rs_message_write(message, slot))
            return false;
        bytes |= (message->announced ? RS_SLOT_ANNOUNCES : 0) |
                 (message->gpu >= 0 ? RS_SLOT_ON_GPU : 0) |
                 (message->timed == slots->number + 1 ? RS_SLOT_TIMED : 0);
    } else if (LIKELY(message->layout == NULL)) {
        rs_copy(slot->data, message->buffer, bytes);
    } else {
        rs_message_pack(message, slot->data);
    }
    message->number = rs_lane_put(slots, slot, bytes);
    request->state = RS_PUT;
    rs_message_opened(message, lane->pair);
    return true;
}

/* R1 */
RS_INLINE bool rs_message_grant(struct rs_request *request,
                                struct rs_message *message)
{
    struct rs_lane *lane = message->lane;

    if (UNLIKELY(message->need >= lane->limit))
        return false;
    message->number = rs_lane_grant(message->slots);
    request->state = RS_GRANTED;
    rs_message_opened(message, lane->pair);
    return true;
}

/* False: the inline part cannot. */
RS_INLINE bool rs_message_start_at_once(struct rs_request *request)
{
    struct rs_message *message = request->message;

    return LIKELY(request->state == RS_INACTIVE) &&
           LIKELY(message->sends ? rs_message_put(request, message)
                                 : rs_message_grant(request, message));
}

RS_INLINE int rs_message_start(struct rs_request *request)
{
    return rs_message_start_at_once(request) ? MPI_SUCCESS
                                             : rs_message_start_slowly(request);
}

/* ---- going on ---- */

/* Matched: stops have nothing to do with it any more. */
static inline void rs_message_matched(void)
{
    rs_num_open--;
}

/* True: the receive is complete. */
RS_INLINE bool rs_message_take(struct rs_request *request,
                               struct rs_message *message,
                               struct rs_slot *slot)
{
    struct rs_slots *slots = message->slots;
    uint64_t bytes = slot->bytes;

    /* Those that are announced are longer than any. */
    if (UNLIKELY(bytes > message->bytes || message->layout != NULL ||
                 message->number != slots->seen + 1))
        return rs_message_take_slowly(message, slot);
    rs_copy(message->buffer, slot->data, bytes);
    rs_lane_consume(slots, message->number);
    if (UNLIKELY(message->got != bytes))
        message->got = bytes;
    request->state = RS_COMPLETE;
    rs_message_matched();
    return true;
}

/** Go on; true: complete. A request's error is MPI_SUCCESS until it fails. */
RS_INLINE bool rs_message_poll(struct rs_request *request)
{
    struct rs_message *message = request->message;
    struct rs_slots *slots = message->slots;
    struct rs_slot *slot;

    if (UNLIKELY(request->state != RS_PUT && request->state != RS_GRANTED))
        return rs_message_poll_slowly(request);
    if (rs_unfenced) {
        rs_lane_fence();
        rs_unfenced = false;
    }
    if (UNLIKELY(!rs_pair_is_open(&message->lane->pair->view)))
        return rs_message_poll_slowly(request);
    if (message->sends) { /* S2 */
        if (UNLIKELY(!rs_lane_is_granted(slots, message->number)) ||
            UNLIKELY(message->announced))
            return rs_message_poll_slowly(request);
        if (UNLIKELY(message->got != message->bytes))
            message->got = message->bytes;
        request->state = RS_COMPLETE;
        rs_message_matched();
        return true;
    }
    slot = rs_lane_is_put(slots, message->number); /* R2 */
    return slot != NULL && rs_message_take(request, message, slot);
}

#endif
