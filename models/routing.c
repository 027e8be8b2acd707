/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/routing.h"

#include <stdlib.h>

#include <rsched/machine.h>

#include "librsched/base/error.h"

typedef unsigned __int128 wide;

enum { PASSES = 8 };

struct balance {
    const struct rs_topology *topology;
    const struct rs_transit *puts;
    uint32_t *choices;
    uint64_t *loads; /* per link, bytes */
    uint32_t *route; /* room for the longest */
};

/* How bad a route is: the first differing number decides. */
struct cost {
    uint64_t most; /* ps of the most loaded link */
    wide sum;      /* of all its links */
};

uint64_t rs_routing_time(const struct rs_topology *topology, uint32_t link,
                         uint64_t load)
{
    uint64_t capacity = rs_topology_capacity(topology, link);
    wide ps;

    if (capacity == RSCHED_UNLIMITED)
        return 0;
    ps = ((wide)load * 1000000000000u + capacity - 1) / capacity;
    return ps > UINT64_MAX ? UINT64_MAX : (uint64_t)ps;
}

static size_t route_put(const struct balance *b, size_t put, uint32_t choice)
{
    const struct rs_transit *p = &b->puts[put];

    return rs_topology_route(b->topology, p->source, p->destination,
                             p->engine, choice, b->route);
}

static void add_put(struct balance *b, size_t put, uint32_t choice)
{
    size_t hops = route_put(b, put, choice);

    for (size_t k = 0; k < hops; k++)
        b->loads[b->route[k]] += b->puts[put].bytes;
}

static void remove_put(struct balance *b, size_t put)
{
    size_t hops = route_put(b, put, b->choices[put]);

    for (size_t k = 0; k < hops; k++)
        b->loads[b->route[k]] -= b->puts[put].bytes;
}

/* The cost of adding a put to links that do not carry it. */
static struct cost cost_of(struct balance *b, size_t put, uint32_t choice)
{
    size_t hops = route_put(b, put, choice);
    struct cost cost = {0, 0};

    for (size_t k = 0; k < hops; k++) {
        uint32_t link = b->route[k];
        uint64_t ps = rs_routing_time(b->topology, link,
                                      b->loads[link] + b->puts[put].bytes);

        cost.most = ps > cost.most ? ps : cost.most;
        cost.sum += ps;
    }
    return cost;
}

static bool better(struct cost a, struct cost b)
{
    return a.most != b.most ? a.most < b.most : a.sum < b.sum;
}

static uint32_t choose(struct balance *b, size_t put)
{
    const struct rs_transit *p = &b->puts[put];
    uint32_t choices =
        rs_topology_choices(b->topology, p->source, p->destination);
    struct cost least = cost_of(b, put, 0);
    uint32_t chosen = 0;

    for (uint32_t i = 1; i < choices; i++) {
        struct cost cost = cost_of(b, put, i);

        if (better(cost, least)) {
            least = cost;
            chosen = i;
        }
    }
    return chosen;
}

/* A put and what it loads the network with. */
struct weight {
    wide weight;
    size_t put;
};

static int compare_weights(const void *left, const void *right)
{
    const struct weight *a = left, *b = right;

    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->put < b->put ? -1 : 1;
}

/* Route every put anew, the heaviest first. Returns how many changed. */
static size_t improve(struct balance *b, const struct weight *weights,
                      size_t num_puts)
{
    size_t changed = 0;

    for (size_t i = 0; i < num_puts; i++) {
        size_t put = weights[i].put;
        uint32_t before = b->choices[put], chosen;

        remove_put(b, put);
        chosen = choose(b, put);
        if (!better(cost_of(b, put, chosen), cost_of(b, put, before)))
            chosen = before;
        b->choices[put] = chosen;
        add_put(b, put, chosen);
        changed += chosen != before;
    }
    return changed;
}

static void balance(struct balance *b, struct weight *weights,
                    size_t num_puts)
{
    for (size_t i = 0; i < num_puts; i++) {
        weights[i].put = i;
        weights[i].weight = (wide)b->puts[i].bytes * route_put(b, i, 0);
    }
    qsort(weights, num_puts, sizeof(*weights), compare_weights);
    for (size_t i = 0; i < num_puts; i++) {
        size_t put = weights[i].put;

        b->choices[put] = choose(b, put);
        add_put(b, put, b->choices[put]);
    }
    for (int pass = 0; pass < PASSES; pass++) {
        if (improve(b, weights, num_puts) == 0)
            return;
    }
}

int rs_routing_balance(const struct rs_topology *topology,
                       const struct rs_transit *puts, size_t num_puts,
                       uint32_t *choices)
{
    struct balance b = {.topology = topology, .puts = puts,
                        .choices = choices};
    struct weight *weights = calloc(num_puts + 1, sizeof(*weights));
    int error = 0;

    b.loads = calloc((size_t)topology->num_links + 1, sizeof(*b.loads));
    b.route = calloc(topology->longest + 1, sizeof(*b.route));
    if (weights == NULL || b.loads == NULL || b.route == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to route %zu puts", num_puts);
    else
        balance(&b, weights, num_puts);
    free(b.route);
    free(b.loads);
    free(weights);
    return error;
}

int rs_routing_loads(const struct rs_topology *topology,
                     const struct rs_transit *puts, size_t num_puts,
                     const uint32_t *choices, uint64_t *loads)
{
    struct balance b = {.topology = topology, .puts = puts, .loads = loads};

    b.route = calloc(topology->longest + 1, sizeof(*b.route));
    if (b.route == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to route %zu puts", num_puts);
    for (size_t i = 0; i < num_puts; i++)
        add_put(&b, i, choices != NULL ? choices[i] : 0);
    free(b.route);
    return 0;
}
