/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests. Each accelerated handle is a native persistent request (the
 * carrier), made by Recv_init from MPI_PROC_NULL and never started: whatever a
 * program does with a handle that we do not know of stays legal. Carriers are
 * pooled and live until MPI_Finalize, so that a handle in the table never
 * means anything else. Native completion calls never see a carrier. */
#include "mpi/internal.h"

#include <stdlib.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

struct rs_request *rs_requests; /* in use */
static struct rs_request *pool;
struct rs_request *rs_zombies; /* freed by the program while active */
static struct rs_request *kept; /* nonblocking and failed: an error will be
                                   raised on their communicators' records */

/* ---- handle -> request ---- */

/* Open addressing, at most half full. Entries are only ever added, and a
 * larger table replaces the old one, which readers may still be in: old ones
 * are kept until the end. Readers take no lock. */
struct entry {
    _Atomic(uintptr_t) key; /* 0: free */
    struct rs_request *request;
};

struct table {
    struct table *older;
    unsigned shift; /* 64 - log2(size) */
    size_t mask, num;
    struct entry *entries;
};

static struct entry no_entries[2];
static struct table no_table = {.shift = 63, .mask = 1, .entries = no_entries};
static _Atomic(struct table *) table = &no_table;

static inline size_t hash(uintptr_t key, unsigned shift)
{
    return (size_t)(((uint64_t)key * UINT64_C(0x9e3779b97f4a7c15)) >> shift);
}

/* Ours, or NULL. */
static inline struct rs_request *find(MPI_Request handle)
{
    uintptr_t wanted = (uintptr_t)handle, key;
    /* Acquire: the entries of a table must be seen with it. */
    const struct table *t = atomic_load_explicit(&table, memory_order_acquire);
    size_t i = hash(wanted, t->shift);

    /* Acquire: the entry's request must be seen with its key. */
    while ((key = atomic_load_explicit(&t->entries[i].key,
                                       memory_order_acquire)) != wanted) {
        if (key == 0)
            return NULL;
        i = (i + 1) & t->mask;
    }
    return t->entries[i].request;
}

static void put(struct table *t, uintptr_t key, struct rs_request *request)
{
    size_t i = hash(key, t->shift);

    while (atomic_load_explicit(&t->entries[i].key, memory_order_relaxed) != 0)
        i = (i + 1) & t->mask;
    t->entries[i].request = request;
    /* Release: pairs with find(). */
    atomic_store_explicit(&t->entries[i].key, key, memory_order_release);
    t->num++;
}

static struct table *grow(struct table *old)
{
    size_t size = old == &no_table ? 64 : 2 * (old->mask + 1);
    struct table *t = calloc(1, sizeof(*t));

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
    atomic_store_explicit(&table, t, memory_order_release);
    return t;
}

/* Under the lock. */
static bool insert(struct rs_request *request)
{
    struct table *t = atomic_load_explicit(&table, memory_order_relaxed);

    if (t == &no_table || 2 * (t->num + 1) > t->mask + 1)
        t = grow(t);
    if (t == NULL)
        return false;
    put(t, (uintptr_t)request->handle, request);
    return true;
}

