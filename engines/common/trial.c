/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/trial.h"

enum {
    EACH = 16,     /* starts from one that is timed to the next */
    FIRST = 16,    /* starts before the first trial: caches and pages are warm */
    LAPS = 2,      /* rounds through new slots until their lines are where they always
                      will be, mostly */
    SHARE = 64,    /* trials may cost one in so many */
    SOON = 4,      /* so many times that where times have changed */
    WORTH = 16,    /* one copy or two must gain one in so many to be taken instead */
    /* Eighths of the time of ordinary stores in which non-temporal ones must do to be
     * taken, and to be kept. */
    STORES_TAKEN = 4,
    STORES_KEPT = 5,
    /* Sixteenths, where most is copied once. */
    ENDS_TAKEN = 15,
    ENDS_KEPT = 17,
    HOPELESS = 2,  /* times as long: another way is not timed again */
    MOST_RESTS = 3 /* trials are 2^3 times as far apart at most */
};

/* Of a trial. In each phase but the first a way's first start is not timed. */
enum { RESTING, USUAL, OTHERS, USUAL_AGAIN, OTHERS_AGAIN };

void rs_trial_forget(struct rs_trial *t)
{
    *t = (struct rs_trial){.trials = t->trials, .changes = t->changes};
}

static bool is_once(unsigned way)
{
    return (way & RS_TRIAL_ONCE) != 0;
}

void rs_trial_load(struct rs_trial *t, unsigned ways, unsigned guess, uint32_t round)
{
    bool possible = (ways & (ways - 1)) != 0;

    round = round < 1 ? 1 : round < UINT16_MAX ? round : UINT16_MAX;
    t->round = (uint16_t)round;
    if (possible && t->ways == ways && t->guess == guess)
        return;
    rs_trial_forget(t);
    t->possible = possible;
    t->round = (uint16_t)round;
    t->ways = (uint8_t)ways;
    t->guess = t->way = t->at = (uint8_t)guess;
    t->in = FIRST;
    if (!is_once(guess) && LAPS * t->round >= FIRST)
        t->in = LAPS * t->round + 1u; /* the first slot again */
    t->left = 0;
}

static bool is_other(const struct rs_trial *t, unsigned way)
{
    return way != t->way && (t->ways & RS_TRIAL_SET(way)) != 0;
}

static bool is_hopeless(const struct rs_trial *t, unsigned way)
{
    return t->least[way] / HOPELESS > t->least[t->way];
}

/* The first way of a phase from `way` on that is tried in it, or RS_TRIAL_WAYS. */
static unsigned next_other(const struct rs_trial *t, unsigned phase, unsigned way)
{
    while (way < RS_TRIAL_WAYS &&
           (!is_other(t, way) ||
            (phase == OTHERS_AGAIN && is_hopeless(t, way))))
        way++;
    return way;
}

static void begin(struct rs_trial *t)
{
    for (unsigned way = 0; way < RS_TRIAL_WAYS; way++)
        t->least[way] = UINT64_MAX;
    t->phase = USUAL;
    t->at = t->way;
    t->warm = 0;
    t->odd = 0;
}

/* Starts that go another way in a phase before one that is timed: where slots are not used
 * otherwise, as if they were new. */
static unsigned preparation(const struct rs_trial *t, unsigned phase, unsigned way)
{
    const unsigned twice = 0;
    bool first = way == twice || !is_other(t, twice);

    return phase == OTHERS && is_once(t->way) && !is_once(way) && first ? LAPS * t->round
                                                                        : 1;
}

static void wait_for(struct rs_trial *t, uint64_t starts)
{
    const uint32_t most = UINT32_MAX >> MOST_RESTS;

    starts = starts < most ? starts : most;
    t->soonest = (uint32_t)starts / SOON;
    t->left = (uint32_t)starts << t->rests;
    t->in = EACH;
}

/* Starts that make up for so many in which something took `other` instead of `usual`. */
static uint64_t starts_for(uint64_t starts, uint64_t other, uint64_t usual, bool changed)
{
    return !changed && other > usual && usual > 0
               ? SHARE * starts * (other - usual) / usual
               : SHARE * starts;
}

/* What the epochs of other ways cost more than the usual ones would have, as a
 * part of one of these, is what the starts up to the next trial make up for. Slots that have
 * not been used for long are taken to cost twice what they do then. */
static uint64_t pause_after(const struct rs_trial *t, bool changed)
{
    uint64_t usual = t->least[t->way], starts = 0;

    for (unsigned way = 0; way < RS_TRIAL_WAYS; way++) {
        uint64_t other = t->least[way];
        bool again = t->phase == OTHERS_AGAIN && !is_hopeless(t, way);

        if (!is_other(t, way))
            continue;
        starts += starts_for(again ? 4 : 2, other, usual, changed);
        starts += starts_for(preparation(t, OTHERS, way) - 1u, 2 * other, usual, changed);
    }
    return starts < SHARE ? SHARE : starts;
}

/* Whether `past`, by non-temporal stores, is better than `ordinary`. */
static bool is_past_better(const struct rs_trial *t, unsigned past, unsigned ordinary)
{
    uint64_t new = t->least[past], old = t->least[ordinary];
    bool kept = t->way == past;

    if (is_once(past))
        return new < old / 16 * (kept ? ENDS_KEPT : ENDS_TAKEN);
    return new < old / 8 * (kept ? STORES_KEPT : STORES_TAKEN);
}

