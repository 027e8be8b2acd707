/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * OPENING: exchanges given to kernels, and memory that they put words to: the
 * host's side of rsched/device.h.
 *
 * A program makes two exchanges of one pattern, one for each set of buffers,
 * and opens them together. What it gets is a pointer that it hands to its
 * kernel, which starts and waits by itself, as often as it likes:
 *
 *     rsched_exchange_create(context, &even, &sets[0]);
 *     rsched_exchange_create(context, &odd, &sets[1]);
 *     rsched_exchange_open_rings(sets, gpu, &opening);
 *     solve<<<1, 256, 0, stream>>>(..., rsched_opening_view(opening));
 *     cudaStreamSynchronize(stream);
 *     error = rsched_opening_check(opening);
 *     rsched_opening_close(opening);
 *
 * Epoch k of the kernel, counted from the opening, is the next epoch of
 * sets[k % 2]. Which calls a kernel makes, who may call together, and what
 * holds for the buffers: rsched/device.h.
 *
 * ## How it is started
 *
 * A neighbor is reached in one of two ways. The kernel's code is the same, and an
 * opening may have neighbors of both kinds.
 *
 * By a **ring**: the kernel itself tells the card, on a queue pair of its own for
 * that neighbor (rsched/device.h), and no processor takes part. Both ends have to
 * agree on that, so it takes rsched_exchange_open_rings(), which all neighbors
 * call together. What it needs of each pair:
 *
 *   - all that moves between the two goes over the verbs engine, over devices
 *     whose queue pairs rsched drives itself (RSCHED_MLX5), and which say that
 *     they keep writes in order, unless RSCHED_NOTIFY=flag does;
 *   - what arrives from a neighbor is at most 64 contiguous blocks in either set,
 *     and what is sent to it fits into half of the queue pair's ring;
 *   - sizes that do not change (no RSCHED_EXCHANGE_VARIABLE);
 *   - no managed memory, whose pages the driver moves;
 *   - for kernels of a GPU: what arrives lies in its memory, what is sent there or
 *     in the host's; the GPU orders what devices write; and its driver maps queue
 *     pairs and their doorbells (docs/gpu.md). That has not run on hardware.
 *
 * All that goes to a neighbor by a ring goes over the first rail, directly into its
 * receive buffers.
 *
 * By the **proxy**, in all other cases, and for what a process sends to itself:
 * the kernel writes a request into a ring in pinned host memory, a thread of the
 * opening starts the exchange, goes on with it, and says when it is complete in a
 * word that the kernel looks at. So it works over every engine, with and without
 * a NIC, for buffers in GPU and in host memory. rsched_exchange_open_device() opens
 * with the proxy alone, and neighbors need not have opened theirs: they may
 * start the same epochs from the host.
 *
 * The thread looks for requests all the time: first without pause, then with
 * yields, and after some milliseconds without any 20000 times a second. Where all
 * neighbors are reached by rings it only looks whether they live, 1000 times a
 * second.
 *
 * ## Failure
 *
 * A neighbor that dies, closes its opening or destroys an exchange while a kernel
 * waits for it ends the waits with RSCHED_EPEER; what it had sent before that
 * still counts. So does a work request of the kernel's own that fails. An opening
 * that has failed has failed both exchanges, and says so to its neighbors.
 *
 * ## What a kernel must leave free
 *
 * While it runs, rsched copies what it sends. Where that takes a kernel
 * (docs/gpu.md, Packing) some of the GPU's multiprocessors must be free, or
 * become free: a kernel that has all of them and waits, waits for ever. Where an
 * epoch is the first one of its exchange memory of peers is opened in it, for
 * which a driver may wait for running kernels: have the host start and wait for
 * one epoch of each set before. (The program knows when it has: epochs of the
 * host before the opening do not count.)
 *
 * Opening and closing map and free memory, for which a driver may wait for all
 * kernels of the process. Where several contexts of a process open, none of their
 * kernels is launched before all of them have.
 *
 * ## Threads
 *
 * From open to close both exchanges are the opening's: nobody calls any
 * function with them. An opening is opened and closed by one thread at a time;
 * stop, check and get_stats may be called by any thread between the two.
 */
#ifndef RSCHED_DEVICE_OPEN_H
#define RSCHED_DEVICE_OPEN_H

