/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lower bound on the makespan of every schedule of a set of puts: no order
 * and no choice of engines beats it. It is the bound of the numerical study
 * behind this project (its reference values are reproduced to the ps), proved
 * below.
 *
 * Suppose exactly m engines have a queue. Then the makespan T is at least
 *
 * - longest put: command + bytes / rate;
 * - each link: command + load / capacity, since no byte moves before the first
 *   command is done;
 * - node: command + total / ceiling, likewise;
 * - engines (water-fill): m engines have m*T of time. D of it moves nothing:
 *   the k-th engine opens at k*open and every put takes a command, so
 *   D = open*m(m-1)/2 + n*command, and total <= rate * (m*T - D);
 * - engines under the ceiling: when a engines move bytes the node injects at
 *   most min(ceiling, a*rate), which is concave in a. With f engines just
 *   below the ceiling, f = floor(ceiling/rate) < m, and d = ceiling - f*rate,
 *   it is below the line f*rate + (a-f)*d; integrated over T, with the
 *   integral of a being at most m*T - D:
 *   total <= T * (f*rate + (m-f)*d) - d*D.
 *
 * The bound is the least over m = 1 .. engines of the largest of these.
 */
#ifndef RS_MODELS_BOUND_H
#define RS_MODELS_BOUND_H

#include "models/fluid.h"

struct rs_bound {
    const uint64_t *bytes; /* of each put */
    const uint32_t *route; /* of each put */
    size_t num_puts;
    const struct rs_fluid_route *routes;
    size_t num_routes;
    const uint64_t *capacity; /* of each resource */
    size_t num_resources;
    int64_t ceiling; /* the resource that every put uses (the node), or -1 */
    uint32_t num_engines;
    uint64_t rate;    /* of an engine, bytes/s */
    uint64_t open;    /* ps */
    uint64_t command; /* ps */
};

/**
 * Compute the bound.
 *
 * @param input what moves, and over what
 * @param bound whole ps; 0 when there are no puts
 * @return 0, RSCHED_ELIMIT when it does not fit in 63 bits, RSCHED_ENOMEM
 */
int rs_bound_compute(const struct rs_bound *input, uint64_t *bound);

#endif
