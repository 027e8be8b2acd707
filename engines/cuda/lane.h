/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LANES of messages of which an end lies in GPU memory, between two processes
 * of one node (or of a process with itself).
 *
 * An edge has a block of host memory at the receiver, which both map: words, of
 * which each has one writer, and a ring of slots. Slots are counted for as long
 * as the lane lives; a slot is written while (its number) - consumed < slots,
 * and read once `arrived` in its first line is its number + 1. What a slot
 * holds is one of three kinds. Which way a message goes is chosen by the sender
 * alone, when it loads or ranks, and the receiver takes whatever comes:
 *
 *   data   a chunk of the message (way `staged`). The sender's copy engine
 *          fills the slot; once the event behind the copy has happened, the
 *          processor stores `arrived`. The receiver's copy engine empties it;
 *          once the event behind that has happened, the processor stores
 *          `consumed`. Several slots are on their way at once on both sides.
 *   mapped the same bytes (way `gdrcopy`): processors have filled the slot out of
 *          the GPU's memory, and are to empty it into the GPU's memory, through
 *          mappings (mapping.h). A receiver that cannot map its memory takes it
 *          for data. What they have written has been read back before the epoch
 *          is complete.
 *   pull   the message lies where the table says that came last (way
 *          `cuda-ipc`). The receiver's copy engine reads it straight into the
 *          receive buffers; `consumed` follows once that has happened. The
 *          sender's buffers are busy until then. A sender that closes before
 *          has given up and may write them: the receiver looks at `closed`
 *          after the copy, and has no epoch then.
 *   table  a part of a new table, before the first pull that needs it. So
 *          handles are opened once for each load, not in each epoch.
 *   loop   the message comes over the lane beside (way `gdr-loopback`), by the
 *          process's own NIC. A receiver whose device gets at its memory starts
 *          that lane and says so in `accepted`, after which the sender starts its
 *          end; it consumes the slot when all is there. One whose device does not
 *          consumes the slot at once: then the message comes the next cheapest
 *          way, in this epoch and until the sender loads again. The lanes beside
 *          so have the same number of epochs at both ends, and their messages wait
 *          for nothing but each other.
 *
 * Notification, then, is always a processor's store with release order after
 * the driver has said that the copy is over (cuEventQuery), and the other
 * side's load with acquire order before it enqueues the next copy. No copy
 * engine writes a flag, and nothing is inferred from the order of its writes.
 *
 * A receiver that cannot open the peer's memory says so (`unreachable`), logs
 * why, and gets the message through slots in this epoch and all later ones;
 * with RSCHED_GPU_WAY=cuda-ipc it fails instead, as does one that refuses a loop
 * with RSCHED_GPU_WAY=gdr-loopback.
 *
 * Nothing of an epoch that processors copy calls the driver: contexts are made
 * current when something is enqueued, or asked for, only.
 *
 * Blocks in host memory are copied by processors, into and out of slots, so an
 * end without GPU memory needs no driver. Of those in GPU memory copy engines
 * copy the long ones, and a kernel the others (moves.h), which all lanes of the
 * exchange have in common (group.h); "copy engine" above stands for both.
 */
#ifndef RS_CUDA_LANE_H
#define RS_CUDA_LANE_H

#include <assert.h>
#include <stdatomic.h>

#include "engines/cuda/group.h"
#include "engines/cuda/mapping.h"
#include "engines/cuda/moves.h"
#include "engines/cuda/node.h"
#include "engines/cuda/region.h"
#include "engines/cuda/spans.h"
#include "engines/cuda/stream.h"
#include "librsched/base/ways.h"

enum {
    RS_CUDA_LINE = 64,
    RS_CUDA_SLOTS = 4, /* in flight at once, at both sides together */
    RS_CUDA_CHUNKS = 8, /* of RSCHED_CHUNK, in a slot: a copy engine takes
                           microseconds to begin, whatever it copies */
};

struct rs_cuda_words {
    /* Sender. */
    _Alignas(RS_CUDA_LINE) atomic_uint_fast64_t closed; /* 1: it writes no more */
    /* Receiver. */
    _Alignas(RS_CUDA_LINE) atomic_uint_fast64_t consumed; /* slots */
    atomic_uint_fast64_t refused;     /* 1: it reads no more */
    atomic_uint_fast64_t unreachable; /* 1: pull nothing any more */
    atomic_uint_fast64_t accepted; /* number + 1 of the last loop's slot */
    uint64_t id; /* of the edge; as in the descriptor */
};
static_assert(sizeof(struct rs_cuda_words) == 2 * RS_CUDA_LINE,
              "shared layout");

