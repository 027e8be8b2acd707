/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * COUNTERS: what rsched's MPI backend says about this program, if it is there.
 */
#ifndef HALO_COUNTERS_H
#define HALO_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

/** Sums over all processes. */
struct counters {
    bool loaded; /* the backend, in every process; else all are 0 */
    uint64_t accelerated, native; /* neighborhood calls or requests */
    uint64_t edges, bytes;        /* that rsched's exchanges have, moved */
};

/** Collective over MPI_COMM_WORLD. */
struct counters counters_read(void);

#endif
