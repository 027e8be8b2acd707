/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched/mpi.h: topologies without a communicator, requests on them, other
 * buffers, statistics, and what is refused. */
#include "tests/mpi/ring.h"
#include "tests/mpi/too_long.h"

#include <string.h>

#include <rsched/mpi.h>

enum { MAX_EDGES = 16 };

/* Blocks of ints, one for each edge, `count` ints each. */
struct blocks {
    MPI_Count counts[MAX_EDGES];
    MPI_Aint displs[MAX_EDGES];
    MPI_Datatype types[MAX_EDGES];
};

static struct blocks blocks_of(int count)
{
    struct blocks blocks;

    for (int i = 0; i < MAX_EDGES; i++) {
        blocks.counts[i] = count;
        blocks.displs[i] = (MPI_Aint)i * count * (MPI_Aint)sizeof(int);
        blocks.types[i] = MPI_INT;
    }
    return blocks;
}

static int make(const int *send, int *receive, const struct blocks *blocks,
                struct rsched_mpi_topology *topology, MPI_Request *request)
{
    return rsched_mpi_alltoallw_init(send, blocks->counts, blocks->displs,
                                     blocks->types, receive, blocks->counts,
                                     blocks->displs, blocks->types, topology,
                                     request);
}

static void run(MPI_Request *request)
{
    MPI_Status status;

    MPI_Start(request);
    MPI_Wait(request, &status);
    CHECK(*request != MPI_REQUEST_NULL, "the request is gone");
}

/* Two edges to the right, one to the process itself, and one to nobody. */
static void lists(void)
{
    int left = (world_rank + world_size - 1) % world_size;
    int right = (world_rank + 1) % world_size;
    int sources[] = {left, world_rank, MPI_PROC_NULL, left};
    int destinations[] = {right, MPI_PROC_NULL, right, world_rank};
    int send[2][4 * 3], receive[2][4 * 3], from[4];
    struct blocks blocks = blocks_of(3);
    struct rsched_mpi_topology *topology;
    struct rsched_stats stats;
    MPI_Request request;

    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 4, sources, 4,
                                     destinations, 3, &topology) == 0, "lists");
    CHECK(make(send[0], receive[0], &blocks, topology, &request) == 0, "init");
    rsched_mpi_topology_destroy(topology);
    /* In a ring of one all edges are from and to the process itself, in the
     * order of the lists. */
    from[0] = 0;
    from[1] = world_size == 1 ? 2 : 3;
    from[2] = -1;
    from[3] = world_size == 1 ? 3 : 2;
    for (int epoch = 0; epoch < 6; epoch++) {
        int b = epoch % 2;

        for (int i = 0; i < 12; i++) {
            send[b][i] = world_rank * 10000 + epoch * 100 + i;
            receive[b][i] = -1;
        }
        CHECK(rsched_mpi_rebind(request, send[b], receive[b]) == 0, "rebind");
        run(&request);
        for (int i = 0; i < 12; i++) {
            int edge = i / 3, sender = edge == 1 ? world_rank : left;
            int expected = sender * 10000 + epoch * 100 + from[edge] * 3 + i % 3;

            CHECK(receive[b][i] == (edge == 2 ? -1 : expected),
                  "epoch %d, int %d: %d", epoch, i, receive[b][i]);
        }
    }
    CHECK(rsched_mpi_request_stats(request, &stats) == 0, "statistics");
    CHECK(stats.epochs == 6 && stats.puts == 18 && stats.bytes == 18 * 12,
          "%" PRIu64 " epochs, %" PRIu64 " puts, %" PRIu64 " bytes",
          stats.epochs, stats.puts, stats.bytes);
    MPI_Request_free(&request);
}

/* A Cartesian topology of two processes or one, where both neighbors of a
 * process are the same: block s lands in block s^1. */
