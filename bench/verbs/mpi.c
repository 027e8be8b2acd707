/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI needs for the same exchanges: two ranks send each other all puts of
 * a plan (plans.h), by persistent point-to-point requests, all started at once.
 *
 * Usage: mpirun -np 2 mpi FILE REPETITIONS. Lines of stdout:
 *     NAME RUN NS              the longer of both ranks
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/verbs/plans.h"

/* The requests of a plan: first the receives, then the sends. */
struct prepared {
    MPI_Request *requests;
    int count;
    char *buffers;
};

static struct prepared prepare(const struct plan *plan, int peer)
{
    struct prepared prepared = {0};
    size_t puts = 0, bytes = 0, offset = 0;
    int tag = 0;

    for (size_t r = 0; r < PLAN_RAILS_MOST; r++) {
        puts += plan->rails[r].num_puts;
        for (size_t i = 0; i < plan->rails[r].num_puts; i++)
            bytes += plan->rails[r].bytes[i];
    }
    prepared.count = (int)(2 * puts);
    prepared.requests = calloc(2 * puts, sizeof(*prepared.requests));
    prepared.buffers = calloc(2, bytes + 1);
    if (prepared.requests == NULL || prepared.buffers == NULL)
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    for (size_t r = 0; r < PLAN_RAILS_MOST; r++) {
        const struct rail_list *list = &plan->rails[r];

        for (size_t i = 0; i < list->num_puts; i++, tag++) {
            MPI_Recv_init(prepared.buffers + offset, (int)list->bytes[i],
                          MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                          &prepared.requests[tag]);
            MPI_Send_init(prepared.buffers + bytes + offset,
                          (int)list->bytes[i], MPI_BYTE, peer, tag,
                          MPI_COMM_WORLD, &prepared.requests[puts + (size_t)tag]);
            offset += list->bytes[i];
        }
    }
    return prepared;
}

static double run(struct prepared *prepared)
{
    double time, longest;

    MPI_Barrier(MPI_COMM_WORLD);
    time = MPI_Wtime();
    MPI_Startall(prepared->count, prepared->requests);
    MPI_Waitall(prepared->count, prepared->requests, MPI_STATUSES_IGNORE);
    time = MPI_Wtime() - time;
    MPI_Allreduce(&time, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

static void finish(struct prepared *prepared)
{
    for (int i = 0; i < prepared->count; i++)
        MPI_Request_free(&prepared->requests[i]);
    free(prepared->requests);
    free(prepared->buffers);
}

int main(int argc, char **argv)
{
    int rank, size;
    unsigned long repetitions;
    struct plans all;
    struct prepared *prepared;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    repetitions = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (size != 2 || repetitions == 0) {
        fputs("usage: mpirun -np 2 mpi FILE REPETITIONS\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    all = plans_read(argv[1]);
    prepared = calloc(all.count, sizeof(*prepared));
    if (prepared == NULL)
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    for (size_t i = 0; i < all.count; i++) {
        prepared[i] = prepare(&all.plans[i], 1 - rank);
        run(&prepared[i]); /* connections, registrations */
    }
    for (unsigned long r = 0; r < repetitions; r++) {
        for (size_t i = 0; i < all.count; i++) {
            const double time = run(&prepared[i]);

            if (rank == 0)
                printf("%s %lu %.0f\n", all.plans[i].name, r, time * 1e9);
        }
    }
    for (size_t i = 0; i < all.count; i++)
        finish(&prepared[i]);
    free(prepared);
    plans_free(&all);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
