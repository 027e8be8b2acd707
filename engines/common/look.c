/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/look.h"

#include "librsched/base/clock.h"

/* The first look while asleep, and the longest time between two. */
#define FIRST_LOOK_PS (20 * UINT64_C(1000000))
#define LAST_LOOK_PS (500 * UINT64_C(1000000))

void rs_look_until(uint64_t limit_ps, bool (*ready)(void *arg), void *arg)
{
    uint64_t until = rs_clock_after(limit_ps), look = FIRST_LOOK_PS;

    while (!ready(arg)) {
        uint64_t now = rs_clock_now();

        if (now >= until)
            break;
        rs_clock_sleep(look < until - now ? look : until - now);
        look = 2 * look < LAST_LOOK_PS ? 2 * look : LAST_LOOK_PS;
    }
}
