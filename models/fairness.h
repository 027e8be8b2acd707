/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Max-min fair rates of many flows, kept up to date as flows begin and end.
 * The rates are those of models/fluid.h; a change is worked out without looking
 * at what it cannot reach.
 *
 * Picture all rates growing from zero together. A resource that is full stops
 * the flows on it: it is their bottleneck, and the rate at which that happens
 * is its level. When flows begin or end, the same picture is gone through
 * again, from the lowest level that can change upwards, but only for
 * resources that a change has reached:
 *
 * - one that has more room than before lets its flows go at its old level:
 *   they are open, and every resource on their routes is reached;
 * - one that is full below its old level stops all flows on it there; those
 *   that were faster leave room elsewhere, which reaches those resources.
 *
 * What is not reached stops its flows at its old level, as before. So each flow
 * is opened and stopped at most once, and the cost is that of the flows whose
 * rates change, and of the resources that those use.
 *
 * Rates that would rise by less than 1 byte/s stay, so that a change ends
 * somewhere. Capacities are respected exactly.
 */
#ifndef RS_MODELS_FAIRNESS_H
#define RS_MODELS_FAIRNESS_H

#include <stdbool.h>
#include "models/fluid.h"
#include "models/heap.h"

struct rs_flow {
    const uint32_t *resources; /* of its route */
    uint32_t num_resources;
    uint32_t bottleneck; /* a resource, or UINT32_MAX: its own most */
    uint64_t rate;       /* units of models/ticks.h */
    uint64_t most;       /* likewise: its engine's rate */
    bool open;           /* while rates are worked out: not stopped yet */
};

struct rs_fairness {
    struct rs_flow *flows;
    struct rs_shared *resources;
    size_t num_resources;
    uint32_t *slots;  /* per flow and hop: place among the members */
    size_t longest;   /* hops of the longest route */
    uint64_t fastest; /* the largest `most` */
    struct rs_heap levels; /* resources by the level at which they are looked
                              at again: at most the one at which they stop
                              flows */
    struct rs_heap open;   /* flows by `most` */
    uint32_t *reached;     /* resources to be looked at */
    size_t num_reached;
    uint64_t stopped; /* flows whose rate was worked out, all together */
};

/** Told every rate that is another one; the flow has still its old one. */
typedef void rs_fairness_change(void *arg, uint32_t flow, uint64_t rate);

/**
 * @param capacity  per resource, bytes/s
 * @param num_flows that may be in flight
 * @param longest   hops of a route, at most
 * @return 0, RSCHED_ENOMEM; rs_fairness_fini() it in any case
 */
int rs_fairness_init(struct rs_fairness *fairness, const uint64_t *capacity,
                     size_t num_resources, size_t num_flows, size_t longest);
void rs_fairness_fini(struct rs_fairness *fairness);

/** A flow that is not in flight begins. @param most in units
 * @return 0, RSCHED_ENOMEM */
int rs_fairness_begin(struct rs_fairness *fairness, uint32_t flow,
                      const struct rs_fluid_route *route, uint64_t most);

/** A flow ends. */
void rs_fairness_end(struct rs_fairness *fairness, uint32_t flow);

/** Work out all rates after flows have begun and ended. */
void rs_fairness_settle(struct rs_fairness *fairness,
                        rs_fairness_change *change, void *arg);

#endif
