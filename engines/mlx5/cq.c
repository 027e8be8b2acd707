/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/cq.h"

#include <endian.h>
#include <string.h>

enum {
    CQE_BYTES = 64,
    AT_IMM = 36,
    AT_VENDOR_ERROR = 54,
    AT_SYNDROME = 55,
    AT_END = 56, /* queue pair, index, owner */
};

static uint32_t load32(const unsigned char *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return be32toh(value);
}

void rs_cq_init(struct rs_cq *cq, const struct rs_mlx5_memory *memory)
{
    *cq = (struct rs_cq){
        /* Of a longer entry the last 64 bytes are the CQE. */
        .ring = (unsigned char *)memory->cq_ring + memory->cqe_bytes -
                CQE_BYTES,
        .entries = memory->cq_entries,
        .stride = memory->cqe_bytes,
        .dbrec = memory->cq_dbrec,
    };
}

static bool is_ours(const struct rs_cq *cq, uint8_t owner)
{
    bool odd_lap = (cq->taken & cq->entries) != 0;

    return owner >> 4 != RS_CQE_INVALID && (owner & 1) == odd_lap;
}

static void decode(struct rs_cqe *cqe, const unsigned char *from, uint64_t end)
{
    *cqe = (struct rs_cqe){
        .kind = (uint8_t)end >> 4,
        .syndrome = from[AT_SYNDROME],
        .vendor_error = from[AT_VENDOR_ERROR],
        .index = (uint16_t)(end >> 16),
        .qpn = (uint32_t)(end >> 32) & 0xffffff,
        .imm = load32(from + AT_IMM),
    };
}

bool rs_cq_poll(struct rs_cq *cq, struct rs_cqe *cqe)
{
    unsigned char *at =
        cq->ring + (size_t)(cq->taken & (cq->entries - 1)) * cq->stride;
    /* Acquire: the device writes the owner, the last byte, not before the rest. */
    uint64_t end = be64toh(atomic_load_explicit(
        (_Atomic uint64_t *)(void *)(at + AT_END), memory_order_acquire));

    if (!is_ours(cq, (uint8_t)end))
        return false;
    rs_mlx5_from_device();
    decode(cqe, at, end);
    cq->taken++;
    /* Release: the CQE has been read before the device may write it again. */
    atomic_store_explicit(cq->dbrec, htobe32(cq->taken & 0xffffff),
                          memory_order_release);
    return true;
}

const char *rs_cqe_syndrome_text(uint8_t syndrome)
{
    switch (syndrome) {
    case 0x01: return "local length error";
    case 0x02: return "local queue pair operation error";
    case 0x04: return "local protection error";
    case RS_SYNDROME_FLUSHED: return "flushed";
    case 0x06: return "memory window bind error";
    case 0x10: return "bad response";
    case 0x11: return "local access error";
    case 0x12: return "remote invalid request";
    case 0x13: return "remote access error";
    case 0x14: return "remote operation error";
    case 0x15: return "transport retries exceeded";
    case 0x16: return "receiver-not-ready retries exceeded";
    case 0x22: return "remote aborted";
    default: return "unknown syndrome";
    }
}
