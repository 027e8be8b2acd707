/* SPDX-License-Identifier: BSD-3-Clause */
/* MPICH's MPIX_Request_is_complete, which few libraries have, and the backend over
 * each MPICH. */
#ifndef RS_TESTS_MPI_IS_COMPLETE_H
#define RS_TESTS_MPI_IS_COMPLETE_H

#include <dlfcn.h>

#include "tests/mpi/common.h"

/* Where it is missing, what also looks and completes nothing. */
static inline int is_complete(MPI_Request handle)
{
    static int (*native)(MPI_Request handle);
    int flag = 0;

    if (native == NULL)
        *(void **)&native = dlsym(RTLD_DEFAULT, "MPIX_Request_is_complete");
    if (native == NULL) {
        MPI_Request_get_status(handle, &flag, MPI_STATUS_IGNORE);
        return flag;
    }
#ifdef MPIX_STREAM_NULL
    MPIX_Stream_progress(MPIX_STREAM_NULL); /* a library's own makes none */
#endif
    return native(handle);
}

#endif
