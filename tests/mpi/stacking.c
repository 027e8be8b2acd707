/* SPDX-License-Identifier: BSD-3-Clause */
/* A second tool is preloaded.
 *
 * stacking above: it comes before the backend, and its MPI_Start and MPI_Wait
 *     would pass the backend by, so what has requests must be native.
 * stacking below: it comes after the backend; everything is accelerated, and it
 *     sees plain messages and calls that may block, but no requests.
 *
 * It sees both ends of the program, and of what the program makes and frees. */
#include "tests/mpi/ring.h"

extern int tool_count(const char *call);
#pragma weak tool_count

enum { EPOCHS = 5 };

static void persistent(MPI_Comm comm)
{
    struct ring ring;

    ring_create(&ring, comm, 300);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        ring_fill(&ring, world_rank, epoch);
        MPI_Start(&ring.request);
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        ring_verify(&ring, epoch);
    }
    MPI_Request_free(&ring.request);
    ring_free(&ring);
}

/* Blocking and nonblocking. */
static void others(MPI_Comm comm)
{
    double send[2] = {world_rank, world_rank + 0.5}, receive[2];
    MPI_Request request;
    int left, right, sum, one = 1;

    MPI_Cart_shift(comm, 0, 1, &left, &right);
    for (int way = 0; way < 2; way++) {
        receive[0] = receive[1] = -1;
        if (way == 0) {
            MPI_Neighbor_alltoall(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE,
                                  comm);
        } else {
            MPI_Ineighbor_alltoall(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE,
                                   comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        CHECK(receive[0] == left + 0.5 && receive[1] == right,
              "received %g and %g", receive[0], receive[1]);
    }
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size, "%d", sum);
    MPI_Irecv(&sum, 1, MPI_INT, left, 1, comm, &request);
    MPI_Send(&world_rank, 1, MPI_INT, right, 1, comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A receive of a lane may not be posted natively yet when its message comes, so
 * ready sends become standard ones there, and only there. No MPI that we know
 * tells them apart; the tool does. */
static void ready(MPI_Comm comm)
{
    int left, right, got;
    MPI_Request request;

    MPI_Cart_shift(comm, 0, 1, &left, &right);
    for (int tag = 5; tag < 7; tag++) { /* 5: of ring_messages() */
        MPI_Irecv(&got, 1, MPI_INT, left, tag, comm, &request);
        PMPI_Barrier(comm);
        MPI_Rsend(&world_rank, 1, MPI_INT, right, tag, comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(got == left, "%d", got);
    }
}

/* The tool complains of what has only an end. */
static void objects(void)
{
    char *memory;
    MPI_Comm comm;
    MPI_Win window;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, 0, world_rank, &comm);
    MPI_Win_allocate_shared(100, 1, MPI_INFO_NULL, comm, &memory, &window);
    memset(memory, 0, 100);
    MPI_Win_free(&window);
    MPI_Comm_free(&comm);
    for (int bytes = 100; bytes < 1000000; bytes *= 100) { /* long ones are ours */
        MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory);
        memset(memory, 0, (size_t)bytes);
        MPI_Free_mem(memory);
    }
}

static void probe(MPI_Comm comm)
{
    int flag;

    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag, "there is a message");
}

int main(int argc, char **argv)
{
    bool above = has_option(argc, argv, "above");
    MPI_Comm comm;

    test_init(&argc, &argv, false);
    CHECK(tool_count != NULL, "the tool is not loaded");
    comm = ring_comm(MPI_COMM_WORLD);
    persistent(comm);
    others(comm);
    ring_messages(comm, !above);
    ready(comm);
    probe(comm);
    MPI_Comm_free(&comm);
    objects();
    CHECK(counter("neighbor_alltoall.accelerated") == 1,
          "blocking calls are native");
    CHECK(tool_count("allreduce") == 1 && tool_count("send") == 1 &&
              tool_count("irecv") == 3 && tool_count("probe") == 1,
          "the tool does not see all, or something twice");
    /* Compares each process with each, in some MPI libraries. */
    CHECK(tool_count("intersection") == 0, "%d communicators are looked at for strangers",
          tool_count("intersection"));
    if (above) {
        CHECK(counter("neighbor_alltoall_init.native.tool") == 1 &&
                  counter("send_init.native.tool") == 1 &&
                  counter("recv_init.native.tool") == 1 &&
                  counter("ineighbor_alltoall.native.tool") == 1 &&
                  counter("accelerated") == 1, "unsafe calls are not native");
        CHECK(tool_count("start") == EPOCHS && tool_count("wait") == EPOCHS + 4 &&
                  tool_count("rsend") == 2,
              "the tool does not see all");
    } else {
        CHECK(counter("send_init.accelerated") == 1 &&
                  counter("recv_init.accelerated") == 1,
              "messages are native");
        CHECK(counter("native") == 0 && counter("starts") == EPOCHS,
              "not accelerated");
        CHECK(tool_count("start") == 0, "the tool sees a start of ours");
        CHECK(tool_count("rsend") == 1, "%d ready sends",
              tool_count("rsend"));
    }
    return test_fini(above ? "stacking above" : "stacking below");
}
