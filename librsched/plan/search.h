/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late-acceptance hill climbing over queues (Burke and Bykov, 2017): a change
 * is taken when the result is at most what it was now, or LATE steps ago. No
 * temperatures, integers only, and the random numbers are always the same.
 */
#ifndef RS_PLAN_SEARCH_H
#define RS_PLAN_SEARCH_H

#include "librsched/plan/stage.h"

struct rs_search {
    uint32_t steps;   /* schedules to try */
    uint64_t seed;    /* not 0 */
    uint64_t enough;  /* stop at a makespan of at most this, ps */
};

/**
 * Improve queues.
 *
 * @param stage    any stage of the problem's script; used up
 * @param queues   per engine its first position in `order`, and the end; on
 *                 return those of the best schedule that was met
 * @param order    likewise
 * @param makespan what they take; likewise
 * @return 0, RSCHED_ENOMEM
 */
int rs_search_run(const struct rs_search *search, struct rs_stage *stage,
                  size_t *queues, uint32_t *order, uint64_t *makespan);

#endif
