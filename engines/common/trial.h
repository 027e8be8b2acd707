/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TRIAL: which way a message takes that is sent again and again, found by trying
 * out: in one copy, which the kernel makes, or in two, through slots.
 *
 * What these cost differs from machine to machine, and on one machine from pair
 * to pair of cores; costs that nobody measured there are a guess. So a few epochs
 * go the other way now and then, and the sender and the receiver say how long they
 * have copied. That leaves out how long they waited for each other, which is the
 * application's affair.
 *
 * A trial is up to seven starts, of which up to four go the other way: the first of
 * each two prepares the caches, the second is timed. Of each way the least time
 * counts, since other work only ever adds to one. The other way is taken from then
 * on if it takes a sixteenth less. Trials are so far apart that what they cost is
 * at most a sixty-fourth, twice as far each time that nothing changes.
 *
 * Processes move to other cores, and virtual machines do so without their knowing.
 * So between trials each sixteenth epoch is timed, too; if two in a row take four
 * thirds of what they took in the last trial, or three quarters, the next one comes sooner: they
 * cost at most a sixteenth then.
 */
#ifndef RS_COMMON_TRIAL_H
#define RS_COMMON_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* Of a message. Zero it to initialise. */
struct rs_trial {
    bool possible; /* it can go both ways */
    bool guess;    /* the way by the costs: in one copy */
    bool once;     /* the way that is taken, trials aside */
    bool pending;  /* an epoch is timed of which the time is not known yet */
    uint8_t step;  /* of a trial, from 1 on; 0: none is under way */
    uint8_t rests; /* trials in a row that changed nothing, up to a limit */
    uint8_t odd;   /* epochs in a row that took longer or shorter than they did */
    uint32_t in;   /* starts until something is to be timed */
    uint32_t left; /* of these until the next trial */
    uint32_t soonest; /* likewise, from which on it may come sooner */
    uint64_t least[2]; /* ps: twice, once */
    uint64_t trials, changes; /* that have ended; that changed the way */
};

/* What is done in a start. */
struct rs_trial_start {
    bool once;
    bool timed; /* rs_trial_took() is to be called when it is over */
};

/** A message has been loaded. What is known of the one before is kept if it
 * could go both ways, too, and the guess is the same.
 *
 * @param possible it can go both ways, and is to be tried out
 * @param guess    by the costs */
void rs_trial_load(struct rs_trial *t, bool possible, bool guess);

/** A message of another length is about to be loaded, or this one cannot go both
 * ways any more: forget what is known. */
void rs_trial_forget(struct rs_trial *t);

/** In each start, if it is possible. */
struct rs_trial_start rs_trial_start(struct rs_trial *t);

/** A timed epoch is over: how long both sides have copied, in ps. */
void rs_trial_took(struct rs_trial *t, uint64_t ps);

/** That will never be known. */
void rs_trial_lost(struct rs_trial *t);

#endif
