/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent point-to-point requests between processes in different namespaces, where
 * a process's number means another process or none: lanes carry them, and nobody reads
 * another one's memory for the sender's. See check-spaces.
 *
 * spaces */
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/mpi/lanes.h"

enum { INTS = 5000, ENOUGH = 10 /* messages */ };

/* Whether the kernel reads the left neighbor's memory, by the number that it has. */
static bool reads_left(void)
{
    static uint64_t cookie;
    uint64_t mine[3], theirs[3], found = 0;
    struct iovec here = {&found, sizeof(found)}, there = {NULL, sizeof(found)};
    bool reads;

    CHECK(getrandom(&cookie, sizeof(cookie), 0) == (ssize_t)sizeof(cookie), "random");
    mine[0] = (uint64_t)getpid();
    mine[1] = (uintptr_t)&cookie;
    mine[2] = cookie;
    PMPI_Sendrecv(mine, 3, MPI_UINT64_T, right, 0, theirs, 3, MPI_UINT64_T, left, 0,
                  MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    there.iov_base = (void *)(uintptr_t)theirs[1];
    reads = process_vm_readv((pid_t)theirs[0], &here, 1, &there, 1, 0) ==
                (ssize_t)sizeof(found) &&
            found == theirs[2];
    PMPI_Barrier(MPI_COMM_WORLD);
    return reads;
}

/* Longer ones, until enough have come through a lane. */
static void carry(MPI_Comm comm, MPI_Datatype type, int count, int stride)
{
    static int out[2 * INTS], in[2 * INTS];
    uint64_t before = counter("lane_receives");
    MPI_Request requests[2];
    struct hope hope = {0};
    int round = 0;

    MPI_Recv_init(in, count, type, left, TAGS, comm, &requests[0]);
    MPI_Send_init(out, count, type, right, TAGS, comm, &requests[1]);
    do {
        round++;
        for (int i = 0; i < 2 * INTS; i++) {
            out[i] = world_rank * 1000000 + round * 10 + i;
            in[i] = -1;
        }
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < INTS * stride; i += stride)
            CHECK(in[i] == left * 1000000 + round * 10 + i, "%d: %d", i, in[i]);
        go_on(&hope, "too few longer messages through lanes");
    } while (!all_have(&hope, counter("lane_receives") >= before + ENOUGH));
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void carry_strided(void)
{
    MPI_Datatype type;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_vector(INTS, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    carry(comm, type, 1, 2);
    MPI_Type_free(&type);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    bool reads;

    test_init(&argc, &argv, false);
    uses_lanes = true;
    lanes_init();
    reads = reads_left();
    printf("rank %d is process %d here, and %s rank %d\n", world_rank, (int)getpid(),
           reads ? "reads" : "does not read", left);
    promote();
    lanes_fini();
    carry(MPI_COMM_WORLD, MPI_INT, INTS, 1);
    carry_strided();
    CHECK(reads || counter("lane_pulls") == 0, "pulled %" PRIu64, counter("lane_pulls"));
    return test_fini("spaces");
}
