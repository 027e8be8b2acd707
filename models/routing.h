/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of its minimal routes each put takes: the step before scheduling that
 * lowers the largest link load. Order and engines cannot help a link that has
 * too much to carry; another route can.
 */
#ifndef RS_MODELS_ROUTING_H
#define RS_MODELS_ROUTING_H

#include "models/topology.h"

/** A put between two nodes. */
struct rs_transit {
    uint32_t source, destination; /* nodes */
    uint32_t engine;
    uint64_t bytes;
};

/**
 * Choose. The puts with most bytes times hops first; each takes the route on
 * which the most loaded link, loads counted in time at capacity, stays lowest,
 * then the one with the least sum of loads, then the first. Puts on the most
 * loaded links are then routed anew while that lowers anything.
 *
 * @param choices per put, for rs_topology_route()
 * @return 0, RSCHED_ENOMEM
 */
int rs_routing_balance(const struct rs_topology *topology,
                       const struct rs_transit *puts, size_t num_puts,
                       uint32_t *choices);

/**
 * Loads of links.
 *
 * @param choices per put, or NULL for choice 0 everywhere
 * @param loads   per link, bytes; added to
 * @return 0, RSCHED_ENOMEM
 */
int rs_routing_loads(const struct rs_topology *topology,
                     const struct rs_transit *puts, size_t num_puts,
                     const uint32_t *choices, uint64_t *loads);

/** What a link takes for its load, ps; 0 when it is unlimited. */
uint64_t rs_routing_time(const struct rs_topology *topology, uint32_t link,
                         uint64_t load);

#endif
