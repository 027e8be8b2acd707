/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that use sessions instead of MPI_Init are native, and one that uses
 * both is accelerated between MPI_Init and MPI_Finalize. */
#include "tests/mpi/ring.h"

#if MPI_VERSION >= 4

static void use(MPI_Comm parent, bool lanes)
{
    double send[2], receive[2] = {-1, -1};
    MPI_Comm comm = ring_comm(parent);
    struct ring ring;
    int rank;

    MPI_Comm_rank(comm, &rank);
    ring_create(&ring, comm, 100);
    ring_fill(&ring, rank, 1);
    MPI_Start(&ring.request);
    MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
    ring_verify(&ring, 1);
    MPI_Request_free(&ring.request);
    send[0] = rank;
    send[1] = rank + 0.5;
    MPI_Neighbor_alltoall(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE, comm);
    CHECK(receive[0] == ring.left + 0.5 && receive[1] == ring.right,
          "received %g and %g", receive[0], receive[1]);
    ring_free(&ring);
    ring_messages(comm, lanes);
    MPI_Comm_free(&comm);
}

static MPI_Comm session_comm(MPI_Session session)
{
    MPI_Group group;
    MPI_Comm comm;

    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "rsched", MPI_INFO_NULL,
                               MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    return comm;
}

static int run(int argc, char **argv)
{
    bool both = has_option(argc, argv, "both");
    MPI_Session session;
    MPI_Comm comm;

    if (both)
        test_init(&argc, &argv, false);
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    comm = session_comm(session);
    MPI_Comm_rank(comm, &world_rank);
    MPI_Comm_size(comm, &world_size);
    ring_messages(comm, false);
    if (both) /* the session has made it */
        CHECK(counter("send_init.native.unnamed") == 1 &&
                  counter("recv_init.native.unnamed") == 1 &&
                  counter("native") == 2, "not native");
    use(comm, both);
    if (both) {
        use(MPI_COMM_WORLD, true);
        CHECK(counter("neighbor_alltoall.accelerated") == 2 &&
                  counter("neighbor_alltoall_init.accelerated") == 2 &&
                  counter("lane_receives") > 0 && counter("native") == 2,
              "not accelerated");
        MPI_Finalize();
        use(comm, false); /* MPICH ends it all, and us, with the session only */
    } else {
        CHECK(is_accelerated(), "the backend is not loaded");
        CHECK(counter("neighbor_alltoall.native.no-init") == 1 &&
                  counter("neighbor_alltoall_init.native.no-init") == 1 &&
                  counter("send_init.native.no-init") == 2,
              "not native");
    }
    printf("session: rank %d of %d: ok\n", world_rank, world_size);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return PASS;
}

#else

static int run(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    printf("SKIP: this MPI has no sessions\n");
    MPI_Finalize();
    return SKIP;
}

#endif

int main(int argc, char **argv)
{
    return run(argc, argv);
}
