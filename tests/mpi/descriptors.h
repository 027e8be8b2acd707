/* SPDX-License-Identifier: BSD-3-Clause */
/* How many descriptors a process has. */
#ifndef RS_TESTS_MPI_DESCRIPTORS_H
#define RS_TESTS_MPI_DESCRIPTORS_H

#include <dirent.h>

#include "tests/mpi/common.h"

static inline int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int num = 0;

    CHECK(folder != NULL, "cannot read /proc/self/fd");
    while (readdir(folder) != NULL)
        num++;
    closedir(folder);
    return num;
}

#endif
