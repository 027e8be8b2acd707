/* SPDX-License-Identifier: BSD-3-Clause */
/* What the rest of a schedule takes at least; see exact.c. */
#include "librsched/plan/prover.h"

typedef unsigned __int128 wide;

/* Bytes on links: the stage is at a moment of decision. */
static bool links_fit(const struct rs_prover *prover,
                      const struct rs_stage *stage)
{
    wide left[RS_PROVER_LINKS];
    uint64_t from[RS_PROVER_LINKS], command = prover->script->command;

    for (size_t l = 0; l < prover->num_links; l++) {
        left[l] = prover->links[l].left;
        from[l] = stage->now + command;
    }
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];
        uint64_t moves = actor->phase == RS_FLOWS ? stage->now : actor->next;
        wide rest;

        if (actor->phase != RS_FLOWS && actor->phase != RS_COMMAND)
            continue;
        rest = actor->left - (actor->phase == RS_FLOWS
                                  ? (wide)actor->rate *
                                        (stage->now - actor->since)
                                  : 0);
        if (moves > prover->deadline ||
            rest > (wide)prover->script->caps[e] * (prover->deadline - moves))
            return false;
        for (size_t l = 0; l < prover->num_links; l++) {
            if ((prover->link_of[actor->cls][e] >> l & 1) == 0)
                continue;
            left[l] += rest;
            from[l] = moves < from[l] ? moves : from[l];
        }
    }
    for (size_t l = 0; l < prover->num_links; l++) {
        if (left[l] != 0 &&
            (from[l] >= prover->deadline ||
             left[l] > (wide)prover->links[l].capacity *
                           (prover->deadline - from[l])))
            return false;
    }
    return true;
}

/* The longest put that is not started, on the fastest engine, from now on. */
static bool longest_fits(const struct rs_prover *prover,
                         const struct rs_stage *stage)
{
    uint64_t from = stage->now + prover->script->command;

    for (size_t k = 0; k < prover->num_kinds; k++) {
        const struct rs_kind *kind = &prover->kinds[k];

        if (kind->count == 0)
            continue;
        /* Kinds are sorted by decreasing bytes. */
        return from <= prover->deadline &&
               kind->bytes * RS_STAGE_BYTE <= (wide)prover->script->cap *
                                         (prover->deadline - from);
    }
    return true;
}

/* What engines can earn from now to the deadline. */
static wide income(const struct rs_prover *prover, const struct rs_stage *stage,
                   const struct rs_weights *weights)
{
    uint64_t from = stage->now;
    uint32_t engines = 0;
    wide sum = 0;

    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];

        engines += actor->phase != RS_CLOSED && actor->phase != RS_OPENS;
    }
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];

        if (actor->phase != RS_OPENS || actor->next >= prover->deadline)
            continue;
        sum += weights->most[engines++] * (actor->next - from);
        from = actor->next;
    }
    return sum + weights->most[engines] * (prover->deadline - from);
}

static bool weights_fit(const struct rs_prover *prover,
                        const struct rs_stage *stage)
{
    wide left[RS_WEIGHTS_ENGINES];
    uint32_t cls[RS_WEIGHTS_ENGINES];
    uint64_t commands = 0;
    size_t flying = 0;

    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];

        if (actor->phase == RS_COMMAND)
            commands += actor->next - stage->now;
        else if (actor->phase != RS_FLOWS)
            continue;
        left[flying] = actor->left;
        if (actor->phase == RS_FLOWS)
            left[flying] -= (wide)actor->rate * (stage->now - actor->since);
        cls[flying++] = actor->cls;
    }
    for (size_t w = 0; w < prover->num_weights; w++) {
        const struct rs_weights *weights = &prover->weights[w];
        wide need = prover->weighed[w] +
                    (wide)weights->weight[prover->script->num_classes] *
                        prover->script->cap * commands;

        for (size_t i = 0; i < flying; i++)
            need += weights->weight[cls[i]] * left[i];
        if (need > income(prover, stage, weights))
            return false;
    }
    return true;
}

bool rs_prover_can_improve(const struct rs_prover *prover,
                           const struct rs_stage *stage)
{
    return stage->now <= prover->deadline && longest_fits(prover, stage) &&
           links_fit(prover, stage) && weights_fit(prover, stage);
}
