/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of planners: one line each in planners.c. */
#ifndef RS_PLAN_PLANNERS_H
#define RS_PLAN_PLANNERS_H

#include <rsched/schedule.h>

#include "librsched/plan/problem.h"

struct rs_planner {
    struct rsched_planner shown;
    /* Fill `places`, one per put. `box_makespan` is 0 before, and may be set.
     * Returns 0 or an error. */
    int (*plan)(const struct rs_problem *problem,
                const struct rs_planner *planner, struct rs_place *places,
                uint64_t *box_makespan);
    uint32_t engines; /* what the planner makes of it: see its file */
    bool seeded;      /* likewise */
};

/** The planner of a name. @return 0, RSCHED_ENAME */
int rs_planner_find(const char *name, const struct rs_planner **planner);

int rs_plan_round_robin(const struct rs_problem *problem,
                        const struct rs_planner *planner,
                        struct rs_place *places, uint64_t *box_makespan);
int rs_plan_bottom_left(const struct rs_problem *problem,
                        const struct rs_planner *planner,
                        struct rs_place *places, uint64_t *box_makespan);

#endif
