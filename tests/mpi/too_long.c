/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes that only the native MPI packs, and that are too long for MPI_Pack:
 * persistent requests with them are native, which the counters tell, and the native
 * MPI makes them; calls that cannot be native alone fail before anything has moved.
 * Nothing is started that would move so much. */
#include <sys/mman.h>

#include "tests/mpi/ring.h"
#include "tests/mpi/too_long.h"

struct call {
    MPI_Comm comm;
    int counts[2];
    MPI_Aint displs[2];
    MPI_Datatype send[2], receive[2];
    char *from, *to;
};

static int init(struct call *c, MPI_Request *request)
{
    return INIT(Neighbor_alltoallw)(c->from, c->counts, c->displs, c->send, c->to,
                                    c->counts, c->displs, c->receive, c->comm,
                                    MPI_INFO_NULL, request);
}

static uint64_t native(void)
{
    return counter("neighbor_alltoallw_init.native.layout");
}

/* At one process that is enough for all. */
static void persistent(struct call *c)
{
    MPI_Datatype type = c->send[1];
    uint64_t before = native(), packed = counter("packed");
    MPI_Request request;

    if (world_rank > 0)
        c->send[1] = c->receive[1];
    CHECK(init(c, &request) == MPI_SUCCESS, "init");
    CHECK(!is_accelerated() || native() == before + 1,
          "not native because of the layout");
    CHECK(counter("packed") == packed, "packed");
    CHECK(counter("neighbor_alltoallw_init.accelerated") == 0, "accelerated");
    MPI_Request_free(&request);
    c->send[1] = type;
}

/* The exchange of the communicator is there by then. */
static void others(struct call *c)
{
    double send[2] = {world_rank, world_rank}, receive[2];
    MPI_Request request = MPI_REQUEST_NULL;

    for (int i = 0; i < 3; i++) {
        receive[0] = receive[1] = -1;
        MPI_Neighbor_alltoall(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE,
                              c->comm);
        CHECK(receive[0] >= 0 && receive[1] >= 0, "nothing has come");
        if (i == 0)
            CHECK(MPI_Neighbor_alltoallw(c->from, c->counts, c->displs, c->send,
                                         c->to, c->counts, c->displs,
                                         c->receive, c->comm) == MPI_ERR_COUNT,
                  "a blocking call");
        if (i == 1)
            CHECK(MPI_Ineighbor_alltoallw(c->from, c->counts, c->displs, c->send,
                                          c->to, c->counts, c->displs,
                                          c->receive, c->comm,
                                          &request) == MPI_ERR_COUNT,
                  "a nonblocking call");
    }
    CHECK(counter("neighbor_alltoall.accelerated") == 3, "not accelerated");
}

int main(int argc, char **argv)
{
    struct call c = {.counts = {1, 1}, .displs = {0, (MPI_Aint)TOO_LONG_BYTES}};

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    c.comm = ring_comm(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(c.comm, MPI_ERRORS_RETURN);
    c.from = mmap(NULL, 4 * TOO_LONG_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(c.from != MAP_FAILED, "no addresses");
    c.to = c.from + 2 * TOO_LONG_BYTES;
    c.send[0] = c.receive[0] = c.receive[1] = as_long_type();
    c.send[1] = too_long_type();
    persistent(&c);
    if (is_accelerated())
        others(&c);
    MPI_Type_free(&c.send[0]);
    MPI_Type_free(&c.send[1]);
    MPI_Comm_free(&c.comm);
    munmap(c.from, 4 * TOO_LONG_BYTES);
    return test_fini("too_long");
}
