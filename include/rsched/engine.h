/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * ENGINE: the plug-in interface of what moves the bytes.
 *
 * An engine is one folder under engines/, one struct rsched_engine_ops and one
 * line in engines/engines.c. It knows this header and librsched/base, nothing
 * else; librsched knows it through this header only.
 *
 * Words: an engine instance belongs to one context. A **connection** joins it
 * with the same engine in one peer process (which may be the process itself).
 * A connection has one or more **rails**: paths that move bytes at the same
 * time, such as ports of a network. An **edge** is what moves from one process
 * to another in one exchange over one rail; its sending half is a tx **lane**,
 * its receiving half an rx lane. Each epoch, an edge carries one message: the
 * bytes of its pieces, in their order.
 *
 * How a connection is made: each process gives its engine's `address` to the
 * peer. Both `connect`, which makes a half that can be reached; both give the
 * `offer` of their half to the peer and `accept` the peer's; then each learns which
 * rails the peer could connect, and those that both could are used. How an edge is
 * made after that: the receiver's `rx_create` writes a
 * descriptor, which the sender's `tx_create` reads; that writes a reply, which
 * the receiver's `rx_attach` reads.
 *
 * An edge over an engine with `gpus` may have a second pair of lanes **beside** its
 * own one, over an engine with `also_gpus` that is not `within_node`: a NIC that
 * reads the one GPU's memory and writes the other's. The lane that has one beside
 * it loads, starts and drives that, through its ops, whenever a message is to go
 * this way; librsched makes, abandons and destroys it as any other.
 *
 * Protocol (the landing way): an edge has four words, 64 bits, monotonic, each
 * with one writer. `arrived` (sender) and `consumed` (receiver) count chunks
 * here; `src_ready` and `dst_ready` are for ways without landing slots. A
 * chunk may be written into its slot once consumed is within the number of
 * slots. A lane's words are never reset while it lives. When its memory serves
 * another lane it is zeroed before that lane's sender learns of it, and numbers
 * count from a base that both ends agree on and no lane had before, the
 * generation.
 *
 * State rules: all functions but the lane's start and progress, the group's
 * flush, `ready` and `sleep` are called with the context's lock held. A lane belongs to one
 * thread at a time, as does a group. Nothing but open, connect, create and load
 * may allocate.
 *
 * Errors: 0 or a negative RSCHED_E* code, with a text set by rs_fail().
 */
#ifndef RSCHED_ENGINE_H
#define RSCHED_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/error.h>
#include <rsched/exchange.h>
#include <rsched/piece.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /** Room for what a peer must know of an engine to connect to it. */
    RSCHED_ENGINE_ADDRESS_BYTES = 256,
    /** Room for what the two halves of a connection must know of each other. */
    RSCHED_ENGINE_OFFER_BYTES = 256,
    /** Room for what the two lanes of an edge must know of each other. */
    RSCHED_LANE_DESCRIPTOR_BYTES = 64,
    /** Room for what the two ends of a ring must know of each other. */
    RSCHED_RING_DESCRIPTOR_BYTES = 3328,
    /** Most rails of a connection. */
    RSCHED_MAX_RAILS = 8,
    /** Most pieces that a stage copies at a time. */
    RSCHED_STAGE_DEPTH = 4,
};

/** One epoch's message as one side sees it. */
struct rsched_message {
    const struct rsched_piece *pieces; /**< num_pieces of them */
    size_t num_pieces;
    uint64_t bytes;     /**< sum over the pieces, at least 1 */
    uint16_t signature; /**< both sides have the same one if they agree how the
                             message is made up of puts */
    uint64_t in_flight; /**< messages that are on their way together over
                             engines with `gpus`, itself included: those that the
                             exchange starts, or more, if the process has been seen
                             to have more; 0 counts as 1 */
    uint64_t incoming;  /**< bytes that an epoch of the exchange brings to this
                             process, over all engines; 0: none, or not known */
    const void *exchange; /**< stands for the exchange, which was loaded as a whole:
                               only within one does what is at an address now apply
                               to all of its messages; NULL: to none that has one */
};

/** Where memory lies. */
enum rsched_place_kind {
    RSCHED_PLACE_HOST,    /**< a CPU's memory, pinned or not; also whatever no
                               driver of GPUs knows */
    RSCHED_PLACE_GPU,     /**< a GPU's; CPUs must not touch it */
    RSCHED_PLACE_MANAGED, /**< the driver moves it to whoever touches it */
    RSCHED_PLACE_UNKNOWN, /**< of the driver, but not one allocation of one of
                               these kinds from end to end */
};

