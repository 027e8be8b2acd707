/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that stay native, each counted with its reason; what the report says
 * of them is checked by the script check-run.
 *
 * reasons [--status N] [--disabled] [--off | --unseen]
 * reasons --lanes: persistent sends and receives, and no collective
 * reasons --adopted: send buffers of malloc, and such as the program has mapped */
#include <sys/mman.h>

#include "tests/mpi/ring.h"

static void expect(const char *name, uint64_t value)
{
    CHECK(counter(name) == value, "%s is %" PRIu64 ", not %" PRIu64, name,
          counter(name), value);
}

static void point_to_point(void)
{
    MPI_Request requests[5];
    int value = 0;

    MPI_Send_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                  &requests[0]);
    MPI_Bsend_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                   &requests[1]);
    MPI_Ssend_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                   &requests[2]);
    MPI_Rsend_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                   &requests[3]);
    MPI_Recv_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                  &requests[4]);
    MPI_Startall(5, requests);
    MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 5; i++)
        MPI_Request_free(&requests[i]);
}

/* On a communicator that nothing could prepare. */
static void nonblocking(MPI_Comm parent)
{
    MPI_Request request;
    MPI_Comm comm;
    int send[2] = {1, 2}, receive[2], ones[2] = {1, 1}, displs[2] = {0, 1};
    MPI_Aint bytes[2] = {0, sizeof(int)};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Request requests[5];

    MPI_Comm_idup(parent, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Ineighbor_alltoall(send, 1, MPI_INT, receive, 1, MPI_INT, comm,
                           &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Ineighbor_alltoallv(send, ones, displs, MPI_INT, receive, ones, displs,
                            MPI_INT, comm, &requests[1]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Ineighbor_alltoallw(send, ones, bytes, types, receive, ones, bytes,
                            types, comm, &requests[2]);
    MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    MPI_Ineighbor_allgather(send, 1, MPI_INT, receive, 1, MPI_INT, comm,
                            &requests[3]);
    MPI_Wait(&requests[3], MPI_STATUS_IGNORE);
    MPI_Ineighbor_allgatherv(send, 1, MPI_INT, receive, ones, displs, MPI_INT,
                             comm, &requests[4]);
    MPI_Wait(&requests[4], MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
}

/* Cartesian communicators have channels. */
static void lanes(void)
{
    const int periodic = 1, tag = 5;
    MPI_Request requests[2];
    MPI_Comm comm;
    int left, right, send = world_rank, receive;

    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &comm);
    MPI_Cart_shift(comm, 0, 1, &left, &right);
    MPI_Send_init(&send, 1, MPI_INT, right, tag, comm, &requests[0]);
    MPI_Recv_init(&receive, 1, MPI_INT, left, tag, comm, &requests[1]);
    for (int i = 0; i < 100; i++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
    MPI_Comm_free(&comm);
}

/* Of a request that is freed before it could have a lane that alone is the reason, however long
 * the message is. */
static void few_starts(void)
{
    enum { LONG = 400000 };
    char *send = allocate(LONG), *receive = allocate(LONG);
    int left = (world_rank + world_size - 1) % world_size;
    MPI_Request requests[2];

    MPI_Recv_init(receive, LONG, MPI_BYTE, left, 6, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(send, LONG, MPI_BYTE, (world_rank + 1) % world_size, 6, MPI_COMM_WORLD,
                  &requests[1]);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
    free(send);
    free(receive);
    if (is_accelerated())
        expect("send_init.native.size", 0);
}

/* As often as it takes to adopt. */
static void send_pages(char *send, int bytes, MPI_Comm comm)
{
    char *receive = allocate(2 * (size_t)bytes);
    MPI_Request request;

    memset(send, world_rank, 2 * (size_t)bytes);
    INIT(Neighbor_alltoall)(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, comm,
                            MPI_INFO_NULL, &request);
    for (int i = 0; i < 4; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
    free(receive);
}

static void adopted(void)
{
    enum { PAGE = 4096, OF_MALLOC = 16 * PAGE, MAPPED = 4 * PAGE };
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    char *send = aligned_alloc(PAGE, 2 * OF_MALLOC);
    char *mapped = mmap(NULL, 2 * MAPPED, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(send != NULL && mapped != MAP_FAILED, "no memory");
    send_pages(send, OF_MALLOC, comm);
    send_pages(mapped, MAPPED, comm);
    free(send);
    munmap(mapped, 2 * MAPPED);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    bool disabled = has_option(argc, argv, "--disabled");
    int status = (int)number_option(argc, argv, "--status", PASS);
    struct ring ring;
    MPI_Comm comm;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    if (has_option(argc, argv, "--lanes")) {
        lanes();
        few_starts();
        test_fini("reasons");
        return PASS;
    }
    if (has_option(argc, argv, "--adopted")) {
        adopted();
        test_fini("reasons");
        return PASS;
    }
    comm = ring_comm(MPI_COMM_WORLD);
    ring_create(&ring, comm, 4);
    ring_fill(&ring, world_rank, 1);
    MPI_Start(&ring.request);
    MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
    MPI_Neighbor_alltoall(ring.send, 1, MPI_DOUBLE, ring.receive, 1,
                          MPI_DOUBLE, comm);
    point_to_point();
    nonblocking(comm);
    if (is_accelerated() && !disabled) {
        expect("neighbor_alltoall.accelerated", 1);
        expect("neighbor_alltoall_init.accelerated", 1);
        expect("accelerated", 2);
        expect("native", 10);
        expect(has_option(argc, argv, "--off") ? "send_init.native.off"
               : has_option(argc, argv, "--unseen")
                   ? "send_init.native.unseen"
                   : "send_init.native.no-peer",
               1);
        expect("recv_init.native", 1);
        expect("ineighbor_alltoallw.native.unprepared", 1);
        expect("ineighbor_allgather.native.disabled", 0);
    } else if (is_accelerated()) {
        expect("accelerated", 0);
        expect("neighbor_alltoall.native.disabled", 1);
        expect("neighbor_alltoall_init.native.disabled", 1);
        expect("native", 12);
    }
    if (is_accelerated()) {
        uint64_t value;

        CHECK(rsched_mpi_counter("nonsense", &value) == RSCHED_ENAME, "known");
        CHECK(rsched_mpi_counter("send_init.native.none", &value) ==
                  RSCHED_ENAME, "known");
    }
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    test_fini("reasons");
    return status;
}
