/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TX: the sending half of an edge. `tx_lists.c` makes the lists of operations that
 * `tx.c` posts: when a message is loaded those for the slots, and for each table
 * that the receiver publishes those that write into its buffers. `tx_staged.c` has
 * what is different where copy engines bring the bytes.
 *
 * Threads: as lanes (lane.h).
 */
#ifndef RS_RDMA_TX_H
#define RS_RDMA_TX_H

#include "engines/rdma/program.h"
#include "engines/rdma/rdma.h"

enum { RS_RDMA_WORD = sizeof(uint64_t) };

struct rs_rdma_tx {
    struct rs_rdma_lane lane; /* first */
    struct rs_rdma_credits *credits;
    struct rs_rdma_table *table; /* that the receiver writes */
    uint64_t *meta; /* read by the device */
    uint64_t *sink; /* where a fetch-and-add puts what was there before */
    uint64_t remote_arrivals, remote_stride;
    uint32_t remote_rkey;
    uint32_t imm;
    struct rsched_message message; /* own copy */
    size_t room_pieces;
    enum rs_rdma_source source;
    struct rs_rdma_block *staging; /* RS_SOURCE_PACK, RS_SOURCE_STAGE: places like
                                      slots */
    struct rs_rdma_writes writes;
    /* For the slots: list start * num_chunks + chunk. */
    struct rs_rdma_program landing;
    struct rs_rdma_program direct;
    struct rs_copies straight; /* from the message to the table */
    struct rs_rdma_block *straight_staging;
    struct rs_copies parts; /* into it; of equal lengths, but the last one */
    uint32_t packed;        /* of them, in this epoch */
    /* RS_SOURCE_STAGE: pieces of this epoch that are being copied, have been, and
     * have left. */
    uint32_t begun, copied, left;
    uint64_t leaves[RS_RDMA_MAX_SLOTS]; /* lists up to the last one of what was in
                                           a place last */
    uint32_t *ends; /* the lists of `direct` up to each piece's last one */
    uint64_t version;  /* of the table that was taken last, 0: none */
    bool has_table;    /* `direct` was made for it; else messages land */
    uint64_t consumed; /* last seen */
    uint64_t refused_at; /* the list, from 1, before which it waited for the receiver
                            last */
    uint32_t next;     /* list of `direct` that comes next */
    bool is_direct;    /* this epoch */
    bool chosen;       /* this epoch's way is known */
    bool has_head;     /* the first list of `direct` is posted by itself */
};

static inline struct rs_rdma_tx *rs_rdma_tx_of(struct rsched_lane *lane)
{
    return (struct rs_rdma_tx *)lane;
}

/* Where a chunk is packed, or copied to. */
static inline struct rs_rdma_slot *rs_rdma_tx_place(const struct rs_rdma_tx *tx,
                                                    uint32_t slot)
{
    return (void *)(tx->staging->memory +
                    slot * rs_rdma_ring_stride(tx->lane.ring.chunk_bytes));
}

/** Add a notification; with RS_NOTIFY_FLAG it is written to `flag`.
 * @return 0 or RSCHED_ENOMEM */
int rs_rdma_tx_add_notify(struct rs_rdma_tx *tx, uint64_t flag);

/** Make the lists for the table that the receiver has published last; nothing of the
 * lane is under way. @return 0; RSCHED_EMISMATCH: the table is of another message;
 * RSCHED_ENOMEM */
int rs_rdma_tx_compile_direct(struct rs_rdma_tx *tx);

/* tx_staged.c: RS_SOURCE_STAGE. */

/** A message has been loaded, and has places. @return 0, or what the driver said */
int rs_rdma_tx_stage_prepare(struct rs_rdma_tx *tx);
/** Make the lists of a message that goes directly, piece by piece. @return 0 or
 * RSCHED_ENOMEM */
int rs_rdma_tx_stage_compile_direct(struct rs_rdma_tx *tx);
/** Begin with copies, and see which are over. @return 0, or what the driver said */
int rs_rdma_tx_stage_go_on(struct rs_rdma_tx *tx);
/** Whether the list that comes next is of a piece that has been copied. */
static inline bool rs_rdma_tx_stage_is_there(const struct rs_rdma_tx *tx)
{
    return tx->left < tx->copied;
}
/** A list has been posted. */
void rs_rdma_tx_stage_posted(struct rs_rdma_tx *tx);

#endif
