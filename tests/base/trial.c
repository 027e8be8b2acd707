/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials of two ways, of which the times are given: what is found, what that
 * costs, and how soon a change is noticed. */
#include <criterion/criterion.h>

#include "engines/common/trial.h"

/* Starts of a message, and what they took. */
struct run {
    struct rs_trial trial;
    uint64_t time[2]; /* of an epoch: twice, once */
    uint64_t delay;   /* starts until a time is known, 1 at least */
    uint64_t due;     /* 0: none is under way */
    uint64_t starts, spent, least, timed;
};

static void start(struct run *r)
{
    struct rs_trial_start s;

    if (r->due != 0 && r->starts >= r->due) {
        r->due = 0;
        rs_trial_took(&r->trial, r->timed);
    }
    s = rs_trial_start(&r->trial);
    r->starts++;
    if (s.timed) {
        cr_assert_eq(r->due, 0, "one is timed while another is");
        r->due = r->starts + r->delay - 1;
        r->timed = r->time[s.once];
    }
    r->spent += r->time[s.once];
    r->least += r->time[r->time[1] < r->time[0]];
}

static void starts(struct run *r, unsigned number)
{
    for (unsigned i = 0; i < number; i++)
        start(r);
}

static struct run new_run(bool guess, uint64_t twice, uint64_t once)
{
    struct run r = {.time = {twice, once}, .delay = 1};

    rs_trial_load(&r.trial, true, guess);
    return r;
}

/* Beyond the first trial, what all together cost more than the best way. */
static double cost(struct run *r, unsigned number)
{
    uint64_t spent = r->spent, least = r->least;

    starts(r, number);
    return (double)(r->spent - spent) / (double)(r->least - least) - 1;
}

Test(trial, finds_the_faster_way)
{
    for (int guess = 0; guess < 2; guess++) {
        for (int faster = 0; faster < 2; faster++) {
            struct run r = new_run(guess != 0, faster ? 300 : 200,
                                   faster ? 200 : 300);

            starts(&r, 16);
            cr_assert_eq(r.trial.once, faster, "guess %d", guess);
            cr_assert_eq(r.trial.trials, 1);
            cr_assert_eq(r.trial.changes, guess != faster);
        }
    }
}

Test(trial, leaves_what_gains_little)
{
    struct run r = new_run(true, 190, 200);

    starts(&r, 10000);
    cr_assert(r.trial.once);
    cr_assert_gt(r.trial.trials, 1);
    cr_assert_eq(r.trial.changes, 0);
}

Test(trial, costs_little)
{
    static const uint64_t others[] = {201, 250, 300, 390, 410, 1000, 100000};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct run r = new_run(false, 200, others[i]);

        starts(&r, 16); /* the first one is what it is */
        cr_assert_leq(cost(&r, 200000), 1. / 64, "%llu",
                      (unsigned long long)others[i]);
        cr_assert_gt(r.trial.trials, 2);
    }
}

Test(trial, notices_changes)
{
    /* Both are slower between far cores, and the other one is faster there. */
    const uint64_t near[2] = {200, 300}, far[2] = {800, 500};
    struct run r = new_run(true, near[0], near[1]);

    for (int i = 0; i < 20; i++) {
        const uint64_t *times = i % 2 ? far : near;

        r.time[0] = times[0];
        r.time[1] = times[1];
        starts(&r, 5000);
        cr_assert_eq(r.trial.once, i % 2);
        /* By then it has been so for long: see what all of it has cost. */
    }
    cr_assert_lt((double)r.spent, 1.05 * (double)r.least);
}

Test(trial, restless_times_cost_a_sixteenth)
{
    struct run r = new_run(false, 200, 390);
    uint64_t random = 1;

    starts(&r, 16);
    for (int i = 0; i < 100000; i++) {
        uint64_t factor;

        random = random * 6364136223846793005u + 1442695040888963407u;
        factor = 100 + (random >> 60) * 10; /* up to 2.5 */
        r.time[0] = 2 * factor;
        r.time[1] = 39 * factor / 10;
        start(&r);
    }
    cr_assert_leq((double)r.spent / (double)r.least, 1 + 1. / 16 + 0.01);
}

/* A receiver that is behind tells the time later; nothing is timed meanwhile. */
Test(trial, times_come_late)
{
    struct run r = new_run(false, 300, 200);

    r.delay = 5;
    starts(&r, 60);
    cr_assert(r.trial.once);
    cr_assert_eq(r.trial.trials, 1);
}

Test(trial, loads)
{
    struct run r = new_run(false, 300, 200);

    starts(&r, 16);
    cr_assert(r.trial.once);
    rs_trial_load(&r.trial, true, false); /* the same again */
    cr_assert(r.trial.once);
    rs_trial_load(&r.trial, true, true); /* its costs are others now */
    cr_assert(r.trial.once);
    starts(&r, 16);
    cr_assert_eq(r.trial.trials, 2);
    rs_trial_load(&r.trial, false, true);
    cr_assert_not(r.trial.possible);
    rs_trial_load(&r.trial, true, false);
    cr_assert_not(r.trial.once, "what was known before is forgotten");
    cr_assert_eq(r.trial.trials, 2);
}
