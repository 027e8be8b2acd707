/* SPDX-License-Identifier: BSD-3-Clause */
/* The native functions whose PMPI_ names are ours too: Fortran's bindings and
 * other tools call those, and must not pass us by. They are looked up when the
 * object is loaded. */
#ifndef RS_MPI_NATIVE_H
#define RS_MPI_NATIVE_H

#include "mpi/internal.h"

/** NAME of the library behind us; ends the program when it has none. */
void *rs_native(const char *name);
/** The same for what not every library has: NULL then. */
void *rs_native_if_any(const char *name);

/** A pointer to the native Name, for this file only. */
#define RS_NATIVE(Name)                                                      \
    static __typeof__(PMPI_##Name) *native_##Name;                           \
    static void __attribute__((constructor)) find_##Name(void)               \
    {                                                                        \
        *(void **)&native_##Name = rs_native("PMPI_" #Name);                 \
    }

/** The same for the Name that comes after ours, which is a tool's if one is
 * loaded behind us. It may call our PMPI_Name in turn. */
#define RS_BEHIND(Name)                                                      \
    static __typeof__(PMPI_##Name) *behind_##Name;                           \
    static void __attribute__((constructor)) find_behind_##Name(void)        \
    {                                                                        \
        *(void **)&behind_##Name = rs_native("MPI_" #Name);                  \
    }

#endif
