/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * STORES: how a sender writes what the receiver has read before and will read next: the
 * slots, and memory into which it packs.
 *
 * The lines are in the receiver's cache then. Cores that share one take them from each
 * other fast. Between others an ordinary store to such a line waits for it, one after
 * the other; a non-temporal one does not, and the receiver reads the line out of memory,
 * which takes about as long as out of the sender's cache. Which is faster depends on the
 * two cores, so it is tried out (trial.h).
 */
#ifndef RS_COMMON_STORES_H
#define RS_COMMON_STORES_H

#include <stdint.h>

#include "engines/common/trial.h"

/* Fewer bytes are always written by ordinary stores: measured, it takes as long between
 * far cores at 2 KiB, and less than half as long between near ones at 4 KiB. */
#define RS_STORES_LEAST UINT64_C(4096)

/** How so many bytes of an epoch that are written there may be (RSCHED_SLOT_STORES).
 * @return a set of ways of a trial, 0 and RS_TRIAL_NONTEMPORAL or one of them */
unsigned rs_stores_ways(uint64_t bytes);

/** The same where they are what is left beside one copy. */
static inline unsigned rs_stores_ways_once(uint64_t bytes)
{
    return rs_stores_ways(bytes) << RS_TRIAL_ONCE;
}

/** The way of a set that is taken before anything is known. */
static inline unsigned rs_stores_first(unsigned ways)
{
    return (unsigned)__builtin_ctz(ways);
}

#endif
