/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/fairness.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"
#include "models/ticks.h"

/* Rates nearer to each other than this are equal: 1 byte/s. */
#define NEAR (UINT64_C(1) << RS_RATE_BITS)

enum { NOTHING = UINT32_MAX };

/* A flow on a resource. */
struct member {
    uint32_t flow;
    uint32_t hop; /* place of the resource on the flow's route */
};

struct rs_shared {
    struct member *members;
    uint32_t num_members, room;
    uint64_t capacity; /* units */
    uint64_t load;     /* the rates of all members; above the capacity only
                          while rates are worked out */
    uint64_t level;    /* the rate of the members that it stops */
    uint32_t bound;    /* how many these are */
    uint32_t open;     /* members that are open */
    uint64_t base;     /* their old rates together */
    bool reached;      /* is in `reached` */
};

int rs_fairness_init(struct rs_fairness *fairness, const uint64_t *capacity,
                     size_t num_resources, size_t num_flows, size_t longest)
{
    int error = rs_heap_init(&fairness->levels, num_resources);

    if (error == 0)
        error = rs_heap_init(&fairness->open, num_flows);
    if (error != 0)
        return error;
    fairness->num_resources = num_resources;
    fairness->longest = longest;
    fairness->flows = calloc(num_flows + 1, sizeof(*fairness->flows));
    fairness->resources = calloc(num_resources + 1,
                                 sizeof(*fairness->resources));
    fairness->reached = calloc(num_resources + 1, sizeof(*fairness->reached));
    fairness->slots = calloc(num_flows * longest + 1,
                             sizeof(*fairness->slots));
    if (fairness->flows == NULL || fairness->resources == NULL ||
        fairness->reached == NULL || fairness->slots == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for %zu flows", num_flows);
    for (size_t r = 0; r < num_resources; r++)
        fairness->resources[r].capacity = capacity[r] << RS_RATE_BITS;
    return 0;
}

void rs_fairness_fini(struct rs_fairness *fairness)
{
    for (size_t r = 0; fairness->resources && r < fairness->num_resources; r++)
        free(fairness->resources[r].members);
    free(fairness->resources);
    free(fairness->flows);
    free(fairness->reached);
    free(fairness->slots);
    rs_heap_fini(&fairness->levels);
    rs_heap_fini(&fairness->open);
}

static void reach(struct rs_fairness *fairness, uint32_t resource)
{
    struct rs_shared *r = &fairness->resources[resource];

    if (r->reached)
        return;
    r->reached = true;
    fairness->reached[fairness->num_reached++] = resource;
}

int rs_fairness_begin(struct rs_fairness *fairness, uint32_t flow,
                      const struct rs_fluid_route *route, uint64_t most)
{
    struct rs_flow *f = &fairness->flows[flow];

    *f = (struct rs_flow){route->resources, (uint32_t)route->num_resources,
                          NOTHING, 0, most, true};
    fairness->fastest = most > fairness->fastest ? most : fairness->fastest;
    rs_heap_set(&fairness->open, flow, most);
    for (uint32_t k = 0; k < f->num_resources; k++) {
        struct rs_shared *r = &fairness->resources[f->resources[k]];

        if (r->num_members == r->room) {
            size_t room = r->room;
            void *grown = rs_array_grow(r->members, &room, room + 1,
                                        sizeof(*r->members));

            if (grown == NULL)
                return rs_fail(RSCHED_ENOMEM, "no memory to simulate");
            r->members = grown;
            r->room = (uint32_t)room;
        }
        fairness->slots[flow * fairness->longest + k] =
            r->num_members;
        r->members[r->num_members++] = (struct member){flow, k};
        r->open++;
        reach(fairness, f->resources[k]);
    }
    return 0;
}

void rs_fairness_end(struct rs_fairness *fairness, uint32_t flow)
{
    const struct rs_flow *f = &fairness->flows[flow];

    for (uint32_t k = 0; k < f->num_resources; k++) {
        struct rs_shared *r = &fairness->resources[f->resources[k]];
        uint32_t slot = fairness->slots[flow * fairness->longest + k];
        struct member last = r->members[--r->num_members];

        r->members[slot] = last;
        fairness->slots[last.flow * fairness->longest + last.hop] = slot;
        r->load -= f->rate;
        r->bound -= f->bottleneck == f->resources[k];
        reach(fairness, f->resources[k]);
    }
}

/* The level at which a resource is full if the members that it has not stopped
 * and that are not open keep their rates. They may have to slow down too, so
 * that it is higher, but never lower. */
static uint64_t least_level(const struct rs_shared *r)
{
    uint64_t kept = r->load - r->base - r->level * r->bound;
    uint32_t waiting = r->bound + r->open;

    return waiting > 0 && r->capacity > kept ? (r->capacity - kept) / waiting
                                             : 0;
}

/* Whether a resource without open flows has none to stop or to let go. */
static bool is_idle(const struct rs_shared *r)
{
    if (r->open > 0 || r->load > r->capacity)
        return false;
    return r->bound == 0 || least_level(r) <= r->level + NEAR;
}

/* Put a resource that a change has reached where it belongs. */
static void look(struct rs_fairness *fairness, uint32_t resource)
{
    const struct rs_shared *r = &fairness->resources[resource];
    uint64_t level;

    if (is_idle(r)) {
        rs_heap_remove(&fairness->levels, resource);
        return;
    }
    level = least_level(r);
    if (r->bound > 0 && level >= r->level) {
        rs_heap_set(&fairness->levels, resource, r->level);
    } else if (level >= fairness->fastest) {
        rs_heap_remove(&fairness->levels, resource);
    } else {
        rs_heap_set(&fairness->levels, resource, level);
    }
}

static void look_at_reached(struct rs_fairness *fairness)
{
    for (size_t i = 0; i < fairness->num_reached; i++) {
        fairness->resources[fairness->reached[i]].reached = false;
        look(fairness, fairness->reached[i]);
    }
    fairness->num_reached = 0;
}

/* Let the flows go that a resource has stopped so far. */
static void open_flows(struct rs_fairness *fairness, uint32_t resource)
{
    struct rs_shared *opened = &fairness->resources[resource];

    for (uint32_t i = 0; i < opened->num_members; i++) {
        uint32_t flow = opened->members[i].flow;
        struct rs_flow *f = &fairness->flows[flow];

        if (f->bottleneck != resource)
            continue;
        f->bottleneck = NOTHING;
        f->open = true;
        rs_heap_set(&fairness->open, flow, f->most);
        for (uint32_t k = 0; k < f->num_resources; k++) {
            struct rs_shared *r = &fairness->resources[f->resources[k]];

            r->open++;
            r->base += f->rate;
            reach(fairness, f->resources[k]);
        }
    }
    opened->bound = 0;
}

/* Stop a flow at a rate; `bottleneck` may be NOTHING. */
static void stop(struct rs_fairness *fairness, uint32_t flow, uint64_t rate,
                 uint32_t bottleneck, rs_fairness_change *change, void *arg)
{
    struct rs_flow *f = &fairness->flows[flow];

    fairness->stopped++;
    for (uint32_t k = 0; k < f->num_resources; k++) {
        struct rs_shared *r = &fairness->resources[f->resources[k]];

        r->load += rate - f->rate; /* modulo 2^64 */
        if (f->open) { /* it can only be stopped later there: see levels */
            r->open--;
            r->base -= f->rate;
            continue;
        }
        r->bound -= f->bottleneck == f->resources[k];
        if (r->bound > 0)
            reach(fairness, f->resources[k]);
    }
    if (f->open)
        rs_heap_remove(&fairness->open, flow);
    f->open = false;
    f->bottleneck = bottleneck;
    if (rate != f->rate)
        change(arg, flow, rate);
    f->rate = rate;
}

/* The level at which a resource is full: members that are faster then slow
 * down to it. Grows from the least one until nothing changes. */
static uint64_t find_level(const struct rs_fairness *fairness,
                           uint32_t resource)
{
    const struct rs_shared *r = &fairness->resources[resource];
    uint64_t level = least_level(r), before;

    do {
        uint64_t kept = 0;
        size_t waiting = 0;

        before = level;
        for (uint32_t i = 0; i < r->num_members; i++) {
            const struct rs_flow *f = &fairness->flows[r->members[i].flow];

            if (f->open || f->bottleneck == resource || f->rate > level)
                waiting++;
            else
                kept += f->rate;
        }
        level = r->capacity > kept ? (r->capacity - kept) / waiting : 0;
    } while (level > before);
    return level;
}

/* No flow is open: drop the resources that have nothing to do any more. They
 * are most of them, and taking them out one by one is slow. */
static void drop_idle(struct rs_fairness *fairness)
{
    struct rs_heap *levels = &fairness->levels;
    size_t count = levels->count;

    levels->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct rs_heap_entry entry = levels->entries[i];

        levels->place[entry.id] = UINT32_MAX;
        if (is_idle(&fairness->resources[entry.id]))
            continue;
        rs_heap_set(levels, entry.id, entry.key);
    }
}

