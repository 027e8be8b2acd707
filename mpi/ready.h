/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a start waits for the other side of its pair to be ready (docs/persistent.md,
 * *Opening*). How long that is worth is tried out: each wait in vain makes the next one
 * longer. Where the sides always come at different times all are in vain, and who comes
 * last is waited for by the other side: so of all time that passes they take a part at
 * most. */
#ifndef RS_MPI_READY_H
#define RS_MPI_READY_H

#include <stdint.h>

enum {
    RS_READY_NS = 20000,     /* the first one */
    RS_READY_DOUBLINGS = 4,  /* at most */
    RS_READY_SHARE = 64,     /* of the time they may take one part in so many */
};

/* Zero it when the pair has opened. */
struct rs_ready {
    unsigned tries;
    uint64_t rests_until; /* ns */
};

/** @return how long to wait, in ns, if the time is `now`; 0: not at all */
static inline uint64_t rs_ready_limit(const struct rs_ready *r, uint64_t now)
{
    unsigned doublings =
        r->tries < RS_READY_DOUBLINGS ? r->tries : RS_READY_DOUBLINGS;

    return now < r->rests_until ? 0 : (uint64_t)RS_READY_NS << doublings;
}

/** A wait was in vain. */
static inline void rs_ready_failed(struct rs_ready *r, uint64_t begin,
                                   uint64_t end)
{
    r->tries++;
    r->rests_until = end + RS_READY_SHARE * (end - begin);
}

#endif
