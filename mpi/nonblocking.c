/* SPDX-License-Identifier: BSD-3-Clause */
/* Nonblocking calls. The n-th of a communicator goes through channel n mod
 * num_channels; while an earlier one is still in there it queues. Channels are
 * made with the communicator, because no nonblocking call may wait for the
 * others. docs/nonblocking.md says why this is right.
 *
 * A channel belongs to whoever holds the communicator's lock, but while a
 * thread waits for its first call (`waited`). No native MPI call is made with
 * a lock held that the helper takes, but to free a datatype. */
#include "mpi/internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Communicators with channels. Locks are taken in this order:
 * rs_process.lock, list_lock, one communicator's. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rs_comm *list;

atomic_uint rs_num_deferred;

/* ---- the helper ---- */

/* A thread that starts calls that queue while the program computes or waits
 * inside the native MPI; it runs while there are any. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool running, stop;
    struct timespec tick; /* 0: no helper is wanted */
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .wake = PTHREAD_COND_INITIALIZER};

/* RSCHED_PROGRESS, which has been checked. */
static struct timespec read_tick(void)
{
    static const struct {
        const char *name;
        uint64_t ns, per;
    } units[] = {{"ps", 1, 1000}, {"ns", 1, 1}, {"us", 1000, 1},
                 {"ms", 1000000, 1}, {"s", 1000000000, 1}};
    char *end;
    uint64_t ns = strtoull(rs_setting("RSCHED_PROGRESS"), &end, 10);

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].name) == 0)
            ns = ns * units[i].ns / units[i].per;
    }
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

static void progress_all(void);

static void *helper_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&helper.lock);
    while (!helper.stop) {
        if (atomic_load(&rs_num_deferred) == 0) {
            pthread_cond_wait(&helper.wake, &helper.lock);
            continue;
        }
        pthread_mutex_unlock(&helper.lock);
        nanosleep(&helper.tick, NULL);
        pthread_mutex_lock(&list_lock);
        progress_all();
        pthread_mutex_unlock(&list_lock);
        pthread_mutex_lock(&helper.lock);
    }
    pthread_mutex_unlock(&helper.lock);
    return NULL;
}

/* Called with the helper's lock held. Without one the program's own calls
 * still make progress. */
