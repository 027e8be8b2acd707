/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/blocks.h"

#include <stdlib.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

enum { MOST_WIDTH = 4, MAGIC_BITS = 31 };

#define MOST_WORDS ((UINT64_C(1) << MAGIC_BITS) - 1)

void rs_blocks_clear(struct rs_blocks *b)
{
    b->num = 0;
    b->tiles = 0;
}

bool rs_blocks_fit(uint64_t bytes)
{
    return bytes > 0 && bytes <= MOST_WORDS;
}

/* The widest word that addresses, distances and block are multiples of. */
static uint32_t width_of(uint64_t all)
{
    uint32_t width = 0;

    while (width < MOST_WIDTH && (all >> width & 1) == 0)
        width++;
    return width;
}

/*
 * Division of n < 2^N by d as a multiplication, N = 31: with 2^(L-1) < d <= 2^L
 * and m = ceil(2^(N+L) / d) the error m d - 2^(N+L) is below d <= 2^L, and then
 * floor(n m / 2^(N+L)) = floor(n / d) for all n < 2^N (Granlund and Montgomery,
 * "Division by invariant integers using multiplication", theorem 4.2). m is at
 * most 2^(N+1), so n m is below 2^63.
 */
static void set_division(struct rs_pack_entry *e)
{
    uint32_t bits = 0;

    while ((UINT64_C(1) << bits) < e->words)
        bits++;
    e->shift = MAGIC_BITS + bits;
    e->magic = ((UINT64_C(1) << e->shift) + e->words - 1) / e->words;
}

static int append(struct rs_blocks *b, const struct rs_pack_entry *entry)
{
    struct rs_pack_entry *larger;

    if (b->num == UINT32_MAX)
        return rs_fail(RSCHED_ELIMIT, "more than 2^32 blocks of a message");
    larger = rs_array_grow(b->entries, &b->room, b->num + 1, sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table of blocks");
    b->entries = larger;
    b->entries[b->num] = *entry;
    b->entries[b->num++].tiles_before = b->tiles;
    b->tiles += (entry->total + RS_PACK_TILE - 1) / RS_PACK_TILE;
    return 0;
}

int rs_blocks_add(struct rs_blocks *b, uint64_t to, int64_t to_stride,
                  uint64_t from, int64_t from_stride, uint64_t bytes,
                  uint64_t count)
{
    /* The distances of one block do not matter. */
    uint64_t strides =
        count > 1 ? (uint64_t)to_stride | (uint64_t)from_stride : 0;
    uint32_t width = width_of(to | from | strides | bytes);
    struct rs_pack_entry e = {.from_stride = from_stride,
                              .to_stride = to_stride,
                              .words = (uint32_t)(bytes >> width),
                              .width = width};
    uint64_t most = MOST_WORDS / e.words;
    int error = 0;

    set_division(&e);
    for (uint64_t i = 0; i < count && error == 0; i += most) {
        uint64_t blocks = count - i < most ? count - i : most;

        e.from = from + i * (uint64_t)from_stride;
        e.to = to + i * (uint64_t)to_stride;
        e.total = (uint32_t)(blocks * e.words);
        error = append(b, &e);
    }
    return error;
}

static int make_room(struct rs_blocks *b, const struct rs_stream *s,
                     size_t bytes)
{
    CUdeviceptr larger;
    int error;

    if (bytes <= b->device_bytes)
        return 0;
    if (bytes < 2 * b->device_bytes)
        bytes = 2 * b->device_bytes;
    error = rs_cuda_error(s->driver, s->driver->cuMemAlloc(&larger, bytes),
                          "cuMemAlloc");
    if (error != 0)
        return error;
    if (b->device != 0)
        b->retired[b->num_retired++] = b->device;
    b->device = larger;
    b->device_bytes = bytes;
    return 0;
}

int rs_blocks_reserve(struct rs_blocks *b, const struct rs_stream *stream,
                      size_t entries)
{
    return make_room(b, stream, entries * sizeof(*b->entries));
}

int rs_blocks_upload(struct rs_blocks *b, struct rs_stream *stream)
{
    size_t bytes = b->num * sizeof(*b->entries);
    int error;

    if (bytes == 0)
        return 0;
    error = make_room(b, stream, bytes);
    if (error == 0)
        error = rs_stream_copy(stream, (char *)(uintptr_t)b->device,
                               (int64_t)bytes, (const char *)b->entries,
                               (int64_t)bytes, bytes, 1);
    return error == 0 ? rs_stream_wait(stream) : error;
}

void rs_blocks_withdraw(struct rs_blocks *b, const struct rs_stream *stream)
{
    if (b->device == 0)
        return;
    if (rs_stream_enter(stream) == 0) {
        stream->driver->cuMemFree(b->device);
        for (unsigned i = 0; i < b->num_retired; i++)
            stream->driver->cuMemFree(b->retired[i]);
        rs_stream_leave(stream);
    }
    b->num_retired = 0;
    b->device = 0;
    b->device_bytes = 0;
}

void rs_blocks_fini(struct rs_blocks *b)
{
    free(b->entries);
}
