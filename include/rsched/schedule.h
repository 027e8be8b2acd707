/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * SCHEDULE: where and when.
 *
 * A schedule places every put of a pattern in the queue of an engine of a
 * machine. Planners (the table behind rsched_planner_at()) decide the queues; the
 * fluid simulator (models/fluid.h) says when each put starts and ends, so that
 * the schedules of all planners are scored alike; a lower bound
 * (models/bound.h) says how much better any schedule could be.
 *
 * A schedule never changes once it is made; any number of threads may use it.
 * It keeps what it needs of pattern and machine, which may be destroyed.
 *
 * The receive engine of a put is part of the plan: senders that pick it
 * themselves collide at the receiver. It is the number of the send engine;
 * when all processes follow the same schedule no two puts then meet.
 */
#ifndef RSCHED_SCHEDULE_H
#define RSCHED_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rsched/error.h>
#include <rsched/machine.h>
#include <rsched/pattern.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rsched_schedule;

/** One way of making schedules. */
struct rsched_planner {
    const char *name;  /**< "bl4" */
    const char *label; /**< in tables and pictures, as in the paper: "rs%4" */
    const char *help;  /**< one line */
    bool exhaustive;   /**< may take seconds, since it proves */
};

/**
 * The planners.
 *
 * @param index 0, 1, ...
 * @return the planner, or NULL when there are no more. Thread-safe.
 */
RSCHED_API const struct rsched_planner *rsched_planner_at(size_t index);

/** What is sent in one go. A put that is not split is one part, whose number
 * is the put's. Further parts of puts that are split are numbered after all
 * puts. Parts are in the machine's eyes puts: each has its own command. */
struct rsched_part {
    uint32_t put;
    uint64_t offset; /**< in the put's bytes, as they travel */
    uint64_t bytes;
};

/** Where and when a part goes. Times are ps after the start of the exchange's
 * network part. */
struct rsched_placement {
    uint32_t engine;         /**< that sends it */
    uint32_t receive_engine; /**< that receives it */
    uint32_t position;       /**< in the engine's queue: 0, 1, ... */
    uint64_t start;  /**< the engine turns to it (its command begins) */
    uint64_t data;   /**< its first byte moves */
    uint64_t finish; /**< its last byte has moved */
};

/**
 * Plan.
 *
 * @param planner  the name of a planner
 * @param schedule where the schedule is stored; destroy it with
 *                 rsched_schedule_destroy()
 * @return 0; RSCHED_ENAME (no such planner; the text lists those there are);
 *         RSCHED_EINVAL when the machine has no route for a direction of the
 *         pattern (the text names put and direction, and file, line and column
 *         when the pattern was read from one); RSCHED_ELIMIT when times do not
 *         fit; RSCHED_ENOMEM
 */
RSCHED_API int rsched_schedule_create(const struct rsched_pattern *pattern,
                                      struct rsched_machine *machine,
                                      const char *planner,
                                      struct rsched_schedule **schedule);

/** How far a planner's search for a proof is. */
struct rsched_search {
    const char *planner;  /**< its name, a static string */
    uint64_t makespan;    /**< of the best schedule so far, ps */
    uint64_t lower_bound; /**< no schedule of these parts is shorter, ps */
    uint64_t nodes;       /**< that it has looked at */
    uint64_t most_nodes;  /**< with which it ends, proof or not */
};

/**
 * Called with every 65536th node of a search, in the thread that plans, which
 * goes on when it returns. Within a search `nodes` grow and makespans do not;
 * each number of parts that a split tries has a search of its own. A search that
 * needs fewer nodes is not told of, nor are planners that are not exhaustive.
 * The callee may use the library, to plan as well, but not destroy pattern and
 * machine. Nothing that it does changes the schedule; only `nodes` of the options
 * end a search early.
 *
 * @param search valid during the call
 */
typedef void rsched_plan_progress(void *arg, const struct rsched_search *search);