/* A resource is full at a level: that is the rate of all who are not slower. */
static void fill(struct rs_fairness *fairness, uint32_t resource,
                 uint64_t level, rs_fairness_change *change, void *arg)
{
    struct rs_shared *r = &fairness->resources[resource];
    uint32_t bound = 0;

    for (uint32_t i = 0; i < r->num_members; i++) {
        uint32_t flow = r->members[i].flow;
        const struct rs_flow *f = &fairness->flows[flow];

        if (!f->open && f->bottleneck != resource && f->rate <= level)
            continue;
        stop(fairness, flow, level, resource, change, arg);
        bound++;
    }
    r->bound = bound;
    r->level = level;
    rs_heap_remove(&fairness->levels, resource);
}

void rs_fairness_settle(struct rs_fairness *fairness,
                        rs_fairness_change *change, void *arg)
{
    const struct rs_heap_entry *next = fairness->levels.entries;
    const struct rs_heap_entry *slowest = fairness->open.entries;

    look_at_reached(fairness);
    while (fairness->levels.count > 0 || fairness->open.count > 0) {
        uint32_t resource = next->id;
        uint64_t key = next->key, level;
        struct rs_shared *r = &fairness->resources[resource];

        if (fairness->levels.count == 0 ||
            (fairness->open.count > 0 && slowest->key <= key)) {
            stop(fairness, slowest->id, slowest->key, NOTHING, change, arg);
        } else if (look(fairness, resource), next->id != resource ||
                   next->key > key || fairness->levels.count == 0) {
            continue; /* it was too early */
        } else if (r->bound > 0 && least_level(r) >= r->level) {
            open_flows(fairness, resource);
        } else {
            level = find_level(fairness, resource);
            if (level > key)
                rs_heap_set(&fairness->levels, resource, level);
            else
                fill(fairness, resource, level, change, arg);
        }
        look_at_reached(fairness);
        if (fairness->open.count == 0)
            drop_idle(fairness);
    }
}
