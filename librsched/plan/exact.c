/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exact: branch and bound over the decisions of engines. The fluid simulation
 * runs; whenever an engine has nothing to do, every kind of put that is left
 * (bytes and class) is tried on it, and sending it home. A branch is left when
 * it cannot end before the best schedule so far, which fllf provides:
 *
 * - each link's bytes, at its capacity, beginning when the first of them can
 *   move; and each put's, at the engine's rate;
 * - weights (weights.h) for what is left at several moments of the best
 *   schedule;
 *
 * or when the same state was met before and not later: the same kinds left, the
 * same bytes in flight, under any renaming of links that leaves the problem as
 * it is (west for east). Once all engines are open a state does not depend on
 * the time at which it is reached, so it is stored with the earliest.
 *
 * States are compared by 128 bits of a hash. That two of the 10^7 states of a
 * run share one by accident has a probability below 10^-24.
 *
 * When all branches are done the result is proven; when `nodes` runs out, it
 * is the best so far.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "librsched/base/error.h"
#include "librsched/plan/planners.h"
#include "librsched/plan/weights.h"

typedef unsigned __int128 wide;

enum {
    KINDS = 24,            /* of puts, at most */
    PUTS = 64,             /* at most */
    ENGINES = RS_WEIGHTS_ENGINES,
    CLASSES = RS_WEIGHTS_CLASSES,
    LINKS = 16,            /* that puts use, at most */
    LINKS_RENAMED = 6,     /* above this links keep their names */
    RENAMINGS = 16,
    SEEN_BITS = 18,        /* states that are stored */
    SEEN_WAYS = 4,
    BYTES_BITS = 40,       /* all bytes together */
    TICKS_BITS = 50,       /* a makespan */
    RATE_BITS_MOST = 42,   /* an engine, bytes/s */
    WEIGHTS = 16,
    UNIT_BITS = 26,        /* see models/fluid.c */
};

#define BYTE ((wide)1000000000000 << UNIT_BITS)

/* Puts that nothing tells apart. */
struct kind {
    uint64_t bytes;
    uint32_t cls;
    uint32_t count;  /* not started yet */
    uint32_t puts[PUTS];
    uint32_t num_puts;
};

struct renaming {
    uint8_t kind[KINDS], cls[CLASSES];
};

/* A state that was met: 128 bits of its hash, and when. */
struct seen {
    XXH128_hash_t hash;
    uint64_t ticks; /* 0: none */
};

/* What a state is made of, for its hash. */
struct portrait {
    uint8_t counts[KINDS];
    uint64_t ticks; /* 0 when all engines are open */
    struct portrait_actor {
        uint64_t phase, cls, next;
        wide left;
    } actors[ENGINES];
};

/* What is left to do on a link. */
struct link {
    uint64_t capacity; /* units */
    wide left;         /* of puts not started, units */
};

struct prover {
    const struct rs_problem *problem;
    struct rs_script *script;
    uint64_t nodes, most_nodes;
    bool stopped; /* the nodes have run out */
    struct kind kinds[KINDS];
    size_t num_kinds;
    size_t puts_left;     /* not started */
    struct link links[LINKS];
    size_t num_links;
    uint32_t link_of[CLASSES]; /* a set of bits */
    struct rs_weights weights[WEIGHTS];
    wide weighed[WEIGHTS]; /* what is not started, in weight units */
    size_t num_weights;
    struct renaming renamings[RENAMINGS];
    size_t num_renamings;
    struct seen *seen;
    uint64_t deadline; /* ticks: what is looked for ends by then */
    struct decision {
        uint32_t engine, put;
    } path[PUTS], best[PUTS];
    size_t depth;
    bool improved;
    struct rs_stage *stages[PUTS + ENGINES + 2]; /* one for each decision */
};

/* ---------------------------------------------------------------- bounds */

