/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists for process_vm_readv(). */
#ifndef RS_ENGINES_IOVECS_H
#define RS_ENGINES_IOVECS_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "engines/common/copy.h"

/* As many bytes here as there, in equal parts. Zero it to initialise; it owns
 * the arrays. */
struct rs_iovecs {
    struct iovec *here, *there;
    size_t number, room_here, room_there;
};

/** Add the blocks of a copy from `user` there to `other` here; those that touch
 * on both sides become one. None is longer than what the kernel reads best in one
 * go. @return 0 or RSCHED_ENOMEM */
int rs_iovecs_add(struct rs_iovecs *v, const struct rs_copy *copy);

/** Read all of them. @return 0, or -1 with errno */
int rs_iovecs_read(const struct rs_iovecs *v, pid_t pid);

void rs_iovecs_fini(struct rs_iovecs *v);

#endif
