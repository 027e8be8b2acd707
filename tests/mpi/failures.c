/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors arrive as MPI errors, on the communicator's error handler, and what
 * they do not concern works on.
 *
 * failures           counts that do not fit together
 * failures --death   the last rank is killed while the others wait for it; the
 *                    launcher must not end the job because of that */
#include <signal.h>
#include <unistd.h>

#include "tests/mpi/handled.h"
#include "tests/mpi/ring.h"

/* All ranks hear of a mismatch that only two can see. */
static void mismatched_init(MPI_Comm comm)
{
    double send[8] = {0}, receive[8];
    MPI_Request request = MPI_REQUEST_NULL;
    int error, before = handled;

    error = INIT(Neighbor_alltoall)(send, world_rank == 0 ? 2 : 1, MPI_DOUBLE,
                                    receive, 1, MPI_DOUBLE, comm,
                                    MPI_INFO_NULL, &request);
    CHECK(error_class(error) == MPI_ERR_TRUNCATE, "error class %d",
          error_class(error));
    CHECK(handled == before + 1, "handled %d times", handled - before);
}

/* Less than is expected: the native MPIs take it. (Not so Open MPI's calls with one count
 * for all, if a process expects more than it sends itself.) */
static void shorter_init(MPI_Comm comm, const struct ring *ring)
{
    int expected = world_rank == 0 ? 2 : 1, before = handled;
    int counts[2] = {1, 1}, expects[2] = {expected, expected};
    int at[2] = {0, 1}, into[2] = {0, expected};
    uint64_t native = counter("native");
    double send[2] = {world_rank, world_rank}, receive[4] = {-1, -1, -1, -1};
    MPI_Request request;

    CHECK(INIT(Neighbor_alltoallv)(send, counts, at, MPI_DOUBLE, receive, expects,
                                   into, MPI_DOUBLE, comm, MPI_INFO_NULL,
                                   &request) == MPI_SUCCESS, "init");
    CHECK(counter("native") == native + 1, "%" PRIu64 " native calls",
          counter("native") - native);
    for (int i = 0; i < 2; i++) {
        CHECK(MPI_Start(&request) == MPI_SUCCESS, "start");
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS, "wait");
    }
    CHECK(receive[0] == ring->left && receive[expected] == ring->right &&
              handled == before,
          "%g %g, handled %d times", receive[0], receive[expected],
          handled - before);
    MPI_Request_free(&request);
}

/* The same of blocking calls, on a communicator whose first one it is. Later ones need not
 * fit better: all are native. */
static void shorter_calls(const struct ring *ring)
{
    int expected = world_rank == 0 ? 2 : 1;
    int counts[2] = {1, 1}, expects[2] = {expected, expected};
    int at[2] = {0, 1}, into[2] = {0, expected};
    uint64_t native = counter("native");
    double send[2] = {world_rank, world_rank};
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);

    for (int i = 0; i < 3; i++) {
        double receive[4] = {-1, -1, -1, -1};

        CHECK(MPI_Neighbor_alltoallv(send, counts, at, MPI_DOUBLE, receive, expects, into,
                                     MPI_DOUBLE, comm) == MPI_SUCCESS, "call");
        CHECK(receive[0] == ring->left && receive[expected] == ring->right, "%g %g",
              receive[0], receive[expected]);
    }
    CHECK(counter("native") == native + 3, "%" PRIu64 " native calls",
          counter("native") - native);
    MPI_Comm_free(&comm);
}

/* More than the receiver expects: its error; it does not overrun. */
static void truncated_call(MPI_Comm comm, const struct ring *ring)
{
    int many = world_rank == 0 ? 3 : 1, error;
    double send[6] = {1, 2, 3, 4, 5, 6}, receive[6] = {-1, -1, -1, -1, -1, -1};
    bool receiver = ring->left == 0 || ring->right == 0;

    /* Rank 0 expects what the others send. */
    error = MPI_Neighbor_alltoall(send, many, MPI_DOUBLE, receive, 1,
                                  MPI_DOUBLE, comm);
    if (receiver)
        CHECK(error_class(error) == MPI_ERR_TRUNCATE, "error class %d",
              error_class(error));
    for (int i = 2; i < 6; i++)
        CHECK(receive[i] == -1, "element %d was overwritten", i);
}

