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
 * - Start, Startall, all forms of Wait and Test, Request_free, Request_get_status
 *   and its forms for several requests (MPI 4.1) know the requests that it made.
 *   Each of them *is* an inactive native persistent request, so everything else a
 *   program may do with a request handle stays legal (docs/persistent.md, "Calls
 *   that take requests");
 * - unless RSCHED_PERSISTENT is no in a process, persistent point-to-point
 *   requests (MPI_Send_init, Ssend_init, Rsend_init, Recv_init) between
 *   processes of one node go through shared memory where both sides use them
 *   for the same communicator, ranks and tag, and only while no other call
 *   could match differently. Plain point-to-point calls and calls that may
 *   block are intercepted for that, by their PMPI_ names too, and stay native;
 * - everything else is the native MPI's.
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
 * Buffers may lie in GPU memory; docs/gpu.md ("In MPI programs") says which calls
 * are accelerated then. RSCHED_GPU=no in a process leaves them to the native MPI.
 *
 * Fortran programs are accelerated with all three bindings, mpif.h, mpi and
 * mpi_f08, whose functions are intercepted where they do not call MPI_ ones.
 * PMPI_ names of other calls are the native MPI's.
 *
 * Other tools: the backend is to be preloaded before other tools that use PMPI_
 * names; they then see what it does not intercept. A tool that comes before
 * it and intercepts Start, Wait and the like would pass the backend by, so
 * persistent and nonblocking calls are native then, and MPI_Init says so.
 *
 * The functions below are in the preload object only. A program that always
 * uses them links it, before the MPI library (pkg-config rsched-openmpi or
 * rsched-mpich); that preloads the backend too. A program that runs with and
 * without it declares them weak, or finds them with dlsym(RTLD_DEFAULT, ...).
 *
 * Exchanges without a communicator: a **topology** says who sends to whom. It
 * is made locally, from lists or from a communicator that has one, and needs
 * no other process. A request made on it is a persistent MPI request like
 * those of MPI_Neighbor_alltoallw_init, for MPI_Start, MPI_Waitall and so on;
 * making it needs the neighbors, not all processes. There is no native way
 * behind it: what rsched cannot carry is an error.
 *
 *     rsched_mpi_topology_create(comm, 2, sources, 2, destinations, 0, &halo);
 *     rsched_mpi_alltoallw_init(send[0], ..., receive[0], ..., halo, &request);
 *     for (step = 0; ...; step++) {
 *         rsched_mpi_rebind(request, send[step % 2], receive[step % 2]);
 *         MPI_Start(&request);
 *         ...
 *         MPI_Wait(&request, MPI_STATUS_IGNORE);
 *     }
 */
#ifndef RSCHED_MPI_H
#define RSCHED_MPI_H

#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#include <rsched/error.h>
#include <rsched/exchange.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Read one of this process's counters. CALL is a call's name in small letters
 * without "mpi_", for instance "neighbor_alltoallv" or
 * "neighbor_alltoallw_init", and "rsched_alltoallw_init" for
 * rsched_mpi_alltoallw_init(); REASON one of rsched_mpi_reason().
 *
 *     accelerated, native           calls, all kinds together
 *     CALL.accelerated              calls made, or persistent requests made,
 *                                   that rsched carries (point-to-point: has
 *                                   carried at least once)
 *     CALL.native                   ... that were passed on
 *     CALL.native.REASON            ... for this reason
 *     starts                        of accelerated persistent collectives
 *     edges_out, edges_in, edges_self   of the exchanges that were made
 *     puts, bytes, self_bytes       that the exchanges moved; the last within
 *                                   the process
 *     ways.WAY, engines.ENGINE      bytes sent in one way (self, landing,
 *                                   direct, pull, cma; with an end in GPU memory
 *                                   staged, cuda-ipc, gdrcopy, gdr-loopback) or by
 *                                   one engine
 *     adoptions.ADOPTION            bytes of ordinary send buffers: adopted, or
 *                                   why not (origin, mapping, device, budget,
 *                                   system, guard)
 *     chunks, credit_stalls         landing slots filled; waits for a free one
 *     packed                        puts and receives whose datatype is packed
 *                                   by the native MPI
 *     staged                        bytes of buffers in GPU memory that were copied
 *                                   into or out of host memory, for exchanges of
 *                                   that
 *     loads                         blocking calls that differed from the one
 *                                   before
 *     queued                        nonblocking collectives that were behind
 *                                   others in their channel
 *     lane_sends, lane_receives     starts of persistent point-to-point
 *                                   requests that went through a lane
 *     lane_native                   ... that went natively
 *     lane_pulls                    receives that read the bytes out of the
 *                                   sender's memory
 *     lane_mapped                   ... all of them out of memory that both
 *                                   processes have mapped
 *     lane_nontemporal              ... copied past the caches, as more comes
 *                                   than they keep; and sends that were written
 *                                   past them, into slots or packed, as that is
 *                                   faster between these cores
 *     lane_prefetched               ... with more of their lines under way at a time, as
 *                                   that is faster between these cores,
 *                                   or to find that out (RSCHED_PREFETCH)
 *     lane_packed                   sends that were packed for that, since one
 *                                   copy would cost more
 *     trials, trial_changes         how often it was tried out whether one copy
 *                                   or slots are faster, and which stores into
 *                                   slots; after how many of these another way
 *                                   was taken. Of two processes that send each
 *                                   other as much one tries, for both
 *     lane_opened                   receives that a copy engine has read out of
 *                                   the sender's GPU memory
 *     lane_wakes                    times that this process slept for messages
 *                                   of lanes and a neighbor woke it
 *     huge                          bytes of ordinary send buffers that were put
 *                                   into huge pages
 *     incarnations, stops           of lanes: begun, and stopped by this side
 *     withdrawn                     that this side, a receiver, has entered before
 *                                   the sender, and left before it came
 *     crowded                       1: processes are known to outnumber cores, or
 *                                   what a quota gives them, so that waits hardly
 *                                   poll
 *     requests, communicators       accelerated ones that exist now
 *     lanes                         that exist now: tags of persistent
 *                                   point-to-point requests, for each
 *                                   communicator, process and direction
 *     lane_slot_bytes               of slots for what comes on lanes that have
 *                                   requests now
 *     lane_offers                   lanes that this process has offered to others
 *     offers_kept                   offers of others that are kept now, for lanes
 *                                   on which it has no persistent receive
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

/** Who sends to whom: the neighbors of this process. */
struct rsched_mpi_topology;

/**
 * Make a topology from lists of neighbors. Local.
 *
 * Between two processes the k-th block sent lands in the k-th block received,
 * as on a distributed graph. A neighbor may be in a list several times, may be
 * the process itself, or MPI_PROC_NULL, whose block is not touched.
 *
 * @param comm      an intracommunicator of processes of this MPI_COMM_WORLD;
 *                  says what the ranks mean, and its error handler becomes
 *                  that of the requests. It may be freed afterwards.
 * @param sources, destinations   ranks in comm; copied
 * @param tag       0 or more, the same on all neighbors; two topologies on
 *                  which a pair of processes may make requests at the same
 *                  time, or in different orders, have different tags
 * @param topology  destroy it with rsched_mpi_topology_destroy()
 * @return 0; RSCHED_EINVAL; RSCHED_ENOTSUP (the backend is not active: before
 *         MPI_Init, after MPI_Finalize, disabled, or another tool passes it
 *         by); RSCHED_ENOMEM. Thread-safe.
 */
RSCHED_API int rsched_mpi_topology_create(
    MPI_Comm comm, int indegree, const int sources[], int outdegree,
    const int destinations[], int tag, struct rsched_mpi_topology **topology);

/**
 * Make a topology from a communicator that has one: Cartesian, graph, or
 * distributed graph, with the standard's order of neighbors and rule of
 * pairing. Local, and otherwise as rsched_mpi_topology_create().
 *
 * @return also RSCHED_EINVAL when the communicator has no topology
 */
RSCHED_API int
rsched_mpi_topology_from_comm(MPI_Comm comm, int tag,
                              struct rsched_mpi_topology **topology);

/** Destroy a topology; NULL is allowed. Local, and allowed after MPI_Finalize.
 * Requests made on it live on. */
RSCHED_API void
rsched_mpi_topology_destroy(struct rsched_mpi_topology *topology);

/**
 * Make a persistent request that exchanges with the neighbors of a topology;
 * arguments as those of MPI_Neighbor_alltoallw_init_c: one count, datatype and
 * displacement in bytes for each destination and each source, counts in
 * datatypes. All arrays and datatypes are copied.
 *
 * Returns when the neighbors have called it too. Processes that are connected
 * through neighbors make the same number of requests on the topology, in the
 * same order. If one of them gets an error, farther ones may not: they must
 * learn of it from the program before they start the request.
 *
 * Buffers may lie in GPU memory, whatever RSCHED_GPU says; managed memory counts
 * as the host's.
 *
 * @param request a persistent request, inactive; it belongs to the caller, as
 *                others do: MPI_Request_free
 * @return 0; RSCHED_EINVAL (an argument; the texts of this and the following
 *         are logged, too); RSCHED_ETRUNC or RSCHED_EMISMATCH (the
 *         sizes that two neighbors gave do not fit); RSCHED_EUNREACH (no
 *         engine reaches a neighbor); RSCHED_ENOTSUP (a datatype of more than
 *         32768 parts that is longer than 2 GiB; neighbors wait until they time
 *         out); other errors of rsched_exchange_create(). Different topologies
 *         may be used by several threads at once.
 */
RSCHED_API int rsched_mpi_alltoallw_init(
    const void *sendbuf, const MPI_Count sendcounts[],
    const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
    const MPI_Count recvcounts[], const MPI_Aint rdispls[],
    const MPI_Datatype recvtypes[], struct rsched_mpi_topology *topology,
    MPI_Request *request);

/**
 * Give a request other buffers; counts, displacements and datatypes stay.
 * Local, no neighbor needs to do the same, and the cost is that of writing the
 * addresses down, so that a program may change between two buffers with every
 * start. For requests of rsched_mpi_alltoallw_init() and for accelerated ones
 * of MPI_Neighbor_*_init.
 *
 * @return 0; RSCHED_ESTATE (the request is active); RSCHED_ENOTSUP (not a
 *         persistent request of the backend: it is native, or nonblocking; or
 *         a buffer in GPU memory where neither end was when it was made).
 *         A request belongs to one thread at a time.
 */
RSCHED_API int rsched_mpi_rebind(MPI_Request request, const void *sendbuf,
                                 void *recvbuf);

/**
 * What a persistent request has done; the numbers of this process.
 *
 * @return 0, or RSCHED_ENOTSUP as rsched_mpi_rebind()
 */
RSCHED_API int rsched_mpi_request_stats(MPI_Request request,
                                        struct rsched_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
