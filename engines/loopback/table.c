/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender's table of where its message lies. */
#include <stdlib.h>
#include <string.h>

#include "engines/loopback/lane.h"
#include "librsched/base/adopt.h"
#include "librsched/base/array.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/offer.h"

int rs_pieces_append(struct rs_pieces *pieces, const struct rsched_piece *p)
{
    struct rsched_piece *larger = rs_array_grow(
        pieces->at, &pieces->room, pieces->number + 1, sizeof(*pieces->at));

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for pieces");
    pieces->at = larger;
    pieces->at[pieces->number++] = *p;
    return 0;
}

int rs_pieces_compile(const struct rs_pieces *pieces, struct lane *l,
                      struct rs_copies *copies)
{
    struct rsched_message message = {.pieces = pieces->at,
                                     .num_pieces = pieces->number};

    for (size_t i = 0; i < pieces->number; i++)
        message.bytes += pieces->at[i].bytes * pieces->at[i].count;
    return rs_copies_compile(copies, &message, chunk_room(l->ring.stride));
}

static int add_entry(struct rs_table_maker *t, const struct rs_table_piece *p)
{
    struct rs_table_piece *larger = rs_array_grow(
        t->pieces, &t->room_pieces, t->num_pieces + 1, sizeof(*larger));

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a table");
    t->pieces = larger;
    t->pieces[t->num_pieces++] = *p;
    return 0;
}

