/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * EXCHANGE: a pattern that runs.
 *
 * An exchange is a pattern bound to buffers and peers and compiled, by the
 * engines, to lists that a start only has to hand over. Its life:
 *
 *     create -> inactive -> start -> active -> wait or test -> inactive
 *            -> start ... -> destroy
 *
 * The number of a start, from 0, is its **epoch**. A process may be one epoch
 * ahead of neighbors that it also receives from, and several ahead of those to
 * which it only sends; data of different epochs never mix.
 *
 * Thread-safety: an exchange belongs to one thread at a time; different
 * exchanges of a context may be used by different threads at once.
 */
#ifndef RSCHED_EXCHANGE_H
#define RSCHED_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/context.h>
#include <rsched/error.h>
#include <rsched/pattern.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rsched_exchange;
struct rsched_schedule;

/** Flags of rsched_exchange_params. */
enum {
    /** Sizes and layouts change from epoch to epoch. The pattern then only
     * says how many puts and receives there are with each peer;
     * rsched_exchange_load() gives an epoch's sizes, layouts and addresses
     * before each start. Only what the pattern declares to lie in GPU memory, or
     * what has an address there when the exchange is made, may lie there. Each
     * message carries its size and is checked. */
    RSCHED_EXCHANGE_VARIABLE = 1u << 0,

    /** With the former: the pattern's sizes are those of the first load, and
     * processes that do not agree on them fail to make the exchange, as without
     * it. A process looks at what it receives, so all must have this flag. */
    RSCHED_EXCHANGE_COMPARED = 1u << 1,
};

/** What an exchange is made from. Zero it, then set what is needed. */
struct rsched_exchange_params {
    /** What must move. Puts and receives name their other process; the own
     * side is this process or RSCHED_ANY_PROCESS. Not needed afterwards. */
    const struct rsched_pattern *pattern;

    /** A schedule of that pattern, whose order the puts are executed in, or
     * NULL: then the pattern is planned for the machine RSCHED_MACHINE with
     * the planner RSCHED_PLANNER. (A variable exchange has the order of its
     * pattern, dealt to the rails in turn.) Its engines are the rails of the
     * connections, modulo their number. What a process sends to itself comes
     * last in any case: nobody waits for it. Not needed afterwards. */
    const struct rsched_schedule *schedule;

    /** One buffer address for each put and each receive; the layouts' offsets
     * count from them. Buffers may lie in GPU memory, managed memory counts as
     * the host's, and the runs of one layout may lie in several kinds of
     * memory: docs/gpu.md has what holds for them. The arrays are copied.
     * NULL is allowed when there are no puts (receives), and with
     * RSCHED_EXCHANGE_VARIABLE, where they say no more than what memory the
     * buffers lie in: they need not be those of the first load. */
    const void *const *send;
    void *const *receive;

    /** Names this creation: every process of the exchange gives the same tag,
     * and no other exchange that is being made between two of them has it. Nor
     * has a later one if some process was told RSCHED_ETIMEOUT or RSCHED_EPEER, or
     * an error of an out-of-band call: messages may still be on their way. */
    uint64_t tag;

    unsigned flags; /**< RSCHED_EXCHANGE_* */
};

