/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi/fortran.h"

#include <dlfcn.h>
#include <stdlib.h>

void *rs_fortran_next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        rs_log(RS_LOG_ERROR, "%s is not in the MPI library", name);
        abort();
    }
    return found;
}

void rs_fortran_prepared(const MPI_Fint *made, MPI_Fint error, MPI_Fint *ierr)
{
    if (error == MPI_SUCCESS)
        rs_comm_prepare(PMPI_Comm_f2c(*made));
    set(ierr, error);
}
