/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * EXCHANGE: the halo of a field, moved by one MPI neighborhood collective.
 *
 * The messages are SCALE-LES3's (14 in each exchange): one to the west and one
 * to the east, and one for each of the two halo rows in the other six
 * directions. The communicator's graph has an edge for each message, so there
 * are two or more edges to the same process, and edges to the process itself
 * where the process grid is one wide.
 */
#ifndef HALO_EXCHANGE_H
#define HALO_EXCHANGE_H

#include <stddef.h>

#include <mpi.h>

#include "field.h"

enum { NUM_MESSAGES = 14 };

enum call {
    CALL_PERSISTENT, /* MPI_Neighbor_alltoallw_init, started again and again */
    CALL_BLOCKING,   /* MPI_Neighbor_alltoallw */
};

struct exchange {
    enum call call;
    MPI_Comm comm;
    MPI_Request request;
    void *buffer;
    int counts[NUM_MESSAGES];
    MPI_Aint send_at[NUM_MESSAGES], receive_at[NUM_MESSAGES];
    MPI_Datatype types[NUM_MESSAGES];
};

/** The process's place in a px x py periodic grid of processes; rank 0 is in
 * the north-west. */
struct place {
    int px, py;
    int x, y;
};

/** Collective over MPI_COMM_WORLD. */
void exchange_init(struct exchange *e, const struct field *f,
                   const struct place *place, enum call call);
void exchange_fini(struct exchange *e);

/** Move the halo; collective among neighbors. */
void exchange_run(struct exchange *e);

/** Bytes that one process sends in an exchange. */
size_t exchange_bytes(const struct exchange *e);

#endif
