/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI library whose MPI_Topo_test says MPI_CART of every distributed graph: Open
 * MPI 5.0's does so of those that are made of a Cartesian communicator. Preloaded
 * behind the backend. */
#include <dlfcn.h>
#include <mpi.h>
#include <stddef.h>

int __attribute__((visibility("default"))) PMPI_Topo_test(MPI_Comm comm, int *topology)
{
    static int (*native)(MPI_Comm, int *);
    int error;

    if (native == NULL)
        *(void **)&native = dlsym(RTLD_NEXT, "PMPI_Topo_test");
    error = native(comm, topology);
    if (error == MPI_SUCCESS && *topology == MPI_DIST_GRAPH)
        *topology = MPI_CART;
    return error;
}
