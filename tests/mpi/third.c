/* SPDX-License-Identifier: BSD-3-Clause */
/* Who sleeps in a wait for one process is woken by another one: by a send that is not
 * complete before it is taken, or by a plain receive of what he has sent himself. Here
 * the first one sends only then. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/mpi/hope.h"

enum { BYTES = 65536, LATE_US = 30000, TOKEN = 9 };
enum { STEPS = 12, STOPS = 4 /* each of them takes longer than the one before (T4) */ };

static char data[2][BYTES];
static MPI_Request requests[2];
static int number; /* of requests */
static bool stops; /* rank 2 does not send, it receives */

static char value(int sender, int step, int i)
{
    return (char)(sender * 29 + step * 13 + i + (i >> 8));
}

static int peer(int i)
{
    return world_rank == 1 ? 2 * i : 1;
}

static bool receives(int i)
{
    return world_rank == 1 ? i == 0 || !stops : world_rank == 2 && stops;
}

static void create(void)
{
    number = world_rank == 1 ? 2 : 1;
    for (int i = 0; i < number; i++) {
        if (receives(i))
            MPI_Recv_init(data[i], BYTES, MPI_BYTE, peer(i), 0, MPI_COMM_WORLD,
                          &requests[i]);
        else
            MPI_Send_init(data[i], BYTES, MPI_BYTE, peer(i), 0, MPI_COMM_WORLD,
                          &requests[i]);
    }
}

static void fill(int step)
{
    for (int i = 0; i < number; i++)
        for (int k = 0; k < BYTES; k++)
            data[i][k] = receives(i) ? 0x55 : value(world_rank, step, k);
}

static void check(int step)
{
    for (int i = 0; i < number; i++)
        for (int k = 0; k < BYTES && receives(i); k++)
            CHECK(data[i][k] == value(peer(i), step, k), "step %d, byte %d of %d", step,
                  k, peer(i));
}

static void go(void)
{
    MPI_Startall(number, requests);
    MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
}

/* Rank 0 comes when rank 2's call is complete. */
static void go_late(void)
{
    int token = 0;

    if (world_rank == 0)
        PMPI_Recv(&token, 1, MPI_INT, 2, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (world_rank != 1)
        usleep(LATE_US);
    if (world_rank == 2 && stops)
        MPI_Recv(data[0], BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        go();
    if (world_rank == 2)
        PMPI_Send(&token, 1, MPI_INT, 0, TOKEN, MPI_COMM_WORLD);
}

static uint64_t in_lanes(void)
{
    return counter("lane_sends") + counter("lane_receives");
}

/* Until all of a step go through lanes. */
static void have_lanes(int *step)
{
    struct hope hope = {0};
    uint64_t before;

    do {
        before = in_lanes();
        fill(++*step);
        go();
        check(*step);
        go_on(&hope, "before");
    } while (!all_have(&hope, in_lanes() - before == (uint64_t)number));
}

static void run(int steps)
{
    uint64_t wakes = 0;
    int step = 0;

    create();
    for (int i = 0; i < steps; i++) {
        have_lanes(&step);
        fill(++step);
        PMPI_Barrier(MPI_COMM_WORLD);
        wakes -= counter("lane_wakes");
        go_late();
        wakes += counter("lane_wakes");
        check(step);
    }
    if (world_rank == 1) {
        printf("woken %" PRIu64 " times in %d steps\n", wakes, steps);
        CHECK(wakes > (uint64_t)steps, "woken %" PRIu64 " times", wakes);
    }
    for (int i = 0; i < number; i++)
        MPI_Request_free(&requests[i]);
}

/* Who cannot sleep for several bells hears only the one of what he waits for. */
static bool hears_several(void)
{
#ifdef SYS_futex_waitv
    return syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) == -1 && errno == EINVAL;
#else
    return false;
#endif
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (!hears_several()) {
        if (world_rank == 0)
            puts("SKIP: the kernel has no futex_waitv() here");
        MPI_Finalize();
        return SKIP;
    }
    run(STEPS);
    stops = true;
    run(STOPS);
    MPI_Finalize();
    return PASS;
}
