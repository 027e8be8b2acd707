/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers of lanes that nobody has use for: they neither pile up in the MPI library of
 * a process that reads none, nor in one that does, and others are made beside them.
 *
 * offers [--native] */
#include "tests/mpi/common.h"
#include "tests/mpi/hope.h"

enum { TAGS = 1600, STARTS = 8, FEW = 3, LAST_TAG = TAGS, UNREAD = 16, KEPT = 1024 };

static bool uses_lanes;

/* Rank 0 sends by persistent requests, each of which it frees. */
static void send(MPI_Comm comm, int tag, int starts)
{
    MPI_Request request;
    int value = 0;

    MPI_Send_init(&value, 1, MPI_INT, 1, tag, comm, &request);
    for (int i = 0; i < starts; i++) {
        value = tag + i;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
}

/* Rank 1 receives by plain calls. */
static void receive(MPI_Comm comm, int tag, int starts)
{
    for (int i = 0; i < starts; i++) {
        int value = -1;

        MPI_Recv(&value, 1, MPI_INT, 0, tag, comm, MPI_STATUS_IGNORE);
        CHECK(value == tag + i, "tag %d: %d", tag, value);
    }
}

static void go(MPI_Comm comm, int tag, int starts)
{
    (world_rank == 0 ? send : receive)(comm, tag, starts);
}

/* Nobody offers lanes of a few messages. */
static void case_few(void)
{
    for (int tag = 0; tag < 10; tag++)
        go(MPI_COMM_WORLD, tag, FEW);
    CHECK(counter("lane_offers") == 0, "%" PRIu64 " offers",
          counter("lane_offers"));
}

/* Rank 1 has no persistent receive, and looks for no notes. */
static void case_unread(MPI_Comm comm)
{
    for (int tag = 0; tag < TAGS; tag++)
        go(comm, tag, STARTS);
    CHECK(!uses_lanes ||
              counter("lane_offers") == (world_rank == 0 ? UNREAD : 0),
          "%" PRIu64 " offers", counter("lane_offers"));
}

/* Both have persistent requests for one lane, which is used in the end. */
static MPI_Request request;
static int value;

static void open_lane(MPI_Comm comm)
{
    struct hope hope = {0};

    if (world_rank == 0)
        MPI_Send_init(&value, 1, MPI_INT, 1, LAST_TAG, comm, &request);
    else
        MPI_Recv_init(&value, 1, MPI_INT, 0, LAST_TAG, comm, &request);
    for (int i = 0;; i++) {
        const char *name = world_rank == 0 ? "lane_sends" : "lane_receives";
        uint64_t before = counter(name);

        value = world_rank == 0 ? i : -1;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(value == i, "%d, not %d", value, i);
        if (all_have(&hope, !uses_lanes || counter(name) == before + 1))
            return;
        go_on(&hope, "no incarnation");
    }
}

/* A receive that never joins makes its process look for notes. */
static void look(void)
{
    MPI_Request none;
    int nothing;

    MPI_Recv_init(&nothing, 1, MPI_INT, world_rank, LAST_TAG + 1,
                  MPI_COMM_WORLD, &none);
    MPI_Start(&none);
    MPI_Send(&world_rank, 1, MPI_INT, world_rank, LAST_TAG + 1, MPI_COMM_WORLD);
    MPI_Wait(&none, MPI_STATUS_IGNORE);
    MPI_Request_free(&none);
}

/* Rank 1 reads them, and keeps some for receives that it may have later. */
static void case_kept(MPI_Comm comm)
{
    uint64_t most = 0;

    for (int tag = 0; tag < TAGS; tag++) {
        go(comm, tag, STARTS);
        if (tag % 4 == 0) /* so that neither is far ahead */
            PMPI_Barrier(MPI_COMM_WORLD);
        look();
        if (counter("offers_kept") > most)
            most = counter("offers_kept");
    }
    if (!uses_lanes)
        return;
    CHECK(most <= KEPT, "%" PRIu64 " offers kept", most);
    CHECK(world_rank == 0 || most > UNREAD, "%" PRIu64 " offers kept", most);
    CHECK(world_rank != 0 || counter("lane_offers") > KEPT,
          "%" PRIu64 " offers", counter("lane_offers"));
}

/* Its offers go with a communicator. */
static void free_comm(MPI_Comm *comm)
{
    MPI_Barrier(MPI_COMM_WORLD);
    look();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(comm);
    CHECK(counter("offers_kept") == 0, "%" PRIu64 " offers kept",
          counter("offers_kept"));
}

int main(int argc, char **argv)
{
    bool native = has_option(argc, argv, "--native");
    MPI_Comm comm;

    test_init(&argc, &argv, native);
    uses_lanes = !native;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    case_few();
    case_unread(comm);
    open_lane(comm);
    case_kept(comm);
    MPI_Request_free(&request);
    free_comm(&comm);
    return test_fini("offers");
}
