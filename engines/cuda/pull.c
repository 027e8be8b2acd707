/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of where a message lies: made by the sender, opened by the receiver. */
#include <stdlib.h>
#include <string.h>

#include "engines/cuda/lane.h"
#include "librsched/base/array.h"
#include "librsched/base/error.h"

/* ---- sender ---- */

static void withdraw(struct rs_cuda_lane *l)
{
    while (l->num_regions > 0)
        rs_cuda_region_withdraw(&l->regions[--l->num_regions]);
}

static bool has(const struct rs_cuda_region *r, const char *address)
{
    return (uintptr_t)address - r->start < r->bytes;
}

static bool has_all(const struct rs_cuda_region *r,
                    const struct rsched_piece *p)
{
    int64_t span = (int64_t)(p->count - 1) * p->stride;

    return has(r, p->address + (span < 0 ? span : 0)) &&
           has(r, p->address + (span > 0 ? span : 0) + p->bytes - 1);
}

/* The region of an address, exported at first. */
static int find_region(struct rs_cuda_lane *l, const char *address,
                       uint64_t *number)
{
    struct rs_cuda_region *larger;
    int error;

    for (size_t i = 0; i < l->num_regions; i++) {
        if (has(&l->regions[i], address)) {
            *number = i;
            return 0;
        }
    }
    larger = rs_array_grow(l->regions, &l->room_regions, l->num_regions + 1,
                           sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
    l->regions = larger;
    error = rs_cuda_region_export(l->lane.connection, address,
                                  &l->regions[l->num_regions]);
    if (error == 0)
        *number = l->num_regions++;
    return error;
}

/* With descriptors as if all of them were sent, where any may be. */
static void write_regions(const struct rs_cuda_lane *l, char *table)
{
    bool sends = l->lane.connection->notes.out >= 0;

    for (size_t i = 0; i < l->num_regions; i++) {
        struct rs_cuda_region r = l->regions[i];

        r.fd = sends ? -1 : r.fd;
        memcpy(table + i * sizeof(r), &r, sizeof(r));
    }
}

static int make_pieces(struct rs_cuda_lane *l,
                       struct rs_cuda_table_piece *pieces)
{
    const struct rs_cuda_message *m = &l->message;
    int error = 0;

    for (size_t i = 0; i < m->num_pieces && error == 0; i++) {
        const struct rsched_piece *p = &m->pieces[i].piece;

        pieces[i] = (struct rs_cuda_table_piece){
            .bytes = p->bytes, .count = p->count, .stride = p->stride};
        error = find_region(l, p->address, &pieces[i].region);
        if (error == 0 && !has_all(&l->regions[pieces[i].region], p))
            error = rs_fail(RSCHED_ENOTSUP, "a block across several mappings "
                                            "(cuMemMap)");
        if (error == 0)
            pieces[i].offset = (uintptr_t)p->address -
                               l->regions[pieces[i].region].start;
    }
    return error;
}

/* Whether a table has descriptors that nobody sends. */
static bool has_unsent(const struct rs_cuda_lane *l)
{
    for (size_t i = 0; i < l->num_regions; i++) {
        if (l->regions[i].kind == RS_CUDA_DESCRIPTOR &&
            l->lane.connection->notes.out < 0)
            return true;
    }
    return false;
}

/* Whether the one that there is says the same, sent or not: its descriptors have been
 * sent. Those that are not are new ones in each table, though they may have the
 * numbers of those that were closed, so one that has any has another version. */
static bool is_same(const struct rs_cuda_lane *l, const char *table,
                    size_t bytes)
{
    return l->version != 0 && bytes == l->table_bytes && !has_unsent(l) &&
           memcmp(table, l->table, bytes) == 0;
}

/* The table is a new one: send its descriptors. Those that cannot be sent are there
 * to be taken, and the table says which they are. */
static void send_descriptors(struct rs_cuda_lane *l)
{
    struct rs_cuda_notes *notes = &l->lane.connection->notes;
    char *at = l->table + sizeof(struct rs_cuda_table);

    for (size_t i = 0; i < l->num_regions; i++) {
        struct rs_cuda_region *r = &l->regions[i];
        const struct rs_cuda_note note = {(uint64_t)(uintptr_t)l, l->version,
                                          r->buffer, r->start};

        if (r->kind == RS_CUDA_DESCRIPTOR && notes->out >= 0 &&
            rs_cuda_notes_send(notes, &note, r->fd) == 0) {
            l->has_sent = true;
            rs_cuda_region_withdraw(r);
        }
        memcpy(at + i * sizeof(*r), r, sizeof(*r));
    }
}

/* Of a table that will not be opened any more. */
static void take_back_descriptors(struct rs_cuda_lane *l)
{
    const struct rs_cuda_note note = {(uint64_t)(uintptr_t)l, UINT64_MAX, 0, 0};

    if (l->has_sent)
        rs_cuda_notes_send(&l->lane.connection->notes, &note, -1);
}

static int keep_table(struct rs_cuda_lane *l,
                      const struct rs_cuda_table_piece *pieces)
{
    const struct rs_cuda_table head = {l->num_regions, l->message.num_pieces};
    size_t regions = l->num_regions * sizeof(*l->regions);
    size_t bytes = sizeof(head) + regions + head.num_pieces * sizeof(*pieces);
    char *table = malloc(bytes);

    if (table == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
    memcpy(table, &head, sizeof(head));
    write_regions(l, table + sizeof(head));
    memcpy(table + sizeof(head) + regions, pieces,
           head.num_pieces * sizeof(*pieces));
    if (is_same(l, table, bytes)) {
        for (size_t i = 0; i < l->num_regions; i++)
            rs_cuda_region_withdraw(&l->regions[i]); /* the peer gets those before */
        free(table);
        return 0;
    }
    free(l->table);
    l->table = table;
    l->table_bytes = bytes;
    l->version++;
    send_descriptors(l);
    return 0;
}

int rs_cuda_pull_load(struct rs_cuda_lane *l)
{
    struct rs_cuda_table_piece *pieces;
    int error;

    withdraw(l);
    pieces = calloc(l->message.num_pieces + 1, sizeof(*pieces));
    if (pieces == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
    error = rs_stream_enter(&l->stream);
    if (error == 0) {
        error = make_pieces(l, pieces);
        rs_stream_leave(&l->stream);
    }
    if (error == 0)
        error = keep_table(l, pieces);
    free(pieces);
    return error;
}

/* ---- receiver ---- */

static int bad_table(void)
{
    return rs_fail(RSCHED_EMISMATCH, "a table of GPU memory that is none");
}

/* What a message of so many bytes can need, and then some. */
#define MOST_TABLE (UINT64_C(1) << 32)

int rs_cuda_pull_take(struct rs_cuda_lane *l, const struct rs_cuda_slot *slot,
                      const char *part)
{
    if (slot->version != l->version) {
        char *table;

        rs_cuda_pull_forget(l);
        if (slot->table > MOST_TABLE)
            return bad_table();
        table = realloc(l->table, slot->table + 1);
        if (table == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for a table");
        l->table = table;
        l->table_bytes = slot->table;
        l->table_at = 0;
        l->version = slot->version;
    }
    if (slot->part > rs_cuda_room(l) ||
        slot->part > l->table_bytes - l->table_at)
        return bad_table();
    memcpy(l->table + l->table_at, part, slot->part);
    l->table_at += slot->part;
    return 0;
}

/* The table's parts; nothing in it is believed. */
struct view {
    struct rs_cuda_table head;
    const struct rs_cuda_region *regions;
    const struct rs_cuda_table_piece *pieces;
};

static int view_table(const struct rs_cuda_lane *l, struct view *v)
{
    size_t rest = l->table_bytes, regions;

    if (l->table == NULL || rest < sizeof(v->head) || l->table_at != rest)
        return bad_table();
    memcpy(&v->head, l->table, sizeof(v->head));
    rest -= sizeof(v->head);
    if (v->head.num_regions == 0 ||
        v->head.num_regions > rest / sizeof(*v->regions))
        return bad_table();
    regions = v->head.num_regions * sizeof(*v->regions);
    rest -= regions;
    if (rest % sizeof(*v->pieces) != 0 ||
        v->head.num_pieces != rest / sizeof(*v->pieces))
        return bad_table();
    /* malloc aligns the table, and all of its parts are of whole words. */
    v->regions = (const void *)(l->table + sizeof(v->head));
    v->pieces = (const void *)(l->table + sizeof(v->head) + regions);
    return 0;
}

/* All blocks of a piece are within its region. */
static bool is_within(const struct rs_cuda_table_piece *p,
                      const struct rs_cuda_region *r)
{
    __int128 span, low, high;

    if (p->bytes == 0 || p->count == 0)
        return false;
    span = (__int128)(p->count - 1) * p->stride;
    low = (__int128)p->offset + (span < 0 ? span : 0);
    high = (__int128)p->offset + (span > 0 ? span : 0) + p->bytes;
    return low >= 0 && high <= (__int128)r->bytes;
}

/* All but the last `kept`. The driver may wait for streams. */
static void close_regions(struct rs_cuda_lane *l, size_t kept)
{
    size_t number = l->num_open - kept;

    for (size_t i = 0; i < number; i++)
        rs_cuda_region_close(l->open[i]);
    if (kept > 0)
        memmove(l->open, l->open + number, kept * sizeof(*l->open));
    l->num_open = kept;
    l->first_open = 0;
}

static bool has_opened(const struct rs_cuda_lane *l, size_t first,
                       const struct rs_cuda_opened *o)
{
    for (size_t i = first; i < l->num_open; i++) {
        if (l->open[i] == o)
            return true;
    }
    return false;
}

/* Of what is open twice now, once is enough. */
static void keep_former(struct rs_cuda_lane *l, size_t number)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->num_open; i++) {
        if (i < number && has_opened(l, number, l->open[i]))
            rs_cuda_region_close(l->open[i]);
        else
            l->open[kept++] = l->open[i];
    }
    l->first_open = kept - (l->num_open - number);
    l->num_open = kept;
}

/* What former tables have named stays open: the stream that this epoch is for
 * may be what the driver would wait for. */
static int open_regions(struct rs_cuda_lane *l, const struct view *v)
{
    size_t former = l->num_open;
    struct rs_cuda_opened **larger = rs_array_grow(
        l->open, &l->room_open, former + v->head.num_regions, sizeof(*larger));
    int error = 0;

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
    l->open = larger;
    l->first_open = former;
    for (uint64_t i = 0; i < v->head.num_regions && error == 0; i++) {
        error = rs_cuda_region_open(l->lane.connection, &v->regions[i],
                                    l->stream.context, l->stream.gpu,
                                    &l->open[l->num_open]);
        l->num_open += error == 0;
    }
    if (error != 0)
        return error;
    keep_former(l, former);
    l->version_open = l->version;
    return 0;
}

static bool is_open(const struct rs_cuda_lane *l)
{
    return l->num_open > l->first_open && l->version_open == l->version &&
           l->open[l->first_open]->context == l->stream.context;
}

/* The sender's pieces, as they lie here. @return bytes, 0: it is no table */
static uint64_t translate(const struct rs_cuda_lane *l, const struct view *v,
                          struct rsched_piece *pieces)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < v->head.num_pieces; i++) {
        const struct rs_cuda_table_piece *p = &v->pieces[i];
        uint64_t all;

        if (p->region >= v->head.num_regions ||
            !is_within(p, &v->regions[p->region]) ||
            __builtin_mul_overflow(p->bytes, p->count, &all) ||
            __builtin_add_overflow(bytes, all, &bytes))
            return 0;
        pieces[i] = (struct rsched_piece){
            .address = l->open[l->first_open + p->region]->address + p->offset,
            .bytes = p->bytes,
            .count = p->count,
            .stride = p->stride};
    }
    return bytes;
}

