/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent point-to-point requests around a ring: what the tests of lanes
 * share. */
#ifndef TESTS_MPI_LANES_H
#define TESTS_MPI_LANES_H

#include "tests/mpi/common.h"
#include "tests/mpi/hope.h"

enum { TAGS = 4 };

static int left, right;
static bool uses_lanes;
static int sent[TAGS], got[TAGS]; /* values, by tag */
static MPI_Request sends[TAGS], receives[TAGS];
static int step; /* of what is sent: no value comes twice */

static inline int value(int rank, int tag)
{
    return rank * 1000000 + step * 10 + tag;
}

static inline void fill(void)
{
    step++;
    for (int tag = 0; tag < TAGS; tag++) {
        sent[tag] = value(world_rank, tag);
        got[tag] = -1;
    }
}

static inline void verify(int tag)
{
    CHECK(got[tag] == value(left, tag), "tag %d: %d, not %d", tag, got[tag],
          value(left, tag));
}

static inline void start_all(void)
{
    fill();
    MPI_Startall(TAGS, receives);
    MPI_Startall(TAGS, sends);
}

static inline void finish_all(void)
{
    MPI_Waitall(TAGS, receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(TAGS, sends, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < TAGS; tag++)
        verify(tag);
}

/* Until all lanes of all processes are in an incarnation. */
static inline void promote(void)
{
    for (struct hope hope = {0};;) {
        uint64_t s = counter("lane_sends"), r = counter("lane_receives");

        start_all();
        finish_all();
        if (all_have(&hope, !uses_lanes ||
                                (counter("lane_sends") == s + TAGS &&
                                 counter("lane_receives") == r + TAGS)))
            return;
        go_on(&hope, "no incarnation");
    }
}

static inline void make_send(int tag)
{
    MPI_Send_init(&sent[tag], 1, MPI_INT, right, tag, MPI_COMM_WORLD,
                  &sends[tag]);
}

static inline void make_receive(int tag)
{
    MPI_Recv_init(&got[tag], 1, MPI_INT, left, tag, MPI_COMM_WORLD,
                  &receives[tag]);
}

static inline void lanes_init(void)
{
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    for (int tag = 0; tag < TAGS; tag++) {
        make_send(tag);
        make_receive(tag);
    }
}

static inline void lanes_fini(void)
{
    for (int tag = 0; tag < TAGS; tag++) {
        MPI_Request_free(&sends[tag]);
        MPI_Request_free(&receives[tag]);
    }
}

#endif
