/* SPDX-License-Identifier: BSD-3-Clause */
/* What check-cost counts the instructions of: N exchanges of a process with
 * itself. cost N [--all] */
#include "tests/mpi/ring.h"

int main(int argc, char **argv)
{
    long exchanges = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    bool all = has_option(argc, argv, "--all");
    struct ring ring;
    MPI_Comm comm;

    test_init(&argc, &argv, false);
    comm = ring_comm(MPI_COMM_WORLD);
    ring_create(&ring, comm, 1);
    for (long i = 0; i < exchanges; i++) {
        if (all) {
            MPI_Startall(1, &ring.request);
            MPI_Waitall(1, &ring.request, MPI_STATUSES_IGNORE);
        } else {
            MPI_Start(&ring.request);
            MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        }
    }
    CHECK(counter("starts") == (uint64_t)exchanges, "not accelerated");
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    return test_fini("cost");
}
