/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/trial_group.h"

#include <assert.h>
#include <stddef.h>

enum {
    PATIENCE = 16, /* steps after one that is timed until it is over */
    UNIT = 1024,  /* bytes that times are for */
    BEAT = 16,    /* steps from one change of what is told to the next */
    SILENCE = 4 * BEAT, /* from here on nobody is followed */
    /* What is told: the way, plus 1, and above that how often it has changed. */
    WAY_BITS = 3,
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

static void begin(struct rs_trial_group *g, unsigned ways, unsigned guess, uint32_t round)
{
    rs_trial_forget(&g->trial);
    rs_trial_load(&g->trial, ways, guess, round);
    g->start = (struct rs_trial_start){g->trial.way, false};
    g->timed = 0;
}

void rs_trial_join(struct rs_trial_member *m, struct rs_trial_group *group,
                   uint64_t bytes, unsigned ways, unsigned guess, uint32_t round)
{
    bool stays = m->group == group;

    if (stays && (group == NULL || (m->guess == guess && m->round == round)))
        return;
    if (!stays && m->group != NULL)
        leave(m);
    m->bytes = bytes;
    m->guess = guess;
    m->round = round;
    if (group == NULL)
        return;
    if (group->members == 0 || stays)
        begin(group, ways, guess, round);
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

static_assert(RS_TRIAL_WAYS < 1 << WAY_BITS, "a way, and none");

/* The way of the group that is followed. */
static bool hears(struct rs_trial_group *g, uint8_t heard, unsigned *way)
{
    unsigned told = heard % (1u << WAY_BITS);

    if (heard != g->heard)
        g->silent = 0;
    else if (g->silent < SILENCE)
        g->silent++;
    g->heard = heard;
    *way = told - 1;
    return told > 0 && told <= RS_TRIAL_WAYS && g->silent < SILENCE &&
           (g->trial.ways & RS_TRIAL_SET(*way)) != 0;
}

static void next_step(struct rs_trial_group *g, struct rs_trial_member *m,
                      uint8_t heard)
{
    unsigned way;

    g->step++;
    if (g->timed != 0 && (g->awaited == 0 || g->step > g->timed + PATIENCE))
        conclude(g, m);
    g->follows = hears(g, heard, &way);
    if (g->follows) {
        rs_trial_follow(&g->trial, way);
        g->start = (struct rs_trial_start){way, false};
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

uint8_t rs_trial_member_tells(const struct rs_trial_member *m)
{
    const struct rs_trial_group *g = m->group;

    return g->follows ? 0
                      : (uint8_t)(g->step / BEAT << WAY_BITS | (g->start.way + 1));
}

struct rs_trial_start rs_trial_member_start(struct rs_trial_member *m, uint8_t heard)
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
