/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between the program's memory, which may be strided, and a slot or
 * another packed buffer. */
#include "mpi/message.h"

/* Halo columns are mostly single numbers: the compiler makes moves of these
 * sizes, where a call of memcpy would cost more than the copy. */
RS_INLINE void copy_blocks(char *to, int64_t to_stride, const char *from,
                           int64_t from_stride, uint64_t bytes, uint64_t count)
{
    for (; count > 0; count--, to += to_stride, from += from_stride)
        memcpy(to, from, bytes);
}

static void move_blocks(char *to, int64_t to_stride, const char *from,
                        int64_t from_stride, uint64_t bytes, uint64_t count)
{
    switch (bytes) {
    case 8:
        copy_blocks(to, to_stride, from, from_stride, 8, count);
        break;
    case 4:
        copy_blocks(to, to_stride, from, from_stride, 4, count);
        break;
    case 16:
        copy_blocks(to, to_stride, from, from_stride, 16, count);
        break;
    default:
        copy_blocks(to, to_stride, from, from_stride, bytes, count);
        break;
    }
}

static char *run_address(const struct rs_message *message,
                         const struct rsched_run *run)
{
    /* As an integer: MPI_BOTTOM is a null pointer that is counted from. */
    return (char *)((uintptr_t)message->buffer + (uintptr_t)run->offset);
}

void rs_message_pieces(const struct rs_message *message,
                       struct rsched_piece *pieces)
{
    const struct rs_flat *flat = message->layout;

    for (size_t i = 0; i < flat->num_runs; i++) {
        const struct rsched_run *run = &flat->runs[i];

        pieces[i] = (struct rsched_piece){run_address(message, run), run->bytes,
                                          run->count, run->stride};
    }
}

void rs_message_pack(const struct rs_message *message, char *to)
{
    const struct rs_flat *flat = message->layout;

    if (flat == NULL) {
        memcpy(to, message->buffer, message->bytes);
        return;
    }
    for (size_t i = 0; i < flat->num_runs; i++) {
        const struct rsched_run *run = &flat->runs[i];

        move_blocks(to, (int64_t)run->bytes, run_address(message, run),
                    run->stride, run->bytes, run->count);
        to += run->bytes * run->count;
    }
}

void rs_message_unpack(const struct rs_message *message, const char *from,
                       uint64_t bytes)
{
    const struct rs_flat *flat = message->layout;

    if (flat == NULL) {
        memcpy(message->buffer, from, bytes);
        return;
    }
    for (const struct rsched_run *run = flat->runs; bytes > 0; run++) {
        uint64_t blocks = bytes / run->bytes;
        char *to = run_address(message, run);

        if (blocks > run->count)
            blocks = run->count;
        move_blocks(to, run->stride, from, (int64_t)run->bytes, run->bytes,
                    blocks);
        from += blocks * run->bytes;
        bytes -= blocks * run->bytes;
        if (blocks == run->count)
            continue;
        /* A shorter message ends within a block. */
        memcpy(to + (int64_t)blocks * run->stride, from, bytes);
        return;
    }
}
