/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * BLOCKS: a table for the kernel (pack.h), which lies in GPU memory once it has
 * been uploaded. Zero it to initialise.
 */
#ifndef RS_CUDA_BLOCKS_H
#define RS_CUDA_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "engines/cuda/pack.h"
#include "engines/cuda/stream.h"

/* Room at least doubles. */
enum { RS_BLOCKS_RETIRED = 64 };

struct rs_blocks {
    struct rs_pack_entry *entries;
    size_t num, room;
    uint64_t tiles;
    CUdeviceptr device; /* 0: there is none */
    size_t device_bytes;
    /* What has become too small: to free it the driver may wait for streams,
     * and one of them for the epoch that a table is for. */
    CUdeviceptr retired[RS_BLOCKS_RETIRED];
    unsigned num_retired;
};

/** Forget all entries; the memory is kept. */
void rs_blocks_clear(struct rs_blocks *b);

/** Whether `count` blocks of `bytes` can be entries. Where one block alone has
 * 2^31 words a copy engine is the better choice anyway. */
bool rs_blocks_fit(uint64_t bytes);

/** Append the copy of `count` blocks that fit, block i from from +
 * i*from_stride to to + i*to_stride. Either may be an offset: what jobs add to
 * it is a multiple of 16 then. @return 0, RSCHED_ENOMEM; RSCHED_ELIMIT: more
 * than 2^32 entries */
int rs_blocks_add(struct rs_blocks *b, uint64_t to, int64_t to_stride,
                  uint64_t from, int64_t from_stride, uint64_t bytes,
                  uint64_t count);

/** Have room in a GPU's memory for so many entries, so that the next upload of no more
 * does not call for it. The stream is entered. @return 0, or what the driver said */
int rs_blocks_reserve(struct rs_blocks *b, const struct rs_stream *stream,
                      size_t entries);

/** Bring the table to the GPU of a stream that is entered, and wait for that.
 * No kernel is using it. @return 0, or what the driver said */
int rs_blocks_upload(struct rs_blocks *b, struct rs_stream *stream);

/** Give the GPU memory back; of the same stream, which is not entered. The
 * driver may wait for streams. */
void rs_blocks_withdraw(struct rs_blocks *b, const struct rs_stream *stream);

/** It has been withdrawn. */
void rs_blocks_fini(struct rs_blocks *b);

#endif
