/* SPDX-License-Identifier: BSD-3-Clause */
/* Several requests of one completion call fail, persistent ones in lanes and
 * plain ones beside them: each status says what has become of its request, and
 * the rest is completed by the next call (MPI_ERR_IN_STATUS, MPI_ERR_PENDING). A
 * call that fails calls one error handler, once.
 *
 * errors [--native]; Open MPI 4.1 itself fails: its MPI_Waitany finds nothing
 * active when a persistent request has failed before */
#include <sched.h>

#include "tests/mpi/handled.h"
#include "tests/mpi/hope.h"

enum { INTS = 4, LANES = 3, PLAIN = 2, NUM = 2 * (LANES + PLAIN) };
enum { ALL, TEST_ALL, SOME, TEST_SOME, ANY, TEST_ANY, NUM_WAYS };

static MPI_Comm comm;
static MPI_Request requests[NUM];
static bool done[NUM];
static int class_of[NUM];
static int num_done;

static void finished(int i, int error)
{
    CHECK(i >= 0 && i < NUM && !done[i], "request %d again", i);
    done[i] = true;
    class_of[i] = error_class(error);
    num_done++;
}

/* A call that looks at all has returned `error`. */
static void finished_all(int error, const MPI_Status *statuses)
{
    bool failed = false;

    CHECK(error == MPI_SUCCESS || error_class(error) == MPI_ERR_IN_STATUS,
          "error class %d", error_class(error));
    for (int i = 0; i < NUM; i++) {
        int one = error == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;

        if (done[i] || error_class(one) == MPI_ERR_PENDING)
            continue;
        failed |= one != MPI_SUCCESS;
        finished(i, one);
    }
    CHECK(failed || error == MPI_SUCCESS, "no status has an error");
}

static void finished_some(int error, int num, const int *indices,
                          const MPI_Status *statuses)
{
    bool failed = false;

    CHECK(error == MPI_SUCCESS || error_class(error) == MPI_ERR_IN_STATUS,
          "error class %d", error_class(error));
    CHECK(num >= 0, "nothing is active though %d are not complete",
          NUM - num_done);
    for (int i = 0; i < num; i++) {
        int one = error == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;

        failed |= one != MPI_SUCCESS;
        finished(indices[i], one);
    }
    CHECK(failed || error == MPI_SUCCESS, "no status has an error");
}

static int finish_once(int way)
{
    MPI_Status statuses[NUM];
    int indices[NUM], flag = 0, num = 0, index = MPI_UNDEFINED, error;

    switch (way) {
    case ALL:
        error = MPI_Waitall(NUM, requests, statuses);
        finished_all(error, statuses);
        break;
    case TEST_ALL:
        error = MPI_Testall(NUM, requests, &flag, statuses);
        if (flag || error != MPI_SUCCESS)
            finished_all(error, statuses);
        break;
    case SOME:
        error = MPI_Waitsome(NUM, requests, &num, indices, statuses);
        finished_some(error, num, indices, statuses);
        break;
    case TEST_SOME:
        error = MPI_Testsome(NUM, requests, &num, indices, statuses);
        finished_some(error, num, indices, statuses);
        break;
    case ANY:
        error = MPI_Waitany(NUM, requests, &index, statuses);
        finished(index, error);
        break;
    default:
        error = MPI_Testany(NUM, requests, &index, &flag, statuses);
        if (index != MPI_UNDEFINED)
            finished(index, error);
        break;
    }
    sched_yield();
    return error;
}

static void finish(int way)
{
    int before = handled, error = finish_once(way);

    CHECK(handled == before + (error != MPI_SUCCESS),
          "way %d: error class %d, handled %d times", way, error_class(error),
          handled - before);
}

/* Which one fails. */
static bool is_too_short(int i)
{
    return i == 1 || i == 2 || i == LANES;
}

static void go_round(int way, int round)
{
    static int out[LANES + PLAIN][INTS], in[LANES + PLAIN][INTS];
    int left = (world_rank + world_size - 1) % world_size;
    int right = (world_rank + 1) % world_size;

    memset(done, 0, sizeof(done));
    num_done = 0;
    for (int i = 0; i < LANES + PLAIN; i++) {
        for (int k = 0; k < INTS; k++) {
            out[i][k] = world_rank * 10000 + round * 100 + i * 10 + k;
            in[i][k] = -1;
        }
    }
    /* Anew each time: Open MPI 4.1 itself starts no request again that failed. */
    for (int i = 0; i < LANES; i++) {
        int ints = is_too_short(i) ? INTS - i : INTS;

        MPI_Recv_init(in[i], ints, MPI_INT, left, i, comm, &requests[i]);
        MPI_Send_init(out[i], INTS, MPI_INT, right, i, comm,
                      &requests[LANES + PLAIN + i]);
    }
    for (int i = LANES; i < LANES + PLAIN; i++) {
        int ints = is_too_short(i) ? 1 : INTS;

        MPI_Irecv(in[i], ints, MPI_INT, left, i, comm, &requests[i]);
    }
    MPI_Startall(LANES, requests);
    MPI_Startall(LANES, requests + LANES + PLAIN);
    for (int i = LANES; i < LANES + PLAIN; i++)
        MPI_Isend(out[i], INTS, MPI_INT, right, i, comm,
                  &requests[LANES + PLAIN + i]);
    while (num_done < NUM)
        finish(way);
    for (int i = 0; i < LANES; i++) {
        MPI_Request_free(&requests[i]);
        MPI_Request_free(&requests[LANES + PLAIN + i]);
    }
    for (int i = 0; i < NUM; i++)
        CHECK(class_of[i] == (i < LANES + PLAIN && is_too_short(i)
                                  ? MPI_ERR_TRUNCATE
                                  : MPI_SUCCESS),
              "way %d, request %d: error class %d", way, i, class_of[i]);
    for (int i = 0; i < LANES + PLAIN; i++) {
        for (int k = 0; k < INTS && !is_too_short(i); k++)
            CHECK(in[i][k] == left * 10000 + round * 100 + i * 10 + k,
                  "request %d: %d", i, in[i][k]);
    }
    CHECK(in[1][INTS - 1] == -1 && in[2][INTS - 2] == -1 &&
              in[LANES][1] == -1, "written behind the end");
}

int main(int argc, char **argv)
{
    MPI_Errhandler errhandler;
    int round = 0;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(comm, errhandler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler); /* MPICH's choice for
                                                    calls with many requests */
    MPI_Errhandler_free(&errhandler);
    for (int way = 0; way < NUM_WAYS; way++) {
        struct hope hope = {0};

        for (;;) {
            uint64_t before = counter("lane_receives");

            go_round(way, round++);
            if (all_have(&hope, !is_accelerated() ||
                                    counter("lane_receives") == before + LANES))
                break;
            go_on(&hope, "not through lanes");
        }
    }
    MPI_Comm_free(&comm);
    return test_fini("errors");
}
