/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of ready-made copies between user memory and landing slots or memory of
 * another layout, for all engines that copy. */
#ifndef RS_ENGINES_COPY_H
#define RS_ENGINES_COPY_H

#include <rsched/engine.h>

#include "engines/common/long_copy.h"

#if defined(__x86_64__)
#define RS_HAS_NONTEMPORAL 1
#else
#define RS_HAS_NONTEMPORAL 0
#endif

/* `count` blocks: user memory at user + i*stride, the other side at
 * offset + i*bytes of the chunk's data (or, for a copy within the process, at
 * other + i*other_stride). */
struct rs_copy {
    char *user;
    uint64_t bytes;
    uint64_t count;
    int64_t stride;
    union {
        uint64_t offset;
        char *other;
    };
    int64_t other_stride;
};

/* What goes into one landing slot: copies [first, end) of the list. */
struct rs_chunk {
    uint32_t first, end;
    uint64_t bytes;
};

/* A compiled message. Zero it to initialise; it owns the two arrays and keeps
 * them for the next compilation. */
struct rs_copies {
    struct rs_copy *copies;
    struct rs_chunk *chunks;
    uint32_t num_copies, num_chunks;
    uint32_t room_copies, room_chunks;
    /* Copies of different pieces are not joined, though they touch: drivers of
     * GPUs refuse a copy across two allocations. Set before compiling. */
    bool apart;
    /* Pairs are copied with non-temporal stores where their blocks are long
     * enough: what is copied is not in the caches afterwards. May change at any
     * time. */
    bool nontemporal;
};

/** Cut a message into chunks of `chunk_bytes` (the last may be shorter).
 * @return 0; RSCHED_ENOMEM, RSCHED_ELIMIT (more than 2^32 copies): the list is empty */
int rs_copies_compile(struct rs_copies *list,
                      const struct rsched_message *message,
                      uint64_t chunk_bytes);

/** Called for each copy that takes part of message `from` to message `to`, in
 * the order of the bytes: `user` lies in piece number `piece` of from, `other`
 * in piece number `other` of to. */
typedef int rs_match_fn(void *arg, size_t piece, size_t other,
                        const struct rs_copy *copy);

/** Find the copies between two layouts of equally many bytes.
 * @return 0, or what `match` returned that is not 0 */
int rs_copies_match(const struct rsched_message *from,
                    const struct rsched_message *to, rs_match_fn *match,
                    void *arg);

/** Append a copy of a pair to a list; it is cut so that all chunks of the list
 * but the last one have `chunk_bytes`, wherever the copies lie.
 * @param joins it may become one with the copy before, if they touch
 * @return as rs_copies_compile() */
int rs_copies_append_pair(struct rs_copies *list, const struct rs_copy *copy,
                          bool joins, uint64_t chunk_bytes);

/** One chunk that copies straight from one layout to another of equally many
 * bytes. @return as rs_copies_compile() */
int rs_copies_compile_pair(struct rs_copies *list,
                           const struct rsched_message *from,
                           const struct rsched_message *to);

void rs_copies_fini(struct rs_copies *list);

void rs_copies_pack(const struct rs_copies *list, const struct rs_chunk *chunk,
                    char *data);
/** The same by non-temporal stores, where there are such (RS_HAS_NONTEMPORAL): lines
 * that another core has in its cache are written without waiting for it, and it reads
 * them out of memory. @return the bytes that were written so */
uint64_t rs_copies_pack_nontemporal(const struct rs_copies *list,
                                    const struct rs_chunk *chunk, char *data);
void rs_copies_unpack(const struct rs_copies *list,
                      const struct rs_chunk *chunk, const char *data);
/** Run a list of pairs: user is the source. @return the bytes that were written
 * by non-temporal stores */
uint64_t rs_copies_run_pair(const struct rs_copies *list);
/** Whether all blocks of a list of pairs have RS_COPY_AHEAD bytes or more. @param bytes all
 * of them together */
bool rs_copies_are_long(const struct rs_copies *list, uint64_t *bytes);
/** Run such a list by rs_copy_ahead(), and not by non-temporal stores. */
void rs_copies_run_ahead(const struct rs_copies *list);
/** Where the parts of a list begin that are copied in turn, and where the last one ends: about a
 * third of its bytes each. The ends are whole bytes of any block. */
struct rs_parts {
    uint64_t begin[RS_COPY_PARTS + 1];
};
/** @param bytes all of the list's, 1 at least */
void rs_copies_divide(const struct rs_copies *list, uint64_t bytes, struct rs_parts *parts);
/** Run a list of pairs, which was divided, by rs_copy_in_turn(), past the caches if it says so,
 * whatever the length of its blocks. @return as rs_copies_run_pair() */
uint64_t rs_copies_run_in_turn(const struct rs_copies *list, const struct rs_parts *parts);
/** Run one chunk of a list of pairs. */
uint64_t rs_copies_run_chunk(const struct rs_copies *list,
                             const struct rs_chunk *chunk);

#endif
