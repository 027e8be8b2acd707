/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process takes of a core, and what it takes to sleep, which on some virtual machines is
 * more than a wait may take besides. */
#ifndef TESTS_BASE_SLEEPS_H
#define TESTS_BASE_SLEEPS_H

#include <sys/resource.h>
#include <time.h>

/* All threads count. */
static inline double cpu_seconds(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* The part of a core that sleeping takes here and now, for as long each time as waits do. */
static inline double bare_sleeps(void)
{
    enum { SLEEPS = 100 };
    const struct timespec slice = {.tv_nsec = 4000000};
    double before = cpu_seconds();

    for (int i = 0; i < SLEEPS; i++)
        nanosleep(&slice, NULL);
    return (cpu_seconds() - before) / (SLEEPS * 0.004);
}

#endif
