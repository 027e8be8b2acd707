/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that this release passes on, and counts. */
#include "mpi/internal.h"

static void pass_on(enum rs_call call)
{
    rs_count_native(call, rs_process.reason != RS_ACCELERATED
                              ? rs_process.reason
                              : RS_REASON_RELEASE);
}

#define RS_POINT_TO_POINT(Name, ID)                                            \
    int RS_NAME(Name##_init)(const void *buf, RS_COUNT count,                  \
                             MPI_Datatype type, int dest, int tag,             \
                             MPI_Comm comm, MPI_Request *request)              \
    {                                                                          \
        pass_on(RS_CALL_##ID##_INIT);                                          \
        return RS_PNAME(Name##_init)(buf, count, type, dest, tag, comm,        \
                                     request);                                 \
    }

#define RS_COUNT int
#define RS_DISPL int
#define RS_NAME(name) MPI_##name
#define RS_PNAME(name) PMPI_##name
#include "mpi/native_calls.h"

#if MPI_VERSION >= 4
#undef RS_COUNT
#undef RS_DISPL
#undef RS_NAME
#undef RS_PNAME
#define RS_COUNT MPI_Count
#define RS_DISPL MPI_Aint
#define RS_NAME(name) MPI_##name##_c
#define RS_PNAME(name) PMPI_##name##_c
#include "mpi/native_calls.h"
#endif
