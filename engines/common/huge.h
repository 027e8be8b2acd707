/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the blocks of a message are put into huge pages (librsched/base/huge.h):
 * in the start by which that would have saved what it takes. So it never takes
 * more than twice what it could save, however many starts there are.
 */
#ifndef RS_COMMON_HUGE_H
#define RS_COMMON_HUGE_H

#include <stdbool.h>
#include <stdint.h>

#include "engines/common/table.h"

/* Of a message. Zero it to initialise. */
struct rs_huge_pages {
    uint32_t in;    /* starts until it is looked at, or 0: never */
    uint32_t after; /* of so many starts in all, or 0 */
    struct rs_pieces parts; /* that were put into huge pages */
};

/** Begin to count starts anew, if RSCHED_HUGE says so; no part is known to be in
 * huge pages. */
void rs_huge_watch(struct rs_huge_pages *h);

/** In a start. @return whether rs_huge_consider() is due */
static inline bool rs_huge_is_due(struct rs_huge_pages *h)
{
    return h->in != 0 && --h->in == 0;
}

/**
 * Put the blocks of a message into huge pages if that has paid by now, and say in
 * h->parts which are; else set when it is due again, if ever. Blocks that follow
 * each other count as one; those of strided pieces, and memory that others map,
 * are left out.
 *
 * @param saves ps that a start would save if so many bytes were in huge pages
 * @return 0 or RSCHED_ENOMEM
 */
int rs_huge_consider(struct rs_huge_pages *h, const struct rsched_piece *pieces,
                     size_t num,
                     uint64_t (*saves)(const void *arg, uint64_t bytes),
                     const void *arg);

void rs_huge_fini(struct rs_huge_pages *h);

#endif
