/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fluid simulator for many nodes: the rules of models/fluid.h, for inputs
 * with tens of thousands of engines. fluid.h shares all rates out anew at
 * every event; here models/fairness.h keeps them up to date. Rates that would
 * rise by less than 1 byte/s stay; beside that, time, units and rounding are
 * those of fluid.h, capacities are respected exactly, and the same input gives
 * the same output everywhere.
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
 * Cost: O(log engines) per event, and for each rate that changes the length of
 * its route and the puts that it meets at its bottleneck.
 */
int rs_network_run(const struct rs_fluid *fluid, struct rs_fluid_times *times,
                   uint64_t *makespan, struct rs_network_effort *effort,
                   rs_network_progress *progress, void *arg);

#endif
