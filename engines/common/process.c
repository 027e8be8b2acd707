/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/uio.h>

bool rs_process_is_dead(pid_t pid, int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    if (pidfd >= 0)
        return poll(&p, 1, 0) == 1;
    if (pid == 0)
        return false;
    return kill(pid, 0) != 0 && errno == ESRCH;
}

bool rs_process_may_read(pid_t pid)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {NULL, 1};

    /* Nothing is there: whoever may read is told just that. */
    return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 &&
           errno == EFAULT;
}
