/* SPDX-License-Identifier: BSD-3-Clause */
/* The picture of a schedule. */
#ifndef RS_TOOLS_PICTURE_H
#define RS_TOOLS_PICTURE_H

#include <stdio.h>

#include <rsched/schedule.h>

/**
 * Draw a schedule as SVG: a lane per engine with a box per put, the load of
 * each link against its capacity, makespan and lower bound, one axis of time.
 *
 * @param machine what to call the machine
 * @return 0, RSCHED_ENOMEM
 */
int picture_draw(const struct rsched_schedule *schedule, const char *machine,
                 FILE *out);

#endif