static int add_region(struct rs_table_maker *t, const struct rs_place *place,
                      uint64_t *number)
{
    struct rs_table_region *larger;

    for (size_t i = 0; i < t->num_regions; i++) {
        if (t->regions[i].id == place->id &&
            t->regions[i].offset == place->offset) {
            *number = i;
            return 0;
        }
    }
    larger = rs_array_grow(t->regions, &t->room_regions, t->num_regions + 1,
                           sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a table");
    t->regions = larger;
    *number = t->num_regions;
    t->regions[t->num_regions++] =
        (struct rs_table_region){place->id, place->offset, place->bytes};
    return 0;
}

/* Blocks [first, end) of a piece go through slots. */
static int add_slots(struct lane *l, const struct rsched_piece *p,
                     uint64_t first, uint64_t end)
{
    struct rsched_piece part = *p;
    struct rs_table_piece entry = {.region = RS_TABLE_SLOTS,
                                   .bytes = p->bytes,
                                   .count = end - first,
                                   .stride = p->stride};
    int error;

    if (first == end)
        return 0;
    part.address += (int64_t)first * p->stride;
    part.count = end - first;
    error = rs_pieces_append(&l->pull.slots, &part);
    return error != 0 ? error : add_entry(&l->pull.table, &entry);
}

/* Blocks [first, end) of a piece lie in a region. */
static int add_reachable(struct lane *l, const struct rsched_piece *p,
                         uint64_t first, uint64_t end,
                         const struct rs_place *place)
{
    struct rs_table_maker *t = &l->pull.table;
    struct rs_table_piece entry = {.bytes = p->bytes,
                                   .count = end - first,
                                   .stride = p->stride};
    int error;

    if (first == end)
        return 0;
    entry.offset = (uint64_t)(p->address - place->address) +
                   first * (uint64_t)p->stride;
    t->reachable += entry.bytes * entry.count;
    error = add_region(t, place, &entry.region);
    return error != 0 ? error : add_entry(t, &entry);
}

static bool is_within(const struct rsched_piece *p, uint64_t block,
                      const struct rs_place *place)
{
    const char *at = p->address + (int64_t)block * p->stride;

    return at >= place->address &&
           at + p->bytes <= place->address + place->bytes;
}

/* One contiguous block, of which a part lies in the region. */
static int add_block(struct lane *l, struct rsched_piece p)
{
    struct rs_place place;
    int error = 0;

    while (error == 0 && p.bytes > 0) {
        struct rsched_piece part = p;

        if (!rs_shared_find(p.address, p.address + p.bytes, &place))
            return add_slots(l, &p, 0, 1);
        if (p.address < place.address) {
            part.bytes = (uint64_t)(place.address - p.address);
            error = add_slots(l, &part, 0, 1);
        } else {
            uint64_t room =
                (uint64_t)(place.address + place.bytes - p.address);

            part.bytes = p.bytes < room ? p.bytes : room;
            error = add_reachable(l, &part, 0, 1, &place);
        }
        p.address += part.bytes;
        p.bytes -= part.bytes;
    }
    return error;
}

/* Blocks that lie in the region are one interval, since their addresses grow
 * or shrink with their numbers. Those that do not, or not wholly, go through
 * slots. */
static int add_blocks(struct lane *l, const struct rsched_piece *p)
{
    int64_t span = (int64_t)(p->count - 1) * p->stride;
    const char *low = p->address + (span < 0 ? span : 0);
    const char *high = p->address + (span > 0 ? span : 0) + p->bytes;
    uint64_t first = 0, end;
    struct rs_place place;
    int error;

    if (!rs_shared_find(low, high, &place))
        return add_slots(l, p, 0, p->count);
    while (first < p->count && !is_within(p, first, &place))
        first++;
    end = first;
    if (first < p->count && low >= place.address &&
        high <= place.address + place.bytes)
        end = p->count;
    while (end < p->count && is_within(p, end, &place))
        end++;
    error = add_slots(l, p, 0, first);
    if (error == 0)
        error = add_reachable(l, p, first, end, &place);
    if (error == 0)
        error = add_slots(l, p, end, p->count);
    return error;
}

static int make_table(struct lane *l)
{
    struct rs_table_maker *t = &l->pull.table;
    int error = 0;

    /* Before the look at the regions: one that goes meanwhile shows later. */
    t->changes = atomic_load(&rs_shared_changes);
    t->num_regions = t->num_pieces = 0;
    t->reachable = 0;
    l->pull.slots.number = 0;
    for (size_t i = 0; i < l->num_pieces && error == 0; i++) {
        const struct rsched_piece *p = &l->pieces[i];

        if (p->bytes == 0 || p->count == 0)
            continue;
        if (rs_config()->mapped_bytes == 0)
            error = add_slots(l, p, 0, p->count);
        else
            error = p->count == 1 ? add_block(l, *p) : add_blocks(l, p);
    }
    return error;
}

/* Where in the table what begins. */
static uint64_t bytes_of_regions(const struct rs_table_maker *t)
{
    return t->num_regions * sizeof(*t->regions);
}

static uint64_t bytes_of_pieces(const struct rs_table_maker *t)
{
    return t->num_pieces * sizeof(*t->pieces);
}

static bool is_published(const struct rs_table_maker *t)
{
    const struct rs_table *table = (const void *)t->place.address;
    const char *regions = (const char *)(table + 1);

    return table->num_regions == t->num_regions &&
           table->num_pieces == t->num_pieces &&
           (t->num_regions == 0 ||
            memcmp(regions, t->regions, bytes_of_regions(t)) == 0) &&
           memcmp(regions + bytes_of_regions(t), t->pieces,
                  bytes_of_pieces(t)) == 0;
}

/* The receiver reads the table only in an epoch that announces it, and none is
 * under way. */
static int publish(struct rs_table_maker *t, struct rs_announcement *a)
{
    uint64_t bytes = sizeof(struct rs_table) + bytes_of_regions(t) +
                     bytes_of_pieces(t);
    struct rs_table *table;
    int error;

    if (bytes <= t->place.bytes && is_published(t))
        return 0;
    if (bytes > t->place.bytes) {
        rsched_free(t->place.address);
        t->place = (struct rs_place){0};
        error = rs_shared_alloc(bytes, &t->place);
        if (error != 0)
            return error;
        a->offset = t->place.offset;
        a->bytes = t->place.bytes;
    }
    table = (void *)t->place.address;
    *table = (struct rs_table){t->num_regions, t->num_pieces};
    if (t->num_regions > 0)
        memcpy(table + 1, t->regions, bytes_of_regions(t));
    memcpy((char *)(table + 1) + bytes_of_regions(t), t->pieces,
           bytes_of_pieces(t));
    a->version++;
    return 0;
}

/* Blocks below this cost more to name than to copy. */
enum { LEAST_READ_BLOCK = 2048 };

static bool is_long(uint64_t bytes, uint64_t least)
{
    return least > 0 && bytes >= least;
}

/* What can be done with the message that the table was made of. */
static struct rs_way_parts parts_of(const struct lane *l)
{
    const struct rs_table_maker *t = &l->pull.table;
    const struct rs_pieces *slots = &l->pull.slots;
    struct rs_way_parts parts = {.mapped.bytes = 0};
    bool reads =
        atomic_load_explicit(&l->ring.words->reads, memory_order_relaxed) != 0;

    for (size_t i = 0; i < t->num_pieces; i++) {
        const struct rs_table_piece *p = &t->pieces[i];

        if (p->region != RS_TABLE_SLOTS)
            rs_way_part_add(&parts.mapped, p->bytes, p->count, p->stride);
    }
    for (size_t i = 0; i < slots->number; i++) {
        const struct rsched_piece *p = &slots->at[i];
        bool readable = reads && p->bytes >= LEAST_READ_BLOCK;

        rs_way_part_add(readable ? &parts.readable : &parts.rest, p->bytes,
                        p->count, p->stride);
    }
    return parts;
}

static struct rs_way_choice choose(const struct lane *l,
                                   const struct rs_way_parts *parts)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    const struct rs_config *c = rs_config();
    struct rs_way_choice choice = rs_ways_choose(ways, parts);

    if (c->mapped_bytes != RS_LIMIT_AUTO)
        choice.pull = is_long(parts->mapped.bytes, c->mapped_bytes);
    if (c->cma_bytes != RS_LIMIT_AUTO)
        choice.cma = is_long(parts->readable.bytes, c->cma_bytes);
    return choice;
}

