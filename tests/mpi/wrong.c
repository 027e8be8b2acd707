/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong arguments: the native MPI's error comes, from one error handler at most, once,
 * and nothing else happens. Open MPI 4.1 calls none in MPI_Testsome.
 *
 * wrong [--native] */
#include "tests/mpi/handled.h"
#include "tests/mpi/ring.h"

/* Of a call that must fail. */
static void expect(const char *call, int error)
{
    CHECK(error != MPI_SUCCESS, "%s succeeds", call);
    CHECK(handled <= 1, "%s: class %d, handled %d times", call,
          error_class(error), handled);
    handled = 0;
}

static void expect_class(const char *call, int error, int class)
{
    CHECK(error_class(error) == class, "%s: class %d, not %d", call,
          error_class(error), class);
    expect(call, error);
}

/* What no communicator has for a handle, and the MPIs find out. */
static MPI_Comm no_comm(void)
{
#ifdef OPEN_MPI
    static char memory[4096];

    memset(memory, 0xff, sizeof(memory));
    return (MPI_Comm)(void *)memory;
#else
    return (MPI_Comm)0xc4ffff00;
#endif
}

static void wrong_comm(void)
{
    MPI_Request request;
    int number = 0;

    expect_class("Send_init", MPI_Send_init(&number, 1, MPI_INT, 0, 0, no_comm(),
                                            &request), MPI_ERR_COMM);
    expect_class("Recv_init", MPI_Recv_init(&number, 1, MPI_INT, 0, 0, no_comm(),
                                            &request), MPI_ERR_COMM);
    expect_class("Rsend_init", MPI_Rsend_init(&number, 1, MPI_INT, 0, 0,
                                              no_comm(), &request),
                 MPI_ERR_COMM);
}

static void uncommitted_type(MPI_Comm comm)
{
    int in[4], out[4] = {0};
    MPI_Request request;
    MPI_Datatype type;

    MPI_Type_contiguous(1, MPI_INT, &type);
    expect_class("Send_init", MPI_Send_init(out, 1, type, 0, 0, comm, &request),
                 MPI_ERR_TYPE);
    expect_class("Neighbor_alltoall",
                 MPI_Neighbor_alltoall(out, 1, type, in, 1, type, comm),
                 MPI_ERR_TYPE);
    expect_class("Ineighbor_alltoall",
                 MPI_Ineighbor_alltoall(out, 1, type, in, 1, type, comm,
                                        &request), MPI_ERR_TYPE);
    expect_class("Neighbor_alltoall_init",
                 INIT(Neighbor_alltoall)(out, 1, type, in, 1, type, comm,
                                         MPI_INFO_NULL, &request),
                 MPI_ERR_TYPE);
    MPI_Type_commit(&type);
    CHECK(MPI_Neighbor_alltoall(out, 1, type, in, 1, type, comm) == MPI_SUCCESS,
          "a committed one fails");
    MPI_Type_free(&type);
}

/* What the backend asks the native MPI about types leaves nothing that persistent
 * collectives of that stumble over. */
static void native_collective(MPI_Comm comm)
{
    int in[2], out[2] = {0};
    MPI_Request request;

    MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, comm);
    INIT(Barrier)(comm, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

#ifndef OPEN_MPI
/* Not wrong where the native MPI takes it: to neighbors that it has not a process gives
 * a count of 0 and no type. Those inside of the grid know nothing of that. */
static void no_neighbor_no_type(void)
{
    int size = world_size, none = 0, counts[2] = {1, 1};
    MPI_Aint displs[2] = {0, sizeof(int)};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Comm line;

    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &none, 0, &line);
    for (int side = 0; side < 2; side++) {
        if (world_rank == side * (world_size - 1)) {
            counts[side] = 0;
            types[side] = MPI_DATATYPE_NULL;
        }
    }
    for (int round = 0; round < 4; round++) {
        int out[2] = {10 * world_rank, 10 * world_rank + 1}, in[2] = {-1, -1};
        MPI_Request request;
        int error;

        if (round % 2 == 0) {
            error = MPI_Neighbor_alltoallw(out, counts, displs, types, in, counts,
                                           displs, types, line);
        } else {
            error = MPI_Ineighbor_alltoallw(out, counts, displs, types, in, counts,
                                            displs, types, line, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        CHECK(error == MPI_SUCCESS, "round %d: class %d", round, error_class(error));
        CHECK(in[0] == (world_rank > 0 ? 10 * world_rank - 9 : -1) &&
                  in[1] == (world_rank < world_size - 1 ? 10 * world_rank + 10 : -1),
              "round %d: %d, %d", round, in[0], in[1]);
    }
    MPI_Comm_free(&line);
    if (is_accelerated())
        CHECK(counter("neighbor_alltoallw.accelerated") == 2 &&
                  counter("ineighbor_alltoallw.accelerated") == 2,
              "not accelerated");
}
#endif

static void wrong_arrays(MPI_Request *request)
{
    int flag, index, indices[1];
    MPI_Status statuses[1];

    expect("Startall", MPI_Startall(-1, request));
    expect("Waitall", MPI_Waitall(-1, request, statuses));
    expect("Testall", MPI_Testall(-1, request, &flag, statuses));
    expect("Waitany", MPI_Waitany(-1, request, &index, statuses));
    expect("Testany", MPI_Testany(-1, request, &index, &flag, statuses));
    expect("Waitsome", MPI_Waitsome(-1, request, &flag, indices, statuses));
    expect("Testsome", MPI_Testsome(-1, request, &flag, indices, statuses));
    expect("Startall", MPI_Startall(1, NULL));
    expect("Waitall", MPI_Waitall(1, NULL, statuses));
    expect("Testall", MPI_Testall(1, NULL, &flag, statuses));
    expect("Waitany", MPI_Waitany(1, NULL, &index, statuses));
    expect("Testany", MPI_Testany(1, NULL, &index, &flag, statuses));
    expect("Waitsome", MPI_Waitsome(1, NULL, &flag, indices, statuses));
    expect("Testsome", MPI_Testsome(1, NULL, &flag, indices, statuses));
    expect("Start", MPI_Start(NULL));
    expect("Wait", MPI_Wait(NULL, statuses));
    expect("Test", MPI_Test(NULL, &flag, statuses));
    expect("Request_free", MPI_Request_free(NULL));
    expect("Cancel", MPI_Cancel(NULL));
    CHECK(MPI_Startall(0, request) == MPI_SUCCESS &&
              MPI_Waitall(0, request, statuses) == MPI_SUCCESS,
          "no requests at all");
}

int main(int argc, char **argv)
{
    MPI_Errhandler errhandler;
    struct ring ring;
    MPI_Comm comm;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler);
    comm = ring_comm(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(comm, errhandler);
    MPI_Errhandler_free(&errhandler);
    ring_create(&ring, comm, 1);
    wrong_arrays(&ring.request);
    wrong_comm();
    native_collective(comm);
    uncommitted_type(comm);
#ifndef OPEN_MPI
    no_neighbor_no_type();
#endif
    CHECK(handled == 0, "handled %d times", handled);
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    return test_fini("wrong");
}
