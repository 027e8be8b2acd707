/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies: routes are minimal, connected and different from each other;
 * machine files that are wrong say where. */
#include <criterion/criterion.h>
#include <string.h>

#include <rsched/machine.h>

#include "librsched/world/shape.h"
#include "models/machine.h"
#include "tests/plan/random.h"

enum { LINKS_MOST = 64 };

static struct rs_topology make(const char *text, const char *shape_text)
{
    char file[512];
    struct rsched_machine *machine;
    struct rs_topology topology;
    uint32_t shape[3] = {1, 1, 1};
    int length = snprintf(file, sizeof(file), "rsched: machine/1\nname: t\n"
                          "engines: {count: 4, rate: 1 GB/s}\ntopology: %s\n",
                          text);

    cr_assert_eq(rsched_machine_parse("t.yaml", file, (size_t)length,
                                      &machine), 0, "%s", rsched_last_error());
    sscanf(shape_text, "%ux%ux%u", &shape[0], &shape[1], &shape[2]);
    cr_assert_eq(rs_topology_make(rs_machine_topology(machine), shape,
                                  shape[2] > 1 ? 3 : 2, &topology), 0, "%s",
                 rsched_last_error());
    rsched_machine_destroy(machine);
    return topology;
}

/* The hops of a minimal route on a grid. */
static uint32_t grid_distance(const struct rs_topology *t, uint32_t a,
                              uint32_t b)
{
    uint32_t hops = 0;

    for (uint32_t d = 0; d < t->num_dims; d++) {
        uint32_t size = t->dims[d], x = a % size, y = b % size;
        uint32_t direct = x > y ? x - y : y - x;

        hops += t->wraps[d] && size - direct < direct ? size - direct : direct;
        a /= size;
        b /= size;
    }
    return hops;
}

/* Where a link of a grid leads. */
static uint32_t grid_follow(const struct rs_topology *t, uint32_t node,
                            uint32_t link)
{
    uint32_t d = link / 2 % t->num_dims, stride = 1, size, at;

    cr_assert_eq(link / 2 / t->num_dims, node, "the route is not connected");
    for (uint32_t i = 0; i < d; i++)
        stride *= t->dims[i];
    size = t->dims[d];
    at = node / stride % size;
    if (!t->wraps[d])
        cr_assert(link % 2 ? at + 1 < size : at > 0, "over an open border");
    return node - at * stride +
           (at + (link % 2 ? 1 : size - 1)) % size * stride;
}

static void check_grid(const char *text, const char *shape, uint32_t nodes)
{
    struct rs_topology t = make(text, shape);
    uint64_t random = 3;

    cr_assert_eq(t.num_nodes, nodes);
    for (int round = 0; round < 500; round++) {
        uint32_t a = (uint32_t)random_below(&random, nodes);
        uint32_t b = (uint32_t)random_below(&random, nodes);
        uint32_t choices = rs_topology_choices(&t, a, b);
        uint32_t seen[RS_CHOICES_MOST][LINKS_MOST];

        cr_assert(choices >= 1 && choices <= RS_CHOICES_MOST);
        for (uint32_t c = 0; c < choices; c++) {
            size_t hops = rs_topology_route(&t, a, b, 0, c, seen[c]);
            uint32_t at = a;

            cr_assert_eq(hops, grid_distance(&t, a, b));
            cr_assert_leq(hops, t.longest);
            for (size_t k = 0; k < hops; k++)
                at = grid_follow(&t, at, seen[c][k]);
            cr_assert_eq(at, b);
            for (uint32_t o = 0; o < c; o++)
                cr_assert_arr_neq(seen[o], seen[c], hops * sizeof(uint32_t));
        }
    }
}

Test(topology, grids)
{
    check_grid("{type: torus, link: 1 GB/s}", "8x6", 48);
    check_grid("{type: torus, dims: [5, 4, 3, 2], link: 1 GB/s}", "10x12", 120);
    check_grid("{type: mesh, link: 1 GB/s}", "7x5", 35);
    check_grid("{type: tofu, dims: [3, 2, 4], link: 1 GB/s}", "12x24", 288);
}

/* Ten links leave a node of a tofu. */
Test(topology, tofu_has_ten_links)
{
    struct rs_topology t =
        make("{type: tofu, dims: [4, 4, 4], link: 1 GB/s}", "8x6");
    bool used[32] = {false};
    uint32_t links[LINKS_MOST], count = 0;

    for (uint32_t b = 1; b < t.num_nodes; b++) {
        size_t hops = rs_topology_route(&t, 0, b, 0, 0, links);

        if (hops == 1 && links[0] < 32)
            used[links[0]] = true;
    }
    for (int i = 0; i < 32; i++)
        count += used[i];
    cr_assert_eq(count, 10);
}

