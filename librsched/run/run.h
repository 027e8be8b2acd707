/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of librsched/run share: contexts and exchanges from inside. */
#ifndef RS_RUN_H
#define RS_RUN_H

#include <pthread.h>
#include <stdatomic.h>

#include <rsched/engine.h>
#include <rsched/exchange.h>
#include <rsched/schedule.h>

#include "librsched/base/adopt.h"
#include "librsched/base/coordinator.h"
#include "librsched/base/quota.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* An engine that has opened. */
struct rs_engine {
    const struct rsched_engine_ops *ops; /* NULL: there is none, or not here */
    struct rsched_engine *engine;
};

/* What a process must know of another's engines to reach it, in the order of
 * rsched_engine_at(); zeros where an engine has not opened. */
struct rs_addresses {
    unsigned char of[RSCHED_MAX_ENGINES][RSCHED_ENGINE_ADDRESS_BYTES];
};

/* What a connection is for. */
enum rs_use {
    RS_USE_HOST,     /* messages in host memory at both ends */
    RS_USE_GPUS,     /* those of which an end lies in GPU memory */
    RS_USE_LOOPBACK, /* of them within a node, those that go through a NIC: for
                        lanes beside others */
    RS_NUM_USES
};

/* A process that exchanges have an edge with, by one connection. When that has
 * failed the next one, agreed on with the peer, has a record of its own, as have
 * another instance of the process, and connections for another use. The latest lives
 * as long as the context, others as long as they have users. */
struct rs_peer {
    struct rs_peer *next;
    int process;
    uint32_t life;  /* one more than that of the connection before */
    uint32_t users; /* talks and lanes; guarded by the context's lock */
    enum rs_use use;
    int engine; /* that it is reached by: index of the context's engines */
    const struct rsched_engine_ops *ops; /* of that engine */
    struct rsched_connection *connection;
    bool accepted;    /* the halves of the connection are joined */
    bool rails_agreed; /* if its engine has that */
    atomic_bool dead; /* sticky */
    struct rs_addresses addresses;
    struct rs_quotas quotas;
};

static inline bool rs_peer_has_gpus(const struct rs_peer *peer)
{
    return peer->use != RS_USE_HOST;
}

static inline uint32_t rs_peer_rails(const struct rs_peer *peer)
{
    return peer->ops->rails(peer->connection);
}

enum rs_thread_state { RS_THREAD_NONE, RS_THREAD_STARTS, RS_THREAD_RUNS };

/* The thread that goes on where start, test and wait had to stop. */
struct rs_safety {
    pthread_t thread;
    pthread_mutex_t lock;  /* guards the list */
    struct rsched_exchange *exchanges; /* that have ever been offered */
    struct rsched_exchange **end;      /* of the list */
    struct rsched_exchange *next;      /* for waits to go on with; NULL: the first */
    atomic_bool any;       /* an exchange has ever been listed */
    atomic_int thread_state; /* enum rs_thread_state */
    atomic_bool owed;      /* connections are to settle */
    atomic_bool stop;
    atomic_uint word;      /* futex: the thread sleeps on it while idle */
    atomic_bool idle;
    atomic_bool hurry;     /* a stream waits for what the thread may have missed */
    atomic_uint_fast64_t ticks, moves;
};

struct rsched_context {
    struct rsched_context_params params;
    pid_t pid; /* of who has made it; a child's copy is of no use */
    struct rs_engine engines[RSCHED_MAX_ENGINES]; /* as rsched_engine_at() */
    pthread_mutex_t lock; /* peers, and all engine calls that need it */
    pthread_mutex_t oob_lock;
    struct rsched_machine *machine; /* RSCHED_MACHINE, or NULL */
    struct rsched_machine *host;    /* without it: of the last plan, or NULL; by `lock` */
    uint32_t host_rails;            /* its engines */
    struct rs_ways ways;            /* within the node; engines look at it */
    struct rs_coordinator coordinator; /* counts messages in GPU memory */
    struct rs_peer *peers;
    struct rs_allowance own; /* what this process may use */
    struct rs_cpus all_cpus; /* that it or its peers in the node may use */
    bool cpus_known;      /* of all of these processes */
    bool same_cpus;       /* no peer in the node has others */
    atomic_bool any_dead; /* among the peers */
    atomic_uint_fast64_t next_look_ps; /* when to look for dead peers */
    struct rs_safety safety;
    /* How a wait goes on; see wait.c. */
    atomic_bool crowded; /* processes outnumber cores, or what a quota gives */
    atomic_uint vain_waits, skipped_yields;
    atomic_uint_fast64_t spin_polls, yield_polls;
    uint64_t sleep_ps;
    atomic_uint_fast64_t yields, sleeps;
};

