/* SPDX-License-Identifier: BSD-3-Clause */
/* What the backend knows of a communicator: neighbors, and whether all of its
 * processes accelerate. Made at the first neighborhood collective, which all
 * of them call; votes are reductions in the place of that collective. */
#include "mpi/persistent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rs_comm *rs_comms;

/* ---- errors ---- */

int rs_error_class(int error)
{
    switch (error) {
    case 0:
        return MPI_SUCCESS;
    case RSCHED_ETRUNC:
    case RSCHED_EMISMATCH:
        return MPI_ERR_TRUNCATE;
    case RSCHED_ENOMEM:
        return MPI_ERR_NO_MEM;
#ifdef MPIX_ERR_PROC_FAILED
    case RSCHED_EPEER:
        return MPIX_ERR_PROC_FAILED;
#endif
    default:
        return MPI_ERR_OTHER;
    }
}

int rs_raise(struct rs_comm *comm, int error)
{
    MPI_Comm where = comm->comm;

    if (where == MPI_COMM_NULL) {
        where = rs_process.errors;
        PMPI_Comm_set_errhandler(where, comm->errhandler);
    }
    PMPI_Comm_call_errhandler(where, error);
    return error;
}

/* ---- neighbors ---- */

static void cart_neighbors(struct rs_comm *record, int dims)
{
    for (int d = 0; d < dims; d++) {
        int *pair = record->send_to + 2 * (ptrdiff_t)d;

        PMPI_Cart_shift(record->comm, d, 1, &pair[0], &pair[1]);
    }
    memcpy(record->receive_from, record->send_to,
           (size_t)record->num_sends * sizeof(int));
}

static bool allocate_neighbors(struct rs_comm *record, int sends, int receives)
{
    record->send_to = calloc((size_t)sends + (size_t)receives + 1, sizeof(int));
    if (record->send_to == NULL)
        return false;
    record->receive_from = record->send_to + sends;
    record->num_sends = sends;
    record->num_receives = receives;
    return true;
}

static bool get_neighbors(struct rs_comm *record, int topology)
{
    int n, sends, receives, weighted, rank, *weights;

    switch (topology) {
    case MPI_CART:
        PMPI_Cartdim_get(record->comm, &n);
        record->cartesian = true;
        if (!allocate_neighbors(record, 2 * n, 2 * n))
            return false;
        cart_neighbors(record, n);
        return true;
    case MPI_GRAPH:
        PMPI_Comm_rank(record->comm, &rank);
        PMPI_Graph_neighbors_count(record->comm, rank, &n);
        if (!allocate_neighbors(record, n, n))
            return false;
        PMPI_Graph_neighbors(record->comm, rank, n, record->send_to);
        memcpy(record->receive_from, record->send_to,
               (size_t)n * sizeof(int));
        return true;
    default:
        PMPI_Dist_graph_neighbors_count(record->comm, &receives, &sends,
                                        &weighted);
        weights = calloc((size_t)sends + (size_t)receives + 1, sizeof(int));
        if (weights == NULL || !allocate_neighbors(record, sends, receives)) {
            free(weights);
            return false;
        }
        PMPI_Dist_graph_neighbors(record->comm, receives,
                                  record->receive_from, weights, sends,
                                  record->send_to, weights + receives);
        free(weights);
        return true;
    }
}

static bool copy_neighbors(struct rs_comm *record, const struct rs_lists *lists)
{
    if (!allocate_neighbors(record, lists->outdegree, lists->indegree))
        return false;
    for (int i = 0; i < lists->outdegree; i++)
        record->send_to[i] = lists->destinations[i];
    for (int i = 0; i < lists->indegree; i++)
        record->receive_from[i] = lists->sources[i];
    return true;
}

/* Ranks of the communicator to ranks in MPI_COMM_WORLD. */
static enum rs_reason translate_neighbors(struct rs_comm *record)
{
    int n = record->num_sends + record->num_receives;
    int *from = malloc(((size_t)n + 1) * sizeof(int));
    MPI_Group group;

