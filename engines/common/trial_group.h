/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TRIAL GROUP: messages that are sent together, step by step of a program, and of
 * which it is tried out together which way is fastest.
 *
 * What a message costs depends on how the others go: what the kernel reads is read
 * in one call, which costs as much as copying some KiB, and one that is read among
 * others that go through slots does not show what all of them would cost. So in a
 * step all members go one way, and the time of a step is theirs together.
 *
 * Nobody says where a step ends. One does when a member is started that has been in
 * it. Its times become known one by one, most when its members are started again;
 * those that are still not known some steps later are left out. Members may be of
 * different lengths, and need not be in each step: what counts is the time for a
 * byte.
 *
 * Not thread-safe.
 */
#ifndef RS_COMMON_TRIAL_GROUP_H
#define RS_COMMON_TRIAL_GROUP_H

#include "engines/common/trial.h"

/* Zero it to initialise. */
struct rs_trial_group {
    struct rs_trial trial;
    unsigned members;
    uint64_t step; /* number of the one that is being started */
    struct rs_trial_start start; /* how its messages go */
    bool follows; /* another group, in this step */
    uint8_t heard; /* what it has told last, */
    uint8_t silent; /* for so many steps, up to a limit */
    /* Of the last one that is or was timed: */
    uint64_t timed;    /* its number */
    unsigned awaited;  /* messages of which the time is not known yet */
    uint64_t bytes, ps; /* of the others */
};

/* Of a message. Zero it to initialise. */
struct rs_trial_member {
    struct rs_trial_group *group; /* NULL: it is in none */
    uint64_t bytes;
    unsigned guess; /* by the costs of this message */
    uint32_t round; /* starts in which its slots are used once */
    uint64_t step;  /* the last one that it has been in */
    uint64_t timed; /* the one of its message that is timed, or 0 */
    uint64_t trials, changes; /* that its times have ended */
};

/** Be in a group, and in no other from now on. What is known there is kept if it
 * comes new, or its guess is what it was; else it is forgotten.
 *
 * @param group NULL: in none
 * @param ways  a set: those that its members can go, the same for all
 * @param guess by the costs. The first member's counts.
 * @param round as for rs_trial_load(), the first member's counts. If it is another than
 *              before the member has got other slots, and what is known is forgotten. */
void rs_trial_join(struct rs_trial_member *m, struct rs_trial_group *group,
                   uint64_t bytes, unsigned ways, unsigned guess, uint32_t round);

/** The way of the members, trials aside. */
unsigned rs_trial_group_way(const struct rs_trial_member *m);

/** In each start of a message, if it is in a group. If it is timed
 * rs_trial_member_took() is to be called before its next start, if possible.
 *
 * @param heard what the group tells that this one follows, looked at where a step begins;
 *              0: it follows none */
struct rs_trial_start rs_trial_member_start(struct rs_trial_member *m, uint8_t heard);

/** What a group that follows this one is to hear of this step; 0: nothing. It changes each
 * sixteenth step, so that nobody follows one that makes no more. */
uint8_t rs_trial_member_tells(const struct rs_trial_member *m);

/** How long a timed message has been copied, in ps; UINT64_MAX: nobody knows. */
void rs_trial_member_took(struct rs_trial_member *m, uint64_t ps);

#endif
