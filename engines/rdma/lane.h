/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LANE: one edge over a link.
 *
 * The receiver has a block with the sender's words and landing slots, the
 * sender one with the receiver's words and table. Each writes the other's with
 * RDMA writes, which arrive in the order in which they were posted. Where the device
 * that they arrive at does not promise that (it is not notified by flags), a word is
 * written only when all that the lane wrote before is through.
 *
 * Landing: chunk i of a message goes to slot (position + i) modulo their
 * number, in one list: the data with the message's size and signature in front,
 * then the notification, an operation of its own. It may be posted once
 * position + i - consumed is below the number of slots. Messages of a fixed
 * length of several chunks begin at slot 0, so that one list for each chunk
 * serves all epochs; others have one list for each slot that they may begin at.
 *
 * Direct, for messages that do not fit into a chunk: when the receiver loads
 * it writes a table of its pieces to the sender, or that there is none since the
 * message lands, and behind it `table`, the version. In each epoch it writes
 * `ready`, the epoch's number, and before it `version`, if that is another one than
 * before; one lane does so for all lanes of its exchange from one process to the
 * other (group.h). The sender makes its lists when it meets a version for the first
 * time.
 *
 * Staged: what the device cannot get at, of a GPU's memory, copy engines bring to
 * places like slots, or out of slots, chunk by chunk, each end by itself. While one
 * chunk is copied those before it are on the wire, and copied on the other side. A
 * message that is staged at its receiver always lands; one that is staged at its
 * sender alone may go directly (tx_staged.c).
 *
 * Both count epochs and chunks from 0; a block serves another lane only after
 * the last write of the one before, which says so.
 */
#ifndef RS_RDMA_LANE_H
#define RS_RDMA_LANE_H

#include "engines/common/copy.h"
#include "engines/rdma/group.h"
#include "engines/rdma/link.h"

enum {
    RS_RDMA_LINE = 64,
    RS_RDMA_MAX_PIECES = 64, /* of a receiver's table */
    RS_RDMA_ANY_LEADER = RSCHED_MAX_RAILS,
    RS_RDMA_MAX_SLOTS = 4, /* of an edge */
};
static_assert(RS_RDMA_MAX_SLOTS <= (int)RSCHED_STAGE_DEPTH,
              "copies from all slots may be under way");

/* Written by the sender; with RS_NOTIFY_IMM the receiver counts `arrived`. Nothing says
 * that completions of what came before `last` are seen before it. */
struct rs_rdma_arrivals {
    _Alignas(RS_RDMA_LINE) atomic_uint_fast64_t last; /* 1 (see memory.h) and how many
                                                         notifications are counted */
    atomic_uint_fast64_t arrived; /* notifications that are not in a slot */
};
static_assert(sizeof(struct rs_rdma_arrivals) == RS_RDMA_LINE, "shared layout");

struct rs_rdma_slot {
    atomic_uint_fast64_t arrived; /* RS_NOTIFY_FLAG: the chunk's number + 1 */
    uint64_t meta; /* message bytes, and its signature in the upper 16 bits */
    char data[];
};
static_assert(sizeof(struct rs_rdma_slot) == 16, "shared layout");

/* Written by the receiver. */
struct rs_rdma_credits {
    _Alignas(RS_RDMA_LINE) atomic_uint_fast64_t last; /* 1 (see memory.h) and how many
                                                         epochs have been received */
    atomic_uint_fast64_t consumed; /* chunks */
    atomic_uint_fast64_t version; /* of the tables, in the bundle's leader */
    atomic_uint_fast64_t ready;   /* the epoch, likewise */
    atomic_uint_fast64_t table;   /* version << 1 | whether there is a table */
};
static_assert(sizeof(struct rs_rdma_credits) == RS_RDMA_LINE, "shared layout");

/* Where a message is to go; contiguous pieces, in its order. */
struct rs_rdma_table {
    uint64_t meta; /* as in a slot */
    uint64_t num_pieces;
    struct rs_rdma_target {
        uint64_t address, bytes;
        uint64_t rkey;
    } pieces[RS_RDMA_MAX_PIECES];
};
static_assert(sizeof(struct rs_rdma_table) == 16 + 24 * RS_RDMA_MAX_PIECES,
              "shared layout");