/**
 * Make an exchange. Collective among neighbors only: returns when all peers
 * that the pattern names have agreed, which needs them to call it too, but no
 * other process.
 *
 * A peer may have made another context. Where processes are started again
 * (`restarts` of the context's parameters), another one may come in the place of a peer
 * that was dead when the call began, and is waited for. Exchanges with the old one stay
 * failed.
 *
 * @param exchange where it is stored; destroy it with
 *                 rsched_exchange_destroy()
 * @return 0, or
 *         RSCHED_EINVAL    the pattern or the parameters are wrong
 *         RSCHED_EMISMATCH a peer has other sizes, counts, flags, settings,
 *                          version, page size or byte order, or another tag; the
 *                          text says which
 *         RSCHED_ETRUNC    a put is longer than the receive that it meets, here
 *                          or at a peer
 *         RSCHED_EUNREACH  no engine reaches a peer; the text says why
 *         RSCHED_ETIMEOUT  a peer did not come (RSCHED_SETUP_TIMEOUT), nor
 *                          another one in the place of one that was dead, or one
 *                          that a peer waits for
 *         RSCHED_EPEER     a peer has failed
 *         RSCHED_ENOTSUP   a buffer of which a run does not lie in one
 *                          allocation of host memory, or of a GPU's primary
 *                          context, or whose way (RSCHED_GPU_WAY) is not
 *                          possible
 *         RSCHED_ESTATE    the context is of another process, before a fork
 *         RSCHED_ELIMIT    more than 2^31 puts, or a plan takes longer than its
 *                          times can say
 *         RSCHED_ENOMEM, RSCHED_ESYS, or what an out-of-band call returned.
 *         When one process fails, its peers fail too, and theirs unless it
 *         failed in the last step. Processes farther away may succeed: they
 *         must learn of it from the host program before they wait.
 */
RSCHED_API int
rsched_exchange_create(struct rsched_context *context,
                       const struct rsched_exchange_params *params,
                       struct rsched_exchange **exchange);

/**
 * Give the puts and receives other addresses; sizes and layouts stay. Local.
 * The exchange must be inactive and not variable.
 *
 * @return 0, RSCHED_ESTATE, RSCHED_EINVAL, RSCHED_ENOTSUP (GPU memory, for puts
 *         that had both ends in host memory when the exchange was made); the
 *         error by which the exchange has failed before
 */
RSCHED_API int rsched_exchange_bind(struct rsched_exchange *exchange,
                                    const void *const *send,
                                    void *const *receive);

/**
 * Say what the next epochs of a variable exchange move. Local. The pattern
 * must have the puts and receives of the exchange's own, in the same order and
 * with the same processes; bytes, layouts and addresses are free. It holds
 * until the next load. A put of 0 bytes sends nothing at all, so the receiver
 * must expect 0 bytes too.
 *
 * @return 0, RSCHED_ESTATE (active, or not variable), RSCHED_EINVAL,
 *         RSCHED_ENOTSUP (GPU memory that the exchange's pattern did not have),
 *         RSCHED_ETRUNC, RSCHED_EMISMATCH (a put to the process itself is longer, or
 *         shorter, than the receive that it meets), RSCHED_ELIMIT (2^45 bytes or more
 *         to or from one process), RSCHED_ENOMEM; the error by which the exchange has
 *         failed before. After one of these it must be loaded anew before it starts.
 */
RSCHED_API int rsched_exchange_load(struct rsched_exchange *exchange,
                                    const struct rsched_pattern *pattern,
                                    const void *const *send,
                                    void *const *receive);

/**
 * Choose the ways of the exchange's messages in GPU memory again, by how many
 * of them this process has been seen to have in flight (docs/gpu.md, "Which way a
 * put takes"). Local: which way a message goes is up to its sender, and each
 * message says so, so the neighbors need not call it, nor at the same epoch.
 *
 * A pattern says how many messages one of its epochs has in flight; the exchange
 * is made for these. What other exchanges of the context have in flight at the
 * same time is counted when epochs start and end. An update takes over the mean since
 * the update before, of any exchange of the context, if there have been 16 starts
 * or more. Between updates no start decides anything. New exchanges, and those
 * that are bound or loaded, are chosen for the number that was taken over last.
 * With RSCHED_GPU_WAY, or without costs of ways of GPU memory, nothing changes.
 *
 * The exchange must be inactive. An exchange without GPU memory stays as it is.
 *
 * @param changed how many of its messages go another way from the next epoch
 *                on; may be NULL
 * @return 0; RSCHED_ESTATE (active, or open for kernels); RSCHED_ENOMEM: some
 *         stay as they were, and the exchange is as usable as before; the error
 *         by which the exchange has failed before
 */
RSCHED_API int rsched_exchange_update(struct rsched_exchange *exchange,
                                      uint32_t *changed);