enum rs_cuda_kind {
    RS_CUDA_DATA,
    RS_CUDA_PULL,
    RS_CUDA_TABLE,
    RS_CUDA_MAPPED,
    RS_CUDA_LOOP
};

/* The first line of a slot; data or table follow it. */
struct rs_cuda_slot {
    _Alignas(RS_CUDA_LINE) atomic_uint_fast64_t arrived; /* its number + 1 */
    uint64_t bytes;     /* of the message */
    uint16_t signature; /* of the message */
    uint16_t kind;      /* enum rs_cuda_kind */
    uint32_t part;      /* bytes of the table in this slot */
    uint64_t version;   /* of the table */
    uint64_t table;     /* bytes of all of it */
};
static_assert(sizeof(struct rs_cuda_slot) == RS_CUDA_LINE, "shared layout");

/* A table: this, then the regions, then the pieces. */
struct rs_cuda_table {
    uint64_t num_regions, num_pieces;
};

struct rs_cuda_table_piece {
    uint64_t region; /* its number */
    uint64_t offset; /* in the region */
    uint64_t bytes, count;
    int64_t stride;
};

/* What an end sends: the next thing that goes into a slot. */
enum rs_cuda_step {
    RS_CUDA_SENDS_LOOP,
    RS_CUDA_ASKS,  /* whether the receiver accepts it */
    RS_CUDA_LOOPS, /* the lane beside has the epoch */
    RS_CUDA_SENDS_TABLE,
    RS_CUDA_SENDS_PULL,
    RS_CUDA_WAITS,
    RS_CUDA_SENDS_DATA,
    RS_CUDA_SENT /* all of the epoch */
};

enum rs_cuda_reach { RS_CUDA_NOT_TRIED, RS_CUDA_REACHED, RS_CUDA_OUT_OF_REACH };

/* A piece of the loaded message. */
struct rs_cuda_piece {
    struct rsched_piece piece;
    int gpu; /* -1: host memory */
};

struct rs_cuda_message {
    struct rs_cuda_piece *pieces;
    size_t num_pieces, room_pieces;
    uint64_t bytes;
    uint16_t signature;
    bool on_gpu;  /* any piece is */
    bool all_gpu; /* all of them are */
    bool one_gpu; /* and on the same one */
    int gpu;      /* of the first that is */
    struct rs_spans spans; /* where they are, of several GPUs, or not of all pieces */
};

struct rs_cuda_lane {
    struct rsched_lane lane; /* first: the public part */
    bool sends;
    bool abandoned;

    /* The block. */
    struct rs_place place;       /* rx: it is ours; address NULL: there is none */
    struct rs_cuda_words *words; /* NULL: the process's edge with itself */
    char *slots;
    uint64_t stride; /* bytes from slot to slot */
    uint64_t mapped; /* bytes to unmap */
    bool registered; /* the driver has pinned it */
    CUdeviceptr slots_of_kernel; /* where kernels see the slots; 0: nowhere */

    struct rs_cuda_message message;
    struct rs_moves moves; /* through slots, or straight (self) */
    struct rs_cuda_end peer; /* where the other end's buffers lie; outside of
                                exchanges it is not known */
    struct rs_cuda_lane *other; /* self: the other end */

    /* The epoch. Slots before `finished` are published (tx) or consumed (rx);
     * those before `issued` have had their copies enqueued. */
    struct rs_stream stream;
    bool entered; /* the stream, by this call of start or progress */
    bool in_turns; /* as rs_cuda_lane_takes_turns() said when it was loaded */
    struct rsched_group *group;
    bool own_group;         /* of this lane alone */
    struct rs_batch *batch; /* of the stream's GPU; NULL: there are no kernels */
    struct rs_begun begun[RS_CUDA_SLOTS]; /* self: the first one */
    uint64_t issued, finished;
    uint64_t refused_at; /* tx: `issued` when it last waited for a slot */
    uint32_t next; /* chunk of the message */
    enum rs_cuda_step step;
    bool pulling; /* rx: the one slot that is issued is a pull */

    enum rs_way way; /* tx: of the loaded message, one of GPU memory */
    enum rs_way otherwise; /* tx: of one that goes by gdr-loopback, if that is
                              refused */

    /* The lane beside. */
    bool loop_loaded;  /* it has the loaded message */
    bool loop_refused; /* tx: the receiver will not have the loaded message so */
    bool looping;      /* rx: it has the epoch */
    char *no_loop;     /* rx: why it does not have the message */

