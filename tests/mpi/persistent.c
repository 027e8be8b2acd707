/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent point-to-point requests around a ring: that they go through lanes,
 * and that whatever a program does beside them has the native result. Each case
 * begins with lanes that are in an incarnation, as the counters say. (Modes,
 * lengths and layouts: kinds.c.)
 *
 * persistent [--native | --off]; off: the backend is loaded, but not to use
 * lanes (RSCHED_PERSISTENT) */
#include "tests/mpi/lanes.h"
#include "tests/mpi/library.h"

/* ---- cases ---- */

/* Nothing leaves the lanes while nothing else happens. */
static void case_steady(void)
{
    uint64_t lanes = counter("lane_sends"), native = counter("lane_native");

    for (int i = 0; i < 200; i++) {
        start_all();
        finish_all();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (uses_lanes && native == counter("lane_native"))
        CHECK(counter("lane_sends") == lanes + 200 * TAGS,
              "%" PRIu64 " more sends", counter("lane_sends") - lanes);
}

static void case_singly(void)
{
    fill();
    for (int tag = 0; tag < TAGS; tag++) {
        MPI_Start(&sends[TAGS - 1 - tag]);
        MPI_Start(&receives[tag]);
    }
    for (int tag = TAGS - 1; tag >= 0; tag--) {
        int flag = 0;

        while (!flag)
            MPI_Test(&receives[tag], &flag, MPI_STATUS_IGNORE);
        verify(tag);
    }
    MPI_Waitall(TAGS, sends, MPI_STATUSES_IGNORE);
}

static void case_statuses(void)
{
    MPI_Status statuses[TAGS], status;
    int indices[TAGS], num, done = 0, index, flag, count;

    start_all();
    MPI_Waitany(TAGS, receives, &index, &status);
    CHECK(index != MPI_UNDEFINED && status.MPI_SOURCE == left &&
          status.MPI_TAG == index, "source %d tag %d of %d", status.MPI_SOURCE,
          status.MPI_TAG, index);
    verify(index);
    for (done = 1; done < TAGS; done += num) {
        MPI_Waitsome(TAGS, receives, &num, indices, statuses);
        CHECK(num > 0, "%d", num);
        for (int i = 0; i < num; i++) {
            MPI_Get_count(&statuses[i], MPI_INT, &count);
            CHECK(statuses[i].MPI_TAG == indices[i] && count == 1 &&
                  statuses[i].MPI_SOURCE == left, "tag %d, count %d",
                  statuses[i].MPI_TAG, count);
            MPI_Test_cancelled(&statuses[i], &flag);
            CHECK(!flag, "cancelled");
            verify(indices[i]);
        }
    }
    for (flag = 0; !flag;)
        MPI_Testall(TAGS, sends, &flag, statuses);
    MPI_Waitany(TAGS, receives, &index, &status);
    CHECK(index == MPI_UNDEFINED, "inactive request %d", index);
    MPI_Barrier(MPI_COMM_WORLD);
    fill();
    MPI_Start(&receives[0]);
    MPI_Request_get_status(receives[0], &flag, &status);
    MPI_Start(&sends[0]);
    do
        MPI_Request_get_status(receives[0], &flag, &status);
    while (!flag);
    CHECK(status.MPI_TAG == 0 && status.MPI_SOURCE == left, "status");
    MPI_Request_get_status(receives[0], &flag, &status);
    CHECK(flag, "not complete any more");
    MPI_Wait(&receives[0], &status);
    CHECK(status.MPI_TAG == 0 || !library_keeps_asked(), "tag %d", status.MPI_TAG);
    verify(0);
    MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
}

/* Plain messages before, between and after, on the same lane and beside. */
static void case_plain(void)
{
    int mine[3], theirs[3] = {-1, -1, -1};
    MPI_Request requests[3];

    fill();
    for (int i = 0; i < 3; i++)
        mine[i] = sent[0] * 10 + i;
    MPI_Isend(&mine[0], 1, MPI_INT, right, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Start(&sends[0]);
    MPI_Isend(&mine[1], 1, MPI_INT, right, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&mine[2], 1, MPI_INT, right, 9, MPI_COMM_WORLD, &requests[2]);
    MPI_Recv(&theirs[2], 1, MPI_INT, left, 9, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    MPI_Recv(&theirs[0], 1, MPI_INT, left, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    MPI_Start(&receives[0]);
    MPI_Wait(&receives[0], MPI_STATUS_IGNORE);
    MPI_Recv(&theirs[1], 1, MPI_INT, left, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    verify(0);
    for (int i = 0; i < 3; i++)
        CHECK(theirs[i] == value(left, 0) * 10 + i, "%d: %d", i, theirs[i]);
}

/* A plain receive takes what a persistent send sends, and the other way. */
static void case_half(void)
{
    int plain = -1;

    fill();
    MPI_Start(&sends[1]);
    MPI_Recv(&plain, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&sends[1], MPI_STATUS_IGNORE);
    CHECK(plain == value(left, 1), "%d", plain);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&receives[1]);
    MPI_Sendrecv(&sent[1], 1, MPI_INT, right, 1, &plain, 1, MPI_INT,
                 MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&receives[1], MPI_STATUS_IGNORE);
    verify(1);
}

/* MPI_ANY_TAG receives take messages in the order of the sends. */
static void case_any_tag(void)
{
    static const int order[] = {2, 9, 0, 1};
    int plain, other;
    MPI_Request request;
    MPI_Status status;

    fill();
    other = sent[0] + 9;
    MPI_Start(&sends[2]);
    MPI_Isend(&other, 1, MPI_INT, right, 9, MPI_COMM_WORLD, &request);
    MPI_Start(&sends[0]);
    MPI_Start(&sends[1]);
    for (int i = 0; i < 4; i++) {
        MPI_Recv(&plain, 1, MPI_INT, left, MPI_ANY_TAG, MPI_COMM_WORLD,
                 &status);
        CHECK(status.MPI_TAG == order[i], "%d-th has tag %d, not %d", i,
              status.MPI_TAG, order[i]);
        CHECK(plain == value(left, 0) + order[i], "value %d", plain);
    }
    MPI_Waitall(3, sends, MPI_STATUSES_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void case_probe(void)
{
    MPI_Message message;
    MPI_Status status;
    int flag = 0, plain = -1, count;

    fill();
    MPI_Start(&sends[1]);
    while (!flag)
        MPI_Iprobe(left, 1, MPI_COMM_WORLD, &flag, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(status.MPI_TAG == 1 && count == 1, "tag %d", status.MPI_TAG);
    MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == left, "source %d", status.MPI_SOURCE);
    MPI_Mprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(&plain, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    CHECK(plain == value(left, 1), "%d", plain);
    MPI_Wait(&sends[1], MPI_STATUS_IGNORE);
}

static void case_cancel(void)
{
    MPI_Status status;
    int flag;

    MPI_Start(&receives[0]);
    MPI_Cancel(&receives[0]);
    MPI_Wait(&receives[0], &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag, "not cancelled though nothing was sent");
    MPI_Barrier(MPI_COMM_WORLD);
    start_all();
    finish_all();
}

/* One side makes its request anew, as PETSc does, or frees it. */
static void case_one_side(void)
{
    bool mine = world_rank % 2 == 0;

    for (int i = 0; i < 4; i++) {
        if (mine) {
            MPI_Request_free(&receives[1]);
            make_receive(1);
        } else if (i == 2) {
            MPI_Request_free(&sends[2]);
            make_send(2);
        }
        start_all();
        finish_all();
    }
}

/* Freed while active: they are completed all the same. */
static void case_free_active(void)
{
    int plain = -1;

    fill();
    MPI_Start(&sends[2]);
    MPI_Request_free(&sends[2]);
    MPI_Recv(&plain, 1, MPI_INT, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(plain == value(left, 2), "%d", plain);
    MPI_Barrier(MPI_COMM_WORLD); /* its buffer may be used again */
    make_send(2);
}

/* The receive goes on, and takes the lane's first message. */
static void case_free_active_receive(void)
{
    volatile int *first = &got[2];
    int second = -1;

    fill();
    MPI_Start(&receives[2]);
    MPI_Request_free(&receives[2]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&sends[2]);
    MPI_Wait(&sends[2], MPI_STATUS_IGNORE);
    while (*first == -1) {
        int flag;

        MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag,
                   MPI_STATUS_IGNORE);
    }
    verify(2);
    MPI_Recv_init(&second, 1, MPI_INT, left, 2, MPI_COMM_WORLD, &receives[2]);
    MPI_Barrier(MPI_COMM_WORLD);
    sent[2]++;
    MPI_Start(&receives[2]);
    MPI_Start(&sends[2]);
    MPI_Wait(&receives[2], MPI_STATUS_IGNORE);
    MPI_Wait(&sends[2], MPI_STATUS_IGNORE);
    CHECK(second == value(left, 2) + 1, "%d", second);
    MPI_Request_free(&receives[2]);
    make_receive(2);
}

/* Until a message of both has gone through lanes. */
static void promote_two(MPI_Request *requests)
{
    struct hope hope = {0};

    for (;;) {
        uint64_t before = counter("lane_sends") + counter("lane_receives");

        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (all_have(&hope, !uses_lanes || counter("lane_sends") +
                                                   counter("lane_receives") ==
                                               before + 2))
            return;
        go_on(&hope, "never in a lane");
    }
}

/* Complete only when its receive has been started (3.4), in the lane and when
 * it has become a native one before a native call. */
static void case_synchronous(void)
{
    int in, out = world_rank, flag;
    MPI_Request requests[2];
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Recv_init(&in, 1, MPI_INT, left, 1, comm, &requests[0]);
    MPI_Ssend_init(&out, 1, MPI_INT, right, 1, comm, &requests[1]);
    for (int i = 0; i < 2; i++) {
        promote_two(requests);
        in = -1;
        MPI_Start(&requests[1]);
        for (int k = 0; k < 10; k++) {
            MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE);
            CHECK(!flag, "complete before the receive was started");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE);
        CHECK(!flag, "complete before the receive was started");
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Start(&requests[0]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == left, "%d", in);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Comm_free(&comm);
}

/* Programs lean on buffering, though MPI does not promise it. */
static void case_buffering(void)
{
    int plain = -1;

    if (world_size == 1)
        return; /* MPICH does not buffer what a process sends to itself */
    fill();
    MPI_Start(&sends[3]);
    MPI_Wait(&sends[3], MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(&plain, 1, MPI_INT, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(plain == value(left, 3), "%d", plain);
    /* Half of them are late, and wait in a native call. */
    fill();
    if (world_rank % 2 == 0) {
        MPI_Start(&receives[0]);
        MPI_Start(&sends[0]);
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Start(&receives[0]);
        MPI_Start(&sends[0]);
    }
    MPI_Wait(&receives[0], MPI_STATUS_IGNORE);
    MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
    verify(0);
}

/* Native receives beside active lanes, completed first. */
static void case_beside(void)
{
    static char large[2][1 << 20];
    MPI_Request request;

    fill();
    MPI_Irecv(large[0], sizeof(large[0]), MPI_BYTE, left, 50, MPI_COMM_WORLD,
              &request);
    MPI_Startall(TAGS, sends);
    MPI_Send(large[1], sizeof(large[1]), MPI_BYTE, right, 50, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Startall(TAGS, receives);
    finish_all();
}

/* Messages in partitions match those in partitions only (4.2). */
static void case_partitions(void)
{
#if MPI_VERSION >= 4
    int out[2] = {world_rank + 1, world_rank + 2}, in[2] = {-1, -1};
    MPI_Request requests[2];

    if (world_size == 1)
        return;
    MPI_Precv_init(in, 2, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &requests[0]);
    MPI_Psend_init(out, 2, 1, MPI_INT, right, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &requests[1]);
    MPI_Startall(2, requests);
    MPI_Pready(0, requests[1]);
    start_all();
    MPI_Pready(1, requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    finish_all();
    CHECK(in[0] == left + 1 && in[1] == left + 2, "%d and %d", in[0], in[1]);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
#endif
}

enum { NUM_OFF = 4 }; /* of the cases that run with --off */

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"steady", case_steady},         {"singly", case_singly},
    {"statuses", case_statuses},     {"plain", case_plain},
    {"half", case_half},             {"any tag", case_any_tag},
    {"probe", case_probe},           {"cancel", case_cancel},
    {"one side", case_one_side},     {"free active", case_free_active},
    {"buffering", case_buffering},   {"beside", case_beside},
    {"synchronous", case_synchronous},
    {"partitions", case_partitions},
    {"free active receive", case_free_active_receive},
};

/* Nothing of the protocol has happened. */
static void check_off(void)
{
    static const char *const zero[] = {
        "lane_sends",          "lane_receives",         "lane_native",
        "incarnations",            "stops",                 "requests",
        "send_init.accelerated", "recv_init.accelerated"};

    for (size_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
        CHECK(counter(zero[i]) == 0, "%s is %" PRIu64, zero[i],
              counter(zero[i]));
    CHECK(counter("send_init.native.off") >= TAGS &&
              counter("send_init.native.off") == counter("send_init.native") &&
              counter("recv_init.native.off") == counter("recv_init.native"),
          "%" PRIu64 " of %" PRIu64 " send_init are off",
          counter("send_init.native.off"), counter("send_init.native"));
}

int main(int argc, char **argv)
{
    bool off = has_option(argc, argv, "--off");

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    uses_lanes = is_accelerated() && !off;
    lanes_init();
    /* Native MPIs fail some of the others: Open MPI 4 does not see that a
     * message to itself is too long, nor frees an active request. */
    for (size_t i = 0; i < (off ? NUM_OFF : sizeof(cases) / sizeof(cases[0]));
         i++) {
        if (has_option(argc, argv, "--verbose") && world_rank == 0)
            fprintf(stderr, "%s\n", cases[i].name);
        promote();
        cases[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    lanes_fini();
    CHECK(counter("send_init.accelerated") == (uses_lanes ? 2 : 0) ||
              counter("send_init.accelerated") > 2,
          "%" PRIu64 " send_init", counter("send_init.accelerated"));
    CHECK(counter("requests") == 0, "requests are left");
    if (off)
        check_off();
    return test_fini("persistent");
}
