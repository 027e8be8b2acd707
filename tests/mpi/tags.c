/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that take another tag for each request: few lanes are left of those that
 * are freed, and what was posted on one that is gone still comes first.
 *
 * tags [--native] */
#include "tests/mpi/common.h"
#include "tests/mpi/hope.h"

enum { MANY = 2000, TAG = MANY, OTHER = MANY + 1, IDLE = 64 };
enum { LOST = 200, EARLY = 40 }; /* receives that are freed, messages at first */
enum { LANES = 4096, MORE = 6 }; /* of a pair, and tags beyond them */

static bool uses_lanes;

static void expect_few_lanes(void)
{
    CHECK(!uses_lanes || counter("lanes") <= IDLE + 1, "%" PRIu64 " lanes",
          counter("lanes"));
}

/* The sender's are synchronous: each that is complete shows that its lane is quiet. */
static void make(int *value, int tag, MPI_Request *request)
{
    if (world_rank == 0)
        MPI_Ssend_init(value, 1, MPI_INT, 1, tag, MPI_COMM_WORLD, request);
    else
        MPI_Recv_init(value, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, request);
}

/* Each tag has its message and is not used again. */
static void case_many(void)
{
    for (int tag = 0; tag < MANY; tag++) {
        int value = world_rank == 0 ? tag : -1;
        MPI_Request requests[2];

        make(&value, tag, &requests[0]);
        make(&value, tag, &requests[1]); /* never started */
        MPI_Start(&requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        CHECK(value == tag, "tag %d: %d", tag, value);
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        expect_few_lanes();
    }
}

/* Arguments that are wrong hold no lane either. */
static void case_errors(void)
{
    MPI_Request request;
    int value;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int tag = 0; tag < MANY; tag++) {
        CHECK(MPI_Send_init(&value, -1, MPI_INT, 1, tag, MPI_COMM_WORLD,
                            &request) != MPI_SUCCESS, "a negative count");
        CHECK(MPI_Recv_init(&value, -1, MPI_INT, 0, tag, MPI_COMM_WORLD,
                            &request) != MPI_SUCCESS, "a negative count");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    CHECK(!uses_lanes || counter("lanes") <= 2 * IDLE, "%" PRIu64 " lanes",
          counter("lanes"));
}

/* Until the lanes that were used last are gone. */
static void use_others(void)
{
    for (int tag = 0; tag < IDLE; tag++) {
        MPI_Request request;
        int value;

        make(&value, tag, &request);
        MPI_Request_free(&request);
    }
}

/* A message of the lane, or in rank 1 nothing. */
static void send(MPI_Request *request, int *value)
{
    if (world_rank != 0)
        return;
    ++*value;
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* In rank 1: receives that are posted, and no request, nor lane, knows of. */
static void lose_receives(int *values)
{
    for (int i = 0; i < LOST && world_rank == 1; i++) {
        MPI_Request request;

        values[i] = -1;
        make(&values[i], TAG, &request);
        MPI_Start(&request);
        MPI_Request_free(&request);
    }
    use_others();
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Until the other lane of the pair is in an incarnation. */
static void open_other(MPI_Request *other, MPI_Request *request, int *value)
{
    struct hope hope = {0};

    for (int i = 0;; i++) {
        const char *name = world_rank == 0 ? "lane_sends" : "lane_receives";
        uint64_t before = counter(name);

        if (i < EARLY)
            send(request, value);
        MPI_Start(other);
        MPI_Wait(other, MPI_STATUS_IGNORE);
        if (all_have(&hope, i >= EARLY &&
                                (!uses_lanes || counter(name) == before + 1)))
            return;
        go_on(&hope, "no incarnation");
    }
}

/* Receives that the program has freed while they were active get the first messages,
 * though the lane that they were posted on is gone. */
static void case_lost(void)
{
    static int lost[LOST];
    int value = -1, none = 0;
    MPI_Request request, other;

    lose_receives(lost);
    make(&value, TAG, &request);
    make(&none, OTHER, &other);
    open_other(&other, &request, &value);
    for (int i = EARLY; i <= LOST; i++)
        send(&request, &value);
    if (world_rank == 1) { /* without a call between that would end the incarnation */
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    CHECK(value == LOST, "message %d, not %d", value, LOST);
    for (int i = 0; i < LOST && world_rank == 1; i++)
        CHECK(lost[i] == i, "message %d, not %d", lost[i], i);
    MPI_Request_free(&request);
    MPI_Request_free(&other);
}

/* A message of each of the tags. */
static void go_round(MPI_Request *requests, int *values, int num, int round)
{
    for (int i = 0; i < num; i++)
        values[i] = world_rank == 0 ? round + i : -1;
    MPI_Startall(num, requests);
    MPI_Waitall(num, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < num; i++)
        CHECK(values[i] == round + i, "tag %d: %d", i, values[i]);
}

/* Two processes have lanes for so many tags, and the report says so of others. */
static void case_most(void)
{
    const char *carried = world_rank == 0 ? "lane_sends" : "lane_receives";
    const char *native = world_rank == 0 ? "send_init.native.lanes"
                                         : "recv_init.native.lanes";
    static int values[LANES + MORE];
    MPI_Request requests[LANES + MORE];
    struct hope hope = {0};
    uint64_t before;
    int round = 0;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < LANES + MORE; i++) {
        if (world_rank == 0)
            MPI_Send_init(&values[i], 1, MPI_INT, 1, i, comm, &requests[i]);
        else
            MPI_Recv_init(&values[i], 1, MPI_INT, 0, i, comm, &requests[i]);
    }
    do {
        before = counter(carried);
        go_round(requests, values, LANES, round++);
        go_on(&hope, "no incarnation of all lanes");
    } while (!all_have(&hope, !uses_lanes ||
                                  counter(carried) == before + LANES));
    for (int i = 0; i < 100; i++)
        go_round(requests + LANES, values + LANES, MORE, round++);
    CHECK(counter(native) == MORE || !uses_lanes, "%" PRIu64 " of %d",
          counter(native), MORE);
    for (int i = 0; i < LANES + MORE; i++)
        MPI_Request_free(&requests[i]);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    bool native = has_option(argc, argv, "--native");

    test_init(&argc, &argv, native);
    uses_lanes = !native;
    case_many();
    case_errors();
    case_lost();
    case_most();
    return test_fini("tags");
}
