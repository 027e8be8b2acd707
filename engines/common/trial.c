/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/trial.h"

enum {
    EACH = 16,     /* starts from one that is timed to the next */
    FIRST = 8,     /* starts before the first trial: caches and pages are warm */
    SHARE = 64,    /* trials may cost one in so many */
    SOON = 4,      /* so many times that where times have changed */
    WORTH = 16,    /* the other way must gain one in so many */
    HOPELESS = 2,  /* times as long: the other way is not timed again */
    MOST_RESTS = 3 /* trials are 2^3 times as far apart at most */
};

static const struct step {
    bool other, timed;
} steps[] = {
    {false, true}, /* between trials */
    {false, true}, {true, false}, {true, true}, {false, false}, {false, true},
    {true, false}, {true, true},
};

enum { LAST = sizeof(steps) / sizeof(steps[0]) - 1, OTHER_TIMED = 3 };

void rs_trial_forget(struct rs_trial *t)
{
    *t = (struct rs_trial){.trials = t->trials, .changes = t->changes};
}

void rs_trial_load(struct rs_trial *t, bool possible, bool guess)
{
    if (possible && t->possible && t->guess == guess)
        return;
    rs_trial_forget(t);
    t->possible = possible;
    t->guess = t->once = guess;
    t->in = FIRST;
    t->left = 0;
}

static void begin(struct rs_trial *t)
{
    t->least[0] = t->least[1] = UINT64_MAX;
    t->step = 1;
    t->odd = 0;
}

static void wait_for(struct rs_trial *t, uint64_t starts)
{
    const uint32_t most = UINT32_MAX >> MOST_RESTS;

    starts = starts < most ? starts : most;
    t->soonest = (uint32_t)starts / SOON;
    t->left = (uint32_t)starts << t->rests;
    t->in = EACH;
}

/* What the epochs of the other way cost more than the others would have, as a
 * part of one of these, is what the starts up to the next trial make up for. */
static uint64_t pause_after(const struct rs_trial *t, bool changed)
{
    uint64_t now = t->least[t->once], other = t->least[!t->once];
    uint64_t starts = SHARE * (t->step == OTHER_TIMED ? 2 : 4);

    if (!changed && other > now && now > 0)
        starts = starts * (other - now) / now;
    return starts < SHARE ? SHARE : starts;
}

static void end(struct rs_trial *t)
{
    uint64_t now = t->least[t->once], other = t->least[!t->once];
    bool changed = other < now - now / WORTH;

    if (changed)
        t->rests = 0;
    wait_for(t, pause_after(t, changed));
    t->rests += t->rests < MOST_RESTS;
    t->once = t->once != changed;
    t->step = 0;
    t->trials++;
    t->changes += changed;
}

/* Something is to be timed: the way that is taken, or a trial begins. */
static void come_due(struct rs_trial *t)
{
    t->in = EACH;
    t->soonest -= t->soonest < EACH ? t->soonest : EACH;
    t->left -= t->left < EACH ? t->left : EACH;
    if (t->left == 0 || (t->odd >= 2 && t->soonest == 0))
        begin(t);
}

struct rs_trial_start rs_trial_start(struct rs_trial *t)
{
    const struct step *step;

    if (t->step == 0) {
        if (--t->in > 0)
            return (struct rs_trial_start){t->once, false};
        come_due(t);
    } else if (!t->pending && t->step < LAST) {
        t->step++;
    }
    step = &steps[t->step];
    if (t->pending || !step->timed)
        return (struct rs_trial_start){t->once != step->other, false};
    t->pending = true;
    return (struct rs_trial_start){t->once != step->other, true};
}

static void compare(struct rs_trial *t, uint64_t ps)
{
    uint64_t usual = t->least[t->once];

    if (ps > usual + usual / 3 || ps < usual - usual / 4)
        t->odd += t->odd < 2;
    else
        t->odd = 0;
    if (t->odd == 2)
        t->rests = 0;
}

void rs_trial_took(struct rs_trial *t, uint64_t ps)
{
    uint64_t *least;

    if (!t->pending)
        return;
    t->pending = false;
    if (t->step == 0) {
        compare(t, ps);
        return;
    }
    least = &t->least[t->once != steps[t->step].other];
    if (ps < *least)
        *least = ps;
    if (t->step == LAST ||
        (t->step == OTHER_TIMED &&
         t->least[!t->once] / HOPELESS > t->least[t->once]))
        end(t);
}

void rs_trial_lost(struct rs_trial *t)
{
    if (!t->pending)
        return;
    t->pending = false;
    if (t->step > 0)
        t->step--; /* the same once more */
}
