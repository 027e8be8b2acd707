/* SPDX-License-Identifier: BSD-3-Clause */
/* Graphs that are made of communicators with another topology, and copies of them:
 * what counts is the call that made them. Run with cartesian.c behind the backend. */
#include "tests/mpi/common.h"

/* Each process sends its number to the one `ahead`. */
static void exchange(MPI_Comm comm, int ahead)
{
    uint64_t puts = counter("puts");
    int from = (world_rank + 2 * world_size - ahead) % world_size, out = world_rank;

    for (int i = 0; i < 3; i++) {
        int in = -1;

        MPI_Neighbor_alltoall(&out, 1, MPI_INT, &in, 1, MPI_INT, comm);
        CHECK(in == from, "%d from %d", in, from);
    }
    CHECK(counter("puts") == puts + 3, "%d puts", (int)(counter("puts") - puts));
}

static MPI_Comm graph_on(MPI_Comm parent, int ahead)
{
    int to = (world_rank + ahead) % world_size;
    int from = (world_rank + 2 * world_size - ahead) % world_size;
    MPI_Comm graph;

    MPI_Dist_graph_create_adjacent(parent, 1, &from, MPI_UNWEIGHTED, 1, &to,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    return graph;
}

int main(int argc, char **argv)
{
    MPI_Comm cart, graph, again, copies[2];
    MPI_Request request;
    int periodic = 1, topology;

    test_init(&argc, &argv, false);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &cart);
    graph = graph_on(cart, 1);
    PMPI_Topo_test(graph, &topology);
    CHECK(topology == MPI_CART, "cartesian.c is not behind the backend");
    exchange(graph, 1);
    MPI_Comm_dup(graph, &copies[0]);
    exchange(copies[0], 1);
    MPI_Comm_idup(graph, &copies[1], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    exchange(copies[1], 1);
    again = graph_on(copies[0], 2);
    exchange(again, 2);
    MPI_Comm_free(&copies[0]);
    exchange(copies[1], 1);
    exchange(again, 2);
    MPI_Comm_free(&again);
    MPI_Comm_free(&copies[1]);
    MPI_Comm_free(&graph);
    MPI_Comm_free(&cart);
    return test_fini("remade");
}
