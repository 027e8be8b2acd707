/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * QUEUE: what the lanes of an RDMA engine need of the sending side of a queue
 * pair, whoever drives it (libibverbs, or WQEs of our own).
 *
 * A **list** is made once, of operations in the order in which they are to
 * run. A start *posts* it, which changes only what depends on the epoch, and
 * then *rings* the queue once for all that was posted since. Of each list only
 * the last operation is signalled; poll() tells when a posted list is complete.
 *
 * Memory: operations and their pieces are read by list_create() only. Bytes
 * that pieces point at belong to the queue from post() until the list's
 * completion was polled; those of `inlined` operations only during post().
 *
 * State rules: a list may be posted again while earlier posts of it are under
 * way. It is destroyed when none is. After a completion with an error nothing
 * may be posted until the queue pair has been reset and reset() called.
 *
 * Threads: a queue and its lists belong to one thread at a time. Nothing but
 * list_create() allocates.
 */
#ifndef RS_RDMA_QUEUE_H
#define RS_RDMA_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Local memory, registered under `lkey` (not used by inlined operations). */
struct rs_rdma_piece {
    uint64_t address;
    uint32_t bytes;
    uint32_t lkey;
};

enum rs_rdma_opcode {
    /* The pieces, one after the other, to `remote`. */
    RS_RDMA_WRITE,
    /* The same, perhaps of no bytes; takes a receive of the peer, which
     * completes with `imm`. */
    RS_RDMA_WRITE_IMM,
    /* Add `add` to the 8 bytes at `remote`, which are aligned and touched by
     * this device only; what they held goes to the only piece, 8 bytes. */
    RS_RDMA_FETCH_ADD,
};

/* What of an operation depends on the epoch. */
enum rs_rdma_stamp {
    RS_STAMP_NONE,
    /* WRITE: 8 bytes, the epoch in the byte order of this machine; there are
     * no pieces. */
    RS_STAMP_EPOCH,
    /* WRITE_IMM: the low 16 bits of the immediate are those of the epoch. */
    RS_STAMP_IMM,
};

struct rs_rdma_op {
    enum rs_rdma_opcode opcode;
    enum rs_rdma_stamp stamp;
    bool inlined;   /* WRITE: the bytes travel in the request itself */
    bool solicited; /* WRITE_IMM: wakes a peer that sleeps */
    uint32_t rkey;
    uint64_t remote;
    uint64_t add;
    uint32_t imm;
    uint32_t num_pieces;
    const struct rs_rdma_piece *pieces;
};

/* A post that is complete, or has failed. */
struct rs_rdma_done {
    uint64_t id;   /* of the post */
    bool failed;
    bool flushed;  /* failed because something before it on the queue did */
    uint32_t op;   /* failed, not flushed: which operation of the list */
    const char *cause;      /* failed: in words */
    uint32_t vendor_error;  /* failed: the device's own code */
};

struct rs_rdma_queue;
struct rs_rdma_list;

struct rs_rdma_queue_ops {
    const char *name;

    /** Prepare `num_ops` operations, at least one. RSCHED_ELIMIT, with the
     * limit in the text, when they do not fit into the queue or into one
     * request. */
    int (*list_create)(struct rs_rdma_queue *queue,
                       const struct rs_rdma_op *ops, uint32_t num_ops,
                       struct rs_rdma_list **list);
    void (*list_destroy)(struct rs_rdma_list *list);

    /** @return true, or false when the queue has no room for the list: try
     * again after poll() has told of a completion. False after a failure. */
    bool (*post)(struct rs_rdma_list *list, uint64_t epoch, uint64_t id);
    /** Let the device begin with what was posted, if anything was.
     * @return 0 or an error: the queue is to be reset. */
    int (*ring)(struct rs_rdma_queue *queue);

    /** @return 1: *done tells of the oldest post; 0: nothing new; or an error:
     * the device did what it may not; the queue is to be reset, and nothing
     * can be posted until then. */
    int (*poll)(struct rs_rdma_queue *queue, struct rs_rdma_done *done);

    /** Take the oldest immediate that has arrived; its receive is posted
     * again. NULL: the port of the queue has no immediates.
     * @return 1: *imm is set; 0: there is none, or the queue pair has failed
     *         (poll() tells why); or an error */
    int (*take)(struct rs_rdma_queue *queue, uint32_t *imm);

    /** Have the device end: it reads and writes nothing more for this queue pair, nor
     * lets the peer write, once poll() has told that what was posted has failed. */
    void (*stop)(struct rs_rdma_queue *queue);

    /** The queue pair has been reset: forget what was posted. */
    void (*reset)(struct rs_rdma_queue *queue);
};

/* What every queue and list begins with. */
struct rs_rdma_queue {
    const struct rs_rdma_queue_ops *ops;
};

struct rs_rdma_list {
    struct rs_rdma_queue *queue;
};

#endif