    if (from == NULL)
        return RS_REASON_MEMORY;
    memcpy(from, record->send_to, (size_t)n * sizeof(int));
    PMPI_Comm_group(record->comm, &group);
    PMPI_Group_translate_ranks(group, n, from, rs_process.world,
                               record->send_to);
    for (int i = 0; i < n; i++) {
        /* Not all MPIs pass MPI_PROC_NULL through. */
        if (from[i] == MPI_PROC_NULL)
            record->send_to[i] = MPI_PROC_NULL;
    }
    PMPI_Group_free(&group);
    free(from);
    return RS_ACCELERATED;
}

int rs_comm_send_slot(const struct rs_comm *comm, int i)
{
    (void)comm;
    return i;
}

/* Between two processes the k-th put lands in the k-th receive. On a Cartesian
 * topology the sender's block s lands in block s^1, so receives are added in
 * that order; on graphs in the order of the list. (MPI 4.1, 8.6) */
int rs_comm_receive_slot(const struct rs_comm *comm, int i)
{
    return comm->cartesian ? i ^ 1 : i;
}

bool rs_comm_has_strangers(MPI_Comm comm)
{
    MPI_Group group, known;
    int size, num_known;

    if (rs_name_find(comm) != NULL)
        return false;
    PMPI_Comm_group(comm, &group);
    PMPI_Group_intersection(group, rs_process.world, &known);
    PMPI_Group_size(group, &size);
    PMPI_Group_size(known, &num_known);
    PMPI_Group_free(&group);
    PMPI_Group_free(&known);
    return num_known < size;
}

/* ---- votes ---- */

enum rs_reason rs_comm_vote(struct rs_comm *comm, enum rs_reason reason)
{
    int mine = reason, all = 0;

    PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, comm->comm);
    return (enum rs_reason)all;
}

/* All processes on one node, or with engines that leave it? Agrees on the
 * communicator's id on the way: its first process numbers those it leads. */
static enum rs_reason first_vote(struct rs_comm *record, enum rs_reason reason)
{
    static atomic_uint_least64_t led;
    enum { REASON, NODE, NODE_BELOW, STAYS, ID, NUM };
    uint64_t mine[NUM], all[NUM];
    int rank;

    PMPI_Comm_rank(record->comm, &rank);
    mine[REASON] = reason;
    mine[NODE] = (uint64_t)rs_process.node;
    mine[NODE_BELOW] = ~mine[NODE];
    mine[STAYS] = reason == RS_ACCELERATED &&
                  !rsched_context_leaves_node(rs_context());
    mine[ID] = 0;
    if (rank == 0)
        mine[ID] = ((uint64_t)rs_process.rank << 24) |
                   (atomic_fetch_add(&led, 1) & 0xffffff);
    PMPI_Allreduce(mine, all, NUM, MPI_UINT64_T, MPI_MAX, record->comm);
    record->id = all[ID];
    if (all[REASON] == RS_ACCELERATED && all[STAYS] != 0 &&
        all[NODE] != ~all[NODE_BELOW])
        return RS_REASON_NODES;
    return (enum rs_reason)all[REASON];
}

/* ---- records ---- */

static void link_record(struct rs_comm *record)
{
    pthread_mutex_lock(&rs_process.lock);
    record->next = rs_comms;
    if (rs_comms != NULL)
        rs_comms->previous = record;
    rs_comms = record;
    pthread_mutex_unlock(&rs_process.lock);
}

static void unlink_record(struct rs_comm *record)
{
    pthread_mutex_lock(&rs_process.lock);
    if (record->next != NULL)
        record->next->previous = record->previous;
    if (record->previous != NULL)
        record->previous->next = record->next;
    else
        rs_comms = record->next;
    for (int kind = 0; kind < RS_NUM_KINDS; kind++)
        rs_count_accelerated((enum rs_call)kind, record->calls[kind]);
    rs_count_loads(record->loads);
    if (record->channel != NULL)
        rs_count_retire(record->channel, false);
    pthread_mutex_unlock(&rs_process.lock);
}

void rs_comm_hold(struct rs_comm *comm)
{
    atomic_fetch_add_explicit(&comm->refs, 1, memory_order_relaxed);
}

