/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TABLE: where a message lies, told by its sender to who copies it out of the
 * sender's memory.
 *
 * A table is a head, then regions, then pieces. Regions are parts of memory
 * that others can map (librsched/base/shared.h). Pieces are those of the
 * message, in its order, cut where regions begin and end; those in no region
 * can be read by the kernel (cross-memory attach).
 */
#ifndef RS_ENGINES_TABLE_H
#define RS_ENGINES_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rsched/engine.h>
#include <rsched/pull.h>

#include "librsched/base/shared.h"
#include "librsched/base/ways.h"

struct rs_table {
    uint64_t num_regions, num_pieces;
};

struct rs_table_region {
    uint64_t id, offset, bytes; /* a struct rs_place */
    uint64_t address;           /* in the sender */
};

/* A piece of the message: a struct rsched_piece, but where it lies. */
struct rs_table_piece {
    uint64_t region; /* its number, or one of those below */
    uint64_t offset; /* in the region */
    uint64_t bytes, count;
    int64_t stride;
};

/* The piece comes in another way, through slots. */
#define RS_TABLE_SLOTS UINT64_MAX
/* It is read by the kernel; `offset` is its address. */
#define RS_TABLE_CMA (UINT64_MAX - 1)

/** Blocks below this cost the kernel more to find than to copy. */
enum { RS_TABLE_LEAST_READ = 2048 };

/* Pieces that grow. Zero it to initialise; it owns the array. */
struct rs_pieces {
    struct rsched_piece *at;
    size_t number, room;
};

/** @return 0 or RSCHED_ENOMEM */
int rs_pieces_append(struct rs_pieces *pieces, const struct rsched_piece *p);
/** Append those of a message that have bytes. @return 0 or RSCHED_ENOMEM */
int rs_pieces_copy(const struct rsched_message *message,
                   struct rs_pieces *pieces);

/** Keep the first `bytes`. A piece that ends within a block becomes two.
 * @param last the number of the last one that is kept
 * @return 0 or RSCHED_ENOMEM */
int rs_pieces_cut(struct rs_pieces *pieces, uint64_t bytes, size_t *last);

/** The next pieces, from `*i` on, that lie one behind the other, as bytes
 * [*low, *high). Blocks of a strided piece would be a part each, and are rarely
 * pages. @return whether there are any */
bool rs_pieces_run(const struct rsched_piece *pieces, size_t num, size_t *i,
                   char **low, char **high);

/** The message of `bytes` that the pieces are. */
static inline struct rsched_message
rs_pieces_message(const struct rs_pieces *pieces, uint64_t bytes)
{
    return (struct rsched_message){.pieces = pieces->at,
                                   .num_pieces = pieces->number,
                                   .bytes = bytes};
}

/* ---- the sender ---- */

/* Zero it to initialise. */
struct rs_table_maker {
    struct rs_table_region *regions;
    struct rs_table_piece *pieces;
    size_t num_regions, room_regions, num_pieces, room_pieces;
    uint64_t reachable; /* bytes in regions */
    uint64_t changes;   /* of rs_shared_changes, when it was made */
    uint64_t additions; /* of rs_shared_additions, likewise */
};

/** Make the table of a message; what is in no region is RS_TABLE_CMA. Pieces of
 * no bytes are left out.
 * @param maps whether regions are looked for
 * @return 0 or RSCHED_ENOMEM */
int rs_table_make(struct rs_table_maker *t, const struct rsched_piece *pieces,
                  size_t num, bool maps);
uint64_t rs_table_bytes(const struct rs_table_maker *t);
/** Write it to memory of rs_table_bytes(). */
void rs_table_write(const struct rs_table_maker *t, void *to);
/** Whether this is what is written there. */
bool rs_table_is_written(const struct rs_table_maker *t, const void *at);
/** What can be done with the message: what is in regions is mapped; other
 * blocks from RS_TABLE_LEAST_READ bytes on are readable if `reads`. */
void rs_table_parts(const struct rs_table_maker *t, bool reads,
                    struct rs_way_parts *parts);
/** What could be done if pages (of one block each, in the order of addresses) were in
 * regions, too. */
void rs_table_parts_add(struct rs_way_parts *parts,
                        const struct rsched_piece *pieces, size_t num,
                        const struct rsched_piece *pages, size_t num_pages);
/** Have blocks that are in no region in another place, which is one: one behind the
 * other from its beginning on.
 * @param blocks where they are, in their order
 * @return 0 or RSCHED_ENOMEM */
int rs_table_redirect(struct rs_table_maker *t, const struct rs_place *place,
                      struct rs_pieces *blocks);
/** Whether the kernel reads the other blocks' memory for a process: it does not where
 * pages cannot be had by it (memfd_secret, memory of devices), which the process
 * itself may read. The first byte of each piece tells. */
bool rs_table_is_readable(const struct rs_table_maker *t);
void rs_table_fini(struct rs_table_maker *t);

/* ---- the receiver ---- */

/** A copy of the table that a notice names, of process `pid`; 0: this one. The
 * caller frees it. @return 0, RSCHED_ENOMEM; RSCHED_EMISMATCH: it is too long;
 * RSCHED_EUNREACH: the kernel does not read it */
int rs_table_fetch(pid_t pid, const struct rsched_pull_notice *notice,
                   void **copy);

/* The parts of a table. */
struct rs_table_view {
    struct rs_table head;
    const struct rs_table_region *regions;
    const struct rs_table_piece *pieces;
};

/** @return whether its parts are within its bytes */
bool rs_table_view(const void *address, uint64_t bytes,
                   struct rs_table_view *view);

/**
 * The pieces, with addresses of this process; those that are read by the kernel
 * with addresses of the sender.
 *
 * @param places the regions, with the addresses that they have here
 * @param other  address of pieces that come in another way: any, or NULL: none
 *               does
 * @return 0; RSCHED_ENOMEM; RSCHED_EMISMATCH, without a text: they are not
 *         within the regions, or not of `bytes` together
 */
int rs_table_pieces(const struct rs_table_view *view,
                    const struct rs_place *places, char *other, uint64_t bytes,
                    struct rs_pieces *pieces);

#endif
