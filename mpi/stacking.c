/* SPDX-License-Identifier: BSD-3-Clause */
/* Who passes us by. A tool that stands between the program and us and calls PMPI_
 * does. If it does so with one of the calls
 * that start and complete requests, ours would be started natively, as
 * receives from nobody: complete at once, and nothing has moved. */
#include "mpi/internal.h"
#include "mpi/native.h"

#include <dlfcn.h>

/* All calls that must not pass us by once a request of ours is out. */
#define RS_REQUEST_CALL_MAP(XX)                                              \
    XX(MPI_Start) XX(MPI_Startall) XX(MPI_Wait) XX(MPI_Waitall)              \
    XX(MPI_Waitany) XX(MPI_Waitsome) XX(MPI_Test) XX(MPI_Testall)            \
    XX(MPI_Testany) XX(MPI_Testsome) XX(MPI_Request_free)                    \
    XX(MPI_Request_get_status) XX(MPI_Request_get_status_any)                \
    XX(MPI_Request_get_status_all) XX(MPI_Request_get_status_some)           \
    RS_MPICH_CALL_MAP(XX)
#ifdef OPEN_MPI
#define RS_MPICH_CALL_MAP(XX)
#else
#define RS_MPICH_CALL_MAP(XX) XX(MPIX_Request_is_complete)
#endif

const char *rs_stacking_passed_by(void)
{
    static const char *const names[] = {
#define RS_XX(name) #name,
        RS_REQUEST_CALL_MAP(RS_XX)
#undef RS_XX
    };
    Dl_info ours, first;

    if (dladdr(&rs_process, &ours) == 0)
        return "dladdr";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *found = dlsym(RTLD_DEFAULT, names[i]);

        if (found == NULL || dladdr(found, &first) == 0 ||
            first.dli_fbase != ours.dli_fbase)
            return names[i];
    }
    return NULL;
}

/* Those of MPI 4 (plain.c). Open MPI 5 has the first two, and the same soname as 4. */
const char *rs_stacking_unseen(void)
{
    static const char *const names[] = {
#if !RS_MPI4_CALLS
        "MPI_Isendrecv", "MPI_Isendrecv_replace",
#endif
#if MPI_VERSION < 4
        "MPI_Send_c",    "MPI_Recv_c",
#endif
        NULL};

    for (const char *const *name = names; *name != NULL; name++) {
        char native[40];

        snprintf(native, sizeof(native), "P%s", *name);
        if (rs_native_if_any(native) != NULL)
            return *name;
    }
    return NULL;
}
