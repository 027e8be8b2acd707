/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lower bound on the makespan of every schedule of a set of puts: no order
 * and no choice of engines beats it. It is the bound of the numerical study
 * behind this project (its reference values are reproduced to the ps), proved
 * below.
 *
 * Suppose exactly m engines have a queue. Then the makespan T is at least
 *
 * - longest put: command + bytes / rate of the fastest engine;
 * - each link that a put uses on any engine: command + load / capacity, since
 *   no byte moves before the first command is done;
 * - node: command + total / ceiling, likewise;
 * - engines: m engines have m*T of time. D of it moves nothing: the k-th engine
 *   opens at k*open and every put takes a command, so
 *   D = open*m(m-1)/2 + n*command. When a engines move bytes, the node injects
 *   at most f(a), the sum of the a largest steps or the ceiling, whichever is
 *   less; a step is what one more engine adds, the largest first, so f is
 *   concave. For any j < m it lies below the line f(j) + (a-j)*d with
 *   d = f(j+1) - f(j); integrated over T, with the integral of a being at most
 *   m*T - D: total <= T * (f(j) + (m-j)*d) - d*D.
 *   (With equal engines, j = 0 is the water-filling of the engines, and the
 *   j-th engine that just exceeds the ceiling gives the other line.)
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
    const struct rs_fluid_route *routes; /* what is used on any engine */
    size_t num_routes;
    const uint64_t *capacity; /* of each resource */
    size_t num_resources;
    uint64_t ceiling; /* of all puts together, bytes/s, or RSCHED_UNLIMITED */
    uint32_t num_engines;
    const uint64_t *steps; /* what each further engine adds to the rate of all
                              at most, bytes/s; decreasing, the first not 0 */
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