void rs_comm_drop(struct rs_comm *comm)
{
    /* acq_rel: whoever frees must see what the others did with it. */
    if (atomic_fetch_sub_explicit(&comm->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (comm->errhandler != MPI_ERRHANDLER_NULL)
        PMPI_Errhandler_free(&comm->errhandler);
    rs_channels_close(comm);
    pthread_mutex_destroy(&comm->lock);
    free(comm->send_to);
    free(comm);
}

/* The communicator is being freed. Requests made on it live on. */
int rs_comm_deleted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    struct rs_comm *record = value;

    (void)keyval;
    (void)extra;
    PMPI_Comm_get_errhandler(comm, &record->errhandler);
    unlink_record(record);
    record->comm = MPI_COMM_NULL;
    rsched_exchange_destroy(record->channel);
    rs_on_gpu_fini(&record->on_gpu);
    for (int kind = 0; kind < RS_NUM_KINDS; kind++)
        rs_plan_destroy(record->plans[kind]);
    rs_comm_drop(record);
    return MPI_SUCCESS;
}

void rs_comm_sweep(void)
{
    while (rs_comms != NULL)
        PMPI_Comm_delete_attr(rs_comms->comm, rs_process.comm_keyval);
}

static enum rs_reason set_up(struct rs_comm *record, int topology)
{
    enum rs_reason reason;

    if (rs_comm_has_strangers(record->comm))
        return RS_REASON_WORLD;
    if (!get_neighbors(record, topology))
        reason = RS_REASON_MEMORY;
    else
        reason = translate_neighbors(record);
    if (reason == RS_ACCELERATED && rs_context() == NULL)
        reason = RS_REASON_CONTEXT;
    return first_vote(record, reason);
}

static struct rs_comm *record_allocate(MPI_Comm comm)
{
    struct rs_comm *record = calloc(1, sizeof(*record));

    if (record == NULL)
        return NULL;
    atomic_init(&record->refs, 1);
    record->comm = comm;
    record->errhandler = MPI_ERRHANDLER_NULL;
    pthread_mutex_init(&record->lock, NULL);
    return record;
}

/* Out of memory here leaves nothing to vote with. */
static struct rs_comm *record_create(MPI_Comm comm, int topology)
{
    struct rs_comm *record = record_allocate(comm);

    if (record == NULL) {
        rs_log(RS_LOG_ERROR, "out of memory");
        PMPI_Abort(comm, 1);
        return NULL;
    }
    record->blocking = RS_ACCELERATED;
    record->reason = record->nonblocking = set_up(record, topology);
    if (record->reason == RS_ACCELERATED)
        record->reason = rs_channels_open(record);
    if (record->reason != RS_ACCELERATED)
        rs_log(RS_LOG_INFO, "communicator %llx is native: %s",
               (unsigned long long)record->id,
               rs_reason_texts[record->reason]);
    link_record(record);
    PMPI_Comm_set_attr(comm, rs_process.comm_keyval, record);
    return record;
}

struct rs_comm *rs_comm_describe(MPI_Comm comm, int topology,
                                 const struct rs_lists *lists,
                                 enum rs_reason *reason)
{
    struct rs_comm *record = NULL;
    bool good;

    *reason = RS_REASON_WORLD;
    if (rs_comm_has_strangers(comm))
        return NULL;
    *reason = RS_REASON_MEMORY;
    record = record_allocate(comm);
    if (record == NULL)
        return NULL;
    if (lists != NULL)
        good = copy_neighbors(record, lists);
    else
        good = get_neighbors(record, topology);
    if (good)
        good = translate_neighbors(record) == RS_ACCELERATED;
    PMPI_Comm_get_errhandler(comm, &record->errhandler);
    record->comm = MPI_COMM_NULL;
    if (!good) {
        rs_comm_drop(record);
        return NULL;
    }
    return record;
}

/* The record or NULL, and then the topology that one could be made of, or
 * MPI_UNDEFINED and the reason. */
static struct rs_comm *look_up(MPI_Comm comm, int *topology,
                               enum rs_reason *reason)
{
    struct rs_comm *record;
    int found, inter;

    *topology = MPI_UNDEFINED;
    *reason = rs_process.reason;
    if (*reason != RS_ACCELERATED)
        return NULL;
    *reason = RS_REASON_ARGUMENT;
    if (comm == MPI_COMM_NULL)
        return NULL;
    if (PMPI_Comm_get_attr(comm, rs_process.comm_keyval, &record, &found) !=
        MPI_SUCCESS)
        return NULL;
    if (found)
        return record;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter)
        *reason = RS_REASON_INTERCOMM;
    else
        *topology = rs_topology(comm);
    return NULL;
}

