/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the MPI backend share. Compiled once per MPI. */
#ifndef RS_MPI_INTERNAL_H
#define RS_MPI_INTERNAL_H

/* What we define of it must be seen from outside; not every mpi.h says so. */
#pragma GCC visibility push(default)
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#pragma GCC visibility pop

/* Whether persistent collectives have their names, and MPI_Isendrecv is there. Open
 * MPI 5 has both and says that it is MPI 3.1; Open MPI 4 has the first as MPIX_. */
#if MPI_VERSION >= 4 || (defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5)
#define RS_MPI4_CALLS 1
#else
#define RS_MPI4_CALLS 0
#endif

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/engine.h>
#include <rsched/mpi.h>
#include <rsched/rsched.h>

#include "librsched/base/allocations.h"

/* ---- what is counted (count.c) ---- */

/** The five neighborhood collectives, in the order of enum rs_call. */
enum rs_kind {
    RS_ALLTOALL,
    RS_ALLTOALLV,
    RS_ALLTOALLW,
    RS_ALLGATHER,
    RS_ALLGATHERV,
    RS_NUM_KINDS,
};

/** All calls that are counted: blocking ones from 0 on, persistent ones from
 * RS_CALL_INIT on, nonblocking ones from RS_CALL_INEIGHBOR on, all in the order
 * of enum rs_kind. */
#define RS_CALL_MAP(XX)                                                      \
    XX(NEIGHBOR_ALLTOALL, "neighbor_alltoall")                               \
    XX(NEIGHBOR_ALLTOALLV, "neighbor_alltoallv")                             \
    XX(NEIGHBOR_ALLTOALLW, "neighbor_alltoallw")                             \
    XX(NEIGHBOR_ALLGATHER, "neighbor_allgather")                             \
    XX(NEIGHBOR_ALLGATHERV, "neighbor_allgatherv")                           \
    XX(NEIGHBOR_ALLTOALL_INIT, "neighbor_alltoall_init")                     \
    XX(NEIGHBOR_ALLTOALLV_INIT, "neighbor_alltoallv_init")                   \
    XX(NEIGHBOR_ALLTOALLW_INIT, "neighbor_alltoallw_init")                   \
    XX(NEIGHBOR_ALLGATHER_INIT, "neighbor_allgather_init")                   \
    XX(NEIGHBOR_ALLGATHERV_INIT, "neighbor_allgatherv_init")                 \
    XX(INEIGHBOR_ALLTOALL, "ineighbor_alltoall")                             \
    XX(INEIGHBOR_ALLTOALLV, "ineighbor_alltoallv")                           \
    XX(INEIGHBOR_ALLTOALLW, "ineighbor_alltoallw")                           \
    XX(INEIGHBOR_ALLGATHER, "ineighbor_allgather")                           \
    XX(INEIGHBOR_ALLGATHERV, "ineighbor_allgatherv")                         \
    XX(SEND_INIT, "send_init")                                               \
    XX(BSEND_INIT, "bsend_init")                                             \
    XX(SSEND_INIT, "ssend_init")                                             \
    XX(RSEND_INIT, "rsend_init")                                             \
    XX(RECV_INIT, "recv_init")                                               \
    XX(API_INIT, "rsched_alltoallw_init")

enum rs_call {
#define RS_XX(id, name) RS_CALL_##id,
    RS_CALL_MAP(RS_XX)
#undef RS_XX
    RS_NUM_CALLS,
    RS_CALL_INIT = RS_CALL_NEIGHBOR_ALLTOALL_INIT,
    RS_CALL_INEIGHBOR = RS_CALL_INEIGHBOR_ALLTOALL,
};

/** Why a call is native; ordered so that the largest of several processes'
 * reasons is the one that all of them give. */
