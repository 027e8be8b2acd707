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
    struct rsched_placement *placements; /* by put */
    uint32_t *order; /* put ids, engine by engine */
    size_t *queues;  /* per engine its first place in `order`, and the end */
    uint64_t makespan, total, lower_bound;
    struct rs_findings findings; /* of the planner */
};

#endif
