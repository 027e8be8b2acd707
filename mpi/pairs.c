/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs and lanes: finding them, and how long they are there. */
#include "mpi/message.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

unsigned rs_num_pairs;
unsigned rs_num_open;
bool rs_unfenced;

/* By communicator, rank and direction. */
enum { BUCKETS = 256 };
static struct rs_pair *buckets[BUCKETS];
static struct rs_pair *all;
/* Some may be of no more use. Several threads may free communicators. */
static atomic_bool detached;

static struct rs_pair **bucket(MPI_Comm comm, bool sends, int peer)
{
    uint64_t key = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);

    key += (uint64_t)(2 * (unsigned)peer + sends) *
           UINT64_C(0xbf58476d1ce4e5b9);
    return &buckets[(key >> 40) % BUCKETS];
}

/* ---- finding ---- */

struct rs_pair *rs_pair_find(MPI_Comm comm, bool sends, int peer)
{
    for (struct rs_pair *p = *bucket(comm, sends, peer); p != NULL;
         p = p->next_same) {
        if (p->peer == peer && p->view.sends == sends && p->name->comm == comm)
            return p;
    }
    return NULL;
}

struct rs_pair *rs_pair_named(uint64_t id, bool sends, int world)
{
    struct rs_pair *p = all;

    while (p != NULL && (p->name->id != id || p->view.sends != sends ||
                         p->world != world))
        p = p->next_all;
    return p;
}

struct rs_pair *rs_pairs_first(void)
{
    return all;
}

void rs_pairs_visit(void (*visit)(struct rs_pair *pair))
{
    for (struct rs_pair *p = all; p != NULL; p = p->next_all)
        visit(p);
}

/* ---- making ---- */

static enum rs_reason locate(MPI_Comm comm, int peer, int *world)
{
    MPI_Group group;
    int local = MPI_UNDEFINED;

    PMPI_Comm_group(comm, &group);
    PMPI_Group_translate_ranks(group, 1, &peer, rs_process.world, world);
    PMPI_Group_translate_ranks(group, 1, &peer, rs_process.local, &local);
    PMPI_Group_free(&group);
    if (*world == MPI_UNDEFINED)
        return RS_REASON_WORLD;
    return local == MPI_UNDEFINED ? RS_REASON_NODES : RS_ACCELERATED;
}

static struct rs_pair *pair_create(struct rs_name *name, bool sends, int peer,
                                   enum rs_reason *reason)
{
    struct rs_pair **at = bucket(name->comm, sends, peer), *pair;
    int world;

    *reason = locate(name->comm, peer, &world);
    if (*reason != RS_ACCELERATED)
        return NULL;
    pair = calloc(1, sizeof(*pair));
    if (pair == NULL) {
        *reason = RS_REASON_MEMORY;
        return NULL;
    }
    pair->name = name;
    pair->handle = name->comm;
    name->refs++;
    pair->peer = peer;
    pair->world = world;
    pair->view.sends = sends;
    pair->fd = -1;
    pair->back = rs_pair_find(name->comm, !sends, peer);
    if (pair->back != NULL)
        pair->back->back = pair;
    pair->next = name->pairs;
    name->pairs = pair;
    pair->next_same = *at;
    *at = pair;
    pair->next_all = all;
    if (all != NULL)
        all->previous_all = pair;
    all = pair;
    rs_num_pairs++;
    return pair;
}

/* It is to be used again, or goes. */
static void unretire(struct rs_lane *lane)
{
    if (lane->idle != NULL)
        *lane->idle = NULL;
    lane->idle = NULL;
}

struct rs_lane *rs_lane_of(struct rs_pair *pair, int tag)
{
    struct rs_lane *lane = rs_lane_find(pair, tag);
    enum rs_stay stay;

    if (lane != NULL) {
        unretire(lane);
        return lane;
    }
    lane = calloc(1, sizeof(*lane));
    if (lane == NULL)
        return NULL;
    lane->pair = pair;
    lane->tag = tag;
    lane->sync = MPI_REQUEST_NULL;
    rs_lane_add(lane);
    stay = pair->view.sends
               ? RS_STAYS_NOT
               : rs_is_covered(pair->name->comm, pair->peer, tag);
    if (stay != RS_STAYS_NOT)
        rs_lane_bar(lane, stay);
    return lane;
}

/* ---- life ---- */

/* Synchronous messages whose lanes are gone, or are of no more use, since the program
 * has freed the communicator and all requests: from 4.2 on MPICH keeps a communicator
 * until somebody has found them complete. They are not looked at while one is being
 * freed: MPICH's requests to oneself do not survive that. */
struct orphan {
    struct orphan *next;
    MPI_Request request;
    char *bytes;
};

static struct orphan *orphans;
unsigned rs_num_orphans;
static _Thread_local unsigned frees; /* of communicators that this thread is in */

static void leave_orphan(struct rs_lane *lane)
{
    struct orphan *orphan = malloc(sizeof(*orphan));

    if (orphan == NULL)
        return; /* and its bytes stay */
    *orphan = (struct orphan){orphans, lane->sync, lane->copy};
    orphans = orphan;
    rs_num_orphans++;
    lane->sync = MPI_REQUEST_NULL;
    lane->copy = NULL;
}

void rs_orphans_reap(void)
{
    struct orphan *orphan, *left = orphans;

    if (rs_num_orphans == 0 || frees > 0)
        return;
    /* A communicator may go with one, and functions of the program's with that, which
     * may come here. */
    orphans = NULL;
    while ((orphan = left) != NULL) {
        int done;

        left = orphan->next;
        PMPI_Test(&orphan->request, &done, MPI_STATUS_IGNORE);
        if (done) {
            rs_num_orphans--;
            free(orphan->bytes);
            free(orphan);
        } else {
            orphan->next = orphans;
            orphans = orphan;
        }
    }
}