struct rsched_place {
    enum rsched_place_kind kind;
    int gpu; /**< its number in this process if the kind is RSCHED_PLACE_GPU,
                  else -1 */
};

struct rsched_engine;
struct rsched_connection;
struct rsched_device_lane;
struct rsched_device_target;
struct rsched_group;
struct rsched_order;
struct rsched_ring;
struct rsched_gpu_hold;
struct rsched_gpu_stage;
struct rs_peer;
struct rs_sources;
struct rs_ways;

/** What both ends of an edge know of it when its lanes are made. */
struct rsched_lane_spec {
    uint64_t bytes; /**< of each message; 0 if they vary */
    uint32_t rail;  /**< below the connection's number of rails */
    uint32_t edges; /**< of the exchange, that bring it something; 0: not known */
    struct rsched_place place; /**< of this end's first buffer, as far as it is
                                    known by then, if `gpus` */
    bool gpus; /**< either end may lie in GPU memory, now or after a load */
    bool beside; /**< it is beside another lane: load refuses, with
                      RSCHED_ENOTSUP and the reason, what its device does not
                      get at by itself, or could not be made visible */
    struct rsched_group *group; /**< of the exchange; NULL: the lane has to do
                                     without, or the engine has none */
};

/** What an epoch moves over a ring, of even and of odd epochs: 0 bytes and no
 * pieces where nothing does. */
struct rsched_ring_spec {
    int gpu; /**< whose kernels write it; negative: threads of this process */
    const struct rsched_message *receive[2];
    /** NULL, or: the ring carries no epochs, but words that kernels put to the
     * other process's memory. This is what the other's may put to: one block of
     * words, or 0 bytes. Both ends make it so. */
    const struct rsched_message *words;
};

/** What a ring is when it is destroyed. */
enum rsched_ring_end {
    RSCHED_RING_ALONE, /**< the peer has said that it has none */
    RSCHED_RING_IDLE,  /**< all that kernels have started is complete, as one of
                            them has seen */
    RSCHED_RING_BUSY
};

/** Counters of a lane, read by anybody who owns the lane. */
struct rsched_lane_stats {
    uint64_t chunks; /**< filled (tx) or emptied (rx); any other step that a
                          lane has gone on by counts too */
    uint64_t stalls; /**< waits for a peer that was not ready: no slot free, no
                          credit (tx); however often progress looked */
    uint64_t bytes[RSCHED_NUM_WAYS]; /**< sent, by way (tx) */
    uint64_t gathered; /**< of them, fetched by a device from the user's memory
                            (tx) */
    uint64_t packed;   /**< copied before a device fetched them (tx) */
    uint64_t nontemporal; /**< copied by this end, or written into slots, with
                               non-temporal stores */
    uint64_t prefetched;  /**< copied by this end with more lines under way at a time
                               than a plain copy has */
    uint64_t trials;        /**< of which way is faster, that have ended (tx) */
    uint64_t trial_changes; /**< of them, after which another way was taken */
};

/** What every lane begins with; an engine embeds it in its own. */
struct rsched_lane {
    /** NULL: librsched sets those of the engine. Or set when the lane is created:
     * another table, of which only the lane's functions are used. */
    const struct rsched_engine_ops *ops;
    unsigned engine; /**< set by librsched: its number there */
    struct rsched_connection *connection;
    const struct rs_peer *peer; /**< librsched's own */
    /** The lane beside this one, or NULL; set by librsched before the first load. */
    struct rsched_lane *beside;
    /** tx: the rx lane over which the same exchange gets what the same peer sends, on
     * the same connection, or NULL; set by librsched before the first load. */
    struct rsched_lane *back;
    struct rsched_lane_stats stats;
    /** tx: the peer has learnt of the rx lane and may write to it.
     * Set by librsched on rx lanes. */
    bool attached;
    /** Set by load: an epoch does not fit into the landing slots, so that it
     * needs the help of both sides to complete. */
    bool streams;
    /** rx, set by start and progress: data that have come are being copied out
     * of memory of this process. They come to their end though the sender dies. */
    bool copying;
    /** Set by rx_create: the tx lane delivers, there is nothing to progress. */
    bool passive;
    /** tx, if it has tx_blocks: starts of the exchange until memory is adopted, or 0;
     * set by librsched after each load. A lane that finds adopted memory gone sets it
     * to RSCHED_ADOPT. */
    uint32_t *adopt_in;
};

