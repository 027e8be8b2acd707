/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TOPOLOGY: the nodes and links of a whole machine, made from a few numbers.
 * A topology numbers nodes and directed links and says which links lie between
 * two nodes; it knows nothing of puts, engines' queues or processes.
 *
 * | type      | nodes and links              | minimal routes to choose from |
 * |-----------|------------------------------|-------------------------------|
 * | torus     | a grid of any dimension,     | orders of the dimensions, and |
 * | mesh      | closed or open; the first    | both ways round where they    |
 * |           | coordinate runs fastest      | are equally long              |
 * | tofu      | torus X x Y x Z of cells     | the same                      |
 * |           | 2 x 3 x 2 (open, closed,     |                               |
 * |           | open): 10 links              |                               |
 * | fat-tree  | leaves under spines, in      | the spines; the rail is that  |
 * |           | rails                        | of the engine                 |
 * | dragonfly | groups of connected routers, | parallel global links between |
 * |           | global links between groups  | the two groups                |
 */
#ifndef RS_MODELS_TOPOLOGY_H
#define RS_MODELS_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RS_DIMENSIONS_MOST = 8,
    RS_TOPOLOGY_MOST = 1 << 20,
    RS_CHOICES_MOST = 64, /* minimal routes offered between two nodes */
};

enum rs_topology_type {
    RS_TOPOLOGY_NONE,
    RS_TOPOLOGY_TORUS,
    RS_TOPOLOGY_MESH,
    RS_TOPOLOGY_TOFU,
    RS_TOPOLOGY_FAT_TREE,
    RS_TOPOLOGY_DRAGONFLY,
};

/** What a machine file says. Zeroed: no topology. */
struct rs_topology_spec {
    enum rs_topology_type type;
    uint32_t dims[RS_DIMENSIONS_MOST]; /* torus, mesh, tofu */
    uint32_t num_dims;                 /* 0: taken from the nodes asked for */
    uint64_t link;   /* capacity; in the last two between node and switch */
    uint64_t up;     /* fat-tree: between leaf and spine */
    uint64_t local;  /* dragonfly: within a group */
    uint64_t global; /* dragonfly: between groups */
    uint32_t leaf;   /* fat-tree: nodes under a leaf */
    uint32_t oversubscription; /* fat-tree: leaf / spines */
    uint32_t rails;            /* fat-tree */
    uint32_t groups, routers, nodes, links; /* dragonfly: groups, routers of a
                                               group, nodes and global links of
                                               a router */
};

struct rs_topology {
    struct rs_topology_spec spec;
    uint32_t dims[RS_DIMENSIONS_MOST];
    bool wraps[RS_DIMENSIONS_MOST];
    uint32_t num_dims;
    uint32_t leaves, spines; /* fat-tree */
    uint32_t num_nodes;
    uint32_t num_links;
    size_t longest; /* no route has more links */
};

/**
 * Make a topology.
 *
 * @param shape the nodes that are asked for, as a grid; a topology that says
 *              no size of its own takes it
 * @return 0; RSCHED_EINVAL when it does not fit, RSCHED_ELIMIT above
 *         RS_TOPOLOGY_MOST nodes
 */
int rs_topology_make(const struct rs_topology_spec *spec,
                     const uint32_t *shape, uint32_t num_shape,
                     struct rs_topology *topology);

/** bytes/s, or RSCHED_UNLIMITED */
uint64_t rs_topology_capacity(const struct rs_topology *topology,
                              uint32_t link);

/** The number of minimal routes that are offered; at least 1. */
uint32_t rs_topology_choices(const struct rs_topology *topology,
                             uint32_t source, uint32_t destination);

/**
 * A minimal route.
 *
 * @param engine the send engine: rails follow it
 * @param choice below rs_topology_choices(); 0 is what a machine that does not
 *               choose takes: dimension order, or the spine of the destination
 * @param links  room for `longest` links
 * @return how many were written; 0 from a node to itself
 */
size_t rs_topology_route(const struct rs_topology *topology, uint32_t source,
                         uint32_t destination, uint32_t engine,
                         uint32_t choice, uint32_t *links);

/** What a link is called ("+x of node 5"). Returns `buffer`. */
const char *rs_topology_link_name(const struct rs_topology *topology,
                                  uint32_t link, char *buffer, size_t size);

/** The word in machine files; "none" for RS_TOPOLOGY_NONE. */
const char *rs_topology_type_name(enum rs_topology_type type);

#endif