/**
 * Start the next epoch. Local: never waits for a peer. From now on the send
 * buffers must not be written and the receive buffers not be touched, until
 * the epoch is complete. That goes for GPUs too: what has been enqueued to
 * streams that touches them must be over.
 *
 * @return 0; RSCHED_ESTATE (active already, or a load has failed or is
 *         missing); RSCHED_EPEER (a peer to which something is to be sent is
 *         known to be dead; nothing was started); the error by which the
 *         exchange has failed before
 */
RSCHED_API int rsched_exchange_start(struct rsched_exchange *exchange);

/**
 * Progress the exchange and see whether the epoch is complete: the send
 * buffers may be reused and the receive buffers hold this epoch's data.
 *
 * @param done set to true if so, and the exchange is inactive again; also
 *             true for an exchange that is inactive
 * @return 0; RSCHED_EPEER, RSCHED_ETRUNC, RSCHED_EMISMATCH: the epoch has
 *         failed and the exchange is inactive. Other exchanges stay usable. The
 *         send buffers must not be written until it has been destroyed: they may
 *         still be on their way to other neighbors. Nor must the receive buffers be
 *         touched until then: a neighbor that has been stopped may still write
 *         them when it goes on.
 */
RSCHED_API int rsched_exchange_test(struct rsched_exchange *exchange,
                                    bool *done);

/**
 * Wait until the epoch is complete; returns at once when the exchange is
 * inactive. Spins, then yields, then sleeps; drives the host's progress, and goes
 * on with other exchanges of the context that are under way.
 *
 * @return as rsched_exchange_test()
 */
RSCHED_API int rsched_exchange_wait(struct rsched_exchange *exchange);

/**
 * As rsched_exchange_test(), but *done says whether all that moves to and from
 * one peer is complete. The exchange stays active until test or wait. Of an
 * epoch that a stream has started *done says whether all of it is complete.
 */
RSCHED_API int rsched_exchange_test_peer(struct rsched_exchange *exchange,
                                         int peer, bool *done);

/** Whether an epoch is under way, or a stream has reached a start that is about
 * to begin one. */
RSCHED_API bool
rsched_exchange_is_active(const struct rsched_exchange *exchange);

