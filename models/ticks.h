/* SPDX-License-Identifier: BSD-3-Clause */
/* The units in which both simulators compute; see models/fluid.h. */
#ifndef RS_MODELS_TICKS_H
#define RS_MODELS_TICKS_H

#include <stdint.h>

typedef unsigned __int128 rs_wide;

enum { RS_TICK_BITS = 10, RS_RATE_BITS = 16 };

#define RS_NEVER UINT64_MAX
#define RS_TICKS_MOST (UINT64_C(7200000000000000) << RS_TICK_BITS)
/* One byte in the units of what remains: rate units times ticks. */
#define RS_BYTE ((rs_wide)1000000000000 << (RS_RATE_BITS + RS_TICK_BITS))
/* Above this the bytes of a put would not fit; no rate moves them in time. */
#define RS_BYTES_MOST (UINT64_C(1) << 60)

static inline uint64_t rs_to_ps(uint64_t ticks)
{
    return (ticks + (1 << RS_TICK_BITS) - 1) >> RS_TICK_BITS;
}

/** The end of `left` units at `rate` from now, or RS_NEVER. */
static inline uint64_t rs_end_of(uint64_t now, rs_wide left, uint64_t rate)
{
    rs_wide ticks;

    if (rate == 0)
        return RS_NEVER;
    ticks = (left + rate - 1) / rate;
    return ticks > RS_TICKS_MOST ? RS_NEVER : now + (uint64_t)ticks;
}

#endif