/* Bytes on links: the stage is at a moment of decision. */
static bool links_fit(const struct prover *prover,
                      const struct rs_stage *stage)
{
    wide left[LINKS];
    uint64_t from[LINKS], command = prover->script->command;

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
            rest > (wide)prover->script->cap * (prover->deadline - moves))
            return false;
        for (size_t l = 0; l < prover->num_links; l++) {
            if ((prover->link_of[actor->cls] >> l & 1) == 0)
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

/* The longest put that is not started, on an engine that is free now. */
static bool longest_fits(const struct prover *prover,
                         const struct rs_stage *stage)
{
    uint64_t from = stage->now + prover->script->command;

    for (size_t k = 0; k < prover->num_kinds; k++) {
        const struct kind *kind = &prover->kinds[k];

        if (kind->count == 0)
            continue;
        /* Kinds are sorted by decreasing bytes. */
        return from <= prover->deadline &&
               kind->bytes * BYTE <= (wide)prover->script->cap *
                                         (prover->deadline - from);
    }
    return true;
}

/* What engines can earn from now to the deadline. */
static wide income(const struct prover *prover, const struct rs_stage *stage,
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

static bool weights_fit(const struct prover *prover,
                        const struct rs_stage *stage)
{
    wide left[ENGINES];
    uint32_t cls[ENGINES];
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

static bool can_improve(const struct prover *prover,
                        const struct rs_stage *stage)
{
    return stage->now <= prover->deadline && longest_fits(prover, stage) &&
           links_fit(prover, stage) && weights_fit(prover, stage);
}

/* ---------------------------------------------------------- states before */

static int compare_actors(const struct portrait_actor *a,
                          const struct portrait_actor *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    if (a->cls != b->cls)
        return a->cls < b->cls ? -1 : 1;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    return (a->next > b->next) - (a->next < b->next);
}

/* Engines that are open are alike, so their order does not matter. */
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

static void draw_actor(const struct rs_stage *stage,
                       const struct rs_actor *actor,
                       const struct renaming *renaming,
                       struct portrait_actor *drawn)
{
    drawn->phase = actor->phase;
    if (actor->phase != RS_FLOWS && actor->phase != RS_COMMAND)
        return;
    drawn->cls = renaming->cls[actor->cls];
    drawn->left = actor->left;
    if (actor->phase == RS_FLOWS)
        drawn->left -= (wide)actor->rate * (stage->now - actor->since);
    else
        drawn->next = actor->next - stage->now;
}

static void draw(const struct prover *prover, const struct rs_stage *stage,
                 const struct renaming *renaming, struct portrait *portrait)
{
    memset(portrait, 0, sizeof(*portrait));
    for (size_t k = 0; k < prover->num_kinds; k++)
        portrait->counts[renaming->kind[k]] = (uint8_t)prover->kinds[k].count;
    for (uint32_t e = 0; e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];

        draw_actor(stage, actor, renaming, &portrait->actors[e]);
        /* An engine that has just opened may still stay unused. */
        if (actor->phase == RS_OPENS ||
            (actor->phase == RS_FREE && actor->cls == UINT32_MAX))
            portrait->ticks = stage->now + 1;
    }
    sort_actors(portrait->actors, stage->num_engines);
}

static XXH128_hash_t hash(const struct prover *prover,
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

/* Whether this state was met before and not later; it is stored if not. */
static bool was_met(struct prover *prover, const struct rs_stage *stage)
{
    XXH128_hash_t h = hash(prover, stage);
    struct seen *slot = &prover->seen[(h.low64 >> (64 - SEEN_BITS)) *
                                      SEEN_WAYS];
    struct seen *victim = slot;

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

/* --------------------------------------------------------------- branches */

/* Take a put of a kind out of, or back into, what is not started. */
static void count_put(struct prover *prover, struct kind *kind, bool taken)
{
    wide command = (wide)prover->script->command * prover->script->cap;
    wide bytes = kind->bytes * BYTE;

    kind->count += taken ? -1u : 1u;
    prover->puts_left += taken ? (size_t)-1 : 1;
    for (size_t l = 0; l < prover->num_links; l++) {
        if (prover->link_of[kind->cls] >> l & 1)
            prover->links[l].left += taken ? -bytes : bytes;
    }
    for (size_t w = 0; w < prover->num_weights; w++) {
        const uint64_t *weight = prover->weights[w].weight;
        wide more = weight[kind->cls] * bytes +
                    weight[prover->script->num_classes] * command;

        prover->weighed[w] += taken ? -more : more;
    }
}

static void record(struct prover *prover, const struct rs_stage *stage)
{
    if (stage->last > prover->deadline)
        return;
    prover->improved = true;
    memcpy(prover->best, prover->path, sizeof(prover->best));
    /* Only schedules that are shorter by a whole ps are of interest. */
    prover->deadline = (rs_stage_ps(stage->last) - 1) << RS_STAGE_TICK_BITS;
}

static void branch(struct prover *prover, size_t level);

/* Go on to the next decision. */
static void advance(struct prover *prover, size_t level)
{
    struct rs_stage *stage = prover->stages[level];

    if (rs_stage_advance(stage) == RS_NEVER) {
        if (prover->puts_left == 0)
            record(prover, stage);
        return;
    }
    if (++prover->nodes > prover->most_nodes)
        prover->stopped = true;
    else if (can_improve(prover, stage) && !was_met(prover, stage))
        branch(prover, level);
}

static void put_on(struct prover *prover, size_t level, uint32_t engine,
                   struct kind *kind)
{
    struct rs_stage *next = prover->stages[level + 1];

    rs_stage_copy(next, prover->stages[level]);
    prover->path[prover->depth++] =
        (struct decision){engine, kind->puts[kind->num_puts - kind->count]};
    count_put(prover, kind, true);
    rs_stage_start(next, engine, kind->cls, kind->bytes);
    branch(prover, level + 1);
    count_put(prover, kind, false);
    prover->depth--;
}

/* An engine that goes home without a put takes with it all that have not
 * opened: the k-th that has a put opens at k * open, whichever it is. */
static void send_home(struct prover *prover, size_t level, uint32_t engine)
{
    struct rs_stage *next = prover->stages[level + 1];
    bool unused;
    size_t working = 0;

    rs_stage_copy(next, prover->stages[level]);
    unused = next->actors[engine].cls == UINT32_MAX;
    rs_stage_close(next, engine);
    for (uint32_t e = 0; e < next->num_engines; e++) {
        if (unused && next->actors[e].phase == RS_OPENS)
            rs_stage_close(next, e);
        working += next->actors[e].phase != RS_CLOSED;
    }
    if (working > 0 || prover->puts_left == 0)
        branch(prover, level + 1);
}

/* Decide for the first free engine; if there is none, go on in time. */
static void branch(struct prover *prover, size_t level)
{
    struct rs_stage *stage = prover->stages[level];
    uint32_t engine = 0;

    while (engine < stage->num_engines &&
           stage->actors[engine].phase != RS_FREE)
        engine++;
    if (engine == stage->num_engines) {
        advance(prover, level);
        return;
    }
    for (size_t k = 0; k < prover->num_kinds && !prover->stopped; k++) {
        if (prover->kinds[k].count > 0)
            put_on(prover, level, engine, &prover->kinds[k]);
    }
    if (!prover->stopped)
        send_home(prover, level, engine);
}

/* ----------------------------------------------------------- preparation */

static int compare_kinds(const void *left, const void *right)
{
    const struct kind *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return (a->cls > b->cls) - (a->cls < b->cls);
}

static bool find_kinds(struct prover *prover)
{
    const struct rs_problem *problem = prover->problem;

    for (uint32_t i = 0; i < problem->num_puts; i++) {
        uint32_t cls = prover->script->class_of[problem->direction[i]];
        struct kind *kind = prover->kinds;

        while (kind < prover->kinds + prover->num_kinds &&
               (kind->bytes != problem->bytes[i] || kind->cls != cls))
            kind++;
        if (kind == prover->kinds + KINDS)
            return false;
        if (kind == prover->kinds + prover->num_kinds) {
            prover->num_kinds++;
            kind->bytes = problem->bytes[i];
            kind->cls = cls;
        }
        kind->puts[kind->num_puts++] = i;
    }
    qsort(prover->kinds, prover->num_kinds, sizeof(*prover->kinds),
          compare_kinds);
    return true;
}

/* Number the resources that classes use. The node is one of them. */
static bool find_links(struct prover *prover, uint32_t *resources)
{
    for (size_t c = 0; c < prover->script->num_classes; c++) {
        const struct rs_class *cls = &prover->script->classes[c];

        for (size_t k = 0; k < cls->num_resources; k++) {
            uint32_t r = cls->resources[k];
            size_t l = 0;

            while (l < prover->num_links && resources[l] != r)
                l++;
            if (l == LINKS)
                return false;
            if (l == prover->num_links) {
                resources[prover->num_links++] = r;
                prover->links[l].capacity = prover->problem->capacity[r] << 16;
            }
            prover->link_of[c] |= UINT32_C(1) << l;
        }
    }
    return true;
}

/* The class that uses these links, or the number of classes. */
static uint32_t find_class(const struct prover *prover, uint32_t links)
{
    uint32_t c = 0;

    while (c < prover->script->num_classes && prover->link_of[c] != links)
        c++;
    return c;
}

/* What a permutation of links makes of classes and kinds, if each becomes one
 * that exists, and as many. */
static bool rename_all(const struct prover *prover, const uint8_t *links,
                       struct renaming *renaming)
{
    for (size_t l = 0; l < prover->num_links; l++) {
        if (prover->links[l].capacity != prover->links[links[l]].capacity)
            return false;
    }
    for (uint32_t c = 0; c < prover->script->num_classes; c++) {
        uint32_t renamed = 0, found;

        for (size_t l = 0; l < prover->num_links; l++)
            renamed |= (prover->link_of[c] >> l & 1) << links[l];
        found = find_class(prover, renamed);
        if (found == prover->script->num_classes)
            return false;
        renaming->cls[c] = (uint8_t)found;
    }
    for (size_t k = 0; k < prover->num_kinds; k++) {
        const struct kind *kind = &prover->kinds[k], *other = prover->kinds;

        while (other < prover->kinds + prover->num_kinds &&
               (other->bytes != kind->bytes ||
                other->cls != renaming->cls[kind->cls]))
            other++;
        if (other == prover->kinds + prover->num_kinds ||
            other->num_puts != kind->num_puts)
            return false;
        renaming->kind[k] = (uint8_t)(other - prover->kinds);
    }
    return true;
}

/* The next permutation in lexicographic order; false after the last one. */
static bool permute(uint8_t *order, size_t count)
{
    size_t i = count, j = count;
    uint8_t swap;

    do {
        if (i < 2)
            return false;
        i--;
    } while (order[i - 1] >= order[i]);
    do {
        j--;
    } while (order[j] <= order[i - 1]);
    swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
    for (j = count - 1; i < j; i++, j--) {
        swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    return true;
}

static void find_renamings(struct prover *prover)
{
    uint8_t links[LINKS];

    for (size_t l = 0; l < prover->num_links; l++)
        links[l] = (uint8_t)l;
    do {
        struct renaming renaming;

        if (rename_all(prover, links, &renaming))
            prover->renamings[prover->num_renamings++] = renaming;
    } while (prover->num_renamings < RENAMINGS &&
             prover->num_links <= LINKS_RENAMED &&
             permute(links, prover->num_links));
}

/* Add the weights for what is left at this moment, unless they are known. */
static int add_weights(struct prover *prover, const struct rs_sets *sets,
                       const struct rs_stage *stage, const uint64_t *queued)
{
    size_t classes = prover->script->num_classes;
    struct rs_weights *found = &prover->weights[prover->num_weights];
    uint64_t left[CLASSES + 1];
    int error;

    memcpy(left, queued, (classes + 1) * sizeof(*left));
    for (uint32_t e = 0; stage != NULL && e < stage->num_engines; e++) {
        const struct rs_actor *actor = &stage->actors[e];

        if (actor->phase == RS_FLOWS || actor->phase == RS_COMMAND)
            left[actor->cls] += rs_stage_left(stage, e);
    }
    error = rs_weights_find(sets, left, found);
    if (error != 0)
        return error;
    for (size_t w = 0; w < prover->num_weights; w++) {
        if (memcmp(prover->weights[w].weight, found->weight,
                   sizeof(found->weight)) == 0)
            return 0;
    }
    prover->num_weights++;
    return 0;
}

/* Follow the best schedule so far, and find weights at its moments. */
static int follow(struct prover *prover, const size_t *queues,
                  const uint32_t *order, const struct rs_sets *sets)
{
    const struct rs_problem *problem = prover->problem;
    struct rs_stage *stage = prover->stages[0];
    size_t next[ENGINES], classes = prover->script->num_classes;
    uint64_t left[CLASSES + 1] = {0};
    uint64_t command = (uint64_t)((wide)problem->costs.command *
                                  problem->costs.engine_rate / 1000000000000);
    int error;

    for (size_t i = 0; i < problem->num_puts; i++)
        left[prover->script->class_of[problem->direction[i]]] +=
            problem->bytes[i];
    left[classes] = problem->num_puts * command;
    rs_stage_begin(stage, problem->costs.num_engines);
    for (uint32_t e = 0; e < stage->num_engines; e++)
        next[e] = queues[e];
    error = add_weights(prover, sets, NULL, left);
    while (error == 0 && prover->num_weights < WEIGHTS &&
           rs_stage_advance(stage) != RS_NEVER) {
        for (uint32_t e = 0; e < stage->num_engines; e++) {
            while (stage->actors[e].phase == RS_FREE) {
                uint32_t put, cls;

                if (next[e] == queues[e + 1]) {
                    rs_stage_close(stage, e);
                    break;
                }
                put = order[next[e]++];
                cls = prover->script->class_of[problem->direction[put]];
                rs_stage_start(stage, e, cls, problem->bytes[put]);
                left[cls] -= problem->bytes[put];
                left[classes] -= command;
            }
        }
        error = add_weights(prover, sets, stage, left);
    }
    return error;
}

static int find_weights(struct prover *prover, const size_t *queues,
                        const uint32_t *order)
{
    struct rs_sets sets;
    int error = rs_sets_init(&sets, prover->script);

    rs_weights_plain(prover->script, &prover->weights[0]);
    prover->num_weights = 1;
    if (error == RSCHED_ELIMIT)
        return 0;
    if (error != 0)
        return error;
    error = follow(prover, queues, order, &sets);
    rs_sets_fini(&sets);
    return error;
}

/* What is in use has room in the arrays and numbers above. */
static bool is_small(const struct rs_problem *problem, uint64_t makespan)
{
    wide bytes = 0;

    for (size_t i = 0; i < problem->num_puts; i++)
        bytes += problem->bytes[i];
    return problem->num_puts <= PUTS && bytes >> BYTES_BITS == 0 &&
           problem->costs.num_engines <= ENGINES &&
           problem->costs.engine_rate >> RATE_BITS_MOST == 0 &&
           makespan >> (TICKS_BITS - RS_STAGE_TICK_BITS) == 0;
}

static int allocate(struct prover *prover)
{
    prover->seen = calloc((size_t)SEEN_WAYS << SEEN_BITS,
                          sizeof(*prover->seen));
    if (prover->seen == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to prove an optimum");
    for (size_t i = 0; i < sizeof(prover->stages) / sizeof(prover->stages[0]);
         i++) {
        prover->stages[i] = rs_stage_create(prover->script);
        if (prover->stages[i] == NULL)
            return RSCHED_ENOMEM;
    }
    return 0;
}

static void release(struct prover *prover)
{
    for (size_t i = 0; i < sizeof(prover->stages) / sizeof(prover->stages[0]);
         i++)
        free(prover->stages[i]);
    free(prover->seen);
    free(prover);
}

/* Search from the beginning, with everything to do. */
static void prove(struct prover *prover)
{
    for (size_t k = 0; k < prover->num_kinds; k++) {
        while (prover->kinds[k].count < prover->kinds[k].num_puts)
            count_put(prover, &prover->kinds[k], false);
    }
    find_renamings(prover);
    rs_stage_begin(prover->stages[0], prover->problem->costs.num_engines);
    branch(prover, 0);
}

static void tell(const struct prover *prover, struct rs_place *places)
{
    for (size_t i = 0; i < prover->problem->num_puts; i++)
        places[prover->best[i].put] =
            (struct rs_place){prover->best[i].engine, i};
}

/* Improve the places, which take `makespan`, until that is proven. */
static int improve(const struct rs_problem *problem, struct rs_script *script,
                   const size_t *queues, const uint32_t *order,
                   uint64_t makespan, struct rs_place *places,
                   struct rs_findings *findings)
{
    struct prover *prover = calloc(1, sizeof(*prover));
    uint32_t resources[LINKS];
    int error;

    if (prover == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to prove an optimum");
    prover->problem = problem;
    prover->script = script;
    prover->most_nodes = problem->most_nodes;
    prover->deadline = (makespan - 1) << RS_STAGE_TICK_BITS;
    error = allocate(prover);
    if (error == 0 && script->num_classes <= CLASSES && find_kinds(prover) &&
        find_links(prover, resources)) {
        error = find_weights(prover, queues, order);
        if (error == 0) {
            prove(prover);
            findings->proven = !prover->stopped;
            findings->nodes = prover->nodes;
            if (prover->improved)
                tell(prover, places);
        }
    }
    release(prover);
    return error;
}

int rs_plan_exact(const struct rs_problem *problem,
                  const struct rs_planner *planner, struct rs_place *places,
                  struct rs_findings *findings)
{
    struct rs_script script;
    struct rs_stage *stage = NULL;
    size_t *queues = NULL;
    uint32_t *order = NULL;
    uint64_t bound = 0, makespan;
    int error = rs_plan_fllf(problem, planner, places, findings);

    if (error == 0)
        error = rs_problem_bound(problem, &bound);
    if (error == 0)
        error = rs_script_init(&script, problem);
    if (error != 0)
        return error;
    stage = rs_stage_create(&script);
    queues = calloc(problem->costs.num_engines + 1u, sizeof(*queues));
    order = calloc(problem->num_puts + 1, sizeof(*order));
    if (stage == NULL || queues == NULL || order == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
    else
        error = rs_problem_queue(problem, places, queues, order);
    if (error == 0) {
        makespan = rs_stage_play(stage, queues, order, RS_NEVER);
        if (makespan > bound && is_small(problem, makespan))
            error = improve(problem, &script, queues, order, makespan, places,
                            findings);
    }
    free(order);
    free(queues);
    free(stage);
    rs_script_fini(&script);
    return error;
}
