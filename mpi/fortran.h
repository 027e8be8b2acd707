/* SPDX-License-Identifier: BSD-3-Clause */
/* Fortran's bindings where they call PMPI_ functions, which would pass us by.
 *
 * Open MPI: ompi_NAME_f of libmpi_mpifh is what mpif.h and the mpi module mean,
 * by aliases in the compilers' spellings. mpi_f08 has functions of its own with
 * the same arguments, for a handle is a structure of one integer. All these
 * names are defined here for what is accelerated, and call our C functions.
 *
 * MPICH: mpif.h and the mpi module call MPI_ functions, and so do mpi_f08's
 * calls with buffers; its other ones are defined here. A program must not
 * begin a request in one way and complete it in the other. */
#ifndef RS_MPI_FORTRAN_H
#define RS_MPI_FORTRAN_H

#include "mpi/internal.h"

#include <assert.h>

static_assert(sizeof(MPI_Fint) == sizeof(int),
              "arrays of integers are passed on as they are");

typedef MPI_Fint logical;

static inline void set(MPI_Fint *ierr, int error)
{
    if (ierr != NULL)
        *ierr = error;
}

/* Numbers count from 1. */
static inline void index_out(int index, MPI_Fint *to)
{
    *to = index == MPI_UNDEFINED ? MPI_UNDEFINED : index + 1;
}

/** The function that we stand before. It has all conversions that we need not
 * know. */
void *rs_fortran_next(const char *name);

/** The end of a call that makes a communicator. */
void rs_fortran_prepared(const MPI_Fint *made, MPI_Fint error, MPI_Fint *ierr);

#ifdef OPEN_MPI

/* A Fortran function NAME in all its spellings; X is empty, or x for Open
 * MPI's extensions. */
#define ALIAS(name, target, params)                                          \
    void name params __attribute__((alias(#target)))
#define FORTRAN_X(x, X, Name, NAME, name, params)                            \
    void ompi##x##_##name##_f params;                                        \
    ALIAS(mpi##x##_##name, ompi##x##_##name##_f, params);                    \
    ALIAS(mpi##x##_##name##_, ompi##x##_##name##_f, params);                 \
    ALIAS(mpi##x##_##name##__, ompi##x##_##name##_f, params);                \
    ALIAS(MPI##X##_##NAME, ompi##x##_##name##_f, params);                    \
    ALIAS(MPI##X##_##Name##_f, ompi##x##_##name##_f, params);                \
    ALIAS(MPI##X##_##Name##_f08, ompi##x##_##name##_f, params);              \
    ALIAS(mpi##x##_##name##_f08_, ompi##x##_##name##_f, params);             \
    void ompi##x##_##name##_f params
#define FORTRAN(Name, NAME, name, params)                                    \
    FORTRAN_X(, , Name, NAME, name, params)

#if RS_MPI4_CALLS
#define FORTRAN_INIT(Name, NAME, name, params)                               \
    FORTRAN(Name##_init, NAME##_INIT, name##_init, params)
#define INIT(name) MPI_##name##_init
#else
#define FORTRAN_INIT(Name, NAME, name, params)                               \
    FORTRAN_X(x, X, Name##_init, NAME##_INIT, name##_init, params)
#define INIT(name) MPIX_##name##_init
#endif

/* ---- special addresses ---- */

/* Common blocks, in the compiler's spelling; weak: C programs have none. */
#pragma weak mpi_fortran_bottom
#pragma weak mpi_fortran_bottom_
#pragma weak mpi_fortran_bottom__
#pragma weak MPI_FORTRAN_BOTTOM
#pragma weak mpi_fortran_in_place
#pragma weak mpi_fortran_in_place_
#pragma weak mpi_fortran_in_place__
#pragma weak MPI_FORTRAN_IN_PLACE
#pragma weak mpi_fortran_status_ignore
#pragma weak mpi_fortran_status_ignore_
#pragma weak mpi_fortran_status_ignore__
#pragma weak MPI_FORTRAN_STATUS_IGNORE
#pragma weak mpi_fortran_statuses_ignore
#pragma weak mpi_fortran_statuses_ignore_
#pragma weak mpi_fortran_statuses_ignore__
#pragma weak MPI_FORTRAN_STATUSES_IGNORE
#pragma GCC visibility push(default)
extern int mpi_fortran_bottom, mpi_fortran_bottom_, mpi_fortran_bottom__,
    MPI_FORTRAN_BOTTOM;
extern int mpi_fortran_in_place, mpi_fortran_in_place_, mpi_fortran_in_place__,
    MPI_FORTRAN_IN_PLACE;
extern int mpi_fortran_status_ignore, mpi_fortran_status_ignore_,
    mpi_fortran_status_ignore__, MPI_FORTRAN_STATUS_IGNORE;
extern int mpi_fortran_statuses_ignore, mpi_fortran_statuses_ignore_,
    mpi_fortran_statuses_ignore__, MPI_FORTRAN_STATUSES_IGNORE;
#pragma GCC visibility pop

#define IS(at, name, NAME)                                                   \
    ((at) != NULL && ((void *)(at) == (void *)&name##_ ||                    \
                      (void *)(at) == (void *)&name##__ ||                   \
                      (void *)(at) == (void *)&name ||                       \
                      (void *)(at) == (void *)&NAME))

static inline void *buffer(void *at)
{
    if (IS(at, mpi_fortran_bottom, MPI_FORTRAN_BOTTOM))
        return MPI_BOTTOM;
    if (IS(at, mpi_fortran_in_place, MPI_FORTRAN_IN_PLACE))
        return MPI_IN_PLACE;
    return at;
}

static inline bool no_status(const MPI_Fint *at)
{
    return IS(at, mpi_fortran_status_ignore, MPI_FORTRAN_STATUS_IGNORE);
}

static inline bool no_statuses(const MPI_Fint *at)
{
    return IS(at, mpi_fortran_statuses_ignore, MPI_FORTRAN_STATUSES_IGNORE);
}

#endif

#endif
