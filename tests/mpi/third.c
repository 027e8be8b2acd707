/* SPDX-License-Identifier: BSD-3-Clause */
/* Who sleeps in a wait for one process is woken by another one, whose send is not
 * complete before it is taken: here the first one sends only then. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/mpi/hope.h"

enum { BYTES = 65536, STEPS = 12, LATE_US = 30000, TOKEN = 9 };

static char data[2][BYTES];
static MPI_Request requests[2];
static int number; /* of requests */

static char value(int sender, int step, int i)
{
    return (char)(sender * 29 + step * 13 + i + (i >> 8));
}

static void create(void)
{
    number = world_rank == 1 ? 2 : 1;
    for (int i = 0; i < number; i++) {
        if (world_rank == 1)
            MPI_Recv_init(data[i], BYTES, MPI_BYTE, 2 * i, 0, MPI_COMM_WORLD,
                          &requests[i]);
        else
            MPI_Send_init(data[i], BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD,
                          &requests[i]);
    }
}

static void fill(int step)
{
    for (int i = 0; i < BYTES; i++)
        data[0][i] = world_rank == 1 ? 0x55 : value(world_rank, step, i);
    memset(data[1], 0x55, BYTES);
}

static void check(int step)
{
    for (int from = 0; from < number && world_rank == 1; from++)
        for (int i = 0; i < BYTES; i++)
            CHECK(data[from][i] == value(2 * from, step, i), "step %d, byte %d of %d",
                  step, i, 2 * from);
}

static void go(void)
{
    MPI_Startall(number, requests);
    MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
}

/* Rank 0 comes when rank 2's send is complete. */
static void go_late(void)
{
    int token = 0;

    if (world_rank == 0)
        PMPI_Recv(&token, 1, MPI_INT, 2, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (world_rank != 1)
        usleep(LATE_US);
    go();
    if (world_rank == 2)
        PMPI_Send(&token, 1, MPI_INT, 0, TOKEN, MPI_COMM_WORLD);
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
    const char *name;
    struct hope hope = {0};
    uint64_t before;
    int step = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (!hears_several()) {
        if (world_rank == 0)
            puts("SKIP: the kernel has no futex_waitv() here");
        MPI_Finalize();
        return SKIP;
    }
    name = world_rank == 1 ? "lane_receives" : "lane_sends";
    create();
    do {
        before = counter(name);
        fill(++step);
        go();
        check(step);
        go_on(&hope, "before");
    } while (!all_have(&hope, counter(name) - before == (uint64_t)number));
    before = counter("lane_wakes");
    for (int end = step + STEPS; step < end;) {
        fill(++step);
        PMPI_Barrier(MPI_COMM_WORLD);
        go_late();
        check(step);
    }
    before = counter("lane_wakes") - before;
    if (world_rank == 1) {
        printf("woken %" PRIu64 " times in %d steps\n", before, STEPS);
        CHECK(before > STEPS + STEPS / 2, "woken %" PRIu64 " times", before);
    }
    for (int i = 0; i < number; i++)
        MPI_Request_free(&requests[i]);
    MPI_Finalize();
    return PASS;
}