/** What an engine may know of its context. */
struct rsched_engine_env {
    int process;
    uint64_t job;
    uint64_t node;        /**< processes with different ones may not use what
                               they share: a hash of RSCHED_NODE */
    uint64_t chunk_bytes; /**< RSCHED_CHUNK */
    uint64_t ring_bytes;  /**< RSCHED_RING, or what is usual */
    uint64_t slots_bytes; /**< that the slots of a process are to have together at
                               least, within a node; 0: no matter */
    const struct rs_ways *ways; /**< what ways within the node cost; stays
                                     where it is, as long as the engine */
    const struct rs_sources *sources; /**< what strided memory costs a device;
                                           likewise; NULL: the usual costs */
};

/** A port of a device, and what it takes: of a request. */
struct rsched_engine_port {
    const char *name;    /**< valid as long as the engine */
    uint32_t max_pieces; /**< that are gathered */
    uint32_t max_inline; /**< bytes that travel within it */
};

/** What start and progress of a lane return, if it is not an error. */
enum { RSCHED_LANE_PENDING = 0, RSCHED_LANE_DONE = 1 };

/** Of order_start: nothing was enqueued. */
enum { RSCHED_ORDER_FULL = 1 };

/** Of tx_saves: a picosecond, so that it is asked again. */
enum { RSCHED_SAVING_UNKNOWN = 1 };

/** The functions of an engine. All are set but where it is said; one that makes
 * no sense for an engine fails with RSCHED_ENOTSUP. */
struct rsched_engine_ops {
    const char *name;
    const char *help; /**< one line for `rsched info` */
    bool within_node; /**< reaches processes of the same node only */
    bool gpus;        /**< for messages of which an end lies in GPU memory; the
                           other engines are for host memory at both ends */
    bool also_gpus;   /**< for those too, over connections of their own, where no
                           engine that is for them alone reaches the peer, and
                           beside the lanes of one that does */
    bool reconnects;  /**< a connection that is not whole may be replaced by a
                           new one with the same instance; if not, a peer whose
                           check has failed is dead for good */

    /** Make an instance. RSCHED_ENOTSUP, with a text that says what is
     * missing, when this machine cannot. */
    int (*open)(const struct rsched_engine_env *env,
                struct rsched_engine **engine);
    /** All connections have been disconnected. */
    void (*close)(struct rsched_engine *engine);

    /** Tell the ports that the engine has open, the rails of its connections in
     * their order. NULL: it has none.
     * @param ports room for RSCHED_MAX_RAILS
     * @return how many */
    uint32_t (*ports)(const struct rsched_engine *engine,
                      struct rsched_engine_port *ports);

    /** Write what a peer must know to connect. */
    void (*address)(struct rsched_engine *engine, unsigned char *address);

    /** Make this side's half of a connection to process `peer`, whose engine
     * has this address; all bytes are 0 if it has none. With the own address
     * it is the connection of the process with itself.
     * RSCHED_EUNREACH, with the reason, when it cannot be reached. */
    int (*connect)(struct rsched_engine *engine, int peer,
                   const unsigned char *address,
                   struct rsched_connection **connection);
    /** Write what the peer's half must know of this one. */
    void (*offer)(struct rsched_connection *connection, unsigned char *offer);
    /** Join the two halves; called once, before lanes are made. */
    int (*accept)(struct rsched_connection *connection,
                  const unsigned char *offer);
    /** Take what peers whose halves are not accepted yet have sent to the process
     * by ways of the engine's own, so that they can go on; called now and then while
     * the process waits for peers that may connect. Never waits. NULL: they send
     * nothing. */
    void (*collect)(struct rsched_engine *engine);
    /** Number of rails, the same at both ends. */
    uint32_t (*rails)(const struct rsched_connection *connection);
    /** Once it is accepted: the rails that this end could connect, bit i: rail i; the
     * same ones from then on. NULL, as are the next two: a connection that is accepted
     * has all its rails. */
    uint32_t (*rails_connected)(const struct rsched_connection *connection);
    /** Use no rails but those that the peer could connect, too; before lanes are made.
     * What is for one of the others goes over another one, the same at both ends. May
     * be said again.
     * @param theirs what rails_connected says at the peer
     * @return 0; RSCHED_EUNREACH: no rail is left */
    int (*rails_agree)(struct rsched_connection *connection, uint32_t theirs);
    /** Once it is agreed on: the rails that are used, bit i: rail i; the same ones at both
     * ends from then on. */
    uint32_t (*rails_used)(const struct rsched_connection *connection);
    /** All its lanes have been destroyed, and `settle` has said that nothing is
     * left, or not in time: what is left is not said. What epochs have sent that this
     * end took for complete gets there, unless the connection fails, however long
     * that takes. The peer may be dead. */
    void (*disconnect)(struct rsched_connection *connection);

