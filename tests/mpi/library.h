/* SPDX-License-Identifier: BSD-3-Clause */
/* What MPI libraries get wrong themselves, so that programs cannot use it. */
#ifndef RS_TESTS_MPI_LIBRARY_H
#define RS_TESTS_MPI_LIBRARY_H

#include <dlfcn.h>

#include "tests/mpi/common.h"

/* A function of the library, not of an object before it. */
static inline void *library_function(const char *name)
{
    Dl_info library;
    void *handle, *found;

    dladdr(dlsym(RTLD_DEFAULT, "PMPI_Get_library_version"), &library);
    handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    found = dlsym(handle, name);
    CHECK(found != NULL, "no %s in %s", name, library.dli_fname);
    dlclose(handle);
    return found;
}

/* Whether a persistent message is still to be waited for when MPI_Request_get_status
 * has said that it is complete, as it should be (MPI 4.1, 3.7.6). MPICH 4.2 has it
 * inactive, so Wait knows nothing of it: with what is native there nothing can be
 * expected of the status. */
static inline bool library_keeps_asked(void)
{
    static bool known, stays;
    __typeof__(MPI_Recv_init) *receive_init;
    __typeof__(MPI_Send_init) *send_init;
    __typeof__(MPI_Startall) *start;
    __typeof__(MPI_Request_get_status) *ask;
    __typeof__(MPI_Wait) *finish;
    __typeof__(MPI_Request_free) *drop;
    int out = 1, in = 0, flag = 0;
    MPI_Request requests[2];
    MPI_Status status;

    if (known)
        return stays;
    *(void **)&receive_init = library_function("PMPI_Recv_init");
    *(void **)&send_init = library_function("PMPI_Send_init");
    *(void **)&start = library_function("PMPI_Startall");
    *(void **)&ask = library_function("PMPI_Request_get_status");
    *(void **)&finish = library_function("PMPI_Wait");
    *(void **)&drop = library_function("PMPI_Request_free");
    receive_init(&in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[0]);
    send_init(&out, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[1]);
    start(2, requests);
    while (!flag)
        ask(requests[0], &flag, MPI_STATUS_IGNORE);
    finish(&requests[0], &status);
    finish(&requests[1], MPI_STATUS_IGNORE);
    drop(&requests[0]);
    drop(&requests[1]);
    known = true;
    stays = status.MPI_TAG == 1;
    if (!stays && world_rank == 0)
        printf("without MPI_Request_get_status, which ends persistent messages "
               "in this MPI library\n");
    return stays;
}

/* Whether a graph may be made of a communicator with a Cartesian topology: in Open MPI
 * 5.0 it is one for some functions and Cartesian for others, and calls on it crash. */
static inline bool library_redoes_topology(void)
{
    const int size = 1, periodic = 1, self = 0;
    static bool known, good;
    MPI_Comm cart, graph;
    int topology;

    if (known)
        return good;
    PMPI_Cart_create(MPI_COMM_SELF, 1, &size, &periodic, 0, &cart);
    PMPI_Dist_graph_create_adjacent(cart, 1, &self, MPI_UNWEIGHTED, 1, &self,
                                    MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    PMPI_Topo_test(graph, &topology);
    PMPI_Comm_free(&graph);
    PMPI_Comm_free(&cart);
    known = true;
    good = topology == MPI_DIST_GRAPH;
    if (!good && world_rank == 0)
        printf("without graphs of Cartesian communicators, which crash in this "
               "MPI library\n");
    return good;
}

#endif
