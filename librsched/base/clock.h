/* SPDX-License-Identifier: BSD-3-Clause */
/* A monotonic clock in picoseconds. It begins with the process, since the kernel's, which
 * begins with the node, is past 2^64 ps after 213 days. */
#ifndef RS_BASE_CLOCK_H
#define RS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define RS_PS_PER_NS 1000u
#define RS_PS_PER_S 1000000000000u

static inline struct timespec rs_clock_timespec(uint64_t ps)
{
    return (struct timespec){
        .tv_sec = (time_t)(ps / RS_PS_PER_S),
        .tv_nsec = (long)(ps % RS_PS_PER_S / RS_PS_PER_NS),
    };
}

extern time_t rs_clock_began; /* seconds of the kernel's clock */

static inline uint64_t rs_clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)(t.tv_sec - rs_clock_began) * RS_PS_PER_S +
           (uint64_t)t.tv_nsec * RS_PS_PER_NS;
}

/** So much later than now; UINT64_MAX, which never comes, if that is beyond the clock. */
static inline uint64_t rs_clock_after(uint64_t ps)
{
    uint64_t now = rs_clock_now();

    return ps < UINT64_MAX - now ? now + ps : UINT64_MAX;
}

/** So much later than now, by the kernel's clock. */
static inline struct timespec rs_clock_until(uint64_t ps)
{
    struct timespec t, after = rs_clock_timespec(ps);
    const long second_ns = 1000000000;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += after.tv_sec;
    t.tv_nsec += after.tv_nsec;
    if (t.tv_nsec >= second_ns) {
        t.tv_sec++;
        t.tv_nsec -= second_ns;
    }
    return t;
}

static inline void rs_clock_sleep(uint64_t ps)
{
    struct timespec rest = rs_clock_timespec(ps);

    while (nanosleep(&rest, &rest) != 0)
        ;
}

#endif
