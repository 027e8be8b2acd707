/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials of two ways or more, of which the times are given: what is found, what that
 * costs, and how soon a change is noticed. */
#include <criterion/criterion.h>
#include <string.h>

#include "engines/common/trial.h"

/* Starts of a message, and what they took. */
struct run {
    struct rs_trial trial;
    uint64_t time[RS_TRIAL_WAYS]; /* of an epoch */
    uint64_t delay;   /* starts until a time is known, 1 at least */
    uint64_t due;     /* 0: none is under way */
    uint64_t starts, spent, least, timed;
    uint64_t went[RS_TRIAL_WAYS]; /* epochs that went so */
};

static unsigned fastest(const struct run *r)
{
    unsigned best = r->trial.way;

    for (unsigned way = 0; way < RS_TRIAL_WAYS; way++) {
        if ((r->trial.ways & RS_TRIAL_SET(way)) != 0 &&
            r->time[way] < r->time[best])
            best = way;
    }
    return best;
}

static void start(struct run *r)
{
    struct rs_trial_start s;

    if (r->due != 0 && r->starts >= r->due) {
        r->due = 0;
        rs_trial_took(&r->trial, r->timed);
    }
    s = rs_trial_start(&r->trial);
    cr_assert(r->trial.ways & RS_TRIAL_SET(s.way), "way %u", s.way);
    r->starts++;
    if (s.timed) {
        cr_assert_eq(r->due, 0, "one is timed while another is");
        r->due = r->starts + r->delay - 1;
        r->timed = r->time[s.way];
    }
    r->spent += r->time[s.way];
    r->went[s.way]++;
    r->least += r->time[fastest(r)];
}

static void starts(struct run *r, unsigned number)
{
    for (unsigned i = 0; i < number; i++)
        start(r);
}

enum {
    TWICE = 0,
    ONCE = RS_TRIAL_ONCE,
    PAST = RS_TRIAL_NONTEMPORAL,
    BOTH = RS_TRIAL_SET(TWICE) | RS_TRIAL_SET(ONCE),
    ALL = BOTH | RS_TRIAL_SET(PAST) | RS_TRIAL_SET(ONCE | PAST),
};

static struct run new_run(unsigned guess, uint64_t twice, uint64_t once)
{
    struct run r = {.time = {twice, once}, .delay = 1};

    rs_trial_load(&r.trial, BOTH, guess, 0);
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
    for (unsigned guess = 0; guess < 2; guess++) {
        for (unsigned faster = 0; faster < 2; faster++) {
            struct run r = new_run(guess, faster ? 300 : 200,
                                   faster ? 200 : 300);

            starts(&r, 24);
            cr_assert_eq(r.trial.way, faster, "guess %u", guess);
            cr_assert_eq(r.trial.trials, 1);
            cr_assert_eq(r.trial.changes, guess != faster);
        }
    }
}

Test(trial, leaves_what_gains_little)
{
    struct run r = new_run(ONCE, 190, 200);

    starts(&r, 10000);
    cr_assert_eq(r.trial.way, ONCE);
    cr_assert_gt(r.trial.trials, 1);
    cr_assert_eq(r.trial.changes, 0);
}

Test(trial, costs_little)
{
    static const uint64_t others[] = {201, 250, 300, 390, 410, 1000, 100000};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct run r = new_run(TWICE, 200, others[i]);

        starts(&r, 24); /* the first one is what it is */
        cr_assert_leq(cost(&r, 200000), 1. / 64, "%llu",
                      (unsigned long long)others[i]);
        cr_assert_gt(r.trial.trials, 2);
    }
}

Test(trial, notices_changes)
{
    /* Both are slower between far cores, and the other one is faster there. */
    const uint64_t near[2] = {200, 300}, far[2] = {800, 500};
    struct run r = new_run(ONCE, near[0], near[1]);

    for (int i = 0; i < 20; i++) {
        const uint64_t *times = i % 2 ? far : near;

        r.time[0] = times[0];
        r.time[1] = times[1];
        starts(&r, 5000);
        cr_assert_eq(r.trial.way, i % 2);
        /* By then it has been so for long: see what all of it has cost. */
    }
    cr_assert_lt((double)r.spent, 1.05 * (double)r.least);
}

