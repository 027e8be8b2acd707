/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What it costs to hand strided memory to an RDMA device, and which way is
 * cheaper. A put of B bytes in n blocks takes, beside what a put of B contiguous
 * bytes takes,
 *
 *   gathered   gather_message + n gather_block: the device fetches each block as
 *              an entry of a scatter/gather list, and the buffer is the user's
 *              again once it says so
 *   packed     n pack_block + B / pack_rate: the processor copies, and the
 *              buffer is free at once
 *   scattered  n scatter_block: each block of a receive buffer is the target of
 *              a write of its own; the receiver would unpack B bytes otherwise
 *
 * Times are in picoseconds, the rate in bytes/s.
 */
#ifndef RS_BASE_SOURCES_H
#define RS_BASE_SOURCES_H

#include <stdbool.h>
#include <stdint.h>

struct rs_sources {
    uint64_t gather_message, gather_block;
    uint64_t scatter_block;
    uint64_t pack_block, pack_rate;
};

/** What holds where no machine file says otherwise. */
extern const struct rs_sources rs_sources_usual;

/** Whether a message to be sent should be gathered, not packed.
 * @param blocks at least 1 */
bool rs_sources_gather(const struct rs_sources *sources, uint64_t bytes,
                       uint64_t blocks);

/** Whether a message should be written into the blocks of the receive buffer,
 * and not be unpacked by the receiver. */
bool rs_sources_scatter(const struct rs_sources *sources, uint64_t bytes,
                        uint64_t blocks);

/** The shortest message of so many blocks, at least 1, that is gathered; of 1 GiB at
 * most, or UINT64_MAX: none is. Likewise one that is written into the blocks. */
uint64_t rs_sources_gather_from(const struct rs_sources *sources, uint64_t blocks);
uint64_t rs_sources_scatter_from(const struct rs_sources *sources, uint64_t blocks);

#endif