/** How to plan. Zeroed fields mean what rsched_schedule_create() does. */
struct rsched_plan_options {
    const char *planner; /**< the name of a planner */
    bool split;     /**< halve the largest puts if the total becomes shorter: as
                         many sizes of them as helps. Only the model's schedule
                         is split; the library sends a put as one. */
    uint64_t nodes; /**< that a proof may take; 0: 12 million, which takes
                         seconds */
    rsched_plan_progress *progress; /**< told how far a search is; or NULL */
    void *progress_arg;
};

/** As rsched_schedule_create(), with options. */
RSCHED_API int
rsched_schedule_create_options(const struct rsched_pattern *pattern,
                               struct rsched_machine *machine,
                               const struct rsched_plan_options *options,
                               struct rsched_schedule **schedule);

/**
 * Make the schedule with the given queues.
 *
 * @param planner     what to call it; copied
 * @param engines     per put: its engine
 * @param positions   per put: its place in the engine's queue; each queue's
 *                    places are 0, 1, ... without gaps
 * @return as rsched_schedule_create(), RSCHED_EINVAL also when the queues are
 *         not that
 */
RSCHED_API int
rsched_schedule_create_queues(const struct rsched_pattern *pattern,
                              struct rsched_machine *machine,
                              const char *planner, const uint32_t *engines,
                              const uint32_t *positions,
                              struct rsched_schedule **schedule);

/** Destroy a schedule; NULL is allowed. */
RSCHED_API void rsched_schedule_destroy(struct rsched_schedule *schedule);

/** The pattern, as it was when the schedule was made; valid as long as the
 * schedule. */
RSCHED_API const struct rsched_pattern *
rsched_schedule_pattern(const struct rsched_schedule *schedule);

/** The machine; valid as long as the schedule. */
RSCHED_API struct rsched_machine *
rsched_schedule_machine(const struct rsched_schedule *schedule);

/** The name of the planner that made it. */
RSCHED_API const char *
rsched_schedule_planner(const struct rsched_schedule *schedule);

/** Its number of puts, which are those of the pattern. */
RSCHED_API size_t
rsched_schedule_num_puts(const struct rsched_schedule *schedule);

/** Its number of queues: the engines of the machine, used or not. */
RSCHED_API size_t
rsched_schedule_num_engines(const struct rsched_schedule *schedule);

/** Its number of parts: as many as puts, and more if puts are split. */
RSCHED_API size_t
rsched_schedule_num_parts(const struct rsched_schedule *schedule);

/** What a part is; never NULL.
 * @param part below rsched_schedule_num_parts() */
RSCHED_API const struct rsched_part *
rsched_schedule_part(const struct rsched_schedule *schedule, size_t part);

/** Where and when a part goes; never NULL. For the number of a put this is its
 * first part, which holds its first bytes.
 * @param part below rsched_schedule_num_parts() */
RSCHED_API const struct rsched_placement *
rsched_schedule_placement(const struct rsched_schedule *schedule,
                          size_t part);

/**
 * The queue of an engine.
 *
 * @param engine below rsched_schedule_num_engines()
 * @param parts where the address of the numbers of its parts, in order, is
 *               stored; they belong to the schedule
 * @return their number
 */
RSCHED_API size_t
rsched_schedule_queue(const struct rsched_schedule *schedule, size_t engine,
                      const uint32_t **parts);

/** When the last part ends, ps. */
RSCHED_API uint64_t
rsched_schedule_makespan(const struct rsched_schedule *schedule);

/** The whole exchange, ps: the machine's exchange base, per_put for every
 * part, and the makespan. */
RSCHED_API uint64_t
rsched_schedule_total(const struct rsched_schedule *schedule);

/** No schedule of these parts on this machine has a makespan below this, ps
 * (models/bound.h). */
RSCHED_API uint64_t
rsched_schedule_lower_bound(const struct rsched_schedule *schedule);

/** How far the makespan is above the lower bound, in millionths of the lower
 * bound, rounded to the nearest (gap_percent is this divided by 10000);
 * UINT64_MAX when the lower bound is 0 and the makespan is not. */
RSCHED_API uint64_t
rsched_schedule_gap_ppm(const struct rsched_schedule *schedule);

