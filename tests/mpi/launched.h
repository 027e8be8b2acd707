/* SPDX-License-Identifier: BSD-3-Clause */
/* What launchers tell a process before MPI_Init. */
#ifndef TESTS_MPI_LAUNCHED_H
#define TESTS_MPI_LAUNCHED_H

#include <stdlib.h>

/* Its rank; NULL: it is not told. */
static inline const char *launched_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    return rank != NULL ? rank : getenv("PMI_RANK");
}

#endif