    /** See whether the peer lives; called now and then by those who wait, with
     * no lock held. @return 0, or RSCHED_EPEER: it is known to be dead, or
     * nothing in use of the connection moves any more. Where some of its rails
     * have failed, only the lanes over these say so. */
    int (*check)(struct rsched_connection *connection);
    /** Go on with what lanes that have been abandoned or destroyed still have to
     * tell the peer; called now and then while something is left. Never waits.
     * NULL: nothing is ever left. @return whether anything is left to be told, or
     * that a destroyed lane has told has not reached the peer */
    bool (*settle)(struct rsched_connection *connection);
    /** Whether no part of the connection has failed, nor may fail because of
     * what its peer had begun, and no other one is likely to have more rails. One
     * that is not whole goes on for the lanes that it has, as far as they work;
     * the next exchange gets another one. */
    bool (*is_whole)(const struct rsched_connection *connection);

    /** What lanes of one exchange do together, at this side: the engine may
     * leave what their start and progress begin to the flush after them, to do
     * it with fewer commands. All three are NULL for engines without it, the
     * flush for those whose lanes leave nothing to it. A group belongs to the
     * thread that its lanes belong to. */
    int (*group_create)(struct rsched_engine *engine,
                        struct rsched_group **group);
    /** All its lanes have been destroyed. */
    void (*group_destroy)(struct rsched_group *group);
    /** Begin what start or progress of lanes have left; called when those of all
     * lanes, or of some of them, have been called. Never waits.
     * @return 0, or an error of the exchange */
    int (*group_flush)(struct rsched_group *group);

    /** Receiver: make the rx lane of an edge and describe it. */
    int (*rx_create)(struct rsched_connection *connection,
                     const struct rsched_lane_spec *spec,
                     unsigned char *descriptor, struct rsched_lane **lane);
    /** Sender: make the tx lane that goes with a peer's descriptor. The reply
     * is RSCHED_LANE_DESCRIPTOR_BYTES of zeros to write to. */
    int (*tx_create)(struct rsched_connection *connection,
                     const struct rsched_lane_spec *spec,
                     const unsigned char *descriptor, unsigned char *reply,
                     struct rsched_lane **lane);
    /** Receiver: the tx lane is there. Before the first load. */
    int (*rx_attach)(struct rsched_lane *lane, const unsigned char *reply);
    /** The exchange of a lane has failed, or is about to be destroyed: the lane
     * moves nothing any more, and the other end's check says so, in time (see
     * settle). Never waits. Only this, rx_is_over and destroy follow, which does
     * the same if it was not done. */
    void (*rx_abandon)(struct rsched_lane *lane);
    void (*tx_abandon)(struct rsched_lane *lane);
    /** After that: whether the other end has come to the end of what it was writing into
     * the buffers by then, or is dead. Never waits. NULL: destroy sees to it, which
     * waits for it in any case. */
    bool (*rx_is_over)(struct rsched_lane *lane);
    /** See whether the other end has been abandoned; what it did before is
     * there for progress to find. After a progress that was in vain: whether
     * all others will be, so not while this end still copies what it has found.
     * @return 0 or RSCHED_EPEER */
    int (*rx_check)(struct rsched_lane *lane);
    int (*tx_check)(struct rsched_lane *lane);

    /** No epoch is under way, or it is given up. Memory that the peer may
     * still write stays until it cannot. */
    void (*rx_destroy)(struct rsched_lane *lane);
    void (*tx_destroy)(struct rsched_lane *lane);

