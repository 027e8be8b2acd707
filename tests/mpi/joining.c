/* SPDX-License-Identifier: BSD-3-Clause */
/* Which lanes are in an incarnation: those that a nonblocking receive covers are
 * not, while it may be incomplete, and those that could join do in the end.
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

/* A nonblocking receive that was posted after a persistent one is not complete
 * because that one is: it gets the lane's next message. */
static void case_pending(void)
{
    int plain[2] = {-1, -1}, mine = world_rank * 1000, theirs = left * 1000;
    MPI_Request early, late;

    fill();
    MPI_Irecv(&plain[0], 1, MPI_INT, left, 0, MPI_COMM_WORLD, &early);
    MPI_Start(&receives[0]);
    MPI_Irecv(&plain[1], 1, MPI_INT, left, 0, MPI_COMM_WORLD, &late);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < 2; k++) {
        sent[0] = mine + k;
        MPI_Start(&sends[0]);
        MPI_Wait(k == 0 ? &early : &receives[0], MPI_STATUS_IGNORE);
        MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
    }
    CHECK(plain[0] == theirs && got[0] == theirs + 1, "%d and %d", plain[0],
          got[0]);
    for (int i = 0; i < 200; i++) {
        fill();
        MPI_Startall(TAGS - 1, receives + 1);
        MPI_Startall(TAGS - 1, sends + 1);
        MPI_Waitall(TAGS - 1, receives + 1, MPI_STATUSES_IGNORE);
        MPI_Waitall(TAGS - 1, sends + 1, MPI_STATUSES_IGNORE);
        for (int tag = 1; tag < TAGS; tag++)
            verify(tag);
    }
    MPI_Start(&receives[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 2; k < 4; k++) {
        sent[0] = mine + k;
        MPI_Start(&sends[0]);
        MPI_Wait(k == 2 ? &late : &receives[0], MPI_STATUS_IGNORE);
        MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
    }
    CHECK(plain[1] == theirs + 2 && got[0] == theirs + 3, "%d and %d",
          plain[1], got[0]);
}

/* Lanes that are made later are used too, though nothing stops the incarnation
 * of the others. */
static void case_later(void)
{
    int out = world_rank, in = -1, good, all = 0;
    MPI_Request request[2];
    struct hope hope = {0};

    MPI_Recv_init(&in, 1, MPI_INT, left, 20, MPI_COMM_WORLD, &request[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, 20, MPI_COMM_WORLD, &request[1]);
    while (!all) {
        uint64_t lanes = counter("lane_sends");

        in = -1;
        start_all();
        MPI_Startall(2, request);
        finish_all();
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        CHECK(in == left, "%d", in);
        good = !uses_lanes || counter("lane_sends") == lanes + TAGS + 1;
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        go_on(&hope, "one lane is outside");
    }
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
}

/* A receive with wildcards that is persistent may be posted at any time: `any`
 * was made for the tag of the lane of `request`, which receives into *in, and
 * gets its next message into *first. */
static void check_outside(MPI_Request any, const int *first,
                          MPI_Request *request, const int *in, int *out)
{
    enum { MANY = 300 };
    uint64_t before = counter("lane_receives");

    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++) {
        *out = world_rank * MANY + i;
        MPI_Startall(2, request);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        CHECK(*in == left * MANY + i, "%d", *in);
    }
    CHECK(counter("lane_receives") == before,
          "a lane that a persistent wildcard covers is in use");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&any);
    MPI_Start(&request[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < 2; k++) {
        *out = world_rank + k;
        MPI_Start(&request[1]);
        MPI_Wait(k == 0 ? &any : &request[0], MPI_STATUS_IGNORE);
        MPI_Wait(&request[1], MPI_STATUS_IGNORE);
    }
    CHECK(*first == left && *in == left + 1, "%d and %d", *first, *in);
}

/* It is made when the lane is in use. */
static void case_wildcard_later(void)
{
    enum { TAG = TAGS - 1 };
    MPI_Request any, request[2] = {receives[TAG], sends[TAG]};
    int first = -1;

    MPI_Recv_init(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD,
                  &any);
    check_outside(any, &first, request, &got[TAG], &sent[TAG]);
    MPI_Request_free(&any);
}

/* It is made before the lane. */
static void case_wildcard_before(void)
{
    enum { TAG = 50 };
    int first = -1, in = -1, out;
    MPI_Request any, request[2];

    MPI_Recv_init(&first, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD,
                  &any);
    MPI_Recv_init(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &request[1]);
    check_outside(any, &first, request, &in, &out);
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&request[i]);
    MPI_Request_free(&any);
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

/* They were there before the lane. */
static void case_posted_before(void)
{
    enum { TAG = 30, MANY = 40 };
    MPI_Request plain[MANY], request[2];
    int in[MANY], out, last = -1;

    for (int i = 0; i < MANY; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &plain[i]);
    MPI_Recv_init(&last, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &request[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i <= MANY; i++) {
        if (i == MANY - 1) /* one of them is incomplete */
            MPI_Start(&request[0]);
        go_round();
        MPI_Barrier(MPI_COMM_WORLD);
        out = world_rank * 1000 + i;
        MPI_Start(&request[1]);
        MPI_Wait(i == MANY ? &request[0] : &plain[i], MPI_STATUS_IGNORE);
        MPI_Wait(&request[1], MPI_STATUS_IGNORE);
        CHECK((i == MANY ? last : in[i]) == left * 1000 + i, "%d",
              i == MANY ? last : in[i]);
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
        int good;

        lanes = counter("lane_sends") + counter("lane_receives");
        out = world_rank * 10000 + i;
        in = -1;
        MPI_Startall(2, request);
        if (all == 1)
            MPI_Comm_free(&comm);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        CHECK(in == left * 10000 + i, "%d", in);
        good = !uses_lanes || counter("lane_sends") +
                                      counter("lane_receives") == lanes + 2;
        MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
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
        case_posting_order, case_pending, case_given_up,
        case_posted_before, case_later,   case_freed_communicator,
        case_wildcard_before, case_wildcard_later};

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
