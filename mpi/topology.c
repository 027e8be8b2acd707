/* SPDX-License-Identifier: BSD-3-Clause */
/* Which topology a communicator has. Open MPI 5.0 keeps what its parent was: its
 * MPI_Topo_test says MPI_CART of a graph made of a Cartesian communicator, and
 * MPI_Cartdim_get crashes on it. So the call that has made it counts. */
#include "mpi/internal.h"

static int keyval = MPI_KEYVAL_INVALID;

void rs_topology_made(MPI_Comm comm, int topology)
{
    int said = MPI_UNDEFINED;

    if (keyval == MPI_KEYVAL_INVALID || comm == MPI_COMM_NULL ||
        topology == MPI_UNDEFINED)
        return;
    PMPI_Topo_test(comm, &said);
    if (said != topology && said != MPI_UNDEFINED)
        PMPI_Comm_set_attr(comm, keyval, (void *)(intptr_t)topology);
}

int rs_topology(MPI_Comm comm)
{
    int topology = MPI_UNDEFINED, found = 0;
    void *value;

    if (keyval != MPI_KEYVAL_INVALID)
        PMPI_Comm_get_attr(comm, keyval, &value, &found);
    if (found)
        return (int)(intptr_t)value;
    PMPI_Topo_test(comm, &topology);
    return topology;
}

void rs_topology_init(void)
{
    PMPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keyval,
                            NULL);
}

void rs_topology_fini(void)
{
    PMPI_Comm_free_keyval(&keyval);
}
