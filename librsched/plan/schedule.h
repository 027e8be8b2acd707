/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule's inside. */
#ifndef RS_PLAN_SCHEDULE_H
#define RS_PLAN_SCHEDULE_H

#include <rsched/schedule.h>

#include "librsched/plan/planners.h"

struct rsched_schedule {
    struct rsched_pattern *pattern; /* a copy */
    struct rsched_machine *machine; /* held */
    char *planner;
    struct rs_problem problem;
    struct rsched_placement *placements; /* by part */
    uint32_t *order; /* part ids, engine by engine */
    size_t *queues;  /* per engine its first place in `order`, and the end */
    uint64_t makespan, total, lower_bound;
    struct rs_findings findings; /* of the planner */
};

/** Note what a planner outside of the library has found: the height of its
 * packing of boxes, and that no packing is lower than `bound`, ps. */
void rs_schedule_note_boxes(struct rsched_schedule *schedule, uint64_t height,
                            uint64_t bound);

/** How the search for a proof has ended without one; NULL: with one, or there was
 * none. */
const char *rs_schedule_search(const struct rsched_schedule *schedule);

/** rsched_schedule_create_queues() for puts that are cut: engines and positions
 * are per part. */
int rs_schedule_create_parts(const struct rsched_pattern *pattern,
                              struct rsched_machine *machine,
                              const char *planner, const struct rs_cut *cuts,
                              size_t num_cuts, const uint32_t *engines,
                              const uint32_t *positions,
                              struct rsched_schedule **schedule);

#endif