#define RS_REASON_MAP(XX)                                                    \
    XX(DISABLED, "disabled", "RSCHED_DISABLE is set in a process")           \
    XX(NO_INIT, "no-init",                                                   \
       "MPI_Init was not seen (sessions, or a binding that bypasses MPI_)")  \
    XX(RANKS, "ranks", "a process runs without the backend")                 \
    XX(TOOL, "tool",                                                         \
       "another tool is called before the backend and would pass it by")     \
    XX(OFF, "off", "RSCHED_PERSISTENT is no in a process")                   \
    XX(UNSEEN, "unseen",                                                     \
       "the MPI library matches messages by calls that ours lacked")         \
    XX(UNPREPARED, "unprepared",                                             \
       "the call that made the communicator could not prepare it")           \
    XX(CHANNELS, "channels",                                                 \
       "RSCHED_CHANNELS is 0 in a process, or differs between two")          \
    XX(UNPAIRED, "unpaired",                                                 \
       "the neighbor lists of the processes do not fit together")            \
    XX(INTERCOMM, "intercommunicator", "an intercommunicator")               \
    XX(NODES, "nodes", "the communicator spans nodes and no engine does")     \
    XX(WORLD, "world",                                                       \
       "the communicator has processes of another MPI_COMM_WORLD")           \
    XX(MEMORY, "memory", "out of memory in a process")                       \
    XX(CONTEXT, "context", "no rsched context in a process")                 \
    XX(THREADS, "threads", "point-to-point with MPI_THREAD_MULTIPLE")        \
    XX(BUFFERED, "buffered", "a buffered send")                              \
    XX(WILDCARD, "wildcard", "MPI_ANY_SOURCE or MPI_ANY_TAG")                \
    XX(NO_PEER, "no-peer", "MPI_PROC_NULL")                                  \
    XX(UNNAMED, "unnamed",                                                   \
       "the call that made the communicator could not give it a name")       \
    XX(LAYOUT, "layout", "a datatype that only the native MPI packs")        \
    XX(SIZE, "size", "longer than RSCHED_CHUNK")                             \
    XX(COVERED, "covered",                                                   \
       "other receives of its tag were posted, or one end is always native") \
    XX(POSTED, "posted",                                                     \
       "a receive was posted, or a message under way, at each start")        \
    XX(LANES, "lanes",                                                       \
       "64 other tags go through lanes to or from that process already")     \
    XX(PEER, "peer",                                                         \
       "the peer has no persistent request for it, or too few starts")       \
    XX(GPU, "gpu",                                                           \
       "managed memory, or a GPU's that is not carried, in a process")       \
    XX(SETUP, "setup", "setting up the exchange failed in a process")        \
    XX(ARGUMENT, "argument", "an argument is invalid in a process")

enum rs_reason {
    RS_ACCELERATED = 0,
#define RS_XX(id, slug, text) RS_REASON_##id,
    RS_REASON_MAP(RS_XX)
#undef RS_XX
    RS_NUM_REASONS,
};

/** Count a call that is passed on. */
void rs_count_native(enum rs_call call, enum rs_reason reason);
void rs_count_accelerated(enum rs_call call, uint64_t calls);
/** Keep what an exchange has done, before it is destroyed. */
void rs_count_retire(const struct rsched_exchange *exchange, bool persistent);
void rs_count_packed(uint64_t blocks);
void rs_count_loads(uint64_t loads);

/** Print the report of all processes, as RSCHED_REPORT asks. Collective over
 * the backend's communicator. */
void rs_report(void);

/** All counters as numbers, for the report. */
enum rs_number {
    RS_NUMBER_STARTS,
    RS_NUMBER_EDGES_OUT,
    RS_NUMBER_EDGES_IN,
    RS_NUMBER_EDGES_SELF,
    RS_NUMBER_PUTS,
    RS_NUMBER_BYTES,
    RS_NUMBER_SELF_BYTES,
    RS_NUMBER_CHUNKS,
    RS_NUMBER_STALLS,
    RS_NUMBER_PACKED,
    RS_NUMBER_STAGED,
    RS_NUMBER_LOADS,
    RS_NUMBER_QUEUED,
    RS_NUMBER_LANE_SENDS,
    RS_NUMBER_LANE_RECEIVES,
    RS_NUMBER_LANE_NATIVE,
    RS_NUMBER_LANE_PULLS,
    RS_NUMBER_LANE_MAPPED,
    RS_NUMBER_LANE_PACKED,
    RS_NUMBER_LANE_NONTEMPORAL,
    RS_NUMBER_LANE_PREFETCHED,
    RS_NUMBER_TRIALS,
    RS_NUMBER_TRIAL_CHANGES,
    RS_NUMBER_LANE_OPENED,
    RS_NUMBER_LANE_WAKES,
    RS_NUMBER_HUGE,
    RS_NUMBER_INCARNATIONS,
    RS_NUMBER_STOPS,
    RS_NUMBER_WITHDRAWN,
    RS_NUMBER_CROWDED, /* 1: processes outnumber cores */
    RS_NUMBER_WAYS, /* bytes by enum rsched_way */
    RS_NUMBER_ENGINES = RS_NUMBER_WAYS + RSCHED_NUM_WAYS, /* and by engine */
    /* Bytes by enum rsched_adoption. */
    RS_NUMBER_ADOPTIONS = RS_NUMBER_ENGINES + RSCHED_MAX_ENGINES,
    RS_NUM_NUMBERS = RS_NUMBER_ADOPTIONS + RSCHED_NUM_ADOPTIONS,
};