static void helper_start(void)
{
    sigset_t all, old;

    helper.tick = read_tick();
    if (helper.tick.tv_sec == 0 && helper.tick.tv_nsec == 0)
        return;
    /* Signals are the program's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    helper.running =
        pthread_create(&helper.thread, NULL, helper_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Something queues. */
static void helper_wake(void)
{
    pthread_mutex_lock(&helper.lock);
    if (!helper.running)
        helper_start();
    pthread_cond_signal(&helper.wake);
    pthread_mutex_unlock(&helper.lock);
}

void rs_flights_fini(void)
{
    pthread_mutex_lock(&helper.lock);
    helper.stop = true;
    pthread_cond_signal(&helper.wake);
    pthread_mutex_unlock(&helper.lock);
    if (helper.running)
        pthread_join(helper.thread, NULL);
    helper.running = false;
}

/* ---- a channel; the communicator's lock is held ---- */

static int load_and_start(struct rs_channel *channel,
                          const struct rs_plan *plan)
{
    int error = 0;

    if (channel->loaded != plan->serial) {
        channel->loaded = 0;
        error = rsched_exchange_load(channel->exchange, plan->pattern,
                                     plan->sends, plan->receives);
        if (error == 0)
            channel->loaded = plan->serial;
    }
    return error == 0 ? rsched_exchange_start(channel->exchange) : error;
}

/* The first call has left the exchange. */
static void land(struct rs_comm *comm, struct rs_channel *channel, int error)
{
    struct rs_request *request = channel->first;

    if (error != 0)
        rs_log(RS_LOG_ERROR, "%s", rsched_last_error());
    request->result = error;
    request->landed = true;
    channel->first = request->after;
    request->after = NULL;
    if (channel->first == NULL)
        return;
    comm->num_deferred--;
    atomic_fetch_sub(&rs_num_deferred, 1);
}

/* Start the first call, and those behind it if that fails. */
static void take_off(struct rs_comm *comm, struct rs_channel *channel)
{
    while (channel->first != NULL) {
        int error = load_and_start(channel, channel->first->plan);

        if (error == 0)
            return;
        land(comm, channel, error);
    }
}

/* The first call is over. */
static void land_and_go_on(struct rs_comm *comm, struct rs_channel *channel,
                           int error)
{
    land(comm, channel, error);
    take_off(comm, channel);
}

static void advance(struct rs_comm *comm, struct rs_channel *channel)
{
    while (channel->first != NULL && !channel->waited) {
        bool done = false;
        int error = rsched_exchange_test(channel->exchange, &done);

        if (error == 0 && !done)
            return;
        land_and_go_on(comm, channel, error);
    }
}

/* The list is locked. */
static void progress_all(void)
{
    for (struct rs_comm *comm = list; comm != NULL;
         comm = comm->next_channels) {
        pthread_mutex_lock(&comm->lock);
        for (unsigned i = 0; comm->num_deferred > 0 && i < comm->num_channels;
             i++) {
            struct rs_channel *channel = &comm->channels[i];

            if (channel->first != NULL && channel->first->after != NULL)
                advance(comm, channel);
        }
        pthread_mutex_unlock(&comm->lock);
    }
}

void rs_flights_progress(void)
{
    if (!rs_flights_queue() || pthread_mutex_trylock(&list_lock) != 0)
        return; /* who has the lock goes on with all of them */
    progress_all();
    pthread_mutex_unlock(&list_lock);
}

/* ---- calls ---- */

void rs_flight_start(struct rs_request *request)
{
    struct rs_comm *comm = request->comm;
    struct rs_channel *channel;
    bool queues;

    pthread_mutex_lock(&comm->lock);
    channel = &comm->channels[comm->sequence++ % comm->num_channels];
    request->channel = channel;
    request->state = RS_FLYING;
    request->landed = false;
    request->after = NULL;
    if (!channel->waited)
        advance(comm, channel); /* it may be free by now */
    queues = channel->first != NULL;
    if (queues) {
        channel->last->after = request;
        rs_count_number(RS_NUMBER_QUEUED, 1);
        comm->num_deferred++;
        atomic_fetch_add(&rs_num_deferred, 1);
    } else {
        channel->first = request;
    }
    channel->last = request;
    if (!queues)
        take_off(comm, channel);
    pthread_mutex_unlock(&comm->lock);
    if (queues)
        helper_wake();
}

bool rs_flight_poll(struct rs_request *request)
{
    struct rs_comm *comm = request->comm;
    bool landed;

    pthread_mutex_lock(&comm->lock);
    advance(comm, request->channel);
    landed = request->landed;
    pthread_mutex_unlock(&comm->lock);
    return landed;
}

void rs_flight_wait(struct rs_request *request)
{
    struct rs_comm *comm = request->comm;
    struct rs_channel *channel = request->channel;
    struct rsched_pause pause = {0};

    pthread_mutex_lock(&comm->lock);
    for (;;) {
        advance(comm, channel);
        if (request->landed)
            break;
        if (channel->first == request) {
            int error;

            channel->waited = true;
            pthread_mutex_unlock(&comm->lock);
            error = rsched_exchange_wait(channel->exchange);
            pthread_mutex_lock(&comm->lock);
            channel->waited = false;
            land_and_go_on(comm, channel, error);
            break;
        }
        pthread_mutex_unlock(&comm->lock);
        rsched_context_pause(rs_context(), &pause);
        pthread_mutex_lock(&comm->lock);
    }
    pthread_mutex_unlock(&comm->lock);
}

/* ---- plans ---- */

/* Programs repeat a call with the same arguments, or a few different ones in
 * turn; buffers may differ. Plans that no call uses are kept for that. */
enum { MAX_IDLE = 32 };

struct rs_plan *rs_flight_plan(struct rs_comm *comm,
                               const struct rs_args *args)
{
    /* Channels are made before anything is known of buffers. */
    static const struct rs_on_gpu none;
    struct rs_plan **best = NULL, *plan = NULL;

    pthread_mutex_lock(&comm->lock);
    for (struct rs_plan **at = &comm->idle; *at != NULL; at = &(*at)->next) {
        if ((*at)->kind != args->kind || !rs_plan_matches(*at, comm, args))
            continue;
        best = at;
        if ((*at)->send_buffer == args->send.buffer &&
            (*at)->receive_buffer == args->receive.buffer)
            break;
    }
    if (best != NULL) {
        plan = *best;
        *best = plan->next;
    }
    pthread_mutex_unlock(&comm->lock);
    if (plan != NULL) {
        if (plan->send_buffer != args->send.buffer ||
            plan->receive_buffer != args->receive.buffer)
            rs_plan_rebase(plan, args->send.buffer, args->receive.buffer);
        return rs_plan_off_gpu(comm, args, &none, plan);
    }
    if (!rs_types_valid(comm, args) ||
        rs_plan_create(comm, args, &plan) != RS_ACCELERATED)
        return NULL;
    if (rs_plan_keep(plan, comm, args))
        return rs_plan_off_gpu(comm, args, &none, plan);
    rs_plan_destroy(plan);
    return NULL;
}

void rs_flight_end(struct rs_request *request)
{
    struct rs_comm *comm = request->comm;
    struct rs_plan *oldest = NULL;
    unsigned num = 0;

    pthread_mutex_lock(&comm->lock);
    request->plan->next = comm->idle;
    comm->idle = request->plan;
    for (struct rs_plan **at = &comm->idle; *at != NULL; at = &(*at)->next) {
        if (++num <= MAX_IDLE)
            continue;
        oldest = *at;
        *at = NULL;
        break;
    }
    pthread_mutex_unlock(&comm->lock);
    rs_plan_destroy(oldest);
    request->plan = NULL;
    request->channel = NULL;
}

/* ---- channels ---- */

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t edge(int from, int to)
{
    return from == MPI_PROC_NULL || to == MPI_PROC_NULL
               ? 0
               : mix(((uint64_t)(uint32_t)from << 32) | (uint32_t)to);
}

/* Graphs need not be symmetric, as long as nobody makes a collective call on
 * them: then nobody may be waited for either. Each edge is counted by both its
 * ends, and the sum is 0 when they agree. */
static bool edges_are_paired(const struct rs_comm *comm)
{
    uint64_t mine = 0, all = 0;

    for (int i = 0; i < comm->num_sends; i++)
        mine += edge(rs_process.rank, comm->send_to[i]);
    for (int i = 0; i < comm->num_receives; i++)
        mine -= edge(comm->receive_from[i], rs_process.rank);
    PMPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, comm->comm);
    return all == 0;
}

