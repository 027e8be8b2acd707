/* SPDX-License-Identifier: BSD-3-Clause */
/* An error handler that counts its calls, and what class an error is of. */
#ifndef TESTS_MPI_HANDLED_H
#define TESTS_MPI_HANDLED_H

#include <mpi.h>

static int handled;

static inline void handler(MPI_Comm *comm, int *error, ...)
{
    (void)comm;
    (void)error;
    handled++;
}

static inline int error_class(int error)
{
    int class;

    MPI_Error_class(error, &class);
    return class;
}

#endif