struct rs_counts {
    uint64_t calls[RS_NUM_CALLS][RS_NUM_REASONS];
    uint64_t numbers[RS_NUM_NUMBERS];
};

void rs_count_number(enum rs_number number, uint64_t by);
struct rs_message;
/** Keep what a persistent point-to-point request has done. */
void rs_count_message(const struct rs_message *message);
void rs_count_collect(struct rs_counts *counts);
/** The name of a way or engine, counted from 0; NULL when there are no more. */
const char *rs_way_name(size_t way);
const char *rs_engine_name(size_t engine);
const char *rs_adoption_name(size_t adoption);

extern const char *const rs_call_names[RS_NUM_CALLS];
extern const char *const rs_reason_slugs[RS_NUM_REASONS];
extern const char *const rs_reason_texts[RS_NUM_REASONS];

/* ---- the process (init.c) ---- */

enum rs_report_level { RS_REPORT_NONE, RS_REPORT_SUMMARY, RS_REPORT_FULL,
                       RS_REPORT_JSON };

struct rs_process {
    enum rs_reason reason; /* RS_ACCELERATED between init and finalize */
    enum rs_reason requests; /* RS_ACCELERATED if we may give out requests */
    int rank, size;        /* in MPI_COMM_WORLD */
    int node;              /* lowest rank on this node: of this machine, and of
                            * the same RSCHED_NODE */
    int num_local;         /* processes on this machine, in whatever containers */
    int num_sharing;       /* of these share cores with this one, and */
    int num_cores;         /* so many of them; 0: nobody knows */
    bool threads;          /* MPI_THREAD_MULTIPLE */
    bool persistent;       /* point-to-point requests may be ours, and */
    enum rs_reason off;    /* why not, the same in all processes */
    bool gpu;              /* RSCHED_GPU, likewise */
    uint64_t job;
    MPI_Comm comm;      /* our own duplicate of MPI_COMM_WORLD */
    MPI_Group world;    /* its group */
    MPI_Group local;    /* those on this node, see `node` */
    MPI_Comm errors;    /* to raise errors of freed communicators on */
    int comm_keyval, type_keyval;
    enum rs_report_level report;
    const char *report_file;
    int log_level;
    MPI_Status empty; /* what completion of nothing returns */
    pthread_mutex_t lock; /* of the lists of requests and communicators */
};

extern struct rs_process rs_process;

/** The context, made at the first use; NULL when that failed. */
struct rsched_context *rs_context(void);
/** Whether its waits hardly poll, since processes outnumber cores. */
bool rs_is_crowded(void);
/** Drive the native MPI's progress. */
void rs_native_progress(void);
/** A setting's text. */
const char *rs_setting(const char *name);

