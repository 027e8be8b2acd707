/* SPDX-License-Identifier: BSD-3-Clause */
/* Notes between processes, and those of them that are kept: offers of lanes that
 * this process has no use for yet (offers.c). */
#ifndef RS_MPI_NOTES_H
#define RS_MPI_NOTES_H

#include "mpi/persistent.h"

enum rs_note_kind {
    RS_NOTE_OFFER = 1,
    RS_NOTE_ANSWER = 2,
    RS_NOTE_GREETING = 3,
    RS_NOTE_QUESTION = 4,
    RS_NOTE_TAKEN = 5,
    RS_NOTE_UNOPENED = 6, /* an answer, sent back */
};

struct rs_note {
    uint32_t kind;
    int32_t tag;
    uint64_t id;    /* the communicator's name */
    uint64_t bytes; /* of the longest message */
    uint64_t taken; /* answer, taken: so many offers more have been read */
    int32_t pid;
    int32_t fd;     /* answer: of the memory */
    uint64_t nonce; /* answer: in it; offer: at `at` */
    uint64_t socket; /* unopened: the sender's nonce there; answer: it lies in that one's
                        queue; 0: it does not */
    uint64_t at;
    uint32_t index;
    uint32_t pulls; /* answer: the receiver can read our memory */
    struct rsched_pull_reader reader; /* answer: then, who that is */
    struct rsched_pull_memory memory; /* offer: where it finds it */
    struct rsched_pull_notice notice; /* question: GPU memory of ours */
};

/** One on its way, or that has come. */
struct rs_letter {
    struct rs_letter *next;
    MPI_Request request;
    int peer;
    struct rs_note note;
};

/** Keep an offer, in the place of an earlier one of the same lane. Of very many
 * old ones are dropped: their senders offer again. */
void rs_offer_keep(struct rs_letter *letter);
/** The one of a lane, which is the caller's then, or NULL. */
struct rs_letter *rs_offer_take(const struct rs_lane *lane);
void rs_offers_fini(void);

#endif
