/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of one machine that share no memory: what goes between the two
 * halves of them is native, for a reason that is counted, and what stays within
 * a half is not. */
#include "tests/mpi/launched.h"
#include "tests/mpi/ring.h"

enum { EPOCHS = 5, MOST = 4000, TAG = 4 };

/* A ring exchange in every kind of call: EPOCHS times, or with @together until
 * both requests have gone through lanes in all processes, since the first starts
 * of a lane are native, and how many that are depends on the speeds. Then all
 * calls are accelerated, otherwise none. */
static void run(MPI_Comm parent, int num, bool together)
{
    uint64_t before = counter("accelerated"), accelerated;
    uint64_t sends = counter("lane_sends"), receives = counter("lane_receives");
    MPI_Comm comm = ring_comm(parent);
    MPI_Request requests[3];
    struct ring ring;
    double *received = allocate((size_t)num * sizeof(double));
    double sum[2] = {0, 0};
    int rank, epochs = 0, all = 0;

    MPI_Comm_rank(comm, &rank);
    ring_create(&ring, comm, num);
    requests[0] = ring.request;
    MPI_Send_init(ring.send, num, MPI_DOUBLE, ring.left, TAG, comm,
                  &requests[1]);
    MPI_Recv_init(received, num, MPI_DOUBLE, ring.right, TAG, comm,
                  &requests[2]);
    for (int epoch = 0; epoch < EPOCHS || (together && !all); epoch++) {
        int good;

        CHECK(epoch < MOST, "no message through a lane");
        ring_fill(&ring, rank, epoch);
        MPI_Startall(3, requests);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        ring_verify(&ring, epoch);
        for (int i = 0; i < num; i++)
            CHECK(received[i] == ring_value(ring.right, epoch, 0, i),
                  "epoch %d, element %d: %g", epoch, i, received[i]);
        MPI_Neighbor_allgather(&(double){rank + 1}, 1, MPI_DOUBLE, sum, 1,
                               MPI_DOUBLE, comm);
        CHECK(sum[0] == ring.left + 1 && sum[1] == ring.right + 1,
              "epoch %d: %g and %g", epoch, sum[0], sum[1]);
        good = counter("lane_sends") > sends &&
               counter("lane_receives") > receives;
        PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, comm);
        epochs++;
    }
    for (int i = 0; i < 3; i++)
        MPI_Request_free(&requests[i]);
    ring_free(&ring);
    free(received);
    MPI_Comm_free(&comm);
    accelerated = counter("accelerated") - before;
    CHECK(accelerated == (together ? 3 + (uint64_t)epochs : 0),
          "%" PRIu64 " accelerated calls, %d epochs", accelerated, epochs);
}

int main(int argc, char **argv)
{
    const char *rank = launched_rank();
    uint64_t bytes;
    MPI_Comm half;

    if (rank == NULL) {
        printf("SKIP: the launcher does not tell ranks\n");
        return SKIP;
    }
    setenv("RSCHED_NODE", atoi(rank) % 2 ? "odd" : "even", 1);
    test_init(&argc, &argv, false);
    for (int num = 1; num <= 30000; num *= 30000) {
        bytes = counter("bytes");
        run(MPI_COMM_WORLD, num, false);
        CHECK(counter("bytes") == bytes, "bytes between the halves");
    }
    CHECK(counter("native") == 2 * (3 + EPOCHS) &&
              counter("neighbor_alltoall_init.native") == 2 &&
              counter("send_init.native") == 2,
          "%" PRIu64 " native calls", counter("native"));
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half);
    run(half, 30000, true);
    MPI_Comm_free(&half);
    return test_fini("apart");
}
