/* SPDX-License-Identifier: BSD-3-Clause */
/* Prepared chains of send work requests, one for each list. */
#ifndef RS_VERBS_CHAIN_H
#define RS_VERBS_CHAIN_H

#include <infiniband/verbs.h>

#include "engines/rdma/queue.h"

/* The requests of a list, each linked to the next, only the last signalled.
 * The id of a request is its number. */
struct rs_verbs_chain {
    struct ibv_send_wr *requests;
    struct ibv_sge *pieces;
    uint32_t num_requests;
    uint64_t epoch;    /* what stamped operations send */
    bool stamps_imm;
};

/** Compile operations. @return 0 or RSCHED_ENOMEM */
int rs_verbs_chain_init(struct rs_verbs_chain *chain,
                        const struct rs_rdma_op *ops, uint32_t num_ops);
void rs_verbs_chain_fini(struct rs_verbs_chain *chain);

/** Set what depends on the epoch. */
void rs_verbs_chain_stamp(struct rs_verbs_chain *chain, uint64_t epoch);

#endif
