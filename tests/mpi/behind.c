/* SPDX-License-Identifier: BSD-3-Clause */
/* A long message of the native MPI goes on behind exchanges that are complete whenever the
 * process asks: rank 0 is late in each step, so it never waits, and rank 1 tells by the
 * exchange when its long send is over. Natively that takes some ten steps.
 *
 * behind [--native] */
#include <unistd.h>

#include "tests/mpi/common.h"

enum {
    LONG = 4 << 20,
    LATE_US = 2000,
    WARM = 2000, /* exchanges: the lanes have opened */
    MOST = 500, /* steps */
};

static int out[1], in[1];
static MPI_Request requests[2];
static MPI_Comm ring;

static void begin_messages(void)
{
    MPI_Recv_init(in, 1, MPI_INT, 1 - world_rank, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(out, 1, MPI_INT, 1 - world_rank, 1, MPI_COMM_WORLD, &requests[1]);
}

static void exchange_messages(bool late)
{
    MPI_Startall(2, requests);
    if (late)
        usleep(LATE_US);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* One after the other. */
static void exchange_each(bool late)
{
    MPI_Start(&requests[0]);
    MPI_Start(&requests[1]);
    if (late)
        usleep(LATE_US);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
}

static void end_messages(void)
{
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void nothing(void) {}

static void exchange_at_once(bool late)
{
    if (late)
        usleep(LATE_US);
    MPI_Neighbor_allgather(out, 1, MPI_INT, in, 1, MPI_INT, ring);
}

static const struct kind {
    const char *name, *counter;
    void (*begin)(void);
    void (*exchange)(bool late);
    void (*end)(void);
} kinds[] = {
    {"messages", "lane_sends", begin_messages, exchange_messages, end_messages},
    {"messages, one by one", "lane_sends", begin_messages, exchange_each, end_messages},
    {"a collective", "neighbor_allgather.accelerated", nothing, exchange_at_once, nothing},
};

/* The same number of exchanges in both. */
static int run(const struct kind *kind)
{
    static char memory[LONG];
    uint64_t before = is_accelerated() ? counter(kind->counter) : 0;
    MPI_Request request;
    int over = world_rank == 0, steps;

    kind->begin();
    for (int i = 0; i < WARM; i++)
        kind->exchange(false);
    if (world_rank == 0)
        MPI_Irecv(memory, LONG, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request);
    for (int i = 0; i < WARM; i++) /* it is posted by then */
        kind->exchange(false);
    if (world_rank == 1)
        MPI_Isend(memory, LONG, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &request);
    out[0] = 0;
    for (steps = 0; steps < MOST; steps++) {
        kind->exchange(world_rank == 0);
        if (world_rank == 0 ? in[0] : out[0])
            break;
        if (!over)
            MPI_Test(&request, &over, MPI_STATUS_IGNORE);
        out[0] = world_rank == 1 && over;
    }
    CHECK(steps < MOST, "%s: not over after %d steps", kind->name, steps);
    if (is_accelerated())
        CHECK(counter(kind->counter) - before >= WARM, "%s: %" PRIu64 " accelerated",
              kind->name, counter(kind->counter) - before);
    if (world_rank == 0 || !over)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    out[0] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    kind->end();
    return steps;
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, (int[]){1 - world_rank},
                                   MPI_UNWEIGHTED, 1, (int[]){1 - world_rank},
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        int steps = run(&kinds[k]);

        if (world_rank == 0)
            printf("%s: %d steps\n", kinds[k].name, steps);
    }
    MPI_Comm_free(&ring);
    return test_fini("behind");
}
