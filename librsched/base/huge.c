/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/huge.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rsched/memory.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    PAGES_MOST = 8192, /* of a huge page */
    TRIES = 3,         /* pages are pinned while somebody reads them */
};

static atomic_uint_fast64_t made;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t unit;

uint64_t rsched_memory_huge(void)
{
    return atomic_load_explicit(&made, memory_order_relaxed);
}

static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    bool got = file != NULL && fgets(line, size, file) != NULL;

    if (file != NULL)
        fclose(file);
    return got;
}

static void find_unit(void)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned long long bytes;
    char line[64];

    if (!read_line("/sys/kernel/mm/transparent_hugepage/enabled", line,
                   sizeof(line)) ||
        strstr(line, "[never]") != NULL ||
        !read_line("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", line,
                   sizeof(line)) ||
        sscanf(line, "%llu", &bytes) != 1)
        return;
    if ((bytes & (bytes - 1)) == 0 && bytes > page &&
        bytes / page <= PAGES_MOST)
        unit = bytes;
}

uint64_t rs_huge_unit(void)
{
    pthread_once(&once, find_unit);
    return unit;
}

/* Whether all pages of a unit are mapped and there. */
static bool is_resident(uintptr_t at)
{
    unsigned char there[PAGES_MOST];
    uint64_t pages = unit / (uint64_t)sysconf(_SC_PAGESIZE);

    if (mincore((void *)at, unit, there) != 0)
        return false;
    for (uint64_t i = 0; i < pages; i++) {
        if ((there[i] & 1) == 0)
            return false;
    }
    return true;
}

char *rs_huge_find(char **low, char *high)
{
    uintptr_t from, to, end = (uintptr_t)high;

    if (rs_huge_unit() == 0 || *low >= high)
        return NULL;
    from = (uintptr_t)*low & ~(unit - 1);
    while (from < end && !is_resident(from))
        from += unit;
    for (to = from; to < end && is_resident(to);)
        to += unit;
    if (from == to)
        return NULL;
    if (from > (uintptr_t)*low)
        *low += from - (uintptr_t)*low;
    return to < end ? high - (end - to) : high;
}

/* One call for all of it: each waits for all processors. Where there is no memory
 * for it, in all or in the process's control group, errno is ENOMEM. */
static bool collapse(uintptr_t from, uintptr_t to)
{
    for (int i = 0; i < TRIES; i++) {
        if (madvise((void *)from, to - from, MADV_COLLAPSE) == 0)
            return true;
        if (errno != EAGAIN)
            break;
    }
    if (errno == EBUSY)
        errno = ENOMEM;
    return false;
}

/* Whether one mapping ends and another begins within a huge page: of such a page the
 * kernel makes none, and says that all is well. */
static bool is_cut(uintptr_t from, uintptr_t to)
{
    FILE *file = fopen("/proc/self/maps", "re");
    bool cut = file == NULL;
    char *line = NULL;
    size_t room = 0;
    uintptr_t start;

    while (!cut && getline(&line, &room, file) > 0 &&
           sscanf(line, "%" SCNxPTR, &start) == 1 && start < to)
        cut = start > from && start % unit != 0;
    free(line);
    if (file != NULL)
        fclose(file);
    return cut;
}

bool rs_huge_make(const char **low, const char **high)
{
    uintptr_t first = (uintptr_t)*low & ~(rs_huge_unit() - 1);
    uintptr_t last = ((uintptr_t)*high + unit - 1) & ~(unit - 1);

    /* At both ends other mappings may begin within a unit. */
    for (int ends = 0; unit > 0 && ends < 4; ends++) {
        uintptr_t from = first + (ends & 2 ? unit : 0);
        uintptr_t to = last - (ends & 1 ? unit : 0);

        if (from >= to)
            continue;
        if (!collapse(from, to)) {
            /* Each try looks for room in all memory, and may take long. */
            if (errno == ENOMEM)
                return false;
            continue;
        }
        if (is_cut(from, to)) {
            errno = EINVAL;
            continue;
        }
        if (from > (uintptr_t)*low)
            *low += from - (uintptr_t)*low;
        if (to < (uintptr_t)*high)
            *high -= (uintptr_t)*high - to;
        atomic_fetch_add_explicit(&made, (uint64_t)(*high - *low),
                                  memory_order_relaxed);
        return true;
    }
    return false;
}