enum { RS_LOG_ERROR, RS_LOG_WARN, RS_LOG_INFO, RS_LOG_DEBUG };
void rs_log(int level, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* ---- are all processes here? (presence.c); docs/presence.md ---- */

/** Before MPI_Init. */
void rs_presence_announce(void);
/** After it, on every process of an MPI_COMM_WORLD of several. False: nobody
 * knows. *missing is a process that runs without the backend, or -1, and the
 * same verdict on all that have it; *speaks whether this process is to tell
 * the user. */
bool rs_presence_check(int *missing, bool *speaks);

/* ---- other tools (stacking.c) ---- */

/** The first call of requests that another tool sees before us, or NULL. */
const char *rs_stacking_passed_by(void);
/** A call of the library that matches messages and that we let pass unseen, or
 * NULL: the header that we were built with does not have it. */
const char *rs_stacking_unseen(void);

/** The out-of-band callbacks (oob.c), over rs_process.comm. */
struct rsched_oob rs_oob(void);
void rs_oob_fini(void);

/* ---- datatypes (datatype.c) ---- */

/** A datatype's bytes in the order of its type map. */
struct rs_flat {
    atomic_uint refs;
    bool opaque; /* too many runs, or a constructor that is not taken apart */
    uint64_t size;
    int64_t lb, extent;
    size_t num_runs;
    struct rsched_run *runs;
    struct rsched_run one; /* where `runs` may be */
};

/** Take a datatype apart; the result is kept with the datatype. NULL when out
 * of memory. Drop it with rs_flat_drop(). */
struct rs_flat *rs_flat_get(MPI_Datatype type);
/** The same made anew, and whether it is a named datatype; for rs_flat_get(). */
struct rs_flat *rs_flat_make(MPI_Datatype type, bool *named);
/** Forget those of named datatypes. No other thread is in any function of these. */
void rs_flats_fini(void);
void rs_flat_drop(struct rs_flat *flat);
/** Whether `count` repetitions are one block, and not none: *run. */
bool rs_flat_is_block(const struct rs_flat *flat, uint64_t count, struct rsched_run *run);
/** The runs of `count` repetitions; opaque like rs_flat when they are too
 * many. NULL when out of memory. */
struct rs_flat *rs_flat_repeat(const struct rs_flat *flat, uint64_t count);
/** Changes when a datatype that rs_flat_get() has seen is freed, after which
 * an equal handle may mean another type. */
uint64_t rs_type_generation(void);
/** Callback of rs_process.type_keyval. */
int rs_type_deleted(MPI_Datatype type, int keyval, void *value, void *extra);

/* ---- plans (plan.c) ---- */

/** How the blocks of the neighbors lie in the buffer. */
enum rs_spread {
    RS_SPREAD_SAME,   /* one block for all of them */
    RS_SPREAD_DENSE,  /* block after block */
    RS_SPREAD_DISPLS, /* at displacements in extents */
    RS_SPREAD_BYTES,  /* at MPI_Aint displacements in bytes */
};

/** One side's arguments of a neighborhood collective. */
struct rs_side {
    void *buffer;
    const void *counts;        /* one, or one for each neighbor */
    const MPI_Datatype *types; /* likewise */
    const void *displs;
    bool many_counts, many_types;
    bool wide; /* counts are MPI_Count and displacements in extents MPI_Aint;
                  both are int otherwise */
    enum rs_spread spread;
};

struct rs_args {
    enum rs_kind kind;
    struct rs_side send, receive;
};

struct rs_comm;

/** A block that is copied between the user's memory and ours, where the exchange
 * has its bytes in one piece: by the native MPI, or by a GPU. */
struct rs_packed {
    struct rsched_gpu_stage *stage; /* NULL: by the native MPI */
    struct rsched_gpu_hold *gpu;
    MPI_Datatype type; /* our own duplicate; only for the native MPI */
    uint64_t count, size;
    int64_t at; /* from the user's buffer */
    char *bytes;
};

/** Puts and receives of an exchange that may lie in GPU memory, as far as this
 * end has seen to it; NULL: none. */
struct rs_on_gpu {
    bool *sends, *receives;
};

/** Arguments made into a pattern and addresses. */
struct rs_plan {
    struct rs_plan *next; /* of the idle ones of nonblocking calls */
    enum rs_kind kind;
    uint64_t serial; /* no other plan has it, nor this one with other buffers */
    struct rsched_pattern *pattern;
    size_t num_sends, num_receives;
    const void **sends; /* addresses in force */
    void **receives;
    int64_t *send_at, *receive_at; /* the same, from the buffers; where packed
                                      these are not used */
    struct rs_packed **send_packed, **receive_packed; /* NULL: not packed */
    bool packed; /* any is */
    bool too_long; /* to be packed: it cannot be carried (rs_plan_check()) */
    bool off_gpu; /* any is because of where it lies */
    uint64_t looked; /* the serial when that was last looked at, and then: */
    struct rs_allocations allocations; /* of GPU memory */
    const void *send_buffer; /* in force */
    void *receive_buffer;

    /* The arguments it was made from, for calls that are not persistent. */
    uint64_t generation;
    bool wide;
    void *counts[2], *displs[2];
    MPI_Datatype *types[2];
};

/** Make a plan of valid arguments. */
enum rs_reason rs_plan_create(const struct rs_comm *comm,
                              const struct rs_args *args,
                              struct rs_plan **plan);
/** The same for an exchange that takes GPU memory for `on_gpu` only: blocks that
 * lie elsewhere are packed, by that GPU, or by the native MPI if they are its
 * affair (rs_plan_reason()). */
enum rs_reason rs_plan_create_off_gpu(const struct rs_comm *comm,
                                      const struct rs_args *args,
                                      const struct rs_on_gpu *on_gpu,
                                      struct rs_plan **plan);
void rs_plan_destroy(struct rs_plan *plan);
/** Whether native MPI accepts the arguments; if not it says why. */
bool rs_args_valid(const struct rs_comm *comm, const struct rs_args *args);
/** Whether its types are those of messages: for arguments that are valid otherwise
 * and of which no plan has been made. */
bool rs_types_valid(const struct rs_comm *comm, const struct rs_args *args);
/** Note the arguments, and compare; buffers are not looked at. */
bool rs_plan_keep(struct rs_plan *plan, const struct rs_comm *comm,
                  const struct rs_args *args);
bool rs_plan_matches(const struct rs_plan *plan, const struct rs_comm *comm,
                     const struct rs_args *args);
/** Count from other buffers. */
void rs_plan_rebase(struct rs_plan *plan, const void *send_buffer,
                    void *receive_buffer);
/** Whether it can be carried, for calls that cannot be native alone.
 * @return an MPI error, whose reason is in the log */
int rs_plan_check(const struct rs_plan *plan);
/** Before a start, and after its completion, if plan->packed. */
int rs_plan_pack(struct rs_plan *plan);
int rs_plan_unpack(struct rs_plan *plan);

/* ---- GPU memory (gpu.c); docs/gpu.md, "In MPI programs" ---- */

/** The GPU in whose memory all runs of a layout lie. */
enum {
    RS_GPU_NONE = -1,  /* in the host's */
    RS_GPU_OTHER = -2, /* in no GPU's alone, or RSCHED_GPU is no */
};
int rs_gpu_of(const void *address, const struct rs_flat *layout);
/** RS_REASON_GPU if a buffer of the plan is to be the native MPI's: in managed
 * or unknown memory, or in a GPU's and RSCHED_GPU is no. RS_REASON_LAYOUT if a
 * block is too long to be packed. */
enum rs_reason rs_plan_reason(const struct rs_plan *plan);
/** Note which buffers of the plan lie in GPU memory. @return false: no memory */
bool rs_on_gpu_init(struct rs_on_gpu *on_gpu, const struct rs_plan *plan);
void rs_on_gpu_fini(struct rs_on_gpu *on_gpu);
/** Note which allocations of GPU memory the plan's buffers lie in. */
void rs_plan_look(struct rs_plan *plan);
/** Whether they have been looked at, and still lie there: the program may free
 * GPU memory between two calls, and get the same address for what the neighbors
 * do not know. */
bool rs_plan_is_in_place(const struct rs_plan *plan);
/** The plan of a call whose neighbors count on the exchange that is there: the
 * same, or another one in its place if it has blocks where that cannot take them
 * (rs_plan_create_off_gpu()), with its arguments kept.
 * @return NULL when out of memory; the plan is destroyed then */
struct rs_plan *rs_plan_off_gpu(const struct rs_comm *comm,
                                const struct rs_args *args,
                                const struct rs_on_gpu *on_gpu,
                                struct rs_plan *plan);
/** Have a block that the exchange cannot take packed: by its GPU, then *packed is
 * set, or by the native MPI, then *native is. Neither is if it lies in host
 * memory, or in a GPU's and that is `taken`.
 * @return false: no memory, or what the driver said, which is logged */
bool rs_block_off_gpu(const struct rs_flat *block, void *address, bool send,
                      bool taken, bool *native, struct rs_packed **packed);
/** Begin to copy a block that a GPU packs, and wait for that.
 * @return an MPI error */
int rs_stage_begin(const struct rs_packed *packed);
int rs_stage_finish(const struct rs_packed *packed);
void rs_stage_destroy(struct rs_packed *packed);

/* ---- communicators (comm.c) ---- */

/** What carries every n-th nonblocking call of a communicator, one after the
 * other (nonblocking.c). */
struct rs_channel {
    struct rsched_exchange *exchange; /* variable */
    uint64_t loaded; /* serial of the plan that it has */
    struct rs_request *first, *last; /* the first one moves, the rest queue */
    bool waited; /* a thread waits for the first one, without the lock */
};

struct rs_comm {
    struct rs_comm *next, *previous;
    atomic_uint refs;
    MPI_Comm comm; /* MPI_COMM_NULL when the program has freed it */
    MPI_Errhandler errhandler; /* that it had then */
    enum rs_reason reason;  /* RS_ACCELERATED, or why all is native */
    bool cartesian;
    int num_sends, num_receives; /* neighbors, MPI_PROC_NULL included */
    int *send_to, *receive_from; /* ranks in MPI_COMM_WORLD */
    uint64_t id;        /* no other communicator of these processes has it */
    uint64_t creations; /* exchanges made on it */

    /* Blocking calls. */
    enum rs_reason blocking; /* RS_ACCELERATED once the channel is made */
    bool channel_tried;
    struct rsched_exchange *channel;
    struct rs_on_gpu on_gpu; /* of the channel */
    struct rs_plan *plans[RS_NUM_KINDS];
    struct rs_plan *loaded; /* the one that the channel has */
    uint64_t calls[RS_NUM_KINDS], loads;

    /* Nonblocking calls. */
    enum rs_reason nonblocking; /* RS_ACCELERATED when there are channels */
    pthread_mutex_t lock; /* of all that follows, and the requests in it */
    unsigned num_channels;
    struct rs_channel *channels;
    uint64_t sequence;     /* calls so far */
    unsigned num_deferred; /* that queue behind the first of their channel */
    struct rs_plan *idle;
    struct rs_comm *next_channels, *previous_channels;
};

/** Ids of communicators leave this bit free up to 2^23 processes; those of topologies of
 * rsched/mpi.h have it, and their tag. */
#define RS_ID_LISTED (UINT64_C(1) << 47)

/** The call that makes a communicator says which topology that gives it, MPI_CART
 * for instance, or MPI_UNDEFINED: its parent's, or none. */
void rs_topology_made(MPI_Comm comm, int topology);
/** As MPI_Topo_test, but right. */
int rs_topology(MPI_Comm comm);
void rs_topology_init(void);
void rs_topology_fini(void);

/** The communicator's record; collective at the first call. NULL: native,
 * for *reason. */
struct rs_comm *rs_comm_get(MPI_Comm comm, enum rs_reason *reason);
/** The same, but local: a record that is not there is not made. */
struct rs_comm *rs_comm_find(MPI_Comm comm, enum rs_reason *reason);
/** Make it now, in a call that has made the communicator, for nonblocking
 * calls to find. Collective; MPI_COMM_NULL is allowed. */
void rs_comm_prepare(MPI_Comm comm);
/** Lists of neighbors, ranks in a communicator. */
struct rs_lists {
    int indegree, outdegree;
    const int *sources, *destinations;
};
/** A record that belongs to no communicator, from lists or from the topology
 * (MPI_CART, ...) that `comm` has. Local. NULL and *reason when it cannot be.
 * Drop it with rs_comm_drop(). */
struct rs_comm *rs_comm_describe(MPI_Comm comm, int topology,
                                 const struct rs_lists *lists,
                                 enum rs_reason *reason);
void rs_comm_hold(struct rs_comm *comm);
void rs_comm_drop(struct rs_comm *comm);
/** Whether it has processes of another MPI_COMM_WORLD (they were spawned, or
 * connected to), which may run without the backend: nothing can be agreed on
 * with them. All its processes see this alike. */
bool rs_comm_has_strangers(MPI_Comm comm);
/** The largest of all processes' reasons. */
enum rs_reason rs_comm_vote(struct rs_comm *comm, enum rs_reason reason);
/** Which put or receive comes i-th so that edges pair as the standard says. */
int rs_comm_send_slot(const struct rs_comm *comm, int i);
int rs_comm_receive_slot(const struct rs_comm *comm, int i);
/** Make an exchange with all processes of the communicator: 0 and *reason, or
 * an MPI error that has been raised.
 * @param flags RSCHED_EXCHANGE_* */
int rs_comm_exchange(struct rs_comm *comm, const struct rs_plan *plan,
                     unsigned flags, struct rsched_exchange **exchange,
                     enum rs_reason *reason);
/** Its first half: the text of a failure has been logged. */
int rs_comm_exchange_create(struct rs_comm *comm, const struct rs_plan *plan,
                            unsigned flags, struct rsched_exchange **exchange);
/** The MPI error class for an rsched error, whose text is logged. */
int rs_error_class(int error);
/** Raise an MPI error on the communicator; returns the error. */
int rs_raise(struct rs_comm *comm, int error);
int rs_comm_deleted(MPI_Comm comm, int keyval, void *value, void *extra);
/** Drop what programs left at the end. */
void rs_comm_sweep(void);
extern struct rs_comm *rs_comms;

/* ---- requests (request.c) ---- */

enum rs_state {
    RS_INACTIVE,
    RS_ACTIVE,
    RS_COMPLETE, /* its epoch is over, the program does not know yet */
    RS_FLYING,   /* a nonblocking call under way: ask nonblocking.c */
    RS_PUT,      /* a message that is not known to be matched */
    RS_GRANTED,  /* a receive, likewise */
    RS_NATIVE,   /* a message's native request is active */
    RS_MATCHED,  /* a message that the receiver has yet to pull, or copies */
};

struct rs_request {
    struct rsched_exchange *exchange; /* NULL: not in use, or nonblocking */
    enum rs_state state;
    bool packed;
    int error; /* an MPI error, when RS_COMPLETE */
    MPI_Request handle; /* the carrier */
    struct rs_request *_Atomic follower; /* in an array; or itself */
    struct rs_comm *comm;
    struct rs_plan *plan;
    struct rs_message *message; /* point-to-point (persistent.h), else NULL */
    struct rs_request *next, *previous; /* of those in use or in the pool */

    /* Of a nonblocking call, which is gone once it has completed. */
    struct rs_channel *channel; /* NULL: persistent */
    struct rs_request *after;   /* in the channel's queue */
    bool landed;                /* the exchange is done with it */
    int result;                 /* then an RSCHED_E* */
};

/** A request for a new exchange; NULL when out of memory. */
struct rs_request *rs_request_create(void);
/** Put it to use; takes over all that is given. A nonblocking call has no
 * exchange. */
void rs_request_open(struct rs_request *request, struct rs_comm *comm,
                     struct rsched_exchange *exchange, struct rs_plan *plan);
/** The same for a persistent point-to-point request. */
void rs_request_open_message(struct rs_request *request,
                             struct rs_message *message);
/** Give back one that was not opened. */
void rs_request_discard(struct rs_request *request);
void rs_request_sweep(void);
extern struct rs_request *rs_requests;
extern struct rs_request *rs_zombies; /* freed by the program while active */

/* ---- nonblocking calls (nonblocking.c); docs/nonblocking.md ---- */

/** Make the channels of a communicator and set comm->nonblocking. Collective;
 * the processes must have agreed that they accelerate.
 * @return why all other calls are native too: neighbors cannot be reached by anything
 *         that there will be; RS_ACCELERATED: they may be */
enum rs_reason rs_channels_open(struct rs_comm *comm);
void rs_channels_close(struct rs_comm *comm);
/** Call `count` for each exchange. */
void rs_channels_visit(struct rs_comm *comm,
                       void (*count)(uint64_t *to,
                                     const struct rsched_exchange *exchange),
                       uint64_t *to);
/** The plan of valid arguments; NULL when out of memory, or when a type is not
 * valid. */
struct rs_plan *rs_flight_plan(struct rs_comm *comm,
                               const struct rs_args *args);
/** Hand an open request to its channel. Local: never waits for a peer. */
void rs_flight_start(struct rs_request *request);
/** Whether it has landed; request->result is set then. */
bool rs_flight_poll(struct rs_request *request);
void rs_flight_wait(struct rs_request *request);
/** Give its plan back. */
void rs_flight_end(struct rs_request *request);
/** Calls that queue, all together. */
extern atomic_uint rs_num_deferred __attribute__((visibility("hidden")));
static inline bool rs_flights_queue(void)
{
    return atomic_load_explicit(&rs_num_deferred, memory_order_relaxed) > 0;
}
/** Go on with them; no native MPI call is made. */
void rs_flights_progress(void);
/** Stop; nothing moves afterwards. */
void rs_flights_fini(void);

#endif