/** Whether no schedule of these parts is better: the makespan is the lower
 * bound, or the planner has proven it (so said the file, if it was read). */
RSCHED_API bool
rsched_schedule_is_proven(const struct rsched_schedule *schedule);

/** The nodes of the search that the planner made for its proof; 0 if none. */
RSCHED_API uint64_t
rsched_schedule_nodes(const struct rsched_schedule *schedule);

/** The height of the packing in the planner's own picture (the paper's figure
 * 2: a box per put, command + bytes / rate high, no contention), ps; 0 when
 * the planner does not pack boxes. */
RSCHED_API uint64_t
rsched_schedule_box_makespan(const struct rsched_schedule *schedule);

/** No packing of these boxes is lower, ps; 0 when that is not known: only the
 * scheduler box-optimal of the rsched command finds out. With
 * rsched_schedule_box_makespan() it brackets the lowest packing. */
RSCHED_API uint64_t
rsched_schedule_box_bound(const struct rsched_schedule *schedule);

/** What may hold a schedule up. */
enum rsched_limit_kind {
    RSCHED_LIMIT_NONE,    /**< nothing that can be made faster alone */
    RSCHED_LIMIT_LINK,    /**< the capacity of a link */
    RSCHED_LIMIT_NODE,    /**< what a node injects or takes in */
    RSCHED_LIMIT_ENGINE,  /**< the rate of an engine */
    RSCHED_LIMIT_COMMAND, /**< the cost of a command */
    RSCHED_LIMIT_OPEN,    /**< the opening of engines */
};

/** What holds a schedule up. */
struct rsched_limit {
    enum rsched_limit_kind kind;
    uint32_t number; /**< of the link; else of the engine that ends last */
    uint64_t makespan_without; /**< of the same queues, if the limit were not
                                    there, ps */
};

/**
 * Find what holds a schedule up: of links, node, rate of engines, command and
 * opening that one without which the same queues would be shortest. A schedule
 * that is to beat this one must use it better, or a machine have more of it.
 *
 * @return 0, RSCHED_ENOMEM
 */
RSCHED_API int rsched_schedule_limit(const struct rsched_schedule *schedule,
                                     struct rsched_limit *limit);

/**
 * Called with the load of all links during a stretch of time in which it does
 * not change.
 *
 * @param from  ps
 * @param to    ps
 * @param loads per link of the machine, bytes/s
 */
typedef void rsched_occupancy(void *arg, uint64_t from, uint64_t to,
                              const uint64_t *loads);

/**
 * Walk over the load of the links in order of time. Stretches in which no put
 * moves bytes are left out.
 *
 * @return 0, RSCHED_ENOMEM
 */
RSCHED_API int
rsched_schedule_occupancy(const struct rsched_schedule *schedule,
                          rsched_occupancy *visit, void *arg);

/**
 * Write a schedule (format schedule/1, docs/formats.md).
 *
 * @param machine what to call the machine: the name or path with which
 *                rsched_machine_open() opens it
 * @return 0, RSCHED_ESYS
 */
RSCHED_API int rsched_schedule_write(const struct rsched_schedule *schedule,
                                     const char *machine, FILE *out);

/**
 * Read a schedule that rsched_schedule_write() or `rsched plan` wrote. It is
 * simulated again.
 *
 * @param path     a file name; "-" is standard input
 * @param machine  the machine to use, or NULL to open the one that the file
 *                 names
 * @return 0; RSCHED_EPARSE with a text "path:line:column: cause", also when
 *         the times in the file are not those of the machine; else as
 *         rsched_schedule_create() and rsched_machine_open()
 */
RSCHED_API int rsched_schedule_load(const char *path,
                                    struct rsched_machine *machine,
                                    struct rsched_schedule **schedule);

/** As rsched_schedule_load(), from `length` bytes in memory; `name` stands for
 * the path in error texts. */
RSCHED_API int rsched_schedule_parse(const char *name, const char *text,
                                     size_t length,
                                     struct rsched_machine *machine,
                                     struct rsched_schedule **schedule);

#ifdef __cplusplus
}
#endif

#endif
