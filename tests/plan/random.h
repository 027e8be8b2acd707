/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers that are the same everywhere (xorshift64*). */
#ifndef RS_TESTS_RANDOM_H
#define RS_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/** From 0 to below `limit`. */
static inline uint64_t random_below(uint64_t *state, uint64_t limit)
{
    return (random_next(state) >> 11) % limit;
}

#endif