/**
 * @name Starts and waits in streams of a GPU
 *
 * A program whose halos are computed by a GPU need not wait for its streams
 * before a start, nor for the exchange before it enqueues what comes next:
 *
 *     compute_edge<<<..., stream>>>(...);
 *     rsched_exchange_start_on(exchange, stream);
 *     compute_inside<<<..., stream>>>(...);
 *     rsched_exchange_wait_on(exchange, stream);
 *     use_halo<<<..., stream>>>(...);
 *
 * Both calls enqueue and return. When the stream reaches the start, the progress
 * thread begins an epoch and goes on with it; what is behind the wait in the
 * stream begins when the epoch is complete. Epochs may be enqueued ahead: 16 of an
 * exchange, before the next start waits (see there). The two calls may be captured
 * into a graph, which may be launched any number of times: each launch is an epoch
 * for each start in it.
 *
 * - Starts and waits take turns, in the order in which the GPU comes to them.
 *   They may be in different streams, of one context, if something orders these
 *   (an event). A graph that has a start has its wait too; of a capture that fails
 *   nothing is left.
 * - The buffers belong to the exchange from the start to the wait, as the stream
 *   sees it: work before the start may write them, work behind the wait may read
 *   and write them.
 * - rsched_exchange_test() and rsched_exchange_wait() go on with starts that
 *   streams have reached, and do not know of others. Before
 *   rsched_exchange_start(), _bind() or _load() after starts on a stream, wait
 *   for the stream (cuStreamSynchronize), then for the exchange.
 * - An epoch that fails lets the stream go on, with receive buffers of which
 *   nothing is known. rsched_exchange_wait() has the error, and so has the next
 *   rsched_exchange_start_on(). Starts that streams reach later do nothing.
 * - An exchange may be destroyed while streams have starts and waits of it, and
 *   while graphs do. What is under way is given up; the rest does nothing.
 * - For much that has nothing to do with a stream the driver may wait for all that
 *   is enqueued, and for a stream that waits for an epoch while it keeps what that
 *   epoch needs to go on: then both wait for ever. So between a start on a stream
 *   and the end of its epoch a program allocates, frees, registers and unregisters
 *   no memory that the driver knows (cudaMalloc, cudaFree, cudaMallocHost,
 *   cudaFreeHost, cudaHostRegister, cudaHostUnregister), makes and destroys no
 *   stream, and loads no kernel. Kernels are loaded when they are launched first
 *   (since CUDA 12.2, but for CUDA_MODULE_LOADING=EAGER): launch each of them once
 *   before. Nor does it create, load or destroy any exchange of GPU memory in that
 *   time, or start another one on a stream for the first time, as this does such
 *   things. For epochs of rsched_exchange_start() there is
 *   no such rule.
 * - A stream has room for about a thousand operations. Where it is full, with what
 *   the program enqueues behind waits or with graphs that it launches, the driver
 *   keeps whoever enqueues more, and other threads with him. So of graphs no more
 *   than 16 starts are launched that the GPU has not come to: in 16 launches, or in
 *   one (measured: 32 never end, H100, driver 580).
 * - The first epoch after the exchange, or a neighbor's, was created, bound or loaded
 *   opens memory of neighbors on the node, for which the driver may wait likewise:
 *   have the host start and wait for one epoch before the first start on a stream.
 *   A warning says so, once for each process, where that was not done.
 * - The stream that waits must not keep from the GPU what completes the epoch:
 *   streams that the program makes with the highest priority share queues of the
 *   GPU's with those of rsched, and may; so may copies between host and GPU that
 *   are enqueued behind a wait, whatever the priority (CUDA_DEVICE_MAX_CONNECTIONS).
 *
 * What has been seen of this on hardware: docs/gpu.md, "On hardware".
 * @{
 */

/**
 * Enqueue a start. As with the functions above, one thread at a time uses an
 * exchange.
 *
 * Where streams have not reached 16 starts of the exchange that were enqueued
 * before, this waits until they have reached one; starts in graphs do not count.
 * So what the caller does later must not be what a stream, or a neighbor, needs to
 * come to these starts. It gives up when the driver says that work in the stream
 * has failed, or when the exchange has. Else it never waits. wait_on does not either,
 * but as the driver does where a stream is full.
 *
 * @param stream a CUstream or cudaStream_t; NULL is the default stream
 * @return 0; RSCHED_ESTATE (the wait for the start before was not enqueued, an
 *         epoch of rsched_exchange_start() is under way, or nothing is loaded);
 *         RSCHED_ENOTSUP (built without cuda.h, no driver or too old a one,
 *         RSCHED_PROGRESS=0, a stream of a context that is not its GPU's primary
 *         one); RSCHED_EINVAL (a stream of another context than
 *         the first one's); RSCHED_ENOMEM, RSCHED_ESYS (what the driver said, also of
 *         work that was enqueued before); the error by which the exchange has
 *         failed before
 */
RSCHED_API int rsched_exchange_start_on(struct rsched_exchange *exchange,
                                        void *stream);

/**
 * Enqueue the wait for the start that was enqueued last.
 *
 * @return 0; RSCHED_ESTATE: there is none that is not waited for; or as
 *         rsched_exchange_start_on(), but not the error of an epoch: a wait can
 *         always be enqueued
 */
RSCHED_API int rsched_exchange_wait_on(struct rsched_exchange *exchange,
                                       void *stream);

/** @} */

