/* SPDX-License-Identifier: BSD-3-Clause */
/* Other processes of this node. */
#ifndef RS_ENGINES_PROCESS_H
#define RS_ENGINES_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/** Whether a process is known to be dead, be it reaped or not. @param pidfd asked
 * first, -1: there is none @param pid asked then: whether another process has got the
 * number since is not seen, nor, where the kernel forbids process_vm_readv() or /proc
 * shows others, one that is not reaped; 0: it has no number here, so nothing is known */
bool rs_process_is_dead(pid_t pid, int pidfd);

/** Whether the kernel lets this process read memory of process `pid`. */
bool rs_process_may_read(pid_t pid);

#endif
