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

static inline void ring_free(struct ring *ring)
{
    free(ring->send);
    free(ring->receive);
}

#endif