static void cartesian(void)
{
    int pair = world_rank / 2, rank, size, periodic = 1, send[2], receive[2];
    struct blocks blocks = blocks_of(1);
    struct rsched_mpi_topology *topology;
    MPI_Request request;
    MPI_Comm two, comm;

    MPI_Comm_split(MPI_COMM_WORLD, pair, 0, &two);
    MPI_Comm_size(two, &size);
    MPI_Cart_create(two, 1, &size, &periodic, 0, &comm);
    MPI_Comm_rank(comm, &rank);
    CHECK(rsched_mpi_topology_from_comm(comm, 0, &topology) == 0, "cart");
    CHECK(make(send, receive, &blocks, topology, &request) == 0, "init");
    MPI_Comm_free(&comm);
    MPI_Comm_free(&two);
    rsched_mpi_topology_destroy(topology);
    send[0] = rank * 10;
    send[1] = rank * 10 + 1;
    run(&request);
    CHECK(receive[0] == (size - 1 - rank) * 10 + 1 &&
              receive[1] == (size - 1 - rank) * 10,
          "received %d and %d", receive[0], receive[1]);
    MPI_Request_free(&request);
}

/* Only those who have neighbors take part; the others do something else. */
static void neighbors_only(void)
{
    struct blocks blocks = blocks_of(1);
    struct rsched_mpi_topology *topology;
    int peer = 1 - world_rank, send = world_rank, receive = -1;
    MPI_Request request;

    if (world_size < 2 || world_rank > 1)
        return;
    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 1, &peer, 1, &peer, 0,
                                     &topology) == 0, "lists");
    CHECK(make(&send, &receive, &blocks, topology, &request) == 0, "init");
    run(&request);
    CHECK(receive == peer, "received %d", receive);
    MPI_Request_free(&request);
    rsched_mpi_topology_destroy(topology);
}

/* Requests of MPI's own calls take other buffers too; with types that the
 * native MPI packs as well. */
static void rebind_native_call(int packed)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    int size = 8, zero = 0, distribution = MPI_DISTRIBUTE_CYCLIC;
    int block = 2, procs = 2, left, right;
    double send[2][16], receive[2][16];
    MPI_Datatype type;
    MPI_Request request;

    if (packed) /* 4 of 8 doubles: 0, 1, 4, 5 */
        MPI_Type_create_darray(2, zero, 1, &size, &distribution, &block, &procs,
                               MPI_ORDER_C, MPI_DOUBLE, &type);
    else
        MPI_Type_vector(2, 2, 4, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    INIT(Neighbor_alltoall)
    (send[0], 1, type, receive[0], 4, MPI_DOUBLE, comm, MPI_INFO_NULL,
     &request);
    MPI_Cart_shift(comm, 0, 1, &left, &right);
    for (int epoch = 0; epoch < 4; epoch++) {
        int b = epoch % 2, second = packed ? 8 : 6; /* extent in doubles */

        for (int i = 0; i < 16; i++) {
            send[b][i] = world_rank * 100 + epoch * 20 + i;
            receive[b][i] = -1;
        }
        CHECK(rsched_mpi_rebind(request, send[b], receive[b]) == 0, "rebind");
        run(&request);
        for (int i = 0; i < 4; i++) {
            int at = i / 2 * 4 + i % 2;

            CHECK(receive[b][i] == left * 100 + epoch * 20 + second + at &&
                      receive[b][4 + i] == right * 100 + epoch * 20 + at,
                  "epoch %d: %g and %g", epoch, receive[b][i],
                  receive[b][4 + i]);
        }
    }
    MPI_Request_free(&request);
    MPI_Type_free(&type);
    MPI_Comm_free(&comm);
}

/* The last error is the whole story. */
static void says(const char *what, const char *why)
{
    const char *text = rsched_last_error();

    CHECK(strncmp(text, what, strlen(what)) == 0 && strstr(text, why) != NULL, "%s", text);
}

