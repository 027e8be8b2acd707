/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fluid simulation of a problem, step by step, so that a planner can decide
 * on the way. Its arithmetic is that of models/fluid.c: the same queues give
 * the same tick (tests/plan/stage.c holds the two against each other). It is
 * faster since it knows more: all that the sharing needs of a put is its class,
 * the sets of resources that it uses on each rail. So the rates of engines with
 * classes in flight are worked out once and remembered.
 *
 * Puts are started with rs_stage_start(); rs_stage_advance() goes to the next
 * moment at which an engine has nothing to do. Engine k turns up for its first
 * put at k * open. A stage is plain memory: copying it (rs_stage_copy()) is
 * going back.
 */
#ifndef RS_PLAN_STAGE_H
#define RS_PLAN_STAGE_H

#include "librsched/plan/problem.h"

/** The units of models/fluid.c: a tick is 2^-10 ps, a rate unit 2^-16 bytes/s,
 * and what is left of a put is counted in 2^-26 byte ps/s. */
enum {
    RS_STAGE_TICK_BITS = 10,
    RS_STAGE_RATE_BITS = 16,
    RS_STAGE_UNIT_BITS = RS_STAGE_RATE_BITS + RS_STAGE_TICK_BITS,
};

/** One byte in these. */
#define RS_STAGE_BYTE                                                         \
    ((unsigned __int128)1000000000000 << RS_STAGE_UNIT_BITS)

/** A time after all others. */
#define RS_NEVER UINT64_MAX


/** Rates that were worked out for what `key` says is in flight. */
struct rs_rates {
    uint64_t key;
    uint64_t *rate; /* of each kind in the order of the key, units of fluid.c */
};

/** Puts of a class use the same resources on engines of the same rail. Class
 * and rail make a kind of put in flight, number class * rails + rail; those of
 * a kind have the same rate. What all stages of one problem share. Not
 * thread-safe: it remembers. */
struct rs_script {
    const struct rs_problem *problem;
    uint32_t num_engines;
    uint32_t *class_of; /* of each direction */
    const struct rs_fluid_route **classes; /* their routes, one per rail; in
                                              order of their first put */
    size_t num_classes;
    uint64_t *caps;   /* rate of each engine, units */
    uint64_t cap;     /* the largest of them */
    uint64_t slowest; /* the smallest of them */
    uint64_t command; /* ticks */
    uint64_t open;    /* ticks */
    unsigned bits;    /* of a key that a put takes; 0: not remembered */
    struct rs_rates *memory;
    uint64_t *memory_rates;
    uint64_t *left; /* per resource, while rates are shared out */
    uint32_t *waiting;
    uint32_t *touched;
    uint64_t *rates;  /* per kind in flight, when rates are set */
    uint32_t *flying; /* per kind, while rates are shared out */
    uint32_t *kinds;  /* those in flight, likewise */
    uint64_t *least; /* per put: what it takes alone, ticks */
    size_t *position; /* per engine, in rs_stage_play() */
    uint64_t *rest;   /* likewise: `least` of the puts not started */
};

enum rs_phase { RS_CLOSED, RS_FREE, RS_OPENS, RS_COMMAND, RS_FLOWS };

/** An engine at work. */
struct rs_actor {
    unsigned __int128 left; /* of its put at `since`, units of fluid.c */
    uint64_t since, next;   /* ticks */
    uint64_t rate;
    uint32_t cls;   /* of its put; UINT32_MAX before the first one */
    uint32_t phase; /* enum rs_phase */
};

struct rs_stage {
    struct rs_script *script;
    uint64_t now;  /* ticks */
    uint64_t last; /* when the last put so far ended, ticks */
    uint64_t key;  /* kinds in flight, plus 1, the highest in the lowest bits */
    bool changed;  /* other puts are in flight than when rates were set */
    uint32_t num_engines; /* that take part: the first ones */
    struct rs_actor actors[]; /* per engine */
};

/**
 * @param script filled; rs_script_fini() it on success. The problem must
 *               outlive it.
 * @return 0, RSCHED_ELIMIT (bytes that do not fit), RSCHED_ENOMEM
 */
int rs_script_init(struct rs_script *script, const struct rs_problem *problem);
void rs_script_fini(struct rs_script *script);

/** The resources of a class's puts on an engine. */
static inline const struct rs_fluid_route *
rs_script_route(const struct rs_script *script, uint32_t cls, uint32_t engine)
{
    return &script->classes[cls][rs_problem_rail(script->problem, engine)];
}

/** Bytes of a stage of all engines. */
size_t rs_stage_size(const struct rs_script *script);

/** A stage of the first `engines` engines at time 0, none of them free.
 * @return NULL when there is no memory; free() it */
struct rs_stage *rs_stage_create(struct rs_script *script);
void rs_stage_begin(struct rs_stage *stage, uint32_t engines);
void rs_stage_copy(struct rs_stage *to, const struct rs_stage *from);

/** Start a put on a free engine.
 * @return whether the engine is free again at once */
bool rs_stage_start(struct rs_stage *stage, uint32_t engine, uint32_t cls,
                    uint64_t bytes);

/** Send a free engine home: it stays out of the rest. */
void rs_stage_close(struct rs_stage *stage, uint32_t engine);

/** Leave out engines: `engine` has just turned up and stays unused, `other`,
 * which has not, takes its turn, those between stay unused as well, and those
 * behind turn up that much earlier. */
void rs_stage_replace(struct rs_stage *stage, uint32_t engine,
                      uint32_t other);

/**
 * Go on until an engine is free. Every free engine must have been given a put,
 * or been closed.
 *
 * @return the time, ticks; RS_NEVER when nothing goes on any more, or not
 *         within what fluid.c simulates
 */
uint64_t rs_stage_advance(struct rs_stage *stage);

/** The bytes that engine's put has still to move, rounded down. */
uint64_t rs_stage_left(const struct rs_stage *stage, uint32_t engine);

/** Ticks as whole ps, as fluid.c reports them. RS_NEVER stays. */
uint64_t rs_stage_ps(uint64_t ticks);

/**
 * The rates of a set of puts in flight.
 *
 * @param stage used up; the actors have a class and the phase RS_FLOWS or
 *              RS_COMMAND, or are RS_CLOSED
 * @param rates filled: of each class together, units, and last the engines in a
 *              command times the largest rate of an engine
 */
void rs_stage_rates(struct rs_stage *stage, uint64_t *rates);

/** When the last put ended, ps; RS_NEVER while something goes on. */
uint64_t rs_stage_end(const struct rs_stage *stage);

/**
 * What queues take.
 *
 * @param stage  any stage of the script; used up
 * @param queues per engine its first position in `order`, and one more entry
 * @param order  put ids, engine by engine
 * @param limit  ps: give up when it takes longer
 * @return ps; RS_NEVER when it was given up
 */
uint64_t rs_stage_play(struct rs_stage *stage, const size_t *queues,
                       const uint32_t *order, uint64_t limit);

#endif
