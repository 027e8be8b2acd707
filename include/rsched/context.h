/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CONTEXT: what all exchanges of a process share.
 *
 * A context holds the engines, the connections to peers, the progress thread
 * and the settings. A process makes one; making several works and is used by
 * tests (ranks as threads of one process).
 *
 * Fork: a context and its exchanges are of the process that has made them. In a
 * child rsched_exchange_create() gives RSCHED_ESTATE, and anything else that is done
 * with them, destroying them too, is undefined. The child may leave them as they are
 * and make a context of its own, for a job of its own. The parent goes on as if
 * there were no child.
 *
 * Memory and descriptors grow with the number of neighbors that exchanges
 * really have, never with the number of processes.
 */
#ifndef RSCHED_CONTEXT_H
#define RSCHED_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rsched_context;
struct rs_ways; /* inside */

/** An out-of-band transfer under way; made by `isend` and `irecv` of
 * struct rsched_oob and known only to them. */
struct rsched_oob_request;

/**
 * How processes talk to each other while an exchange is made: small messages
 * of known length between pairs, through whatever the host program has (MPI,
 * PMIx, sockets, a queue in a test). Nothing of it is used by start, test and
 * wait.
 *
 * Messages between one ordered pair with one tag must arrive in the order in
 * which they were sent; messages with different tags are independent. Buffers
 * stay valid until the request is done. The calls are made by the thread that
 * makes the exchange, one at a time for each context.
 *
 * Each call returns 0 or a negative RSCHED_E* code, which fails the creation.
 */
struct rsched_oob {
    void *arg; /**< passed on to each call */

    /** Begin to send `length` bytes to process `peer`; must not wait for the
     * receiver. */
    int (*isend)(void *arg, int peer, uint64_t tag, const void *buffer,
                 size_t length, struct rsched_oob_request **request);

    /** Begin to receive exactly `length` bytes from process `peer`. */
    int (*irecv)(void *arg, int peer, uint64_t tag, void *buffer,
                 size_t length, struct rsched_oob_request **request);

    /** Progress a request. Sets *done; when true the request is gone. */
    int (*test)(void *arg, struct rsched_oob_request *request, bool *done);

    /** Give up a request: afterwards the buffer is not touched any more. */
    void (*cancel)(void *arg, struct rsched_oob_request *request);
};

/** What a context is made from. Zero it, then set what is needed. */
struct rsched_context_params {
    int process;       /**< this process's number; exchanges name their peers
                            by such numbers */
    int num_processes; /**< how many there are; for messages only */
    int num_local;     /**< how many of them run on this node, 0 if unknown;
                            decides with `num_cores` how long a wait may spin.
                            Those that are bound to other cores than this one
                            may be left out of both */
    int num_cores;     /**< how many cores these may use, all together; 0 if
                            unknown, then the cores that this process may use
                            are taken for those of all, until a peer on the node
                            turns out to have others. Quotas of processor time
                            (cgroups) count as cores: the library finds them, and
                            which neighbors share them; of other processes only
                            who says nothing here is taken to have all in them */
    bool restarts;     /**< another process with its number may come in the
                            place of one of this node that has died: making an
                            exchange waits for it. Else a neighbor that is known to
                            be dead is an error at once */
    uint64_t job;      /**< the same number in all processes of the job and no
                            other's; a peer with a different one is refused */
    struct rsched_oob oob; /**< may be all zero if exchanges have no peers but
                                the process itself */

    /** Called again and again while rsched waits, so that the host's own
     * communication goes on; may be NULL. Never called by the progress
     * thread. */
    void (*host_progress)(void *arg);
    void *host_arg;
};

/**
 * Make a context. Each neighbor on the node takes three descriptors as long as it is
 * there, or one where three quarters of RLIMIT_NOFILE are open already; the last quarter
 * is left for further ones, and for the program. Those of a neighbor that has made
 * another context are given back once an exchange has been made with that, and those
 * with the one before have been destroyed; one of them is kept while the one before lives
 * and has not destroyed them.
 *
 * @param params  copied
 * @param context where it is stored; destroy it with rsched_context_destroy()
 * @return 0; RSCHED_EINVAL (also for a wrong RSCHED_* variable, named in the
 *         text, and for a device of RSCHED_DEVICES that is not there),
 *         RSCHED_ENOMEM, RSCHED_ESYS
 */
