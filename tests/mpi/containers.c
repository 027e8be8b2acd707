/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of one machine in containers: which of them share memory is found by
 * trying. Run by check-containers, which makes the namespaces.
 *
 * containers: memory is shared, and all collectives are accelerated
 * containers --strangers: nothing leads from one process to another one's memory, so
 * all of them are native, for a reason that is counted
 * With --native both are run without the backend. */
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/mpi/ring.h"

enum { EPOCHS = 5, COMMS = 3 };

/* Sockets and /proc are what leads to memory. What the native MPI has opened stays. */
static void become_stranger(void)
{
    int lost = unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", "/proc", "tmpfs", 0, NULL) == 0;
    int error = errno, all;

    PMPI_Allreduce(&lost, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all)
        return;
    if (!lost)
        printf("SKIP: no namespaces can be made: %s\n", strerror(error));
    MPI_Finalize();
    exit(SKIP);
}

/* A persistent request that all start and complete a few times. */
static void run_persistent(MPI_Comm comm, int num)
{
    struct ring ring;

    ring_create(&ring, comm, num);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        ring_fill(&ring, world_rank, epoch);
        MPI_Start(&ring.request);
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        ring_verify(&ring, epoch);
    }
    MPI_Request_free(&ring.request);
    ring_free(&ring);
}

static void run_others(MPI_Comm comm)
{
    double sum[2] = {0, 0};
    MPI_Request request;
    int left, right;

    MPI_Cart_shift(comm, 0, 1, &left, &right);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        MPI_Neighbor_allgather(&(double){world_rank + epoch}, 1, MPI_DOUBLE, sum, 1,
                               MPI_DOUBLE, comm);
        CHECK(sum[0] == left + epoch && sum[1] == right + epoch,
              "epoch %d: %g and %g", epoch, sum[0], sum[1]);
        sum[0] = sum[1] = -1;
        MPI_Ineighbor_allgather(&(double){world_rank + epoch}, 1, MPI_DOUBLE, sum, 1,
                                MPI_DOUBLE, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum[0] == left + epoch && sum[1] == right + epoch,
              "nonblocking, epoch %d: %g and %g", epoch, sum[0], sum[1]);
    }
}

/* How often the backend warns, while requests are made on one communicator, that it
 * has tried in vain. */
static int count_tries(void)
{
    FILE *file = tmpfile();
    int to = dup(STDERR_FILENO), tries = 0;
    char line[2000];
    MPI_Comm comm;

    CHECK(file != NULL && to >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0,
          "no file: %s", strerror(errno));
    comm = ring_comm(MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        struct ring ring;

        ring_create(&ring, comm, 1);
        MPI_Request_free(&ring.request);
        ring_free(&ring);
    }
    MPI_Comm_free(&comm);
    dup2(to, STDERR_FILENO);
    close(to);
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL)
        tries += strstr(line, "warning: making exchange") != NULL;
    fclose(file);
    return tries;
}

int main(int argc, char **argv)
{
    static const int lengths[] = {1, 1000, 30000};
    bool strangers = has_option(argc, argv, "--strangers");
    bool native = has_option(argc, argv, "--native");
    const uint64_t calls = COMMS * (3 + 2 * EPOCHS);
    uint64_t calls_before = 0;
    MPI_Comm comm;

    test_init(&argc, &argv, native);
    CHECK(world_size > 1, "one process alone");
    if (strangers) {
        int tries;

        become_stranger();
        tries = count_tries();
        CHECK(tries == !native, "%d tries", tries);
        calls_before = counter("neighbor_alltoall_init.native.setup");
    }
    for (int i = 0; i < COMMS; i++) {
        comm = ring_comm(MPI_COMM_WORLD);
        for (int k = 0; k < 3; k++)
            run_persistent(comm, lengths[k]);
        run_others(comm);
        MPI_Comm_free(&comm);
    }
    CHECK(native || strangers || counter("accelerated") == calls,
          "%" PRIu64 " accelerated calls of %" PRIu64, counter("accelerated"), calls);
    CHECK(native || !strangers || counter("accelerated") == 0,
          "%" PRIu64 " accelerated calls", counter("accelerated"));
    CHECK(native || !strangers ||
              counter("neighbor_alltoall_init.native.setup") - calls_before ==
                  (uint64_t)COMMS * 3,
          "%" PRIu64 " native calls for that reason",
          counter("neighbor_alltoall_init.native.setup"));
    ring_messages(MPI_COMM_WORLD, false);
    return test_fini("containers");
}
