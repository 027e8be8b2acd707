/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * PIECE: blocks of memory of one length, at one distance.
 */
#ifndef RSCHED_PIECE_H
#define RSCHED_PIECE_H

#include <stdint.h>

/** Blocks of user memory: block i is the `bytes` bytes at address + i*stride.
 * A struct rsched_run with an address. */
struct rsched_piece {
    char *address;
    uint64_t bytes;
    uint64_t count;
    int64_t stride;
};

#endif