static void end_orphans(void)
{
    struct orphan *orphan;

    rs_orphans_reap();
    while ((orphan = orphans) != NULL) {
        orphans = orphan->next;
        PMPI_Request_free(&orphan->request); /* and its bytes stay */
        free(orphan);
        rs_num_orphans--;
    }
}

static void pair_unlink(struct rs_pair *pair)
{
    struct rs_pair **at = &pair->name->pairs;

    if (pair->back != NULL)
        pair->back->back = NULL;
    while (*at != pair)
        at = &(*at)->next;
    *at = pair->next;
    at = bucket(pair->handle, pair->view.sends, pair->peer);
    while (*at != pair)
        at = &(*at)->next_same;
    *at = pair->next_same;
    if (pair->next_all != NULL)
        pair->next_all->previous_all = pair->previous_all;
    if (pair->previous_all != NULL)
        pair->previous_all->next_all = pair->next_all;
    else
        all = pair->next_all;
}

static void lane_destroy(struct rs_lane *lane)
{
    unretire(lane);
    rs_cohort_leave(lane);
    rs_lane_remove(lane);
    if (lane->sync != MPI_REQUEST_NULL)
        leave_orphan(lane);
    free(lane);
}

/* No request of the pair's is left, nor will there be one. */
static void leave_orphans(struct rs_pair *pair)
{
    for (struct rs_lane *lane = pair->lanes; lane != NULL; lane = lane->next) {
        if (lane->sync != MPI_REQUEST_NULL)
            leave_orphan(lane);
    }
}

static void pair_destroy(struct rs_pair *pair)
{
    pair_unlink(pair);
    if (!pair->view.sends && pair->view.words != NULL)
        rs_notes_leave(pair);
    rs_num_alone -= rs_pair_is_alone(&pair->view);
    while (pair->lanes != NULL)
        lane_destroy(pair->lanes);
    /* The other side's mapping keeps the memory as long as it is needed. */
    if (pair->view.words != NULL)
        rs_pair_unmap(pair, pair->view.words);
    if (pair->fd >= 0)
        close(pair->fd);
    rs_gpu_link_destroy(pair->gpu);
    rs_sender_put(pair->sender);
    rsched_pull_group_destroy(pair->sources);
    rs_name_drop(pair->name);
    rs_num_pairs--;
    free(pair->attached);
    free(pair->slots);
    free(pair->touched);
    free(pair);
}

/* One that is made for its tag later has to know no more than what rs_is_covered()
 * does. */
static bool is_forgettable(const struct rs_lane *lane)
{
    return lane->requests == 0 && !lane->attached && lane->posted == 0 &&
           lane->sync == MPI_REQUEST_NULL;
}

/* In the place of the one that has been idle for longest. */
static void retire(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;
    struct rs_lane **at = &pair->idle[pair->retired++ % RS_IDLE_LANES];

    if (*at != NULL)
        lane_destroy(*at);
    *at = lane;
    lane->idle = at;
}

void rs_lane_release(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;

    if (--lane->requests == 0) {
        rs_cohort_leave(lane);
        pair->num_used -= lane->attached;
    }
    if (is_forgettable(lane))
        retire(lane);
    if (--pair->requests > 0)
        return;
    if (pair->name->comm == MPI_COMM_NULL)
        pair_destroy(pair);
    else if (pair->name->is_freed)
        leave_orphans(pair);
}

void rs_pairs_comm_free(MPI_Comm comm)
{
    for (struct rs_pair *pair = all; pair != NULL; pair = pair->next_all) {
        if (comm == MPI_COMM_NULL || pair->name->comm != comm)
            continue;
        pair->name->is_freed = true;
        if (pair->requests == 0)
            leave_orphans(pair);
    }
    rs_orphans_reap();
    frees++;
}

void rs_pairs_comm_freed(void)
{
    frees--;
}

/* MPICH frees a communicator, and calls this, when the last request on it is
 * complete, which may be anywhere inside a completion call. */
void rs_pairs_detach(void)
{
    atomic_store_explicit(&detached, true, memory_order_relaxed);
}

static void reap_detached(void)
{
    struct rs_pair *next;

    atomic_store_explicit(&detached, false, memory_order_relaxed);
    for (struct rs_pair *pair = all; pair != NULL; pair = next) {
        next = pair->next_all;
        if (pair->name->comm == MPI_COMM_NULL && pair->requests == 0)
            pair_destroy(pair);
    }
}

struct rs_lane *rs_lane_hold(struct rs_name *name, bool sends, int peer,
                             int tag, enum rs_reason *reason)
{
    struct rs_pair *pair;
    struct rs_lane *lane;

    rs_orphans_reap();
    if (atomic_load_explicit(&detached, memory_order_relaxed))
        reap_detached();
    *reason = RS_ACCELERATED;
    pair = rs_pair_find(name->comm, sends, peer);
    if (pair == NULL)
        pair = pair_create(name, sends, peer, reason);
    if (pair == NULL)
        return NULL;
    lane = rs_lane_of(pair, tag);
    if (lane == NULL) {
        *reason = RS_REASON_MEMORY;
        return NULL;
    }
    pair->requests++;
    if (lane->requests++ == 0) {
        rs_cohort_join(lane);
        pair->num_used += lane->attached;
    }
    return lane;
}

void rs_pairs_fini(void)
{
    while (all != NULL)
        pair_destroy(all);
    rs_lanes_fini();
    end_orphans();
}
