/* SPDX-License-Identifier: BSD-3-Clause */
/* A start of several at a time that all of them know, on emulated processors: who
 * leaves a barrier does so some milliseconds after the other one, and who sleeps
 * until the time comes wakes up to 6 ms after it (traced). So they sleep for less,
 * and look at the clock until it has come: nothing is under way meanwhile that
 * needs the processors. */
#ifndef BENCH_VERBS_START_H
#define BENCH_VERBS_START_H

#include <stdint.h>
#include <time.h>

/* How far ahead a start is put, and how long before it all are awake. */
enum { START_AHEAD_NS = 25000000, START_AWAKE_NS = 10000000 };

/** The same clock on all simulated hosts. @return ns */
static inline uint64_t start_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/** Sleep until that time, or some milliseconds longer. */
static inline void start_sleep(uint64_t until)
{
    const struct timespec time = {.tv_sec = (time_t)(until / 1000000000),
                                  .tv_nsec = (long)(until % 1000000000)};

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

/** Return at that time, which is START_AHEAD_NS ahead, more or less. */
static inline void start_wait(uint64_t start)
{
    start_sleep(start - START_AWAKE_NS);
    while (start_clock() < start)
        continue;
}

#endif
