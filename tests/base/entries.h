/* SPDX-License-Identifier: BSD-3-Clause */
/* What a folder of /proc has: descriptors of this process, say. */
#ifndef TESTS_BASE_ENTRIES_H
#define TESTS_BASE_ENTRIES_H

#include <dirent.h>
#include <stdlib.h>

static inline int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    int number = 0;

    if (d == NULL)
        abort();
    while (readdir(d) != NULL)
        number++;
    closedir(d);
    return number;
}

static inline int count_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

#endif
