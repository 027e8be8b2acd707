/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading WQEs, as strictly as can be: what a device would ignore, and what no
 * driver would write, is refused.
 *
 * The format is written down here a second time, in offsets, and shares nothing
 * with the code that writes WQEs: so a mistake there is seen here. Source:
 * rdma-core's mlx5dv.h and providers/mlx5/qp.c.
 */
#ifndef RS_SOFTNIC_DECODE_H
#define RS_SOFTNIC_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SOFTNIC_BLOCK = 64,
    SOFTNIC_MAX_BLOCKS = 16, /* of a WQE */
    SOFTNIC_MAX_WQE = SOFTNIC_MAX_BLOCKS * SOFTNIC_BLOCK,
    SOFTNIC_MAX_PIECES = 61,
};

enum softnic_opcode {
    SOFTNIC_NOP = 0x00,
    SOFTNIC_WRITE = 0x08,
    SOFTNIC_WRITE_IMM = 0x09,
    SOFTNIC_FETCH_ADD = 0x12,
};

struct softnic_piece {
    uint64_t address;
    uint32_t bytes, lkey;
};

struct softnic_wqe {
    enum softnic_opcode opcode;
    uint32_t blocks;
    bool signalled, solicited;
    uint32_t imm; /* as it is in the WQE, not converted */
    uint64_t remote;
    uint32_t rkey;
    uint64_t add;
    uint64_t bytes; /* in total */
    uint32_t inline_at; /* offset of inline bytes in the WQE, 0: there are none */
    uint32_t num_pieces;
    struct softnic_piece pieces[SOFTNIC_MAX_PIECES];
};

/**
 * Read a WQE.
 *
 * @param bytes `blocks` blocks: what there is up to the doorbell record, at
 *              most SOFTNIC_MAX_BLOCKS
 * @param index, qpn what the WQE must say
 * @return NULL, or what is wrong with it
 */
const char *softnic_decode(const unsigned char *bytes, uint32_t blocks,
                           uint16_t index, uint32_t qpn,
                           struct softnic_wqe *wqe);

/** Whether the rest of its last block is 0, of which a device reads nothing. */
bool softnic_has_zero_end(const unsigned char *bytes,
                          const struct softnic_wqe *wqe);

#endif
