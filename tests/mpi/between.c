/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of processes on several hosts: what leaves a host goes over verbs, all
 * of it, and nothing else does. Run by launchers with `on-node`; the argument, if there
 * is one, is the number of epochs. */
#include <stdlib.h>

#include "tests/mpi/ring.h"

static int epochs = 5;

/* Whether a process is on this one's host. */
static bool is_near(const char *names, int rank)
{
    return strcmp(names + (size_t)rank * MPI_MAX_PROCESSOR_NAME,
                  names + (size_t)world_rank * MPI_MAX_PROCESSOR_NAME) == 0;
}

static char *get_names(void)
{
    char *names = allocate((size_t)world_size * MPI_MAX_PROCESSOR_NAME);
    char own[MPI_MAX_PROCESSOR_NAME] = "";
    int length;

    MPI_Get_processor_name(own, &length);
    MPI_Allgather(own, sizeof(own), MPI_CHAR, names, sizeof(own), MPI_CHAR,
                  MPI_COMM_WORLD);
    return names;
}

/* Exchanges of one length; @return the bytes that left the host */
static uint64_t run(MPI_Comm comm, const char *names, int num)
{
    uint64_t verbs = counter("engines.verbs");
    uint64_t loopback = counter("engines.loopback");
    uint64_t near = 0, far = 0;
    struct ring ring;

    ring_create(&ring, comm, num);
    for (int epoch = 0; epoch < epochs; epoch++) {
        ring_fill(&ring, world_rank, epoch);
        MPI_Start(&ring.request);
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        ring_verify(&ring, epoch);
    }
    for (int way = 0; way < 2; way++) {
        bool is_close = is_near(names, way == 0 ? ring.left : ring.right);

        *(is_close ? &near : &far) += (size_t)epochs * sizeof(double) * (size_t)num;
    }
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    CHECK(counter("engines.verbs") - verbs == far,
          "%d doubles: %" PRIu64 " bytes over verbs, not %" PRIu64, num,
          counter("engines.verbs") - verbs, far);
    CHECK(counter("engines.loopback") - loopback == near,
          "%d doubles: %" PRIu64 " bytes within the host, not %" PRIu64, num,
          counter("engines.loopback") - loopback, near);
    return far;
}

int main(int argc, char **argv)
{
    static const int lengths[] = {1, 30, 1000, 8000, 30000};
    uint64_t far = 0;
    MPI_Comm comm;
    char *names;

    test_init(&argc, &argv, false);
    if (argc > 1)
        epochs = atoi(argv[1]);
    CHECK(epochs > 0, "no epochs");
    names = get_names();
    comm = ring_comm(MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        far += run(comm, names, lengths[i]);
    CHECK(far > 0, "all neighbors are on one host");
    MPI_Comm_free(&comm);
    free(names);
    return test_fini("between");
}
