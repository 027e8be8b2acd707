/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver of messages that it copies out of the sender's memory:
 * include/rsched/pull.h. */
#include <rsched/pull.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engines/common/copy.h"
#include "engines/common/iovecs.h"
#include "engines/common/maps.h"
#include "engines/common/prefetch.h"
#include "engines/common/process.h"
#include "engines/common/table.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/numa.h"
#include "librsched/base/ways.h"

enum {
    /* What the kernel reads into short blocks goes through a buffer of so many
     * bytes, which stay in the first cache. */
    ROOM = 16384,
};

struct rsched_pull_peer {
    pid_t pid;
    int numa_node;
    struct rs_maps maps;
};

struct rsched_pull_target {
    struct rsched_pull_peer *peer; /* NULL: this process */
    const struct rs_ways *ways;
    struct rs_pieces pieces;
    uint64_t bytes;
    uint64_t version; /* that the lists are made of; 0: none */
    uint64_t sent;    /* bytes of it */
    uint64_t mapped;  /* bytes of `copies` */
    uint64_t changes; /* of rs_shared_changes: regions may be ours, too */
    struct rs_map_list maps;
    struct rs_copies copies; /* out of mapped memory */
    struct rs_prefetch prefetch; /* of these */
    struct rs_iovecs iovecs; /* read by the kernel */
    /* The same, into blocks that are short: what is read, and where it goes. */
    struct rs_pieces far, near;
    struct rs_copies unpacked;
    uint64_t buffered; /* bytes */
};

int rsched_pull_peer_create(const struct rsched_pull_memory *memory,
                            struct rsched_pull_peer **peer)
{
    struct rsched_pull_peer *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a peer");
    p->pid = memory->pid;
    p->numa_node = memory->numa_node;
    rs_maps_open(&p->maps, memory->pid, memory->fd, memory->id);
    *peer = p;
    return 0;
}

void rsched_pull_peer_describe(const struct rsched_pull_peer *p,
                               struct rsched_pull_reader *reader)
{
    *reader = (struct rsched_pull_reader){
        .itself = p == NULL,
        .maps = p == NULL || p->maps.fd >= 0,
        .near = p == NULL || rs_numa_distance(rs_numa_kept(), p->numa_node) ==
                                 RS_DISTANCE_SAME_NUMA};
}

bool rsched_pull_peer_is_readable(const struct rsched_pull_peer *p)
{
    return p == NULL || rs_process_may_read(p->pid);
}

void rsched_pull_peer_destroy(struct rsched_pull_peer *p)
{
    if (p == NULL)
        return;
    rs_maps_fini(&p->maps);
    free(p);
}

int rsched_pull_target_create(struct rsched_pull_peer *peer,
                              const struct rsched_message *message,
                              const struct rs_ways *ways,
                              struct rsched_pull_target **target)
{
    struct rsched_pull_target *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a target");
    t->peer = peer;
    t->ways = ways;
    t->bytes = message->bytes;
    if (rs_pieces_copy(message, &t->pieces) != 0) {
        rsched_pull_target_destroy(t);
        return RSCHED_ENOMEM;
    }
    *target = t;
    return 0;
}

void rsched_pull_target_destroy(struct rsched_pull_target *t)
{
    if (t == NULL)
        return;
    if (t->peer != NULL)
        rs_map_list_fini(&t->maps, &t->peer->maps);
    rs_copies_fini(&t->copies);
    rs_copies_fini(&t->unpacked);
    rs_iovecs_fini(&t->iovecs);
    free(t->far.at);
    free(t->near.at);
    free(t->pieces.at);
    free(t);
}

static int unreachable(const struct rsched_pull_target *t)
{
    return rs_fail(RSCHED_EUNREACH, "reading memory of process %d: %m",
                   (int)t->peer->pid);
}

/* What cannot be mapped is read by the kernel; what the process sends to itself
 * is where it is. */
static void bypass(struct rs_table_view *view, struct rs_table_piece *pieces,
                   uint64_t region)
{
    for (uint64_t i = 0; i < view->head.num_pieces; i++) {
        if (pieces[i].region != region)
            continue;
        pieces[i].region = RS_TABLE_CMA;
        pieces[i].offset += view->regions[region].address;
    }
}

static int resolve(struct rsched_pull_target *t, struct rs_table_view *view,
                   struct rs_table_piece *pieces, struct rs_place *places)
{
    for (uint64_t i = 0; i < view->head.num_regions; i++) {
        const struct rs_table_region *r = &view->regions[i];
        int error = RSCHED_EUNREACH;

        places[i] = (struct rs_place){r->id, r->offset, r->bytes, NULL};
        if (t->peer != NULL)
            error = rs_map_list_get(&t->maps, &t->peer->maps, &places[i]);
        if (error == RSCHED_ENOMEM)
            return error;
        if (error != 0)
            bypass(view, pieces, i);
    }
    return 0;
}

