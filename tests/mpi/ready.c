/* SPDX-License-Identifier: BSD-3-Clause */
/* How long starts wait for the other side of their pair, at given times. */
#include <criterion/criterion.h>

#include "mpi/ready.h"

enum { MS = 1000000 /* ns */ };

/* Starts at equal times, of which each waits in vain. @return the time waited */
static uint64_t waits_in_vain(uint64_t period, int starts)
{
    struct rs_ready r = {0};
    uint64_t now = 5 * MS, waited = 0;

    for (int i = 0; i < starts; i++) {
        uint64_t limit = rs_ready_limit(&r, now);

        if (limit > 0)
            rs_ready_failed(&r, now, now + limit);
        waited += limit;
        now += limit + period;
    }
    return waited;
}

Test(ready, first_start_waits)
{
    const struct rs_ready r = {0};

    cr_assert_eq(rs_ready_limit(&r, 1), RS_READY_NS);
}

Test(ready, waits_in_vain_become_longer)
{
    struct rs_ready r = {0};
    uint64_t now = MS, longest = 0;

    for (int i = 0; i < 8; i++) {
        uint64_t limit = rs_ready_limit(&r, now);

        cr_assert_geq(limit, longest);
        longest = limit;
        rs_ready_failed(&r, now, now + limit);
        now = r.rests_until;
    }
    cr_assert_eq(longest, 16 * RS_READY_NS);
}

Test(ready, waits_in_vain_cost_little)
{
    static const uint64_t periods[] = {1000, 25000, 200000, MS, 5 * MS, 50 * MS};

    for (size_t i = 0; i < sizeof(periods) / sizeof(periods[0]); i++) {
        uint64_t all = 1000 * periods[i];
        uint64_t waited = waits_in_vain(periods[i], 1000);

        cr_assert_leq(waited, all / RS_READY_SHARE + 16 * RS_READY_NS,
                      "%llu of %llu ns", (unsigned long long)waited,
                      (unsigned long long)all);
        cr_assert_gt(waited, 0);
    }
}

/* One that took longer than it was to, because others had the core, counts as long as
 * it took. */
Test(ready, long_waits_count)
{
    struct rs_ready r = {0};

    rs_ready_failed(&r, MS, 11 * MS);
    cr_assert_eq(rs_ready_limit(&r, 600 * MS), 0);
    cr_assert_gt(rs_ready_limit(&r, 700 * MS), 0);
}