#include <stdint.h>

#include <rsched/exchange.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rsched_device_exchange;
struct rsched_opening;

/** In the place of a GPU's number: the functions of rsched/device.h are called
 * by threads of this process. For tests, and for programs that run the same code
 * where there is no GPU. */
enum { RSCHED_NO_GPU = -1 };

/**
 * Open exchanges for kernels, by the proxy. Local: neighbors take no part.
 *
 * @param sets    of even and of odd epochs: of one context, inactive, loaded,
 *                never started on a stream; not the same one twice
 * @param gpu     that the kernels run on, as this process counts them (the
 *                number of cuDeviceGet), or RSCHED_NO_GPU
 * @param opening where it is stored; close it with rsched_opening_close(),
 *                before the exchanges are destroyed
 * @return 0; RSCHED_EINVAL (what `sets` may not be, a negative number);
 *         RSCHED_ESTATE (an exchange is active, nothing is loaded, it has been
 *         started on a stream, or is open already); RSCHED_ENOTSUP (built without
 *         cuda.h, the program has not loaded the driver, RSCHED_PROGRESS=0:
 *         rsched may have no thread); RSCHED_ENOMEM; RSCHED_ESYS (what the
 *         driver or the system said, also of a GPU that is not there); the
 *         error by which one of the exchanges has failed before
 */
RSCHED_API int
rsched_exchange_open_device(struct rsched_exchange *const sets[2], int gpu,
                            struct rsched_opening **opening);

/**
 * Open exchanges for kernels, by rings to all neighbors that can be reached so,
 * else by the proxy. Collective among neighbors only, as rsched_exchange_create():
 * returns when all processes that either exchange has an edge with have called it
 * too, for exchanges that were made together. It talks to them under the tag of
 * sets[0], so no exchange of that tag is being made at the same time.
 *
 * From this call on neighbors may write the receive buffers of sets[0], and from
 * the kernel's first start on those of sets[1], until the opening is closed, by the
 * rule of rsched/device.h. It is closed before they are freed. A neighbor may close
 * its own at any time after its kernel's last wait.
 *
 * @return as rsched_exchange_open_device(), and RSCHED_EMISMATCH, RSCHED_ETIMEOUT,
 *         RSCHED_EPEER, or what an out-of-band call returned, as
 *         rsched_exchange_create(). When one process fails its neighbors fail too,
 *         unless it fails in the last step: then their kernels' waits do.
 */
RSCHED_API int
rsched_exchange_open_rings(struct rsched_exchange *const sets[2], int gpu,
                           struct rsched_opening **opening);

/**
 * Why an opening has no ring to a neighbor.
 *
 * @param process the neighbor
 * @return the reason; NULL: there is a ring, or nothing moves between the two.
 *         Valid until the opening is closed.
 */
RSCHED_API const char *
rsched_opening_reason(const struct rsched_opening *opening, int process);

/**
 * What kernels are given: valid on the GPU, not for processors (but with
 * RSCHED_NO_GPU), until the opening is closed.
 */
RSCHED_API struct rsched_device_exchange *
rsched_opening_view(const struct rsched_opening *opening);

/**
 * End the kernel's waits, now and in the future, with an error: where the host
 * has decided that nothing will come. The kernel's calls return it; nothing that
 * is asked later is started. An epoch that is under way stays so.
 *
 * @param error a negative RSCHED_E*; anything else counts as RSCHED_EINVAL. Of
 *              several errors the first one stays, for kernels and for
 *              rsched_opening_check().
 */
RSCHED_API void rsched_opening_stop(struct rsched_opening *opening, int error);

/**
 * What has become of it. A kernel's calls return the same code, which has no
 * text there.
 *
 * @return 0; the error that an epoch has failed with, or that the opening was
 *         stopped with, and its text
 */
RSCHED_API int rsched_opening_check(struct rsched_opening *opening);

/** What an opening has done. What goes by rings is in none of the counters of the
 * exchanges. */
struct rsched_opening_stats {
    uint64_t asked;     /**< epochs that kernels have started */
    uint64_t completed; /**< of them, as the proxy's thread has seen, or, where
                             there are rings only, a kernel's test or wait */
    uint32_t rings;     /**< neighbors that are reached by rings */
    uint32_t proxied;   /**< neighbors that are reached by the proxy, this process
                             included if it sends to itself */
    uint64_t doorbells; /**< that kernels have rung */
};

