/* SPDX-License-Identifier: BSD-3-Clause */
/* One of two processes comes a millisecond late, each time, as where one has more to
 * compute than the other: its messages, for which the other one waits, go through lanes all
 * the same, and early on. A receiver that waits alone for its sender takes what comes natively
 * instead, by calls of any kind, and is not alone in calls that block.
 *
 * late [--native] */
#include <unistd.h>

#include "tests/mpi/hope.h"
#include "tests/mpi/is_complete.h"

enum { MOST = 40000 /* ints */, LATE_US = 1000, EARLY = 60 /* rounds at most */ };

static int peer, late, sequence;
static int *out, *in;
static MPI_Comm comm;

static void come_late(void)
{
    double end = MPI_Wtime() + LATE_US * 1e-6;

    while (world_rank == late && MPI_Wtime() < end)
        ;
}

static void fill(int num)
{
    sequence++;
    for (int i = 0; i < num; i++) {
        out[i] = world_rank + 2 * (sequence + i);
        in[i] = -1;
    }
}

static void verify(int num)
{
    for (int i = 0; i < num; i++)
        CHECK(in[i] == peer + 2 * (sequence + i), "round %d, %d of %d: %d", sequence, i,
              num, in[i]);
}

/* ---- how what has been started is waited for ---- */

static void wait_all(MPI_Request *requests)
{
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void test_all(MPI_Request *requests)
{
    int flag = 0;

    while (!flag)
        MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
}

static void test_each(MPI_Request *requests)
{
    for (int i = 0; i < 2; i++) {
        int flag = 0;

        while (!flag)
            MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
    }
}

static void wait_some(MPI_Request *requests)
{
    int indices[2], done;

    for (int i = 0; i < 2; i += done)
        MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
}

/* It looks again when it has computed for a while. */
static void compute_first(MPI_Request *requests)
{
    usleep(200);
    wait_all(requests);
}

static void (*const waits[])(MPI_Request *requests) = {wait_all, test_all, test_each,
                                                       wait_some, compute_first};
enum { WAITS = sizeof(waits) / sizeof(waits[0]) };

static void make_requests(MPI_Request *requests, int num)
{
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Recv_init(in, num, MPI_INT, peer, 1, comm, &requests[0]);
    MPI_Send_init(out, num, MPI_INT, peer, 1, comm, &requests[1]);
}

static void free_requests(MPI_Request *requests)
{
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Comm_free(&comm);
}

/* @return the first round in which the late one's message has gone through a lane, of all;
 * no round has a barrier, which would have both come at the same time. */
static int exchange(MPI_Request *requests, int num, void (*wait)(MPI_Request *))
{
    int first = -1;

    for (int round = 0; round < EARLY; round++) {
        const char *number = world_rank == late ? "lane_sends" : "lane_receives";
        uint64_t before = counter(number);

        fill(num);
        come_late();
        MPI_Startall(2, requests);
        wait(requests);
        verify(num);
        if (first < 0 && counter(number) > before)
            first = round;
    }
    return first;
}

/* Others may have the cores: tried again. */
static void case_late(int num, void (*wait)(MPI_Request *))
{
    double begin = MPI_Wtime();
    struct hope hope = {0};
    int tries = 0;
    bool all;

    do {
        MPI_Request requests[2];
        int first;

        make_requests(requests, num);
        first = exchange(requests, num, wait);
        all = all_have(&hope, !is_accelerated() || first >= 0);
        free_requests(requests);
        CHECK(tries++ < 20 || MPI_Wtime() - begin < PATIENCE_S,
              "%d ints have never gone through lanes", num);
    } while (!all);
}

/* ---- the receiver is alone, and the sender comes natively ---- */

static void send(int way)
{
    MPI_Request request;
    int flag = 0;

    switch (way) {
    case 0: MPI_Send(out, MOST, MPI_INT, peer, 1, comm); break;
    case 1: MPI_Ssend(out, MOST, MPI_INT, peer, 1, comm); break;
    case 2: MPI_Sendrecv(out, MOST, MPI_INT, peer, 1, NULL, 0, MPI_INT, MPI_PROC_NULL, 0,
                         comm, MPI_STATUS_IGNORE); break;
    case 3:
        MPI_Isend(out, MOST, MPI_INT, peer, 1, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_Issend(out, MOST, MPI_INT, peer, 1, comm, &request);
        while (!flag)
            MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        break;
    }
}
enum { SENDS = 5 };

static void receive(int way, MPI_Request *request)
{
    int flag = 0, index;

    switch (way) {
    case 0: MPI_Wait(request, MPI_STATUS_IGNORE); break;
    case 1: MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE); break;
    case 2:
        while (!flag)
            MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        break;
    case 3:
        while (!flag)
            MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        break;
    default:
        while (!is_complete(*request))
            ;
        MPI_Wait(request, MPI_STATUS_IGNORE);
        break;
    }
}
enum { RECEIVES = 5 };

/* Requests that are new, so that the pair has not opened yet: some messages of them, and
 * one that is not. */
static void send_natively(int before, int way)
{
    MPI_Request request;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (world_rank == late)
        MPI_Send_init(out, MOST, MPI_INT, peer, 1, comm, &request);
    else
        MPI_Recv_init(in, MOST, MPI_INT, peer, 1, comm, &request);
    for (int round = 0; round <= before + SENDS; round++) {
        fill(MOST);
        come_late();
        if (world_rank == late && round >= before && round < before + SENDS) {
            send(round - before);
            continue;
        }
        MPI_Start(&request);
        if (world_rank == late) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            continue;
        }
        receive(way, &request);
        verify(MOST);
    }
    MPI_Request_free(&request);
    MPI_Comm_free(&comm);
}

