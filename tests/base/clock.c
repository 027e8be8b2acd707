/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include "librsched/base/clock.h"

/* However long the node has been up; nothing in here takes a day. */
Test(clock, begins_with_the_process)
{
    const uint64_t day_ps = UINT64_C(86400) * RS_PS_PER_S;
    uint64_t now = rs_clock_now();

    cr_assert_geq(now, RS_PS_PER_S);
    cr_assert_lt(now, day_ps);
}

Test(clock, what_is_beyond_it_never_comes)
{
    uint64_t before = rs_clock_now(), after = rs_clock_after(RS_PS_PER_S);

    cr_assert(after >= before + RS_PS_PER_S &&
              after <= rs_clock_now() + RS_PS_PER_S);
    cr_assert_eq(rs_clock_after(UINT64_MAX), UINT64_MAX);
    cr_assert_eq(rs_clock_after(UINT64_MAX - before), UINT64_MAX);
}

Test(clock, until_is_by_the_kernels_clock)
{
    struct timespec before, until, after;
    const uint64_t limit_ps = UINT64_C(3999999999) * RS_PS_PER_NS;

    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int i = 0; i < 1000; i++) {
        double least, most;

        until = rs_clock_until(limit_ps);
        clock_gettime(CLOCK_MONOTONIC, &after);
        least = (double)(until.tv_sec - after.tv_sec) +
                1e-9 * (double)(until.tv_nsec - after.tv_nsec);
        most = (double)(until.tv_sec - before.tv_sec) +
               1e-9 * (double)(until.tv_nsec - before.tv_nsec);
        cr_assert(until.tv_nsec >= 0 && until.tv_nsec < 1000000000);
        cr_assert(least <= 4 && most >= 3.999999998, "%g to %g s", least, most);
        before = after;
    }
}
