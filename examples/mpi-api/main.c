/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched/mpi.h in a stencil code: heat on a closed ring of cells, with two
 * buffers that change places after each step. The neighbors need no
 * communicator of their own, and the one request serves both buffers.
 *
 * mpirun.openmpi -np 4 mpi-api-openmpi [STEPS]
 *
 * Every process also computes the whole ring by itself and compares. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/mpi.h>

enum { CELLS = 1000 }; /* of each process, between two halo cells */

struct part {
    double *cells[2]; /* [0] and [CELLS + 1] are the neighbors' */
    struct rsched_mpi_topology *neighbors;
    MPI_Request request;
};

static double heat(double left, double self, double right)
{
    return self + 0.25 * (left - 2 * self + right);
}

static double initial(int cell)
{
    return cell % 97 < 40 ? 1.0 : 0.001 * cell;
}

static double *allocate(int cells)
{
    double *memory = calloc((size_t)cells, sizeof(double));

    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static void must(int error, const char *what)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, rsched_strerror(error),
            rsched_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The halo: one cell to and from each side. What the right neighbor sends
 * first is what it sends to its left, hence the order of the sources. */
static void connect(struct part *part, int rank, int size)
{
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    const int destinations[] = {left, right}, sources[] = {right, left};
    const MPI_Count one[] = {1, 1};
    const MPI_Datatype types[] = {MPI_DOUBLE, MPI_DOUBLE};
    const MPI_Aint cell = sizeof(double);
    const MPI_Aint first_and_last[] = {cell, CELLS * cell};
    const MPI_Aint halo[] = {(CELLS + 1) * cell, 0};

    must(rsched_mpi_topology_create(MPI_COMM_WORLD, 2, sources, 2,
                                    destinations, 0, &part->neighbors),
         "topology");
    must(rsched_mpi_alltoallw_init(part->cells[0], one, first_and_last, types,
                                   part->cells[0], one, halo, types,
                                   part->neighbors, &part->request),
         "request");
}

static void step(struct part *part, int number)
{
    double *old = part->cells[number % 2], *new = part->cells[1 - number % 2];

    must(rsched_mpi_rebind(part->request, old, old), "rebind");
    MPI_Start(&part->request);
    for (int i = 2; i < CELLS; i++) /* those that need no neighbor */
        new[i] = heat(old[i - 1], old[i], old[i + 1]);
    MPI_Wait(&part->request, MPI_STATUS_IGNORE);
    new[1] = heat(old[0], old[1], old[2]);
    new[CELLS] = heat(old[CELLS - 1], old[CELLS], old[CELLS + 1]);
}

/* The whole ring, serially. */
static double *whole(int cells, int steps)
{
    double *old = allocate(cells), *new = allocate(cells);

    for (int i = 0; i < cells; i++)
        old[i] = initial(i);
    for (int s = 0; s < steps; s++) {
        double *t = old;

        for (int i = 0; i < cells; i++)
            new[i] = heat(old[(i + cells - 1) % cells], old[i],
                          old[(i + 1) % cells]);
        old = new;
        new = t;
    }
    free(new);
    return old;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 300, rank, size, wrong;
    struct rsched_stats stats;
    struct part part;
    double *expected;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int b = 0; b < 2; b++)
        part.cells[b] = allocate(CELLS + 2);
    for (int i = 0; i < CELLS; i++)
        part.cells[0][1 + i] = initial(rank * CELLS + i);
    connect(&part, rank, size);
    for (int s = 0; s < steps; s++)
        step(&part, s);
    must(rsched_mpi_request_stats(part.request, &stats), "statistics");

    expected = whole(size * CELLS, steps);
    wrong = memcmp(part.cells[steps % 2] + 1, expected + rank * CELLS,
                   CELLS * sizeof(double)) != 0 ||
            stats.epochs != (uint64_t)steps;
    printf("rank %d: %llu exchanges, %llu bytes: %s\n", rank,
           (unsigned long long)stats.epochs, (unsigned long long)stats.bytes,
           wrong ? "WRONG" : "as computed serially");
    free(expected);
    MPI_Request_free(&part.request);
    rsched_mpi_topology_destroy(part.neighbors);
    free(part.cells[0]);
    free(part.cells[1]);
    MPI_Finalize();
    return wrong;
}
