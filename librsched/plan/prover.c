/* SPDX-License-Identifier: BSD-3-Clause */
/* Preparing a proof: kinds of puts, links, renamings, weights; see exact.c. */
#include "librsched/plan/prover.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/plan/alike.h"

typedef unsigned __int128 wide;

enum { LINKS_RENAMED = 6 }; /* above this links keep their names */

void rs_prover_count(struct rs_prover *prover, struct rs_kind *kind,
                     bool taken)
{
    wide command = (wide)prover->script->command * prover->script->cap;
    wide bytes = kind->bytes * RS_STAGE_BYTE;

    kind->count += taken ? -1u : 1u;
    prover->puts_left += taken ? (size_t)-1 : 1;
    for (size_t l = 0; l < prover->num_links; l++) {
        if (prover->certain[kind->cls] >> l & 1)
            prover->links[l].left += taken ? -bytes : bytes;
    }
    for (size_t w = 0; w < prover->num_weights; w++) {
        const uint64_t *weight = prover->weights[w].weight;
        wide more = weight[kind->cls] * bytes +
                    weight[prover->script->num_classes] * command;

        prover->weighed[w] += taken ? -more : more;
    }
}

static int compare_kinds(const void *left, const void *right)
{
    const struct rs_kind *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return (a->cls > b->cls) - (a->cls < b->cls);
}

