/* SPDX-License-Identifier: BSD-3-Clause */
/* Legal programs that must complete, each way round and at every size:
 *
 * 1. one side Start, Barrier, Wait; the other Start, Wait, Barrier
 * 2. one side Irecv, Start, Wait (exchange), Wait (receive); the other Send
 *    (large), Start, Wait
 * 3. one side starts and computes without calling anything, the other starts
 *    and waits; who waits must be done before the computation is
 *
 * Sides are odd and even ranks. A hang is a failure, by the test's time limit.
 */
#include <unistd.h>

#include "tests/mpi/ring.h"

enum { SIZES = 8 };
static const int sizes[SIZES] = {1, 16, 1024, 4096, 16384, 65536, 262144,
                                 1 << 20}; /* doubles: 8 B ... 8 MiB */

static void start(struct ring *ring, int epoch)
{
    ring_fill(ring, world_rank, epoch);
    MPI_Start(&ring->request);
}

static void wait_for(struct ring *ring, int epoch)
{
    MPI_Wait(&ring->request, MPI_STATUS_IGNORE);
    ring_verify(ring, epoch);
}

static void barriers(struct ring *ring, int epoch, bool mine)
{
    start(ring, epoch);
    if (mine)
        MPI_Barrier(MPI_COMM_WORLD);
    wait_for(ring, epoch);
    if (!mine)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void large_sends(struct ring *ring, int epoch, bool mine)
{
    enum { BYTES = 4 << 20 };
    static char memory[BYTES];
    int peer = world_rank ^ 1;
    MPI_Request request;

    if (peer >= world_size) {
        start(ring, epoch);
        wait_for(ring, epoch);
    } else if (mine) {
        MPI_Irecv(memory, BYTES, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
        start(ring, epoch);
        wait_for(ring, epoch);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(memory, BYTES, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        start(ring, epoch);
        wait_for(ring, epoch);
    }
}

/* The computing side goes on when the other says, through a file, that its
 * wait is over: no MPI call, no clock. */
static void computes(struct ring *ring, int epoch, bool mine)
{
    char name[64];

    snprintf(name, sizeof(name), "progress-%d-%d", (int)getppid(), epoch);
    start(ring, epoch);
    if (mine) {
        while (access(name, F_OK) != 0)
            usleep(1000);
        wait_for(ring, epoch);
    } else {
        wait_for(ring, epoch);
        fclose(fopen(name, "w"));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    unlink(name);
}

int main(int argc, char **argv)
{
    static void (*const programs[])(struct ring *, int, bool) = {
        barriers, large_sends, computes};
    int epoch = 0;
    MPI_Comm comm;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    comm = ring_comm(MPI_COMM_WORLD);
    for (int size = 0; size < SIZES; size++) {
        struct ring ring;

        ring_create(&ring, comm, sizes[size]);
        for (int program = 0; program < 3; program++) {
            for (int way = 0; way < 2; way++) {
                /* A single file says "done": only two ranks can compute. */
                if (programs[program] == computes && world_size != 2)
                    continue;
                programs[program](&ring, epoch++, world_rank % 2 == way);
            }
        }
        MPI_Request_free(&ring.request);
        ring_free(&ring);
    }
    MPI_Comm_free(&comm);
    if (is_accelerated()) {
        CHECK(counter("neighbor_alltoall_init.accelerated") == SIZES,
              "not accelerated");
        CHECK(counter("starts") == (uint64_t)epoch, "%" PRIu64 " starts",
              counter("starts"));
    }
    return test_fini("progress");
}
