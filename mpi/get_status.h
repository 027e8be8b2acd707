/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Request_get_status_any, _all and _some under names of our own, since headers
 * lack them, or differ in a const (MPICH 4.2). */
#ifndef RS_MPI_GET_STATUS_H
#define RS_MPI_GET_STATUS_H

#include <mpi.h>

/** What programs call it. */
#define RS_EXPORT(name)                                                      \
    __asm__(#name) __attribute__((visibility("default")))

int rs_get_status_any(int count, const MPI_Request handles[], int *index,
                      int *flag, MPI_Status *status)
    RS_EXPORT(MPI_Request_get_status_any);
int rs_get_status_all(int count, const MPI_Request handles[], int *flag,
                      MPI_Status statuses[])
    RS_EXPORT(MPI_Request_get_status_all);
int rs_get_status_some(int count, const MPI_Request handles[], int *num,
                       int indices[], MPI_Status statuses[])
    RS_EXPORT(MPI_Request_get_status_some);

#endif
