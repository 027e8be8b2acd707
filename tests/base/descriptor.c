/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "librsched/base/descriptor.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

Test(descriptor, what_is_no_standard_one_stays)
{
    int ends[2];

    cr_assert_eq(pipe(ends), 0);
    cr_assert(ends[0] > 2);
    cr_assert_eq(rs_descriptor_keep(ends[0]), ends[0]);
    cr_assert(is_open(ends[0]));
    errno = ENOENT;
    cr_assert_eq(rs_descriptor_keep(-1), -1);
    cr_assert_eq(errno, ENOENT);
}

Test(descriptor, a_standard_one_gets_another_number)
{
    struct stat made, kept;
    int ends[2], fd;

    close(0);
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(ends[0], 0);
    cr_assert_eq(fstat(ends[0], &made), 0);
    fd = rs_descriptor_keep(ends[0]);
    cr_assert(fd > 2 && fd != ends[1]);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(fstat(fd, &kept), 0);
    cr_assert_eq(made.st_ino, kept.st_ino);
    cr_assert_not(is_open(0));
}

Test(descriptor, where_there_is_no_other_none_stays_open)
{
    const struct rlimit few = {3, 3};

    close(0);
    cr_assert_eq(open("/dev/null", O_RDONLY), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    errno = 0;
    cr_assert_eq(rs_descriptor_keep(0), -1);
    cr_assert_neq(errno, 0);
    cr_assert_not(is_open(0));
}
