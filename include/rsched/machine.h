/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * MACHINE: what moving costs.
 *
 * A machine is one node of a regular network, seen as the paper sees the K
 * computer: a few engines that issue puts one after the other, links that
 * puts share on their way, and a ceiling on what the node injects. On a torus
 * whose nodes all do the same, each link stands for a class of links ("the
 * link to the east"), and what the neighbor sends through us is our own load
 * on it; so one node with link classes is the whole machine.
 *
 * Execution (models/fluid.h computes it): every engine works through its queue
 * in order. It is busy for `command` before a put moves bytes. All puts in
 * flight get max-min fair rates under the engine's rate, the capacities of the
 * links on their routes and the node's ceilings. The k-th engine that has
 * anything to do (k = 0, 1, ...) starts at k * open.
 *
 * Rates are whole bytes per second, times whole picoseconds. A machine never
 * changes once it is made; any number of threads may use it.
 */
#ifndef RSCHED_MACHINE_H
#define RSCHED_MACHINE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A capacity that never binds. */
#define RSCHED_UNLIMITED UINT64_MAX

/** The direction name of the route for all directions that have none of their
 * own, and for puts without a direction. */
#define RSCHED_ANY_DIRECTION "*"

struct rsched_machine;

/** What the machine's parts cost. Engines of a rail may have another rate. */
struct rsched_machine_costs {
    uint32_t num_engines;   /**< at least 1, at most 1024 */
    uint64_t engine_rate;   /**< most that one put gets where the rail does not
                                 say otherwise, bytes/s */
    uint64_t engine_open;   /**< the k-th busy engine starts at k times this,
                                 ps */
    uint64_t command;       /**< an engine is busy this long before each put's
                                 bytes move, ps */
    uint64_t node_inject;   /**< all puts that leave a node together, bytes/s,
                                 or RSCHED_UNLIMITED */
    uint64_t node_eject;    /**< all puts that arrive at a node, likewise */
    uint64_t exchange_base; /**< of a whole exchange, beside the makespan: ps */
    uint64_t exchange_per_put; /**< and for each put: ps */
    uint32_t node_processes;   /**< processes that share a node's engines, at
                                    least 1 */
};

/** A resource that puts share. */
struct rsched_link {
    const char *name;
    uint64_t capacity; /**< bytes/s, or RSCHED_UNLIMITED */
};

/** The way of the puts of one direction. */
struct rsched_route {
    const char *direction; /**< or RSCHED_ANY_DIRECTION */
    const uint32_t *links; /**< numbers for rsched_machine_link() */
    size_t num_links;      /**< may be 0: nothing is shared */
    uint32_t rank; /**< place in the direction order, the planners' second
                        sort key */
    uint32_t crossings; /**< times that a put's bytes cross its engine and the
                             links: 2 where a NIC puts within its node, as they
                             go out and in again; else 1 */
};

/**
 * Engines that reach the network in the same way: a NIC port, or one plane of
 * it. Engine e belongs to rail e modulo the number of rails.
 */
struct rsched_rail {
    uint64_t rate;         /**< most that a put on one of its engines gets,
                                bytes/s */
    const uint32_t *links; /**< that every put on its engines uses, last on its
                                routes; numbers for rsched_machine_link() */
    size_t num_links;
    const struct rsched_route *routes; /**< one for each of
                                            rsched_machine_route(): what a put
                                            uses that goes over this rail */
};

/**
 * Read a machine file (format machine/1, docs/formats.md).
 *
 * @param path    a file name; "-" is standard input
 * @param machine where the machine is stored; destroy it with
 *                rsched_machine_destroy()
 * @return 0; RSCHED_EPARSE with a text "path:line:column: cause"; RSCHED_ESYS
 *         when the file cannot be read; RSCHED_ENOMEM
 */
RSCHED_API int rsched_machine_load(const char *path,
                                   struct rsched_machine **machine);

/** As rsched_machine_load(), from `length` bytes in memory; `name` stands for
 * the path in error texts. */
RSCHED_API int rsched_machine_parse(const char *name, const char *text,
                                    size_t length,
                                    struct rsched_machine **machine);

/**
 * Make a built-in machine: "tofu-k", "torus3d", "rails", "rails-mixed",
 * "host", "host-epyc", "soft-roce-2", "soft-roce-4", "cgdr-k80-edr".
 *
 * @return 0, RSCHED_ENAME (no such machine; the text lists those there are),
 *         RSCHED_ENOMEM
 */
RSCHED_API int rsched_machine_builtin(const char *name,
                                      struct rsched_machine **machine);

/**
 * The names of the built-in machines.
 *
 * @param index 0, 1, ...
 * @return a static string, or NULL when there are no more. Thread-safe.
 */
RSCHED_API const char *rsched_machine_builtin_name(size_t index);

/** A file if `name` is one ("-", has a '/', ends in .yaml, .yml or .json, or
 * exists and is no directory), else a built-in machine. */
RSCHED_API int rsched_machine_open(const char *name,
                                   struct rsched_machine **machine);

/** Destroy a machine; NULL is allowed. Schedules made for it keep what they
 * need and stay valid. */
RSCHED_API void rsched_machine_destroy(struct rsched_machine *machine);

RSCHED_API const char *rsched_machine_name(const struct rsched_machine *machine);

/** One line that says what the machine is; "" when its file has none. */
RSCHED_API const char *
rsched_machine_description(const struct rsched_machine *machine);

/** The word that puts of this machine carry as their path ("rdma",
 * "shared-memory"). */
RSCHED_API const char *rsched_machine_path(const struct rsched_machine *machine);

/** What its parts cost; valid as long as the machine. */
RSCHED_API const struct rsched_machine_costs *
rsched_machine_get_costs(const struct rsched_machine *machine);

RSCHED_API size_t rsched_machine_num_links(const struct rsched_machine *machine);

/** Look at a link. @param link below rsched_machine_num_links() */
RSCHED_API const struct rsched_link *
rsched_machine_link(const struct rsched_machine *machine, size_t link);

RSCHED_API size_t
rsched_machine_num_routes(const struct rsched_machine *machine);

/** Look at a route. @param route below rsched_machine_num_routes() */
RSCHED_API const struct rsched_route *
rsched_machine_route(const struct rsched_machine *machine, size_t route);

/**
 * The route of a direction, apart from rails.
 *
 * @return its own, or that of RSCHED_ANY_DIRECTION, or NULL when there is
 *         neither; valid as long as the machine
 */
RSCHED_API const struct rsched_route *
rsched_machine_find_route(const struct rsched_machine *machine,
                          const char *direction);

/** The number of its rails: at least 1, at most its number of engines. */
RSCHED_API size_t rsched_machine_num_rails(const struct rsched_machine *machine);

/** Look at a rail. @param rail below rsched_machine_num_rails() */
RSCHED_API const struct rsched_rail *
rsched_machine_rail(const struct rsched_machine *machine, size_t rail);

/**
 * The route of a direction over the rail of an engine.
 *
 * @return as rsched_machine_find_route(), which is the same on a machine whose
 *         file says nothing of rails
 */
RSCHED_API const struct rsched_route *
rsched_machine_find_engine_route(const struct rsched_machine *machine,
                                 const char *direction, uint32_t engine);

/**
 * Write a machine in the format that rsched_machine_load() reads; loading what
 * was written gives an equal machine.
 *
 * @return 0, RSCHED_ESYS
 */
RSCHED_API int rsched_machine_write(const struct rsched_machine *machine,
                                    FILE *out);

#ifdef __cplusplus
}
#endif

#endif
