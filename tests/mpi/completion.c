/* SPDX-License-Identifier: BSD-3-Clause */
/* What the completion calls promise, for arrays of active, inactive, native
 * and null requests. Run on two ranks or more. */
#include <sched.h>

#include "tests/mpi/ring.h"

static MPI_Comm comm;
static uint64_t inits, starts;

static void expect_empty(const MPI_Status *status)
{
    int count = -1, cancelled = -1;

    CHECK(status->MPI_SOURCE == MPI_ANY_SOURCE, "source %d",
          status->MPI_SOURCE);
    CHECK(status->MPI_TAG == MPI_ANY_TAG, "tag %d", status->MPI_TAG);
    MPI_Get_count(status, MPI_BYTE, &count);
    MPI_Test_cancelled(status, &cancelled);
    CHECK(count == 0 && !cancelled, "count %d, cancelled %d", count,
          cancelled);
}

static void poison(MPI_Status *status)
{
    memset(status, 0x5a, sizeof(*status));
}

static void begin(struct ring *ring, int epoch)
{
    ring_fill(ring, world_rank, epoch);
    MPI_Start(&ring->request);
    starts++;
}

static void inactive_requests(struct ring *rings)
{
    MPI_Request requests[4] = {rings[0].request, MPI_REQUEST_NULL,
                               rings[1].request, MPI_REQUEST_NULL};
    MPI_Request before = rings[0].request;
    MPI_Status statuses[4];
    int flag = 0, index = 0, num = 0, indices[4];

    MPI_Recv_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                  &requests[3]); /* a native inactive one */
    poison(statuses);
    MPI_Wait(&requests[0], statuses);
    expect_empty(statuses);
    poison(statuses);
    MPI_Test(&requests[0], &flag, statuses);
    CHECK(flag, "inactive is not complete");
    expect_empty(statuses);
    poison(statuses);
    flag = 0;
    MPI_Request_get_status(requests[0], &flag, statuses);
    CHECK(flag, "inactive is not complete");
    expect_empty(statuses);
    for (int i = 0; i < 4; i++)
        poison(&statuses[i]);
    MPI_Waitall(4, requests, statuses);
    for (int i = 0; i < 4; i++)
        expect_empty(&statuses[i]);
    for (int i = 0; i < 4; i++)
        poison(&statuses[i]);
    flag = 0;
    MPI_Testall(4, requests, &flag, statuses);
    CHECK(flag, "all inactive is not complete");
    for (int i = 0; i < 4; i++)
        expect_empty(&statuses[i]);
    poison(statuses);
    MPI_Waitany(4, requests, &index, statuses);
    CHECK(index == MPI_UNDEFINED, "index %d", index);
    expect_empty(statuses);
    flag = index = 0;
    poison(statuses);
    MPI_Testany(4, requests, &index, &flag, statuses);
    CHECK(flag && index == MPI_UNDEFINED, "flag %d, index %d", flag, index);
    expect_empty(statuses);
    MPI_Waitsome(4, requests, &num, indices, statuses);
    CHECK(num == MPI_UNDEFINED, "outcount %d", num);
    num = 0;
    MPI_Testsome(4, requests, &num, indices, MPI_STATUSES_IGNORE);
    CHECK(num == MPI_UNDEFINED, "outcount %d", num);
    CHECK(requests[0] == before, "the handle was changed");
    MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
    MPI_Testall(0, NULL, &flag, MPI_STATUSES_IGNORE);
    CHECK(flag, "no requests at all are not complete");
    MPI_Request_free(&requests[3]);
}