Test(topology, fat_tree_rails_follow_the_engine)
{
    struct rs_topology t = make("{type: fat-tree, leaf: 12, oversubscription: "
                                "2, rails: 4, link: 1 GB/s, up: 2 GB/s}",
                                "8x6");
    uint32_t links[2][LINKS_MOST];

    cr_assert_eq(t.num_nodes, 48);
    cr_assert_eq(t.spines, 6);
    cr_assert_eq(rs_topology_choices(&t, 0, 1), 1);
    cr_assert_eq(rs_topology_choices(&t, 0, 47), 6);
    cr_assert_eq(rs_topology_route(&t, 0, 1, 0, 0, links[0]), 2);
    cr_assert_eq(rs_topology_route(&t, 0, 47, 0, 0, links[0]), 4);
    cr_assert_eq(rs_topology_route(&t, 0, 47, 1, 0, links[1]), 4);
    for (int k = 0; k < 4; k++) {
        cr_assert_eq(links[1][k] - links[0][k], t.num_links / 4);
        cr_assert_eq(rs_topology_capacity(&t, links[0][k]),
                     k == 0 || k == 3 ? 1000000000 : 2000000000);
    }
    rs_topology_route(&t, 0, 47, 4, 0, links[1]);
    cr_assert_arr_eq(links[0], links[1], 4 * sizeof(uint32_t));
}

/* Every global link carries the puts of one pair of groups, both ways back to
 * the same pair of routers. */
Test(topology, dragonfly)
{
    struct rs_topology t = make("{type: dragonfly, groups: 9, routers: 4, "
                                "nodes: 2, links: 4, link: 1 GB/s, local: 2 "
                                "GB/s, global: 3 GB/s}", "12x6");
    uint32_t links[LINKS_MOST], group = 8;

    cr_assert_eq(t.num_nodes, 72);
    for (uint32_t a = 0; a < 72; a++) {
        for (uint32_t b = 0; b < 72; b++) {
            uint32_t choices = rs_topology_choices(&t, a, b);

            cr_assert_eq(choices, a / group != b / group ? 2 : 1);
            for (uint32_t c = 0; c < choices; c++) {
                size_t hops = rs_topology_route(&t, a, b, 0, c, links);
                unsigned global = 0;

                cr_assert_eq(hops == 0, a == b);
                for (size_t k = 0; k < hops; k++) {
                    cr_assert_lt(links[k], t.num_links);
                    global += rs_topology_capacity(&t, links[k]) == 3000000000;
                }
                cr_assert_eq(global, a / group != b / group);
                cr_assert_leq(hops, t.longest);
                if (a != b)
                    cr_assert(links[0] == a && links[hops - 1] == 72 + b);
            }
        }
    }
}

/* What one node sees of a torus is what tofu-k says by hand. */
Test(topology, a_torus_has_the_routes_of_tofu_k)
{
    static const char bare[] = "rsched: machine/1\nname: t\n"
        "engines: {count: 4, rate: 3850 MB/s}\n"
        "topology: {type: torus, link: 4830 MB/s}\n";
    struct rsched_machine *a, *b;

    cr_assert_eq(rsched_machine_builtin("tofu-k", &a), 0);
    cr_assert_eq(rsched_machine_parse("b", bare, strlen(bare), &b), 0);
    cr_assert_eq(rsched_machine_num_routes(a), rsched_machine_num_routes(b));
    for (size_t i = 0; i < rsched_machine_num_routes(b); i++) {
        const struct rsched_route *y = rsched_machine_route(b, i);
        const struct rsched_route *x = rsched_machine_find_route(a,
                                                                 y->direction);

        cr_assert_not_null(x, "%s", y->direction);
        cr_assert_eq(x->num_links, y->num_links);
        cr_assert_eq(x->rank, y->rank);
        for (size_t k = 0; k < x->num_links; k++) {
            const char *name = rsched_machine_link(b, y->links[k])->name;
            bool found = false;

            for (size_t m = 0; m < x->num_links; m++)
                found = found || strcmp(name, rsched_machine_link(
                                                  a, x->links[m])->name) == 0;
            cr_assert(found, "%s", y->direction);
        }
    }
    rsched_machine_destroy(a);
    rsched_machine_destroy(b);
}

static struct rsched_machine *parse(const char *tail)
{
    char file[1024];
    struct rsched_machine *machine;
    int length = snprintf(file, sizeof(file),
                          "rsched: machine/1\nname: t\n%s\n", tail);

    cr_assert_eq(rsched_machine_parse("t.yaml", file, (size_t)length,
                                      &machine), 0, "%s", rsched_last_error());
    return machine;
}

/* A topology brings its own links, also where the machine that is extended has
 * others; a link or a route beside it stays. */
