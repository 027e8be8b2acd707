/* SPDX-License-Identifier: BSD-3-Clause */
/* Plain messages to and fro between two processes. Process 0's instructions are
 * counted, so it never polls in vain: a pipe tells it that its message is
 * there.
 *
 * pingpong PIPE MESSAGES [--native] */
#include "tests/mpi/common.h"

#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    enum { INTS = 2, TAG = 3 };
    int values[INTS] = {0}, peer, pipe;
    char byte = 0;
    long messages;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    CHECK(world_size == 2 && argc >= 3, "two processes, a pipe, a number");
    messages = strtol(argv[2], NULL, 10);
    peer = !world_rank;
    pipe = open(argv[1], O_RDWR); /* an open for reading alone would wait */
    CHECK(pipe >= 0, "%s", argv[1]);
    for (long i = 0; i < messages; i++) {
        if (world_rank == 1) {
            values[0] = (int)i;
            MPI_Send(values, INTS, MPI_INT, peer, TAG, MPI_COMM_WORLD);
            CHECK(write(pipe, &byte, 1) == 1, "write");
        } else {
            CHECK(read(pipe, &byte, 1) == 1, "read");
        }
        MPI_Recv(values, INTS, MPI_INT, peer, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        CHECK(values[0] == (int)i, "%d, not %ld", values[0], i);
        if (world_rank == 0)
            MPI_Send(values, INTS, MPI_INT, peer, TAG, MPI_COMM_WORLD);
    }
    close(pipe);
    return test_fini("pingpong");
}
