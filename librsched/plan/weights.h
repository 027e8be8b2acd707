/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounds from weights. Give a byte of each class a weight, and a tick of
 * command one too. Whatever up to `a` engines do at a moment, they earn at most
 * most[a] weight per tick: the largest over all sets of `a` classes and
 * commands, at the max-min fair rates of that set. So what is left to do, in
 * weight, divided by that, is time that no schedule can avoid. This sees what
 * the loads of links alone do not: that puts which cross two links slow others
 * down.
 *
 * Any weights are right. Good ones solve the linear program
 *     maximise what is left, in weight, with most[engines] <= 1,
 * whose dual says how long each set is in flight. It is solved in fixed-point
 * numbers; what it returns is only a proposal, and `most` is worked out
 * exactly.
 */
#ifndef RS_PLAN_WEIGHTS_H
#define RS_PLAN_WEIGHTS_H

#include "librsched/plan/stage.h"

enum {
    RS_WEIGHTS_CLASSES = 16, /* at most */
    RS_WEIGHTS_ENGINES = 8,
    RS_WEIGHTS_SETS = 8192,
};

/** All sets of classes and commands that up to all engines may have at once,
 * those that differ only by engines that are alike once. */
struct rs_sets {
    const struct rs_script *script;
    size_t num_classes;
    size_t count;
    uint64_t *rates;   /* set by set: of each class together, units, and last
                          the engines in a command times the largest rate of
                          an engine */
    uint8_t *engines;  /* of each set */
};

struct rs_weights {
    uint64_t weight[RS_WEIGHTS_CLASSES + 1]; /* the last one: of a command */
    unsigned __int128 most[RS_WEIGHTS_ENGINES + 1];
};

/** @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT when there are too many sets */
int rs_sets_init(struct rs_sets *sets, struct rs_script *script);
void rs_sets_fini(struct rs_sets *sets);

/**
 * Good weights for what is left.
 *
 * @param left    per class bytes, and last commands' ps times the engine's rate
 *                in bytes: what an engine could have moved meanwhile
 * @param weights filled
 * @return 0, RSCHED_ENOMEM
 */
int rs_weights_find(const struct rs_sets *sets, const uint64_t *left,
                    struct rs_weights *weights);

/**
 * Weights that need no sets: all bytes weigh the same. `most` is what engines,
 * rails and node allow, which is concave in the number of engines, so a command may
 * weigh what the last engine adds.
 */
void rs_weights_plain(const struct rs_script *script,
                      struct rs_weights *weights);

#endif
