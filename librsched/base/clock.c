/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/clock.h"

time_t rs_clock_began;

/* Before other constructors, which may ask. */
static void __attribute__((constructor(101))) begin(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    rs_clock_began = t.tv_sec - 1; /* 0 is no time */
}
