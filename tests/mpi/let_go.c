/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator and the persistent requests on it are freed, in either order, before
 * lanes have been used for long: nothing of the backend's own keeps the communicator
 * while the program looks for messages. Run with issends.c behind the backend. */
#include <dlfcn.h>

#include "tests/mpi/common.h"

enum { ROUNDS = 200, STARTS = 10, TAG = 4711, PATIENCE = 20 /* s */ };

static int ask(const char *name)
{
    int (*function)(void);

    *(void **)&function = dlsym(RTLD_DEFAULT, name);
    CHECK(function != NULL, "no %s", name);
    return function();
}

static void go_round(bool requests_first)
{
    int left = (world_rank + world_size - 1) % world_size;
    int right = (world_rank + 1) % world_size, flag, in, out;
    double since;
    MPI_Request requests[2];
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Recv_init(&in, 1, MPI_INT, left, TAG, comm, &requests[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, TAG, comm, &requests[1]);
    for (int i = 0; i < STARTS; i++) {
        if (!requests_first && i == STARTS / 2)
            MPI_Comm_free(&comm);
        out = world_rank * 100 + i;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == left * 100 + i, "%d", in);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    if (requests_first)
        MPI_Comm_free(&comm);
    since = MPI_Wtime();
    while (ask("issends_left") > 0) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag,
                   MPI_STATUS_IGNORE);
        CHECK(MPI_Wtime() - since < PATIENCE, "a message is left, of %d",
              ask("issends_ever"));
    }
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, false);
    for (int i = 0; i < ROUNDS; i++)
        go_round(i % 2);
    CHECK(ask("issends_ever") > 0, "no message of the backend's own");
    return test_fini("let_go");
}
