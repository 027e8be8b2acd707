/* SPDX-License-Identifier: BSD-3-Clause */
/* Random communicators with neighbors, for random.c. */
#ifndef TESTS_MPI_RANDOM_TOPOLOGY_H
#define TESTS_MPI_RANDOM_TOPOLOGY_H

#include "tests/mpi/common.h"

enum { MAX_EDGES = 64 };

struct topology {
    MPI_Comm comm;
    bool cartesian, multiple; /* several edges between two processes */
    int num[2], peer[2][MAX_EDGES], tag[2][MAX_EDGES]; /* send, receive */
};

static MPI_Comm random_parent(struct random *r)
{
    MPI_Comm parent;
    int key = 0;

    /* All draw the same numbers; a rank's key is its own. */
    for (int rank = 0; rank < world_size; rank++) {
        int draw = random_below(r, 1000);

        if (rank == world_rank)
            key = draw;
    }
    MPI_Comm_split(MPI_COMM_WORLD, 0, key, &parent);
    return parent;
}

static MPI_Comm random_cart(struct random *r, MPI_Comm parent)
{
    int dims[3], periods[3], n = 1 + random_below(r, 3), left = world_size;
    MPI_Comm comm;

    for (int d = 0; d < n; d++) {
        dims[d] = 1 + random_below(r, left < 4 ? left : 4);
        if (d == n - 1 && random_one_in(r, 2))
            dims[d] = left;
        left /= dims[d];
        periods[d] = random_below(r, 3) > 0;
    }
    MPI_Cart_create(parent, n, dims, periods, random_below(r, 2), &comm);
    return comm;
}

static MPI_Comm random_graph(struct random *r, MPI_Comm parent)
{
    int nodes = 1 + random_below(r, world_size), pairs = random_below(r, 12);
    int index[64] = {0}, edges[MAX_EDGES], from[MAX_EDGES], to[MAX_EDGES];
    int num = 0, n = 0;
    MPI_Comm comm;

    for (int i = 0; i < pairs && nodes > 1; i++) {
        int a = random_below(r, nodes), b = random_below(r, nodes);

        if (a == b)
            continue;
        from[n] = to[n + 1] = a;
        to[n] = from[n + 1] = b;
        n += 2;
    }
    for (int node = 0; node < nodes; node++) {
        for (int i = 0; i < n; i++) {
            if (from[i] == node)
                edges[num++] = to[i];
        }
        index[node] = num;
    }
    MPI_Graph_create(parent, nodes, index, edges, random_below(r, 2), &comm);
    return comm;
}

static MPI_Comm random_dist_graph(struct random *r, struct random *own,
                                  MPI_Comm parent, bool adjacent)
{
    int sources[MAX_EDGES], destinations[MAX_EDGES], in = 0, out = 0, rank;
    int all = random_below(r, 3 * world_size + 4), degrees[MAX_EDGES];
    int reorder = adjacent ? random_below(r, 2) : 0;
    MPI_Comm comm;

    MPI_Comm_rank(parent, &rank);
    if (all > MAX_EDGES)
        all = MAX_EDGES;
    for (int i = 0; i < all; i++) {
        int from = random_below(r, world_size);
        int to = random_below(r, world_size);

        if (from == rank)
            destinations[out++] = to;
        if (to == rank)
            sources[in++] = from;
    }
    random_shuffle(own, sources, in);
    random_shuffle(own, destinations, out);
    if (adjacent) {
        MPI_Dist_graph_create_adjacent(parent, in, sources, MPI_UNWEIGHTED,
                                       out, destinations, MPI_UNWEIGHTED,
                                       MPI_INFO_NULL, reorder, &comm);
        return comm;
    }
    for (int i = 0; i < out; i++) {
        sources[i] = rank;
        degrees[i] = 1;
    }
    MPI_Dist_graph_create(parent, out, sources, degrees, destinations,
                          MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    return comm;
}

static void get_neighbors(struct topology *t)
{
    int kind, rank, n, weighted, weights[MAX_EDGES];

    MPI_Topo_test(t->comm, &kind);
    MPI_Comm_rank(t->comm, &rank);
    if (kind == MPI_CART) {
        t->cartesian = true;
        MPI_Cartdim_get(t->comm, &n);
        for (int d = 0; d < n; d++)
            MPI_Cart_shift(t->comm, d, 1, &t->peer[0][2 * d],
                           &t->peer[0][2 * d + 1]);
        t->num[0] = t->num[1] = 2 * n;
        memcpy(t->peer[1], t->peer[0], sizeof(t->peer[0]));
    } else if (kind == MPI_GRAPH) {
        MPI_Graph_neighbors_count(t->comm, rank, &n);
        MPI_Graph_neighbors(t->comm, rank, n, t->peer[0]);
        memcpy(t->peer[1], t->peer[0], sizeof(t->peer[0]));
        t->num[0] = t->num[1] = n;
    } else {
        MPI_Dist_graph_neighbors_count(t->comm, &t->num[1], &t->num[0],
                                       &weighted);
        MPI_Dist_graph_neighbors(t->comm, t->num[1], t->peer[1], weights,
                                 t->num[0], t->peer[0], weights);
    }
}

/* What the standard pairs: Cartesian block s with block s^1, else the k-th
 * edge to a process with its k-th edge from there. */
static void pair_edges(struct topology *t)
{
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < t->num[side]; i++) {
            int before = 0;

            for (int k = 0; k < i; k++)
                before += t->peer[side][k] == t->peer[side][i];
            if (before > 0 && t->peer[side][i] != MPI_PROC_NULL)
                t->multiple = true;
            t->tag[side][i] = !t->cartesian ? before : side ? i ^ 1 : i;
        }
    }
}

/* False for a process that is not in it. */
static bool topology_create(struct topology *t, struct random *r,
                            struct random *own)
{
    MPI_Comm parent = random_parent(r);
    bool copied = random_one_in(r, 4);
    int mine, multiple;

    memset(t, 0, sizeof(*t));
    switch (random_below(r, 5)) {
    case 0:
    case 1:
        t->comm = random_cart(r, parent);
        break;
    case 2:
        t->comm = random_graph(r, parent);
        break;
    case 3:
        t->comm = random_dist_graph(r, own, parent, true);
        break;
    default:
        t->comm = random_dist_graph(r, own, parent, false);
        break;
    }
    MPI_Comm_free(&parent);
    if (t->comm == MPI_COMM_NULL)
        return false;
    if (copied) {
        MPI_Comm copy;

        MPI_Comm_dup(t->comm, &copy);
        MPI_Comm_free(&t->comm);
        t->comm = copy;
    }
    get_neighbors(t);
    pair_edges(t);
    mine = t->multiple;
    PMPI_Allreduce(&mine, &multiple, 1, MPI_INT, MPI_MAX, t->comm);
    t->multiple = multiple != 0;
    return true;
}

#endif
