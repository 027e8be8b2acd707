/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/sources.h"

#include "librsched/base/clock.h"

/* Of an adapter of 100 Gbit/s and more beside a core that copies 10 GB/s: an
 * entry is read from the ring and fetched in some 30 ns, a write is made in
 * 100 ns, the end of a put is noticed 0.8 us later. Typical orders of
 * magnitude, not measured; bench/verbs/probe measures a machine's. */
const struct rs_sources rs_sources_usual = {
    .gather_message = 800000,
    .gather_block = 30000,
    .scatter_block = 100000,
    .pack_block = 5000,
    .pack_rate = UINT64_C(10000000000),
};

typedef unsigned __int128 wide;

/* At most the largest; a product of two is below it. */
static wide line(wide message, uint64_t block, uint64_t blocks)
{
    wide sum;

    return __builtin_add_overflow(message, (wide)block * blocks, &sum)
               ? ~(wide)0
               : sum;
}

static wide copy_of(const struct rs_sources *s, uint64_t bytes, uint64_t blocks)
{
    return line((wide)bytes * RS_PS_PER_S / s->pack_rate, s->pack_block,
                blocks);
}

bool rs_sources_gather(const struct rs_sources *sources, uint64_t bytes,
                       uint64_t blocks)
{
    return line(sources->gather_message, sources->gather_block, blocks) <
           copy_of(sources, bytes, blocks);
}

bool rs_sources_scatter(const struct rs_sources *sources, uint64_t bytes,
                        uint64_t blocks)
{
    return line(0, sources->scatter_block, blocks) <
           copy_of(sources, bytes, blocks);
}

/* What a copy costs grows with the bytes, and the other side not at all. */
static uint64_t find_first(bool (*is)(const struct rs_sources *, uint64_t, uint64_t),
                           const struct rs_sources *sources, uint64_t blocks)
{
    uint64_t low = 1, high = UINT64_C(1) << 30;

    if (!is(sources, high, blocks))
        return UINT64_MAX;
    while (low < high) {
        uint64_t middle = (low + high) / 2;

        if (is(sources, middle, blocks))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint64_t rs_sources_gather_from(const struct rs_sources *sources, uint64_t blocks)
{
    return find_first(rs_sources_gather, sources, blocks);
}

uint64_t rs_sources_scatter_from(const struct rs_sources *sources, uint64_t blocks)
{
    return find_first(rs_sources_scatter, sources, blocks);
}
