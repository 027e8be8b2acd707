/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders of puts: small arrays of put ids. */
#ifndef RS_RUN_ORDER_H
#define RS_RUN_ORDER_H

#include <stdint.h>

struct rsched_schedule;

/** Append an id to a growing array. @return 0 or RSCHED_ENOMEM */
int rs_order_append(uint32_t **order, uint32_t *number, uint32_t id);

/** The rank of each id among all ids of the order.
 * @param ranks *ranks: `number` of them; free it
 * @return 0 or RSCHED_ENOMEM */
int rs_order_ranks(const uint32_t *order, uint32_t number, uint32_t **ranks);

/** All put ids in the order in which a schedule starts them.
 * @param order *order is NULL if there is no schedule; else free it
 * @return 0, RSCHED_EINVAL (a schedule of another pattern), RSCHED_ENOMEM */
int rs_order_of_schedule(const struct rsched_schedule *schedule,
                         uint32_t num_puts, uint32_t **order);

#endif
