/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ENDS: where nearly all of a message lies in regions, as when whole pages of it have
 * been adopted, what is left is packed for each start into memory that others map, too.
 * It takes less than to have the kernel read it.
 */
#ifndef RS_COMMON_ENDS_H
#define RS_COMMON_ENDS_H

#include <stdbool.h>

#include "engines/common/copy.h"
#include "engines/common/table.h"

/* Of a message. Zero it to initialise. */
struct rs_ends {
    bool used;
    struct rs_place place;   /* into which they are packed */
    struct rs_copies copies;
};

/** What is done with a message's parts: its ends are mapped, if they are short beside
 * the whole. @return whether all of it is mapped then */
bool rs_ends_parts(struct rs_way_parts *parts, uint64_t bytes);

/**
 * Have the table say that they lie in memory of ours, if they are short and there is
 * some; else leave it as it is.
 *
 * @param bytes of the message
 * @return 0 or RSCHED_ENOMEM, RSCHED_ELIMIT
 */
int rs_ends_redirect(struct rs_ends *e, struct rs_table_maker *t, uint64_t bytes);

/** How many bytes they are, if they are used, else 0. */
static inline uint64_t rs_ends_bytes(const struct rs_ends *e)
{
    return e->used ? e->copies.chunks[0].bytes : 0;
}

/** Pack them, if they are used. */
void rs_ends_pack(const struct rs_ends *e, bool nontemporal);

void rs_ends_fini(struct rs_ends *e);

#endif