/* Nothing is known yet of the calls to come but their neighbors. */
static enum rs_reason plan_nothing(const struct rs_comm *comm,
                                   struct rs_plan **plan)
{
    static const int zero;
    static const MPI_Datatype byte = MPI_BYTE;
    const struct rs_side side = {.counts = &zero, .types = &byte,
                                 .spread = RS_SPREAD_DENSE};
    const struct rs_args args = {RS_ALLTOALL, side, side};

    return rs_plan_create(comm, &args, plan);
}

static enum rs_reason prepare(struct rs_comm *comm, unsigned wanted,
                              struct rs_plan **plan)
{
    uint64_t mine[3] = {RS_ACCELERATED, wanted, ~(uint64_t)wanted}, all[3];

    if (plan_nothing(comm, plan) != RS_ACCELERATED)
        mine[0] = RS_REASON_MEMORY;
    comm->channels = calloc(wanted + 1, sizeof(*comm->channels));
    if (comm->channels == NULL)
        mine[0] = RS_REASON_MEMORY;
    PMPI_Allreduce(mine, all, 3, MPI_UINT64_T, MPI_MAX, comm->comm);
    if (all[1] != ~all[2] || all[1] == 0)
        return RS_REASON_CHANNELS;
    return (enum rs_reason)all[0];
}

