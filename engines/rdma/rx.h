/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RX: the receiving half of an edge. `rx_load.c` tells the sender where a message
 * is to go when it is loaded, `rx.c` does the rest.
 *
 * Threads: as lanes (lane.h).
 */
#ifndef RS_RDMA_RX_H
#define RS_RDMA_RX_H

#include "engines/rdma/program.h"
#include "engines/rdma/rdma.h"

struct rs_rdma_rx {
    struct rs_rdma_lane lane; /* first */
    struct rs_rdma_arrivals *arrivals;
    char *slots;
    uint64_t stride;
    struct rs_rdma_table *table; /* what is written to the sender's */
    uint32_t imm;     /* RS_NOTIFY_IMM */
    bool listens;     /* to it */
    uint64_t remote_credits;
    uint32_t remote_rkey;
    struct rs_rdma_list *consume, *version_word, *ready, *publish;
    uint64_t consumed;  /* wanted to be told */
    uint64_t told;      /* of them */
    uint32_t credit_step; /* tell after so many chunks */
    uint64_t version;   /* of the table */
    bool is_direct;     /* the loaded message */
    uint32_t begun;     /* chunks that copy engines have begun with */
};

static inline struct rs_rdma_rx *rs_rdma_rx_of(struct rsched_lane *lane)
{
    return (struct rs_rdma_rx *)lane;
}

#endif