RSCHED_API void
rsched_opening_get_stats(const struct rsched_opening *opening,
                         struct rsched_opening_stats *stats);

/**
 * Close an opening; NULL is allowed. Local; no kernel uses it any more. The
 * exchanges are the program's again. If a kernel has started an epoch and not
 * waited for it, what the proxy moves of it may be under way: its exchange may be
 * active, and may be waited for then. What goes by rings is given up: neighbors may
 * wait for it in vain, and learn that. The driver may wait for streams.
 */
RSCHED_API void rsched_opening_close(struct rsched_opening *opening);

struct rsched_device_target;
struct rsched_targets;

/**
 * Open memory of each neighbor for single words that kernels put (rsched_device_put()),
 * and memory of this process for theirs. Collective among the exchange's neighbors,
 * as rsched_exchange_open_rings(): all of them call it, each with memory of its
 * own, which may be of any length. Of the exchange only the neighbors count; it may
 * be started as before, or be open for kernels itself, and several such openings may
 * be made of it, one after the other.
 *
 * There is a target for each neighbor that all puts of the exchange go to over the
 * verbs engine, with RSCHED_MLX5; for kernels of a GPU the memory is that GPU's, and
 * what is said of rings above holds. There is no proxy for words: of other neighbors
 * rsched_targets_reason() says why.
 *
 * From this call on all neighbors may write the memory, in no order among each
 * other; what one has put arrives in its order, 8 bytes at once. A word is
 * looked at by rsched_device_load(). Before it closes its own, or frees the memory,
 * a process has to know that the neighbors put no more (an epoch of the exchange that
 * they start after their last flush says so): what comes later is refused, and fails
 * the target there.
 *
 * @param exchange loaded or not; closed before it is destroyed
 * @param gpu      that the kernels run on, or RSCHED_NO_GPU
 * @param memory   aligned to 8 bytes; NULL only with 0 bytes
 * @param bytes    a multiple of 8; 0: nothing is put to this process
 * @param targets  where it is stored; close it with rsched_targets_close()
 * @return as rsched_exchange_open_rings(); RSCHED_EINVAL also for memory that is NULL
 *         or not aligned; RSCHED_EMISMATCH where a neighbor opens rings at the same time
 */
RSCHED_API int rsched_exchange_open_targets(struct rsched_exchange *exchange,
                                            int gpu, void *memory,
                                            uint64_t bytes,
                                            struct rsched_targets **targets);

/** What kernels put to a neighbor's memory by: valid as rsched_opening_view(), until
 * it is closed. Any number of threads and kernels may use it at once.
 * @return NULL: there is none */
RSCHED_API struct rsched_device_target *
rsched_targets_view(const struct rsched_targets *targets, int process);

/** Bytes of that memory. */
RSCHED_API uint64_t rsched_targets_bytes(const struct rsched_targets *targets,
                                         int process);

/** Why there is no target. @return NULL: there is one, or it is no neighbor. Valid
 * until it is closed. */
RSCHED_API const char *
rsched_targets_reason(const struct rsched_targets *targets, int process);

/** What has become of them: kernels have the code, here is the text.
 * @return 0, or the error that one has failed with, of the lowest neighbor */
RSCHED_API int rsched_targets_check(const struct rsched_targets *targets);

/** What kernels have put by all of them. */
struct rsched_targets_stats {
    uint32_t targets;   /**< that there are */
    uint64_t puts;      /**< words */
    uint64_t wqes;      /**< that have carried them: fewer, where warps were
                             coalesced */
    uint64_t doorbells; /**< that were rung for them */
};

/** No kernel uses them meanwhile. */
RSCHED_API void
rsched_targets_get_stats(const struct rsched_targets *targets,
                         struct rsched_targets_stats *stats);

/** Close them; NULL is allowed. Local; no kernel uses them any more. What was put and
 * not flushed may be lost. The driver may wait for kernels. */
RSCHED_API void rsched_targets_close(struct rsched_targets *targets);

#ifdef __cplusplus
}
#endif

#endif
