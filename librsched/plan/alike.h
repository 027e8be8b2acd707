/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines that nothing tells apart. */
#ifndef RS_PLAN_ALIKE_H
#define RS_PLAN_ALIKE_H

#include "librsched/plan/stage.h"

/**
 * Label engines: exchanging two of the same label changes no time, whatever is
 * in flight. They are on one rail, or each is alone on its rail and these are
 * equal, but for the names of links that no other rail uses.
 *
 * @param script at most 32 engines and classes
 * @param labels filled: the number of the first engine that is alike
 */
void rs_alike_find(const struct rs_script *script, uint32_t *labels);

#endif
