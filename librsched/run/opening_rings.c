/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The neighbors of an opening that its kernels reach by rings. Nobody of the host
 * goes on with what they move, so the opening's thread looks whether the neighbors
 * are still there, and says which are not. Only a kernel knows whether it waits for
 * one of these: what the thread finds counts as a failure of the opening once a
 * kernel has told that it has failed.
 */
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/run/opening.h"

/* @return 0, or the error of the first ring by which a kernel has failed, or why
 * that is not to be known */
static int find_failure(const struct rsched_opening *o)
{
    const struct rsched_device_lane *lane;
    const struct rs_opening_gpu *own;
    int error = rs_opening_memory_look(o, &own);

    if (error != 0)
        return error;
    lane = own->lanes;
    for (uint32_t i = 0; i < o->neighbors.number && error == 0; i++) {
        const struct rs_neighbor *n = &o->neighbors.of[i];

        if (n->ring == NULL)
            continue;
        error = n->ops->ring_status(n->ring, lane++);
        if (error != 0 && n->gone != NULL)
            rs_fail(error, "%s", n->gone);
    }
    rs_opening_memory_looked(o, own);
    return error;
}

void rs_opening_settle(struct rsched_opening *o)
{
    /* Acquire: the lane's failure comes before it. */
    int told = (int)rsched_device_load32((const uint32_t *)&o->host->told);

    if (told != 0 && o->error == 0)
        rs_opening_note(o, told, find_failure(o) != 0
                                     ? rsched_last_error()
                                     : rsched_strerror(told));
}

/* Nothing more comes by a ring, for the reason of the last error. */
static void note_gone(struct rsched_opening *o, struct rs_neighbor *n,
                      uint32_t ring, int error)
{
    pthread_mutex_lock(&o->lock);
    n->gone = strdup(rsched_last_error());
    /* Release: a kernel that sees it sees all that has come, and fails with a
     * text that is there. */
    rsched_device_store32((uint32_t *)&o->host->gone[1 + ring],
                          (uint32_t)error);
    rsched_device_store32((uint32_t *)&o->host->gone[0], 1);
    pthread_mutex_unlock(&o->lock);
}

void rs_opening_look(struct rsched_opening *o)
{
    uint32_t ring = 0;

    rs_context_look(o->sets[0]->context);
    for (uint32_t i = 0; i < o->neighbors.number; i++) {
        struct rs_neighbor *n = &o->neighbors.of[i];
        int error;

        if (n->ring == NULL)
            continue;
        error = n->gone == NULL ? n->ops->ring_check(n->ring) : 0;
        if (error != 0)
            note_gone(o, n, ring, error);
        ring++;
    }
}

void rs_opening_abandon_rings(const struct rsched_opening *o)
{
    for (uint32_t i = 0; i < o->neighbors.number; i++) {
        const struct rs_neighbor *n = &o->neighbors.of[i];

        if (n->ring != NULL)
            n->ops->ring_abandon(n->ring);
    }
}

/* The exchanges have failed: neighbors must not wait for what will not come. */
static void give_up(struct rsched_opening *o)
{
    struct rsched_context *context = o->sets[0]->context;

    for (int set = 0; set < 2; set++) {
        rs_exchange_own(o->sets[set]);
        rs_exchange_end(o->sets[set]);
        rs_exchange_fail(o->sets[set], rsched_opening_check(o));
    }
    pthread_mutex_lock(&context->lock);
    rs_opening_abandon_rings(o);
    pthread_mutex_unlock(&context->lock);
    for (int set = 0; set < 2; set++)
        rs_exchange_await_writers(o->sets[set]);
    rs_safety_watch(context);
    o->active = false;
    o->given_up = true;
}

void rs_opening_give_up(struct rsched_opening *o)
{
    bool failed;

    pthread_mutex_lock(&o->lock);
    rs_opening_settle(o);
    failed = o->error != 0 && !o->stopped;
    pthread_mutex_unlock(&o->lock);
    if (failed && !o->given_up)
        give_up(o);
}

static bool goes_by_ring(const struct rsched_opening *o,
                         const struct rs_edge *edge)
{
    return rs_neighbors_at(&o->neighbors, edge->peer->process)->ring != NULL;
}

void rs_opening_divide(struct rsched_opening *o, bool open)
{
    for (int set = 0; set < 2; set++) {
        struct rsched_exchange *x = o->sets[set];

        for (uint32_t i = 0; i < x->num_out; i++)
            x->out[i].by_kernel = open && goes_by_ring(o, &x->out[i]);
        for (uint32_t i = 0; i < x->num_in; i++)
            x->in[i].by_kernel = open && goes_by_ring(o, &x->in[i]);
        rs_exchange_list_lanes(x);
        x->open = open;
    }
}

bool rs_opening_is_idle(const struct rsched_opening *o)
{
    const struct rs_opening_gpu *own;
    bool idle;

    if (o->num_rings == 0)
        return true;
    if (rs_opening_memory_look(o, &own) != 0)
        return false;
    idle = own->view.status == 0 && own->view.complete == own->view.epochs;
    rs_opening_memory_looked(o, own);
    return idle;
}

void rs_opening_ring_stats(const struct rsched_opening *o,
                           struct rsched_opening_stats *stats)
{
    const struct rs_opening_gpu *own;

    if (o->num_rings == 0 || rs_opening_memory_look(o, &own) != 0)
        return;
    for (uint32_t i = 0; i < o->num_rings; i++)
        stats->doorbells += rsched_device_load(&own->lanes[i].posted);
    if (!o->proxied) {
        stats->asked = rsched_device_load(&own->view.epochs);
        stats->completed = rsched_device_load(&own->view.complete);
    }
    rs_opening_memory_looked(o, own);
}