Test(topology, an_extended_machine_has_the_links_of_the_new_topology)
{
    struct rsched_machine *tree = parse(
        "extends: tofu-k\ntopology: {type: fat-tree, leaf: 4, rails: 2, link: "
        "1 GB/s}");
    struct rsched_machine *both = parse(
        "extends: tofu-k\ntopology: {type: fat-tree, leaf: 4, rails: 2, link: "
        "1 GB/s}\nlinks: {W: 1 GB/s}");
    const struct rsched_route *route[4];

    cr_assert_eq(rsched_machine_num_links(tree), 2);
    cr_assert_eq(rsched_machine_num_rails(tree), 2);
    cr_assert_eq(rsched_machine_find_route(tree, "W")->num_links, 0);
    for (uint32_t e = 0; e < 4; e++) {
        route[e] = rsched_machine_find_engine_route(tree, "W", e);
        cr_assert_eq(route[e]->num_links, 1);
        cr_assert_eq(route[e]->links[0], e % 2);
        cr_assert_eq(route[e]->rank, 0);
    }
    cr_assert_eq(rsched_machine_link(tree, 1)->capacity, 1000000000);
    cr_assert_eq(rsched_machine_num_links(both), 4);
    cr_assert_eq(rsched_machine_num_rails(both), 1);
    cr_assert_eq(rsched_machine_find_engine_route(both, "NW", 3)->num_links, 2);
    rsched_machine_destroy(tree);
    rsched_machine_destroy(both);
}

Test(topology, directions_between_nodes_have_a_name)
{
    static const struct {
        const char *shape;
        uint32_t to; /* from node 0 */
        const char *like, *name;
    } steps[] = {
        {"8x6", 47, "E", "NW"},       {"8x6", 47, "+x", "-x-y"},
        {"8x6", 1, "", "E"},          {"4x4x4", 63, "", "-x-y-z"},
        {"4x4x4", 16, "any", "+z"},   {"4x4x4x4", 192, "N", "-a"},
        {"8x6", 2, "E", ""},          {"4x4x4", 32, "", ""},
    };

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        char buffer[4 * RS_DIMENSIONS_MOST];
        struct rs_shape shape;

        cr_assert_eq(rs_shape_parse(steps[i].shape, &shape), 0);
        cr_assert_str_eq(rs_shape_direction(&shape, 0, steps[i].to,
                                            steps[i].like, buffer),
                         steps[i].name);
    }
}

static void expect_error(const char *tail, const char *wanted)
{
    char file[1024];
    struct rsched_machine *machine;
    int length = snprintf(file, sizeof(file), "rsched: machine/1\nname: t\n"
                          "engines: {count: 4, rate: 1 GB/s}\n%s\n", tail);

    cr_assert_eq(rsched_machine_parse("t.yaml", file, (size_t)length,
                                      &machine), RSCHED_EPARSE, "%s", tail);
    cr_assert_str_eq(rsched_last_error(), wanted);
}

Test(topology, errors_say_where)
{
    expect_error("topology: {type: ring, link: 1 GB/s}",
                 "t.yaml:4:18: unknown topology 'ring' (known: torus, mesh, "
                 "tofu, fat-tree, dragonfly)");
    expect_error("topology: {link: 1 GB/s}",
                 "t.yaml:4:11: topology has no key 'type'");
    expect_error("topology: {type: torus, dims: [8, 0], link: 1 GB/s}",
                 "t.yaml:4:35: a dimension must be at least 1");
    expect_error("topology: {type: tofu, dims: [8, 6], link: 1 GB/s}",
                 "t.yaml:4:30: dims of a tofu are three: cells in x, y and z");
    expect_error("topology: {type: fat-tree, leaf: 12, oversubscription: 5, "
                 "link: 1 GB/s}",
                 "t.yaml:4:56: oversubscription must divide leaf: a leaf of 12 "
                 "nodes has leaf / oversubscription links up");
    expect_error("topology: {type: dragonfly, groups: 9, routers: 2, nodes: 1, "
                 "links: 2, link: 1 GB/s}",
                 "t.yaml:4:69: a group has 4 global links, too few to reach 8 "
                 "other groups");
    expect_error("topology: {type: torus, leaf: 3, link: 1 GB/s}",
                 "t.yaml:4:25: unknown key 'leaf' in topology (known: type, "
                 "dims, link)");
    expect_error("extends: tofu-9", "t.yaml:4:10: extends: tofu-9: No such "
                                    "file or directory, and no machine of this "
                                    "name is built in");
    expect_error("extends: '-'", "t.yaml:4:10: extends: '-' is neither a file "
                                 "nor a built-in machine");
    expect_error("extends: tofu-k\nroutes: {Q: [Z]}",
                 "t.yaml:5:14: route 'Q' uses the unknown link 'Z'");
    expect_error("node: {processes: 0}\nroutes: {N: []}",
                 "t.yaml:4:19: processes must be at least 1");
}