/* Ours cannot complete before all have started, which a barrier guards. */
static void not_yet(struct ring *ring, int epoch)
{
    bool late = world_rank == 0;
    int flag = 1, index = 0, num = 1, indices[1];
    MPI_Status status;

    if (!late) {
        begin(ring, epoch);
        if (ring->left == 0 || ring->right == 0) {
            MPI_Test(&ring->request, &flag, &status);
            CHECK(!flag, "complete before the peer has started");
            MPI_Request_get_status(ring->request, &flag, &status);
            CHECK(!flag, "complete before the peer has started");
            MPI_Testall(1, &ring->request, &flag, &status);
            CHECK(!flag, "complete before the peer has started");
            flag = 1;
            MPI_Testany(1, &ring->request, &index, &flag, &status);
            CHECK(!flag && index == MPI_UNDEFINED, "flag %d, index %d", flag,
                  index);
            MPI_Testsome(1, &ring->request, &num, indices, &status);
            CHECK(num == 0, "outcount %d", num);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (late)
        begin(ring, epoch);
    MPI_Wait(&ring->request, &status);
    ring_verify(ring, epoch);
}

static void look_first(struct ring *ring, int epoch)
{
    MPI_Status status;
    int flag = 0;

    begin(ring, epoch);
    while (!flag) {
        MPI_Request_get_status(ring->request, &flag, &status);
        sched_yield();
    }
    flag = 0;
    MPI_Request_get_status(ring->request, &flag, &status);
    CHECK(flag, "complete once, then not");
    ring_verify(ring, epoch);
    flag = 0;
    poison(&status);
    status.MPI_ERROR = 77;
    MPI_Test(&ring->request, &flag, &status);
    CHECK(flag, "get_status said complete");
    CHECK(status.MPI_ERROR == 77, "MPI_ERROR was changed");
    flag = 0;
    MPI_Test(&ring->request, &flag, &status);
    CHECK(flag, "inactive is not complete");
    expect_empty(&status);
}

/* Ours, native receives and sends, null and inactive in one array. */
static void mixed(struct ring *rings, int way, int epoch)
{
    enum { NUM = 7 };
    int in[2] = {-1, -1}, out[2] = {world_rank, world_rank + 100};
    int left = rings[0].left, right = rings[0].right, finished = 0, flag = 0;
    MPI_Request requests[NUM] = {MPI_REQUEST_NULL};
    MPI_Status statuses[NUM];
    bool done[NUM] = {[0] = true, [6] = true};
    int index, num, indices[NUM];

    MPI_Irecv(&in[0], 1, MPI_INT, left, 3, MPI_COMM_WORLD, &requests[1]);
    requests[2] = rings[0].request;
    MPI_Isend(&out[0], 1, MPI_INT, right, 3, MPI_COMM_WORLD, &requests[3]);
    requests[4] = rings[1].request;
    MPI_Recv_init(&in[1], 1, MPI_INT, left, 4, MPI_COMM_WORLD, &requests[5]);
    requests[6] = rings[2].request; /* stays inactive */
    begin(&rings[0], epoch);
    begin(&rings[1], epoch);
    MPI_Start(&requests[5]);
    MPI_Send(&out[1], 1, MPI_INT, right, 4, MPI_COMM_WORLD);
    for (int i = 0; i < NUM; i++)
        poison(&statuses[i]);
    if (way < 2) {
        if (way == 0)
            MPI_Waitall(NUM, requests, statuses);
        while (way == 1 && !flag) {
            MPI_Testall(NUM, requests, &flag, statuses);
            sched_yield();
        }
        expect_empty(&statuses[0]);
        expect_empty(&statuses[6]);
        CHECK(statuses[1].MPI_SOURCE == left && statuses[1].MPI_TAG == 3,
              "status of the native receive");
        CHECK(statuses[5].MPI_SOURCE == left && statuses[5].MPI_TAG == 4,
              "status of the persistent receive");
        finished = 5;
    }
    while (finished < 5 && way < 4) {
        if (way == 2)
            MPI_Waitany(NUM, requests, &index, &statuses[0]);
        else
            MPI_Testany(NUM, requests, &index, &flag, &statuses[0]);
        if (way == 3 && !flag) {
            sched_yield();
            continue;
        }
        CHECK(index >= 0 && index < NUM && !done[index], "index %d", index);
        if (index == 1)
            CHECK(statuses[0].MPI_SOURCE == left, "source %d",
                  statuses[0].MPI_SOURCE);
        done[index] = true;
        finished++;
    }
    while (finished < 5) {
        if (way == 4)
            MPI_Waitsome(NUM, requests, &num, indices, statuses);
        else
            MPI_Testsome(NUM, requests, &num, indices, statuses);
        CHECK(num >= (way == 4 ? 1 : 0), "outcount %d", num);
        for (int i = 0; i < num; i++) {
            CHECK(!done[indices[i]], "index %d again", indices[i]);
            if (indices[i] == 5)
                CHECK(statuses[i].MPI_TAG == 4, "tag %d", statuses[i].MPI_TAG);
            done[indices[i]] = true;
        }
        finished += num;
        sched_yield();
    }
    CHECK(requests[1] == MPI_REQUEST_NULL && requests[3] == MPI_REQUEST_NULL,
          "completed native requests are not null");
    CHECK(requests[2] == rings[0].request && requests[4] == rings[1].request,
          "persistent handles were changed");
    CHECK(in[0] == left && in[1] == left + 100, "received %d and %d", in[0],
          in[1]);
    ring_verify(&rings[0], epoch);
    ring_verify(&rings[1], epoch);
    MPI_Waitany(NUM, requests, &index, MPI_STATUS_IGNORE);
    CHECK(index == MPI_UNDEFINED, "index %d is left", index);
    MPI_Request_free(&requests[5]);
}

/* More requests than the small arrays on the stack hold. */
static void many(struct ring *ring, int epoch)
{
    enum { NUM = 100 };
    MPI_Request requests[NUM];
    int in[NUM], out = world_rank, index;

    for (int i = 0; i < NUM - 1; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, ring->left, 9, MPI_COMM_WORLD,
                  &requests[i]);
    requests[NUM - 1] = ring->request;
    begin(ring, epoch);
    for (int i = 0; i < NUM - 1; i++)
        MPI_Send(&out, 1, MPI_INT, ring->right, 9, MPI_COMM_WORLD);
    MPI_Waitany(NUM, requests, &index, MPI_STATUS_IGNORE);
    MPI_Waitall(NUM, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < NUM - 1; i++)
        CHECK(in[i] == ring->left, "received %d", in[i]);
    ring_verify(ring, epoch);
}

/* Errors come back as MPI errors, and the request stays as it was. */
static void errors(struct ring *ring, int epoch)
{
    int error;

    if (!is_accelerated())
        return; /* not all native MPIs notice */
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    begin(ring, epoch);
    error = MPI_Start(&ring->request);
    CHECK(error != MPI_SUCCESS, "an active request was started");
    MPI_Wait(&ring->request, MPI_STATUS_IGNORE);
    ring_verify(ring, epoch);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

/* Freed while active: completed first. */
static void free_active(int epoch)
{
    struct ring ring;

    ring_create(&ring, comm, 50000);
    inits++;
    begin(&ring, epoch);
    if (!is_accelerated()) /* erroneous; only ours promises more */
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
    MPI_Request_free(&ring.request);
    CHECK(ring.request == MPI_REQUEST_NULL, "a freed handle is not null");
    MPI_Barrier(MPI_COMM_WORLD);
    /* Its buffers stay: nobody can tell when they are free. */
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 3000, 40000};
    struct ring rings[3];
    int epoch = 0;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    comm = ring_comm(MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        ring_create(&rings[i], comm, sizes[i]);
        inits++;
    }
    inactive_requests(rings);
    for (int repeat = 0; repeat < 3; repeat++) {
        for (int way = 0; way < 6; way++)
            mixed(rings, way, epoch++);
        for (int i = 0; i < 3; i++) {
            if (world_size > 1)
                not_yet(&rings[i], epoch++);
            look_first(&rings[i], epoch++);
        }
    }
    many(&rings[1], epoch++);
    errors(&rings[0], epoch++);
    free_active(epoch++);
    inactive_requests(rings);
    for (int i = 0; i < 3; i++) {
        MPI_Request_free(&rings[i].request);
        CHECK(rings[i].request == MPI_REQUEST_NULL, "not null");
        ring_free(&rings[i]);
    }
    MPI_Comm_free(&comm);
    if (is_accelerated()) {
        CHECK(counter("neighbor_alltoall_init.accelerated") == inits,
              "not accelerated");
        CHECK(counter("starts") == starts, "%" PRIu64 " starts, not %" PRIu64,
              counter("starts"), starts);
        CHECK(counter("recv_init.native") + counter("recv_init.accelerated") > 0,
              "persistent receives are not counted");
    }
    return test_fini("completion");
}
