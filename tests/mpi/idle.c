/* SPDX-License-Identifier: BSD-3-Clause */
/* Whoever waits for long sleeps, in whichever call: neighborhood collectives,
 * blocking, nonblocking and persistent, and persistent messages; one that polled
 * would take all of a core. The thread's timer slack is afterwards what it was
 * before. With --one-futex as on a kernel where nobody can sleep for several words
 * at once. With --seconds in waits of two seconds, which take below 1 % of a core, as
 * they do without an MPI (tests/runtime/hotpath.c). */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/base/sleeps.h"
#include "tests/mpi/hope.h"
#include "tests/mpi/ring.h"

enum { NUM = 100, SLACK_NS = 70000, WAKES = 3, TRIES = 30, LATE_US = 150000, HEAD_START_US = 30000 };
/* Threads that make progress have gone to sleep by the head start. Other work only
 * ever adds to what a wait takes. */
enum { LONG_LATE_US = 2000000, LONG_HEAD_START_US = 100000, LONG_TRIES = 10 };

static struct ring ring;
static MPI_Request messages[2], one_ways[2];
static MPI_Comm comm;
static int out, in, halves[2];

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

static void refuse_several(void)
{
#ifdef SYS_futex_waitv
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(steps) / sizeof(steps[0]), steps};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
              prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
          "no filter: %s", strerror(errno));
#endif
}

/* Until no message goes natively. */
static void promote(void (*exchange)(int wait))
{
    for (struct hope hope = {0};;) {
        uint64_t native = counter("lane_native");

        exchange(0);
        if (all_have(&hope, counter("lane_native") == native))
            return;
        go_on(&hope, "no incarnation");
    }
}

/* Rank 0 waits for rank 1. */
static double exchange_later(void (*exchange)(int wait), int wait, unsigned head_start_us,
                             unsigned late_us)
{
    double before;

    blocking(0); /* both are here */
    usleep(world_rank == 0 ? head_start_us : late_us);
    before = cpu_seconds();
    exchange(wait);
    return cpu_seconds() - before;
}

static double exchange_late(void (*exchange)(int wait), int wait)
{
    return exchange_later(exchange, wait, HEAD_START_US, LATE_US);
}

static void check(const char *what, void (*exchange)(int wait), int wait)
{
    const double late = (LATE_US - HEAD_START_US) * 1e-6;
    double used = exchange_late(exchange, wait);

    CHECK(world_rank != 0 || used < late / 5,
          "%s, wait %d: %g s of a core in %g s", what, wait, used, late);
}

/* Messages, which go natively now and then, and then waits are the MPI library's. */
static void check_messages(const char *what, void (*exchange)(int wait),
                           int wait)
{
    const double late = (LATE_US - HEAD_START_US) * 1e-6;
    bool idle = false, again = true;

    for (int i = 0; i < TRIES && again; i++) {
        uint64_t native = counter("lane_native");
        double used = exchange_late(exchange, wait);

        idle = world_rank != 0 || used < late / 5;
        CHECK(idle || counter("lane_native") != native,
              "%s, wait %d: %g s of a core in %g s", what, wait, used, late);
        again = !idle;
        PMPI_Bcast(&again, 1, MPI_C_BOOL, 0, comm);
        promote(exchange);
    }
    CHECK(idle, "%s, wait %d: always natively", what, wait);
}

/* In two communicators: two pairs, each with a bell. */
static void one_way_create(void)
{
    MPI_Comm comms[] = {comm, MPI_COMM_WORLD};

    for (int i = 0; i < 2; i++) {
        if (world_rank == 0)
            MPI_Recv_init(&halves[i], 1, MPI_INT, 1, 6, comms[i], &one_ways[i]);
        else
            MPI_Send_init(&halves[i], 1, MPI_INT, 0, 6, comms[i], &one_ways[i]);
    }
}

static void one_way(int wait)
{
    MPI_Startall(2, one_ways);
    waits[wait](2, one_ways);
}

/* A sender comes late to receivers: they are woken, not only when a time is
 * over. */
static void check_wakes(int wait)
{
    uint64_t before = counter("lane_wakes");
    bool again = true;

    for (int i = 0; i < TRIES && again; i++) {
        exchange_late(one_way, wait);
        again = counter("lane_wakes") - before < WAKES;
        PMPI_Bcast(&again, 1, MPI_C_BOOL, 0, comm);
        promote(one_way);
    }
    CHECK(!again, "wait %d: woken %" PRIu64 " times", wait,
          counter("lane_wakes") - before);
}

/* ---- long waits ---- */

/* Whether rank 0 has to try again. What sleeping takes changes with what else the machine does,
 * so it is looked at before and after. Collectives are never native here; messages are now
 * and then. */
static bool took_too_much(const char *what, void (*exchange)(int wait), int *tries,
                          int *natives)
{
    const double late = (LONG_LATE_US - LONG_HEAD_START_US) * 1e-6;
    double sleeps = bare_sleeps(), after, limit, used;
    uint64_t native = counter("lane_native");

    used = exchange_later(exchange, 0, LONG_HEAD_START_US, LONG_LATE_US);
    if (world_rank != 0)
        return false;
    if (counter("lane_native") != native) {
        CHECK(++*natives < TRIES, "%s: always natively", what);
        return true;
    }
    after = bare_sleeps();
    limit = late * (0.01 + (after > sleeps ? after : sleeps));
    printf("%s: %.2f %% of a core, limit %.2f %%\n", what, used / late * 100,
           limit / late * 100);
    CHECK(used < limit || ++*tries < LONG_TRIES, "%s: %g s of a core in %g s", what,
          used, late);
    return used >= limit;
}

static void check_long(const char *what, void (*exchange)(int wait))
{
    int tries = 0, natives = 0;
    bool again;

    do {
        again = took_too_much(what, exchange, &tries, &natives);
        PMPI_Bcast(&again, 1, MPI_C_BOOL, 0, comm);
        promote(exchange);
    } while (again);
}

static uint64_t accelerated(void)
{
    return counter("starts") + counter("neighbor_alltoall.accelerated");
}

static void check_long_waits(void)
{
    uint64_t receives = counter("lane_receives"), before = accelerated();

    check_long("persistent collective", persistent);
    check_long("blocking collective", blocking);
    check_long("persistent receives", one_way);
    CHECK(accelerated() >= before + 2, "nothing is carried");
    CHECK(world_rank != 0 || counter("lane_receives") > receives,
          "no message through a lane");
}

int main(int argc, char **argv)
{
    bool one_futex = argc > 1 && strcmp(argv[1], "--one-futex") == 0;

    test_init(&argc, &argv, false);
    if (one_futex)
        refuse_several();
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
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
    one_way_create();
    promote(point_to_point);
    promote(one_way);
    if (has_option(argc, argv, "--seconds"))
        check_long_waits();
    for (int wait = 0; wait < WAITS && !has_option(argc, argv, "--seconds"); wait++) {
        check("persistent", persistent, wait);
        check_messages("point-to-point", point_to_point, wait);
        check_messages("one way", one_way, wait);
        if (!one_futex)
            check_wakes(wait);
        check("nonblocking", nonblocking, wait);
    }
    check("blocking", blocking, 0);
    CHECK(prctl(PR_GET_TIMERSLACK) == SLACK_NS, "a slack of %d ns",
          prctl(PR_GET_TIMERSLACK));
    for (int i = 0; i < 2; i++) {
        MPI_Request_free(&messages[i]);
        MPI_Request_free(&one_ways[i]);
    }
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    return test_fini("idle");
}