/* Where the others come only when it has done something that blocks natively. */
static void block(int before)
{
    MPI_Request request;
    int nothing = 0;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (world_rank == late)
        MPI_Send_init(out, MOST, MPI_INT, peer, 1, comm, &request);
    else
        MPI_Recv_init(in, MOST, MPI_INT, peer, 1, comm, &request);
    for (int round = 0; round < before + 6; round++) {
        fill(MOST);
        come_late();
        MPI_Start(&request);
        if (world_rank == late) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (round >= before)
                MPI_Send(&nothing, 1, MPI_INT, peer, 2, comm);
        } else {
            if (round >= before)
                MPI_Recv(&nothing, 1, MPI_INT, peer, 2, comm, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            verify(MOST);
        }
    }
    MPI_Request_free(&request);
    MPI_Comm_free(&comm);
}

/* While the receiver is alone it makes a request for a lane whose messages it has received
 * by other calls so far, and of which the sender knows that all are matched. */
static void attach(int before)
{
    MPI_Request requests[2];
    int *others = allocate(MOST * sizeof(int)), flag;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (world_rank == late) {
        MPI_Send_init(out, MOST, MPI_INT, peer, 1, comm, &requests[0]);
        MPI_Ssend_init(out, MOST, MPI_INT, peer, 2, comm, &requests[1]);
    } else {
        MPI_Recv_init(in, MOST, MPI_INT, peer, 1, comm, &requests[0]);
    }
    for (int round = 0; round < before + 4; round++) {
        fill(MOST);
        come_late();
        for (int i = 0; i < 10 && world_rank == late; i++) /* what has come is seen */
            MPI_Iprobe(peer, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        MPI_Start(&requests[0]);
        if (world_rank != late && round < before) {
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            MPI_Recv(others, MOST, MPI_INT, peer, 2, comm, MPI_STATUS_IGNORE);
        } else {
            if (world_rank != late && round == before) {
                MPI_Recv_init(others, MOST, MPI_INT, peer, 2, comm, &requests[1]);
                usleep(3 * LATE_US); /* the sender comes now */
            }
            if (world_rank == late && round < before)
                MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            MPI_Start(&requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        }
        if (world_rank == late)
            continue;
        verify(MOST);
        CHECK(memcmp(in, others, MOST * sizeof(int)) == 0, "round %d", round);
    }
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
    MPI_Comm_free(&comm);
    free(others);
}

/* The first starts of a lane, which are native in any case. */
enum { NATIVE = 4 };

static void case_natively(void)
{
    uint64_t all[2], mine = counter("withdrawn");

    for (int before = NATIVE; before < 12; before++) {
        /* The receiver is alone after one of these numbers of messages only. */
        for (int way = 0; way < RECEIVES; way++)
            send_natively(before, way);
        block(before);
        attach(before);
    }
    mine = counter("withdrawn") - mine;
    MPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    CHECK(!is_accelerated() || all[!late] > 0, "the receiver was never alone");
    CHECK(!is_accelerated() || all[late] == 0, "%" PRIu64 " of the sender", all[late]);
}

int main(int argc, char **argv)
{
    static const int lengths[] = {2, 700, 4000, MOST};

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    CHECK(world_size == 2, "%d ranks", world_size);
    peer = !world_rank;
    out = allocate(MOST * sizeof(int));
    in = allocate(MOST * sizeof(int));
    for (late = 0; late < 2; late++) {
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
            case_late(lengths[i], waits[i % WAITS]);
        case_late(2, compute_first);
        case_natively();
    }
    free(out);
    free(in);
    return test_fini("late");
}