uint64_t rs_pull_shortest(const struct rs_host_ways *ways)
{
    const uint64_t limits[] = {rs_config()->mapped_bytes,
                               rs_config()->cma_bytes};
    uint64_t shortest = UINT64_MAX;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        uint64_t limit = limits[i];

        if (limit == RS_LIMIT_AUTO)
            limit = ways->shortest_once;
        if (limit > 0 && limit < shortest)
            shortest = limit;
    }
    return shortest;
}

/* Have the kernel read what would go through slots. */
static void read_slots(struct lane *l)
{
    struct rs_table_maker *t = &l->pull.table;
    struct rs_pieces *slots = &l->pull.slots;
    size_t kept = 0, seen = 0;

    for (size_t i = 0; i < t->num_pieces; i++) {
        struct rs_table_piece *entry = &t->pieces[i];
        const struct rsched_piece *p = &slots->at[seen];

        if (entry->region != RS_TABLE_SLOTS)
            continue;
        seen++;
        if (p->bytes >= LEAST_READ_BLOCK) {
            entry->region = RS_TABLE_CMA;
            entry->offset = (uint64_t)(uintptr_t)p->address;
        } else {
            slots->at[kept++] = *p;
        }
    }
    slots->number = kept;
}

int rs_pull_offer(struct lane *l)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    struct rs_pull *pull = &l->pull;
    int error;

    rs_pull_withdraw(l);
    pull->chunk = rs_ways_share_chunk(ways, l->bytes);
    if (l->bytes < l->shortest_once || !rs_ways_share(ways, l->bytes))
        return 0;
    error = make_table(l);
    if (error != 0 || pull->table.reachable < l->bytes)
        return error;
    error = publish(&pull->table, &pull->offer);
    pull->shares = error == 0;
    return error;
}

int rs_pull_load(struct lane *l)
{
    struct rs_pull *pull = &l->pull;
    struct rs_way_choice choice;
    struct rs_way_parts parts;
    int error;

    pull->possible = false;
    if (pull->refused)
        return 0;
    error = make_table(l);
    if (error != 0)
        return error;
    parts = parts_of(l);
    choice = choose(l, &parts);
    if (!choice.pull && !choice.cma)
        return 0;
    pull->table.readable = choice.cma ? parts.readable.bytes : 0;
    if (choice.cma)
        read_slots(l);
    error = publish(&pull->table, &pull->announcement);
    if (error == 0)
        error = rs_pieces_compile(&pull->slots, l, &pull->rest);
    if (error != 0)
        return error;
    pull->announcement.rest = pull->rest.num_chunks;
    pull->possible = true;
    return 0;
}

/* The next pieces of the message, from `*i` on, that lie one behind the other,
 * as bytes [*low, *high). Blocks of a strided piece would be a region each, and
 * are rarely pages. @return whether there are any */
static bool next_contiguous(const struct lane *l, size_t *i, char **low,
                            char **high)
{
    const struct rsched_piece *p = l->pieces, *end = p + l->num_pieces;

    for (p += *i; p < end && (p->count != 1 || p->bytes == 0);)
        p++;
    *low = *high = p < end ? p->address : NULL;
    for (; p < end && p->count == 1 && p->address == *high; p++)
        *high += p->bytes;
    *i = (size_t)(p - l->pieces);
    return *low < *high;
}

/* The bytes of the message that are neither in a region nor in a whole page that
 * could be one; what the kernel may read stays so. */
static struct rs_way_parts parts_if_adopted(const struct lane *l)
{
    struct rs_way_parts parts = parts_of(l);
    uint64_t whole = 0;
    char *low, *high;

    for (size_t i = 0; next_contiguous(l, &i, &low, &high);)
        whole += rs_adopt_whole(low, high);
    if (whole <= parts.mapped.bytes)
        return parts;
    whole -= parts.mapped.bytes;
    parts.mapped.bytes += whole;
    parts.mapped.blocks++;
    if (whole <= parts.rest.bytes) {
        parts.rest.bytes -= whole;
    } else {
        whole -= parts.rest.bytes;
        parts.rest.bytes = 0;
        parts.readable.bytes -= whole < parts.readable.bytes
                                    ? whole
                                    : parts.readable.bytes;
    }
    return parts;
}

int rs_pull_adopt(struct lane *l)
{
    struct rs_way_parts parts;
    char *low, *high;
    int error;

    if (l->pull.refused || rs_config()->mapped_bytes == 0 || !rs_offer_any())
        return 0;
    error = make_table(l);
    if (error != 0)
        return error;
    parts = parts_if_adopted(l);
    if (parts.mapped.bytes == l->pull.table.reachable ||
        !choose(l, &parts).pull)
        return rs_pull_load(l);
    for (size_t i = 0; next_contiguous(l, &i, &low, &high);)
        rs_adopt(low, high);
    return rs_pull_load(l);
}
