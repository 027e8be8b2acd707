/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

enum { MOST_BYTES = 1 << 28 }; /* of another process's table */

int rs_pieces_append(struct rs_pieces *pieces, const struct rsched_piece *p)
{
    struct rsched_piece *larger = rs_array_grow(
        pieces->at, &pieces->room, pieces->number + 1, sizeof(*pieces->at));

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for pieces");
    pieces->at = larger;
    pieces->at[pieces->number++] = *p;
    return 0;
}

int rs_pieces_copy(const struct rsched_message *message,
                   struct rs_pieces *pieces)
{
    int error = 0;

    for (size_t i = 0; i < message->num_pieces && error == 0; i++) {
        if (message->pieces[i].bytes > 0 && message->pieces[i].count > 0)
            error = rs_pieces_append(pieces, &message->pieces[i]);
    }
    return error;
}

int rs_pieces_cut(struct rs_pieces *pieces, uint64_t bytes, size_t *last)
{
    size_t i = 0;

    for (; i < pieces->number; i++) {
        struct rsched_piece *p = &pieces->at[i], rest = *p;

        *last = i;
        if (bytes / p->bytes >= p->count) {
            bytes -= p->bytes * p->count;
            continue;
        }
        rest.address += (int64_t)(bytes / p->bytes) * p->stride;
        rest.bytes = bytes % p->bytes;
        p->count = bytes / p->bytes;
        rest.count = 1;
        pieces->number = p->count > 0 ? i + 1 : i;
        return rest.bytes > 0 ? rs_pieces_append(pieces, &rest) : 0;
    }
    return 0;
}

bool rs_pieces_run(const struct rsched_piece *pieces, size_t num, size_t *i,
                   char **low, char **high)
{
    const struct rsched_piece *p = pieces + *i, *end = pieces + num;

    while (p < end && (p->count != 1 || p->bytes == 0))
        p++;
    *low = *high = p < end ? p->address : NULL;
    for (; p < end && p->count == 1 && p->address == *high; p++)
        *high += p->bytes;
    *i = (size_t)(p - pieces);
    return *low < *high;
}

/* ---- the sender ---- */

static int add_entry(struct rs_table_maker *t, const struct rs_table_piece *p)
{
    struct rs_table_piece *larger = rs_array_grow(
        t->pieces, &t->room_pieces, t->num_pieces + 1, sizeof(*larger));

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
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
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
    t->regions = larger;
    *number = t->num_regions;
    t->regions[t->num_regions++] = (struct rs_table_region){
        place->id, place->offset, place->bytes,
        (uint64_t)(uintptr_t)place->address};
    return 0;
}

/* Blocks [first, end) of a piece lie in no region. */
static int add_unreachable(struct rs_table_maker *t,
                           const struct rsched_piece *p, uint64_t first,
                           uint64_t end)
{
    struct rs_table_piece entry = {.region = RS_TABLE_CMA,
                                   .bytes = p->bytes,
                                   .count = end - first,
                                   .stride = p->stride};

    if (first == end)
        return 0;
    entry.offset = (uint64_t)(uintptr_t)p->address +
                   first * (uint64_t)p->stride;
    return add_entry(t, &entry);
}