/* Who may touch an exchange's running state. Only the application's thread
 * moves it away from and back to OWNED; see safety.c. */
enum rs_owner { RS_OWNED, RS_OFFERED, RS_TAKEN };

/* What moves between this process and one peer in one direction over one
 * rail. */
struct rs_edge {
    struct rsched_lane *lane;
    struct rs_peer *peer;
    struct rsched_lane *beside;  /* over which `lane` may send instead */
    struct rs_peer *beside_peer; /* NULL: there is none */
    uint32_t rail, beside_rail;
    uint64_t bytes;      /* of the loaded message; 0: not started */
    uint32_t *order;     /* put (receive) ids in the order of the message */
    uint32_t num_order;
    bool by_kernel;      /* it goes by a ring of an opening */
};

/* Lanes that are under way. */
struct rs_pending {
    struct rsched_lane **lanes;
    uint32_t count;
};

/* What the lanes of an exchange over one engine have together. */
struct rs_group {
    const struct rsched_engine_ops *ops;
    struct rsched_group *group;
};

struct rsched_exchange {
    /* Hot. */
    struct rsched_context *context;
    bool active;
    bool offered;         /* the safety net may have it: take it back first */
    bool loaded;          /* the lanes know what to move */
    int error;            /* sticky: the exchange cannot go on */
    atomic_int owner;     /* enum rs_owner */
    uint32_t num_tx, num_rx;    /* lanes with bytes; rx without passive ones */
    struct rsched_lane **tx, **rx;
    struct rs_pending pending_tx, pending_rx;
    struct rs_group groups[RSCHED_MAX_ENGINES];
    uint32_t num_groups; /* of engines that have groups */
    bool flushes;        /* any of these */
    struct rsched_stats stats;
    uint64_t epoch_puts, epoch_bytes, epoch_self_bytes;
    uint64_t epoch_gpu_messages; /* that an epoch sends */
    uint64_t gpu_messages;       /* that are counted as in flight */
    uint32_t vain_tests;
    struct rs_adopt_watch adopt;
    struct rsched_order *order; /* NULL: never started on a stream */

    /* Cold. */
    uint64_t loaded_at; /* stats.epochs when it was loaded last */
    uint64_t begun;    /* epochs for starts that streams have reached */
    bool by_stream;    /* the epoch under way is one */
    bool open;         /* for kernels */
    unsigned flags;
    uint64_t tag;
    const struct rsched_gpu_ops *gpus; /* NULL: no buffer can be theirs yet */
    struct rs_edge *out, *in;
    uint32_t num_out, num_in;
    uint32_t num_puts, num_receives;
    struct rsched_pattern *pattern; /* own copy: layouts for bind */
    const void **send; /* addresses, as compiled last; not variable */
    void **receive;
    struct rsched_piece *pieces; /* room for the longest message */
    size_t room_pieces;
    char *error_text;
    uint64_t writers_until_ps; /* once it has failed: so long it waits for them */
    struct rsched_exchange *next; /* in the safety net's list */
    bool listed;
};

/** The epoch under way is complete, or given up. */
static inline void rs_exchange_end(struct rsched_exchange *x)
{
    x->active = false;
    if (unlikely(x->gpu_messages > 0))
        rs_coordinator_ended(&x->context->coordinator, x->gpu_messages);
    x->gpu_messages = 0;
}

/* adopt.c */

/** In a start, before lanes start: move what messages lie in to where neighbors can
 * map it, if that pays, or look again later. */
int rs_exchange_adopt(struct rsched_exchange *x) __attribute__((cold));

/** Messages have been loaded: count starts for that, from now on. */
void rs_exchange_watch(struct rsched_exchange *x);

/* context.c */

/** The addresses of this process's engines. The caller holds the context's
 * lock. */
void rs_context_addresses(struct rsched_context *context,
                          struct rs_addresses *addresses);

/** The peer's record for a use and life, connected by the first engine for that
 * use that reaches it; made at first. Release it. The caller holds the context's
 * lock.
 * @return 0; RSCHED_EPEER: that life is over; or what connecting said */
