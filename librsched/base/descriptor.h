/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that the library keeps. Where a program has closed its standard input,
 * output or error the kernel gives these numbers to what is opened next, and what is
 * printed then goes there: into shared memory, say. So all that is made goes through
 * rs_descriptor_keep() at once. What other libraries open for themselves, libibverbs
 * or a driver, is not ours to move. */
#ifndef RS_BASE_DESCRIPTOR_H
#define RS_BASE_DESCRIPTOR_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/** Have a descriptor under a number behind that of standard error.
 *
 * @param fd just made, and taken over; below 0: it was not, with errno
 * @return fd; or another one for the same, closed by exec, and fd is closed; or -1,
 *         with errno, and fd is closed */
static inline int rs_descriptor_keep(int fd)
{
    int kept, why;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    kept = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    why = errno;
    close(fd);
    errno = why;
    return kept;
}

#endif
