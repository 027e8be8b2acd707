/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/alike.h"

#include <string.h>

enum { LINKS = 32 }; /* of a rail; with more of them it is like no other */

/* A link of one rail only: what matters of it. */
struct own {
    uint32_t resource, classes; /* a set of bits */
    uint64_t capacity;
};

struct rail {
    struct own own[LINKS];
    size_t num_own;
    bool overflows;
};

static bool uses(const struct rs_fluid_route *route, uint32_t resource)
{
    for (size_t k = 0; k < route->num_resources; k++) {
        if (route->resources[k] == resource)
            return true;
    }
    return false;
}

/* Whether puts on an engine of another rail use the resource as well. */
static bool is_shared(const struct rs_script *script, uint32_t engine,
                      uint32_t resource)
{
    for (uint32_t e = 0; e < script->num_engines; e++) {
        for (uint32_t c = 0; e != engine && c < script->num_classes; c++) {
            if (uses(rs_script_route(script, c, e), resource))
                return true;
        }
    }
    return false;
}

static void add_own(const struct rs_script *script, struct rail *rail,
                    uint32_t cls, uint32_t resource)
{
    size_t i = 0;

    while (i < rail->num_own && rail->own[i].resource != resource)
        i++;
    if (i == LINKS) {
        rail->overflows = true;
        return;
    }
    if (i == rail->num_own)
        rail->own[rail->num_own++] =
            (struct own){resource, 0, script->problem->capacity[resource]};
    rail->own[i].classes |= UINT32_C(1) << cls;
}

static void find_own(const struct rs_script *script, uint32_t engine,
                     struct rail *rail)
{
    memset(rail, 0, sizeof(*rail));
    for (uint32_t c = 0; c < script->num_classes; c++) {
        const struct rs_fluid_route *route =
            rs_script_route(script, c, engine);

        for (size_t k = 0; k < route->num_resources; k++) {
            if (!is_shared(script, engine, route->resources[k]))
                add_own(script, rail, c, route->resources[k]);
        }
    }
}

/* How many of a rail's own links are like this one. */
static size_t count_like(const struct rail *rail, const struct own *own)
{
    size_t count = 0;

    for (size_t i = 0; i < rail->num_own; i++)
        count += rail->own[i].capacity == own->capacity &&
                 rail->own[i].classes == own->classes;
    return count;
}

static bool same_own(const struct rail *a, const struct rail *b)
{
    if (a->num_own != b->num_own || a->overflows || b->overflows)
        return false;
    for (size_t i = 0; i < a->num_own; i++) {
        if (count_like(a, &a->own[i]) != count_like(b, &a->own[i]))
            return false;
    }
    return true;
}

/* The links that are not their own are the same ones. */
static bool same_shared(const struct rs_script *script, uint32_t a,
                        uint32_t b)
{
    for (uint32_t c = 0; c < script->num_classes; c++) {
        const struct rs_fluid_route *x = rs_script_route(script, c, a);
        const struct rs_fluid_route *y = rs_script_route(script, c, b);

        if (x->num_resources != y->num_resources)
            return false;
        for (size_t k = 0; k < x->num_resources; k++) {
            if (!uses(y, x->resources[k]) &&
                is_shared(script, a, x->resources[k]))
                return false;
        }
    }
    return true;
}

static bool are_alike(const struct rs_script *script, uint32_t a, uint32_t b)
{
    size_t rails = script->problem->num_rails;
    struct rail x, y;

    if (a % rails == b % rails)
        return true;
    if (rails != script->num_engines || script->caps[a] != script->caps[b])
        return false;
    find_own(script, a, &x);
    find_own(script, b, &y);
    return same_own(&x, &y) && same_shared(script, a, b);
}

void rs_alike_find(const struct rs_script *script, uint32_t *labels)
{
    for (uint32_t e = 0; e < script->num_engines; e++) {
        labels[e] = 0;
        while (!are_alike(script, labels[e], e))
            labels[e]++;
    }
}
