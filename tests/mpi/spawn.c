/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that are spawned, which need not have the backend: communicators
 * with them are native, without a vote or a name that they would not take part
 * in; communicators of one world are accelerated as ever.
 *
 * spawn [with]: the children have the backend too */
#include "tests/mpi/ring.h"

enum { CHILDREN = 2 };

static void blocking(MPI_Comm comm)
{
    double send[2], receive[2] = {-1, -1};
    int rank, left, right;

    MPI_Comm_rank(comm, &rank);
    MPI_Cart_shift(comm, 0, 1, &left, &right);
    send[0] = rank;
    send[1] = rank + 0.5;
    MPI_Neighbor_alltoall(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE, comm);
    CHECK(receive[0] == left + 0.5 && receive[1] == right,
          "received %g and %g", receive[0], receive[1]);
}

static void persistent(MPI_Comm comm)
{
    struct ring ring;
    int rank;

    MPI_Comm_rank(comm, &rank);
    ring_create(&ring, comm, 100);
    for (int epoch = 0; epoch < 3; epoch++) {
        ring_fill(&ring, rank, epoch);
        MPI_Start(&ring.request);
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        ring_verify(&ring, epoch);
    }
    MPI_Request_free(&ring.request);
    ring_free(&ring);
}

/* Nobody has sent anything on it that the program has not. */
static void fresh(MPI_Comm comm)
{
    int rank, number;

    MPI_Comm_rank(comm, &rank);
    number = rank == 0 ? 4711 : 0;
    MPI_Bcast(&number, 1, MPI_INT, 0, comm);
    CHECK(number == 4711, "%d", number);
}

static void window(MPI_Comm comm)
{
    MPI_Win win;
    int *memory;

    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, comm,
                                &memory, &win) == MPI_SUCCESS) {
        fresh(comm);
        MPI_Win_free(&win);
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

/* Debian 12's MPICH has the function, but its process manager refuses. */
static bool spawn(char *program, bool with, MPI_Comm *family)
{
    static char none[] = "LD_PRELOAD=", given[4096];
    char env[] = "env", *arguments[] = {none, program, NULL};
    int error;

    if (with) {
        snprintf(given, sizeof(given), "LD_PRELOAD=%s", getenv("LD_PRELOAD"));
        arguments[0] = given;
    }

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    error = MPI_Comm_spawn(env, arguments, CHILDREN, MPI_INFO_NULL, 0,
                           MPI_COMM_WORLD, family, MPI_ERRCODES_IGNORE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    return error == MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    MPI_Comm parent, family, merged, comm;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL &&
        !spawn(argv[0], has_option(argc, argv, "with"), &family)) {
        printf("SKIP: this MPI cannot spawn processes\n");
        MPI_Finalize();
        return SKIP;
    }
    if (parent != MPI_COMM_NULL)
        family = parent;
    MPI_Intercomm_merge(family, parent != MPI_COMM_NULL, &merged);
    fresh(merged);
    window(merged);
    comm = ring_comm(merged);
    fresh(comm);
    blocking(comm);
    persistent(comm);
    ring_messages(merged, false);
    ring_messages(comm, false);
    if (is_accelerated())
        CHECK(counter("neighbor_alltoall.native.world") == 1 &&
                  counter("neighbor_alltoall_init.native.world") == 1 &&
                  counter("send_init.native.unnamed") == 2,
              "not native");
    MPI_Comm_free(&comm);
    MPI_Comm_free(&merged);
    if (parent == MPI_COMM_NULL) {
        CHECK(is_accelerated(), "the backend is not loaded");
        comm = ring_comm(MPI_COMM_WORLD);
        blocking(comm);
        persistent(comm);
        ring_messages(comm, true);
        MPI_Comm_free(&comm);
        CHECK(counter("accelerated") == 4, "not accelerated");
    }
    MPI_Comm_disconnect(&family);
    return test_fini(parent == MPI_COMM_NULL ? "spawn, parents"
                                             : "spawn, children");
}
