/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Planners in the paper's picture, where a put is a box, one engine wide and
 * command + bytes/rate high, on an engine of that rate, and two boxes of one
 * direction, which share a link, never stand side by side.
 */
#ifndef RS_PLAN_BOXES_H
#define RS_PLAN_BOXES_H

#include "librsched/plan/problem.h"

/** How boxes are packed bottom-left; see bottom_left.c. */
struct rs_packing {
    uint32_t diagonals; /* engines that diagonals may use */
    bool seeded;        /* engine k is taken until it opens */
    bool requested;     /* boxes of equal height in the order in which their
                           directions appear in the pattern, instead of the
                           machine's direction order */
};

/** @param box_makespan raised to the height of the packing, ps
 * @return 0, RSCHED_ELIMIT, RSCHED_ENOMEM */
int rs_boxes_pack(const struct rs_problem *problem,
                  const struct rs_packing *packing, struct rs_place *places,
                  uint64_t *box_makespan);

/** What an engine takes from the directions that have no box at work. */
enum rs_filling {
    RS_FILL_BEST,  /* the largest box: best fit into the skyline */
    RS_FILL_LOAD,  /* the largest box of the direction with most left to do */
    RS_NUM_FILLINGS
};

/**
 * Fill the skyline of boxes from below: whenever an engine is through with its
 * box it takes another one; when all directions are at work it waits.
 *
 * @param engines that are used; engine k opens at k * open
 * @return as rs_boxes_pack()
 */
int rs_boxes_fill(const struct rs_problem *problem, enum rs_filling filling,
                  uint32_t engines, struct rs_place *places);

/** The height of a put's box on an engine of a rate, ps. */
uint64_t rs_boxes_height(const struct rs_problem *problem, size_t put,
                         uint64_t rate);

/** Add the height of a put's box, on the slowest engine, to *sum, which must
 * stay below 2^63, so that no sum of heights overflows.
 * @return 0, RSCHED_ELIMIT */
int rs_boxes_measure(const struct rs_problem *problem, size_t put,
                     uint64_t *sum);

#endif