static void link_channels(struct rs_comm *comm)
{
    pthread_mutex_lock(&list_lock);
    comm->next_channels = list;
    if (list != NULL)
        list->previous_channels = comm;
    list = comm;
    pthread_mutex_unlock(&list_lock);
}

static void unlink_channels(struct rs_comm *comm)
{
    pthread_mutex_lock(&list_lock);
    if (comm->next_channels != NULL)
        comm->next_channels->previous_channels = comm->previous_channels;
    if (comm->previous_channels != NULL)
        comm->previous_channels->next_channels = comm->next_channels;
    else
        list = comm->next_channels;
    pthread_mutex_unlock(&list_lock);
}

static void destroy_channels(struct rs_comm *comm)
{
    for (unsigned i = 0; i < comm->num_channels; i++)
        rsched_exchange_destroy(comm->channels[i].exchange);
    free(comm->channels);
    comm->channels = NULL;
    comm->num_channels = 0;
}

/* The first one says whether the neighbors can be reached, before more are tried. What
 * the kernel keeps apart stays so, but a rail that is down may come up: *cut. */
static enum rs_reason make(struct rs_comm *comm, const struct rs_plan *plan,
                           unsigned wanted, bool *cut)
{
    int mine[2] = {0, 0}, all[2] = {0, 0};

    for (unsigned i = 0; i < wanted && !all[0]; i++) {
        int error = rs_comm_exchange_create(comm, plan, RSCHED_EXCHANGE_VARIABLE,
                                            &comm->channels[i].exchange);

        mine[0] |= error != 0;
        mine[1] |= error == RSCHED_EUNREACH &&
                   !rsched_context_leaves_node(rs_context());
        comm->num_channels = i + 1;
        if (i == 0 || i + 1 == wanted)
            PMPI_Allreduce(mine, all, 2, MPI_INT, MPI_MAX, comm->comm);
    }
    *cut = all[1] != 0;
    return all[0] ? RS_REASON_SETUP : RS_ACCELERATED;
}

enum rs_reason rs_channels_open(struct rs_comm *comm)
{
    unsigned wanted = (unsigned)strtoul(rs_setting("RSCHED_CHANNELS"), NULL, 10);
    enum rs_reason reason;
    struct rs_plan *plan = NULL;
    bool cut = false;

    reason = prepare(comm, wanted, &plan);
    if (reason == RS_ACCELERATED && !edges_are_paired(comm))
        reason = RS_REASON_UNPAIRED;
    if (reason == RS_ACCELERATED)
        reason = make(comm, plan, wanted, &cut);
    rs_plan_destroy(plan);
    comm->nonblocking = reason;
    if (reason == RS_ACCELERATED)
        link_channels(comm);
    else
        destroy_channels(comm);
    return cut ? reason : RS_ACCELERATED;
}

void rs_channels_close(struct rs_comm *comm)
{
    struct rs_plan *plan;

    if (comm->channels == NULL)
        return;
    unlink_channels(comm);
    for (unsigned i = 0; i < comm->num_channels; i++)
        rs_count_retire(comm->channels[i].exchange, false);
    destroy_channels(comm);
    while ((plan = comm->idle) != NULL) {
        comm->idle = plan->next;
        rs_plan_destroy(plan);
    }
}

void rs_channels_visit(struct rs_comm *comm,
                       void (*count)(uint64_t *to,
                                     const struct rsched_exchange *exchange),
                       uint64_t *to)
{
    pthread_mutex_lock(&comm->lock);
    for (unsigned i = 0; i < comm->num_channels; i++) {
        if (!comm->channels[i].waited)
            count(to, comm->channels[i].exchange);
    }
    pthread_mutex_unlock(&comm->lock);
}
