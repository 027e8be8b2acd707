/* SPDX-License-Identifier: BSD-3-Clause */
/* What check-cost counts the instructions of: N exchanges of a process with
 * itself, with --rebind each after its request has got its buffers anew beside so
 * many other requests; or with --beside N of its plain messages beside so many
 * persistent requests of other tags; or with --anew N times so many sends and receives that
 * are made and freed; or with --plain N times so many nonblocking ones; or with --held N times so
 * many persistent ones with a collective call between receives and sends, by which they are
 * native; or with --mixed N times so many persistent sends, of which an eighth meets nonblocking
 * receives, so that these are native beside the others. They are counted after WARM of them,
 * --held after more.
 * cost N [--all | --rebind REQUESTS | --beside REQUESTS | --anew REQUESTS | --plain REQUESTS |
 *         --held REQUESTS | --mixed REQUESTS] */
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS (void)0
#define CALLGRIND_DUMP_STATS (void)0
#endif

#include "tests/mpi/ring.h"

enum { WARM = 1000 };

#pragma weak rsched_mpi_rebind

/* @param done of WARM + `exchanges` */
static void mark(long done, long exchanges)
{
    if (done == WARM)
        CALLGRIND_ZERO_STATS;
    if (done == WARM + exchanges)
        CALLGRIND_DUMP_STATS;
}

/* @return the sends and the receives, of tags from 1 on */
static MPI_Request *make_requests(int num)
{
    static int value;
    size_t n = (size_t)num;
    MPI_Request *requests = allocate(2 * n * sizeof(*requests) + n * sizeof(int));
    int *got = (int *)(void *)(requests + 2 * n);

    for (int i = 0; i < num; i++) {
        MPI_Send_init(&value, 1, MPI_INT, 0, 1 + i, MPI_COMM_WORLD,
                      &requests[i]);
        MPI_Recv_init(&got[i], 1, MPI_INT, 0, 1 + i, MPI_COMM_WORLD,
                      &requests[num + i]);
    }
    return requests;
}

static void free_requests(MPI_Request *requests, int num)
{
    for (int i = 0; i < 2 * num; i++)
        MPI_Request_free(&requests[i]);
    free(requests);
}

static int send_beside(long messages, int num)
{
    MPI_Request *requests = make_requests(num);

    for (long i = 0; i < WARM + messages; i++) {
        long sent = i, got = -1;

        MPI_Sendrecv(&sent, 1, MPI_LONG, 0, 0, &got, 1, MPI_LONG, 0, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == sent, "%ld, not %ld", got, sent);
        mark(i + 1, messages);
    }
    free_requests(requests, num);
    return test_fini("cost");
}

static int make_anew(long times, int num)
{
    for (long i = 0; i < WARM + times; i++) {
        free_requests(make_requests(num), num);
        mark(i + 1, times);
    }
    /* Those that were never started are counted so when they are freed. */
    CHECK(counter("native") == 2 * (uint64_t)num * (uint64_t)(WARM + times),
          "%" PRIu64 " requests", counter("native"));
    return test_fini("cost");
}

static int go_plain(long times, int num)
{
    size_t n = (size_t)num;
    MPI_Request *requests = allocate(2 * n * sizeof(*requests) + n * sizeof(int));
    int value = 0, *got = (int *)(void *)(requests + 2 * n);

    for (long i = 0; i < WARM + times; i++) {
        for (int m = 0; m < num; m++)
            MPI_Irecv(&got[m], 1, MPI_INT, 0, m, MPI_COMM_SELF, &requests[m]);
        for (int m = 0; m < num; m++)
            MPI_Isend(&value, 1, MPI_INT, 0, m, MPI_COMM_SELF, &requests[num + m]);
        MPI_Waitall(2 * num, requests, MPI_STATUSES_IGNORE);
        mark(i + 1, times);
    }
    free(requests);
    return test_fini("cost");
}

