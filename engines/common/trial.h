/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TRIAL: which way a message takes that is sent again and again, found by trying
 * out: in one copy or in two, through slots; and whether what goes through slots is
 * written into them by non-temporal stores.
 *
 * What these cost differs from machine to machine, and on one machine from pair
 * to pair of cores; costs that nobody measured there are a guess. So a few epochs
 * go the other ways now and then, and the sender and the receiver say how long they
 * have copied. That leaves out how long they waited for each other, which is the
 * application's affair.
 *
 * A trial times the way that is taken twice, and each other one twice, or once if that
 * has shown that it takes more than two times as long. The start before one that is
 * timed goes the same way and prepares the caches. Slots that have not been used
 * for long, where one copy is usual, lie in other caches than they would: all of them are used
 * twice first. Of each way the least time counts,
 * since other work only ever adds to one. One copy is taken in place of two, or two in
 * place of one, if it takes a sixteenth less. Trials are so far apart that what they cost
 * is at most a sixty-fourth, twice as far each time that nothing changes.
 *
 * Stores have to gain more. Ordinary ones take time of the sender, non-temporal ones of
 * the receiver, and the sums are about the same between near cores, where to wait for
 * memory comes on top. So non-temporal ones are taken where they need half the time, and
 * until they need more than five eighths. Beside one copy, for what needs slots, most of the
 * time is that copy's, and they are taken where they gain a sixteenth of all, and until they
 * lose one. (A sixth through slots, EPYC 9004: far cores 8 to 10 us of 10 to 12, and
 * then the start is over in 16 us instead of 21; near ones 7 to 8 us of 5.)
 *
 * Two processes that send each other about as much copy at the same time, and what one
 * way takes depends on how the other's message goes: both in one copy may be fastest, both
 * in two nearly as fast, and one of each a half slower, as one process does most of the
 * copying then. So one of them leads, and the other one follows it from start to start; as a
 * way's first epoch of a trial is not timed, the timed ones are those in which both go it.
 *
 * Processes move to other cores, and virtual machines do so without their knowing.
 * So between trials each sixteenth epoch is timed, too; if two in a row take four
 * thirds of what they took in the last trial, or three quarters, the next one comes sooner: they
 * cost at most a sixteenth then.
 */
#ifndef RS_COMMON_TRIAL_H
#define RS_COMMON_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A way is some of these, or none: two copies by ordinary stores. */
enum {
    RS_TRIAL_ONCE = 1,        /* in one copy, but for what needs slots */
    RS_TRIAL_NONTEMPORAL = 2, /* slots are written by non-temporal stores */
    RS_TRIAL_WAYS = 4,
};

/* A set of ways has these. */
#define RS_TRIAL_SET(way) (1u << (way))

/* Of a message. Zero it to initialise. */
struct rs_trial {
    bool possible; /* it can go several ways */
    bool pending;  /* an epoch is timed of which the time is not known yet */
    uint8_t ways;  /* a set: those */
    uint8_t guess; /* the way by the costs */
    uint8_t way;   /* that is taken, trials aside */
    uint8_t phase; /* of a trial, from 1 on; 0: none is under way */
    uint8_t at;    /* the way that is taken now */
    uint16_t round; /* starts in which all slots are used once */
    uint32_t warm; /* starts that still prepare caches before one is timed */
    uint8_t rests; /* trials in a row that changed nothing, up to a limit */
    uint8_t odd;   /* epochs in a row that took longer or shorter than they did */
    uint32_t in;   /* starts until something is to be timed */
    uint32_t left; /* of these until the next trial */
    uint32_t soonest; /* likewise, from which on it may come sooner */
    uint64_t least[RS_TRIAL_WAYS]; /* ps, of each way */
    uint64_t trials, changes; /* that have ended; that changed the way */
};

/* What is done in a start. */
struct rs_trial_start {
    unsigned way;
    bool timed; /* rs_trial_took() is to be called when it is over */
};

/** A message has been loaded. What is known of the one before is kept if it
 * could go the same ways, and the guess is the same.
 *
 * @param ways  a set: those that it can go, and that are to be tried out
 * @param guess by the costs; it is taken even if it is not in the set
 * @param round starts in which all slots are used once; 0: as for 1 */
void rs_trial_load(struct rs_trial *t, unsigned ways, unsigned guess, uint32_t round);

/** A message of another length is about to be loaded, or this one can take no way
 * but one any more: forget what is known. */
void rs_trial_forget(struct rs_trial *t);

/** In each start, if it is possible. */
struct rs_trial_start rs_trial_start(struct rs_trial *t);

/** Instead, where the other end of the message leads: what it does. A trial that is under
 * way is given up. */
void rs_trial_follow(struct rs_trial *t, unsigned way);

/** Before the clock is read at the end of what a sender has written: stores wait in the
 * processor for lines that other cores have, and the receiver waits for them. A copy of
 * some KiB between far cores may seem to be over after a third of its time. */
static inline void rs_trial_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/** A timed epoch is over: how long both sides have copied, in ps. */
void rs_trial_took(struct rs_trial *t, uint64_t ps);

/** What the way that is `taken`, or else the faster one in two copies, has taken in the last
 * trial, in ps; 0: nobody knows. */
uint64_t rs_trial_time(const struct rs_trial *t, bool taken);

/** That will never be known. */
void rs_trial_lost(struct rs_trial *t);

#endif
