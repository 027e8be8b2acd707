/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive engines. Two puts that reach one of them at a time share its rate,
 * so a plan gives each put one that no other uses then. */
#include <stdlib.h>

#include "librsched/base/error.h"
#include "librsched/world/world.h"

/* By destination, then in the order in which they arrive by plan. */
static int compare_arrivals(const void *left, const void *right, void *arg)
{
    const struct rs_world *world = arg;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const struct rs_transit *x = &world->transits[a], *y = &world->transits[b];

    if (x->destination != y->destination)
        return x->destination < y->destination ? -1 : 1;
    if (world->puts[a].data != world->puts[b].data)
        return world->puts[a].data < world->puts[b].data ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* The engine with the number of the sender's if that is free by then, else
 * the one that has been free for longest. */
static void assign(struct rs_world *world, uint32_t put, uint64_t *until)
{
    struct rs_world_put *w = &world->puts[put];
    uint32_t engine = world->transits[put].engine;

    for (uint32_t e = 0; until[engine] > w->data && e < world->num_engines;
         e++) {
        if (until[e] < until[engine])
            engine = e;
    }
    w->receive_engine = engine;
    if (w->finish > until[engine])
        until[engine] = w->finish;
}

static int plan_engines(struct rs_world *world)
{
    uint32_t *order = calloc(world->num_puts + 1, sizeof(*order));
    uint64_t *until = calloc(world->num_engines, sizeof(*until));

    if (order == NULL || until == NULL) {
        free(order);
        free(until);
        return rs_fail(RSCHED_ENOMEM, "no memory to plan %zu puts",
                       world->num_puts);
    }
    for (uint32_t i = 0; i < world->num_puts; i++)
        order[i] = i;
    qsort_r(order, world->num_puts, sizeof(*order), compare_arrivals, world);
    for (size_t i = 0; i < world->num_puts; i++) {
        if (i > 0 && world->transits[order[i]].destination !=
                         world->transits[order[i - 1]].destination) {
            for (uint32_t e = 0; e < world->num_engines; e++)
                until[e] = 0;
        }
        assign(world, order[i], until);
    }
    free(order);
    free(until);
    return 0;
}

/* Neighbors number their engines from different ones on: by one more with each
 * step in x, three in y, five in z. The receive engine has the number of the
 * send engine. This is what happens without a plan. */
static uint32_t turn_of(const struct rs_world *world, uint32_t node)
{
    uint32_t turn = 0;

    for (uint32_t d = 0; d < world->shape.num_dims; d++) {
        turn += (2 * d + 1) * (node % world->shape.dims[d]);
        node /= world->shape.dims[d];
    }
    return turn % world->num_engines;
}

static void scatter(struct rs_world *world)
{
    for (size_t i = 0; i < world->num_puts; i++) {
        struct rs_transit *transit = &world->transits[i];

        transit->engine = (transit->engine + turn_of(world, transit->source)) %
                          world->num_engines;
        world->puts[i].receive_engine = transit->engine;
    }
}

int rs_world_receive(struct rs_world *world, enum rs_world_receive receive)
{
    for (size_t i = 0; i < world->num_puts; i++)
        world->puts[i].receive_engine = world->transits[i].engine;
    if (receive == RS_RECEIVE_UNCOORDINATED)
        scatter(world);
    return receive == RS_RECEIVE_PLANNED ? plan_engines(world) : 0;
}
