/* SPDX-License-Identifier: BSD-3-Clause */
/* A job some of whose processes have the backend and some not: all is native,
 * and nothing hangs. partial [--all]: all have it */
#include "tests/mpi/ring.h"

int main(int argc, char **argv)
{
    MPI_Request request;
    struct ring ring;
    MPI_Comm comm;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    comm = ring_comm(MPI_COMM_WORLD);
    ring_create(&ring, comm, 100);
    ring_fill(&ring, world_rank, 1);
    MPI_Start(&ring.request);
    MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
    MPI_Request_free(&ring.request);
    MPI_Neighbor_alltoall(ring.send, ring.num, MPI_DOUBLE, ring.receive,
                          ring.num, MPI_DOUBLE, comm);
    MPI_Ineighbor_alltoall(ring.send, ring.num, MPI_DOUBLE, ring.receive,
                           ring.num, MPI_DOUBLE, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    if (has_option(argc, argv, "--all")) {
        CHECK(counter("native") == 0 && counter("accelerated") == 3,
              "%" PRIu64 " native calls", counter("native"));
    } else if (is_accelerated()) {
        CHECK(counter("native") == 3 && counter("accelerated") == 0,
              "%" PRIu64 " native calls", counter("native"));
        CHECK(counter("neighbor_alltoall.native.ranks") == 1 &&
                  counter("neighbor_alltoall_init.native.ranks") == 1 &&
                  counter("ineighbor_alltoall.native.ranks") == 1,
              "for another reason");
    }
    printf("partial: rank %d %s the backend: ok\n", world_rank,
           is_accelerated() ? "with" : "without");
    MPI_Finalize();
    return PASS;
}