static void free_tables(void)
{
    struct table *t = atomic_load(&table);

    atomic_store(&table, &no_table);
    while (t != &no_table) {
        struct table *older = t->older;

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

/* Destroy what the request carries; the carrier goes to the pool. Under the
 * lock, the request in no list. */
static void close_request(struct rs_request *request)
{
    if (request->exchange != NULL)
        rs_count_retire(request->exchange, true);
    rsched_exchange_destroy(request->exchange);
    request->exchange = NULL;
    rs_plan_destroy(request->plan);
    request->plan = NULL;
    request->channel = NULL;
    rs_comm_drop(request->comm);
    request->comm = NULL;
    request->state = RS_INACTIVE;
    push(&pool, request);
}

/* An error ends an epoch too. */
static bool is_over(struct rs_request *request)
{
    bool done = false;

    if (request->channel != NULL)
        return rs_flight_poll(request);
    return rsched_exchange_test(request->exchange, &done) != 0 || done;
}

/* Close the requests that the program freed too early and that have finished
 * since, or all of them. Under the lock. */
static void reap(bool all)
{
    struct rs_request *next;

    for (struct rs_request *r = rs_zombies; r != NULL; r = next) {
        next = r->next;
        if (!all && !is_over(r))
            continue;
        pull(&rs_zombies, r);
        close_request(r);
    }
}

struct rs_request *rs_request_create(void)
{
    struct rs_request *request;

    pthread_mutex_lock(&rs_process.lock);
    reap(false);
    request = pool;
    if (request != NULL) {
        pull(&pool, request);
        goto out;
    }
    request = calloc(1, sizeof(*request));
    if (request == NULL)
        goto out;
    PMPI_Recv_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF,
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

void rs_request_sweep(void)
{
    struct rs_request *request;

    pthread_mutex_lock(&rs_process.lock);
    reap(true);
    while ((request = rs_requests) != NULL) {
        pull(&rs_requests, request);
        close_request(request);
    }
    while ((request = kept) != NULL) {
        pull(&kept, request);
        close_request(request);
    }
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
    struct rs_request *request = find(*handle);

    if (request == NULL)
        return PMPI_Request_free(handle);
    pthread_mutex_lock(&rs_process.lock);
    pull(&rs_requests, request);
    /* Erroneous for active collective requests, but harmless here: it is
     * completed first. */
    if (request->state == RS_ACTIVE || request->state == RS_FLYING)
        push(&rs_zombies, request);
    else
        close_request(request);
    reap(false);
    pthread_mutex_unlock(&rs_process.lock);
    *handle = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

/* ---- one request ---- */

static int start_packed(struct rs_request *request)
{
    int error = rs_plan_pack(request->plan);

    return error == MPI_SUCCESS ? MPI_SUCCESS : rs_raise(request->comm, error);
}

static int start_failed(struct rs_request *request, int error)
{
    rs_log(RS_LOG_ERROR, "MPI_Start: %s", rsched_last_error());
    return rs_raise(request->comm, rs_error_class(error));
}

static inline int start(struct rs_request *request)
{
    int error;

    if (UNLIKELY(request->state != RS_INACTIVE))
        return rs_raise(request->comm, MPI_ERR_REQUEST);
    if (UNLIKELY(request->packed)) {
        error = start_packed(request);
        if (error != MPI_SUCCESS)
            return error;
    }
    error = rsched_exchange_start(request->exchange);
    if (UNLIKELY(error != 0))
        return start_failed(request, error);
    request->state = RS_ACTIVE;
    return MPI_SUCCESS;
}

/* What the end of an epoch takes beyond the usual; returns an MPI error. */
static int end_epoch(struct rs_request *request, int error)
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

/* Move on, and say whether the epoch is over. */
static inline bool poll(struct rs_request *request)
{
    bool done = false;
    int error;

    if (UNLIKELY(request->state != RS_ACTIVE))
        return request->state != RS_FLYING || poll_flight(request);
    error = rsched_exchange_test(request->exchange, &done);
    if (LIKELY(error == 0 && !done))
        return false;
    request->error = UNLIKELY(error != 0 || request->packed)
                         ? end_epoch(request, error)
                         : MPI_SUCCESS;
    request->state = RS_COMPLETE;
    return true;
}

/* A complete nonblocking request is gone. */
static int take_flight(struct rs_request *request, MPI_Request *handle)
{
    int error = request->error;

    *handle = MPI_REQUEST_NULL;
    rs_flight_end(request);
    pthread_mutex_lock(&rs_process.lock);
    pull(&rs_requests, request);
    if (error == MPI_SUCCESS)
        close_request(request);
    else
        push(&kept, request);
    pthread_mutex_unlock(&rs_process.lock);
    return error;
}

/* Make the request inactive, or null; returns its MPI error. */
static inline int take(struct rs_request *request, MPI_Request *handle)
{
    int error = request->error;

    if (UNLIKELY(request->channel != NULL))
        return take_flight(request, handle);
    request->error = MPI_SUCCESS;
    request->state = RS_INACTIVE;
    return error;
}

static int wait_take_other(struct rs_request *request, MPI_Request *handle)
{
    if (request->state == RS_FLYING) {
        rs_flight_wait(request);
        poll_flight(request);
    }
    return take(request, handle);
}

/* Wait for a request that is not inactive and take it. */
static inline int wait_take(struct rs_request *request, MPI_Request *handle)
{
    int error;

    if (UNLIKELY(request->state != RS_ACTIVE))
        return wait_take_other(request, handle);
    error = rsched_exchange_wait(request->exchange);
    request->state = RS_INACTIVE;
    if (UNLIKELY(error != 0 || request->packed))
        return end_epoch(request, error);
    return MPI_SUCCESS;
}

/* A status of a completed request, whose source and tag mean nothing. Calls
 * with a single status leave MPI_ERROR alone. */
static inline void set_status(MPI_Status *status)
{
    int error;

    if (status == MPI_STATUS_IGNORE)
        return;
    error = status->MPI_ERROR;
    *status = rs_process.empty;
    status->MPI_ERROR = error;
}

static inline void set_empty(MPI_Status *status)
{
    if (status != MPI_STATUS_IGNORE)
        *status = rs_process.empty;
}

static inline void set_ith(MPI_Status *statuses, int i, int error)
{
    if (statuses == MPI_STATUSES_IGNORE)
        return;
    statuses[i] = rs_process.empty;
    statuses[i].MPI_ERROR = error;
}

int MPI_Start(MPI_Request *handle)
{
    struct rs_request *request = find(*handle);

    return UNLIKELY(request == NULL) ? PMPI_Start(handle) : start(request);
}

int MPI_Wait(MPI_Request *handle, MPI_Status *status)
{
    struct rs_request *request = find(*handle);
    int error;

    if (request == NULL)
        return PMPI_Wait(handle, status);
    if (UNLIKELY(request->state == RS_INACTIVE)) {
        set_empty(status);
        return MPI_SUCCESS;
    }
    error = wait_take(request, handle);
    set_status(status);
    return LIKELY(error == MPI_SUCCESS) ? MPI_SUCCESS
                                        : rs_raise(request->comm, error);
}

int MPI_Test(MPI_Request *handle, int *flag, MPI_Status *status)
{
    struct rs_request *request = find(*handle);
    int error;

    if (request == NULL)
        return PMPI_Test(handle, flag, status);
    *flag = 1;
    if (UNLIKELY(request->state == RS_INACTIVE)) {
        set_empty(status);
        return MPI_SUCCESS;
    }
    if (!poll(request)) {
        *flag = 0;
        rs_native_progress();
        return MPI_SUCCESS;
    }
    error = take(request, handle);
    set_status(status);
    return LIKELY(error == MPI_SUCCESS) ? MPI_SUCCESS
                                        : rs_raise(request->comm, error);
}

int MPI_Request_get_status(MPI_Request handle, int *flag, MPI_Status *status)
{
    struct rs_request *request = find(handle);

    if (request == NULL)
        return PMPI_Request_get_status(handle, flag, status);
    *flag = 1;
    if (request->state == RS_INACTIVE) {
        set_empty(status);
    } else if (poll(request)) {
        set_status(status);
    } else {
        *flag = 0;
        rs_native_progress();
    }
    return MPI_SUCCESS;
}

/* ---- arrays ---- */

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
    for (int i = 0; i < count; i++) {
        const struct rs_request *request = find(handles[i]);

        if (request == NULL)
            continue;
        ours = true;
        *active |= request->state != RS_INACTIVE;
    }
    if (!ours)
        return false;
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
        if (find(handles[i]) != NULL)
            continue;
        natives->handles[natives->num] = handles[i];
        natives->places[natives->num++] = i;
    }
    return true;
}

/* Write back the handles, which native calls may have set to null. */
static void natives_fini(struct natives *natives, MPI_Request *handles)
{
    for (int i = 0; i < natives->num; i++)
        handles[natives->places[i]] = natives->handles[i];
    free(natives->memory);
}

/* The error of a call with several statuses; the handler is that of the first
 * failed request's communicator. */
static int raise_in_status(struct rs_comm *comm)
{
    return comm == NULL ? MPI_ERR_IN_STATUS : rs_raise(comm, MPI_ERR_IN_STATUS);
}

/* Start an array whose first request is not ours. */
static int startall_mixed(int count, MPI_Request *handles)
{
    int result = MPI_SUCCESS, natives = 0;

    while (natives < count && find(handles[natives]) == NULL)
        natives++;
    if (natives == count)
        return PMPI_Startall(count, handles);
    for (int i = 0; i < count && result == MPI_SUCCESS; i++) {
        struct rs_request *request = find(handles[i]);

        result = request != NULL ? start(request) : PMPI_Start(&handles[i]);
    }
    return result;
}

int MPI_Startall(int count, MPI_Request *handles)
{
    for (int i = 0; i < count; i++) {
        struct rs_request *request = find(handles[i]);
        int error;

        if (UNLIKELY(request == NULL))
            return startall_mixed(count - i, handles + i);
        error = start(request);
        if (UNLIKELY(error != MPI_SUCCESS))
            return error;
    }
    return MPI_SUCCESS;
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

/* Wait for one of ours and set its status; *failed becomes the communicator of
 * the first that has failed. */
static inline void wait_ours(struct rs_request *request, MPI_Request *handle,
                             MPI_Status *statuses, int i,
                             struct rs_comm **failed)
{
    int error = MPI_SUCCESS;

    if (LIKELY(request->state != RS_INACTIVE))
        error = wait_take(request, handle);
    if (UNLIKELY(error != MPI_SUCCESS) && *failed == NULL)
        *failed = request->comm;
    set_ith(statuses, i, error);
}

/* The rest of an array, from the first request that is not ours. The natives
 * move on while ours are waited for, because that drives their progress. */
static int waitall_mixed(int count, MPI_Request *handles, MPI_Status *statuses,
                         struct rs_comm *failed)
{
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, statuses, &active)) {
        result = PMPI_Waitall(count, handles, statuses);
        return failed != NULL ? raise_in_status(failed) : result;
    }
    for (int i = 0; i < count; i++) {
        struct rs_request *request = find(handles[i]);

        if (request != NULL)
            wait_ours(request, &handles[i], statuses, i, &failed);
    }
    result = PMPI_Waitall(natives.num, natives.handles, natives.wanted);
    copy_statuses(&natives, statuses, result);
    natives_fini(&natives, handles);
    return failed != NULL ? raise_in_status(failed) : result;
}

int MPI_Waitall(int count, MPI_Request *handles, MPI_Status *statuses)
{
    struct rs_comm *failed = NULL;

    for (int i = 0; i < count; i++) {
        struct rs_request *request = find(handles[i]);

        if (request == NULL)
            return waitall_mixed(count - i, handles + i,
                                 statuses == MPI_STATUSES_IGNORE
                                     ? MPI_STATUSES_IGNORE
                                     : statuses + i,
                                 failed);
        wait_ours(request, &handles[i], statuses, i, &failed);
    }
    return LIKELY(failed == NULL) ? MPI_SUCCESS : raise_in_status(failed);
}

int MPI_Testall(int count, MPI_Request *handles, int *flag,
                MPI_Status *statuses)
{
    struct rs_comm *failed = NULL;
    struct natives natives;
    bool active, done = true;
    int result = MPI_SUCCESS;

    if (!natives_init(&natives, count, handles, statuses, &active))
        return PMPI_Testall(count, handles, flag, statuses);
    for (int i = 0; i < count; i++) {
        struct rs_request *request = find(handles[i]);

        if (request != NULL && !poll(request))
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
        struct rs_request *request = find(handles[i]);
        int error;

        if (request == NULL)
            continue;
        error = take(request, &handles[i]);
        if (error != MPI_SUCCESS && failed == NULL)
            failed = request->comm;
        set_ith(statuses, i, error);
    }
    if (*flag || result != MPI_SUCCESS)
        copy_statuses(&natives, statuses, result);
    natives_fini(&natives, handles);
    return failed != NULL ? raise_in_status(failed) : result;
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
        struct rs_request *request = find(handles[i]);

        if (request == NULL || request->state == RS_INACTIVE)
            continue;
        *active = true;
        if (!poll(request))
            continue;
        *index = i;
        set_status(status);
        *result = take(request, &handles[i]);
        if (*result != MPI_SUCCESS)
            rs_raise(request->comm, *result);
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

    if (!natives_init(&natives, count, handles, NULL, &active))
        return PMPI_Testany(count, handles, index, flag, status);
    *flag = 1;
    if (!any_once(count, handles, &natives, index, status, &active, &result)) {
        *index = MPI_UNDEFINED;
        if (active) {
            *flag = 0;
            rs_native_progress();
        } else {
            set_empty(status);
        }
    }
    natives.num = 0; /* written back */
    natives_fini(&natives, handles);
    return result;
}

int MPI_Waitany(int count, MPI_Request *handles, int *index,
                MPI_Status *status)
{
    struct rsched_pause pause = {0};
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, NULL, &active))
        return PMPI_Waitany(count, handles, index, status);
    while (!any_once(count, handles, &natives, index, status, &active,
                     &result)) {
        if (!active) {
            *index = MPI_UNDEFINED;
            set_empty(status);
            break;
        }
        rsched_context_pause(rs_context(), &pause);
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
    struct rs_comm *failed = NULL;
    int more = MPI_UNDEFINED, result = MPI_SUCCESS;
    bool active = false;
    int *places = indices;

    *num = 0;
    for (int i = 0; i < count; i++) {
        struct rs_request *request = find(handles[i]);
        int error;

        if (request == NULL || request->state == RS_INACTIVE)
            continue;
        active = true;
        if (!poll(request))
            continue;
        error = take(request, &handles[i]);
        if (error != MPI_SUCCESS && failed == NULL)
            failed = request->comm;
        set_ith(statuses, *num, error);
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
    return failed != NULL ? raise_in_status(failed) : result;
}

int MPI_Testsome(int count, MPI_Request *handles, int *num, int *indices,
                 MPI_Status *statuses)
{
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, statuses, &active))
        return PMPI_Testsome(count, handles, num, indices, statuses);
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
    struct rsched_pause pause = {0};
    struct natives natives;
    bool active;
    int result;

    if (!natives_init(&natives, count, handles, statuses, &active))
        return PMPI_Waitsome(count, handles, num, indices, statuses);
    for (;;) {
        result = some_once(count, handles, &natives, num, indices, statuses);
        if (*num != 0 || result != MPI_SUCCESS)
            break;
        rsched_context_pause(rs_context(), &pause);
    }
    natives.num = 0; /* written back */
    natives_fini(&natives, handles);
    return result;
}
