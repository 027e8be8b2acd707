/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that are tried out together, of which the times are given: what is
 * found where each of them alone would find something else, and that nobody is
 * waited for in vain. */
#include <criterion/criterion.h>

#include "engines/common/trial_group.h"

enum {
    MEMBERS = 6,
    BYTES = 4096,
    BOTH = RS_TRIAL_SET(0) | RS_TRIAL_SET(RS_TRIAL_ONCE),
};

struct run {
    struct rs_trial_group group;
    struct rs_trial_member members[MEMBERS];
    bool once[MEMBERS];  /* in the last step */
    bool timed[MEMBERS]; /* in the last step */
    unsigned timed_steps;
    bool differs; /* through slots only the first one is sent */
};

static void join(struct run *r, bool guess)
{
    for (int i = 0; i < MEMBERS; i++)
        rs_trial_join(&r->members[i], &r->group, BYTES, BOTH, guess ? RS_TRIAL_ONCE : 0, 0);
}

/* Slots take 300 for each. The kernel takes 600 for a call, which reads all that go
 * that way, and 100 for each of these. */
static uint64_t time_of(const struct run *r, int i)
{
    int together = 0;

    for (int k = 0; k < MEMBERS; k++)
        together += r->once[k];
    return r->once[i] ? 600 / (uint64_t)together + 100 : 300;
}

/* One step of the program with the first `number` members: the times of the last
 * one become known first. */
static void step(struct run *r, int number)
{
    uint64_t times[MEMBERS];

    for (int i = 0; i < number; i++)
        times[i] = time_of(r, i);
    for (int i = 0; i < number; i++) {
        struct rs_trial_start start;

        if (i > 0 && r->differs && !r->once[0])
            break;
        if (r->timed[i])
            rs_trial_member_took(&r->members[i], times[i]);
        start = rs_trial_member_start(&r->members[i], 0);
        r->once[i] = start.way == RS_TRIAL_ONCE;
        r->timed[i] = start.timed;
        cr_assert_eq(start.way, r->once[0], "they go different ways");
        cr_assert_eq(start.timed, r->timed[0]);
    }
    r->timed_steps += r->timed[0];
}

static uint64_t sum(const struct run *r, bool changes)
{
    uint64_t all = 0;

    for (int i = 0; i < MEMBERS; i++)
        all += changes ? r->members[i].changes : r->members[i].trials;
    return all;
}

/* One of six that is read alone takes 700, more than twice what slots take. */
Test(trial_group, finds_what_is_faster_for_all)
{
    struct run r = {0};

    join(&r, false);
    for (int i = 0; i < 40; i++)
        step(&r, MEMBERS);
    cr_assert(r.once[0], "200 each, not 300");
    cr_assert_eq(r.group.trial.way, rs_trial_group_way(&r.members[3]));
    cr_assert_eq(sum(&r, false), r.group.trial.trials);
    cr_assert_geq(sum(&r, false), 1);
    cr_assert_eq(sum(&r, true), 1);
}

Test(trial_group, one_alone_finds_what_is_faster_for_it)
{
    struct run r = {0};

    rs_trial_join(&r.members[0], &r.group, BYTES, BOTH, RS_TRIAL_ONCE, 0);
    for (int i = 0; i < 40; i++)
        step(&r, 1);
    cr_assert_not(r.once[0]);
    cr_assert_eq(sum(&r, true), 1);
}

/* What counts is the time for a byte: one through slots takes less than all six that
 * are read together, but more than each of these. */
Test(trial_group, steps_may_differ)
{
    struct run r = {.differs = true};

    join(&r, true);
    for (int i = 0; i < 400; i++)
        step(&r, MEMBERS);
    cr_assert(r.group.trial.way);
    cr_assert_geq(r.group.trial.trials, 1);
    cr_assert_eq(r.group.trial.changes, 0);
}

/* Whether something is timed again, after a step that was. */
static bool goes_on(struct run *r, int number)
{
    unsigned before = r->timed_steps;

    for (int i = 0; i < 100; i++)
        step(r, number);
    return r->timed_steps > before + 1;
}

static void step_until_timed(struct run *r)
{
    do
        step(r, MEMBERS);
    while (!r->timed[0]);
}

Test(trial_group, members_may_go)
{
    struct run r = {0};

    join(&r, false);
    step_until_timed(&r);
    rs_trial_join(&r.members[MEMBERS - 1], NULL, 0, 0, 0, 0);
    cr_assert_eq(r.group.members, MEMBERS - 1);
    cr_assert(goes_on(&r, MEMBERS - 1));
}

