/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dispatch: the fluid simulation runs, and whenever an engine has nothing to
 * do, a rule chooses the class whose largest put it takes next. So a put joins
 * a link because of what is in flight at that moment, not because of a packing
 * made in advance.
 *
 * A rule compares, over the links of a class's route (the node is left out):
 *
 *   bytes  of its largest put
 *   conf   puts in flight on links that one more put would overload
 *   free   conf is 0
 *   gain   rate that one more put gets: the least over the links of what their
 *          puts leave of the capacity at full rate, in eighths of the engine's
 *
 * Where the route depends on the rail of the engine, it is that of the engine
 * that is free, and the bytes of a put that is not started count in equal parts
 * on the links of all its routes.
 *
 *   crit   the most loaded link's bytes not yet moved / capacity
 *   sum    the same, added up over the links
 *
 * The largest wins, then the class of the earlier put.
 */
#ifndef RS_PLAN_DISPATCH_H
#define RS_PLAN_DISPATCH_H

#include "librsched/plan/stage.h"

enum rs_rule {
    RS_RULE_G0,  /* bytes */
    RS_RULE_G1,  /* free, crit, bytes */
    RS_RULE_G3,  /* gain, crit, bytes */
    RS_RULE_G4,  /* free, bytes, crit */
    RS_RULE_G5,  /* free, sum, bytes */
    RS_RULE_G9,  /* -conf, crit, bytes */
    RS_RULE_G10, /* -conf, sum, bytes */
    RS_NUM_RULES
};

/** The puts of all classes, ready to be dispatched. */
struct rs_dispatch {
    struct rs_script *script;
    struct rs_stage *stage;
    uint32_t *puts; /* class by class; by decreasing bytes, then by id */
    uint64_t *bytes; /* of the puts in that order */
    size_t *first;  /* per class its first place in `puts`, and the end */
    size_t *next;   /* per class: the place of the next put */
    struct rs_link_load *loads; /* per resource */
    uint32_t *used; /* the resources that any put uses */
    size_t num_used;
    uint32_t *by_rate; /* engines, the fastest first, then by number */
};

/** @return 0, RSCHED_ENOMEM; rs_dispatch_fini() it on success */
int rs_dispatch_init(struct rs_dispatch *dispatch, struct rs_script *script);
void rs_dispatch_fini(struct rs_dispatch *dispatch);

/**
 * Dispatch all puts over the first `engines` engines, or over as many of the
 * fastest.
 *
 * @param places filled, per put
 * @return the makespan, ps; RS_NEVER when it does not fit
 */
uint64_t rs_dispatch_run(struct rs_dispatch *dispatch, enum rs_rule rule,
                         uint32_t engines, bool fastest,
                         struct rs_place *places);

#endif
