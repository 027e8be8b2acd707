/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fluid simulator: what a set of queues takes when puts in flight share
 * resources max-min fairly. Event-driven; between two events all rates are
 * constant. It knows engines, resources and puts, nothing of nodes, machines
 * or schedules: one node with link classes and a machine of many nodes are
 * the same to it.
 *
 * Integers only, so that the same input gives the same output everywhere:
 *
 * - Time runs in ticks of 1/1024 ps. A put ends at the first tick at which all
 *   its bytes have moved; what is reported is rounded up to whole ps.
 * - Rates are in units of 2^-16 bytes/s. The bytes that remain of a put are
 *   kept exactly, in units of 2^-26 byte ps/s, in 128 bits.
 * - Fair shares: with all rates at zero, repeat until every put has its rate:
 *   among the resources that puts without a rate use, take the least share
 *   floor(capacity left / puts without a rate), of the lowest resource number
 *   when several are equal. If engines have a rate of at most that share,
 *   their puts get the engine's rate; else all puts without a rate on that
 *   resource get the share. Whatever was given is taken off the capacities.
 *   The remainder of a division stays in the capacity left: it is below one
 *   unit per put, less than a byte in 18 hours.
 *
 * All roundings are on the slow side, so the simulated execution is one that
 * the resources allow, and lower bounds hold for it exactly. An error of a
 * tick per event is what is left: 1 ns in a million events.
 */
#ifndef RS_MODELS_FLUID_H
#define RS_MODELS_FLUID_H

#include <stddef.h>
#include <stdint.h>

/** The resources that a put uses, each at most once. */
struct rs_fluid_route {
    const uint32_t *resources;
    size_t num_resources;
};

/** An engine: a first-in first-out queue of puts. */
struct rs_fluid_engine {
    uint64_t rate;    /* most that one of its puts gets, bytes/s */
    uint64_t opens;   /* when it turns to its first put, ps */
    uint64_t command; /* before the bytes of each put move, ps */
    const uint32_t *queue; /* put ids in order; each put is in one queue */
    size_t num_queue;
};

/** What happened to a put; all in ps from the start. */
struct rs_fluid_times {
    uint64_t start;  /* the engine turned to it */
    uint64_t data;   /* its first byte moved */
    uint64_t finish; /* its last byte has moved */
};

/**
 * Called for every stretch of time with constant rates, in order, if any put
 * is in flight.
 *
 * @param from  ps
 * @param to    ps, above `from`
 * @param puts  per engine: the put in flight, or UINT32_MAX
 * @param rates per engine: its rate in bytes/s, 0 when nothing is in flight
 */
typedef void rs_fluid_observe(void *arg, uint64_t from, uint64_t to,
                              const uint32_t *puts, const uint64_t *rates);

/** What is simulated. All rates and capacities are from 1 to RS_RATE_MOST. */
struct rs_fluid {
    const uint64_t *capacity; /* of each resource, bytes/s */
    size_t num_resources;
    const struct rs_fluid_route *routes;
    const uint64_t *bytes;  /* of each put */
    const uint32_t *route;  /* of each put: a number of a route */
    const struct rs_fluid_engine *engines;
    size_t num_engines;
    rs_fluid_observe *observe; /* or NULL */
    void *arg;                 /* of observe */
};

/**
 * Simulate.
 *
 * @param fluid    the input
 * @param times    per put; only those in a queue are written; or NULL
 * @param makespan when the last put ends, ps
 * @return 0; RSCHED_ELIMIT when it takes longer than 2 hours of simulated
 *         time, or a put has more than 2^60 bytes; RSCHED_ENOMEM
 *
 * Cost: O(events * (engines + resources of the puts in flight) * bottlenecks).
 */
int rs_fluid_run(const struct rs_fluid *fluid, struct rs_fluid_times *times,
                 uint64_t *makespan);

#endif
