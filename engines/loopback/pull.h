/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that are copied once: the receiver copies out of the sender's
 * memory.
 *
 * When an epoch starts, a sender whose message lies in memory that the receiver
 * can reach (librsched/base/shared.h) fills a slot with an announcement instead
 * of data. The announcement names a table of where the message lies, which
 * stays as it is as long as the message does. The receiver maps what it has not
 * yet mapped, and copies from layout to layout. Only then does it count the
 * slot as consumed, which tells the sender that it may write its buffers again.
 * What the receiver cannot reach follows the announcement through slots.
 *
 * Memory that cannot be mapped can be read with process_vm_readv(), which pins
 * the sender's pages in each epoch: worth while for much memory only. The
 * receiver says in its words whether the kernel lets it (`reads`). A sender whose
 * memory is read in many epochs puts it into huge pages (librsched/base/huge.h).
 *
 * A receiver that may have to pull is handed to the progress thread (`streams`), so
 * that the sender does not wait for one who computes. Short messages hardly pay for
 * that, so no receiver expects them to be announced, unless its sender has asked: it
 * does, by a mark in its slots, from the fourth start of a message on that lies in
 * mapped memory. A receiver who goes straight from its starts into its waits says in
 * its words that it is `prepared`, for as long as the lane lives; others would have
 * the sender wait until they come, for whom slots are better. Messages that change
 * from start to start are never asked for, and need no tables.
 *
 * Whether the kernel or slots are faster here is tried out now and then, where
 * nobody has measured the costs of the ways (RSCHED_TRIALS); and which stores into
 * slots are, everywhere (engines/common/stores.h).
 *
 * A long message is copied by both, if the receive buffers too can be mapped and
 * the sender waits: see struct rs_work in segment.h. A sender that has as much to
 * copy itself, as in most halos, comes when little is left, and what it copies
 * then lies in the wrong cache in the next epoch; so it is not asked to.
 *
 * A receiver that cannot map or read something says so (`unreachable` in its words)
 * and gets the whole message through slots, in this epoch and all later ones.
 */
#ifndef RS_LOOPBACK_PULL_H
#define RS_LOOPBACK_PULL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engines/common/copy.h"
#include "engines/common/huge.h"
#include "engines/common/iovecs.h"
#include "engines/common/maps.h"
#include "engines/common/prefetch.h"
#include "engines/common/table.h"
#include "engines/loopback/segment.h"
#include "librsched/base/ways.h"

struct lane;

/* Stands in a slot's own line. */
struct rs_announcement {
    uint64_t offset, bytes; /* of the table in the sender's memory */
    uint64_t version;       /* of the table: another one says other things */
    uint64_t rest;          /* chunks that follow through slots */
    uint64_t incoming;      /* bytes that the sender itself gets in the epoch */
};
static_assert(sizeof(struct rs_announcement) <= RS_SLOT_INLINE,
              "it fits into a slot's line");

/* A lane's part. */
struct rs_pull {
    bool possible;           /* tx: the loaded message is announced, unless a
                                trial says otherwise */
    bool worth_trials;       /* tx: that is to be tried out; */
    bool guess;              /* tx: by the costs it is announced */
    bool shares;             /* rx: the sender may help; it has a table of ours */
    bool sharing;            /* rx: it may be at it */
    uint64_t last;           /* rx: that it says when it is not any more: rs_pull_close() */
    bool refused;            /* tx: the receiver cannot reach it */
    struct rs_announcement announcement; /* rx: that the lists are made of */
    struct rs_announcement offer; /* rx: its table; tx: that was compiled */
    uint64_t announced;      /* tx: the announcement's sequence */
    uint64_t chunk;          /* bytes of a chunk of shared work; UINT64_MAX:
                                all of it, by the receiver */
    uint64_t helped;         /* tx: bytes of this epoch that it has copied */
    uint64_t helpless;       /* tx: the epoch that it cannot help with, see epoch_of() */
    uint32_t mapped;         /* tx: chunks from the back to whose pages it has
                                written */
    struct rs_pieces slots;  /* what goes through slots nevertheless */
    struct rs_copies rest;   /* compiled */
    struct rs_table_maker table;
    struct rs_place place;   /* the table's memory; bytes is 0 if there is none */
    uint64_t readable;       /* tx: bytes that the kernel reads */
    struct rs_huge_pages huge; /* tx */
    struct rs_pieces from;   /* what the sender's table says, as mapped here */
    struct rs_pieces to;     /* tx: what the receiver's says */
    struct rs_copies copies; /* straight from buffer to buffer */
    struct rs_prefetch prefetch; /* rx: of these */
    struct rs_prefetch_chunks in_turn; /* of their chunks */
    struct rs_iovecs iovecs; /* what the kernel reads */
    struct rs_map_list maps; /* that they need, the table's first */
};

/** Compile pieces for the slots of a lane. */
int rs_pieces_compile(const struct rs_pieces *pieces, struct lane *l,
                      struct rs_copies *copies);

/** The shortest message that a process, by the costs of the ways to this peer and
 * its settings, may announce; UINT64_MAX if it never does. */
uint64_t rs_pull_shortest(const struct rsched_connection *connection);

/** Sender, when a message has been loaded, or when memory has ceased to be
 * reachable since: make the table, and see whether it is worth while, and which ways
 * are to be tried out.
 * @return 0 or RSCHED_ENOMEM */
int rs_pull_load(struct lane *l);

/** Sender, when rs_huge_is_due(): put the message into huge pages, if the kernel
 * reads it faster out of them than it comes now, and so that this has paid.
 * @return 0 or RSCHED_ENOMEM */
int rs_pull_consider_huge(struct lane *l);

/** Sender: whether the table is out of date. */
static inline bool rs_pull_is_stale(const struct rs_pull *pull)
{
    return atomic_load_explicit(&rs_shared_changes, memory_order_relaxed) !=
           pull->table.changes;
}

/** Receiver: make the lists of what an announcement says.
 * @return 0, or why the receiver cannot reach it */
int rs_pull_compile(struct lane *l, const struct rs_announcement *a);

/** Receiver, instead, when that has failed: the chunks of the rest follow all
 * the same, and are passed over. @return 0 or RSCHED_ENOMEM */
int rs_pull_skip(struct lane *l, const struct rs_announcement *a);

/** Receiver: have the kernel read what rs_pull_compile() found for it.
 * @return 0; RSCHED_EPEER: the sender is dead; or why it does not */
int rs_pull_read(struct lane *l);

/** Receiver, when a message has been loaded: let the sender help with it, if it
 * is long and can be reached. @return 0 or RSCHED_ENOMEM */
int rs_pull_offer(struct lane *l);

/** Receiver: copy what was compiled, perhaps with the sender's help.
 * @param timed the sender has the epoch timed (RSCHED_TRIALS)
 * @return RSCHED_LANE_PENDING: the sender is still at it */
int rs_pull_copy(struct lane *l, bool timed);

/** Receiver: the sender does not read our table any more, or has it for good. */
void rs_pull_withdraw(struct lane *l);

/** Sender, while it waits: help the receiver if that lets it.
 * @return whether it has copied anything */
bool rs_pull_help(struct lane *l);

/** Receiver: the epoch is given up. The sender begins to write nothing more. */
void rs_pull_close(struct lane *l);

/** Receiver, after that: whether the sender does not write our memory any more. */
bool rs_pull_is_over(struct lane *l);

/** Receiver: another message has been loaded. */
static inline void rs_pull_forget(struct rs_pull *pull)
{
    pull->announcement.version = 0;
}

void rs_pull_fini(struct lane *l);

#endif
