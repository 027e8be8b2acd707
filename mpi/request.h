/* SPDX-License-Identifier: BSD-3-Clause */
/* What the calls for one request and those for arrays share: finding a request
 * by its handle, starting it, going on with it, taking its result. */
#ifndef RS_MPI_REQUEST_H
#define RS_MPI_REQUEST_H

#include "mpi/message.h"

/* ---- handle -> request (request.c) ---- */

/* Open addressing, at most half full. Entries are only ever added, and a
 * larger table replaces the old one, which readers may still be in: old ones
 * are kept until the end. Readers take no lock. */
struct rs_entry {
    _Atomic(uintptr_t) key; /* 0: free */
    struct rs_request *request;
};

enum { RS_SHIFT_OF_NONE = 63 }; /* of the table before the first request */

struct rs_table {
    struct rs_table *older;
    unsigned shift; /* 64 - log2(size) */
    size_t mask, num;
    struct rs_entry *entries;
};

extern _Atomic(struct rs_table *) rs_table
    __attribute__((visibility("hidden")));

static inline size_t rs_hash(uintptr_t key, unsigned shift)
{
    return (size_t)(((uint64_t)key * UINT64_C(0x9e3779b97f4a7c15)) >> shift);
}

/* Ours, or NULL. */
RS_INLINE struct rs_request *rs_request_find(MPI_Request handle)
{
    uintptr_t wanted = (uintptr_t)handle, key;
    /* Acquire: the entries of a table must be seen with it. */
    const struct rs_table *t = atomic_load_explicit(&rs_table, memory_order_acquire);
    size_t i = rs_hash(wanted, t->shift);

    /* Acquire: the entry's request must be seen with its key. */
    while ((key = atomic_load_explicit(&t->entries[i].key,
                                       memory_order_acquire)) != wanted) {
        if (key == 0)
            return NULL;
        i = (i + 1) & t->mask;
    }
    return t->entries[i].request;
}

/* Whether there ever were some. */
static inline bool rs_have_requests(void)
{
    return atomic_load_explicit(&rs_table, memory_order_acquire)->shift != RS_SHIFT_OF_NONE;
}

/* What a program calls a request; NULL is wrong, and for the native call to say. */
RS_INLINE struct rs_request *rs_request_at(const MPI_Request *handle)
{
    return LIKELY(handle != NULL) ? rs_request_find(*handle) : NULL;
}

/* The same for the next one of an array. Programs start and complete the same
 * requests in the same order again and again; carriers live until the end, so
 * what is remembered can be looked at. */
static inline struct rs_request *
rs_request_find_after(struct rs_request *previous, MPI_Request handle)
{
    struct rs_request *request;

    if (UNLIKELY(previous == NULL))
        return rs_request_find(handle);
    request = atomic_load_explicit(&previous->follower, memory_order_relaxed);
    if (LIKELY(request->handle == handle))
        return request;
    request = rs_request_find(handle);
    if (request != NULL)
        atomic_store_explicit(&previous->follower, request,
                              memory_order_relaxed);
    return request;
}

/** The array that is being started. In whichever order that happens, nobody may write a send
 * buffer of it from the beginning on. Of one thread: with MPI_THREAD_MULTIPLE nobody looks. */
struct rs_starting {
    const MPI_Request *handles;
    int count; /* 0: none is */
};
extern struct rs_starting rs_starting __attribute__((visibility("hidden")));

/* ---- one request (completion.c) ---- */

int rs_start_packed(struct rs_request *request);
int rs_start_failed(struct rs_request *request, int error);
/** What the end of an epoch takes beyond the usual; returns an MPI error. */
int rs_end_epoch(struct rs_request *request, int error);
/** Of requests that are not RS_ACTIVE. */
bool rs_poll_other(struct rs_request *request);
int rs_wait_other(struct rs_request *request, MPI_Request *handle);
/** A complete nonblocking request is gone. */
int rs_take_flight(struct rs_request *request, MPI_Request *handle);
/** Raise the error of a request. */
int rs_request_raise(struct rs_request *request, int error);

