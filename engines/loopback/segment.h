/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory of one engine instance: a memfd whose first page is a header
 * with the process's doorbell, followed by blocks, one for each rx lane. It
 * has no name; a peer opens it through /proc/PID/fd, which the kernel allows
 * to processes of the same user that may look at each other.
 */
#ifndef RS_LOOPBACK_SEGMENT_H
#define RS_LOOPBACK_SEGMENT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RS_LINE = 64,        /* bytes of a cache line */
    RS_HEADER_BYTES = 4096, /* the header's share of the memfd */
};

#define RS_SEGMENT_MAGIC UINT64_C(0x31676573686373) /* "schseg1" */

/* Where the threads of a process sleep, and how peers wake them. */
struct rs_doorbell {
    /* Threads that sleep or soon will, in the lower half; in the upper half
     * the tag of the news that the only one waits for, 0 for any. */
    _Alignas(RS_LINE) atomic_uint_fast64_t sleepers;
    atomic_uint rings; /* the futex word */
};
static_assert(sizeof(struct rs_doorbell) == RS_LINE, "shared layout");

struct rs_segment_header {
    uint64_t magic;
    uint64_t job;
    uint64_t nonce; /* proves that this is the memfd that was meant */
    _Alignas(RS_LINE) struct rs_doorbell doorbell;
};
static_assert(sizeof(struct rs_segment_header) == 2 * RS_LINE,
              "shared layout");

/* Tags of news. Those of different lanes may be equal; somebody is woken for
 * nothing then. */
#define RS_TAG_CREDIT (UINT32_C(1) << 31)

/* The words of an edge, one line for each writer. */
struct rs_words {
    /* Sender. `arrived` of the landing way stands in the slots. */
    _Alignas(RS_LINE) atomic_uint_fast64_t src_ready;
    atomic_uint_fast64_t arrived;
    atomic_uint_fast64_t closed; /* the base of a lane that writes no more */
    atomic_uint_fast64_t way; /* of a trial, of its epoch: choice.c; 0: it tries none */
    /* Receiver. */
    _Alignas(RS_LINE) atomic_uint_fast64_t dst_ready;
    atomic_uint_fast64_t consumed;
    atomic_uint_fast64_t refused; /* the base of a lane that reads no more */
    atomic_uint_fast64_t reads; /* 1: the kernel lets it read the sender */
    atomic_uint_fast64_t unreachable; /* not 0: announce nothing, see pull.h */
    atomic_uint_fast64_t prepared; /* 1: also for short messages to be announced */
    atomic_uint_fast64_t took; /* ps that its copies took, of a timed epoch */
};
static_assert(sizeof(struct rs_words) == 2 * RS_LINE, "shared layout");

/* A copy that both sides work at, in an epoch that is pulled. The receiver
 * offers it: it says where its buffers lie, sets `claim` to {the epoch, 0, 0}
 * and `done` to {the epoch, 0}, and then `offered` to the epoch. Whoever has
 * nothing better to do claims chunks by compare-and-swap, so that one who
 * comes late does not get one of a later epoch, and copies them: the receiver the
 * first that are left, the sender the last, so that from epoch to epoch each copies
 * much the same lines, and has them in its cache. The sender says how many it has done.
 * When these are all that it has claimed, and none is left, the receiver ends the
 * epoch. A claim is never taken over: if the sender dies with one the epoch fails. */
struct rs_work {
    _Alignas(RS_LINE) atomic_uint_fast64_t offered; /* the receiver's */
    uint64_t table[3]; /* offset, bytes and version of the receiver's table */
    uint64_t chunk;    /* bytes of all chunks but the last */
    uint64_t nontemporal; /* whether they are written by such stores */
    _Alignas(RS_LINE) atomic_uint_fast64_t claim;
    _Alignas(RS_LINE) atomic_uint_fast64_t done;
    atomic_uint_fast64_t reads_table; /* the sender's: it is at it */
};
static_assert(sizeof(struct rs_work) == 3 * RS_LINE, "shared layout");

/* The lower RS_WORK_BITS of `done` hold the number of the sender's chunks that are done;
 * those of `claim` how many are claimed from the front, and above RS_WORK_SIDE_BITS how
 * many from the back. */
enum { RS_WORK_BITS = 24, RS_WORK_SIDE_BITS = RS_WORK_BITS / 2 };

/* What a block begins with. */
struct rs_control {
    struct rs_words words;
    struct rs_work work;
};
static_assert(sizeof(atomic_uint_fast64_t) == 8, "shared layout");

enum { RS_SLOT_INLINE = RS_LINE - 16 };

/* The first line of a slot. A chunk of at most RS_SLOT_INLINE bytes travels in
 * it, a longer one in the lines behind it. */
struct rs_slot {
    _Alignas(RS_LINE) atomic_uint_fast64_t arrived; /* base + chunk number + 1 */
    uint64_t meta; /* message bytes, and its signature in the upper 16 bits */
    char data[RS_SLOT_INLINE];
};
static_assert(sizeof(struct rs_slot) == RS_LINE, "shared layout");

/* A block of the own segment. */
struct rs_block {
    struct rs_block *next;
    uint64_t offset, bytes; /* in the memfd, multiples of the page size */
    struct rs_words *words; /* mapped */
    uint64_t base;          /* of the lane that has or had it */
    bool in_use;
    bool unattached;        /* nobody ever learnt of it, or who did is forgotten */
    struct rsched_connection *writer; /* NULL: forgotten */
};

/* Chunk numbers of one lane stay below this power of two, by which bases
 * differ. */
enum { RS_BASE_BITS = 40 };

struct rs_segment {
    int fd;
    struct rs_segment_header *header;
    uint64_t nonce;   /* what it says; others can write there */
    uint64_t bytes;   /* of the memfd, of the header and all blocks */
    uint64_t next_base;
    struct rs_block *blocks;
};

int rs_segment_init(struct rs_segment *segment, uint64_t job);
void rs_segment_fini(struct rs_segment *segment);

/** A block of at least `bytes`, with words and slots zero and a base that no
 * lane had before. If it is `sparse`, it takes memory only where it is used.
 * `gone` says whether the writer of an old block can write no
 * more although it did not say so. */
int rs_segment_allocate(struct rs_segment *segment, uint64_t bytes,
                        bool sparse, struct rsched_connection *writer,
                        bool (*gone)(const struct rsched_connection *),
                        struct rs_block **block);

/** Give a block back. It is used again once its writer has closed. */
void rs_segment_release(struct rs_block *block, bool attached);

/** The connection to a writer goes, who has no lane any more. @param gone as above
 * @return whether it may still write somewhere: come again */
bool rs_segment_forget(struct rs_segment *segment,
                       struct rsched_connection *writer,
                       bool (*gone)(const struct rsched_connection *));

/** Map bytes [offset, offset + bytes) of a segment. What a process has mapped
 * it maps no second time: engines in its threads meet at one address, where
 * thread sanitizers see that they do. Any thread may call it. @return NULL with
 * errno */
void *rs_segment_map(int fd, uint64_t offset, uint64_t bytes, bool sparse);
/** What it is called that this has failed, by errno: RSCHED_ENOMEM, as where memory could
 * not be reserved, or RSCHED_ESYS. */
int rs_segment_map_error(void);
/** Once for each rs_segment_map(); a forked child has nothing to unmap. */
void rs_segment_unmap(void *address);

#endif
