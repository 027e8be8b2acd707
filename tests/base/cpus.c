/* SPDX-License-Identifier: BSD-3-Clause */
/* Cores of machines that may have more than a cpu_set_t has room for. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "librsched/base/cpus.h"
#include "librsched/base/line.h"

/* What the machine is like: how many cores it may ever have, and which ones this
 * thread may use. */
static size_t possible;
static int first, last;
static struct rs_cpus bound; /* to these at last */

/* These come before the C library's. */
__attribute__((visibility("default"))) int
sched_getaffinity(pid_t pid, size_t size, cpu_set_t *cores)
{
    (void)pid;
    if (8 * size < possible) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(size, cores);
    CPU_SET_S((size_t)first, size, cores);
    CPU_SET_S((size_t)last, size, cores);
    return 0;
}

__attribute__((visibility("default"))) int
sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *cores)
{
    (void)pid;
    cr_assert(size <= sizeof(bound));
    memset(&bound, 0, sizeof(bound));
    memcpy(&bound, cores, size);
    return 0;
}

static void become(size_t num_possible, int a, int b)
{
    possible = num_possible;
    first = a;
    last = b;
}

Test(cpus, all_that_linux_may_have)
{
    static const int pairs[][2] = {{0, 1}, {63, 64}, {3, 1500}, {4096, 8191}};
    struct rs_cpus cpus;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        become(8192, pairs[i][0], pairs[i][1]);
        cr_assert(rs_cpus_allowed(&cpus));
        cr_assert_eq(rs_cpus_count(&cpus), 2);
        cr_assert_eq(rs_cpus_nth(&cpus, 0), first);
        cr_assert_eq(rs_cpus_nth(&cpus, 1), last);
        cr_assert_eq(rs_cpus_nth(&cpus, 2), -1);
    }
}

Test(cpus, none_is_known)
{
    struct rs_cpus cpus;

    memset(&cpus, 0xff, sizeof(cpus));
    become(8193, 0, 1);
    cr_assert_not(rs_cpus_allowed(&cpus));
    cr_assert_eq(rs_cpus_count(&cpus), 0);
    cr_assert_eq(rs_cpus_nth(&cpus, 0), -1);
}

Test(cpus, added)
{
    struct rs_cpus cpus, more;

    become(2048, 3, 70);
    cr_assert(rs_cpus_allowed(&cpus));
    become(2048, 70, 2047);
    cr_assert(rs_cpus_allowed(&more));
    rs_cpus_add(&cpus, &more);
    cr_assert_eq(rs_cpus_count(&cpus), 3);
    cr_assert_eq(rs_cpus_nth(&cpus, 2), 2047);
}

Test(cpus, a_thread_is_pinned)
{
    become(2048, 3, 1500);
    for (int index = 0; index < 4; index++) {
        rs_line_pin(index);
        cr_assert_eq(rs_cpus_count(&bound), 1);
        cr_assert_eq(rs_cpus_nth(&bound, 0), index % 2 == 0 ? 3 : 1500);
    }
}

/* Who does not know where it may run stays there. */
Test(cpus, a_thread_is_left_alone)
{
    become(8193, 0, 1);
    rs_line_pin(0);
    cr_assert_eq(rs_cpus_count(&bound), 0);
}