int rs_context_peer(struct rsched_context *context, int process,
                    const struct rs_addresses *addresses, enum rs_use use,
                    uint32_t life, const struct rs_allowance *allowance,
                    struct rs_peer **peer);

/** The record of the latest life for a use of a process that is known to be
 * there, or NULL; release it. `life` is the one to talk about: a new one if the
 * record's connection has failed and can be replaced, then it is not returned. Nor is
 * that of a process that is dead, if another instance may come in its place.
 * The caller holds the context's lock. */
struct rs_peer *rs_context_known_peer(struct rsched_context *context,
                                      int process, enum rs_use use,
                                      uint32_t *life);

/** One more or one less user; NULL is allowed for release. The caller holds the
 * context's lock. */
void rs_peer_acquire(struct rs_peer *peer);
void rs_context_release_peer(struct rsched_context *context,
                             struct rs_peer *peer);

/** Connect a peer that has not been accepted yet by another engine instead.
 * The caller holds the context's lock. On failure it stays as it was. */
int rs_context_change_engine(struct rsched_context *context,
                             struct rs_peer *peer, int engine);

/** Whether a peer of an exchange that is being made lives, as far as can be seen now: not
 * while another thread makes one, which may connect the peer by another engine.
 * @return 0 or RSCHED_EPEER */
int rs_context_check(struct rsched_context *context, const struct rs_peer *peer);

/** Whether the instance of a process that was met last is known to be dead. */
bool rs_context_knows_dead(struct rsched_context *context, int process);

/** Look for dead peers, if nobody has done so lately: for those who wait. */
void rs_context_look(struct rsched_context *context);

/** Let peers go on that send something while they connect; unless another thread
 * has the lock. */
void rs_context_collect(struct rsched_context *context);

/** Go on with what connections have left to say; the lock is held.
 * @return whether anything is left */
bool rs_context_settle(struct rsched_context *context);

/* agree.c */

/**
 * Agree with all peers on the edges and make them, with their lanes. `status`
 * is what has gone wrong in this process before: an own mistake must not keep
 * the peers waiting, they are told.
 *
 * @param params the pattern, and a schedule if there is one
 * @return 0, `status`, or what went wrong
 */
int rs_exchange_agree(struct rsched_exchange *x,
                      const struct rsched_exchange_params *params, int status);

/* edges.c */

/** The lanes of an edge, as far as they have been made: they move nothing any
 * more; and are destroyed. The caller of the latter holds the context's lock. */
void rs_edge_abandon(const struct rs_edge *edge, bool out);
void rs_edge_destroy(struct rsched_context *context, const struct rs_edge *edge,
                     bool out);

/* places.c */

/** Ask the driver of GPUs from now on, if the program has loaded one. */
void rs_exchange_find_gpus(struct rsched_exchange *x);

/**
 * Where the buffer of a put (receive, if not `out`) lies: what the driver says
 * of the runs of its layout, or what the pattern says, if there is no address
 * yet. Of several kinds the place is that of the first run in GPU memory, else
 * in managed memory.
 *
 * @param addresses of all puts (receives), or NULL: not known yet
 * @return 0; RSCHED_EINVAL: the pattern says otherwise; RSCHED_ENOTSUP: a run
 *         does not lie in one allocation
 */
int rs_exchange_place(const struct rsched_exchange *x, bool out, uint32_t id,
                      const struct rsched_put *put,
                      const void *const *addresses, struct rsched_place *place);

/** Whether there is a buffer. @return 0, RSCHED_EINVAL */
int rs_exchange_check_address(const struct rsched_exchange *x, bool out,
                              uint32_t id, const struct rsched_put *put,
                              const void *const *addresses);

/* load.c */

/** Compile the messages of all edges from a pattern and addresses. */
int rs_exchange_compile(struct rsched_exchange *x,
                        const struct rsched_pattern *pattern,
                        const void *const *send, void *const *receive);

/** Whether the k-th of a process's puts to this one has as many bytes as are expected.
 * @return 0, RSCHED_ETRUNC (more), RSCHED_EMISMATCH (fewer) */
int rs_compare_sizes(uint32_t k, int process, uint64_t bytes, uint64_t expected);

/** List the lanes that an epoch starts: of all edges that have bytes, but those
 * that go by a kernel. */
void rs_exchange_list_lanes(struct rsched_exchange *x);

/** All that an epoch moves to (from, if not `out`) a process, in the order of both
 * ends, of an exchange that is not variable. The pieces are valid until the next
 * one. */