struct matcher {
    struct rsched_pull_target *target;
    const struct rs_table_piece *pieces;
    size_t last; /* pieces behind this one are parts of it */
};

static int match(void *arg, size_t piece, size_t other,
                 const struct rs_copy *copy)
{
    const struct matcher *m = arg;
    struct rsched_pull_target *t = m->target;
    struct rsched_piece far = {copy->user, copy->bytes, copy->count,
                               copy->stride};
    struct rsched_piece near = {copy->other, copy->bytes, copy->count,
                                copy->other_stride};
    int error;

    (void)other;
    if (piece > m->last)
        piece = m->last;
    if (t->peer == NULL || m->pieces[piece].region != RS_TABLE_CMA) {
        t->mapped += copy->bytes * copy->count;
        return rs_copies_append_pair(&t->copies, copy, true, UINT64_MAX);
    }
    if (copy->bytes >= RS_TABLE_LEAST_READ)
        return rs_iovecs_add(&t->iovecs, copy);
    if (far.stride == (int64_t)far.bytes) {
        far.bytes *= far.count;
        far.count = 1;
    }
    t->buffered += copy->bytes * copy->count;
    error = rs_pieces_append(&t->far, &far);
    return error != 0 ? error : rs_pieces_append(&t->near, &near);
}

static int compile_lists(struct rsched_pull_target *t, struct rs_pieces *from,
                         const struct rs_table_piece *pieces)
{
    uint64_t bytes = t->sent < t->bytes ? t->sent : t->bytes;
    struct rs_pieces to = {.at = NULL};
    struct matcher m = {t, pieces, from->number};
    struct rsched_message source, target;
    size_t unused;
    int error = 0;

    for (size_t i = 0; i < t->pieces.number && error == 0; i++)
        error = rs_pieces_append(&to, &t->pieces.at[i]);
    if (error == 0)
        error = rs_pieces_cut(&to, bytes, &unused);
    if (error == 0)
        error = rs_pieces_cut(from, bytes, &m.last);
    source = rs_pieces_message(from, bytes);
    target = rs_pieces_message(&to, bytes);
    if (error == 0)
        error = rs_copies_match(&source, &target, match, &m);
    target = rs_pieces_message(&t->near, t->buffered);
    if (error == 0)
        error = rs_copies_compile(&t->unpacked, &target, ROOM);
    free(to.at);
    return error;
}

static void forget(struct rsched_pull_target *t)
{
    t->version = 0;
    t->mapped = t->buffered = 0;
    t->iovecs.number = t->far.number = t->near.number = 0;
    t->copies.num_copies = t->copies.num_chunks = 0;
    if (t->peer != NULL)
        rs_map_list_clear(&t->maps, &t->peer->maps);
}

