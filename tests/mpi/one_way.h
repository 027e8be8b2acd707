/* SPDX-License-Identifier: BSD-3-Clause */
/* ONE WAY: lanes from one process to another, in an incarnation. Each case has a
 * communicator of its own, so no stop of another one keeps them from being used,
 * and is tried again until they were. */
#ifndef RS_TESTS_MPI_ONE_WAY_H
#define RS_TESTS_MPI_ONE_WAY_H

#include "tests/mpi/hope.h"

enum { MOST_REQUESTS = 8, MOST_COMMS = 1500, ENOUGH = 400 /* rounds */ };

static bool uses_lanes, sends, receives; /* this process */
static int sender, receiver = 0;
static MPI_Comm comm, comms[MOST_COMMS];
static int num_comms;

/* At each side; several that have a tag are on one lane. */
static int num_requests, tags[MOST_REQUESTS], lengths[MOST_REQUESTS] /* ints */;
static MPI_Request out_request[MOST_REQUESTS], in_request[MOST_REQUESTS];
static int *out[MOST_REQUESTS], *in[MOST_REQUESTS];
static int sequence; /* of messages; all processes count */

static inline int value(int i)
{
    return sequence * 10 + i;
}

/* The last process sends to the first one, which may be the same. */
static inline void one_way_init(bool accelerated)
{
    uses_lanes = accelerated;
    sender = world_size - 1;
    sends = world_rank == sender;
    receives = world_rank == receiver;
}

static inline void one_way_add(int tag, int length)
{
    CHECK(num_requests < MOST_REQUESTS, "too many requests");
    tags[num_requests] = tag;
    lengths[num_requests] = length;
    out[num_requests] = allocate((size_t)length * sizeof(int));
    in[num_requests++] = allocate((size_t)length * sizeof(int));
}

/* Those on which receives were posted are freed last: their handles would come
 * again, and lanes would be covered there. */
static inline void one_way_fini(void)
{
    CHECK(counter("requests") == 0, "requests are left");
    while (num_comms > 0)
        MPI_Comm_free(&comms[--num_comms]);
    while (num_requests > 0) {
        free(out[--num_requests]);
        free(in[num_requests]);
    }
}

/* ---- lanes ---- */

static inline void lanes_init(void)
{
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < num_requests; i++) {
        if (sends)
            MPI_Send_init(out[i], lengths[i], MPI_INT, receiver, tags[i], comm,
                          &out_request[i]);
        if (receives)
            MPI_Recv_init(in[i], lengths[i], MPI_INT, sender, tags[i], comm,
                          &in_request[i]);
    }
}

static inline void lanes_fini(bool keep)
{
    for (int i = 0; i < num_requests; i++) {
        if (sends)
            MPI_Request_free(&out_request[i]);
        if (receives)
            MPI_Request_free(&in_request[i]);
    }
    if (!keep) {
        MPI_Comm_free(&comm);
        return;
    }
    CHECK(num_comms < MOST_COMMS, "too many communicators");
    comms[num_comms++] = comm;
}

static inline uint64_t in_lanes(void)
{
    return counter("lane_sends") + counter("lane_receives");
}

/* The next message of each request. */
static inline void fill(void)
{
    sequence++;
    for (int i = 0; i < num_requests; i++) {
        for (int k = 0; k < lengths[i]; k++) {
            out[i][k] = value(i) + k;
            in[i][k] = -1;
        }
    }
}

static inline void verify(int i)
{
    for (int k = 0; k < lengths[i]; k++)
        CHECK(in[i][k] == value(i) + k, "message %d, number %d: %d, not %d", i,
              k, in[i][k], value(i) + k);
}

/* Until they are in an incarnation. What was posted on other communicators may be
 * taken for something that covers them: then they never are. */
static inline bool lanes_open(void)
{
    struct hope hope = {0};

    for (int round = 0; round < ENOUGH; round++) {
        uint64_t before = in_lanes();
        int all = (sends + receives) * num_requests;

        fill();
        if (receives)
            MPI_Startall(num_requests, in_request);
        if (sends) {
            MPI_Startall(num_requests, out_request);
            MPI_Waitall(num_requests, out_request, MPI_STATUSES_IGNORE);
        }
        if (receives)
            MPI_Waitall(num_requests, in_request, MPI_STATUSES_IGNORE);
        for (int i = 0; i < num_requests && receives; i++)
            verify(i);
        if (all_have(&hope, !uses_lanes || in_lanes() == before + (uint64_t)all))
            return true;
    }
    return false;
}

static inline void have_lanes(void)
{
    struct hope hope = {0};

    for (lanes_init(); !lanes_open(); lanes_init()) {
        go_on(&hope, "no incarnation");
        lanes_fini(true);
    }
}

/* ---- whether they were used ---- */

/* Messages in lanes, and ends of incarnations. */
static inline uint64_t look(void)
{
    return in_lanes() + counter("stops");
}

/* Whether lanes were in an incarnation at that look: something has gone through
 * them since, or a process has ended it. */
static inline bool were_open(uint64_t before)
{
    uint64_t more = look() - before;

    PMPI_Allreduce(MPI_IN_PLACE, &more, 1, MPI_UINT64_T, MPI_SUM,
                   MPI_COMM_WORLD);
    return !uses_lanes || more > 0;
}

#endif
