/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping where nothing wakes: devices write words and ring no bell. */
#ifndef RS_ENGINES_LOOK_H
#define RS_ENGINES_LOOK_H

#include <stdbool.h>
#include <stdint.h>

/** Sleep until `ready` returns true or limit_ps is over; it is called first at
 * once, then after 20 us, 40 us, ... up to 0.5 ms. */
void rs_look_until(uint64_t limit_ps, bool (*ready)(void *arg), void *arg);

#endif
