/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of planners: one line each in planners.c. */
#ifndef RS_PLAN_PLANNERS_H
#define RS_PLAN_PLANNERS_H

#include <rsched/schedule.h>

#include "librsched/plan/problem.h"

/** How the search for a proof has ended without one. */
enum rs_proof_end {
    RS_PROOF_END_NONE, /* with one, or there was none */
    RS_PROOF_END_NODES,
    RS_PROOF_END_PUTS, /* too many, as the next ones: it was not tried */
    RS_PROOF_END_KINDS,
    RS_PROOF_END_ROUTES,
    RS_PROOF_END_LINKS,
    RS_PROOF_END_ENGINES,
    RS_PROOF_END_BYTES,
    RS_PROOF_END_RATE,
    RS_PROOF_END_TIME,
    RS_NUM_PROOF_ENDS
};

/** The same in words, each other ones. NULL for RS_PROOF_END_NONE */
const char *rs_proof_end_text(enum rs_proof_end end);

/** What a planner knows beside the places; all 0 before. */
struct rs_findings {
    uint64_t box_makespan; /* ps; 0 when it does not pack boxes */
    uint64_t box_bound;    /* ps; no packing is lower; 0 when not known */
    bool proven;           /* no schedule is better */
    uint64_t nodes;        /* that a search has looked at */
    enum rs_proof_end search;
};

struct rs_planner {
    struct rsched_planner shown;
    /* Fill `places`, one per put. Returns 0 or an error. */
    int (*plan)(const struct rs_problem *problem,
                const struct rs_planner *planner, struct rs_place *places,
                struct rs_findings *findings);
    uint32_t engines; /* what the planner makes of it: see its file */
    bool seeded;      /* likewise */
};

/** The planner of a name. @return 0, RSCHED_ENAME */
int rs_planner_find(const char *name, const struct rs_planner **planner);

/** The planners in the order of the table; NULL behind the last one. */
const struct rs_planner *rs_planner_at(size_t index);

int rs_plan_round_robin(const struct rs_problem *problem,
                        const struct rs_planner *planner,
                        struct rs_place *places, struct rs_findings *findings);
int rs_plan_bottom_left(const struct rs_problem *problem,
                        const struct rs_planner *planner,
                        struct rs_place *places, struct rs_findings *findings);
int rs_plan_fllf(const struct rs_problem *problem,
                 const struct rs_planner *planner, struct rs_place *places,
                 struct rs_findings *findings);
int rs_plan_exact(const struct rs_problem *problem,
                  const struct rs_planner *planner, struct rs_place *places,
                  struct rs_findings *findings);

#endif
