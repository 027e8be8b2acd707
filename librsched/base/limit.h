/* SPDX-License-Identifier: BSD-3-Clause */
/* How long files may be, also those in memory. The kernel ends a process that goes
 * beyond its limit (RLIMIT_FSIZE, which batch systems set) by a signal, so it is
 * looked at before. */
#ifndef RS_BASE_LIMIT_H
#define RS_BASE_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

/** @return false, with errno EFBIG: a file may not have so many bytes */
static inline bool rs_limit_allows(uint64_t bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/** Make a file so long. @return 0, or -1 with errno */
static inline int rs_limit_resize(int fd, uint64_t bytes)
{
    return rs_limit_allows(bytes) ? ftruncate(fd, (off_t)bytes) : -1;
}

#endif