static void refused(void)
{
    int self = world_rank, none = world_size, value = 0, got;
    int twice[] = {world_rank, world_rank}, two[2] = {0};
    struct blocks blocks = blocks_of(1), pair = blocks;
    struct rsched_mpi_topology *topology = NULL;
    struct rsched_stats stats;
    uint64_t counter;
    MPI_Request request = MPI_REQUEST_NULL;

    CHECK(rsched_mpi_topology_create(MPI_COMM_NULL, 0, NULL, 0, NULL, 0,
                                     &topology) == RSCHED_EINVAL, "no comm");
    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 1, &none, 0, NULL, 0,
                                     &topology) == RSCHED_EINVAL, "a rank");
    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 0, NULL, 1, NULL, 0,
                                     &topology) == RSCHED_EINVAL, "no list");
    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 0, NULL, 0, NULL, -1,
                                     &topology) == RSCHED_EINVAL, "tag");
    CHECK(rsched_mpi_topology_from_comm(MPI_COMM_WORLD, 0, &topology) ==
              RSCHED_EINVAL, "no topology");
    CHECK(topology == NULL, "set without success");
    says("rsched_mpi_topology_from_comm", "has no topology");
    rsched_mpi_topology_destroy(NULL);
    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 1, &self, 1, &self, 0,
                                     &topology) == 0, "lists");
    blocks.counts[0] = -1;
    CHECK(make(&value, &got, &blocks, topology, &request) == RSCHED_EINVAL,
          "count");
    CHECK(request == MPI_REQUEST_NULL, "set without success");
    CHECK(rsched_mpi_rebind(request, &value, &got) == RSCHED_ENOTSUP, "null");
    blocks.counts[0] = 1;
    blocks.types[0] = too_long_type(); /* nobody looks at the memory */
    CHECK(make(&value, &got, &blocks, topology, &request) == RSCHED_ENOTSUP,
          "too long to be packed");
    MPI_Type_free(&blocks.types[0]);
    blocks.types[0] = MPI_INT;
    CHECK(make(&value, &got, &blocks, topology, &request) == 0, "init");
    MPI_Start(&request);
    CHECK(rsched_mpi_rebind(request, &value, &got) == RSCHED_ESTATE, "active");
    says("rsched_mpi_rebind", "is active");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(rsched_mpi_rebind(request, &value, &got) == 0, "inactive");
    MPI_Request_free(&request);
    rsched_mpi_topology_destroy(topology);
    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 1, twice, 2, twice, 7,
                                     &topology) == 0, "unequal lists");
    CHECK(make(two, &got, &pair, topology, &request) == RSCHED_EMISMATCH,
          "two puts, one receive");
    says("making exchange 0 of the topology with tag 7: ", "2 puts");
    rsched_mpi_topology_destroy(topology);

    MPI_Send_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                  &request);
    CHECK(rsched_mpi_rebind(request, &value, &got) == RSCHED_ENOTSUP &&
              rsched_mpi_request_stats(request, &stats) == RSCHED_ENOTSUP,
          "a request that sends to nobody");
    says("rsched_mpi_request_stats", "no persistent request");
    CHECK(rsched_mpi_counter("nonsense", &counter) == RSCHED_ENAME, "counter");
    says("rsched_mpi_counter", "'nonsense'");
    MPI_Request_free(&request);
}

int main(int argc, char **argv)
{
    struct rsched_mpi_topology *topology;
    int status;

    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 0, NULL, 0, NULL, 0,
                                     &topology) == RSCHED_ENOTSUP,
          "before MPI_Init");
    test_init(&argc, &argv, false);
    for (int cycle = 0; cycle < 5; cycle++) {
        lists();
        cartesian();
        neighbors_only();
        rebind_native_call(cycle % 2);
        refused();
    }
    CHECK(counter("rsched_alltoallw_init.accelerated") ==
              (uint64_t)(world_size >= 2 && world_rank < 2 ? 20 : 15),
          "%" PRIu64 " requests",
          counter("rsched_alltoallw_init.accelerated"));
    CHECK(counter("requests") == 0, "requests are left");
    CHECK(rsched_mpi_topology_create(MPI_COMM_WORLD, 0, NULL, 0, NULL, 0,
                                     &topology) == 0, "no neighbors");
    status = test_fini("api");
    CHECK(rsched_mpi_topology_from_comm(MPI_COMM_WORLD, 0, NULL) == RSCHED_ENOTSUP,
          "after MPI_Finalize");
    says("rsched_mpi_topology_from_comm", "MPI is finalized");
    rsched_mpi_topology_destroy(topology);
    return status;
}
