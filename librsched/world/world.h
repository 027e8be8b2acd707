/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WORLD: a pattern on all nodes of a machine.
 *
 * A put of the pattern without a source is sent by every process, in its
 * direction, to its neighbor in the grid of processes; one with a source is
 * sent by that process to its destination. Puts between processes of one node
 * do not go through the network and are left out.
 *
 * Each process, or each node for all its processes, is planned as one node of
 * the machine, which is what a library does in which everybody plans alike and
 * nobody knows more than his neighborhood. Then all of it is simulated.
 */
#ifndef RS_WORLD_WORLD_H
#define RS_WORLD_WORLD_H

#include <rsched/schedule.h>

#include "librsched/world/shape.h"
#include "models/network.h"
#include "models/routing.h"

enum rs_world_receive {
    RS_RECEIVE_SAME,    /* the number of the send engine */
    RS_RECEIVE_PLANNED, /* that, or one that the plan says is free then */
    RS_RECEIVE_UNCOORDINATED, /* nodes number their engines differently */
};

/** Who is told how far it is, by the calls below, in their thread; any of these
 * may be NULL. */
struct rs_world_watch {
    rs_network_progress *planned; /* before each new plan, with the puts of the
                                     world that have one */
    rsched_plan_progress *searched; /* by a plan */
    rs_network_progress *simulated;
    void *arg; /* of all of them */
};

/** A process's node, and where the mapping says so. */
struct rs_world_seat {
    uint32_t node;
    uint32_t line, column;
};

struct rs_world_params {
    const struct rsched_pattern *pattern;
    struct rsched_machine *machine;
    const char *planner;
    struct rs_shape nodes;
    uint32_t processes; /* per node; they share its engines */
    bool together;      /* plan a node's processes as one */
    bool shuffled;      /* processes sit anywhere (mapping_seed) */
    uint64_t mapping_seed;
    const struct rs_world_seat *mapping; /* or per process; NULL: row-major */
    size_t num_mapping;
    const char *mapping_name; /* of its file */
    bool balanced; /* choose routes, if that takes less; else each put takes
                      its first one */
    enum rs_world_receive receive;
    uint64_t jitter; /* nodes start at random within this, ps */
    uint64_t seed;   /* of the jitter */
    const struct rs_world_watch *watch; /* or NULL */
};

/** A put of the world, by number as in `transits`. */
struct rs_world_put {
    uint32_t process, destination; /* processes */
    uint32_t id;                   /* in the pattern */
    uint32_t receive_engine;
    uint32_t group;     /* who was planned as one: a process or a node */
    uint32_t position;  /* in the queue of its group's engine */
    uint64_t data, finish; /* what the plan says, ps */
};

struct rs_world {
    struct rs_topology topology;
    struct rs_shape shape; /* of nodes */
    struct rs_shape grid;  /* of processes */
    uint32_t num_engines; /* per node */
    size_t num_puts;
    size_t num_local; /* puts within a node, left out */
    uint32_t most_puts; /* that one process sends, local ones too */
    struct rs_transit *transits;
    struct rs_world_put *puts;
    uint32_t *nodes;  /* per process: its node */
    uint64_t planned; /* the longest makespan that a plan says, ps */
    bool balanced;     /* routes were chosen */
    uint32_t *choices; /* per put: its route */
    uint64_t first_load, load; /* ps that the most loaded link takes: on first
                                  routes, and on the chosen ones */
    uint32_t loaded_link;
    uint64_t *starts; /* per node, ps */
    /* For the simulator. Resources: links, then per node its ceilings, then
     * its receive engines. Engine e of node n is n * num_engines + e. */
    struct rs_fluid fluid;
    struct rs_fluid_engine *engines; /* those of `fluid` */
    uint32_t *queue;
};

/** Start anew: every node at random within `jitter` ps. */
void rs_world_start(struct rs_world *world, uint64_t jitter, uint64_t seed);

/** What a simulation says. */
struct rs_world_result {
    uint64_t makespan, total; /* ps */
    struct rs_network_effort effort;
};

/**
 * Make a world: place, plan, route. Balanced routes are compared with first
 * ones by simulation, so that they never take longer.
 *
 * @return 0; RSCHED_EINVAL when the pattern, the nodes and the machine do not
 *         fit together; as rsched_schedule_create()
 */
int rs_world_create(const struct rs_world_params *params,
                    struct rs_world **world);

void rs_world_destroy(struct rs_world *world);

/** Simulate. @param times per put, or NULL @param watch or NULL
 * @return as rs_network_run() */
int rs_world_run(const struct rs_world *world,
                 const struct rsched_machine *machine,
                 struct rs_fluid_times *times,
                 const struct rs_world_watch *watch,
                 struct rs_world_result *result);

/**
 * What a planner takes in this world; with jitter, the mean over 25 starts of
 * which none has the seed of `params` (unless that is chosen on purpose).
 *
 * @param mean ps, rounded down
 * @return as rs_world_create()
 */
int rs_world_try(const struct rs_world_params *params, const char *planner,
                 uint64_t *mean);

/** The planner for which rs_world_try() says least, the first of equals.
 * @param planner a static string */
int rs_world_select(const struct rs_world_params *params,
                    const char **planner, uint64_t *mean);

/**
 * A small world in which to try a plan of one node: the grid of the machine's
 * topology, or 8x6 nodes, or 4x4x4 for directions such as "+x-y".
 *
 * @param params filled, but for the planner
 */
void rs_world_neighborhood(const struct rsched_pattern *pattern,
                           struct rsched_machine *machine, uint64_t jitter,
                           struct rs_world_params *params);

/* Steps of rs_world_create(), each in its file. */
int rs_world_queue(struct rs_world *world,
                   const struct rs_world_params *params);
int rs_world_receive(struct rs_world *world, enum rs_world_receive receive);

#endif
