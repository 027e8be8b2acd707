/* SPDX-License-Identifier: BSD-3-Clause */
/* In which order, and on which engines, puts are executed. */
#ifndef RS_RUN_ORDER_H
#define RS_RUN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct rsched_context;
struct rsched_exchange_params;
struct rsched_schedule;

/* What a schedule says of its puts to those who execute it. Zero it first. */
struct rs_plan {
    uint32_t num_puts;
    uint32_t *order;  /* num_puts put ids, in the order in which they start */
    uint32_t *engine; /* of each put, by id */
};

/** Append an id to a growing array. @return 0 or RSCHED_ENOMEM */
int rs_order_append(uint32_t **order, uint32_t *number, uint32_t id);

/**
 * The plan of an exchange: of the given schedule, or else of one that is made
 * for RSCHED_MACHINE (without that, for a host with `rails` engines) by
 * RSCHED_PLANNER. The sizes of a variable exchange are not known yet, so its
 * puts are not scheduled.
 *
 * @param rails the most that a connection of the exchange has
 * @param twice of each put: it crosses its engine and its links twice, also if the
 *              machine does not say so of its direction; NULL: none
 * @return 0; free it with rs_plan_fini(). RSCHED_EINVAL, RSCHED_ENAME,
 *         RSCHED_ENOMEM
 */
int rs_plan_make(struct rs_plan *plan, struct rsched_context *context,
                 const struct rsched_exchange_params *params, uint32_t rails,
                 const bool *twice);

/** The plan of a schedule; without one (NULL) all puts in their own order,
 * dealt to engines 0, 1, ..., which those who have fewer take modulo theirs.
 * @return 0, RSCHED_EINVAL (a schedule of another pattern), RSCHED_ENOMEM */
int rs_plan_init(struct rs_plan *plan, const struct rsched_schedule *schedule,
                 uint32_t num_puts);
void rs_plan_fini(struct rs_plan *plan);

#endif