    /** Compile what the next epochs move; between epochs only. The message is
     * not needed afterwards. For a connection of a process with itself the tx
     * lane is loaded before the rx lane. On failure the lane cannot be
     * started until a load succeeds. */
    int (*tx_load)(struct rsched_lane *lane,
                   const struct rsched_message *message);
    int (*rx_load)(struct rsched_lane *lane,
                   const struct rsched_message *message);
    /** Choose the way of the loaded message again, with so many in flight (struct
     * rsched_message); between epochs only. The way is the sender's affair: each
     * message says which one it goes, and the peer's rx lane, which is not told of
     * this, takes it. NULL: the ways of this engine do not depend on it.
     * @return 0: it stays; 1: it is another one from the next epoch on;
     *         RSCHED_ENOMEM: it stays */
    int (*tx_rank)(struct rsched_lane *lane, uint64_t in_flight);

    /** Memory of the loaded message may be adopted (docs/adopted.md) in a start of its
     * exchange, before the lane's own. The three functions allocate, and may be called
     * then, too; they are NULL for engines without this.
     *
     * Where the message lies, as far as it is worth to know: pieces of the lane, for as
     * long as the message is loaded. A start that has asked what would be saved calls
     * tx_remap before the lane's start. */
    const struct rsched_piece *(*tx_blocks)(struct rsched_lane *lane,
                                            size_t *number);
    /** What a start would save, in ps, by the costs of the ways or by what was measured,
     * if these pages (of one block each, in the order of addresses) could be mapped by
     * the peer; UINT64_MAX: it does not depend on costs; RSCHED_SAVING_UNKNOWN: it may
     * be known when it is asked again. */
    uint64_t (*tx_saves)(struct rsched_lane *lane,
                         const struct rsched_piece *pages, size_t number);
    /** Look again where the message lies. */
    int (*tx_remap)(struct rsched_lane *lane);

    /** Begin an epoch and do what can be done at once. Never waits.
     * @return RSCHED_LANE_DONE: the buffers of this side are free (tx) or
     *         full (rx); RSCHED_LANE_PENDING: progress must be called. */
    int (*tx_start)(struct rsched_lane *lane);
    int (*rx_start)(struct rsched_lane *lane);
    /** Go on with an epoch; as start. Of one that is over it says so again. */
    int (*tx_progress)(struct rsched_lane *lane);
    int (*rx_progress)(struct rsched_lane *lane);

    /** A **ring** is a queue pair to a peer that kernels write and ring
     * themselves, by rsched/device.h, and what comes back from that peer over
     * its own. Each of both processes makes one, gives its descriptor to the
     * other, and joins it with the other's; when each knows that the other has
     * done so too, its kernels may start. All ten are NULL for engines without
     * rings.
     *
     * Make one for a connection whose rails are agreed on, over its first one.
     * @return 0; RSCHED_ENOTSUP, RSCHED_ELIMIT: the text says why there is no
     *         ring; RSCHED_EPEER, RSCHED_ENOMEM, RSCHED_ESYS */
    int (*ring_create)(struct rsched_connection *connection,
                       const struct rsched_ring_spec *spec,
                       unsigned char *descriptor, struct rsched_ring **ring);
    /** Join it with the peer's. @param send of even and odd epochs; not looked at
     * where it is for words
     * @return as ring_create; RSCHED_EMISMATCH: the peer expects something else.
     *         It can only be destroyed then. */
    int (*ring_join)(struct rsched_ring *ring,
                     const struct rsched_message *const send[2],
                     const unsigned char *descriptor);
    /** 32-bit words of the table that its lane needs. */
    uint32_t (*ring_words)(const struct rsched_ring *ring);
    /** Write what kernels use of it. @param table where it is written
     * @param there where kernels will have it */
    void (*ring_fill)(struct rsched_ring *ring, struct rsched_device_lane *lane,
                      uint32_t *table, const uint32_t *there);
    /** Whether the peer's end goes on; any thread, no lock.
     * @return 0; RSCHED_EPEER: it has been abandoned, or the peer is gone. What
     *         it had written before is there. */
    int (*ring_check)(struct rsched_ring *ring);
    /** What a lane has failed with. @param lane as the host sees it, or a copy
     * @return 0, or its error, with the text */
    int (*ring_status)(const struct rsched_ring *ring,
                       const struct rsched_device_lane *lane);
    /** The same two of a ring for words: write what kernels use of it, and what
     * has become of that. */
    void (*ring_target)(const struct rsched_ring *ring,
                        struct rsched_device_target *target);
    int (*ring_target_status)(const struct rsched_ring *ring,
                              const struct rsched_device_target *target);
    /** No kernel writes it any more. Tell the peer, unless it was done before;
     * never waits. */
    void (*ring_abandon)(struct rsched_ring *ring);
    /** Give it up, and nobody writes the receive buffers any more. */
    void (*ring_destroy)(struct rsched_ring *ring, enum rsched_ring_end end);

