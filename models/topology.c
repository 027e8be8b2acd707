/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rsched/machine.h>

#include "librsched/base/error.h"

static const char axes[] = "xyzabcde";

const char *rs_topology_type_name(enum rs_topology_type type)
{
    static const char *const names[] = {"none", "torus",    "mesh",
                                        "tofu", "fat-tree", "dragonfly"};

    return names[type];
}

/* ---- torus, mesh, tofu ---- */

/* Links of node n: 2 * (n * dims + d) in direction -d, one more for +d. Those
 * over an open border exist as numbers only. */
static int make_grid(struct rs_topology *t, const uint32_t *shape,
                     uint32_t num_shape)
{
    static const uint32_t cell[] = {2, 3, 2};
    const struct rs_topology_spec *spec = &t->spec;
    bool tofu = spec->type == RS_TOPOLOGY_TOFU;
    const uint32_t *dims = spec->num_dims > 0 ? spec->dims : shape;
    uint64_t nodes = 1;

    t->num_dims = spec->num_dims > 0 ? spec->num_dims : num_shape;
    if (tofu && t->num_dims != 3)
        return rs_fail(RSCHED_EINVAL, "a tofu has three dimensions of cells, "
                       "not %u (give its dims)", (unsigned)t->num_dims);
    for (uint32_t d = 0; d < t->num_dims; d++) {
        t->dims[d] = dims[d];
        t->wraps[d] = spec->type != RS_TOPOLOGY_MESH;
    }
    for (uint32_t d = 0; tofu && d < 3; d++) {
        t->dims[t->num_dims] = cell[d];
        t->wraps[t->num_dims++] = d == 1;
    }
    for (uint32_t d = 0; d < t->num_dims; d++) {
        nodes *= t->dims[d];
        t->longest += t->wraps[d] ? t->dims[d] / 2 : t->dims[d] - 1;
        if (nodes > RS_TOPOLOGY_MOST)
            return rs_fail(RSCHED_ELIMIT, "the topology has more than %d nodes",
                           RS_TOPOLOGY_MOST);
    }
    t->num_nodes = (uint32_t)nodes;
    t->num_links = t->num_nodes * t->num_dims * 2;
    return 0;
}

static void coordinates(const struct rs_topology *t, uint32_t node,
                        uint32_t *at)
{
    for (uint32_t d = 0; d < t->num_dims; d++) {
        at[d] = node % t->dims[d];
        node /= t->dims[d];
    }
}

/* A dimension in which two nodes differ. */
struct leg {
    uint32_t dim;
    uint32_t hops;
    bool plus; /* the way; for a tie what choice 0 takes */
    bool tie;  /* both ways are equally long */
};

static uint32_t find_legs(const struct rs_topology *t, uint32_t source,
                          uint32_t destination, struct leg *legs)
{
    uint32_t from[RS_DIMENSIONS_MOST], to[RS_DIMENSIONS_MOST], count = 0;

    coordinates(t, source, from);
    coordinates(t, destination, to);
    for (uint32_t d = 0; d < t->num_dims; d++) {
        uint32_t up = (to[d] + t->dims[d] - from[d]) % t->dims[d];
        uint32_t down = t->dims[d] - up;

        if (up == 0)
            continue;
        if (!t->wraps[d])
            legs[count] = to[d] > from[d]
                              ? (struct leg){d, to[d] - from[d], true, false}
                              : (struct leg){d, from[d] - to[d], false, false};
        else
            legs[count] = (struct leg){d, up <= down ? up : down, up <= down,
                                       up == down};
        count++;
    }
    return count;
}

static uint32_t grid_choices(const struct rs_topology *t, uint32_t source,
                             uint32_t destination)
{
    struct leg legs[RS_DIMENSIONS_MOST];
    uint32_t count = find_legs(t, source, destination, legs), choices = 1;

    for (uint32_t i = 0; i < count; i++)
        choices *= (i + 1) * (legs[i].tie ? 2 : 1);
    return choices < RS_CHOICES_MOST ? choices : RS_CHOICES_MOST;
}

/* The choice-th order of the legs, and ways of those with a tie; 0 leaves all
 * as it is. */
static void choose_legs(struct leg *legs, uint32_t count, uint32_t choice)
{
    for (uint32_t i = count; i-- > 0;) {
        if (!legs[i].tie)
            continue;
        legs[i].plus = legs[i].plus != (choice & 1);
        choice /= 2;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t pick = i + choice % (count - i);
        struct leg picked = legs[pick];

        choice /= count - i;
        memmove(&legs[i + 1], &legs[i], (pick - i) * sizeof(*legs));
        legs[i] = picked;
    }
}

