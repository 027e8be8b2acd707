/* SPDX-License-Identifier: BSD-3-Clause */
/* A start of both ranks at once. */
#ifndef BENCH_VERBS_TOGETHER_H
#define BENCH_VERBS_TOGETHER_H

#include <mpi.h>

#include "bench/verbs/start.h"

/** Wait until a time that rank 0 has chosen. @return it, ns */
static inline uint64_t together_start(void)
{
    uint64_t start = start_clock() + START_AHEAD_NS;

    MPI_Bcast(&start, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    start_wait(start);
    return start;
}

#endif