    /** Sleep until a peer may have done something for `lane`, or, when that is
     * NULL, for any lane of the engine, at most `limit_ps`. `ready` is called
     * at least once after others can see that we sleep: if it returns true, so
     * does the sleep, at once. May return early. */
    void (*sleep)(struct rsched_engine *engine,
                  const struct rsched_lane *lane, uint64_t limit_ps,
                  bool (*ready)(void *arg), void *arg);

    /** Bytes of memory that the engine holds for its peers. */
    uint64_t (*memory)(struct rsched_engine *engine);
    /** Sleepers woken so far. */
    uint64_t (*wakes)(struct rsched_engine *engine);
};

/**
 * The engines of this library, in the order in which they are tried.
 *
 * @param index 0, 1, ...
 * @return NULL when there are no more. Thread-safe.
 */
RSCHED_API const struct rsched_engine_ops *rsched_engine_at(size_t index);

/** An engine that rsched has but this library was built without. */
struct rsched_engine_absence {
    const char *name;
    const char *reason;
};

/**
 * The engines that this library was built without.
 *
 * @param index 0, 1, ...
 * @return NULL when there are no more. Thread-safe.
 */
RSCHED_API const struct rsched_engine_absence *
rsched_engine_absence_at(size_t index);

enum {
    RSCHED_GPU_NAME_BYTES = 96,
    RSCHED_GPU_ID_BYTES = 16,
    RSCHED_GPU_BUS_BYTES = 32,
    /** NUMA nodes of a GPU: the machine has none; its is not known. */
    RSCHED_NUMA_NONE = -1,
    RSCHED_NUMA_UNKNOWN = -2,
};

/** A GPU. Its number may differ between processes and containers; its id does
 * not. */
struct rsched_gpu {
    char name[RSCHED_GPU_NAME_BYTES];
    unsigned char id[RSCHED_GPU_ID_BYTES];
    char bus[RSCHED_GPU_BUS_BYTES]; /**< PCI: domain:bus:device.function */
    int numa_node;                  /**< that it is attached to, or
                                         RSCHED_NUMA_NONE or _UNKNOWN */
    uint64_t bytes;                 /**< of memory */
};

/** Memory that kernels of a GPU and threads of the host use together. */
struct rsched_gpu_memory {
    int number;               /**< of the GPU */
    void *context, *stream;   /**< the driver's */
    void *host;               /**< pinned, as processors see it */
    uint64_t host_of_kernels; /**< the same, as kernels see it */
    uint64_t gpu;             /**< in GPU memory, which processors do not see */
};

/** What there is to know of GPUs, from their driver. Any thread may call any
 * of these at any time; none makes a context on a GPU. */
struct rsched_gpu_ops {
    const char *name;
    const char *no_kernels; /**< why this library has none, or NULL: blocks of
                                 GPU memory are packed by kernels */

    /** Use the driver if this process has loaded it; it is never loaded for
     * that, so that programs without GPU memory do not pay for one. Where no
     * library has been loaded since the last call this takes a fraction of a
     * microsecond. @return whether `place` may find anything but the host */
    bool (*attach)(void);

    /** Where the bytes [address, address + bytes) lie, bytes at least 1. All is
     * host memory until `attach` has found the driver and the program has
     * initialised it. */
    void (*place)(const void *address, uint64_t bytes,
                  struct rsched_place *place);

    /** A number of the allocation of GPU memory that an address is in, which no
     * other one of this process has or has had; 0: it is in none. */
    uint64_t (*allocation)(const void *address);

    /** Load and initialise the driver, and count the GPUs that it shows to this
     * process. @return 0; RSCHED_ENOTSUP with the reason: no driver, too old a
     * one, no GPU, or what the driver said */
    int (*open)(int *count);

