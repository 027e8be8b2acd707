/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of processes and a persistent exchange on it, for tests of what
 * happens around an exchange rather than in it. */
#ifndef TESTS_MPI_RING_H
#define TESTS_MPI_RING_H

#include "tests/mpi/common.h"

struct ring {
    int num; /* doubles for each of the two neighbors */
    double *send, *receive; /* left's or to the left first, then right */
    int left, right;
    MPI_Request request;
};

static inline MPI_Comm ring_comm(MPI_Comm parent)
{
    int size, periodic = 1;
    MPI_Comm comm;

    MPI_Comm_size(parent, &size);
    MPI_Cart_create(parent, 1, &size, &periodic, 0, &comm);
    return comm;
}

static inline void ring_create(struct ring *ring, MPI_Comm comm, int num)
{
    ring->num = num;
    ring->send = allocate(2 * (size_t)num * sizeof(double));
    ring->receive = allocate(2 * (size_t)num * sizeof(double));
    MPI_Cart_shift(comm, 0, 1, &ring->left, &ring->right);
    INIT(Neighbor_alltoall)
    (ring->send, num, MPI_DOUBLE, ring->receive, num, MPI_DOUBLE, comm,
     MPI_INFO_NULL, &ring->request);
}

/* What `from` sends in an epoch to its left (0) or right (1). */
static inline double ring_value(int from, int epoch, int way, int i)
{
    return from * 1e6 + epoch * 1e3 + way * 500 + i % 500;
}

static inline void ring_fill(struct ring *ring, int rank, int epoch)
{
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < ring->num; i++)
            ring->send[way * ring->num + i] = ring_value(rank, epoch, way, i);
    }
    for (int i = 0; i < 2 * ring->num; i++)
        ring->receive[i] = -1;
}

/* What comes from the left was sent to the right. */
static inline void ring_verify(const struct ring *ring, int epoch)
{
    for (int way = 0; way < 2; way++) {
        int from = way == 0 ? ring->left : ring->right;

        for (int i = 0; i < ring->num; i++)
            CHECK(ring->receive[way * ring->num + i] ==
                      ring_value(from, epoch, 1 - way, i),
                  "epoch %d, from %d, element %d of %d: %g", epoch, from, i,
                  ring->num, ring->receive[way * ring->num + i]);
    }
}

/* Persistent messages around the ring, on any communicator: 20 times, or until
 * they go through lanes everywhere. */
static inline void ring_messages(MPI_Comm comm, bool lanes)
{
    enum { MOST = 4000, FEW = 20 };
    uint64_t sends = counter("lane_sends"), receives = counter("lane_receives");
    int rank, size, sent, got, all = 0;
    MPI_Request requests[2];

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Recv_init(&got, 1, MPI_INT, (rank + size - 1) % size, 5, comm,
                  &requests[0]);
    MPI_Send_init(&sent, 1, MPI_INT, (rank + 1) % size, 5, comm, &requests[1]);
    for (int epoch = 0; !all; epoch++) {
        int good = lanes ? counter("lane_sends") > sends &&
                               counter("lane_receives") > receives
                         : epoch >= FEW;

        CHECK(epoch < MOST, "no message through a lane");
        sent = rank * MOST + epoch;
        got = -1;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(got == (rank + size - 1) % size * MOST + epoch,
              "epoch %d: %d", epoch, got);
        /* By this name, since tools count the calls of the other. */
        PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, comm);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static inline void ring_free(struct ring *ring)
{
    free(ring->send);
    free(ring->receive);
}

#endif
