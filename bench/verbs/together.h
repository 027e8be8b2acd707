/* SPDX-License-Identifier: BSD-3-Clause */
/* A start of both ranks at once. Who leaves a barrier does so some milliseconds
 * after the other one, on emulated processors, and would wait for him as long. */
#ifndef BENCH_VERBS_TOGETHER_H
#define BENCH_VERBS_TOGETHER_H

#include <mpi.h>
#include <stdint.h>
#include <time.h>

/* The same clock on both simulated hosts. */
static inline uint64_t together_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/** Wait until a time that rank 0 has chosen. @return it, ns */
static inline uint64_t together_start(void)
{
    enum { AHEAD_NS = 20000000 };

    uint64_t start = together_now() + AHEAD_NS;
    struct timespec until;

    MPI_Bcast(&start, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    until = (struct timespec){.tv_sec = (time_t)(start / 1000000000),
                              .tv_nsec = (long)(start % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    return start;
}

#endif
