/* SPDX-License-Identifier: BSD-3-Clause */
/* One process calls MPI_Abort while the others wait for it in an exchange; the
 * script check-abort looks at what is left. */
#include "tests/mpi/ring.h"

int main(int argc, char **argv)
{
    struct ring rings[2];
    MPI_Comm comm;

    test_init(&argc, &argv, false);
    comm = ring_comm(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        ring_create(&rings[i], comm, 50000);
        ring_fill(&rings[i], world_rank, i);
    }
    MPI_Start(&rings[0].request);
    MPI_Wait(&rings[0].request, MPI_STATUS_IGNORE);
    ring_verify(&rings[0], 0);
    CHECK(counter("starts") == 1, "not accelerated");
    if (world_rank == 1) {
        printf("abort: rank 1 aborts\n");
        fflush(stdout);
        MPI_Abort(comm, 5);
    }
    MPI_Start(&rings[1].request);
    MPI_Wait(&rings[1].request, MPI_STATUS_IGNORE);
    return FAIL;
}
