/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests. Each accelerated handle is a native persistent request (the
 * carrier), made by Recv_init from MPI_PROC_NULL and never started: whatever a
 * program does with a handle that we do not know of stays legal. Carriers are
 * pooled and live until MPI_Finalize, so that a handle in the table never
 * means anything else. Native completion calls never see a carrier. */
#include "mpi/native.h"
#include "mpi/request.h"

#include <stdlib.h>
#include <string.h>

RS_NATIVE(Cancel)
RS_NATIVE(Recv_init)

struct rs_request *rs_requests; /* in use */
static struct rs_request *pool;
struct rs_request *rs_zombies; /* freed by the program while active */
static atomic_bool any_zombies;
static struct rs_request *kept; /* nonblocking and failed: an error will be
                                   raised on their communicators' records */

/* ---- handle -> request ---- */

static struct rs_entry no_entries[2];
static struct rs_table no_table = {.shift = RS_SHIFT_OF_NONE, .mask = 1, .entries = no_entries};
_Atomic(struct rs_table *) rs_table = &no_table;

static void put(struct rs_table *t, uintptr_t key, struct rs_request *request)
{
    size_t i = rs_hash(key, t->shift);

    while (atomic_load_explicit(&t->entries[i].key, memory_order_relaxed) != 0)
        i = (i + 1) & t->mask;
    t->entries[i].request = request;
    /* Release: pairs with find(). */
    atomic_store_explicit(&t->entries[i].key, key, memory_order_release);
    t->num++;
}

static struct rs_table *grow(struct rs_table *old)
{
    size_t size = old == &no_table ? 64 : 2 * (old->mask + 1);
    struct rs_table *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->entries = calloc(size, sizeof(*t->entries));
    if (t->entries == NULL) {
        free(t);
        return NULL;
    }
    t->mask = size - 1;
    t->shift = 64 - (unsigned)__builtin_ctzll(size);
    t->older = old;
    for (size_t i = 0; i <= old->mask; i++) {
        uintptr_t key = atomic_load_explicit(&old->entries[i].key,
                                             memory_order_relaxed);
        if (key != 0)
            put(t, key, old->entries[i].request);
    }
    /* Release: pairs with find(). */
    atomic_store_explicit(&rs_table, t, memory_order_release);
    return t;
}

/* Under the lock. */
static bool insert(struct rs_request *request)
{
    struct rs_table *t = atomic_load_explicit(&rs_table, memory_order_relaxed);

    if (t == &no_table || 2 * (t->num + 1) > t->mask + 1)
        t = grow(t);
    if (t == NULL)
        return false;
    put(t, (uintptr_t)request->handle, request);
    return true;
}

static void free_tables(void)
{
    struct rs_table *t = atomic_load(&rs_table);

    atomic_store(&rs_table, &no_table);
    while (t != &no_table) {
        struct rs_table *older = t->older;

        free(t->entries);
        free(t);
        t = older;
    }
}

/* ---- life ---- */

static void push(struct rs_request **list, struct rs_request *request)
{
    request->previous = NULL;
    request->next = *list;
    if (*list != NULL)
        (*list)->previous = request;
    *list = request;
}

static void pull(struct rs_request **list, struct rs_request *request)
{
    if (request->next != NULL)
        request->next->previous = request->previous;
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        *list = request->next;
}

/* Take it out of the list in which it is counted. Under the lock. */
static void retire(struct rs_request **list, struct rs_request *request)
{
    pull(list, request);
    if (request->exchange != NULL)
        rs_count_retire(request->exchange, true);
}

/* Destroy what the request carries; the carrier goes to the pool. The request is
 * in no list, and the lock is free: with the last request on a communicator that
 * the program has freed MPICH deletes its attributes, ours (rs_comm_deleted())
 * and those of the program, which may come here again. */
static void close_request(struct rs_request *request)
{
    if (request->message != NULL)
        rs_message_close(request);
    rsched_exchange_destroy(request->exchange);
    request->exchange = NULL;
    rs_plan_destroy(request->plan);
    request->plan = NULL;
    request->channel = NULL;
    if (request->comm != NULL)
        rs_comm_drop(request->comm);
    request->comm = NULL;
    request->state = RS_INACTIVE;
    pthread_mutex_lock(&rs_process.lock);
    push(&pool, request);
    pthread_mutex_unlock(&rs_process.lock);
}

/* An error ends an epoch too. */
static bool is_over(struct rs_request *request)
{
    bool done = false;

    if (request->message != NULL)
        return rs_message_poll(request);
    if (request->channel != NULL)
        return rs_flight_poll(request);
    return rsched_exchange_test(request->exchange, &done) != 0 || done;
}

/* Close the requests that the program freed too early and that have finished
 * since. */