/* Blocks [first, end) of a piece lie in a region. */
static int add_reachable(struct rs_table_maker *t,
                         const struct rsched_piece *p, uint64_t first,
                         uint64_t end, const struct rs_place *place)
{
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

/* One contiguous block, of which a part lies in a region. */
static int add_block(struct rs_table_maker *t, struct rsched_piece p)
{
    struct rs_place place;
    int error = 0;

    while (error == 0 && p.bytes > 0) {
        struct rsched_piece part = p;

        if (!rs_shared_find(p.address, p.address + p.bytes, &place))
            return add_unreachable(t, &p, 0, 1);
        if (p.address < place.address) {
            part.bytes = (uint64_t)(place.address - p.address);
            error = add_unreachable(t, &part, 0, 1);
        } else {
            uint64_t room =
                (uint64_t)(place.address + place.bytes - p.address);

            part.bytes = p.bytes < room ? p.bytes : room;
            error = add_reachable(t, &part, 0, 1, &place);
        }
        p.address += part.bytes;
        p.bytes -= part.bytes;
    }
    return error;
}

/* Blocks that lie in the region are one interval, since their addresses grow
 * or shrink with their numbers. Those that do not, or not wholly, lie in
 * none. */
static int add_blocks(struct rs_table_maker *t, const struct rsched_piece *p)
{
    int64_t span = (int64_t)(p->count - 1) * p->stride;
    const char *low = p->address + (span < 0 ? span : 0);
    const char *high = p->address + (span > 0 ? span : 0) + p->bytes;
    uint64_t first = 0, end;
    struct rs_place place;
    int error;

    if (!rs_shared_find(low, high, &place))
        return add_unreachable(t, p, 0, p->count);
    while (first < p->count && !is_within(p, first, &place))
        first++;
    end = first;
    if (first < p->count && low >= place.address &&
        high <= place.address + place.bytes)
        end = p->count;
    while (end < p->count && is_within(p, end, &place))
        end++;
    error = add_unreachable(t, p, 0, first);
    if (error == 0)
        error = add_reachable(t, p, first, end, &place);
    if (error == 0)
        error = add_unreachable(t, p, end, p->count);
    return error;
}

int rs_table_make(struct rs_table_maker *t, const struct rsched_piece *pieces,
                  size_t num, bool maps)
{
    int error = 0;

    /* Before the look at the regions: one that comes or goes meanwhile shows
     * later. */
    t->changes = atomic_load(&rs_shared_changes);
    t->additions = atomic_load(&rs_shared_additions);
    t->num_regions = t->num_pieces = 0;
    t->reachable = 0;
    for (size_t i = 0; i < num && error == 0; i++) {
        const struct rsched_piece *p = &pieces[i];

        if (p->bytes == 0 || p->count == 0)
            continue;
        if (!maps)
            error = add_unreachable(t, p, 0, p->count);
        else
            error = p->count == 1 ? add_block(t, *p) : add_blocks(t, p);
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

uint64_t rs_table_bytes(const struct rs_table_maker *t)
{
    return sizeof(struct rs_table) + bytes_of_regions(t) + bytes_of_pieces(t);
}

void rs_table_write(const struct rs_table_maker *t, void *to)
{
    struct rs_table *table = to;

    *table = (struct rs_table){t->num_regions, t->num_pieces};
    if (t->num_regions > 0)
        memcpy(table + 1, t->regions, bytes_of_regions(t));
    if (t->num_pieces > 0)
        memcpy((char *)(table + 1) + bytes_of_regions(t), t->pieces,
               bytes_of_pieces(t));
}

bool rs_table_is_written(const struct rs_table_maker *t, const void *at)
{
    const struct rs_table *table = at;
    const char *regions = (const char *)(table + 1);

    return table->num_regions == t->num_regions &&
           table->num_pieces == t->num_pieces &&
           (t->num_regions == 0 ||
            memcmp(regions, t->regions, bytes_of_regions(t)) == 0) &&
           (t->num_pieces == 0 ||
            memcmp(regions + bytes_of_regions(t), t->pieces,
                   bytes_of_pieces(t)) == 0);
}

bool rs_table_is_readable(const struct rs_table_maker *t)
{
    enum { TOGETHER = 64 };
    struct iovec there[TOGETHER];
    char bytes[TOGETHER];
    size_t i = 0;

    while (i < t->num_pieces) {
        struct iovec here = {bytes, 0};
        ssize_t read;

        for (; i < t->num_pieces && here.iov_len < TOGETHER; i++) {
            if (t->pieces[i].region == RS_TABLE_CMA)
                there[here.iov_len++] =
                    (struct iovec){(void *)(uintptr_t)t->pieces[i].offset, 1};
        }
        if (here.iov_len == 0)
            break;
        read = process_vm_readv(getpid(), &here, 1, there, here.iov_len, 0);
        /* Where it reads nothing at all, whoever reads finds out. */
        if (read < 0 ? errno == EFAULT : read != (ssize_t)here.iov_len)
            return false;
    }
    return true;
}

void rs_table_parts(const struct rs_table_maker *t, bool reads,
                    struct rs_way_parts *parts)
{
    *parts = (struct rs_way_parts){.mapped.bytes = 0};
    for (size_t i = 0; i < t->num_pieces; i++) {
        const struct rs_table_piece *p = &t->pieces[i];
        struct rs_way_part *part = &parts->mapped;

        if (p->region == RS_TABLE_CMA || p->region == RS_TABLE_SLOTS)
            part = reads && p->bytes >= RS_TABLE_LEAST_READ ? &parts->readable
                                                            : &parts->rest;
        rs_way_part_add(part, p->bytes, p->count, p->stride);
    }
}

/* The first of the pages that do not lie below an address. */
static size_t first_behind(const struct rsched_piece *pages, size_t number,
                           const char *low)
{
    size_t from = 0;

    while (from < number) {
        size_t middle = from + (number - from) / 2;

        if (pages[middle].address + pages[middle].bytes > low)
            number = middle;
        else
            from = middle + 1;
    }
    return from;
}

/* The bytes of [low, high) in pages. */
static uint64_t bytes_in(const struct rsched_piece *pages, size_t number,
                         const char *low, const char *high)
{
    uint64_t bytes = 0;

    for (size_t i = first_behind(pages, number, low);
         i < number && pages[i].address < high; i++) {
        const char *start = pages[i].address, *end = start + pages[i].bytes;

        if (start < low)
            start = low;
        if (end > high)
            end = high;
        bytes += start < end ? (uint64_t)(end - start) : 0;
    }
    return bytes;
}

void rs_table_parts_add(struct rs_way_parts *parts,
                        const struct rsched_piece *pieces, size_t num,
                        const struct rsched_piece *pages, size_t num_pages)
{
    struct rs_way_part *const others[] = {&parts->rest, &parts->readable,
                                          &parts->huge};
    uint64_t whole = 0;
    char *low, *high;

    for (size_t i = 0; rs_pieces_run(pieces, num, &i, &low, &high);)
        whole += bytes_in(pages, num_pages, low, high);
    if (whole <= parts->mapped.bytes)
        return;
    whole -= parts->mapped.bytes;
    parts->mapped.bytes += whole;
    parts->mapped.blocks++;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        uint64_t bytes = whole < others[i]->bytes ? whole : others[i]->bytes;

        others[i]->bytes -= bytes;
        whole -= bytes;
    }
}

int rs_table_redirect(struct rs_table_maker *t, const struct rs_place *place,
                      struct rs_pieces *blocks)
{
    uint64_t at = 0, region;
    int error = add_region(t, place, &region);

    for (size_t i = 0; i < t->num_pieces && error == 0; i++) {
        struct rs_table_piece *entry = &t->pieces[i];
        struct rsched_piece block = {.address = (char *)(uintptr_t)entry->offset,
                                     .bytes = entry->bytes,
                                     .count = entry->count,
                                     .stride = entry->stride};

        if (entry->region != RS_TABLE_CMA)
            continue;
        error = rs_pieces_append(blocks, &block);
        entry->region = region;
        entry->offset = at;
        entry->stride = (int64_t)entry->bytes;
        at += entry->bytes * entry->count;
        t->reachable += entry->bytes * entry->count;
    }
    return error;
}

void rs_table_fini(struct rs_table_maker *t)
{
    free(t->regions);
    free(t->pieces);
    *t = (struct rs_table_maker){0};
}

/* ---- the receiver ---- */

bool rs_table_view(const void *address, uint64_t bytes,
                   struct rs_table_view *v)
{
    if (bytes < sizeof(v->head))
        return false;
    memcpy(&v->head, address, sizeof(v->head));
    bytes -= sizeof(v->head);
    if (v->head.num_regions > bytes / sizeof(*v->regions))
        return false;
    v->regions = (const void *)((const char *)address + sizeof(v->head));
    bytes -= v->head.num_regions * sizeof(*v->regions);
    if (v->head.num_pieces > bytes / sizeof(*v->pieces))
        return false;
    v->pieces = (const void *)(v->regions + v->head.num_regions);
    return true;
}

/* The lowest and the highest byte of a piece lie in its region. */
static bool lies_within(const struct rs_table_piece *p, uint64_t region_bytes)
{
    uint64_t distance = p->stride < 0 ? -(uint64_t)p->stride
                                      : (uint64_t)p->stride;
    uint64_t span, low = p->offset, end;

    if (p->bytes == 0 || p->count == 0 ||
        __builtin_mul_overflow(distance, p->count - 1, &span))
        return false;
    if (p->stride < 0) {
        if (span > low)
            return false;
        low -= span;
    }
    return !__builtin_add_overflow(low, span, &end) &&
           !__builtin_add_overflow(end, p->bytes, &end) && end <= region_bytes;
}

int rs_table_pieces(const struct rs_table_view *view,
                    const struct rs_place *places, char *other, uint64_t bytes,
                    struct rs_pieces *pieces)
{
    uint64_t together = 0, moved;
    int error = 0;

    pieces->number = 0;
    for (uint64_t i = 0; i < view->head.num_pieces && error == 0; i++) {
        const struct rs_table_piece *p = &view->pieces[i];
        struct rsched_piece from = {.address = other,
                                    .bytes = p->bytes,
                                    .count = p->count,
                                    .stride = p->stride};

        if (p->region == RS_TABLE_CMA) {
            from.address = (char *)(uintptr_t)p->offset;
        } else if (p->region == RS_TABLE_SLOTS) {
            if (other == NULL)
                return RSCHED_EMISMATCH;
            from.stride = 0;
        } else {
            if (p->region >= view->head.num_regions ||
                !lies_within(p, places[p->region].bytes))
                return RSCHED_EMISMATCH;
            from.address = places[p->region].address + p->offset;
        }
        if (p->bytes == 0 || p->count == 0 ||
            __builtin_mul_overflow(p->bytes, p->count, &moved) ||
            __builtin_add_overflow(together, moved, &together))
            return RSCHED_EMISMATCH;
        error = rs_pieces_append(pieces, &from);
    }
    return error == 0 && together != bytes ? RSCHED_EMISMATCH : error;
}

int rs_table_fetch(pid_t pid, const struct rsched_pull_notice *notice,
                   void **copy)
{
    struct iovec here = {NULL, notice->bytes};
    struct iovec there = {(void *)(uintptr_t)notice->table, notice->bytes};

    if (notice->bytes > MOST_BYTES)
        return rs_fail(RSCHED_EMISMATCH, "a table of %llu bytes",
                       (unsigned long long)notice->bytes);
    here.iov_base = malloc(notice->bytes + 1);
    if (here.iov_base == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
    if (pid == 0) {
        memcpy(here.iov_base, there.iov_base, notice->bytes);
    } else if (process_vm_readv(pid, &here, 1, &there, 1, 0) !=
               (ssize_t)notice->bytes) {
        int error = rs_fail(RSCHED_EUNREACH, "reading memory of process %d: %m",
                            (int)pid);

        free(here.iov_base);
        return error;
    }
    *copy = here.iov_base;
    return 0;
}