/* Kernels reach what has been opened, and what is their own GPU's.
 * @return who copies: WITHIN if all of it is the GPU's */
static enum rs_mover mover_of_regions(const struct rs_cuda_lane *l)
{
    enum rs_mover mover = RS_MOVER_WITHIN;

    if (l->batch == NULL)
        return RS_MOVER_COPY_ENGINE;
    for (size_t i = l->first_open; i < l->num_open; i++) {
        const struct rs_cuda_region *r = &l->open[i]->region;
        int gpu;

        if (rs_cuda_gpu_of(r->gpu, &gpu) == 0 && gpu == l->stream.gpu)
            continue;
        if (r->kind == RS_CUDA_ADDRESS)
            return RS_MOVER_COPY_ENGINE;
        mover = RS_MOVER_KERNEL;
    }
    return mover;
}

struct reach {
    const struct rs_cuda_lane *lane;
    enum rs_mover theirs;
};

static enum rs_mover mover_of_pull(const void *arg, const struct rs_copy *c)
{
    const struct reach *reach = arg;
    const struct rs_cuda_lane *l = reach->lane;

    return rs_cuda_gpu_of_block(&l->message, c->other) == l->stream.gpu
               ? reach->theirs
               : RS_MOVER_COPY_ENGINE;
}

static int compile(struct rs_cuda_lane *l, const struct view *v)
{
    const struct reach reach = {l, mover_of_regions(l)};
    size_t n = l->message.num_pieces;
    struct rsched_piece *theirs = calloc(v->head.num_pieces + 1,
                                         sizeof(*theirs));
    struct rsched_piece *own = calloc(n + 1, sizeof(*own));
    struct rsched_message from = {.pieces = theirs,
                                  .num_pieces = v->head.num_pieces,
                                  .bytes = l->message.bytes};
    struct rsched_message to = {.pieces = own,
                                .num_pieces = n,
                                .bytes = l->message.bytes};
    int error;

    if (theirs == NULL || own == NULL) {
        error = rs_fail(RSCHED_ENOMEM, "no memory for a copy list");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        own[i] = l->message.pieces[i].piece;
    error = translate(l, v, theirs) == to.bytes
                ? rs_copies_compile_pair(&l->straight.copies, &from, &to)
                : bad_table();
    if (error == 0)
        error = rs_moves_compile(&l->straight, RS_STRAIGHT, mover_of_pull,
                                 &reach, rs_cuda_lane_launch(l), &l->stream);
out:
    free(theirs);
    free(own);
    return error;
}

void rs_cuda_pull_recall(struct rs_cuda_lane *l)
{
    if (l->table != NULL && l->table_at == l->table_bytes &&
        !rs_stream_is_open(&l->stream))
        l->new_table = true;
}

/* Which GPU of this process copies: its own if it has one, else the sender's. */
int rs_cuda_pull_stream(struct rs_cuda_lane *l)
{
    struct view v = {.regions = NULL};
    int gpu, error = view_table(l, &v);

    if (error == 0 && !l->message.on_gpu) {
        error = rs_cuda_gpu_of(v.regions[0].gpu, &gpu);
        if (error == 0)
            error = rs_cuda_lane_stream(l, gpu);
    }
    return error;
}

int rs_cuda_pull_reach(struct rs_cuda_lane *l)
{
    struct view v = {.regions = NULL};
    int error = view_table(l, &v);

    if (error == 0 && !is_open(l))
        error = open_regions(l, &v);
    if (error != 0)
        l->first_open = l->num_open;
    return error;
}

bool rs_cuda_pull_close_stale(struct rs_cuda_lane *l)
{
    struct view v = {.regions = NULL};
    bool any = false;

    if (view_table(l, &v) != 0)
        return false;
    for (uint64_t i = 0; i < v.head.num_regions; i++)
        any |= rs_cuda_region_close_stale(&v.regions[i]);
    return any;
}

int rs_cuda_pull_open(struct rs_cuda_lane *l)
{
    struct view v = {.regions = NULL};
    int error;

    if (l->straight.copies.num_copies > 0)
        return 0;
    error = view_table(l, &v);
    if (error == 0 && !is_open(l))
        error = open_regions(l, &v);
    if (error == 0)
        error = compile(l, &v);
    if (error != 0) {
        l->straight.copies.num_copies = 0;
        l->first_open = l->num_open;
    }
    return error;
}

/* What the last table names stays open: the next one may be the same. */
void rs_cuda_pull_forget(struct rs_cuda_lane *l)
{
    l->straight.copies.num_copies = 0;
}

/* Allocations that senders may take turns with. */
enum { KEPT = 4 };

void rs_cuda_pull_tidy(struct rs_cuda_lane *l)
{
    if (l->num_open > KEPT)
        close_regions(l, l->num_open - l->first_open);
}

void rs_cuda_pull_fini(struct rs_cuda_lane *l)
{
    take_back_descriptors(l);
    withdraw(l);
    close_regions(l, 0);
    free(l->open);
    rs_moves_fini(&l->straight);
    free(l->regions);
    free(l->table);
    free(l->no_stream_text);
}
