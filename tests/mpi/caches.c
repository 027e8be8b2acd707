/* SPDX-License-Identifier: BSD-3-Clause */
/* Long persistent messages are copied past the caches if together they fill them,
 * by the costs of caches.yaml: all of a step, not one that is alone. Those that are not are
 * asked for in advance (RSCHED_PREFETCH=yes), where the processor can.
 *
 * caches [--native] */
#include "engines/common/long_copy.h"
#include "tests/mpi/hope.h"

enum { MESSAGES = 4, INTS = 25000 /* 100 kB; 300 kB are many */ };

static int *out[MESSAGES], *in[MESSAGES];
static MPI_Request requests[2 * MESSAGES];
static int peer;

static int value(int rank, int round, int message, int i)
{
    return rank * 1000000 + round * 1000 + message * 100 + i % 89;
}

/* The first so many, together. @return whether all were pulled */
static bool exchange(int messages, int round)
{
    uint64_t before = counter("lane_mapped");

    for (int m = 0; m < messages; m++) {
        for (int i = 0; i < INTS; i++) {
            out[m][i] = value(world_rank, round, m, i);
            in[m][i] = -1;
        }
    }
    MPI_Startall(2 * messages, requests);
    MPI_Waitall(2 * messages, requests, MPI_STATUSES_IGNORE);
    for (int m = 0; m < messages; m++) {
        for (int i = 0; i < INTS; i++)
            CHECK(in[m][i] == value(peer, round, m, i),
                  "round %d, message %d, number %d: %d", round, m, i, in[m][i]);
    }
    return counter("lane_mapped") == before + (uint64_t)messages;
}

static bool is_prefetched(bool past)
{
    enum rs_copy_prefetch how = rs_copy_prefetch();

    return how == RS_PREFETCH_IN_TURN || (how == RS_PREFETCH_AHEAD && !past);
}

/* Rounds in which all are pulled, one behind the other. The first one of them may have
 * others before it. */
static void settle(int messages, bool past)
{
    enum { IN_A_ROW = 3 };
    struct hope hope = {0};
    int row = 0;

    for (int round = 0;; round++) {
        uint64_t before = counter("lane_nontemporal");
        uint64_t asked = counter("lane_prefetched");
        bool pulled = exchange(messages, round);
        uint64_t more = counter("lane_nontemporal") - before;

        asked = counter("lane_prefetched") - asked;
        row = pulled ? row + 1 : 0;
        if (row > 1) {
            CHECK(more == (past ? (uint64_t)messages : 0),
                  "%d messages, of which %d past the caches", messages, (int)more);
            CHECK(asked == (is_prefetched(past) ? (uint64_t)messages : 0),
                  "%d messages, of which %d with more lines under way", messages, (int)asked);
        }
        if (all_have(&hope, !is_accelerated() || row >= IN_A_ROW))
            return;
        go_on(&hope, "never pulled");
    }
}

int main(int argc, char **argv)
{
    MPI_Comm comm;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    CHECK(world_size == 2, "two processes");
    peer = 1 - world_rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int m = 0; m < MESSAGES; m++) {
        MPI_Alloc_mem(INTS * sizeof(int), MPI_INFO_NULL, &out[m]);
        MPI_Alloc_mem(INTS * sizeof(int), MPI_INFO_NULL, &in[m]);
        MPI_Recv_init(in[m], INTS, MPI_INT, peer, m, comm, &requests[2 * m]);
        MPI_Send_init(out[m], INTS, MPI_INT, peer, m, comm, &requests[2 * m + 1]);
    }
    settle(MESSAGES, true);
    settle(MESSAGES / 2, false);
    settle(1, false);
    settle(MESSAGES, true);
    for (int m = 0; m < MESSAGES; m++) {
        MPI_Request_free(&requests[2 * m]);
        MPI_Request_free(&requests[2 * m + 1]);
        MPI_Free_mem(out[m]);
        MPI_Free_mem(in[m]);
    }
    MPI_Comm_free(&comm);
    return test_fini("caches");
}
