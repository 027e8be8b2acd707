/* SPDX-License-Identifier: BSD-3-Clause */
/* How long files may be, also those in memory, what those take that are hardly
 * used, and how much may be mapped. The kernel ends a process that goes beyond its limit
 * for files (RLIMIT_FSIZE, which batch systems set) by a signal, so it is looked at before. */
#ifndef RS_BASE_LIMIT_H
#define RS_BASE_LIMIT_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

/** Make a file at least so long: where a part could not be mapped it is longer already,
 * and it may not shrink. @return 0, or -1 with errno */
static inline int rs_limit_grow(int fd, uint64_t bytes)
{
    struct stat status;

    if (!rs_limit_allows(bytes) || fstat(fd, &status) != 0)
        return -1;
    return (uint64_t)status.st_size >= bytes ? 0 : ftruncate(fd, (off_t)bytes);
}

/** Bytes that the process may map besides what it has (RLIMIT_AS, which batch systems
 * set). @return UINT64_MAX: as many as it likes */
static inline uint64_t rs_limit_space(void)
{
    struct rlimit limit;
    char pages[32] = "";
    uint64_t mapped;
    int file;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, pages, sizeof(pages) - 1) <= 0)
        mapped = limit.rlim_cur; /* nobody knows */
    else
        mapped = strtoull(pages, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (file >= 0)
        close(file);
    return mapped < limit.rlim_cur ? limit.rlim_cur - mapped : 0;
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
