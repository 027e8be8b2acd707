/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/trial_group.h"

#include <stddef.h>

enum {
    PATIENCE = 16, /* steps after one that is timed until it is over */
    UNIT = 1024,  /* bytes that times are for */
};

/* All is known of a timed step that will be. */
static void conclude(struct rs_trial_group *g, struct rs_trial_member *m)
{
    uint64_t trials = g->trial.trials, changes = g->trial.changes;

    g->timed = 0;
    if (g->bytes > 0)
        rs_trial_took(&g->trial, (uint64_t)((double)g->ps * UNIT /
                                            (double)g->bytes));
    else
        rs_trial_lost(&g->trial);
    m->trials += g->trial.trials - trials;
    m->changes += g->trial.changes - changes;
}

static void leave(struct rs_trial_member *m)
{
    struct rs_trial_group *g = m->group;

    rs_trial_member_took(m, UINT64_MAX);
    m->group = NULL;
    if (--g->members > 0)
        return;
    rs_trial_forget(&g->trial);
    g->timed = 0;
}

static void begin(struct rs_trial_group *g, unsigned ways, unsigned guess)
{
    rs_trial_forget(&g->trial);
    rs_trial_load(&g->trial, ways, guess);
    g->start = (struct rs_trial_start){g->trial.way, false};
    g->timed = 0;
}

void rs_trial_join(struct rs_trial_member *m, struct rs_trial_group *group,
                   uint64_t bytes, unsigned ways, unsigned guess)
{
    bool stays = m->group == group;

    if (stays && (group == NULL || m->guess == guess))
        return;
    if (!stays && m->group != NULL)
        leave(m);
    m->bytes = bytes;
    m->guess = guess;
    if (group == NULL)
        return;
    if (group->members == 0 || stays)
        begin(group, ways, guess);
    if (stays)
        return;
    m->group = group;
    m->step = m->timed = 0;
    group->members++;
}

unsigned rs_trial_group_way(const struct rs_trial_member *m)
{
    return m->group->trial.way;
}

static void next_step(struct rs_trial_group *g, struct rs_trial_member *m,
                      unsigned heard)
{
    g->step++;
    if (g->timed != 0 && (g->awaited == 0 || g->step > g->timed + PATIENCE))
        conclude(g, m);
    g->follows = heard < RS_TRIAL_WAYS &&
                 (g->trial.ways & RS_TRIAL_SET(heard)) != 0;
    if (g->follows) {
        rs_trial_follow(&g->trial, heard);
        g->start = (struct rs_trial_start){heard, false};
        g->timed = 0;
        return;
    }
    g->start = rs_trial_start(&g->trial);
    if (!g->start.timed)
        return;
    g->timed = g->step;
    g->awaited = 0;
    g->bytes = g->ps = 0;
}

unsigned rs_trial_member_tells(const struct rs_trial_member *m)
{
    return m->group->follows ? RS_TRIAL_WAYS : m->group->start.way;
}

struct rs_trial_start rs_trial_member_start(struct rs_trial_member *m, unsigned heard)
{
    struct rs_trial_group *g = m->group;

    if (m->step == g->step)
        next_step(g, m, heard);
    m->step = g->step;
    if (g->start.timed && g->timed == g->step) {
        m->timed = g->step;
        g->awaited++;
        return g->start;
    }
    return (struct rs_trial_start){g->start.way, false};
}

void rs_trial_member_took(struct rs_trial_member *m, uint64_t ps)
{
    struct rs_trial_group *g = m->group;
    uint64_t step = m->timed;

    m->timed = 0;
    if (step == 0 || g == NULL || step != g->timed)
        return; /* it is over without this one */
    g->awaited--;
    if (ps != UINT64_MAX) {
        g->bytes += m->bytes;
        g->ps += ps;
    }
    if (g->awaited == 0 && g->step > step)
        conclude(g, m);
}