/* Of the rx lane. */
struct rs_rdma_descriptor {
    uint64_t arrivals; /* address; the slots are behind */
    uint32_t rkey;
    uint32_t num_slots;
    uint64_t chunk_bytes;
    uint32_t notify; /* enum rs_rdma_notify */
    uint32_t imm;    /* RS_NOTIFY_IMM: the lane's */
    uint32_t offers; /* tables: each epoch waits for `ready` */
    uint32_t leader; /* the rail of the lane that has it */
    uint64_t hash;   /* of all before */
};
static_assert(sizeof(struct rs_rdma_descriptor) <=
                  RSCHED_LANE_DESCRIPTOR_BYTES, "wire layout");

/* Of the tx lane. */
struct rs_rdma_reply {
    uint64_t credits; /* address; the table is behind */
    uint32_t rkey;
    uint32_t serial;  /* 1: its device may place writes in any order */
    uint64_t hash;
};
static_assert(sizeof(struct rs_rdma_reply) <= RSCHED_LANE_DESCRIPTOR_BYTES,
              "wire layout");

/* The landing slots of an edge and where a side stands in them. */
struct rs_rdma_ring {
    uint64_t chunk_bytes; /* that a slot holds */
    uint32_t num_slots;
    bool fixed;           /* all messages are of one length */
    bool aligned;         /* messages begin at slot 0 */
    uint32_t num_chunks;  /* of the loaded message */
    uint32_t next;        /* of them */
    uint64_t position;    /* number of the message's first chunk */
};

/* What tx and rx lanes have in common. */
struct rs_rdma_lane {
    struct rsched_lane lane; /* first: the public part */
    struct rs_rdma_link *link;
    struct rs_rdma_lane *next;       /* zombie */
    struct rs_rdma_lane *next_owing; /* that is still to say `last` */
    void (*dispose)(struct rs_rdma_lane *lane);
    /* NULL, or whether a destroyed lane has to stay for its peer's sake. */
    bool (*stays)(const struct rs_rdma_lane *lane);
    /* Lists posted, and those of them that are through. */
    uint64_t posted;
    atomic_uint_fast64_t completed;
    uint64_t promised; /* destroyed tx: lists that are to get through: its user takes
                          their epochs for sent */
    struct rs_rdma_block *block; /* that the peer writes */
    /* It says that nothing follows; any thread may be the one that posts it. */
    struct rs_rdma_list *last;
    bool owes;                          /* or has owed; the link's lock */
    atomic_uint_fast64_t said_ps;       /* when it was posted; 0: not yet */
    atomic_uint_fast64_t said_through;  /* 1: that is complete */
    uint64_t asked_ps;                  /* when it was asked for, the last time */
    struct rs_rdma_ring ring;
    struct rs_copies copies;
    struct rs_rdma_regions regions;
    /* All of the message that is loaded next lies in this GPU's memory, which only
     * the device is to touch. NULL: it is the host's. */
    struct rsched_gpu_hold *gpu;
    /* Or only copy engines are, between it and slots, each of which has a piece.
     * NULL: processors or the device do. */
    struct rsched_gpu_stage *stage;
    enum rs_rdma_notify notify;
    bool serial; /* the peer's device keeps no order of what this end writes */
    bool offers;
    struct rs_rdma_bundle *bundle; /* offers */
    bool leads;                    /* it */
    struct rs_rdma_bundle alone;   /* of a lane without a group */
    uint64_t epoch;   /* number of the current one, from 1 */
    uint64_t notices; /* notifications in `arrived` so far */
    uint64_t counted; /* tx: notifications that have been posted, if all are counted;
                         rx that is abandoned: epochs that have been received */
    uint64_t meta;    /* of the loaded message */
    uint64_t bytes;
};

/* lane.c */

int rs_rdma_lane_new(struct rsched_connection *connection, uint32_t rail,
                     size_t size, void (*dispose)(struct rs_rdma_lane *),
                     struct rs_rdma_lane **lane);
/** Have a lane that offers tables join the bundle of its group in `list` (NULL: it
 * has no group), whose leader is over rail `leader`, or over any that has been
 * there before if that is RS_RDMA_ANY_LEADER, else its own.
 * @return 0, RSCHED_ENOMEM; RSCHED_EMISMATCH: no group, and another one leads */
int rs_rdma_lane_join(struct rs_rdma_lane *lane,
                      const struct rsched_lane_spec *spec,
                      struct rs_rdma_bundle **list, uint32_t leader);
/** What dispose() of both kinds does in the end; the engine's lock is held. */
void rs_rdma_lane_free(struct rs_rdma_lane *lane);
/** Destroy a lane that has been abandoned; what its lists read stays until they
 * are through. Those of lanes that were abandoned together are waited for
 * together, for a bounded time. */
