/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LINK: one rail of a connection, a queue pair that all lanes over it share.
 *
 * Threads: its lanes may be used by several threads at once, so it has a lock,
 * which is held for the time of a post or a poll.
 */
#ifndef RS_RDMA_LINK_H
#define RS_RDMA_LINK_H

#include <assert.h>
#include <stdatomic.h>

#include "engines/rdma/memory.h"

enum { RS_LINK_WHY_BYTES = 192 };

struct rs_rdma_lane;

/* Who counts an immediate, whose lower half is the index of the listener and
 * whose upper half is its turn: an immediate that comes late, for a lane that
 * has been destroyed, is not taken for one of the lane after it. */
struct rs_rdma_listener {
    atomic_uint_fast64_t *count; /* NULL: nobody */
    uint16_t turn;
};

struct rs_rdma_link {
    struct rs_rdma_memory *memory;
    struct rs_rdma_queue *queue; /* NULL: it could not be made */
    int peer;
    const char *engine; /* its name */
    uint32_t number;    /* of the queue pair */
    atomic_flag lock;
    uint64_t posted, completed; /* lists */
    bool was_down; /* so was the port when it could not be connected */
    atomic_bool broken;
    atomic_bool doubtful; /* it may break: see rs_rdma_link_doubt() */
    atomic_bool in_use; /* the peer can answer: it has told us of a lane */
    bool given_up;       /* it is broken since its peer had stopped */
    char why[RS_LINK_WHY_BYTES]; /* broken */
    /* When `completed` was seen to have grown the last time, and what it was then. */
    uint64_t moved_ps, moved;
    struct rs_rdma_listener *listeners; /* RS_NOTIFY_IMM */
    uint32_t num_listeners;
    /* A word at the peer that is written to see whether anybody is there. */
    struct rs_rdma_block *probed;
    struct rs_rdma_list *probe;
    uint64_t next_probe_ps;
    /* Destroyed lanes whose lists are still under way; the engine's lock. */
    struct rs_rdma_lane *zombies;
    /* Lanes that are to say that nothing follows, for which the queue had no
     * room yet; this lock. They post nothing else. */
    struct rs_rdma_lane *owing;
};

/* What the peer's link must know of this one. */
struct rs_rdma_link_offer {
    struct rs_rdma_endpoint endpoint;
    uint64_t probed; /* address */
    uint32_t rkey;
    uint32_t reserved;
};

int rs_rdma_link_init(struct rs_rdma_link *link, struct rs_rdma_memory *memory,
                      int peer, const char *engine,
                      struct rs_rdma_link_offer *offer);
/** One that could not be made, for the reason of the last error; it offers
 * nothing and is broken from the beginning. */
void rs_rdma_link_init_broken(struct rs_rdma_link *link,
                              struct rs_rdma_memory *memory, int peer,
                              const char *engine,
                              struct rs_rdma_link_offer *offer);
/** @return 0 or an error, of which the link is broken; what has_come_up() needs is noted */
int rs_rdma_link_connect(struct rs_rdma_link *link,
                         const unsigned char *address,
                         const struct rs_rdma_link_offer *offer);
void rs_rdma_link_fini(struct rs_rdma_link *link);

void rs_rdma_link_lock(struct rs_rdma_link *link);
void rs_rdma_link_unlock(struct rs_rdma_link *link);

/** Take all completions that are there. The lock is held. */
void rs_rdma_link_poll(struct rs_rdma_link *link);

/** Post a list. `count` grows by one when it is complete or the link is broken.
 * The lock is held. @return false: there is no room, or the link is broken */
bool rs_rdma_link_post(struct rs_rdma_link *link, struct rs_rdma_list *list,
                       uint64_t epoch, atomic_uint_fast64_t *count);
/** Begin with what was posted. The lock is held. */
void rs_rdma_link_ring(struct rs_rdma_link *link);

/** Add one to `count` for each immediate of this value from now on. Takes the
 * lock. @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT */
int rs_rdma_link_listen(struct rs_rdma_link *link, atomic_uint_fast64_t *count,
                        uint32_t *imm);
/** No longer. Takes the lock. */
void rs_rdma_link_unlisten(struct rs_rdma_link *link, uint32_t imm);
/** Take all immediates that are there. The lock is held. */
void rs_rdma_link_take(struct rs_rdma_link *link);

/** Whether nothing can move over it any more. Thread-safe. */
bool rs_rdma_link_is_broken(const struct rs_rdma_link *link);

/** The peer may be writing what it may not any more: if it is, the device breaks
 * the link, and says so only to those who post. Thread-safe. */
void rs_rdma_link_doubt(struct rs_rdma_link *link);

/** Whether it moves what is posted, and will, as far as one can know. Thread-safe.
 */
bool rs_rdma_link_is_whole(const struct rs_rdma_link *link);

/** Whether its port has come up since it could not be connected. */
bool rs_rdma_link_has_come_up(const struct rs_rdma_link *link);

/** Look for completions; where nothing is under way, send something that has
 * to be answered. @return 0, or RSCHED_EPEER with the text why it is broken */
int rs_rdma_link_check(struct rs_rdma_link *link);

/** Note whether anything has become complete. The lock is held. */
void rs_rdma_link_note(struct rs_rdma_link *link);
/** Look as above, note it, and sleep for a moment, for who destroys what has to get to
 * the peer first. If `by_immediates` the peer's process has a part in that, as its device
 * takes only so many; so if nothing has become complete for RSCHED_DESTROY_TIMEOUT the
 * link is broken, with a warning, and the device is through with it.
 * @param since_ps the time does not begin before @return false: the link is broken */
bool rs_rdma_link_wait(struct rs_rdma_link *link, uint64_t since_ps,
                       bool by_immediates);

/** The text of a broken link. @return RSCHED_EPEER */
int rs_rdma_link_failed(const struct rs_rdma_link *link);

/** A list of one write of its epoch to a word of the peer's. */
int rs_rdma_link_word(struct rs_rdma_link *link, uint64_t remote, uint32_t rkey,
                      struct rs_rdma_list **list);

#endif