static bool find_kinds(struct rs_prover *prover)
{
    const struct rs_problem *problem = prover->problem;

    for (uint32_t i = 0; i < problem->num_puts; i++) {
        uint32_t cls = prover->script->class_of[problem->direction[i]];
        struct rs_kind *kind = prover->kinds;

        while (kind < prover->kinds + prover->num_kinds &&
               (kind->bytes != problem->bytes[i] || kind->cls != cls))
            kind++;
        if (kind == prover->kinds + RS_PROVER_KINDS)
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

/* The bit of a resource, which gets a number if it has none; 0 when there are
 * too many. */
static uint32_t number_link(struct rs_prover *prover, uint32_t *resources,
                            uint32_t resource)
{
    size_t l = 0;

    while (l < prover->num_links && resources[l] != resource)
        l++;
    if (l == RS_PROVER_LINKS)
        return 0;
    if (l == prover->num_links) {
        resources[prover->num_links++] = resource;
        prover->links[l].capacity = prover->problem->capacity[resource]
                                    << RS_STAGE_RATE_BITS;
    }
    return UINT32_C(1) << l;
}

/* Number the resources that classes use. The node is one of them. */
static bool find_links(struct rs_prover *prover)
{
    uint32_t resources[RS_PROVER_LINKS];

    for (uint32_t c = 0; c < prover->script->num_classes; c++) {
        prover->certain[c] = UINT32_MAX;
        for (uint32_t e = 0; e < prover->script->num_engines; e++) {
            const struct rs_fluid_route *route =
                rs_script_route(prover->script, c, e);

            for (size_t k = 0; k < route->num_resources; k++) {
                uint32_t bit = number_link(prover, resources,
                                           route->resources[k]);

                if (bit == 0)
                    return false;
                prover->link_of[c][e] |= bit;
            }
            prover->certain[c] &= prover->link_of[c][e];
        }
    }
    return true;
}

static uint32_t rename_links(const struct rs_prover *prover, uint32_t set,
                             const uint8_t *links)
{
    uint32_t renamed = 0;

    for (size_t l = 0; l < prover->num_links; l++)
        renamed |= (set >> l & 1) << links[l];
    return renamed;
}

/* What a class becomes on all engines, or the number of classes. */
static uint32_t rename_class(const struct rs_prover *prover, uint32_t cls,
                             const uint8_t *links)
{
    uint32_t found = 0, e = 0;

    for (; found < prover->script->num_classes; found++) {
        for (e = 0; e < prover->script->num_engines; e++) {
            if (prover->link_of[found][e] !=
                rename_links(prover, prover->link_of[cls][e], links))
                break;
        }
        if (e == prover->script->num_engines)
            break;
    }
    return found;
}

/* What a permutation of links makes of classes and kinds, if each becomes one
 * that exists, and as many. */
static bool rename_all(const struct rs_prover *prover, const uint8_t *links,
                       struct rs_renaming *renaming)
{
    for (size_t l = 0; l < prover->num_links; l++) {
        if (prover->links[l].capacity != prover->links[links[l]].capacity)
            return false;
    }
    for (uint32_t c = 0; c < prover->script->num_classes; c++) {
        uint32_t found = rename_class(prover, c, links);

        if (found == prover->script->num_classes)
            return false;
        renaming->cls[c] = (uint8_t)found;
    }
    for (size_t k = 0; k < prover->num_kinds; k++) {
        const struct rs_kind *kind = &prover->kinds[k], *other = prover->kinds;

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

static void find_renamings(struct rs_prover *prover)
{
    uint8_t links[RS_PROVER_LINKS];

    for (size_t l = 0; l < prover->num_links; l++)
        links[l] = (uint8_t)l;
    do {
        struct rs_renaming renaming;

        if (rename_all(prover, links, &renaming))
            prover->renamings[prover->num_renamings++] = renaming;
    } while (prover->num_renamings < RS_PROVER_RENAMINGS &&
             prover->num_links <= LINKS_RENAMED &&
             permute(links, prover->num_links));
}

/* Add the weights for what is left at this moment, unless they are known. */
static int add_weights(struct rs_prover *prover, const struct rs_sets *sets,
                       const struct rs_stage *stage, const uint64_t *queued)
{
    size_t classes = prover->script->num_classes;
    struct rs_weights *found = &prover->weights[prover->num_weights];
    uint64_t left[RS_WEIGHTS_CLASSES + 1];
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
static int follow(struct rs_prover *prover, const size_t *queues,
                  const uint32_t *order, const struct rs_sets *sets)
{
    const struct rs_problem *problem = prover->problem;
    struct rs_stage *stage = prover->stages[0];
    size_t next[RS_WEIGHTS_ENGINES], classes = prover->script->num_classes;
    uint64_t left[RS_WEIGHTS_CLASSES + 1] = {0};
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
    while (error == 0 && prover->num_weights < RS_PROVER_WEIGHTS &&
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

static int find_weights(struct rs_prover *prover, const size_t *queues,
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

static int allocate(struct rs_prover *prover)
{
    int error = rs_prover_remember(prover);

    for (size_t i = 0; error == 0 && i < RS_PROVER_STAGES; i++) {
        prover->stages[i] = rs_stage_create(prover->script);
        if (prover->stages[i] == NULL)
            error = RSCHED_ENOMEM;
    }
    return error;
}

int rs_prover_init(struct rs_prover *prover, const struct rs_problem *problem,
                   struct rs_script *script, const size_t *queues,
                   const uint32_t *order)
{
    int error;

    *prover = (struct rs_prover){.problem = problem, .script = script};
    if (script->num_classes > RS_WEIGHTS_CLASSES)
        prover->too_large = RS_PROOF_END_ROUTES;
    else if (!find_kinds(prover))
        prover->too_large = RS_PROOF_END_KINDS;
    else if (!find_links(prover))
        prover->too_large = RS_PROOF_END_LINKS;
    if (prover->too_large != RS_PROOF_END_NONE)
        return RSCHED_ELIMIT;
    rs_alike_find(script, prover->alike);
    error = allocate(prover);
    if (error == 0)
        error = find_weights(prover, queues, order);
    if (error == 0)
        find_renamings(prover);
    return error;
}

void rs_prover_fini(struct rs_prover *prover)
{
    for (size_t i = 0; i < RS_PROVER_STAGES; i++)
        free(prover->stages[i]);
    free(prover->seen);
}
