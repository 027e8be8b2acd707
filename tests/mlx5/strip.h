/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks in a row, each with a strip of a grid (examples/jacobi-device) whose edge
 * rows go to its neighbors by an exchange that kernels start, over a softnic.
 */
#ifndef TESTS_STRIP_H
#define TESTS_STRIP_H

#include "engines/mlx5/gpu.h"
#include "examples/jacobi-device/jacobi.h"
#include "tests/mlx5/pair.h"

enum { STRIP_MAX_RANKS = 4, STRIP_MAX_PUTS = 64 };

struct strip_options {
    struct rs_softnic_options nic;
    uint32_t ranks;
    uint32_t rows, width; /* of a rank */
    uint32_t puts;        /* that an edge row is sent in */
    uint32_t odd_puts;    /* the same in odd epochs, 0: as in even ones */
    uint32_t blocks;      /* of each ring */
    bool proxy;
};

struct strip_rank {
    struct jacobi jacobi;
    double *memory;      /* both grids */
    uint64_t arrived[2]; /* from above, from below */
    uint32_t memory_key, arrived_key;
    uint32_t num_lanes;
    bool has[2];         /* a neighbor above, below */
    struct rs_softnic_qp *qps[2];
    struct rs_mlx5_memory queues[2];
    struct rs_gpu_exchange *exchange;
    struct rs_gpu_proxy *proxy; /* made in any case; used if asked for */
};

struct strip {
    struct strip_options options;
    struct rs_softnic *nic;
    struct strip_rank ranks[STRIP_MAX_RANKS];
};

void strip_init(struct strip *strip, const struct strip_options *options);
void strip_fini(struct strip *strip);

/** Boundary and initial values, which depend on the place in the whole grid. */
void strip_fill(struct strip *strip);

/** The whole grid after so many steps, by one processor without any exchange.
 * @return the number of values of the ranks' strips that differ */
uint64_t strip_compare(const struct strip *strip, uint64_t steps);

/** How far a rank's WQE is from block to block: blocks of an epoch's list. */
uint32_t strip_list_blocks(const struct strip *strip, uint32_t rank);

#endif
