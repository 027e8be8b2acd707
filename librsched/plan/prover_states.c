/* SPDX-License-Identifier: BSD-3-Clause */
/* States that were met before; see exact.c. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "librsched/base/error.h"
#include "librsched/plan/prover.h"

typedef unsigned __int128 wide;

enum {
    SEEN_BITS = 18, /* states that are stored */
    SEEN_WAYS = 4,
};

/* A state that was met: 128 bits of its hash, and when. */
struct rs_seen {
    XXH128_hash_t hash;
    uint64_t ticks; /* 0: none */
};

/* What a state is made of, for its hash. */
struct portrait {
    uint8_t counts[RS_PROVER_KINDS];
    uint64_t ticks; /* 0 when all engines are open */
    struct portrait_actor {
        wide left;
        uint64_t phase, alike, cls, next;
    } actors[RS_WEIGHTS_ENGINES];
};

static_assert(sizeof(struct portrait) ==
                  RS_PROVER_KINDS + sizeof(uint64_t) + RS_WEIGHTS_ENGINES * 48,
              "a portrait is hashed, so it must not have holes");

static int compare_actors(const struct portrait_actor *a,
                          const struct portrait_actor *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    if (a->alike != b->alike)
        return a->alike < b->alike ? -1 : 1;
    if (a->cls != b->cls)
        return a->cls < b->cls ? -1 : 1;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    return (a->next > b->next) - (a->next < b->next);
}

/* The order of engines that are alike does not matter. */
static void sort_actors(struct portrait_actor *actors, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct portrait_actor actor = actors[i];
        uint32_t j = i;

        for (; j > 0 && compare_actors(&actor, &actors[j - 1]) < 0; j--)
            actors[j] = actors[j - 1];
        actors[j] = actor;
    }
}

static void draw_actor(const struct rs_prover *prover,
                       const struct rs_stage *stage, uint32_t engine,
                       const struct rs_renaming *renaming,
                       struct portrait_actor *drawn)
{
    const struct rs_actor *actor = &stage->actors[engine];

    drawn->phase = actor->phase;
    if (actor->phase != RS_CLOSED)
        drawn->alike = prover->alike[engine];
    if (actor->phase != RS_FLOWS && actor->phase != RS_COMMAND)
        return;
    drawn->cls = renaming->cls[actor->cls];
    drawn->left = actor->left;
    if (actor->phase == RS_FLOWS)
        drawn->left -= (wide)actor->rate * (stage->now - actor->since);
    else
        drawn->next = actor->next - stage->now;
}

static void draw(const struct rs_prover *prover, const struct rs_stage *stage,
                 const struct rs_renaming *renaming, struct portrait *portrait)
{
    memset(portrait, 0, sizeof(*portrait));
    for (size_t k = 0; k < prover->num_kinds; k++)
        portrait->counts[renaming->kind[k]] = (uint8_t)prover->kinds[k].count;
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];

        draw_actor(prover, stage, e, renaming, &portrait->actors[e]);
        /* An engine that has just opened may still stay unused. */
        if (actor->phase == RS_OPENS ||
            (actor->phase == RS_FREE && actor->cls == UINT32_MAX))
            portrait->ticks = stage->now + 1;
    }
    sort_actors(portrait->actors, stage->num_engines);
}

static XXH128_hash_t hash(const struct rs_prover *prover,
                          const struct rs_stage *stage)
{
    struct portrait best, other;

    draw(prover, stage, &prover->renamings[0], &best);
    for (size_t i = 1; i < prover->num_renamings; i++) {
        draw(prover, stage, &prover->renamings[i], &other);
        if (memcmp(&other, &best, sizeof(best)) < 0)
            best = other;
    }
    return XXH3_128bits(&best, sizeof(best));
}

bool rs_prover_was_met(struct rs_prover *prover, const struct rs_stage *stage)
{
    XXH128_hash_t h = hash(prover, stage);
    struct rs_seen *slot = &prover->seen[(h.low64 >> (64 - SEEN_BITS)) *
                                      SEEN_WAYS];
    struct rs_seen *victim = slot;

    for (size_t i = 0; i < SEEN_WAYS; i++) {
        if (slot[i].ticks != 0 && XXH128_isEqual(slot[i].hash, h)) {
            if (slot[i].ticks <= stage->now + 1)
                return true;
            victim = &slot[i];
            break;
        }
        if (slot[i].ticks == 0) {
            victim = &slot[i];
            break;
        }
        /* The latest one saves least. */
        if (slot[i].ticks > victim->ticks)
            victim = &slot[i];
    }
    victim->hash = h;
    victim->ticks = stage->now + 1;
    return false;
}

int rs_prover_remember(struct rs_prover *prover)
{
    prover->seen = calloc((size_t)SEEN_WAYS << SEEN_BITS,
                          sizeof(*prover->seen));
    return prover->seen != NULL ? 0 : rs_fail(RSCHED_ENOMEM, "no memory to "
                                              "prove an optimum");
}
