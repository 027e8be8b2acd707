/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The MPI backend: halo exchanges of unchanged MPI programs.
 *
 * The backend is a shared object for each MPI (lib/rsched/librsched-openmpi.so,
 * librsched-mpich.so) that is loaded before the MPI library, by `rsched run`
 * or by LD_PRELOAD. It defines MPI_ functions and calls PMPI_ ones:
 *
 * - MPI_Neighbor_{alltoall,alltoallv,alltoallw,allgather,allgatherv}, their
 *   persistent _init forms (MPI 4, also with large counts; MPIX_ names of Open
 *   MPI 4) and the nonblocking MPI_Ineighbor_ ones run on rsched exchanges;
 * - MPI_Cart_create, Cart_sub, Graph_create, Dist_graph_create(_adjacent),
 *   Comm_dup and Comm_dup_with_info prepare the communicator that they make for
 *   nonblocking calls; those of one made otherwise are native until its first
 *   blocking or persistent neighborhood call;
 * - Start, Startall, all forms of Wait and Test, Request_free and
 *   Request_get_status know the requests that it made. Each of them *is* an
 *   inactive native persistent request, so everything else a program may do
 *   with a request handle stays legal;
 * - everything else is the native MPI's. Persistent point-to-point requests
 *   are counted, with the reason why they stay native.
 *
 * A communicator's neighborhood calls are accelerated on all its processes or
 * on none, which they agree on when it is made or at the first call; edges are paired as the
 * standard says (Cartesian: block s lands in the neighbor's block s^1; graphs:
 * the k-th edge to a process is its k-th edge from it).
 *
 * All processes of MPI_COMM_WORLD must be started with the backend; if one is
 * not, MPI_Init says so and all calls are passed on (docs/presence.md).
 * RSCHED_DISABLE=1 in one of them passes the calls of all on.
 *
 * Fortran programs are accelerated with all three bindings, mpif.h, mpi and
 * mpi_f08, whose functions are intercepted where they do not call MPI_ ones.
 * Fortran's PMPI_ names are the native MPI's, as in C.
 *
 * The functions below are in the preload object only. A program that runs
 * with and without it declares them weak, or finds them with
 * dlsym(RTLD_DEFAULT, ...).
 */
#ifndef RSCHED_MPI_H
#define RSCHED_MPI_H

#include <stddef.h>
#include <stdint.h>

#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Read one of this process's counters. CALL is a call's name in small letters
 * without "mpi_", for instance "neighbor_alltoallv" or
 * "neighbor_alltoallw_init"; REASON one of rsched_mpi_reason().
 *
 *     accelerated, native           calls, all kinds together
 *     CALL.accelerated              calls made, or persistent requests made,
 *                                   that rsched carries
 *     CALL.native                   ... that were passed on
 *     CALL.native.REASON            ... for this reason
 *     starts                        of accelerated persistent requests
 *     edges_out, edges_in, edges_self   of the exchanges that were made
 *     puts, bytes, self_bytes       that the exchanges moved; the last within
 *                                   the process
 *     packed                        puts and receives whose datatype is packed
 *                                   by the native MPI
 *     loads                         blocking calls that differed from the one
 *                                   before
 *     requests, communicators       accelerated ones that exist now
 *
 * @return 0, or RSCHED_ENAME. Thread-safe; the numbers of exchanges that
 *         another thread is using may lag behind.
 */
RSCHED_API int rsched_mpi_counter(const char *name, uint64_t *value);

/**
 * The reasons for staying native.
 *
 * @param index 0, 1, ...
 * @return "SLUG\ttext", or NULL when there are no more. Thread-safe.
 */
RSCHED_API const char *rsched_mpi_reason(size_t index);

#ifdef __cplusplus
}
#endif

#endif
