/* SPDX-License-Identifier: BSD-3-Clause */
/* Native messages go on while their receiver waits in a neighborhood collective,
 * also when a note of the backend's has come meanwhile that it has not read: a
 * probe that finds a message is no progress. */
#include <time.h>
#include <unistd.h>

#include "tests/mpi/common.h"

enum { ROUNDS = 5, LONG = 1 << 20, LIMIT_S = 30, SMALL_TAG = 1, LONG_TAG = 100 };
enum { STARTS = 4 }; /* the last of which offers the lane, which is a note */

static void nap(void)
{
    nanosleep(&(struct timespec){0, 50000000}, NULL);
}

static void exchange(MPI_Comm graph, int round)
{
    int mine = 2 * round + world_rank, theirs = -1;

    MPI_Neighbor_alltoall(&mine, 1, MPI_INT, &theirs, 1, MPI_INT, graph);
    CHECK(theirs == 2 * round + 1 - world_rank, "round %d: %d", round, theirs);
}

/* It waits in the exchange while the note comes, and then the long message. */
static void receive(MPI_Comm graph, char *memory, int round)
{
    int small = -1;
    MPI_Request request;

    MPI_Irecv(memory, LONG, MPI_BYTE, 1, LONG_TAG, MPI_COMM_WORLD, &request);
    exchange(graph, round);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(memory[0] == round && memory[LONG - 1] == round, "round %d", round);
    for (int i = 0; i < STARTS; i++) {
        MPI_Recv(&small, 1, MPI_INT, 1, SMALL_TAG + round, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        CHECK(small == round, "round %d: %d", round, small);
    }
}

static void send(MPI_Comm graph, char *memory, int round)
{
    MPI_Request request;

    memset(memory, round, LONG);
    nap();
    MPI_Send_init(&round, 1, MPI_INT, 0, SMALL_TAG + round, MPI_COMM_WORLD,
                  &request);
    for (int i = 1; i < STARTS; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Start(&request);
    nap();
    MPI_Ssend(memory, LONG, MPI_BYTE, 0, LONG_TAG, MPI_COMM_WORLD);
    exchange(graph, round);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

int main(int argc, char **argv)
{
    bool native = argc > 1 && strcmp(argv[1], "--native") == 0;
    MPI_Comm graph;
    char *memory;

    test_init(&argc, &argv, native);
    alarm(LIMIT_S); /* what hangs is killed */
    memory = allocate(LONG);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &(int){1 - world_rank},
                                   MPI_UNWEIGHTED, 1, &(int){1 - world_rank},
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    exchange(graph, 0);
    for (int round = 0; round < ROUNDS; round++)
        (world_rank == 0 ? receive : send)(graph, memory, round);
    CHECK(native || counter("puts") == ROUNDS + 1,
          "%" PRIu64 " puts of exchanges", counter("puts"));
    CHECK(native || world_rank == 0 ||
              (counter("lane_native") == ROUNDS * STARTS &&
               counter("lane_offers") == ROUNDS),
          "%" PRIu64 " messages of lanes, %" PRIu64 " offers",
          counter("lane_native"), counter("lane_offers"));
    MPI_Comm_free(&graph);
    free(memory);
    return test_fini("unread");
}
