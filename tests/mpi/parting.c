/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of which one side or the other goes while they are being made: what is
 * still on its way for them is taken, in MPI_Finalize at the latest, which
 * waits for ever for what is not. */
#include <time.h>

#include "tests/mpi/common.h"

enum { MOST = 15, MANY = 200, ROUNDS = 100, TAG = 2, NAP_NS = 5000000 };

static void nap(void)
{
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}

/* `late` is slow between its messages; -1: both are together. */
static void meet(int messages, int late, bool leaves)
{
    MPI_Request request;
    MPI_Comm comm;
    int value = -1;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (world_rank == 0)
        MPI_Send_init(&value, 1, MPI_INT, 1, TAG, comm, &request);
    else
        MPI_Recv_init(&value, 1, MPI_INT, 0, TAG, comm, &request);
    for (int i = 0; i < messages; i++) {
        if (world_rank == 0)
            value = messages + i;
        if (world_rank == late)
            nap();
        else if (late < 0)
            MPI_Barrier(MPI_COMM_WORLD);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(value == messages + i, "message %d of %d: %d", i, messages,
              value);
    }
    if (leaves)
        return; /* all of it is left for MPI_Finalize */
    MPI_Request_free(&request);
    MPI_Comm_free(&comm);
}

static bool have_used_lanes(void)
{
    int used = counter("lane_sends") > 0;

    MPI_Bcast(&used, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return used;
}

/* Messages to oneself, so that what has come from others is looked at. */
static void look(void)
{
    MPI_Request requests[2];
    int from = 1, to = 0;

    MPI_Send_init(&from, 1, MPI_INT, world_rank, TAG, MPI_COMM_WORLD,
                  &requests[0]);
    MPI_Recv_init(&to, 1, MPI_INT, world_rank, TAG, MPI_COMM_WORLD,
                  &requests[1]);
    for (int i = 0; i < MOST; i++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    CHECK(to == from, "%d", to);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

/* The arguments: how far the last pair comes, who is late in it, and how many
 * pairs were there before: none, or those that go on the way. */
int main(int argc, char **argv)
{
    int last = argc > 1 ? atoi(argv[1]) : MOST;
    int late = argc > 2 ? atoi(argv[2]) : 0;
    bool first = argc > 3 && strcmp(argv[3], "first") == 0;

    test_init(&argc, &argv, false);
    for (int messages = 1; messages <= MOST && !first; messages++) {
        for (int who = -1; who < world_size; who++)
            meet(messages, who, false);
    }
    for (int round = 0; !first && !have_used_lanes(); round++) {
        CHECK(round < ROUNDS, "no lane was used");
        meet(MANY, -1, false);
    }
    meet(last, late, true);
    /* The receiver is in MPI_Finalize by then. */
    for (int i = 0; i < 10 && world_rank == 0; i++)
        nap();
    if (world_rank == 0)
        look();
    return test_fini("parting");
}
