/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes that could join an incarnation do in the end, whatever others do. (Those
 * that may not: beside.c.)
 *
 * joining [--native] */
#include "tests/mpi/lanes.h"

/* One message of each lane. */
static void go_round(void)
{
    start_all();
    finish_all();
}

/* What was posted first gets the first message. */
static void case_posting_order(void)
{
    int first[2] = {-1, -1};
    MPI_Request early;

    if (world_size == 1)
        return; /* the order of sends to oneself is tested by case_plain */
    fill(); /* before anything can arrive */
    MPI_Start(&receives[3]);
    MPI_Irecv(&first[1], 1, MPI_INT, left, 3, MPI_COMM_WORLD, &early);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&sends[3]);
    MPI_Wait(&sends[3], MPI_STATUS_IGNORE);
    MPI_Wait(&receives[3], MPI_STATUS_IGNORE);
    verify(3);
    fill();
    MPI_Start(&sends[3]);
    MPI_Wait(&sends[3], MPI_STATUS_IGNORE);
    MPI_Wait(&early, MPI_STATUS_IGNORE);
    CHECK(first[1] == value(left, 3), "%d", first[1]);
}

/* Lanes that are made later are used too, though nothing stops the incarnation
 * of the others. */
static void case_later(void)
{
    int out = world_rank, in = -1;
    MPI_Request request[2];
    struct hope hope = {0};

    MPI_Recv_init(&in, 1, MPI_INT, left, 20, MPI_COMM_WORLD, &request[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, 20, MPI_COMM_WORLD, &request[1]);
    for (;;) {
        uint64_t lanes = counter("lane_sends");

        in = -1;
        start_all();
        MPI_Startall(2, request);
        finish_all();
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        CHECK(in == left, "%d", in);
        if (all_have(&hope, !uses_lanes ||
                                counter("lane_sends") == lanes + TAGS + 1))
            break;
        go_on(&hope, "one lane is outside");
    }
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
}

/* A lane that was in use last when the incarnation was stopped, and is not any
 * more, keeps no others from joining. */
static void case_given_up(void)
{
    int out = world_rank, in = -1, flag;
    MPI_Request request[2];

    MPI_Recv_init(&in, 1, MPI_INT, left, 40, MPI_COMM_WORLD, &request[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, 40, MPI_COMM_WORLD, &request[1]);
    for (int i = 0; i < 20; i++) {
        if (i > 10) /* stops it */
            MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag,
                       MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        in = -1;
        MPI_Startall(2, request);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        CHECK(in == left, "%d", in);
        if (i <= 10)
            go_round();
    }
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
}

/* Its requests are under way when the communicator is freed, and go on. */
static void case_freed_communicator(void)
{
    uint64_t lanes;
    int out, in;
    MPI_Request request[2];
    struct hope hope = {0};
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Recv_init(&in, 1, MPI_INT, left, 0, comm, &request[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, 0, comm, &request[1]);
    for (int i = 0, all = 0; all < 2; i++) {
        bool good;

        lanes = counter("lane_sends") + counter("lane_receives");
        out = world_rank * 10000 + i;
        in = -1;
        MPI_Startall(2, request);
        if (all == 1)
            MPI_Comm_free(&comm);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        CHECK(in == left * 10000 + i, "%d", in);
        good = all_have(&hope, !uses_lanes || counter("lane_sends") +
                                                      counter("lane_receives") ==
                                                  lanes + 2);
        if (comm == MPI_COMM_NULL || (all == 0 && good))
            all++;
        go_on(&hope, "no incarnation");
    }
    for (int i = 0; i < 50; i++) {
        out = world_rank + i;
        MPI_Startall(2, request);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        CHECK(in == left + i, "%d", in);
    }
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
}

/* For MPI_Finalize: inactive requests of an open incarnation, on a communicator
 * that nobody frees. */
static void leave(void)
{
    static int out[2], in[2];
    MPI_Request request[4];
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 2; i++) {
        MPI_Recv_init(&in[i], 1, MPI_INT, left, i, comm, &request[i]);
        MPI_Send_init(&out[i], 1, MPI_INT, right, i, comm, &request[2 + i]);
    }
    for (int i = 0; i < 200; i++) {
        MPI_Startall(4, request);
        MPI_Waitall(4, request, MPI_STATUSES_IGNORE);
    }
}

int main(int argc, char **argv)
{
    static void (*const cases[])(void) = {
        case_posting_order, case_given_up, case_later,
        case_freed_communicator};

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    uses_lanes = is_accelerated();
    lanes_init();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        promote(); /* the one before bars no lane for good */
        cases[i]();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    lanes_fini();
    CHECK(counter("requests") == 0, "requests are left");
    leave();
    return test_fini("joining");
}
