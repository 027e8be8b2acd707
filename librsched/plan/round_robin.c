/* SPDX-License-Identifier: BSD-3-Clause */
/* Round-robin (RSched paper, section 3.2.1): request i goes to the engine
 * i mod `engines`, in request order. */
#include "librsched/plan/planners.h"

int rs_plan_round_robin(const struct rs_problem *problem,
                        const struct rs_planner *planner,
                        struct rs_place *places, struct rs_findings *findings)
{
    uint32_t engines = planner->engines < problem->costs.num_engines
                           ? planner->engines
                           : problem->costs.num_engines;

    (void)findings;
    for (size_t i = 0; i < problem->num_puts; i++) {
        places[i].engine = (uint32_t)(i % engines);
        places[i].order = i;
    }
    return 0;
}