    /* Copies by processors. */
    struct rs_mappings mappings;
    enum rs_cuda_reach reach; /* rx: whether they reach the loaded message */

    /* Pulls. */
    bool refused; /* tx: the receiver has said that it cannot */
    uint64_t version, version_sent; /* of the table */
    char *table;
    size_t table_bytes;
    size_t table_at; /* bytes that have been sent or got */
    bool new_table;  /* rx: it is complete, and may need a stream */
    int no_stream;   /* rx: why there is none for pulls, with its text */
    char *no_stream_text;
    struct rs_cuda_region *regions; /* tx: exported */
    bool has_sent; /* tx: descriptors of theirs */
    size_t num_regions, room_regions;
    struct rs_moves straight;     /* rx: from the peer's memory */
    struct rs_cuda_opened **open; /* rx: that they need, and have needed */
    size_t num_open, room_open;
    size_t first_open;     /* of those that the table names */
    uint64_t version_open; /* of that table */
};

static inline struct rs_cuda_lane *rs_cuda_lane_of(struct rsched_lane *lane)
{
    return (struct rs_cuda_lane *)(void *)lane;
}

static inline struct rs_cuda_slot *rs_cuda_slot(const struct rs_cuda_lane *l,
                                                uint64_t number)
{
    return (struct rs_cuda_slot *)(void *)(l->slots +
                                           number % RS_CUDA_SLOTS * l->stride);
}

static inline char *rs_cuda_slot_data(struct rs_cuda_slot *slot)
{
    return (char *)(slot + 1);
}

/** Bytes of data that a slot holds. */
static inline uint64_t rs_cuda_room(const struct rs_cuda_lane *l)
{
    return l->stride - sizeof(struct rs_cuda_slot);
}

/** Where kernels see a slot's data. */
static inline CUdeviceptr rs_cuda_data_of_kernel(const struct rs_cuda_lane *l,
                                                 uint64_t number)
{
    return l->slots_of_kernel + number % RS_CUDA_SLOTS * l->stride +
           sizeof(struct rs_cuda_slot);
}

/* load.c */

/** Look where the pieces of a message lie, and keep them. @return 0,
 * RSCHED_ENOMEM; RSCHED_ENOTSUP: a block that does not lie in one allocation; as
 * rs_cuda_synchronise() */
int rs_cuda_keep_message(struct rsched_engine *engine,
                         struct rs_cuda_message *m,
                         const struct rsched_message *message);

/** Who makes a copy into or out of slots; `arg` is the lane. */
enum rs_mover rs_cuda_mover_of_slots(const void *arg, const struct rs_copy *c);

/** The GPU in whose memory a block of the message lies, or -1. */
int rs_cuda_gpu_of_block(const struct rs_cuda_message *m, const char *address);

int rs_cuda_tx_load(struct rsched_lane *, const struct rsched_message *);
int rs_cuda_rx_load(struct rsched_lane *, const struct rsched_message *);
int rs_cuda_tx_rank(struct rsched_lane *, uint64_t in_flight);

/** The pieces of a message, to be freed. @return NULL: no memory */
struct rsched_piece *rs_cuda_plain_pieces(const struct rs_cuda_message *m);

/* loop.c */

/** Sender: whether messages may go over a lane beside. @return 0, RSCHED_ENOTSUP:
 * why not */
int rs_cuda_loop_check(const struct rs_cuda_lane *l);

/** Have the lane beside load the message, unless it has it: the one that is being
 * loaded, or the one that was. @return 0; RSCHED_ENOTSUP: its device does not get
 * at it, and why; or another error */
int rs_cuda_loop_load(struct rs_cuda_lane *l,
                      const struct rsched_message *message);
int rs_cuda_loop_load_kept(struct rs_cuda_lane *l);

/** Begin an epoch over the lane beside, and go on with it. @return as start */
int rs_cuda_loop_start(struct rs_cuda_lane *l);
int rs_cuda_loop_progress(struct rs_cuda_lane *l);

/* map.c */

/** @return 0, or why processors cannot copy the loaded message: it has too many
 * blocks in GPU memory, or such that lie apart from each other */
int rs_cuda_map_check(const struct rs_cuda_lane *l);

/** Map what lies in GPU memory of a message that may be. @return 0,
 * RSCHED_ENOMEM, RSCHED_ENOTSUP: why not */
int rs_cuda_map(struct rs_cuda_lane *l);

/** Undo the mappings that the loaded message does not need. */
void rs_cuda_map_trim(struct rs_cuda_lane *l);

/* epoch.c */

