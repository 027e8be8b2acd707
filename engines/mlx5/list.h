/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A prepared list of WQEs: the image of what one lane posts at each start.
 *
 * The image is linear, in blocks; the send queue copies it into its ring, or
 * finds it there from an earlier lap. What differs from post to post is not in
 * it: the index in the first word of each WQE, and the patches.
 *
 * A list whose length divides the ring's meets the same slots again in every
 * lap, so that its blocks need not be copied again. `recur` pads it to the next
 * power of two with NOPs, which stand before the last operation: so the one
 * completion of the list is also that of the padding, and the padding is read
 * while data moves. One NOP takes as many whole blocks as a WQE may have.
 */
#ifndef RS_MLX5_LIST_H
#define RS_MLX5_LIST_H

#include "engines/mlx5/wqe.h"
#include "engines/rdma/queue.h"

/* What a list must fit into. */
struct rs_wqe_limits {
    uint32_t qpn;
    uint32_t blocks;       /* of the ring, a power of two up to 32768 */
    uint32_t max_segments; /* of a WQE, from 4 to RS_WQE_MAX_SEGMENTS */
    uint32_t max_inline;   /* bytes */
    bool recur;
    uint32_t at_least; /* recur: blocks of the list, a power of two; 0: any */
};

struct rs_wqe_entry {
    uint16_t block; /* its first one in the image */
    uint8_t opcode;
    uint32_t op;    /* which operation, or RS_WQE_PADDING */
};

#define RS_WQE_PADDING UINT32_MAX

/* What is written into a posted WQE besides its index. */
struct rs_wqe_patch {
    enum { RS_PATCH_EPOCH, RS_PATCH_IMM, RS_PATCH_BYTES } kind;
    uint16_t block;
    uint8_t offset;  /* in the block */
    uint8_t bytes;   /* a patch does not cross blocks */
    uint32_t imm;    /* IMM: its upper half */
    const void *source; /* BYTES */
};

struct rs_wqe_list {
    struct rs_rdma_list base;
    uint64_t number;      /* given by the send queue: whose blocks these are */
    uint32_t blocks;
    uint32_t num_wqes, num_patches;
    struct rs_wqe_entry *wqes; /* the last one is signalled */
    struct rs_wqe_patch *patches;
    unsigned char *image; /* with indices as if posted at 0 */
};

/** @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT, or RSCHED_EINVAL for operations
 * that make no sense */
int rs_wqe_list_create(const struct rs_wqe_limits *limits,
                       const struct rs_rdma_op *ops, uint32_t num_ops,
                       struct rs_wqe_list **list);
void rs_wqe_list_destroy(struct rs_wqe_list *list);

/** The operation to which a block of the image belongs. Padding counts as the
 * operation behind it. */
uint32_t rs_wqe_list_op_at(const struct rs_wqe_list *list, uint32_t block);

#endif
