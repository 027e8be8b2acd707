/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PACK: what the host tells the kernel that copies blocks, in C and CUDA.
 *
 * A table is made when a message is loaded and lies in GPU memory. Its entries
 * are blocks at constant distances, in words of the widest power of two that
 * all their addresses are multiples of. A launch has jobs: each is a part of a
 * table, with what has to be added to its addresses (a slot's, or nothing).
 * One launch, then, does the copies of any number of messages and directions.
 *
 * Work is dealt out in tiles of RS_PACK_TILE words; the last one of an entry
 * may be smaller. Word numbers of an entry are below 2^31; everything else has
 * 64 bits.
 */
#ifndef RS_CUDA_PACK_H
#define RS_CUDA_PACK_H

#include <stdint.h>

enum {
    RS_PACK_THREADS = 256, /* of a block */
    RS_PACK_WORDS = 4,     /* that each of them has under way at once */
    RS_PACK_TILE = RS_PACK_THREADS * RS_PACK_WORDS,
    RS_PACK_JOBS = 80,        /* most of a launch */
    RS_PACK_PARAMETERS = 4096 /* bytes that a kernel may be given */
};

/* Word w of block b: from from + b*from_stride + (w << width) to
 * to + b*to_stride + (w << width). */
struct rs_pack_entry {
    uint64_t from, to;
    int64_t from_stride, to_stride;
    uint64_t tiles_before; /* of the table */
    uint64_t magic;        /* n / words == n * magic >> shift, for n < 2^31 */
    uint32_t words;        /* of a block, at least 1 */
    uint32_t total;        /* of all blocks, below 2^31 */
    uint32_t width;        /* log2 of a word's bytes: 0 to 4 */
    uint32_t shift;
};

struct rs_pack_job {
    uint64_t entries;        /* where the table lies */
    uint64_t from, to;       /* added to all addresses */
    uint64_t first_tile;     /* of the table */
    uint64_t tiles_before;   /* of the launch */
    uint32_t first, end;     /* entries, at least one */
};

struct rs_pack_launch {
    uint64_t tiles; /* of all jobs */
    uint64_t num_jobs;
    struct rs_pack_job jobs[RS_PACK_JOBS];
};

#endif