static size_t grid_route(const struct rs_topology *t, uint32_t source,
                         uint32_t destination, uint32_t choice,
                         uint32_t *links)
{
    struct leg legs[RS_DIMENSIONS_MOST];
    uint32_t at[RS_DIMENSIONS_MOST], strides[RS_DIMENSIONS_MOST];
    uint32_t count = find_legs(t, source, destination, legs), stride = 1;
    size_t hops = 0;

    coordinates(t, source, at);
    for (uint32_t d = 0; d < t->num_dims; d++) {
        strides[d] = stride;
        stride *= t->dims[d];
    }
    choose_legs(legs, count, choice);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = legs[i].dim, size = t->dims[d];

        for (uint32_t k = 0; k < legs[i].hops; k++) {
            uint32_t next = (at[d] + (legs[i].plus ? 1 : size - 1)) % size;

            links[hops++] = 2 * (source * t->num_dims + d) + legs[i].plus;
            source += (next - at[d]) * strides[d]; /* modulo 2^32 */
            at[d] = next;
        }
    }
    return hops;
}

/* ---- fat tree ---- */

/* Links of a rail: node to leaf, leaf to node, leaf to spine, spine to leaf. */
static uint32_t rail_links(const struct rs_topology *t)
{
    return 2 * (t->num_nodes + t->leaves * t->spines);
}

static int make_fat_tree(struct rs_topology *t, uint64_t asked)
{
    const struct rs_topology_spec *spec = &t->spec;

    uint64_t leaves = (asked + spec->leaf - 1) / spec->leaf;
    uint64_t spines = spec->leaf / spec->oversubscription;
    uint64_t nodes = leaves * spec->leaf;

    if (nodes > RS_TOPOLOGY_MOST ||
        2 * (nodes + leaves * spines) * spec->rails > INT32_MAX)
        return rs_fail(RSCHED_ELIMIT, "too many nodes for a fat tree of %u "
                       "rails", (unsigned)spec->rails);
    t->leaves = (uint32_t)leaves;
    t->spines = (uint32_t)spines;
    t->num_nodes = (uint32_t)nodes;
    t->num_links = rail_links(t) * spec->rails;
    t->longest = 4;
    return 0;
}

static size_t fat_tree_route(const struct rs_topology *t, uint32_t source,
                             uint32_t destination, uint32_t engine,
                             uint32_t choice, uint32_t *links)
{
    uint32_t first = engine % t->spec.rails * rail_links(t);
    uint32_t up = first + 2 * t->num_nodes, down = up + t->leaves * t->spines;
    uint32_t a = source / t->spec.leaf, b = destination / t->spec.leaf;
    uint32_t spine = (destination + choice) % t->spines;
    size_t hops = 0;

    if (source == destination)
        return 0;
    links[hops++] = first + source;
    if (a != b) {
        links[hops++] = up + a * t->spines + spine;
        links[hops++] = down + b * t->spines + spine;
    }
    links[hops++] = first + t->num_nodes + destination;
    return hops;
}

/* ---- dragonfly ---- */

/* Links: node to router, router to node, router to router of the same group,
 * global links by their sending end. Global port k of group g (k counts over
 * the routers) leads to group g + 1 + k % (groups - 1); the way back is on the
 * same lap of ports. */
static int make_dragonfly(struct rs_topology *t)
{
    const struct rs_topology_spec *s = &t->spec;
    uint64_t routers = (uint64_t)s->groups * s->routers;
    uint64_t nodes = routers * s->nodes;
    uint64_t links = 2 * nodes + routers * s->routers + routers * s->links;

    if (nodes > RS_TOPOLOGY_MOST || links > INT32_MAX)
        return rs_fail(RSCHED_ELIMIT, "the topology has more than %d nodes",
                       RS_TOPOLOGY_MOST);
    t->num_nodes = (uint32_t)nodes;
    t->num_links = (uint32_t)links;
    t->longest = 5;
    return 0;
}

/* Whole laps of ports: each connects a group with every other. */
static uint32_t laps(const struct rs_topology_spec *s)
{
    return s->groups > 1 ? s->routers * s->links / (s->groups - 1) : 1;
}

static size_t dragonfly_route(const struct rs_topology *t, uint32_t source,
                              uint32_t destination, uint32_t choice,
                              uint32_t *links)
{
    const struct rs_topology_spec *s = &t->spec;
    uint32_t local = 2 * t->num_nodes;
    uint32_t global = local + s->groups * s->routers * s->routers;
    uint32_t from = source / s->nodes, to = destination / s->nodes;
    uint32_t a = from / s->routers, b = to / s->routers;
    size_t hops = 0;

    if (source == destination)
        return 0;
    links[hops++] = source;
    if (a != b) {
        uint32_t lap = (destination + choice) % laps(s) * (s->groups - 1);
        uint32_t leave = lap + (b + s->groups - a - 1) % s->groups;
        uint32_t arrive = lap + (a + s->groups - b - 1) % s->groups;
        uint32_t exit = a * s->routers + leave / s->links;

        if (exit != from)
            links[hops++] = local + from * s->routers + exit % s->routers;
        links[hops++] = global + exit * s->links + leave % s->links;
        from = b * s->routers + arrive / s->links;
    }
    if (from != to)
        links[hops++] = local + from * s->routers + to % s->routers;
    links[hops++] = t->num_nodes + destination;
    return hops;
}