static void reap(void)
{
    struct rs_request *over = NULL, *next;

    /* Relaxed: whoever misses one that another thread has just freed finds it the next
     * time. */
    if (!atomic_load_explicit(&any_zombies, memory_order_relaxed))
        return;
    pthread_mutex_lock(&rs_process.lock);
    for (struct rs_request *r = rs_zombies; r != NULL; r = next) {
        next = r->next;
        if (!is_over(r))
            continue;
        retire(&rs_zombies, r);
        r->next = over;
        over = r;
    }
    atomic_store_explicit(&any_zombies, rs_zombies != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&rs_process.lock);
    for (; over != NULL; over = next) {
        next = over->next;
        close_request(over);
    }
}

/* Close all of a list. */
static void close_all(struct rs_request **list)
{
    struct rs_request *request;

    for (;;) {
        pthread_mutex_lock(&rs_process.lock);
        request = *list;
        if (request != NULL)
            retire(list, request);
        pthread_mutex_unlock(&rs_process.lock);
        if (request == NULL)
            return;
        close_request(request);
    }
}

struct rs_request *rs_request_create(void)
{
    struct rs_request *request;

    reap();
    pthread_mutex_lock(&rs_process.lock);
    request = pool;
    if (request != NULL) {
        pull(&pool, request);
        goto out;
    }
    request = calloc(1, sizeof(*request));
    if (request == NULL)
        goto out;
    atomic_init(&request->follower, request);
    native_Recv_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF,
                     &request->handle);
    if (!insert(request)) {
        PMPI_Request_free(&request->handle);
        free(request);
        request = NULL;
    }
out:
    pthread_mutex_unlock(&rs_process.lock);
    return request;
}

void rs_request_discard(struct rs_request *request)
{
    if (request == NULL)
        return;
    pthread_mutex_lock(&rs_process.lock);
    push(&pool, request);
    pthread_mutex_unlock(&rs_process.lock);
}

void rs_request_open(struct rs_request *request, struct rs_comm *comm,
                     struct rsched_exchange *exchange, struct rs_plan *plan)
{
    rs_comm_hold(comm);
    request->comm = comm;
    request->exchange = exchange;
    request->plan = plan;
    request->packed = plan->packed;
    request->channel = NULL;
    request->state = RS_INACTIVE;
    request->error = MPI_SUCCESS;
    pthread_mutex_lock(&rs_process.lock);
    push(&rs_requests, request);
    pthread_mutex_unlock(&rs_process.lock);
}

void rs_request_open_message(struct rs_request *request,
                             struct rs_message *message)
{
    request->message = message;
    request->packed = false;
    request->state = RS_INACTIVE;
    request->error = MPI_SUCCESS;
    pthread_mutex_lock(&rs_process.lock);
    push(&rs_requests, request);
    pthread_mutex_unlock(&rs_process.lock);
}

void rs_request_sweep(void)
{
    struct rs_request *request;

    for (request = rs_zombies; request != NULL; request = request->next) {
        if (request->message != NULL)
            rs_message_wait(request); /* it is pulled out of our memory */
    }
    close_all(&rs_zombies);
    close_all(&rs_requests);
    close_all(&kept);
    pthread_mutex_lock(&rs_process.lock);
    while ((request = pool) != NULL) {
        pull(&pool, request);
        PMPI_Request_free(&request->handle);
        free(request);
    }
    free_tables();
    pthread_mutex_unlock(&rs_process.lock);
}

int MPI_Request_free(MPI_Request *handle)
{
    struct rs_request *request = rs_request_at(handle);
    bool lives;

    if (request == NULL)
        return PMPI_Request_free(handle);
    if (request->message != NULL)
        rs_message_abandon(request);
    /* Erroneous for active collective requests, but harmless here: it is
     * completed first. */
    lives = request->state == RS_ACTIVE || request->state == RS_FLYING ||
            request->state == RS_MATCHED;
    pthread_mutex_lock(&rs_process.lock);
    if (lives) {
        pull(&rs_requests, request);
        push(&rs_zombies, request);
        atomic_store_explicit(&any_zombies, true, memory_order_relaxed);
    } else {
        retire(&rs_requests, request);
    }
    pthread_mutex_unlock(&rs_process.lock);
    *handle = MPI_REQUEST_NULL;
    if (!lives)
        close_request(request);
    reap();
    return MPI_SUCCESS;
}

int rs_take_flight(struct rs_request *request, MPI_Request *handle)
{
    int error = request->error;

    *handle = MPI_REQUEST_NULL;
    rs_flight_end(request);
    pthread_mutex_lock(&rs_process.lock);
    pull(&rs_requests, request);
    if (error != MPI_SUCCESS)
        push(&kept, request);
    pthread_mutex_unlock(&rs_process.lock);
    if (error == MPI_SUCCESS)
        close_request(request);
    return error;
}

int PMPI_Cancel(MPI_Request *handle)
{
    struct rs_request *request = rs_request_at(handle);

    rs_look();
    if (request == NULL || request->message == NULL)
        return native_Cancel(handle);
    return rs_message_cancel(request);
}

int MPI_Cancel(MPI_Request *handle) __attribute__((alias("PMPI_Cancel")));
