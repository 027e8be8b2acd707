/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/softnic/decode.h"

/* Offsets in a WQE. */
enum {
    OPMOD = 0,
    INDEX = 1,
    OPCODE = 3,
    QPN = 4,
    SEGMENTS = 7,
    SIGNATURE = 8,
    STREAM = 9,
    FLAGS = 11,
    IMM = 12,
    REMOTE = 16,
    RKEY = 24,
    REMOTE_RESERVED = 28,
    PAYLOAD = 32, /* of a write */
    ADD = 32,
    COMPARE = 40,
    RESULT = 48,
};

enum {
    SEGMENT = 16,
    INLINE_HEADER = 4,
    FLAG_SIGNALLED = 8,
    FLAG_SOLICITED = 2,
    MAX_MESSAGE = 1 << 30,
};

#define INLINE_BIT UINT32_C(0x80000000)

static uint64_t big_endian(const unsigned char *from, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

static bool is_zero(const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (from[i] != 0)
            return false;
    }
    return true;
}

static const char *decode_control(const unsigned char *w, uint32_t blocks,
                                  uint16_t index, uint32_t qpn,
                                  struct softnic_wqe *wqe)
{
    uint32_t segments = w[SEGMENTS];

    if (w[OPMOD] != 0)
        return "opcode modifier is not 0";
    if (big_endian(w + INDEX, 2) != index)
        return "index is not that of its place";
    if (big_endian(w + QPN, 3) != qpn)
        return "another queue pair's number";
    if (segments > 63 || segments == 0)
        return "segments are not 1 to 63";
    wqe->blocks = (segments + 3) / 4;
    if (wqe->blocks > blocks)
        return "reaches beyond the doorbell record";
    if (w[SIGNATURE] != 0)
        return "a signature";
    if (!is_zero(w + STREAM, 2))
        return "stream is not 0";
    wqe->opcode = (enum softnic_opcode)w[OPCODE];
    wqe->signalled = (w[FLAGS] & FLAG_SIGNALLED) != 0;
    wqe->solicited = (w[FLAGS] & FLAG_SOLICITED) != 0;
    if ((w[FLAGS] & ~(FLAG_SIGNALLED | FLAG_SOLICITED)) != 0)
        return "unknown flags";
    if (wqe->solicited && wqe->opcode != SOFTNIC_WRITE_IMM)
        return "solicited, but makes no completion at the peer";
    wqe->imm = 0;
    for (int i = 0; i < 4; i++)
        ((unsigned char *)&wqe->imm)[i] = w[IMM + i];
    if (wqe->imm != 0 && wqe->opcode != SOFTNIC_WRITE_IMM)
        return "an immediate that the opcode has not";
    return NULL;
}

static const char *decode_remote(const unsigned char *w,
                                 struct softnic_wqe *wqe)
{
    wqe->remote = big_endian(w + REMOTE, 8);
    wqe->rkey = (uint32_t)big_endian(w + RKEY, 4);
    if (!is_zero(w + REMOTE_RESERVED, 4))
        return "reserved part of the remote address is not 0";
    return NULL;
}

static const char *decode_inline(const unsigned char *w, uint32_t segments,
                                 struct softnic_wqe *wqe)
{
    uint32_t bytes = (uint32_t)big_endian(w + PAYLOAD, 4) & ~INLINE_BIT;
    uint32_t end = PAYLOAD + INLINE_HEADER + bytes;

    if (bytes == 0)
        return "inline data of no bytes";
    if (bytes > SOFTNIC_MAX_WQE ||
        (end + SEGMENT - 1) / SEGMENT != segments)
        return "length of inline data does not fit the number of segments";
    if (!is_zero(w + end, segments * SEGMENT - end))
        return "bytes behind inline data are not 0";
    wqe->inline_at = PAYLOAD + INLINE_HEADER;
    wqe->bytes = bytes;
    return NULL;
}

static const char *decode_piece(const unsigned char *from,
                                struct softnic_wqe *wqe)
{
    struct softnic_piece *p = &wqe->pieces[wqe->num_pieces++];

    p->bytes = (uint32_t)big_endian(from, 4);
    p->lkey = (uint32_t)big_endian(from + 4, 4);
    p->address = big_endian(from + 8, 8);
    if ((p->bytes & INLINE_BIT) != 0)
        return "inline data behind a data segment";
    if (p->bytes == 0)
        return "a data segment of length 0";
    wqe->bytes += p->bytes;
    return wqe->bytes > MAX_MESSAGE ? "message is too long" : NULL;
}

static const char *decode_write(const unsigned char *w, uint32_t segments,
                                struct softnic_wqe *wqe)
{
    const char *wrong = decode_remote(w, wqe);

    if (wrong != NULL)
        return wrong;
    if (segments < 2)
        return "no remote address";
    if (segments == 2)
        return wqe->opcode == SOFTNIC_WRITE ? "a write of nothing" : NULL;
    if ((w[PAYLOAD] & 0x80) != 0)
        return decode_inline(w, segments, wqe);
    for (uint32_t i = 2; i < segments; i++) {
        wrong = decode_piece(w + (size_t)i * SEGMENT, wqe);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

static const char *decode_fetch_add(const unsigned char *w, uint32_t segments,
                                    struct softnic_wqe *wqe)
{
    const char *wrong = decode_remote(w, wqe);

    if (wrong != NULL)
        return wrong;
    if (segments != 4)
        return "an atomic operation that has not 4 segments";
    wqe->add = big_endian(w + ADD, 8);
    if (!is_zero(w + COMPARE, 8))
        return "compare value of a fetch-and-add is not 0";
    wrong = decode_piece(w + RESULT, wqe);
    if (wrong == NULL && wqe->bytes != 8)
        wrong = "result of an atomic operation has not 8 bytes";
    return wrong;
}

static const char *decode_body(const unsigned char *w, uint32_t segments,
                               struct softnic_wqe *wqe)
{
    switch (wqe->opcode) {
    case SOFTNIC_NOP:
        return is_zero(w + SEGMENT, (segments - 1) * SEGMENT)
                   ? NULL
                   : "body of a NOP is not 0";
    case SOFTNIC_WRITE:
    case SOFTNIC_WRITE_IMM:
        return decode_write(w, segments, wqe);
    case SOFTNIC_FETCH_ADD:
        return decode_fetch_add(w, segments, wqe);
    }
    return "unknown opcode";
}

const char *softnic_decode(const unsigned char *bytes, uint32_t blocks,
                           uint16_t index, uint32_t qpn,
                           struct softnic_wqe *wqe)
{
    const char *wrong;

    wqe->bytes = 0;
    wqe->inline_at = 0;
    wqe->num_pieces = 0;
    wrong = decode_control(bytes, blocks, index, qpn, wqe);
    if (wrong == NULL)
        wrong = decode_body(bytes, bytes[SEGMENTS], wqe);
    return wrong;
}

bool softnic_has_zero_end(const unsigned char *bytes,
                          const struct softnic_wqe *wqe)
{
    uint32_t end = bytes[SEGMENTS] * SEGMENT;

    return is_zero(bytes + end, wqe->blocks * SOFTNIC_BLOCK - end);
}
