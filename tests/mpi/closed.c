/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that has closed its standard input has no memory of lanes there. */
#include <unistd.h>

#include "tests/mpi/hope.h"

enum { INTS = 100 };

/* What the native MPI opens is its own affair. */
static void check_input(void)
{
    char name[64] = "";

    CHECK(readlink("/proc/self/fd/0", name, sizeof(name) - 1) < 0 ||
              strstr(name, "rsched") == NULL,
          "standard input is %s", name);
}

int main(int argc, char **argv)
{
    static int out[INTS], in[INTS];
    MPI_Request requests[2];
    struct hope hope = {0};
    int left, right, step = 0;

    test_init(&argc, &argv, false);
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    MPI_Barrier(MPI_COMM_WORLD); /* the native MPI has what it needs */
    close(STDIN_FILENO);
    MPI_Recv_init(in, INTS, MPI_INT, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(out, INTS, MPI_INT, right, 0, MPI_COMM_WORLD, &requests[1]);
    for (;;) {
        uint64_t s = counter("lane_sends");

        out[INTS - 1] = ++step * world_size + world_rank;
        MPI_Startall(2, requests);
        check_input();
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check_input();
        CHECK(in[INTS - 1] == step * world_size + left, "step %d: %d", step, in[INTS - 1]);
        if (all_have(&hope, counter("lane_sends") == s + 1))
            break;
        go_on(&hope, "not in lanes");
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    return test_fini("closed");
}