void rs_rdma_lane_drop(struct rs_rdma_lane *lane);
/** Wait until what destroyed lanes of the link have promised is through: as long as it
 * takes, or until the link is broken, as it is if the peer has stopped. */
void rs_rdma_lanes_keep_promises(struct rs_rdma_link *link,
                                 struct rsched_engine *engine);
/** Dispose of the zombies of a link that are through and have said so. The
 * engine's lock is held. */
void rs_rdma_lanes_bury(struct rs_rdma_link *link);

void rs_rdma_lane_lock(struct rs_rdma_lane *lane);   /* the engine's */
void rs_rdma_lane_unlock(struct rs_rdma_lane *lane);

/** Post one list of words of the lane, if its turn has come. The link's lock is held.
 * @return whether that worked; if not, again later */
bool rs_rdma_lane_add(struct rs_rdma_lane *lane, struct rs_rdma_list *list,
                      uint64_t epoch);
/** The same, and begin with it. */
bool rs_rdma_lane_post(struct rs_rdma_lane *lane, struct rs_rdma_list *list,
                       uint64_t epoch);
/** Wait until all lists of the lane are through, but not after `until_ps`.
 * @return whether they are */
bool rs_rdma_lane_drain(struct rs_rdma_lane *lane, uint64_t until_ps);
/** Whether all that it has posted, but `last`, is through. */
bool rs_rdma_lane_is_idle(const struct rs_rdma_lane *lane);
/** Say that nothing follows: now, or as soon as the queue has room. The lane
 * posts nothing any more. Never waits; may be repeated. */
void rs_rdma_lane_abandon(struct rs_rdma_lane *lane);
/** Say it for lanes that owe it, as far as there is room. The link's lock is
 * held. */
void rs_rdma_lanes_say_last(struct rs_rdma_link *link);
/** Whether the peer has said so in `last`. @return 0 or RSCHED_EPEER */
int rs_rdma_lane_check(struct rs_rdma_lane *lane,
                       const atomic_uint_fast64_t *last);

/** Note the message that is being loaded. @return 0 or RSCHED_ELIMIT */
int rs_rdma_lane_load(struct rs_rdma_lane *lane,
                      const struct rsched_message *message);

/** What strided memory costs its device. */
const struct rs_sources *rs_rdma_lane_costs(const struct rs_rdma_lane *lane);

/* The slots of an edge, as both ends see them. */
uint64_t rs_rdma_ring_stride(uint64_t chunk_bytes);
void rs_rdma_ring_load(struct rs_rdma_ring *ring, uint32_t num_chunks);
/** How many slots a message may begin at. */
uint32_t rs_rdma_ring_starts(const struct rs_rdma_ring *ring);
void rs_rdma_ring_finish(struct rs_rdma_ring *ring);

static inline uint64_t rs_rdma_ring_number(const struct rs_rdma_ring *ring)
{
    return ring->position + ring->next;
}

static inline uint32_t rs_rdma_ring_slot(const struct rs_rdma_ring *ring)
{
    return (uint32_t)(rs_rdma_ring_number(ring) % ring->num_slots);
}

/* Bytes of the message's chunk i. */
static inline uint64_t rs_rdma_meta_bytes(uint64_t meta)
{
    return meta & ((UINT64_C(1) << 48) - 1);
}

int rs_rdma_rx_create(struct rsched_connection *, const struct rsched_lane_spec *,
                      unsigned char *descriptor, struct rsched_lane **);
int rs_rdma_tx_create(struct rsched_connection *, const struct rsched_lane_spec *,
                      const unsigned char *descriptor, unsigned char *reply,
                      struct rsched_lane **);
int rs_rdma_rx_attach(struct rsched_lane *, const unsigned char *reply);
void rs_rdma_rx_abandon(struct rsched_lane *);
void rs_rdma_tx_abandon(struct rsched_lane *);
int rs_rdma_rx_check(struct rsched_lane *);
int rs_rdma_tx_check(struct rsched_lane *);
void rs_rdma_rx_destroy(struct rsched_lane *);
void rs_rdma_tx_destroy(struct rsched_lane *);
int rs_rdma_tx_load(struct rsched_lane *, const struct rsched_message *);
int rs_rdma_rx_load(struct rsched_lane *, const struct rsched_message *);
int rs_rdma_tx_start(struct rsched_lane *);
int rs_rdma_rx_start(struct rsched_lane *);
int rs_rdma_tx_progress(struct rsched_lane *);
int rs_rdma_rx_progress(struct rsched_lane *);

#endif
