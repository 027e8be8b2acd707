/* SPDX-License-Identifier: BSD-3-Clause */
/* From segments of a message to the operations that write them. */
#ifndef RS_RDMA_WRITES_H
#define RS_RDMA_WRITES_H

#include "engines/rdma/queue.h"

/* Operations that are being put together. Zero it, but for the limit, to
 * initialise; it keeps its arrays for the next use. */
struct rs_rdma_writes {
    uint32_t max_pieces; /* of an operation */
    struct rs_rdma_op *ops;
    struct rs_rdma_piece *pieces; /* of all operations, in order */
    uint32_t num_ops, num_pieces;
    uint32_t room_ops, room_pieces;
    uint64_t end; /* remote address after the last write */
    uint64_t bytes;      /* of all that was added with rs_rdma_writes_add() */
    uint64_t head_bytes; /* no operation goes across so many of them; 0: any may */
    uint32_t head_ops;   /* operations that hold these, once they are there */
};

/** Begin anew, without a head. */
void rs_rdma_writes_clear(struct rs_rdma_writes *writes);
void rs_rdma_writes_fini(struct rs_rdma_writes *writes);

/** Add bytes to be written; a segment that goes on where the last one ended at
 * the remote side joins its operation. @return 0 or RSCHED_ENOMEM */
int rs_rdma_writes_add(struct rs_rdma_writes *writes, uint64_t local,
                       uint32_t lkey, uint64_t bytes, uint64_t remote,
                       uint32_t rkey);

/** Add an operation as it is. It has at most one piece, which is copied.
 * @return 0 or RSCHED_ENOMEM */
int rs_rdma_writes_add_op(struct rs_rdma_writes *writes,
                          const struct rs_rdma_op *op);

/** Give the operations their pieces, which may have moved. */
void rs_rdma_writes_finish(struct rs_rdma_writes *writes);

#endif