/* It is late that attempts to open the pair have become rare. */
static int hold(long times, int num)
{
    enum { MORE = 20000 };
    MPI_Request *requests = make_requests(num);
    uint64_t before = 0;

    for (long i = 0; i < MORE + WARM + times; i++) {
        if (i == MORE + WARM)
            before = counter("lane_native");
        MPI_Startall(num, requests + num);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Startall(num, requests);
        MPI_Waitall(2 * num, requests, MPI_STATUSES_IGNORE);
        mark(i + 1 - MORE, times);
    }
    CHECK(10 * (counter("lane_native") - before) >= 9 * 2 * (uint64_t)num * (uint64_t)times,
          "not native");
    free_requests(requests, num);
    return test_fini("cost");
}

static int mix(long times, int num)
{
    size_t n = (size_t)num;
    MPI_Request *sends = allocate(2 * n * sizeof(*sends)), *receives = sends + num;
    int *values = allocate(2 * n * sizeof(int)), plain = num / 8;
    uint64_t before = 0;

    for (int m = 0; m < num; m++) {
        MPI_Send_init(&values[m], 1, MPI_INT, 0, m, MPI_COMM_WORLD, &sends[m]);
        if (m >= plain)
            MPI_Recv_init(&values[num + m], 1, MPI_INT, 0, m, MPI_COMM_WORLD, &receives[m]);
    }
    for (long i = 0; i < WARM + times; i++) {
        if (i == WARM)
            before = counter("lane_sends");
        for (int m = 0; m < plain; m++)
            MPI_Irecv(&values[num + m], 1, MPI_INT, 0, m, MPI_COMM_WORLD, &receives[m]);
        MPI_Startall(num - plain, receives + plain);
        MPI_Startall(num, sends);
        MPI_Waitall(2 * num, sends, MPI_STATUSES_IGNORE);
        mark(i + 1, times);
    }
    CHECK(counter("lane_sends") - before == (uint64_t)(num - plain) * (uint64_t)times,
          "not all through lanes");
    for (int m = 0; m < 2 * num; m++) {
        if (m < num || m >= num + plain)
            MPI_Request_free(&sends[m]);
    }
    free(values);
    free(sends);
    return test_fini("cost");
}

int main(int argc, char **argv)
{
    long exchanges = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    int beside = (int)number_option(argc, argv, "--beside", 0);
    bool all = has_option(argc, argv, "--all");
    int anew = (int)number_option(argc, argv, "--anew", 0);
    int plain = (int)number_option(argc, argv, "--plain", 0);
    int held = (int)number_option(argc, argv, "--held", 0);
    int mixed = (int)number_option(argc, argv, "--mixed", 0);
    int rebind = (int)number_option(argc, argv, "--rebind", 0);
    MPI_Request *others;
    struct ring ring;
    MPI_Comm comm;

    test_init(&argc, &argv, false);
    if (beside > 0)
        return send_beside(exchanges, beside);
    if (anew > 0)
        return make_anew(exchanges, anew);
    if (plain > 0)
        return go_plain(exchanges, plain);
    if (held > 0)
        return hold(exchanges, held);
    if (mixed > 0)
        return mix(exchanges, mixed);
    comm = ring_comm(MPI_COMM_WORLD);
    ring_create(&ring, comm, 1);
    others = make_requests(rebind);
    for (long i = 0; i < WARM + exchanges; i++) {
        if (rebind > 0)
            CHECK(rsched_mpi_rebind(ring.request, ring.send, ring.receive) == 0, "rebind");
        if (all) {
            MPI_Startall(1, &ring.request);
            MPI_Waitall(1, &ring.request, MPI_STATUSES_IGNORE);
        } else {
            MPI_Start(&ring.request);
            MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        }
        mark(i + 1, exchanges);
    }
    CHECK(counter("starts") == (uint64_t)(WARM + exchanges), "not accelerated");
    free_requests(others, rebind);
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    return test_fini("cost");
}