    /** Describe a GPU, after a successful `open`. @param gpu 0, 1, ..., below
     * the count @return 0, RSCHED_ENOTSUP: what the driver said */
    int (*describe)(int gpu, struct rsched_gpu *description);

    /** Whether a way could move bytes from memory of one GPU to that of the
     * same or another one, each in a process of its own on this node, after a
     * successful `open`. @param way of enum rs_way, one of GPU memory
     * @return 0, RSCHED_ENOTSUP: the reason why not */
    int (*check_way)(int from, int to, unsigned way);

    /** Make what joins the epochs of one exchange with streams. `reached` is
     * called when a stream has reached a start, by a thread of the driver's: it
     * may not call the driver, nor wait for anything but a lock that nobody
     * keeps while he does. Never after order_destroy.
     * @return 0; RSCHED_ENOTSUP: no driver, or too old a one; RSCHED_ENOMEM */
    int (*order_create)(void (*reached)(void *arg), void *arg,
                        struct rsched_order **order);
    /** Enqueue a start, or the wait for the start before it. They take turns, in
     * streams and in each capture; what went into a capture that is over does not
     * count. The driver may block where a stream is full, until the stream goes on:
     * who calls must not have what epochs need.
     * @return 0; RSCHED_ORDER_FULL, of a start: too many are enqueued that no
     *         stream has reached, try again later; RSCHED_ESTATE: it is not its
     *         turn; RSCHED_EINVAL: a stream of another context; RSCHED_ENOTSUP,
     *         RSCHED_ENOMEM, RSCHED_ESYS: what the driver said, where there was no
     *         room also of what was enqueued before */
    int (*order_start)(struct rsched_order *order, void *stream);
    int (*order_wait)(struct rsched_order *order, void *stream);
    /** Starts that streams have reached. Acquire: what was before them is
     * seen; sequentially consistent with the calls of `reached`. Thread-safe. */
    uint64_t (*order_reached)(const struct rsched_order *order);
    /** The epoch of the last start that was reached is complete: what streams
     * do behind the wait for it may begin. */
    void (*order_complete)(struct rsched_order *order);
    /** Starts that are reached later are complete at once. What streams and
     * graphs still need of it stays. */
    void (*order_destroy)(struct rsched_order *order);

    /** Have memory in the host and in a GPU, in its primary context, which is
     * held as long.
     * @return 0; RSCHED_ENOTSUP: no driver, or too old a one; RSCHED_ENOMEM,
     *         RSCHED_ESYS: what the driver said, also of a GPU that is none */
    int (*memory_create)(int gpu, uint64_t host_bytes, uint64_t gpu_bytes,
                         struct rsched_gpu_memory *memory);
    /** Write the part in GPU memory, from its beginning; it has been written
     * when this returns. */
    int (*memory_fill)(const struct rsched_gpu_memory *memory,
                       const void *image, uint64_t bytes);
    /** Read it, also while kernels write it: 8 aligned bytes are some that were
     * there. Any thread. */
    int (*memory_read)(const struct rsched_gpu_memory *memory, void *image,
                       uint64_t bytes);
    /** No kernel uses it. The driver may wait for streams. */
    void (*memory_destroy)(struct rsched_gpu_memory *memory);

    /** Hold a GPU (its primary context) to have a device reach its memory, or to
     * have that copied. A hold is used by one thread at a time.
     * @return 0, or what the driver said */
    int (*hold)(int gpu, struct rsched_gpu_hold **hold);
    /** What was made with it has been destroyed; NULL is allowed. */
    void (*release)(struct rsched_gpu_hold *hold);
    /** The bytes of the allocation, or of the mapping, that an address is in.
     * @return 0, or what the driver said: it is in none of this GPU's */
    int (*extent)(struct rsched_gpu_hold *hold, const void *address,
                  uintptr_t *begin, uintptr_t *end);
    /** Export whole pages of one allocation as a dma-buf for devices; close the
     * descriptor once they have it. @return 0; RSCHED_ENOTSUP: the GPU or the
     * driver does not; or what the driver said */
    int (*dmabuf)(struct rsched_gpu_hold *hold, const void *address,
                  uint64_t bytes, int *fd);
    /** Whether devices may be given the GPU's memory by its address, in any way;
     * asked where there is no dma-buf. @return 0, or RSCHED_ENOTSUP */
    int (*peer_memory)(struct rsched_gpu_hold *hold);
    /** Make what a device has written to the GPU's memory, and has said to a
     * processor to have written, visible to whatever the GPU does from now on.
     * Nothing is done where the GPU orders such writes.
     * @return 0; RSCHED_ENOTSUP, each time: it can neither; or what the driver
     * said */
    int (*flush)(struct rsched_gpu_hold *hold);
    /** Whether the GPU's own kernels see what a device writes to its memory in the
     * order in which it does, while they run. @return 0, or RSCHED_ENOTSUP */
    int (*orders)(struct rsched_gpu_hold *hold);

