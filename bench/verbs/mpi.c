/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI needs for the same exchanges: two ranks send each other all puts of
 * a plan (plans.h), all started at once, by persistent point-to-point requests
 * or by one persistent neighborhood collective with a neighbor for each put.
 *
 * Usage: mpirun -np 2 mpi FILE REPETITIONS point|neighbor. Lines of stdout:
 *     NAME RUN NS              from a common start until the later one is done
 * With the MPI backend of rsched it fails unless all bytes went over verbs.
 */
#include <inttypes.h>
#include <mpi.h>

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h> /* needs mpi.h before it */
#define MPI_Neighbor_alltoallv_init MPIX_Neighbor_alltoallv_init
#endif
#include <rsched/mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/verbs/plans.h"
#include "bench/verbs/together.h"

#pragma weak rsched_mpi_counter

/* The requests of a plan: first the receives, then the sends; or the one. */
struct prepared {
    MPI_Request *requests;
    int count;
    MPI_Comm comm; /* of neighbors */
    int *lengths, *offsets;
    int num_puts, bytes;
    char *receive, *send;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "mpi: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort();
}

static void *get_memory(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);

    if (memory == NULL)
        die("no memory");
    return memory;
}

/* The puts of all rails, one behind the other. */
static void list_puts(struct prepared *p, const struct plan *plan)
{
    size_t puts = 0;

    for (size_t r = 0; r < PLAN_RAILS_MOST; r++)
        puts += plan->rails[r].num_puts;
    p->lengths = get_memory(puts, sizeof(int));
    p->offsets = get_memory(puts, sizeof(int));
    for (size_t r = 0; r < PLAN_RAILS_MOST; r++) {
        for (size_t i = 0; i < plan->rails[r].num_puts; i++) {
            p->lengths[p->num_puts] = (int)plan->rails[r].bytes[i];
            p->offsets[p->num_puts] = p->bytes;
            p->bytes += p->lengths[p->num_puts++];
        }
    }
    p->receive = get_memory((size_t)p->bytes, 1);
    p->send = get_memory((size_t)p->bytes, 1);
    for (int i = 0; i < p->bytes; i++)
        p->send[i] = (char)(i * 7 + 1);
}

static void make_points(struct prepared *p, int peer)
{
    p->count = 2 * p->num_puts;
    p->requests = get_memory((size_t)p->count, sizeof(*p->requests));
    for (int i = 0; i < p->num_puts; i++) {
        MPI_Recv_init(p->receive + p->offsets[i], p->lengths[i], MPI_BYTE, peer,
                      i, MPI_COMM_WORLD, &p->requests[i]);
        MPI_Send_init(p->send + p->offsets[i], p->lengths[i], MPI_BYTE, peer, i,
                      MPI_COMM_WORLD, &p->requests[p->num_puts + i]);
    }
}

static void make_neighbors(struct prepared *p, int peer)
{
    int *peers = get_memory((size_t)p->num_puts, sizeof(int));

    for (int i = 0; i < p->num_puts; i++)
        peers[i] = peer;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, p->num_puts, peers,
                                   MPI_UNWEIGHTED, p->num_puts, peers,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &p->comm);
    free(peers);
    p->count = 1;
    p->requests = get_memory(1, sizeof(*p->requests));
    MPI_Neighbor_alltoallv_init(p->send, p->lengths, p->offsets, MPI_BYTE,
                                p->receive, p->lengths, p->offsets, MPI_BYTE,
                                p->comm, MPI_INFO_NULL, &p->requests[0]);
}

static struct prepared prepare(const struct plan *plan, int peer, bool neighbor)
{
    struct prepared prepared = {.comm = MPI_COMM_NULL};

    list_puts(&prepared, plan);
    if (neighbor)
        make_neighbors(&prepared, peer);
    else
        make_points(&prepared, peer);
    return prepared;
}

static uint64_t run(struct prepared *prepared)
{
    uint64_t start, took, longest;

    memset(prepared->receive, 0, (size_t)prepared->bytes);
    start = together_start();
    MPI_Startall(prepared->count, prepared->requests);
    MPI_Waitall(prepared->count, prepared->requests, MPI_STATUSES_IGNORE);
    took = start_clock() - start;
    if (memcmp(prepared->receive, prepared->send, (size_t)prepared->bytes) != 0)
        die("something else arrived");
    MPI_Allreduce(&took, &longest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

static void finish(struct prepared *prepared)
{
    for (int i = 0; i < prepared->count; i++)
        MPI_Request_free(&prepared->requests[i]);
    if (prepared->comm != MPI_COMM_NULL)
        MPI_Comm_free(&prepared->comm);
    free(prepared->requests);
    free(prepared->lengths);
    free(prepared->offsets);
    free(prepared->receive);
    free(prepared->send);
}

static uint64_t bytes_over_verbs(void)
{
    uint64_t bytes = 0;

    if (rsched_mpi_counter != NULL &&
        rsched_mpi_counter("engines.verbs", &bytes) != 0)
        die("rsched does not count what goes over verbs");
    return bytes;
}

int main(int argc, char **argv)
{
    int rank, size;
    unsigned long repetitions;
    uint64_t bytes = 0;
    struct plans all;
    struct prepared *prepared;
    bool neighbor;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    repetitions = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    if (size != 2 || repetitions == 0)
        die("usage: mpi FILE REPETITIONS point|neighbor");
    neighbor = strcmp(argv[3], "neighbor") == 0;
    all = plans_read(argv[1]);
    prepared = get_memory(all.count, sizeof(*prepared));
    for (size_t i = 0; i < all.count; i++) {
        prepared[i] = prepare(&all.plans[i], 1 - rank, neighbor);
        run(&prepared[i]); /* connections, registrations */
        bytes += (uint64_t)prepared[i].bytes * (repetitions + 1);
    }
    for (unsigned long r = 0; r < repetitions; r++) {
        for (size_t i = 0; i < all.count; i++) {
            const uint64_t time = run(&prepared[i]);

            if (rank == 0)
                printf("%s %lu %" PRIu64 "\n", all.plans[i].name, r, time);
        }
    }
    if (rsched_mpi_counter != NULL && bytes_over_verbs() != bytes)
        die("bytes went another way");
    for (size_t i = 0; i < all.count; i++)
        finish(&prepared[i]);
    free(prepared);
    plans_free(&all);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
