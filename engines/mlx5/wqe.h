/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WQE: an entry of an mlx5 send queue, as the device reads it.
 *
 * A WQE is a sequence of 16-byte segments in blocks of 64 bytes (WQEBB). It
 * begins with a block; what is left of its last block means nothing, and is 0
 * here:
 *
 *   NOP         ctrl
 *   RDMA WRITE  ctrl raddr data...
 *               ctrl raddr inline (4 bytes of length, then the bytes)
 *   ATOMIC FA   ctrl raddr atomic data
 *
 * All numbers are big endian, except inline bytes, which are copied as they
 * are. In the control segment:
 *
 *   byte 0     opcode modifier, 0
 *   bytes 1-2  index: the number of the WQE's first block, counted from the
 *              reset of the queue pair, modulo 65536
 *   byte 3     opcode
 *   bytes 4-6  queue pair number
 *   byte 7     segments of the WQE, 1-63
 *   byte 8     signature, 0: queue pairs that check it are refused
 *   byte 11    flags: 8 makes a completion, 2 makes the peer's solicited
 *   12-15      the immediate, 0 if there is none
 *
 * Source: the structures and setters of rdma-core's mlx5dv.h, against which a
 * test compares these writers bit by bit. Nothing here needs a device or a
 * library, so that other producers of a ring (a GPU) can do the same.
 */
#ifndef RS_MLX5_WQE_H
#define RS_MLX5_WQE_H

#include <assert.h>
#include <endian.h>
#include <stdint.h>

enum {
    RS_WQE_BLOCK = 64,
    RS_WQE_SEGMENT = 16,
    RS_WQE_SEGMENTS_PER_BLOCK = RS_WQE_BLOCK / RS_WQE_SEGMENT,
    RS_WQE_MAX_SEGMENTS = 63,
    RS_WQE_MAX_BLOCKS = 16, /* that many segments fill */
    RS_WQE_MAX_BYTES = 1 << 30, /* of one message: the ports' max_msg_sz */
};

#define RS_WQE_INLINE UINT32_C(0x80000000)

enum rs_wqe_opcode {
    RS_WQE_NOP = 0x00,
    RS_WQE_RDMA_WRITE = 0x08,
    RS_WQE_RDMA_WRITE_IMM = 0x09,
    RS_WQE_FETCH_ADD = 0x12,
};

enum rs_wqe_flag {
    RS_WQE_SOLICITED = 0x02,
    RS_WQE_SIGNALLED = 0x08,
};

struct rs_wqe_ctrl {
    uint32_t index_opcode;
    uint32_t qpn_segments;
    uint8_t signature;
    uint8_t reserved[2];
    uint8_t flags;
    uint32_t imm;
};

struct rs_wqe_raddr {
    uint64_t address;
    uint32_t rkey;
    uint32_t reserved;
};

struct rs_wqe_data {
    uint32_t bytes;
    uint32_t lkey;
    uint64_t address;
};

struct rs_wqe_atomic {
    uint64_t add;
    uint64_t compare; /* not used by fetch-and-add */
};

static_assert(sizeof(struct rs_wqe_ctrl) == RS_WQE_SEGMENT, "device layout");
static_assert(sizeof(struct rs_wqe_raddr) == RS_WQE_SEGMENT, "device layout");
static_assert(sizeof(struct rs_wqe_data) == RS_WQE_SEGMENT, "device layout");
static_assert(sizeof(struct rs_wqe_atomic) == RS_WQE_SEGMENT, "device layout");

/** The first word of a WQE, which is all of it that a repeated start changes
 * (besides what depends on the epoch). */
static inline uint32_t rs_wqe_index_opcode(uint16_t index,
                                           enum rs_wqe_opcode opcode)
{
    return htobe32((uint32_t)index << 8 | (uint32_t)opcode);
}

static inline void rs_wqe_set_ctrl(struct rs_wqe_ctrl *ctrl, uint16_t index,
                                   enum rs_wqe_opcode opcode, uint32_t qpn,
                                   uint32_t segments, uint8_t flags,
                                   uint32_t imm)
{
    *ctrl = (struct rs_wqe_ctrl){
        .index_opcode = rs_wqe_index_opcode(index, opcode),
        .qpn_segments = htobe32(qpn << 8 | segments),
        .flags = flags,
        .imm = htobe32(imm),
    };
}

static inline void rs_wqe_set_raddr(struct rs_wqe_raddr *raddr,
                                    uint64_t address, uint32_t rkey)
{
    *raddr = (struct rs_wqe_raddr){
        .address = htobe64(address),
        .rkey = htobe32(rkey),
    };
}

/** `bytes`: 1 to 2^31 - 1; the device takes 0 for 2^31. */
static inline void rs_wqe_set_data(struct rs_wqe_data *data, uint32_t bytes,
                                   uint32_t lkey, uint64_t address)
{
    *data = (struct rs_wqe_data){
        .bytes = htobe32(bytes),
        .lkey = htobe32(lkey),
        .address = htobe64(address),
    };
}

static inline void rs_wqe_set_atomic(struct rs_wqe_atomic *atomic,
                                     uint64_t add)
{
    *atomic = (struct rs_wqe_atomic){.add = htobe64(add)};
}

/** The header of `bytes` inline bytes, which follow it at once. */
static inline uint32_t rs_wqe_inline_header(uint32_t bytes)
{
    return htobe32(bytes | RS_WQE_INLINE);
}

/** Segments that `bytes` inline bytes take, with their header. */
static inline uint32_t rs_wqe_inline_segments(uint32_t bytes)
{
    return (bytes + 4 + RS_WQE_SEGMENT - 1) / RS_WQE_SEGMENT;
}

static inline uint32_t rs_wqe_blocks(uint32_t segments)
{
    return (segments + RS_WQE_SEGMENTS_PER_BLOCK - 1) /
           RS_WQE_SEGMENTS_PER_BLOCK;
}

#endif
