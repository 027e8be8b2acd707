/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fluid simulator for many nodes: the rules of models/fluid.h, for inputs
 * with tens of thousands of engines. fluid.h shares all rates out anew at
 * every event; here an event touches only the puts whose rates it can change:
 *
 * - Every put in flight remembers its bottleneck: the resource that gave it
 *   its rate, or none when its engine did. When puts begin or end, the puts
 *   whose bottleneck lies on their routes form the region.
 * - The region is shared out as in fluid.h, with all other rates kept. Then
 *   each resource that the region uses is looked at: a put outside that has
 *   more than the region's share there, or whose bottleneck has moved, joins
 *   the region, and it is shared out again, until nobody joins.
 *
 * At the end every put has either its engine's rate or a full resource on
 * which nobody has more: max-min fair rates, which are unique. Rates that
 * differ by less than 1 byte/s count as equal; beside that, time, units and
 * rounding are those of fluid.h, capacities are respected exactly, and the
 * same input gives the same output everywhere.
 */
#ifndef RS_MODELS_NETWORK_H
#define RS_MODELS_NETWORK_H

#include "models/fluid.h"

/** What a simulation took, for those who want to know how it grows. */
struct rs_network_effort {
    uint64_t rounds; /* instants at which something began or ended */
    uint64_t shared; /* puts whose rate was computed, added over all rounds */
};

/** Called now and then with the number of puts that have ended. */
typedef void rs_network_progress(void *arg, size_t ended, size_t puts);

/**
 * Simulate; the observer of `fluid` is not called.
 *
 * @param effort   or NULL
 * @param progress or NULL
 * @return as rs_fluid_run()
 *
 * Cost: O(log engines) per event, and per put of a region its route's length
 * and the puts that it meets there.
 */
int rs_network_run(const struct rs_fluid *fluid, struct rs_fluid_times *times,
                   uint64_t *makespan, struct rs_network_effort *effort,
                   rs_network_progress *progress, void *arg);

#endif
