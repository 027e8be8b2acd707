/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The completion queue of one queue pair: a ring of 64-byte CQEs that the
 * device writes. A CQE belongs to the host when bit 0 of its last byte is the
 * lap's number modulo 2 and the upper half of that byte is not 15.
 *
 * Used parts, big endian, by byte: 36-39 immediate, 44-47 bytes received,
 * 54 vendor error and 55 syndrome (of an error), 56-59 opcode and queue pair
 * number, 60-61 index of the WQE's first block, or number of the receive.
 * Source: mlx5dv.h, struct mlx5_cqe64 and struct mlx5_err_cqe.
 */
#ifndef RS_MLX5_CQ_H
#define RS_MLX5_CQ_H

#include <stdbool.h>

#include "engines/mlx5/memory.h"

enum rs_cqe_kind {
    RS_CQE_SENT = 0,
    RS_CQE_RECEIVED_IMM = 1,
    RS_CQE_SEND_ERROR = 13,
    RS_CQE_RECEIVE_ERROR = 14,
    RS_CQE_INVALID = 15,
};

enum { RS_SYNDROME_FLUSHED = 0x05 };

struct rs_cqe {
    uint8_t kind; /* other values than in the enum are possible */
    uint8_t syndrome, vendor_error;
    uint16_t index;
    uint32_t qpn;
    uint32_t imm;
};

struct rs_cq {
    unsigned char *ring;
    uint32_t entries, stride;
    uint32_t taken;
    _Atomic uint32_t *dbrec;
};

/** `memory` has been filled with invalid CQEs by whoever made the queue. */
void rs_cq_init(struct rs_cq *cq, const struct rs_mlx5_memory *memory);

/** Take the next completion. @return whether there was one */
bool rs_cq_poll(struct rs_cq *cq, struct rs_cqe *cqe);

/** A syndrome in words. */
const char *rs_cqe_syndrome_text(uint8_t syndrome);

#endif
