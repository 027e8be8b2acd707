/* SPDX-License-Identifier: BSD-3-Clause */
/* The monotonic clock in picoseconds. */
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

static inline uint64_t rs_clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RS_PS_PER_S +
           (uint64_t)t.tv_nsec * RS_PS_PER_NS;
}

static inline void rs_clock_sleep(uint64_t ps)
{
    struct timespec rest = rs_clock_timespec(ps);

    while (nanosleep(&rest, &rest) != 0)
        ;
}

#endif
