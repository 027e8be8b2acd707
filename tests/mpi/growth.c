/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes are made for the first message, and later ones are longer: after a
 * while these go through slots, too, and are not read out of the sender's
 * memory; and so do shorter ones after them.
 *
 * growth [--native] */
#include "tests/mpi/hope.h"

enum { MOST = 1024, LANES = 3 };

static int left, right;
static int out[LANES][MOST], in[LANES][MOST];
static MPI_Request requests[2 * LANES];

static int value(int rank, int round, int tag, int i)
{
    return rank * 100000 + round * 100 + tag * 10 + i % 7;
}

static void exchange(int round, int ints)
{
    for (int tag = 0; tag < LANES; tag++) {
        for (int i = 0; i < ints; i++)
            out[tag][i] = value(world_rank, round, tag, i);
    }
    MPI_Startall(2 * LANES, requests);
    MPI_Waitall(2 * LANES, requests, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < LANES; tag++) {
        for (int i = 0; i < ints; i++)
            CHECK(in[tag][i] == value(left, round, tag, i),
                  "round %d, tag %d, %d of %d ints: %d", round, tag, i, ints,
                  in[tag][i]);
    }
}

/* Until all of a round is in slots. */
static void settle(int ints)
{
    struct hope hope = {0};

    for (int round = 0;; round++) {
        uint64_t receives = counter("lane_receives");
        uint64_t pulls = counter("lane_pulls");
        int good, all;

        exchange(round, ints);
        good = !is_accelerated() ||
               (counter("lane_receives") == receives + LANES &&
                counter("lane_pulls") == pulls);
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (all)
            return;
        go_on(&hope, "not through slots");
    }
}

int main(int argc, char **argv)
{
    static const int ints[] = {2, 16, 700, 40, MOST};
    MPI_Comm comm;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (size_t k = 0; k < sizeof(ints) / sizeof(ints[0]); k++) {
        for (int tag = 0; tag < LANES; tag++) {
            MPI_Recv_init(in[tag], ints[k], MPI_INT, left, tag, comm,
                          &requests[tag]);
            MPI_Send_init(out[tag], ints[k], MPI_INT, right, tag, comm,
                          &requests[LANES + tag]);
        }
        settle(ints[k]);
        for (int i = 0; i < 2 * LANES; i++)
            MPI_Request_free(&requests[i]);
    }
    MPI_Comm_free(&comm);
    return test_fini("growth");
}