int rs_cuda_tx_start(struct rsched_lane *);
int rs_cuda_rx_start(struct rsched_lane *);
int rs_cuda_tx_progress(struct rsched_lane *);
int rs_cuda_rx_progress(struct rsched_lane *);

/* pull.c */

/** Sender, when a message has been loaded: whether it can be pulled, and if so
 * the table of where it lies. @return 0, or why GPU memory cannot be exported;
 * RSCHED_ENOMEM */
int rs_cuda_pull_load(struct rs_cuda_lane *l);

/** Receiver: a part of the table has come. @return 0; RSCHED_EMISMATCH: it is
 * none; RSCHED_ENOMEM */
int rs_cuda_pull_take(struct rs_cuda_lane *l, const struct rs_cuda_slot *slot,
                      const char *part);

/** Receiver, when the table is complete: have a stream for its copies, if the
 * message of this end has none since it lies in host memory. Not while another
 * stream is entered. */
int rs_cuda_pull_stream(struct rs_cuda_lane *l);

/** Receiver, when a message has been loaded: a table that is there is as good as a
 * new one if a load that failed has left no stream. */
void rs_cuda_pull_recall(struct rs_cuda_lane *l);

/** Receiver: open what the table names, unless that is open. @return 0, or why it
 * cannot be */
int rs_cuda_pull_reach(struct rs_cuda_lane *l);

/** Receiver: close what is open of memory that the sender has freed, and has its
 * table's memory in the place of. Not from within an epoch. @return whether there
 * was any */
bool rs_cuda_pull_close_stale(struct rs_cuda_lane *l);

/** Receiver: open what the table names and compile the copies; nothing if that
 * was done. @return 0, or why it cannot be opened */
int rs_cuda_pull_open(struct rs_cuda_lane *l);

/** Receiver: another message has been loaded, the table stays. */
void rs_cuda_pull_forget(struct rs_cuda_lane *l);

/** Receiver: close what only former tables have named, once that is much: senders may
 * take turns with a few buffers. Not from within an epoch: the driver may wait for
 * streams. */
void rs_cuda_pull_tidy(struct rs_cuda_lane *l);

void rs_cuda_pull_fini(struct rs_cuda_lane *l);

/* lane.c */

int rs_cuda_rx_create(struct rsched_connection *, const struct rsched_lane_spec *,
                      unsigned char *descriptor, struct rsched_lane **);
int rs_cuda_tx_create(struct rsched_connection *, const struct rsched_lane_spec *,
                      const unsigned char *descriptor, unsigned char *reply,
                      struct rsched_lane **);
int rs_cuda_rx_attach(struct rsched_lane *, const unsigned char *reply);
void rs_cuda_rx_abandon(struct rsched_lane *);
void rs_cuda_tx_abandon(struct rsched_lane *);
int rs_cuda_rx_check(struct rsched_lane *);
int rs_cuda_tx_check(struct rsched_lane *);
void rs_cuda_rx_destroy(struct rsched_lane *);
void rs_cuda_tx_destroy(struct rsched_lane *);

/** The connection is about to go; all its lanes have been destroyed. */
void rs_cuda_lanes_forget(const struct rsched_connection *connection);

/** One end without slots, for pulls outside of exchanges (outside.c).
 * @return NULL: no memory */
struct rs_cuda_lane *rs_cuda_lane_alone(struct rsched_connection *connection,
                                        bool sends);
/** Waits for what is under way. */
void rs_cuda_lane_alone_destroy(struct rs_cuda_lane *l);

/** Have a stream in a context of that GPU, and slots that copy engines reach;
 * nothing if there is one. Nothing of the lane is under way, in the stream or
 * in the batch; of other lanes of the group there may be. */
int rs_cuda_lane_stream(struct rs_cuda_lane *l, int gpu);

/** Whether a kernel has to wait until the GPU has turned to this process from the
 * one at the other end. Asks the driver. */
bool rs_cuda_lane_takes_turns(const struct rs_cuda_lane *l);

/** For how many short blocks of a chunk a kernel is worth launching, by a lane that
 * has been loaded: fewer copies are begun sooner. */
uint32_t rs_cuda_lane_launch(const struct rs_cuda_lane *l);

/** Receiver: whether the sender has given up. Whoever has read its memory before
 * sees that it has if it wrote there after it had. */
bool rs_cuda_is_given_up(const struct rs_cuda_lane *l);

/** Append "peer N: " to the last error's text and return it. */
int rs_cuda_lane_fail(const struct rs_cuda_lane *l, int error);

#endif