/* With which stores, in one copy or in two; or RS_TRIAL_WAYS. */
static unsigned better_stores(const struct rs_trial *t, unsigned once)
{
    unsigned past = once | RS_TRIAL_NONTEMPORAL;

    if ((t->ways & RS_TRIAL_SET(past)) == 0)
        return (t->ways & RS_TRIAL_SET(once)) != 0 ? once : RS_TRIAL_WAYS;
    if ((t->ways & RS_TRIAL_SET(once)) == 0)
        return past;
    return is_past_better(t, past, once) ? past : once;
}

static unsigned find_best(const struct rs_trial *t)
{
    unsigned once = t->way & RS_TRIAL_ONCE;
    unsigned same = better_stores(t, once);
    unsigned other = better_stores(t, once ^ RS_TRIAL_ONCE);

    if (same == RS_TRIAL_WAYS)
        same = t->way; /* a guess that is not in the set */
    return other != RS_TRIAL_WAYS &&
                   t->least[other] < t->least[same] - t->least[same] / WORTH
               ? other
               : same;
}

static void end(struct rs_trial *t)
{
    unsigned best = find_best(t);
    bool changed = best != t->way;

    if (changed)
        t->rests = 0;
    wait_for(t, pause_after(t, changed));
    t->rests += t->rests < MOST_RESTS;
    if (changed)
        t->way = (uint8_t)best;
    t->at = t->way;
    t->phase = RESTING;
    t->trials++;
    t->changes += changed;
}

/* Something is to be timed: the way that is taken, or a trial begins. */
static void come_due(struct rs_trial *t)
{
    t->in = EACH;
    t->soonest -= t->soonest < EACH ? t->soonest : EACH;
    t->left -= t->left < EACH ? t->left : EACH;
    t->warm = 0;
    if (t->left == 0 || (t->odd >= 2 && t->soonest == 0))
        begin(t);
}

/* The start after one of a trial. */
static void advance(struct rs_trial *t)
{
    unsigned next = RS_TRIAL_WAYS;

    if (t->warm > 0) {
        t->warm--;
        return;
    }
    if (t->phase == OTHERS || t->phase == OTHERS_AGAIN)
        next = next_other(t, t->phase, t->at + 1u);
    if (next == RS_TRIAL_WAYS) {
        t->phase++;
        next = t->phase == USUAL_AGAIN ? t->way : next_other(t, t->phase, 0);
    }
    t->at = (uint8_t)next;
    t->warm = preparation(t, t->phase, next);
}

struct rs_trial_start rs_trial_start(struct rs_trial *t)
{
    if (t->phase == RESTING) {
        if (--t->in > 0)
            return (struct rs_trial_start){t->way, false};
        come_due(t);
    } else if (!t->pending) {
        advance(t);
    }
    if (t->pending || t->warm > 0)
        return (struct rs_trial_start){t->at, false};
    t->pending = true;
    return (struct rs_trial_start){t->at, true};
}

uint64_t rs_trial_time(const struct rs_trial *t, bool taken)
{
    uint64_t least = UINT64_MAX;

    if (!t->possible || t->phase != RESTING || t->trials == 0)
        return 0;
    for (unsigned way = 0; way < RS_TRIAL_WAYS; way++) {
        if ((taken ? way == t->way : !is_once(way)) && t->least[way] < least)
            least = t->least[way];
    }
    return least != UINT64_MAX ? least : 0;
}

void rs_trial_follow(struct rs_trial *t, unsigned way)
{
    t->pending = false;
    t->phase = RESTING;
    t->way = t->at = (uint8_t)way;
    t->in = FIRST;
    t->left = t->soonest = 0;
    t->rests = t->odd = 0;
}

static void compare(struct rs_trial *t, uint64_t ps)
{
    uint64_t usual = t->least[t->way];

    if (ps > usual + usual / 3 || ps < usual - usual / 4)
        t->odd += t->odd < 2;
    else
        t->odd = 0;
    if (t->odd == 2)
        t->rests = 0;
}

/* Whether nothing is left to be tried after what has just been timed. */
static bool is_over(const struct rs_trial *t)
{
    unsigned done = t->phase == OTHERS_AGAIN ? t->at + 1u : 0;

    if (t->phase == USUAL ||
        (t->phase == OTHERS &&
         next_other(t, OTHERS, t->at + 1u) < RS_TRIAL_WAYS))
        return false;
    return next_other(t, OTHERS_AGAIN, done) == RS_TRIAL_WAYS;
}

void rs_trial_took(struct rs_trial *t, uint64_t ps)
{
    if (!t->pending)
        return;
    t->pending = false;
    if (t->phase == RESTING) {
        compare(t, ps);
        return;
    }
    if (ps < t->least[t->at])
        t->least[t->at] = ps;
    if (is_over(t))
        end(t);
}

void rs_trial_lost(struct rs_trial *t)
{
    if (!t->pending)
        return;
    t->pending = false;
    /* The same once more. */
    if (t->phase == USUAL)
        t->phase = RESTING;
    else
        t->warm = 1;
}