/**
 * Destroy an exchange; NULL is allowed. Local, also when peers are dead. The
 * exchange must be inactive (an active one is given up: what its neighbors
 * see of that epoch is undefined). Memory that a living peer could still
 * write is kept aside until it cannot. What a device still reads of the send
 * buffers for a neighbor that may take it is waited for, until it has been
 * sent or the connection fails, or the neighbor has stopped (RSCHED_DESTROY_TIMEOUT).
 * What a neighbor on the node has begun to copy into the receive buffers of an epoch
 * that is given up is waited for as long as that process lives: it takes moments, but if
 * the process has been stopped in the middle of it (SIGSTOP, a debugger) it goes on
 * with it when it is continued. After RSCHED_DESTROY_TIMEOUT a warning names it. Other
 * exchanges go on meanwhile.
 */
RSCHED_API void rsched_exchange_destroy(struct rsched_exchange *exchange);

/** Ways to move bytes from a send to a receive buffer. */
enum rsched_way {
    RSCHED_WAY_SELF,    /**< within the process, one copy */
    RSCHED_WAY_LANDING, /**< into slots at the receiver, which copies again */
    RSCHED_WAY_DIRECT,  /**< the sender writes into the receive buffer */
    RSCHED_WAY_PULL,    /**< the receiver reads the send buffer */
    RSCHED_WAY_CMA,     /**< the receiver has the kernel read it */
    RSCHED_WAY_STAGED,  /**< between GPU memory and slots at the receiver, by
                             copy engines */
    RSCHED_WAY_CUDA_IPC, /**< a copy engine reads the peer's GPU memory */
    RSCHED_WAY_GDRCOPY,  /**< as staged, but processors copy (GDRCopy) */
    RSCHED_WAY_GDR_LOOPBACK, /**< a NIC reads the sender's GPU memory and writes
                                  the receiver's, within a node */
    RSCHED_NUM_WAYS
};

/** The name of a way: "self", "landing", ... NULL if there is none. */
RSCHED_API const char *rsched_way_name(enum rsched_way way);

enum {
    /** Most engines of a library. */
    RSCHED_MAX_ENGINES = 4,
};

/** What an exchange has done since it was made. */
struct rsched_stats {
    uint64_t epochs;        /**< started */
    uint64_t edges_out;     /**< edges with at least one put, self included */
    uint64_t edges_in;      /**< edges with at least one receive */
    uint64_t edges_self;    /**< of edges_out, to the process itself */
    uint64_t puts;          /**< moved by completed or running epochs */
    uint64_t bytes;         /**< of these puts */
    uint64_t self_bytes;    /**< of these, within the process */
    uint64_t chunks_out;    /**< landing slots filled */
    uint64_t chunks_in;     /**< landing slots emptied */
    uint64_t credit_stalls; /**< waits for a landing slot, or a receiver's
                                 buffers, to become free */
    uint64_t deferred;      /**< epochs with something that start could not do */
    uint64_t thread_moves;  /**< progress thread visits that moved something */
    uint64_t way_bytes[RSCHED_NUM_WAYS]; /**< sent, by way */
    uint64_t nontemporal_bytes; /**< that this process has copied past the
                                     caches, or written into slots so, whichever
                                     way they went */
    uint64_t prefetched_bytes; /**< that this process has copied once, as receiver or as a sender
                                    that helps, or within itself, in the way that has more lines
                                    under way at a time (RSCHED_PREFETCH) */
    /** Sent, by engine, in the order of rsched_engine_at(). */
    uint64_t engine_bytes[RSCHED_MAX_ENGINES];
    uint64_t gpu_messages;  /**< in GPU memory that each epoch sends, as loaded */
    uint64_t gpu_in_flight; /**< that their ways were chosen for: 1 is for
                                 latency, more is for bandwidth; 0: there are
                                 none */
    uint64_t way_changes;   /**< of such messages, by rsched_exchange_update() */
    uint64_t trials;        /**< of edges in ordinary memory, or of short blocks:
                                 whether one copy or slots are faster was tried out
                                 (RSCHED_TRIALS); of others which stores into slots
                                 are (RSCHED_SLOT_STORES) */
    uint64_t trial_changes; /**< of these, after which another way was taken */
};

RSCHED_API void rsched_exchange_get_stats(const struct rsched_exchange *exchange,
                                      struct rsched_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