/* ---- arrays of native messages (native_array.c) ---- */

/** Start those of an array, from the first one on, that can only go natively now, by one
 * native call. Returns how many they are; only then *error is set. */
int rs_startall_natively(int count, const MPI_Request *handles, int *error);
/** MPI_Waitall and MPI_Testall of an array of which all that is ours is such. False: something
 * else is in it. */
bool rs_waitall_natively(int count, MPI_Request *handles, MPI_Status *statuses, int *result);
bool rs_testall_natively(int count, MPI_Request *handles, int *flag, MPI_Status *statuses,
                         int *result);


RS_INLINE int rs_request_start(struct rs_request *request)
{
    int error;

    if (request->message != NULL)
        return rs_message_start(request);
    if (UNLIKELY(request->state != RS_INACTIVE))
        return rs_raise(request->comm, MPI_ERR_REQUEST);
    if (UNLIKELY(request->packed)) {
        error = rs_start_packed(request);
        if (error != MPI_SUCCESS)
            return error;
    }
    error = rsched_exchange_start(request->exchange);
    if (UNLIKELY(error != 0))
        return rs_start_failed(request, error);
    request->state = RS_ACTIVE;
    return MPI_SUCCESS;
}

/* Move on, and say whether the epoch is over. */
static inline bool rs_request_poll(struct rs_request *request)
{
    bool done = false;
    int error;

    if (request->state != RS_ACTIVE)
        return request->message != NULL ? rs_message_poll(request)
                                        : rs_poll_other(request);
    error = rsched_exchange_test(request->exchange, &done);
    if (LIKELY(error == 0 && !done))
        return false;
    request->error = UNLIKELY(error != 0 || request->packed)
                         ? rs_end_epoch(request, error)
                         : MPI_SUCCESS;
    request->state = RS_COMPLETE;
    return true;
}

/* Make the request inactive, or null; returns its MPI error. */
static inline int rs_request_take(struct rs_request *request, MPI_Request *handle)
{
    int error = request->error;

    if (UNLIKELY(request->channel != NULL))
        return rs_take_flight(request, handle);
    request->error = MPI_SUCCESS;
    request->state = RS_INACTIVE;
    return error;
}

/* Wait for a request that is not inactive and take it. */
static inline int rs_request_finish(struct rs_request *request, MPI_Request *handle)
{
    int error;

    if (request->state != RS_ACTIVE)
        return rs_wait_other(request, handle);
    error = rsched_exchange_wait(request->exchange);
    request->state = RS_INACTIVE;
    if (UNLIKELY(error != 0 || request->packed))
        return rs_end_epoch(request, error);
    return MPI_SUCCESS;
}

/* A status of a completed request; source and tag of a collective one mean
 * nothing. Calls with a single status leave MPI_ERROR alone. */
static inline void rs_set_status(const struct rs_request *request,
                                 MPI_Status *status)
{
    int error;

    if (status == MPI_STATUS_IGNORE)
        return;
    error = status->MPI_ERROR;
    *status = request->message != NULL ? *rs_message_status(request->message)
                                       : rs_process.empty;
    status->MPI_ERROR = error;
}

static inline void rs_set_empty(MPI_Status *status)
{
    if (status != MPI_STATUS_IGNORE)
        *status = rs_process.empty;
}

/* The i-th of several; `active`: the request was. */
static inline void rs_set_ith(const struct rs_request *request, bool active,
                              MPI_Status *statuses, int i, int error)
{
    if (statuses == MPI_STATUSES_IGNORE)
        return;
    statuses[i] = active && request->message != NULL
                      ? *rs_message_status(request->message)
                      : rs_process.empty;
    statuses[i].MPI_ERROR = error;
}


#endif