struct rs_comm *rs_comm_get(MPI_Comm comm, enum rs_reason *reason)
{
    int topology;
    struct rs_comm *record = look_up(comm, &topology, reason);

    if (record == NULL && topology == MPI_UNDEFINED)
        return NULL;
    if (record == NULL)
        record = record_create(comm, topology);
    *reason = record->reason;
    return record->reason == RS_ACCELERATED ? record : NULL;
}

void rs_comm_prepare(MPI_Comm comm)
{
    enum rs_reason reason;

    if (comm != MPI_COMM_NULL)
        rs_comm_get(comm, &reason);
}

struct rs_comm *rs_comm_find(MPI_Comm comm, enum rs_reason *reason)
{
    int topology;
    struct rs_comm *record = look_up(comm, &topology, reason);

    if (record == NULL) {
        if (topology != MPI_UNDEFINED)
            *reason = RS_REASON_UNPREPARED;
        return NULL;
    }
    *reason = record->reason;
    return record->reason == RS_ACCELERATED ? record : NULL;
}

/* ---- exchanges ---- */

/* In the last error, say what the tag was made of. */
static void name_exchange(const struct rs_comm *comm, uint64_t tag, int error)
{
    const char *said = rsched_last_error();
    char prefix[64], owner[64], text[1024];
    size_t length;

    length = (size_t)snprintf(prefix, sizeof(prefix), "making exchange %llu",
                              (unsigned long long)tag);
    if (strncmp(said, prefix, length) != 0)
        return;
    if ((comm->id & RS_ID_LISTED) != 0)
        snprintf(owner, sizeof(owner), "the topology with tag %u",
                 (unsigned)comm->id);
    else
        snprintf(owner, sizeof(owner), "communicator %llx",
                 (unsigned long long)comm->id);
    snprintf(text, sizeof(text), "making exchange %u of %s%s",
             (unsigned)(tag & 0xffff), owner, said + length);
    rsched_fail(error, text);
}

int rs_comm_exchange_create(struct rs_comm *comm, const struct rs_plan *plan,
                            unsigned flags, struct rsched_exchange **exchange)
{
    struct rsched_exchange_params params = {
        .pattern = plan->pattern,
        .send = plan->sends,
        .receive = plan->receives,
        .tag = (comm->id << 16) | (comm->creations++ & 0xffff),
        .flags = flags,
    };
    int error = rsched_exchange_create(rs_context(), &params, exchange);

    if (error == 0)
        return 0;
    name_exchange(comm, params.tag, error);
    rs_log(error == RSCHED_ETRUNC ? RS_LOG_ERROR : RS_LOG_WARN, "%s",
           rsched_last_error());
    return error;
}

/* Two votes: one rank's plan may have failed before (the caller's vote), and
 * one rank's creation may fail, which only its neighbors know. */
int rs_comm_exchange(struct rs_comm *comm, const struct rs_plan *plan,
                     unsigned flags, struct rsched_exchange **exchange,
                     enum rs_reason *reason)
{
    struct rsched_exchange *made = NULL;
    int error = rs_comm_exchange_create(comm, plan, flags, &made);
    int mine[2] = {error != 0, error == RSCHED_ETRUNC}, all[2] = {0, 0};

    PMPI_Allreduce(mine, all, 2, MPI_INT, MPI_MAX, comm->comm);
    *reason = RS_ACCELERATED;
    if (!all[0]) {
        *exchange = made;
        return MPI_SUCCESS;
    }
    if (error == 0)
        rsched_exchange_destroy(made);
    *reason = RS_REASON_SETUP;
    /* More than is expected is the program's error, and native MPIs hang or corrupt
     * memory there. Less is one, too, by the standard, but they take it. */
    return all[1] ? rs_raise(comm, MPI_ERR_TRUNCATE) : MPI_SUCCESS;
}