int rs_exchange_message(struct rsched_exchange *x, int process, bool out,
                        struct rsched_message *message);

/* exchange.c */

/** Go on with what is pending. @return whether anything moved */
bool rs_exchange_progress(struct rsched_exchange *x);

/** Whether progress is needed even if the application does nothing. */
bool rs_exchange_is_deferred(const struct rsched_exchange *x);

/** Start an epoch: all but the checks of what the caller does; it is owned.
 * @return 0, or the error that it has failed with, without its text */
int rs_exchange_begin(struct rsched_exchange *x);

/** A function of the application begins, and ends: the progress thread does
 * not have the exchange in between. */
void rs_exchange_own(struct rsched_exchange *x);
void rs_exchange_leave(struct rsched_exchange *x);

/** The exchange moves nothing any more: neighbors must not wait for what will not
 * come. */
void rs_exchange_abandon(struct rsched_exchange *x);

/** After that: an edge whose other end is still writing into the receive buffers, or
 * NULL. */
const struct rs_edge *rs_exchange_written(const struct rsched_exchange *x);

/** Note an error that ends the epoch and the exchange; keeps the text. Waits for
 * nobody, so that the progress thread may do it. */
int rs_exchange_fail(struct rsched_exchange *x, int error);
/** Whether it has failed and still waits for neighbors that write into its receive
 * buffers, which takes moments, or a tenth of a second if they have been stopped; do
 * that. Before the application, or a stream, has them back. */
bool rs_exchange_awaits_writers(const struct rsched_exchange *x);
void rs_exchange_await_writers(const struct rsched_exchange *x);
/** Do that. @return the error, with its text */
int __attribute__((cold)) rs_exchange_failed(const struct rsched_exchange *x);

/** Fail the exchange if it waits for a peer that has given it up, or that
 * rs_context_look() has found dead; before a start, if it has such a peer. */
int rs_exchange_check_peers(struct rsched_exchange *x);

/* safety.c */

int rs_safety_init(struct rsched_context *context);
void rs_safety_fini(struct rsched_context *context);

/** Have the safety net settle connections until nothing is left. */
void rs_safety_watch(struct rsched_context *context);

/** Let the safety net go on with an exchange. */
void rs_safety_offer(struct rsched_exchange *x);
/** Take it back. */
void rs_safety_reclaim(struct rsched_exchange *x);
/** Who waits for an exchange goes on with one of the others, each in its turn.
 * Leaves the thread's last error alone. @return whether anything moved */
bool rs_safety_help(struct rsched_context *context);
/** Have the thread. @return whether there is one */
bool rs_safety_start(struct rsched_context *context);
/** Let it look at once, since a stream waits. For threads that may not wait. */
void rs_safety_wake(struct rs_safety *safety);
/** The exchange is about to be destroyed; it is owned. */
void rs_safety_remove(struct rsched_exchange *x);

/* stream.c */

/** Go on with an exchange that has been started on streams; it is owned.
 * @param moved whether anything has come of it
 * @return whether to come again soon */
bool rs_stream_step(struct rsched_exchange *x, bool *moved);

/** Whether an epoch that a stream has started is under way or about to be; it
 * is owned. */
bool rs_stream_is_busy(const struct rsched_exchange *x);

/** A function of the application ends, with an exchange that has been started on
 * streams: the progress thread has it. */
void rs_stream_offer(struct rsched_exchange *x);

/* ways.c */

/* The built-in costs that are taken. */
struct rs_built_in_ways {
    const char *machine;  /* of which built-in machine */
    unsigned read_tenths; /* so many tenths of the time of a copy the kernel takes
                             to read 64 KiB of a process; 0: it does not */
};

/** Which ones, found by reading some memory of this process: takes a tenth of a
 * millisecond, once. Thread-safe. */
const struct rs_built_in_ways *rs_ways_built_in(void);

/**
 * What the ways within the node cost: according to the file RSCHED_WAYS, else to
 * `machine` (may be NULL), else the built-in costs. A file that cannot be used is
 * a warning that says why, and the built-in costs. What a file with costs of GPU
 * memory alone lacks is taken from these.
 *
 * @return 0, RSCHED_ENOMEM
 */
int rs_ways_open(const struct rsched_machine *machine, struct rs_ways *ways);

/* wait.c */

/** One step of waiting for an exchange. @return 0, or RSCHED_EPEER */
int rs_wait_step(struct rsched_exchange *x, struct rsched_pause *pause);

static inline void rs_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
