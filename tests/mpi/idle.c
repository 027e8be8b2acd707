/* SPDX-License-Identifier: BSD-3-Clause */
/* Whoever waits for long sleeps, in whichever call: neighborhood collectives,
 * blocking, nonblocking and persistent, and persistent messages. That it takes
 * below 1 % of a core is tested without an MPI (tests/runtime/hotpath.c); one
 * that polled would take all of it. */
#include <sys/resource.h>
#include <unistd.h>

#include "tests/mpi/ring.h"

enum { NUM = 100, LATE_US = 150000, HEAD_START_US = 30000 };

static struct ring ring;
static MPI_Request messages[2];
static MPI_Comm comm;
static int out, in;

static void wait_all(int num, MPI_Request *requests)
{
    MPI_Waitall(num, requests, MPI_STATUSES_IGNORE);
}

static void wait_each(int num, MPI_Request *requests)
{
    for (int i = 0; i < num; i++)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

static void wait_any(int num, MPI_Request *requests)
{
    int index;

    for (int i = 0; i < num; i++)
        MPI_Waitany(num, requests, &index, MPI_STATUS_IGNORE);
}

static void wait_some(int num, MPI_Request *requests)
{
    int indices[2], done;

    for (int i = 0; i < num; i += done)
        MPI_Waitsome(num, requests, &done, indices, MPI_STATUSES_IGNORE);
}

static void (*const waits[])(int num, MPI_Request *requests) = {
    wait_each, wait_all, wait_any, wait_some};
enum { WAITS = sizeof(waits) / sizeof(waits[0]) };

/* ---- what is waited for ---- */

static void persistent(int wait)
{
    MPI_Start(&ring.request);
    waits[wait](1, &ring.request);
}

static void point_to_point(int wait)
{
    MPI_Startall(2, messages);
    waits[wait](2, messages);
}

static void nonblocking(int wait)
{
    MPI_Request request;

    MPI_Ineighbor_alltoall(ring.send, NUM, MPI_DOUBLE, ring.receive, NUM,
                           MPI_DOUBLE, comm, &request);
    waits[wait](1, &request);
}

static void blocking(int wait)
{
    (void)wait;
    MPI_Neighbor_alltoall(ring.send, NUM, MPI_DOUBLE, ring.receive, NUM,
                          MPI_DOUBLE, comm);
}

static double cpu_seconds(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* Rank 0 waits for rank 1. */
static void check(const char *what, void (*exchange)(int wait), int wait)
{
    const double late = (LATE_US - HEAD_START_US) * 1e-6;
    double before;

    blocking(0); /* both are here */
    usleep(world_rank == 0 ? HEAD_START_US : LATE_US);
    before = cpu_seconds();
    exchange(wait);
    CHECK(world_rank != 0 || cpu_seconds() - before < late / 5,
          "%s, wait %d: %g s of a core in %g s", what, wait,
          cpu_seconds() - before, late);
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, false);
    comm = ring_comm(MPI_COMM_WORLD);
    ring_create(&ring, comm, NUM);
    ring_fill(&ring, world_rank, 0);
    MPI_Recv_init(&in, 1, MPI_INT, 1 - world_rank, 5, comm, &messages[0]);
    MPI_Send_init(&out, 1, MPI_INT, 1 - world_rank, 5, comm, &messages[1]);
    ring_messages(comm, true);
    /* What is made at the first use waits as the native MPI does. */
    persistent(0);
    nonblocking(0);
    blocking(0);
    for (int i = 0; i < 20; i++)
        point_to_point(0);
    for (int wait = 0; wait < WAITS; wait++) {
        check("persistent", persistent, wait);
        check("point-to-point", point_to_point, wait);
        check("nonblocking", nonblocking, wait);
    }
    check("blocking", blocking, 0);
    CHECK(counter("lane_native") < counter("lane_receives"),
          "messages went natively");
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&messages[i]);
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    return test_fini("idle");
}