/* The lists, of the table at `at`, which is a copy. */
static int compile_table(struct rsched_pull_target *t, void *at,
                         uint64_t bytes)
{
    struct rs_pieces from = {.at = NULL};
    struct rs_table_piece *pieces;
    struct rs_table_view view;
    struct rs_place *places;
    int error;

    if (!rs_table_view(at, bytes, &view))
        return RSCHED_EMISMATCH;
    pieces = (void *)((char *)at + ((const char *)view.pieces -
                                    (const char *)at));
    places = calloc(view.head.num_regions + 1, sizeof(*places));
    if (places == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a table");
    error = resolve(t, &view, pieces, places);
    if (error == 0)
        error = rs_table_pieces(&view, places, NULL, t->sent, &from);
    if (error == 0)
        error = compile_lists(t, &from, pieces);
    free(from.at);
    free(places);
    return error;
}

static int compile(struct rsched_pull_target *t,
                   const struct rsched_pull_notice *notice, uint64_t sent)
{
    uint64_t changes = atomic_load(&rs_shared_changes);
    void *table = NULL;
    int error;

    if (t->version == notice->version && t->sent == sent &&
        t->changes == changes)
        return 0;
    forget(t);
    t->sent = sent;
    t->changes = changes;
    error = rs_table_fetch(t->peer != NULL ? t->peer->pid : 0, notice, &table);
    if (error != 0)
        return error;
    error = compile_table(t, table, notice->bytes);
    free(table);
    if (error == RSCHED_EMISMATCH)
        error = rs_fail(error, "a table that is none of %llu bytes",
                        (unsigned long long)sent);
    if (error != 0)
        rs_prefetch_drop(&t->prefetch);
    else if (t->peer != NULL)
        rs_prefetch_load(&t->prefetch, &t->copies);
    else
        rs_prefetch_load_own(&t->prefetch, &t->copies);
    if (error == 0)
        t->version = notice->version;
    return error;
}

/* ---- reading ---- */

/* Where in what is far a walk stands. */
struct walk {
    const struct rsched_piece *piece;
    uint64_t block, within;
};

/* The next parts, of `bytes` together at most. @return how many */
static size_t step(struct walk *w, uint64_t *bytes, struct iovec *parts,
                   size_t room)
{
    uint64_t together = 0;
    size_t number = 0;

    while (together < *bytes && number < room) {
        const struct rsched_piece *p = w->piece;
        uint64_t part = p->bytes - w->within;

        if (part > *bytes - together)
            part = *bytes - together;
        parts[number++] = (struct iovec){
            p->address + (int64_t)w->block * p->stride + w->within, part};
        together += part;
        w->within += part;
        if (w->within < p->bytes)
            continue;
        w->within = 0;
        if (++w->block == p->count) {
            w->block = 0;
            w->piece++;
        }
    }
    *bytes = together;
    return number;
}

static int read_chunk(const struct rsched_pull_target *t, struct walk *w,
                      uint64_t bytes, char *to)
{
    enum { PARTS = 64 };

    while (bytes > 0) {
        uint64_t together = bytes;
        struct iovec there[PARTS];
        size_t number = step(w, &together, there, PARTS);
        struct iovec here = {to, together};

        if (process_vm_readv(t->peer->pid, &here, 1, there, number, 0) !=
            (ssize_t)together)
            return unreachable(t);
        to += together;
        bytes -= together;
    }
    return 0;
}

/* Into short blocks: a call of the kernel for each would cost more than to copy
 * them once more. */
static int read_buffered(const struct rsched_pull_target *t)
{
    struct walk walk = {.piece = t->far.at};
    int error = 0;

    for (uint32_t i = 0; i < t->unpacked.num_chunks && error == 0; i++) {
        const struct rs_chunk *chunk = &t->unpacked.chunks[i];
        char buffer[ROOM];

        error = read_chunk(t, &walk, chunk->bytes, buffer);
        if (error == 0)
            rs_copies_unpack(&t->unpacked, chunk, buffer);
    }
    return error;
}

static void read_alone(struct rsched_pull *p)
{
    if (p->error == 0 &&
        rs_iovecs_read(&p->target->iovecs, p->target->peer->pid) != 0)
        p->error = unreachable(p->target);
}

/* Of several messages, read in one call of the kernel. */
enum { BATCH = 64 };
struct batch {
    struct iovec here[BATCH], there[BATCH];
    size_t number;
    struct rsched_pull *first, *end; /* those that it is of are among these */
};

static void flush(struct batch *b)
{
    const struct rs_iovecs v = {
        .here = b->here, .there = b->there, .number = b->number};

    if (b->number > 0 &&
        rs_iovecs_read(&v, b->first->target->peer->pid) != 0) {
        for (struct rsched_pull *p = b->first; p < b->end; p++)
            read_alone(p);
    }
    b->number = 0;
}

static void add(struct batch *b, struct rsched_pull *p)
{
    const struct rs_iovecs *v = &p->target->iovecs;

    if (p->error != 0 || v->number == 0)
        return;
    if (v->number > BATCH) {
        read_alone(p);
        return;
    }
    if (b->number + v->number > BATCH)
        flush(b);
    if (b->number == 0)
        b->first = p;
    memcpy(b->here + b->number, v->here, v->number * sizeof(*v->here));
    memcpy(b->there + b->number, v->there, v->number * sizeof(*v->there));
    b->number += v->number;
    b->end = p + 1;
}

/* Whether more comes than stays in the caches until it is read. */
static bool is_nontemporal(const struct rsched_pull *p)
{
    uint64_t least = rs_config()->nontemporal_bytes;

    if (least == RS_LIMIT_AUTO) /* alike at every distance */
        least = p->target->ways->host[RS_DISTANCE_SAME_NUMA].nontemporal;
    return least > 0 &&
           (p->incoming >= least || p->target->mapped >= least);
}

void rsched_pull_copy(struct rsched_pull *pulls, size_t num)
{
    struct batch batch = {.number = 0};

    for (struct rsched_pull *p = pulls; p < pulls + num; p++) {
        p->error = compile(p->target, &p->notice, p->bytes);
        p->mapped = p->error == 0 ? p->target->mapped : 0;
        p->nontemporal = p->prefetched = 0;
        add(&batch, p);
    }
    flush(&batch);
    for (struct rsched_pull *p = pulls; p < pulls + num; p++) {
        if (p->error != 0)
            continue;
        p->target->copies.nontemporal = is_nontemporal(p);
        p->prefetched = rs_prefetch_run(&p->target->prefetch, &p->target->copies, p->timed,
                                        &p->nontemporal);
        if (p->target->buffered > 0)
            p->error = read_buffered(p->target);
    }
}