Test(trial_group, members_may_stay_away)
{
    struct run r = {0};

    join(&r, false);
    step_until_timed(&r);
    cr_assert(goes_on(&r, 3), "three are never started again");
    cr_assert_geq(r.group.trial.trials, 1);
}

Test(trial_group, times_may_never_be_known)
{
    struct run r = {0};

    join(&r, false);
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < MEMBERS; k++) {
            if (r.timed[k])
                rs_trial_member_took(&r.members[k], UINT64_MAX);
            r.timed[k] =
                rs_trial_member_start(&r.members[k], 0).timed;
        }
    }
    cr_assert_eq(r.group.trial.trials, 0);
    for (int k = 0; k < MEMBERS; k++)
        r.timed[k] = false;
    cr_assert(goes_on(&r, MEMBERS));
}

/* A group that leads, and one that follows it: the members go that one's way from where
 * their next step begins, those of one step the same. */
struct two {
    struct run leader, follower;
    uint8_t told;
};

static void step_both(struct two *t, bool leads, bool follows)
{
    unsigned way = t->follower.group.start.way;

    for (int k = 0; k < MEMBERS; k++) {
        struct rs_trial_member *m = &t->leader.members[k];
        struct rs_trial_start s;

        if (leads) {
            s = rs_trial_member_start(m, 0);
            t->told = rs_trial_member_tells(m);
            cr_assert_neq(t->told, 0);
            if (s.timed)
                rs_trial_member_took(m, s.way == RS_TRIAL_ONCE ? 100 : 300);
        }
        m = &t->follower.members[k];
        s = rs_trial_member_start(m, t->told);
        if (k == 0)
            way = s.way;
        cr_assert_eq(s.way, way);
        if (follows) {
            cr_assert_not(s.timed);
            cr_assert_eq(s.way, t->leader.group.start.way);
            cr_assert_eq(rs_trial_member_tells(m), 0, "who follows tells nothing");
        } else if (s.timed) {
            rs_trial_member_took(m, s.way == RS_TRIAL_ONCE ? 300 : 100);
        }
    }
}

Test(trial_group, follows)
{
    struct two t = {.told = 0};

    join(&t.leader, false);
    join(&t.follower, false);
    for (int i = 0; i < 2000; i++)
        step_both(&t, true, true);
    cr_assert_gt(t.leader.group.trial.trials, 1);
    cr_assert_eq(rs_trial_group_way(&t.follower.members[0]), RS_TRIAL_ONCE);
    cr_assert_eq(t.follower.group.trial.trials, 0);
    /* It makes no more steps: what it has told last is no news. */
    for (int i = 0; i < 200; i++)
        step_both(&t, false, false);
    cr_assert_geq(t.follower.group.trial.trials, 1);
    cr_assert_eq(rs_trial_group_way(&t.follower.members[0]), 0);
    /* Until it goes on. */
    for (int i = 0; i < 20; i++)
        step_both(&t, true, false);
    step_both(&t, true, true);
    cr_assert_eq(rs_trial_group_way(&t.follower.members[0]), RS_TRIAL_ONCE);
}

/* Who leads is another program's process: it may say anything. */
Test(trial_group, hears_what_cannot_be)
{
    struct run r = {0};

    join(&r, false);
    for (int i = 0; i < 3000; i++) {
        struct rs_trial_start s = rs_trial_member_start(&r.members[i % MEMBERS],
                                                        (uint8_t)(i * 37));

        cr_assert(s.way == 0 || s.way == RS_TRIAL_ONCE);
    }
}

Test(trial_group, is_forgotten)
{
    struct run r = {0};

    join(&r, false);
    for (int i = 0; i < 40; i++)
        step(&r, MEMBERS);
    join(&r, false); /* the same again */
    cr_assert(r.group.trial.way);
    /* The costs of one are others now: they start anew, also its time. */
    step_until_timed(&r);
    rs_trial_join(&r.members[2], &r.group, BYTES, BOTH, RS_TRIAL_ONCE, 0);
    rs_trial_join(&r.members[2], &r.group, BYTES, BOTH, 0, 0);
    cr_assert_not(r.group.trial.way);
    cr_assert(goes_on(&r, MEMBERS));
    cr_assert(r.group.trial.way);
    /* It has other slots now. */
    rs_trial_join(&r.members[2], &r.group, BYTES, BOTH, 0, 2);
    cr_assert_not(r.group.trial.way);
    cr_assert(goes_on(&r, MEMBERS));
    cr_assert(r.group.trial.way);
    for (int i = 0; i < MEMBERS; i++)
        rs_trial_join(&r.members[i], NULL, 0, 0, 0, 0);
    cr_assert_eq(r.group.members, 0);
    cr_assert_not(r.group.trial.possible);
    join(&r, false);
    cr_assert_not(r.group.trial.way);
}