Test(trial, restless_times_cost_a_sixteenth)
{
    struct run r = new_run(TWICE, 200, 390);
    uint64_t random = 1;

    starts(&r, 24);
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

/* Nothing is timed while it is not yet as it will be. */
Test(trial, begins_when_all_has_been_used)
{
    struct run r = {.time = {200, 300}, .delay = 1};

    rs_trial_load(&r.trial, BOTH, TWICE, 100);
    r.time[TWICE] = 20; /* for nobody has read it yet */
    starts(&r, 200);
    cr_assert_eq(r.went[ONCE], 0);
    r.time[TWICE] = 400;
    starts(&r, 116);
    cr_assert_eq(r.trial.trials, 1);
    cr_assert_eq(r.trial.way, ONCE);
}

enum { OTHERS = 8 };

/* Slots are fast once all of them have been used, and not after many others. */
struct ring {
    unsigned round;
    uint64_t cold, warm[RS_TRIAL_WAYS];
    unsigned used, others; /* starts that went so, and since then another way */
};

static void start_ring(struct run *r, struct ring *ring)
{
    for (unsigned way = 0; way < RS_TRIAL_WAYS; way++) {
        bool cold = (way & ONCE) == 0 && ring->used < ring->round;

        r->time[way] = cold ? ring->cold : ring->warm[way];
    }
    start(r);
    if ((r->trial.at & ONCE) == 0) {
        ring->others = 0;
        ring->used++;
    } else if (++ring->others > OTHERS) {
        ring->used = ring->others = 0;
    }
}

Test(trial, slots_are_used_all_round_first)
{
    static const struct {
        unsigned guess, best;
        uint64_t warm[RS_TRIAL_WAYS];
    } cases[] = {{ONCE, TWICE, {150, 200, 190, 200}},
                 {ONCE, PAST, {400, 300, 150, 300}},
                 {TWICE, PAST, {500, 300, 200, 300}},
                 {PAST, TWICE, {100, 300, 200, 300}}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (unsigned round = 1; round < 300; round += 23) {
            struct run r = {.delay = 1};
            struct ring ring = {.round = round, .cold = 550};

            memcpy(ring.warm, cases[i].warm, sizeof(ring.warm));
            rs_trial_load(&r.trial, ALL, cases[i].guess, round);
            for (unsigned k = 0; k < 16 + 5 * round + 16; k++)
                start_ring(&r, &ring);
            cr_assert_geq(r.trial.trials, 1, "%zu, %u", i, round);
            cr_assert_eq(r.trial.way, cases[i].best, "%zu, %u: %u", i, round, r.trial.way);
        }
    }
}

Test(trial, rounds_cost_little)
{
    static const uint64_t warm[][RS_TRIAL_WAYS] = {
        {250, 200, 220, 250}, {300, 200, 900, 250}, {200, 300, 150, 300}, {200, 500, 500, 500}};

    for (size_t i = 0; i < sizeof(warm) / sizeof(warm[0]); i++) {
        struct run r = {.delay = 1};
        struct ring ring = {.round = 100, .cold = 900};
        unsigned way = warm[i][ONCE] < warm[i][TWICE] ? ONCE : TWICE;
        uint64_t spent;

        memcpy(ring.warm, warm[i], sizeof(ring.warm));
        rs_trial_load(&r.trial, ALL, way, ring.round);
        for (unsigned k = 0; k < 1000; k++)
            start_ring(&r, &ring);
        cr_assert_eq(r.trial.way, way);
        spent = r.spent;
        for (unsigned k = 0; k < 2000000; k++)
            start_ring(&r, &ring);
        cr_assert_leq((double)(r.spent - spent), (1 + 1. / 64) * 2e6 * (double)warm[i][way],
                      "%zu: %g", i, (double)(r.spent - spent) / 2e6);
        cr_assert_gt(r.trial.trials, 2, "%zu", i);
    }
}

/* A receiver that is behind tells the time later; nothing is timed meanwhile. */
Test(trial, times_come_late)
{
    struct run r = new_run(TWICE, 300, 200);

    r.delay = 5;
    starts(&r, 60);
    cr_assert_eq(r.trial.way, ONCE);
    cr_assert_eq(r.trial.trials, 1);
}

Test(trial, loads)
{
    struct run r = new_run(TWICE, 300, 200);

    starts(&r, 24);
    cr_assert_eq(r.trial.way, ONCE);
    rs_trial_load(&r.trial, BOTH, TWICE, 0); /* the same again */
    cr_assert_eq(r.trial.way, ONCE);
    rs_trial_load(&r.trial, BOTH, ONCE, 0); /* its costs are others now */
    cr_assert_eq(r.trial.way, ONCE);
    starts(&r, 24);
    cr_assert_eq(r.trial.trials, 2);
    rs_trial_load(&r.trial, RS_TRIAL_SET(ONCE), ONCE, 0);
    cr_assert_not(r.trial.possible);
    rs_trial_load(&r.trial, BOTH, TWICE, 0);
    cr_assert_eq(r.trial.way, TWICE, "what was known before is forgotten");
    cr_assert_eq(r.trial.trials, 2);
}

/* Each way may be the fastest one, whichever is guessed, of any that are possible. */
Test(trial, finds_the_fastest_of_several)
{
    for (unsigned ways = 1; ways < RS_TRIAL_SET(RS_TRIAL_WAYS); ways++) {
        for (unsigned guess = 0; guess < RS_TRIAL_WAYS; guess++) {
            for (unsigned best = 0; best < RS_TRIAL_WAYS; best++) {
                struct run r = {.time = {300, 350, 310, 390}, .delay = 3};

                r.time[best] = 140;
                rs_trial_load(&r.trial, ways, guess, 0);
                if (!r.trial.possible ||
                    (ways & RS_TRIAL_SET(guess)) == 0 ||
                    (ways & RS_TRIAL_SET(best)) == 0)
                    continue;
                starts(&r, 64);
                cr_assert_eq(r.trial.way, best, "of %x, guess %u: %u", ways,
                             guess, r.trial.way);
                cr_assert_eq(r.trial.trials, 1);
                cr_assert_eq(r.trial.changes, guess != best);
            }
        }
    }
}

/* What takes more than twice as long is tried once in a trial, the others twice. */
Test(trial, several_cost_little)
{
    struct run r = {.time = {200, 5000, 290, 210}, .delay = 1};
    uint64_t trials;

    rs_trial_load(&r.trial, ALL, TWICE, 0);
    starts(&r, 32); /* the first one is what it is */
    cr_assert_eq(r.trial.trials, 1);
    cr_assert_eq(r.went[ONCE], 2);
    cr_assert_eq(r.went[PAST], 4);
    cr_assert_eq(r.went[ONCE | PAST], 4);
    cr_assert_leq(cost(&r, 400000), 1. / 64);
    trials = r.trial.trials;
    cr_assert_gt(trials, 2);
    cr_assert_eq(r.trial.changes, 0);
    cr_assert_leq(r.went[ONCE], 2 * trials + 2);
}

static unsigned way_after(unsigned guess, uint64_t ordinary, uint64_t past)
{
    struct run r = {.time = {ordinary, 0, past}, .delay = 1};

    rs_trial_load(&r.trial, RS_TRIAL_SET(TWICE) | RS_TRIAL_SET(PAST), guess, 0);
    starts(&r, 5000);
    cr_assert_gt(r.trial.trials, 1);
    return r.trial.way;
}

/* Two processes that find about the same must not find different ways. */
Test(trial, nontemporal_stores_must_gain_much)
{
    cr_assert_eq(way_after(TWICE, 800, 405), TWICE);
    cr_assert_eq(way_after(TWICE, 800, 395), PAST);
    cr_assert_eq(way_after(PAST, 800, 495), PAST);
    cr_assert_eq(way_after(PAST, 800, 505), TWICE);
}

static unsigned way_beside_one_copy(unsigned guess, uint64_t ordinary, uint64_t past)
{
    struct run r = {.time = {0, ordinary, 0, past}, .delay = 1};

    rs_trial_load(&r.trial, RS_TRIAL_SET(ONCE) | RS_TRIAL_SET(ONCE | PAST), guess, 0);
    starts(&r, 5000);
    cr_assert_gt(r.trial.trials, 1);
    return r.trial.way;
}

/* Most of what is timed there is the one copy. */
Test(trial, for_the_ends_they_must_gain_a_little)
{
    cr_assert_eq(way_beside_one_copy(ONCE, 800, 755), ONCE);
    cr_assert_eq(way_beside_one_copy(ONCE, 800, 745), ONCE | PAST);
    cr_assert_eq(way_beside_one_copy(ONCE | PAST, 800, 845), ONCE | PAST);
    cr_assert_eq(way_beside_one_copy(ONCE | PAST, 800, 855), ONCE);
}

/* They are compared with one copy as they are. */
Test(trial, the_better_stores_against_one_copy)
{
    static const struct {
        uint64_t time[RS_TRIAL_WAYS];
        unsigned best;
    } cases[] = {
        {{600, 350, 250, 900}, PAST},
        {{600, 300, 290, 900}, ONCE},
        {{260, 300, 250, 900}, TWICE},
        {{600, 500, 250, 200}, ONCE | PAST},
        {{600, 230, 250, 200}, ONCE | PAST},
        {{600, 205, 250, 200}, ONCE},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct run r = {.delay = 1};

        memcpy(r.time, cases[i].time, sizeof(r.time));
        rs_trial_load(&r.trial, ALL, ONCE, 0);
        starts(&r, 5000);
        cr_assert_eq(r.trial.way, cases[i].best, "case %zu: %u", i, r.trial.way);
    }
}

/* What is known of the ways' times is that of the last trial, and nothing in one. */
Test(trial, tells_times)
{
    struct run r = {.time = {600, 300, 250, 900}, .delay = 1};

    rs_trial_load(&r.trial, ALL, ONCE, 0);
    cr_assert_eq(rs_trial_time(&r.trial, true), 0);
    for (unsigned trials = 0; trials < 3;) {
        bool known;

        start(&r);
        trials = (unsigned)r.trial.trials;
        known = trials > 0 && r.trial.phase == 0;
        cr_assert_eq(rs_trial_time(&r.trial, true),
                     known ? r.time[r.trial.way] : 0);
        cr_assert_eq(rs_trial_time(&r.trial, false), known ? 250 : 0);
    }
    rs_trial_follow(&r.trial, ONCE);
    cr_assert_eq(rs_trial_time(&r.trial, true), 300);
    rs_trial_forget(&r.trial);
    cr_assert_eq(rs_trial_time(&r.trial, true), 0);
}

/* Two that follow each other copy in the same way in all epochs that are timed, and what
 * either finds alone is not what they find together. */
Test(trial, follows)
{
    struct rs_trial leader = {.trials = 0}, follower = {.trials = 0};
    unsigned told = TWICE, timed = 0;

    rs_trial_load(&leader, ALL, TWICE, 0);
    rs_trial_load(&follower, ALL, TWICE, 0);
    for (int i = 0; i < 2000; i++) {
        /* It hears of the start before. */
        struct rs_trial_start s = rs_trial_start(&leader);
        uint64_t time;

        rs_trial_follow(&follower, told);
        cr_assert_eq(follower.way, told);
        /* One copy each is fastest, but not for one alone. */
        time = s.way != follower.way ? 600 : s.way == ONCE ? 200 : 300;
        if (s.timed) {
            cr_assert_eq(s.way, follower.way);
            rs_trial_took(&leader, time);
            timed++;
        }
        told = s.way;
    }
    cr_assert_gt(timed, 10);
    cr_assert_eq(leader.way, ONCE);
    cr_assert_eq(follower.way, ONCE);
    cr_assert_eq(follower.trials, 0);
}

/* Without one that leads, it tries out by itself again. */
Test(trial, follows_no_more)
{
    struct run r = new_run(TWICE, 300, 200);

    for (int i = 0; i < 50; i++)
        rs_trial_follow(&r.trial, i % 3 == 0 ? ONCE : TWICE);
    cr_assert_eq(r.trial.way, TWICE);
    starts(&r, 32);
    cr_assert_eq(r.trial.way, ONCE);
    cr_assert_eq(r.trial.trials, 1);
}

/* In the middle of a trial, of which a time is still to come. */
Test(trial, follows_all_of_a_sudden)
{
    for (unsigned at = 0; at < 32; at++) {
        struct run r = new_run(TWICE, 300, 200);

        r.delay = 3;
        starts(&r, at);
        rs_trial_follow(&r.trial, TWICE);
        rs_trial_took(&r.trial, 1);
        cr_assert_eq(r.trial.way, TWICE);
        r.due = 0;
        starts(&r, 64);
        cr_assert_eq(r.trial.way, ONCE);
    }
}

/* The one that is left hopeless only by the second look at the usual way. */
Test(trial, the_usual_way_gets_faster_meanwhile)
{
    for (unsigned at = 0; at < 12; at++) {
        struct run r = {.time = {900, 1000, 1000, 1000}, .delay = 1};

        rs_trial_load(&r.trial, ALL, TWICE, 0);
        starts(&r, 16 + at);
        r.time[TWICE] = 100;
        starts(&r, 400);
        cr_assert_eq(r.trial.way, TWICE);
        cr_assert_gt(r.trial.trials, 0);
    }
}

/* Times that nobody ever knows do not lead out of a trial, or to another way. */
Test(trial, goes_on_after_lost_times)
{
    for (unsigned lost = 0; lost < 16; lost++) {
        struct rs_trial t = {.trials = 0};
        const uint64_t time[RS_TRIAL_WAYS] = {500, 250, 200, 280};
        unsigned timed = 0;

        rs_trial_load(&t, ALL, TWICE, 0);
        for (int i = 0; i < 200; i++) {
            struct rs_trial_start s = rs_trial_start(&t);

            if (!s.timed)
                continue;
            if (timed++ == lost)
                rs_trial_lost(&t);
            else
                rs_trial_took(&t, time[s.way]);
        }
        cr_assert_eq(t.way, PAST);
        cr_assert_geq(t.trials, 1);
    }
}