/* A nonblocking call that fails is gone, and its status says why, also where a
 * native request is waited for with it. */
static void failed_beside_native(void)
{
    double send[4] = {0}, receive[4];
    MPI_Comm comm = ring_comm(MPI_COMM_SELF);
    MPI_Request requests[4] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                               MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[4];
    int error, from = 1, to = 0;

    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    memset(statuses, -1, sizeof(statuses));
    MPI_Irecv(&to, 1, MPI_INT, 0, 0, comm, &requests[1]);
    MPI_Isend(&from, 1, MPI_INT, 0, 0, comm, &requests[2]);
    MPI_Ineighbor_alltoall(send, 2, MPI_DOUBLE, receive, 1, MPI_DOUBLE, comm,
                           &requests[0]);
    error = MPI_Waitall(4, requests, statuses);
    CHECK(error_class(error) == MPI_ERR_IN_STATUS, "error class %d",
          error_class(error));
    CHECK(error_class(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE,
          "error class %d", error_class(statuses[0].MPI_ERROR));
    for (int i = 1; i < 4; i++)
        CHECK(statuses[i].MPI_ERROR == MPI_SUCCESS, "status %d has %d", i,
              statuses[i].MPI_ERROR);
    CHECK(to == from && requests[0] == MPI_REQUEST_NULL, "%d", to);
    MPI_Comm_free(&comm);
}

static void use(struct ring *ring, int epoch)
{
    ring_fill(ring, world_rank, epoch);
    CHECK(MPI_Start(&ring->request) == MPI_SUCCESS, "start");
    CHECK(MPI_Wait(&ring->request, MPI_STATUS_IGNORE) == MPI_SUCCESS, "wait");
    ring_verify(ring, epoch);
}

static void death(struct ring *ring)
{
    int before = handled, error, last = world_size - 1;
    const char *mark = getenv("DEATH_MARK");

    ring_fill(ring, world_rank, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == last) {
        FILE *file = fopen(mark, "w"); /* launchers lose what is printed */

        CHECK(file != NULL && fclose(file) == 0, "no mark");
        raise(SIGKILL);
    }
    error = MPI_Start(&ring->request);
    if (error == MPI_SUCCESS)
        error = MPI_Wait(&ring->request, MPI_STATUS_IGNORE);
    if (ring->left != last && ring->right != last) {
        while (access(mark, F_OK) != 0) /* MPICH's launcher would kill it for us */
            usleep(1000);
        _exit(PASS);
    }
    CHECK(error != MPI_SUCCESS, "an exchange with a dead process succeeded");
    CHECK(handled == before + 1, "handled %d times", handled - before);
    error = MPI_Start(&ring->request);
    if (error == MPI_SUCCESS)
        error = MPI_Wait(&ring->request, MPI_STATUS_IGNORE);
    CHECK(error != MPI_SUCCESS, "a dead process has come back");
    printf("failures: rank %d heard of the death\n", world_rank);
    fflush(stdout);
    _exit(PASS); /* MPI_Finalize would wait for the dead */
}

int main(int argc, char **argv)
{
    MPI_Errhandler errhandler;
    struct ring ring;
    MPI_Comm comm;

    test_init(&argc, &argv, false);
    comm = ring_comm(MPI_COMM_WORLD);
    ring_create(&ring, comm, 100);
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(comm, errhandler);
    MPI_Errhandler_free(&errhandler);
    if (has_option(argc, argv, "--death"))
        death(&ring);
    use(&ring, 1);
    mismatched_init(comm);
    use(&ring, 2);
    shorter_init(comm, &ring);
    shorter_calls(&ring);
    truncated_call(comm, &ring);
    use(&ring, 3);
    failed_beside_native();
    CHECK(counter("native") == 4, "%" PRIu64 " native calls",
          counter("native"));
    MPI_Comm_free(&comm);
    use(&ring, 4);
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    return test_fini("failures");
}
