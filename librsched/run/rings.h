/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RINGS: which neighbors of two exchanges their kernels reach by rings, agreed on
 * with each of them (device.c opens).
 *
 * Two rounds of out-of-band messages with each neighbor, in the manner of agree.c:
 *
 *   rings   my end of the ring, or why I have none
 *   joined  whether I have joined it with yours
 *
 * There is a ring if both have joined theirs. What goes wrong with a ring is told
 * as its reason; what goes wrong with the opening, as a failure, and fails the
 * neighbors' too.
 */
#ifndef RS_RUN_RINGS_H
#define RS_RUN_RINGS_H

#include "librsched/run/talk.h"

struct rs_neighbor {
    int process;
    const struct rsched_engine_ops *ops; /* of its ring */
    struct rsched_ring *ring;            /* NULL: there is none */
    char reason[RS_TALK_REASON_BYTES];   /* why */
    char *gone; /* why nothing more comes by it; NULL: it may. An opening's */
};

struct rs_neighbors {
    struct rs_neighbor *of; /* what moves within the process is one too */
    uint32_t number;
};

/** All processes that two exchanges have edges with, without rings.
 * @return 0, RSCHED_ENOMEM */
int rs_neighbors_find(struct rs_neighbors *n,
                      struct rsched_exchange *const sets[2],
                      const char *reason);
/** Without rings, which have been destroyed. */
void rs_neighbors_fini(struct rs_neighbors *n);
const struct rs_neighbor *rs_neighbors_at(const struct rs_neighbors *n,
                                          int process);

/* The talks with all neighbors. */
struct rs_ring_talks {
    struct rs_creation creation;
    struct rsched_exchange *const *sets;
    struct rs_neighbors *neighbors;
    const struct rsched_message *words;
};

/** Have them. @param words NULL: rings for the epochs of `sets`; or for words, that
 * neighbors may put to this memory of the process (struct rsched_ring_spec)
 * @return 0, RSCHED_ENOMEM: the neighbors will wait in vain */
int rs_ring_talks_init(struct rs_ring_talks *talks, struct rs_neighbors *n,
                       struct rsched_exchange *const sets[2],
                       const struct rsched_message *words);
void rs_ring_talks_fini(struct rs_ring_talks *talks);

/** The first round: make rings for kernels of a GPU (negative: of none) and join
 * them, as far as that can be.
 * @param status what has failed in this process: there will be no opening
 * @return 0, `status`, or what went wrong */
int rs_ring_talks_begin(struct rs_ring_talks *talks, int gpu, int status);

/** The second round. After it both ends have the ring, or none has.
 * @param status as above, since the first one
 * @return as above: rings may be left, and are the caller's in any case */
int rs_ring_talks_end(struct rs_ring_talks *talks, int status);

#endif
