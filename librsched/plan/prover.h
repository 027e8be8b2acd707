/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the planner `exact` share: exact.c branches, the others
 * prepare, bound, and remember. */
#ifndef RS_PLAN_PROVER_H
#define RS_PLAN_PROVER_H

#include "librsched/plan/planners.h"
#include "librsched/plan/weights.h"

enum {
    RS_PROVER_KINDS = 24, /* of puts, at most */
    RS_PROVER_PUTS = 64,  /* at most */
    RS_PROVER_LINKS = 32, /* that puts use, at most */
    RS_PROVER_RENAMINGS = 16,
    RS_PROVER_WEIGHTS = 16,
    RS_PROVER_STAGES = RS_PROVER_PUTS + 2 * RS_WEIGHTS_ENGINES + 2,
};

/* Puts that nothing tells apart. */
struct rs_kind {
    uint64_t bytes;
    uint32_t cls;
    uint32_t count;  /* not started yet */
    uint32_t puts[RS_PROVER_PUTS];
    uint32_t num_puts;
};

struct rs_renaming {
    uint8_t kind[RS_PROVER_KINDS], cls[RS_WEIGHTS_CLASSES];
};

/* What is left to do on a link. */
struct rs_prover_link {
    uint64_t capacity; /* units */
    unsigned __int128 left;         /* of puts not started, units */
};

struct rs_prover {
    const struct rs_problem *problem;
    struct rs_script *script;
    struct rsched_search search; /* but for the makespan: see `deadline` */
    bool stopped; /* the nodes have run out */
    enum rs_proof_end too_large; /* what there is too much of */
    struct rs_kind kinds[RS_PROVER_KINDS];
    size_t num_kinds;
    size_t puts_left;     /* not started */
    struct rs_prover_link links[RS_PROVER_LINKS];
    size_t num_links;
    /* Sets of bits: the links of a class on an engine, and on every engine. */
    uint32_t link_of[RS_WEIGHTS_CLASSES][RS_WEIGHTS_ENGINES];
    uint32_t certain[RS_WEIGHTS_CLASSES];
    uint32_t alike[RS_WEIGHTS_ENGINES]; /* see alike.h */
    struct rs_weights weights[RS_PROVER_WEIGHTS];
    unsigned __int128 weighed[RS_PROVER_WEIGHTS]; /* what is not started, in weight units */
    size_t num_weights;
    struct rs_renaming renamings[RS_PROVER_RENAMINGS];
    size_t num_renamings;
    struct rs_seen *seen;
    uint64_t deadline; /* ticks: what is looked for ends by then */
    struct decision {
        uint32_t engine, put;
    } path[RS_PROVER_PUTS], best[RS_PROVER_PUTS];
    size_t depth;
    bool improved;
    struct rs_stage *stages[RS_PROVER_STAGES]; /* one for each decision */
};

/** Allocate and look at the problem.
 * @param queues the best schedule so far, for good bounds; and `order`
 * @return 0, RSCHED_ELIMIT (`too_large`: no text), RSCHED_ENOMEM;
 *         rs_prover_fini() it in any case */
int rs_prover_init(struct rs_prover *prover, const struct rs_problem *problem,
                   struct rs_script *script, const size_t *queues,
                   const uint32_t *order);
void rs_prover_fini(struct rs_prover *prover);

/** Take a put of a kind out of, or back into, what is not started. */
void rs_prover_count(struct rs_prover *prover, struct rs_kind *kind,
                     bool taken);

/** Whether what goes on at a moment of decision may end by the deadline. */
bool rs_prover_can_improve(const struct rs_prover *prover,
                           const struct rs_stage *stage);

/** @return 0, RSCHED_ENOMEM */
int rs_prover_remember(struct rs_prover *prover);

/** Whether this state was met before and not later; it is stored if not. */
bool rs_prover_was_met(struct rs_prover *prover, const struct rs_stage *stage);

#endif
