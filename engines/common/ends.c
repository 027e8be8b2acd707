/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/ends.h"

#include <stdlib.h>

static bool are_short(uint64_t ends, uint64_t bytes)
{
    return ends <= bytes / 4;
}

bool rs_ends_parts(struct rs_way_parts *parts, uint64_t bytes)
{
    if (!are_short(bytes - parts->mapped.bytes, bytes))
        return false;
    parts->mapped.bytes = bytes;
    parts->readable = parts->huge = parts->rest = (struct rs_way_part){0};
    return true;
}

static int make_room(struct rs_ends *e, uint64_t bytes)
{
    if (bytes <= e->place.bytes)
        return 0;
    rsched_free(e->place.address);
    e->place = (struct rs_place){0};
    return rs_shared_alloc(bytes, &e->place);
}

int rs_ends_redirect(struct rs_ends *e, struct rs_table_maker *t, uint64_t bytes)
{
    uint64_t ends = bytes - t->reachable;
    struct rs_pieces blocks = {0};
    struct rsched_message message;
    int error;

    e->used = false;
    if (ends == 0 || !are_short(ends, bytes))
        return 0;
    if (make_room(e, ends) != 0)
        return 0;
    error = rs_table_redirect(t, &e->place, &blocks);
    if (error == 0) {
        message = rs_pieces_message(&blocks, ends);
        error = rs_copies_compile(&e->copies, &message, ends);
    }
    free(blocks.at);
    e->used = error == 0;
    return error;
}

void rs_ends_pack(const struct rs_ends *e, bool nontemporal)
{
    if (!e->used)
        return;
    if (nontemporal)
        rs_copies_pack_nontemporal(&e->copies, e->copies.chunks,
                                   e->place.address);
    else
        rs_copies_pack(&e->copies, e->copies.chunks, e->place.address);
}

void rs_ends_fini(struct rs_ends *e)
{
    rsched_free(e->place.address);
    rs_copies_fini(&e->copies);
    *e = (struct rs_ends){0};
}