RSCHED_API int rsched_context_create(const struct rsched_context_params *params,
                                     struct rsched_context **context);

/**
 * Destroy a context; NULL is allowed. All its exchanges must have been
 * destroyed. Needs nothing from the peers, which may be gone; but what was sent
 * in epochs whose waits have returned is brought to them, as long as the
 * device tries; where it tries for ever, until the peer has taken nothing for
 * RSCHED_DESTROY_TIMEOUT.
 */
RSCHED_API void rsched_context_destroy(struct rsched_context *context);

/**
 * Do what other exchanges of the context have left undone. start, test and
 * wait of one exchange progress that exchange only; a thread that waits for
 * something else for a long time may call this (or leave it to the progress
 * thread). Any thread may call it.
 */
RSCHED_API void rsched_context_progress(struct rsched_context *context);

/** How long somebody has waited in vain; zero it before the first step. */
struct rsched_pause {
    uint64_t steps; /**< so far */
    uint64_t vain;  /**< yields in a row that let nobody else run */
    uint64_t helps; /**< times that another exchange has moved on instead */
};

/**
 * One step of waiting for something that rsched_exchange_test() did not find
 * done: spins, later yields the core, later sleeps for a bounded time, and
 * calls the host's progress. For callers that wait for several things at
 * once:
 *
 *     struct rsched_pause pause = {0};
 *     while (!everything_done())
 *         rsched_context_pause(context, &pause);
 *
 * A caller may miss an event between its test and the sleep; the sleep is
 * bounded (RSCHED_SLEEP), and the sleep of the first steps is short.
 */
RSCHED_API void rsched_context_pause(struct rsched_context *context,
                                     struct rsched_pause *pause);

/**
 * The same for a caller who sleeps by himself, because something of his own can
 * wake him.
 *
 * @return how long he is to sleep, in ps, or 0: look again
 */
RSCHED_API uint64_t rsched_context_rest(struct rsched_context *context,
                                        struct rsched_pause *pause);

/** Whether an engine of the context may reach processes of other nodes. */
RSCHED_API bool
rsched_context_leaves_node(const struct rsched_context *context);

/**
 * What the ways within a node cost, as exchanges of the context see it: for
 * protocols that move messages themselves (rsched/pull.h). Stays as long as the
 * context does.
 *
 * @param context NULL, where none could be made: as for one without a machine
 * @return NULL only if there is no memory
 */
RSCHED_API const struct rs_ways *
rsched_context_ways(const struct rsched_context *context);

/**
 * Bytes that the slots of one process are to have together, for protocols that have slots
 * of their own: with so many, those that are written again have left its cache, where
 * they would be written in four times the time. More than that gains nothing.
 *
 * @return 0 where RSCHED_RING says how many an edge has: few will do then
 */
RSCHED_API uint64_t rsched_slots_bytes(void);

/** What all exchanges of a context have done; see struct rsched_stats. */
struct rsched_context_stats {
    uint64_t connections;    /**< peers that engines are connected to */
    uint64_t shared_bytes;   /**< shared memory that this process owns */
    uint64_t ticks;          /**< of the progress thread */
    uint64_t tick_moves;     /**< ticks that moved something */
    uint64_t yields, sleeps; /**< in waits */
    bool crowded;            /**< processes are known to outnumber cores, or what a
                                  quota of processor time gives them (a cgroup's), so
                                  that waits hardly spin */
    uint64_t wakes;          /**< sleepers woken, each a system call */
    uint64_t gpu_messages;   /**< in GPU memory, sent by epochs under way */
    uint64_t gpu_in_flight;  /**< the mean of these over starts that the last
                                  rsched_exchange_update() has taken over; 0:
                                  none has */
};

RSCHED_API void rsched_context_get_stats(struct rsched_context *context,
                                     struct rsched_context_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
