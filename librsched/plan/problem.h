/* SPDX-License-Identifier: BSD-3-Clause */
/* What planners see: a pattern on a machine, in plain arrays. */
#ifndef RS_PLAN_PROBLEM_H
#define RS_PLAN_PROBLEM_H

#include <stdbool.h>

#include <rsched/machine.h>
#include <rsched/pattern.h>
#include <rsched/schedule.h>

#include "models/fluid.h"

/** All puts of one direction have one route for each rail. */
struct rs_direction {
    const char *name;
    uint32_t rank;  /* the second sort key */
    bool diagonal;  /* the route has more than one link */
    bool colored;   /* it has a name, and its puts share a link, whichever rails
                     * they take: two at a time are contention */
    uint32_t crossings; /* of its puts' bytes: of engine and links */
};

/** Nodes that a proof may take, unless the caller says otherwise. */
#define RS_NODES_MOST UINT64_C(12000000)

struct rs_problem {
    const struct rsched_pattern *pattern;
    const struct rsched_machine *machine;
    struct rsched_machine_costs costs;
    /* What is planned are parts; a put that is not cut is one part, with the
     * put's number. Everywhere below a "put" is a part. */
    size_t num_puts;
    struct rsched_part *parts; /* of each put */
    uint64_t *bytes;      /* of each put, once for each crossing */
    uint32_t *direction;  /* of each put: number in `directions` */
    uint32_t *by_bytes;   /* the puts, the longest first, then by number */
    size_t num_directions;
    struct rs_direction *directions;
    /* For the simulator: the resources are the machine's links, then the node.
     * Unlimited ones are left out of the routes. */
    size_t num_rails; /* engine e is on rail e modulo this */
    uint64_t *rates;  /* per rail: of its engines, bytes/s */
    uint64_t fastest, slowest; /* the largest and the smallest of them */
    struct rs_fluid_route *routes;  /* by direction, then by rail */
    struct rs_fluid_route *certain; /* by direction: what all its routes use */
    uint32_t *route_resources;      /* what they point at */
    uint64_t *capacity;
    size_t num_resources;
    /* For planners that prove, as in rsched_plan_options. */
    uint64_t most_nodes;
    rsched_plan_progress *progress; /* or NULL */
    void *progress_arg;
    int64_t node; /* the resource of the node, or -1 when it is unlimited */
};

/** The rail of an engine. Not a division where there is but one. */
static inline size_t rs_problem_rail(const struct rs_problem *problem,
                                     uint32_t engine)
{
    return problem->num_rails == 1 ? 0 : engine % problem->num_rails;
}

/** The resources of a direction's puts on an engine. */
static inline const struct rs_fluid_route *
rs_problem_route(const struct rs_problem *problem, uint32_t direction,
                 uint32_t engine)
{
    return &problem->routes[direction * problem->num_rails +
                            rs_problem_rail(problem, engine)];
}

/** The rate of an engine, bytes/s. */
static inline uint64_t rs_problem_rate(const struct rs_problem *problem,
                                       uint32_t engine)
{
    return problem->rates[rs_problem_rail(problem, engine)];
}

/** Where a planner puts a put. */
struct rs_place {
    uint32_t engine;
    uint64_t order; /* puts of an engine are queued by this, then by id */
};

/** A further part of a put. */
struct rs_cut {
    uint32_t put;
    uint64_t bytes; /* that it takes from the put's first part */
};

/**
 * @param problem  filled; rs_problem_fini() it on success. Pattern and machine
 *                 must outlive it.
 * @param cuts     the parts after the first ones, which are numbered after all
 *                 puts; those of a put take its bytes from behind the first
 *                 part on, in this order
 * @param num_cuts may be 0
 * @return 0, RSCHED_EINVAL (a direction without a route, or cuts that take more
 *         than there is), RSCHED_ELIMIT (more than 2^60 bytes of a put cross its
 *         engine), RSCHED_ENOMEM
 */
int rs_problem_init(struct rs_problem *problem,
                    const struct rsched_pattern *pattern,
                    const struct rsched_machine *machine,
                    const struct rs_cut *cuts, size_t num_cuts);

void rs_problem_fini(struct rs_problem *problem);

/** What each further engine adds to the rate of all together at most, bytes/s,
 * the most first. @param steps filled, one per engine */
void rs_problem_steps(const struct rs_problem *problem, uint64_t *steps);

/** The lower bound of the makespan, ps. @return as rs_bound_compute() */
int rs_problem_bound(const struct rs_problem *problem, uint64_t *bound);

/**
 * The queues that places mean.
 *
 * @param queues filled: per engine its first position in `order`, and one more
 *               entry
 * @param order  filled: put ids, engine by engine
 * @return 0, RSCHED_ENOMEM
 */
int rs_problem_queue(const struct rs_problem *problem,
                     const struct rs_place *places, size_t *queues,
                     uint32_t *order);

/**
 * Simulate queues.
 *
 * @param queues  per engine its first position in `order`, and one more entry
 * @param order   put ids, engine by engine
 * @param observe may be NULL
 * @return as rs_fluid_run()
 */
int rs_problem_simulate(const struct rs_problem *problem, const size_t *queues,
                        const uint32_t *order, rs_fluid_observe *observe,
                        void *arg, struct rs_fluid_times *times,
                        uint64_t *makespan);

#endif
