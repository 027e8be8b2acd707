/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Read where no process has memory. @return an errno */
static int read_nothing(pid_t pid)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {NULL, 1};

    return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 ? errno : 0;
}

/* Whether it has ended and nobody has reaped it: it has no memory, and no other thread as
 * one has whose main thread alone has ended. By calls that take no descriptor. */
static bool is_zombie(pid_t pid)
{
    enum { LINKS = 2 }; /* of a folder that has no folders */
    char path[32];
    struct stat threads;

    if (read_nothing(pid) != ESRCH)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    return stat(path, &threads) == 0 && threads.st_nlink <= LINKS + 1;
}

bool rs_process_is_dead(pid_t pid, int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    if (pidfd >= 0)
        return poll(&p, 1, 0) == 1;
    if (pid == 0)
        return false;
    return (kill(pid, 0) != 0 && errno == ESRCH) || is_zombie(pid);
}

bool rs_process_may_read(pid_t pid)
{
    /* Whoever may read is told that nothing is there. */
    return read_nothing(pid) == EFAULT;
}
