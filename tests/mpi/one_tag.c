/* SPDX-License-Identifier: BSD-3-Clause */
/* Many messages of one tag are started in one go: the last one tells that all are matched (O1 of
 * docs/persistent.md), and the lane gets slots for all of them (G1). */
#include "tests/mpi/hope.h"

enum { MOST = 100, LONG = 2048 };

static int left, right;
static int out[MOST][LONG], in[MOST][LONG];
static MPI_Request sends[MOST], receives[MOST];

static int value(int rank, int step, int i)
{
    return rank * 10000000 + step * MOST + i;
}

static void go(int num, int step, int ints)
{
    for (int i = 0; i < num; i++) {
        out[i][0] = out[i][ints - 1] = value(world_rank, step, i);
        in[i][0] = in[i][ints - 1] = -1;
    }
    MPI_Startall(num, receives);
    MPI_Startall(num, sends);
    MPI_Waitall(num, receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(num, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < num; i++)
        CHECK(in[i][0] == value(left, step, i) && in[i][ints - 1] == value(left, step, i),
              "step %d, %d of %d: %d", step, i, num, in[i][0]);
}

/* So many, and in every other go so many others, until all go through lanes. */
static void are_in_lanes(int num, int other, int ints)
{
    struct hope hope = {0};
    uint64_t s, r;
    int step = 0;

    for (int i = 0; i < MOST; i++) {
        MPI_Recv_init(in[i], ints, MPI_INT, left, 0, MPI_COMM_WORLD, &receives[i]);
        MPI_Send_init(out[i], ints, MPI_INT, right, 0, MPI_COMM_WORLD, &sends[i]);
    }
    for (;;) {
        s = counter("lane_sends");
        r = counter("lane_receives");
        go(num, step++, ints);
        go(other, step++, ints);
        if (all_have(&hope, !is_accelerated() ||
                                (counter("lane_sends") == s + (uint64_t)(num + other) &&
                                 counter("lane_receives") == r + (uint64_t)(num + other))))
            break;
        go_on(&hope, "not in lanes");
    }
    for (int i = 0; i < MOST; i++) {
        MPI_Request_free(&sends[i]);
        MPI_Request_free(&receives[i]);
    }
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, false);
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    are_in_lanes(2, 2, 1);
    are_in_lanes(26, 26, 1);
    are_in_lanes(MOST, MOST, 1);
    are_in_lanes(3, 5, 1);
    are_in_lanes(26, 1, LONG);
    return test_fini("one_tag");
}