    /** Map memory of the host for kernels, or registers of a device, in whole
     * pages. Pages that are mapped already are shared; the driver has each once in
     * a process. It may wait for kernels, here and below.
     * @param mapped where kernels have it
     * @return 0; RSCHED_ENOTSUP: the driver or the system does not; or what the
     *         driver said */
    int (*pages_map)(struct rsched_gpu_hold *hold, void *host, uint64_t bytes,
                     bool is_register, void **mapped);
    /** No kernel uses it; the memory is still there. @param host as above */
    void (*pages_unmap)(struct rsched_gpu_hold *hold, void *host);
    /** Have whole pages of GPU memory, which nobody else's memory is in. */
    int (*pages_create)(struct rsched_gpu_hold *hold, uint64_t bytes,
                        void **pages);
    /** Make bytes of them zero. */
    int (*pages_clear)(struct rsched_gpu_hold *hold, void *memory,
                       uint64_t bytes);
    /** Neither kernels nor devices use it. */
    void (*pages_destroy)(struct rsched_gpu_hold *hold, void *pages);

    /** Make the copies between a message, of which blocks may lie in host memory,
     * and host memory, piece by piece: each has the next `piece_bytes` of the
     * message one after the other, the last one what is left.
     * @param to_host whether it is copied there, or from there
     * @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT, or what the driver said */
    int (*stage_create)(struct rsched_gpu_hold *hold,
                        const struct rsched_message *message, bool to_host,
                        uint64_t piece_bytes, struct rsched_gpu_stage **stage);
    /** Pin the whole pages that pieces are to be copied to or from, until the
     * stage is destroyed; once at most. What cannot be pinned, or is not, is
     * copied all the same, with the driver's help.
     * @return 0, or what the driver said */
    int (*stage_pin)(struct rsched_gpu_stage *stage, void *memory,
                     uint64_t bytes);
    /** Begin to copy a piece, to or from `memory`. Pieces are begun in their
     * order, from 0 again when all have been copied, or some have failed and
     * nothing is under way; at most RSCHED_STAGE_DEPTH are under way. Never
     * waits. */
    int (*stage_begin)(struct rsched_gpu_stage *stage, uint32_t piece,
                       void *memory);
    /** Of the pieces under way the first is asked for until it is done.
     * @return RSCHED_LANE_DONE: all of it has been copied, and is visible;
     *          RSCHED_LANE_PENDING; or what the driver said */
    int (*stage_poll)(struct rsched_gpu_stage *stage, uint32_t piece);
    /** Wait until nothing is under way, whether it went well or not. */
    void (*stage_drain)(struct rsched_gpu_stage *stage);
    /** NULL is allowed. */
    void (*stage_destroy)(struct rsched_gpu_stage *stage);

    /** Messages that receivers copy out of the sender's memory: rsched/pull.h. */
    const struct rsched_gpu_pull_ops *pull;
};

/** @return the table, or NULL: this library was built without cuda.h.
 * Thread-safe. */
RSCHED_API const struct rsched_gpu_ops *rsched_gpus(void);

/**
 * Where the blocks of a run lie, at least one of at least one byte. All of a
 * GPU's (or managed) lie in one allocation, from the lowest to the highest; of
 * the host's, which the driver need not know, these two are looked at. Where
 * they differ the kind is RSCHED_PLACE_UNKNOWN. Thread-safe.
 *
 * @param gpus    rsched_gpus(), which has attached
 * @param address what run->offset counts from; NULL is an address like others
 */
RSCHED_API void rsched_place_run(const struct rsched_gpu_ops *gpus,
                                 const void *address,
                                 const struct rsched_run *run,
                                 struct rsched_place *place);

#ifdef __cplusplus
}
#endif

#endif
