/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

bool rs_process_is_dead(pid_t pid, int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    if (pidfd >= 0)
        return poll(&p, 1, 0) == 1;
    if (pid == 0)
        return false;
    return kill(pid, 0) != 0 && errno == ESRCH;
}
