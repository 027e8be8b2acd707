/* SPDX-License-Identifier: BSD-3-Clause */
/* How long files may be, also those in memory, and what those take that are hardly
 * used. The kernel ends a process that goes beyond its limit (RLIMIT_FSIZE, which
 * batch systems set) by a signal, so it is looked at before. */
#ifndef RS_BASE_LIMIT_H
#define RS_BASE_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
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

/** Map a part of a file, shared, whose pages are there when they are touched, also in
 * a process that has locked what it maps (MCL_FUTURE). @return MAP_FAILED, with
 * errno */
static inline void *rs_limit_map_sparse(int fd, uint64_t offset, uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, (off_t)offset);

    if (memory == MAP_FAILED)
        return MAP_FAILED;
    munlock(memory, bytes);
    if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0)
        return memory;
    munmap(memory, bytes);
    return MAP_FAILED;
}

#endif