/* ---- all ---- */

int rs_topology_make(const struct rs_topology_spec *spec,
                     const uint32_t *shape, uint32_t num_shape,
                     struct rs_topology *topology)
{
    struct rs_topology made = {.spec = *spec};
    uint64_t asked = 1;
    int error = 0;

    for (uint32_t d = 0; d < num_shape; d++) {
        asked *= shape[d];
        if (asked > RS_TOPOLOGY_MOST)
            return rs_fail(RSCHED_ELIMIT, "more than %d nodes", RS_TOPOLOGY_MOST);
    }
    if (spec->type == RS_TOPOLOGY_NONE)
        return rs_fail(RSCHED_EINVAL, "the machine has no topology");
    if (spec->type == RS_TOPOLOGY_FAT_TREE)
        error = make_fat_tree(&made, asked);
    else if (spec->type == RS_TOPOLOGY_DRAGONFLY)
        error = make_dragonfly(&made);
    else
        error = make_grid(&made, shape, num_shape);
    if (error == 0 && asked > made.num_nodes)
        error = rs_fail(RSCHED_EINVAL, "%" PRIu64 " nodes, but the %s has %"
                        PRIu32, asked, rs_topology_type_name(spec->type),
                        made.num_nodes);
    if (error == 0)
        *topology = made;
    return error;
}

uint64_t rs_topology_capacity(const struct rs_topology *t, uint32_t link)
{
    const struct rs_topology_spec *s = &t->spec;

    if (s->type == RS_TOPOLOGY_FAT_TREE)
        return link % rail_links(t) < 2 * t->num_nodes ? s->link : s->up;
    if (s->type == RS_TOPOLOGY_DRAGONFLY && link >= 2 * t->num_nodes)
        return link < 2 * t->num_nodes + s->groups * s->routers * s->routers
                   ? s->local
                   : s->global;
    return s->link;
}

uint32_t rs_topology_choices(const struct rs_topology *t, uint32_t source,
                             uint32_t destination)
{
    const struct rs_topology_spec *s = &t->spec;
    uint32_t choices = 1;

    if (source == destination)
        return 1;
    if (s->type == RS_TOPOLOGY_FAT_TREE) {
        if (source / s->leaf != destination / s->leaf)
            choices = t->spines;
    } else if (s->type == RS_TOPOLOGY_DRAGONFLY) {
        uint32_t group = s->nodes * s->routers;

        if (source / group != destination / group)
            choices = laps(s);
    } else {
        choices = grid_choices(t, source, destination);
    }
    return choices < RS_CHOICES_MOST ? choices : RS_CHOICES_MOST;
}

size_t rs_topology_route(const struct rs_topology *t, uint32_t source,
                         uint32_t destination, uint32_t engine,
                         uint32_t choice, uint32_t *links)
{
    if (t->spec.type == RS_TOPOLOGY_FAT_TREE)
        return fat_tree_route(t, source, destination, engine, choice, links);
    if (t->spec.type == RS_TOPOLOGY_DRAGONFLY)
        return dragonfly_route(t, source, destination, choice, links);
    return grid_route(t, source, destination, choice, links);
}

static void name_switch_link(const struct rs_topology *t, uint32_t link,
                             char *buffer, size_t size)
{
    bool tree = t->spec.type == RS_TOPOLOGY_FAT_TREE;
    uint32_t rail = tree ? link / rail_links(t) : 0;
    uint32_t rest = tree ? link % rail_links(t) : link;

    if (rest < t->num_nodes)
        snprintf(buffer, size, "rail %u from node %u", rail, rest);
    else if (rest < 2 * t->num_nodes)
        snprintf(buffer, size, "rail %u to node %u", rail,
                 rest - t->num_nodes);
    else if (!tree)
        snprintf(buffer, size, "%s link %u",
                 rest - 2 * t->num_nodes < t->spec.groups * t->spec.routers *
                                               t->spec.routers
                     ? "local" : "global", rest - 2 * t->num_nodes);
    else {
        uint32_t switches = rest - 2 * t->num_nodes;
        uint32_t half = t->leaves * t->spines;

        snprintf(buffer, size, "rail %u leaf %u %s spine %u", rail,
                 switches % half / t->spines, switches < half ? "to" : "from",
                 switches % t->spines);
    }
}

const char *rs_topology_link_name(const struct rs_topology *t, uint32_t link,
                                  char *buffer, size_t size)
{
    if (t->num_dims == 0)
        name_switch_link(t, link, buffer, size);
    else
        snprintf(buffer, size, "%c%c of node %u", link % 2 ? '+' : '-',
                 axes[link / 2 % t->num_dims], link / 2 / t->num_dims);
    return buffer;
}
