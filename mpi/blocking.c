/* SPDX-License-Identifier: BSD-3-Clause */
/* Native calls that may block: whoever is inside one does not look at his
 * pairs, so nothing of theirs may be unmatched (N4 of docs/persistent.md); and
 * those that ask whether something has come, which look. All of them are here, but
 * those of plain.c and completion; tests/mpi/check-calls compares with mpi.h. Their
 * PMPI_ names are taken, so that Fortran's bindings do not pass by; MPI_ names only
 * where no other file has them. */
#include "mpi/native.h"
#include "mpi/persistent.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *rs_native_if_any(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

void *rs_native(const char *name)
{
    void *found = rs_native_if_any(name);

    if (found == NULL) {
        fprintf(stderr, "rsched: %s is not in the MPI library\n", name);
        abort();
    }
    return found;
}

#define AFTER_PMPI(before, Name, params, args)                               \
    RS_NATIVE(Name)                                                          \
    int PMPI_##Name params                                                   \
    {                                                                        \
        before();                                                            \
        return native_##Name args;                                           \
    }
/* MPI_Name too. */
#define AFTER(before, Name, params, args)                                    \
    AFTER_PMPI(before, Name, params, args)                                   \
    RS_BEHIND(Name)                                                          \
    int MPI_##Name params                                                    \
    {                                                                        \
        before();                                                            \
        return behind_##Name args;                                           \
    }
#define BLOCKING_PMPI(Name, params, args)                                    \
    AFTER_PMPI(rs_settle, Name, params, args)
#define BLOCKING(Name, params, args) AFTER(rs_settle, Name, params, args)
#define POLLED(Name, params, args) AFTER(rs_look_around, Name, params, args)
/* One beyond the standard, MPIX_Name: the library that comes may lack it. */
#define BLOCKING_X(Name, params, args)                                       \
    static __typeof__(PMPIX_##Name) *native_##Name;                          \
    static void __attribute__((constructor)) find_##Name(void)               \
    {                                                                        \
        *(void **)&native_##Name = rs_native_if_any("PMPIX_" #Name);         \
    }                                                                        \
    int PMPIX_##Name params                                                  \
    {                                                                        \
        rs_settle();                                                         \
        return native_##Name == NULL ? MPI_ERR_OTHER : native_##Name args;   \
    }                                                                        \
    int MPIX_##Name params                                                   \
    {                                                                        \
        rs_settle();                                                         \
        return native_##Name == NULL ? MPI_ERR_OTHER : native_##Name args;   \
    }

/* Initializing a persistent collective call is not local either. */
#if RS_MPI4_CALLS
#define AND_REQUEST(...) (__VA_ARGS__, MPI_Info info, MPI_Request *request)
#define AND_REQUEST_ARGS(...) (__VA_ARGS__, info, request)
#define COLLECTIVE(Name, c, params, args)                                    \
    BLOCKING(Name##c, params, args)                                          \
    BLOCKING(Name##_init##c, AND_REQUEST params, AND_REQUEST_ARGS args)
#define COLLECTIVE_PMPI(Name, c, params, args)                               \
    BLOCKING_PMPI(Name##c, params, args)                                     \
    BLOCKING_PMPI(Name##_init##c, AND_REQUEST params, AND_REQUEST_ARGS args)
#else
#define COLLECTIVE(Name, c, params, args) BLOCKING(Name, params, args)
#define COLLECTIVE_PMPI(Name, c, params, args)                               \
    BLOCKING_PMPI(Name, params, args)
#endif

/* Calls that make a communicator give it a name; of a tool's call behind us it has
 * one already. */
static int named(int error, MPI_Comm parent, const MPI_Comm *made, int topology)
{
    if (error == MPI_SUCCESS) {
        rs_name_give(*made, parent);
        rs_topology_made(*made, topology);
    }
    return error;
}

/* May wait too, so what nonblocking calls need is set up here. */
static int prepared(int error, MPI_Comm parent, const MPI_Comm *made, int topology)
{
    if (named(error, parent, made, topology) == MPI_SUCCESS)
        rs_comm_prepare(*made);
    return error;
}

static void before_free(const MPI_Comm *comm)
{
    rs_pairs_comm_free(comm == NULL ? MPI_COMM_NULL : *comm);
    rs_settle();
}

static int after_free(int error)
{
    rs_pairs_comm_freed();
    return error;
}

#define FREES(Name)                                                          \
    RS_NATIVE(Name)                                                          \
    int PMPI_##Name(MPI_Comm *comm)                                          \
    {                                                                        \
        before_free(comm);                                                   \
        return after_free(native_##Name(comm));                              \
    }                                                                        \
    RS_BEHIND(Name)                                                          \
    int MPI_##Name(MPI_Comm *comm)                                           \
    {                                                                        \
        before_free(comm);                                                   \
        return after_free(behind_##Name(comm));                              \
    }

#define PARENT(parent, ...) (parent)
#define MAKES_AND(then, Name, params, args, made, topology)                  \
    RS_NATIVE(Name)                                                          \
    int PMPI_##Name params                                                   \
    {                                                                        \
        rs_settle();                                                         \
        return named(native_##Name args, PARENT args, made, topology);       \
    }                                                                        \
    RS_BEHIND(Name)                                                          \
    int MPI_##Name params                                                    \
    {                                                                        \
        rs_settle();                                                         \
        return then(behind_##Name args, PARENT args, made, topology);        \
    }
#define MAKES(Name, params, args, made)                                      \
    MAKES_AND(named, Name, params, args, made, MPI_UNDEFINED)
/* One that has neighbors, by `topology` or as its parent. */
#define PREPARES(Name, params, args, made, topology)                         \
    MAKES_AND(prepared, Name, params, args, made, topology)

#include "mpi/blocking_calls.h"
