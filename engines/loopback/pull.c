/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of messages that are copied once. */
#include "engines/loopback/pull.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engines/loopback/lane.h"
#include "librsched/base/array.h"
#include "librsched/base/error.h"

static struct rs_maps *maps_of(const struct lane *l)
{
    return &l->lane.connection->maps;
}

static void put_maps(struct rs_pull *pull, struct rs_maps *maps)
{
    while (pull->num_maps > 0)
        rs_maps_put(maps, pull->maps[--pull->num_maps]);
}

static int get_place(struct lane *l, struct rs_place *place)
{
    struct rs_pull *pull = &l->pull;
    struct rs_map **larger = rs_array_grow(pull->maps, &pull->room_maps,
                                           pull->num_maps + 1,
                                           sizeof(*larger));
    struct rs_map *map;
    int error;

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for mappings");
    pull->maps = larger;
    error = rs_maps_get(maps_of(l), place, &map);
    if (error == 0)
        pull->maps[pull->num_maps++] = map;
    return error;
}

static int bad_table(const struct lane *l)
{
    return rs_fail(RSCHED_EMISMATCH,
                   "loopback: peer %d: its message is not in its memory",
                   l->lane.connection->peer);
}

/* The lowest and the highest byte of a piece lie in its region. */
static bool is_within(const struct rs_table_piece *p, uint64_t region_bytes)
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

/* The parts of a table. */
struct view {
    struct rs_table head;
    const struct rs_table_region *regions;
    const struct rs_table_piece *pieces;
};

static int view_table(const struct lane *l, const void *address,
                      uint64_t bytes, struct view *v)
{
    if (bytes < sizeof(v->head))
        return bad_table(l);
    memcpy(&v->head, address, sizeof(v->head));
    bytes -= sizeof(v->head);
    if (v->head.num_regions > bytes / sizeof(*v->regions))
        return bad_table(l);
    v->regions = (const void *)((const char *)address + sizeof(v->head));
    bytes -= v->head.num_regions * sizeof(*v->regions);
    if (v->head.num_pieces > bytes / sizeof(*v->pieces))
        return bad_table(l);
    v->pieces = (const void *)(v->regions + v->head.num_regions);
    return 0;
}

/* What the table says, with addresses of this process. Pieces that come
 * through slots have any. */
static int read_pieces(struct lane *l, const struct view *v,
                       struct rs_pieces *pieces)
{
    const struct rs_table *table = &v->head;
    struct rs_place *places =
        calloc(table->num_regions + 1, sizeof(*places));
    uint64_t bytes = 0, moved;
    int error = 0;

    if (places == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a table");
    for (uint64_t i = 0; i < table->num_regions && error == 0; i++) {
        places[i] = (struct rs_place){v->regions[i].id, v->regions[i].offset,
                                      v->regions[i].bytes, NULL};
        error = get_place(l, &places[i]);
    }
    pieces->number = 0;
    for (uint64_t i = 0; i < table->num_pieces && error == 0; i++) {
        const struct rs_table_piece *p = &v->pieces[i];
        struct rsched_piece from = {.address = l->ring.slots,
                                    .bytes = p->bytes,
                                    .count = p->count};

        if (p->region == RS_TABLE_CMA) {
            from.address = (char *)(uintptr_t)p->offset;
            from.stride = p->stride;
        } else if (p->region != RS_TABLE_SLOTS) {
            if (p->region >= table->num_regions ||
                !is_within(p, places[p->region].bytes)) {
                error = bad_table(l);
                break;
            }
            from.address = places[p->region].address + p->offset;
            from.stride = p->stride;
        }
        if (__builtin_mul_overflow(p->bytes, p->count, &moved) ||
            __builtin_add_overflow(bytes, moved, &bytes) ||
            p->bytes == 0 || p->count == 0) {
            error = bad_table(l);
            break;
        }
        error = rs_pieces_append(pieces, &from);
    }
    free(places);
    return error == 0 && bytes != l->bytes ? bad_table(l) : error;
}

static int add_iovec(struct rs_iovecs *v, char *here, char *there,
                     uint64_t bytes)
{
    struct iovec *last = v->number > 0 ? &v->here[v->number - 1] : NULL;
    struct iovec *larger;

    if (last != NULL && (char *)last->iov_base + last->iov_len == here &&
        (char *)v->there[v->number - 1].iov_base + last->iov_len == there) {
        last->iov_len += bytes;
        v->there[v->number - 1].iov_len += bytes;
        return 0;
    }
    larger = rs_array_grow(v->here, &v->room_here, v->number + 1,
                           sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a copy list");
    v->here = larger;
    larger = rs_array_grow(v->there, &v->room_there, v->number + 1,
                           sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a copy list");
    v->there = larger;
    v->here[v->number] = (struct iovec){here, bytes};
    v->there[v->number++] = (struct iovec){there, bytes};
    return 0;
}

static int add_iovecs(struct rs_iovecs *v, const struct rs_copy *copy)
{
    int error = 0;

    for (uint64_t i = 0; i < copy->count && error == 0; i++)
        error = add_iovec(v, copy->other + (int64_t)i * copy->other_stride,
                          copy->user + (int64_t)i * copy->stride, copy->bytes);
    return error;
}

struct matcher {
    struct rs_pull *pull;
    const struct rs_table_piece *pieces;
};

static int match(void *arg, size_t piece, size_t other,
                 const struct rs_copy *copy)
{
    const struct matcher *m = arg;
    struct rsched_piece to = {.address = copy->other,
                              .bytes = copy->bytes,
                              .count = copy->count,
                              .stride = copy->other_stride};

    (void)other;
    if (m->pieces[piece].region == RS_TABLE_SLOTS)
        return rs_pieces_append(&m->pull->slots, &to);
    if (m->pieces[piece].region == RS_TABLE_CMA)
        return add_iovecs(&m->pull->iovecs, copy);
    return rs_copies_append_pair(&m->pull->copies, copy, true, m->pull->chunk);
}

static int compile(struct lane *l, const struct view *v,
                   const struct rsched_message *to)
{
    struct rs_pull *pull = &l->pull;
    struct matcher m = {pull, v->pieces};
    struct rsched_message from;
    int error = read_pieces(l, v, &pull->from);

    if (error != 0)
        return error;
    from = (struct rsched_message){.pieces = pull->from.at,
                                   .num_pieces = pull->from.number,
                                   .bytes = l->bytes};
    pull->slots.number = pull->iovecs.number = 0;
    pull->copies.num_copies = pull->copies.num_chunks = 0;
    return rs_copies_match(&from, to, match, &m);
}

int rs_pull_compile(struct lane *l, const struct rs_announcement *a)
{
    struct rs_place place = {maps_of(l)->id, a->offset, a->bytes, NULL};
    struct rsched_message to = lane_message(l);
    struct rs_pull *pull = &l->pull;
    struct view v = {.regions = NULL};
    int error;

    rs_pull_forget(pull);
    put_maps(pull, maps_of(l));
    error = get_place(l, &place);
    if (error == 0)
        error = view_table(l, place.address, a->bytes, &v);
    if (error == 0)
        error = compile(l, &v, &to);
    if (error == 0)
        error = rs_pieces_compile(&pull->slots, l, &pull->rest);
    if (error == 0 && pull->rest.num_chunks != a->rest)
        error = bad_table(l);
    if (error == 0)
        pull->announcement = *a;
    return error;
}

int rs_pull_skip(struct lane *l, const struct rs_announcement *a)
{
    struct rs_copies *rest = &l->pull.rest;

    rs_pull_forget(&l->pull);
    if (a->rest > UINT32_MAX)
        return bad_table(l);
    rs_copies_fini(rest);
    rest->chunks = calloc(a->rest + 1, sizeof(*rest->chunks));
    if (rest->chunks == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a copy list");
    rest->num_chunks = rest->room_chunks = (uint32_t)a->rest;
    return 0;
}

bool rs_pull_may_read(int pid)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {NULL, 1};

    /* Nothing is there: whoever may read is told just that. */
    return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 &&
           errno == EFAULT;
}

/* Parts of a call, which the kernel limits to IOV_MAX; those that begin in
 * the middle of an iovec are read alone. @return bytes read, or -1 */
static ssize_t read_some(pid_t pid, const struct rs_iovecs *v, size_t first,
                         size_t within)
{
    size_t number = v->number - first;
    struct iovec here = v->here[first], there = v->there[first];

    if (within == 0)
        return process_vm_readv(pid, &v->here[first],
                                number < IOV_MAX ? number : IOV_MAX,
                                &v->there[first],
                                number < IOV_MAX ? number : IOV_MAX, 0);
    here.iov_base = (char *)here.iov_base + within;
    there.iov_base = (char *)there.iov_base + within;
    here.iov_len = there.iov_len = here.iov_len - within;
    return process_vm_readv(pid, &here, 1, &there, 1, 0);
}

int rs_pull_read(struct lane *l)
{
    struct rsched_connection *c = l->lane.connection;
    const struct rs_iovecs *v = &l->pull.iovecs;
    size_t at = 0, within = 0;

    while (at < v->number) {
        ssize_t got = read_some(c->pid, v, at, within);

        if (got <= 0) {
            int error = errno;

            /* The number of a dead process may be another's by now. */
            if (rs_connection_is_dead(c))
                break;
            errno = error;
            return rs_fail(RSCHED_EUNREACH,
                           "loopback: peer %d: reading its memory: %m",
                           c->peer);
        }
        within += (size_t)got;
        while (at < v->number && within >= v->here[at].iov_len)
            within -= v->here[at++].iov_len;
    }
    if (v->number == 0 || !rs_connection_is_dead(c))
        return 0;
    return rs_fail(RSCHED_EPEER, "loopback: peer %d (pid %d) is dead", c->peer,
                   (int)c->pid);
}

/* ---- shared work ---- */

/* The number of an epoch that is announced, the same on both sides; not 0. */
static uint64_t epoch_of(uint64_t sequence)
{
    return (sequence + 1) << RS_WORK_BITS;
}

#define ONE_SIDE ((UINT64_C(1) << RS_WORK_SIDE_BITS) - 1)

/* How many chunks of an epoch are claimed. */
static uint64_t claimed(uint64_t claims)
{
    return (claims & ONE_SIDE) + (claims >> RS_WORK_SIDE_BITS & ONE_SIDE);
}

/* @return the number of a chunk, or UINT32_MAX if there is none for us */
static uint32_t claim_chunk(const struct lane *l, uint64_t epoch)
{
    const uint64_t one = l->sends ? ONE_SIDE + 1 : 1;
    const uint32_t num_chunks = l->pull.copies.num_chunks;
    struct rs_work *work = work_of(l->ring.words);
    uint64_t old = atomic_load_explicit(&work->claim, memory_order_relaxed);

    do {
        if (old >> RS_WORK_BITS != epoch >> RS_WORK_BITS ||
            claimed(old) >= num_chunks)
            return UINT32_MAX;
        /* Acquire: what the receiver did before it offered the epoch. */
    } while (!atomic_compare_exchange_weak_explicit(
        &work->claim, &old, old + one, memory_order_acquire,
        memory_order_relaxed));
    if (l->sends)
        return num_chunks - 1 - (uint32_t)(old >> RS_WORK_SIDE_BITS & ONE_SIDE);
    return (uint32_t)(old & ONE_SIDE);
}

/* @return the bytes that this side has copied */
static uint64_t copy_chunks(struct lane *l, uint64_t epoch)
{
    struct rs_work *work = work_of(l->ring.words);
    const struct rs_copies *copies = &l->pull.copies;
    uint64_t bytes = 0;

    for (;;) {
        uint32_t chunk = claim_chunk(l, epoch);

        if (chunk == UINT32_MAX)
            return bytes;
        l->lane.stats.nontemporal +=
            rs_copies_run_chunk(copies, &copies->chunks[chunk]);
        bytes += copies->chunks[chunk].bytes;
        /* Release: the bytes are there before they are counted. */
        atomic_fetch_add_explicit(&work->done, 1, memory_order_release);
    }
}

static void offer(struct lane *l, uint64_t epoch)
{
    struct rs_work *work = work_of(l->ring.words);
    const struct rs_announcement *table = &l->pull.offer;

    work->table[0] = table->offset;
    work->table[1] = table->bytes;
    work->table[2] = table->version;
    work->chunk = l->pull.chunk;
    work->nontemporal = l->pull.copies.nontemporal;
    atomic_store_explicit(&work->claim, epoch, memory_order_relaxed);
    atomic_store_explicit(&work->done, epoch, memory_order_relaxed);
    /* Release: all of this is there before the sender sees the epoch. */
    atomic_store_explicit(&work->offered, epoch, memory_order_release);
}

/* How often to look for the sender's last chunk before others are served. */
enum { DONE_POLLS = 1000 };

int rs_pull_copy(struct lane *l)
{
    struct rs_pull *pull = &l->pull;
    struct rs_work *work = work_of(l->ring.words);
    uint64_t epoch = epoch_of(l->ring.sequence);

    if (!pull->sharing && pull->shares && rs_pull_is_stale(pull) &&
        rs_pull_offer(l) != 0)
        rs_pull_withdraw(l);
    if (!pull->sharing && (!pull->shares || pull->copies.num_chunks < 2 ||
                           pull->copies.num_chunks > ONE_SIDE)) {
        l->lane.stats.nontemporal += rs_copies_run_pair(&pull->copies);
        return RSCHED_LANE_DONE;
    }
    if (!pull->sharing)
        offer(l, epoch);
    pull->sharing = true;
    copy_chunks(l, epoch);
    for (int i = 0; i < DONE_POLLS; i++) {
        /* Acquire: what the sender has copied. */
        if (atomic_load_explicit(&work->done, memory_order_acquire) ==
            epoch + pull->copies.num_chunks) {
            pull->sharing = false;
            return RSCHED_LANE_DONE;
        }
    }
    return RSCHED_LANE_PENDING;
}

/* The same list as the receiver's, with addresses of this process. */
static int compile_help(struct lane *l, const struct rs_announcement *a)
{
    struct rs_place place = {maps_of(l)->id, a->offset, a->bytes, NULL};
    struct rs_pull *pull = &l->pull;
    struct rsched_message to;
    struct view own = {.regions = NULL}, theirs = own;
    int error;

    pull->offer.version = 0;
    pull->chunk = work_of(l->ring.words)->chunk;
    if (pull->chunk == 0)
        return bad_table(l);
    put_maps(pull, maps_of(l));
    error = get_place(l, &place);
    if (error == 0)
        error = view_table(l, place.address, a->bytes, &theirs);
    if (error == 0)
        error = read_pieces(l, &theirs, &pull->to);
    if (error == 0)
        error = view_table(l, pull->table.place.address,
                           pull->table.place.bytes, &own);
    if (error != 0)
        return error;
    to = (struct rsched_message){.pieces = pull->to.at,
                                 .num_pieces = pull->to.number,
                                 .bytes = l->bytes};
    error = compile(l, &own, &to);
    if (error == 0)
        pull->offer = *a;
    return error;
}

/* The receiver's table stays as it is while it sees that we read it: it looks
 * after it has withdrawn the offer, we look for the offer after we have said so
 * (sequentially consistent on both sides). */
static bool try_compile_help(struct lane *l, struct rs_work *work,
                             uint64_t epoch, const struct rs_announcement *a)
{
    bool good;

    atomic_store(&work->reads_table, 1);
    good = atomic_load(&work->offered) == epoch && compile_help(l, a) == 0;
    atomic_store(&work->reads_table, 0);
    return good;
}

void rs_pull_withdraw(struct lane *l)
{
    struct rs_work *work;

    if (!l->pull.shares)
        return;
    work = work_of(l->ring.words);
    l->pull.shares = false;
    atomic_store(&work->offered, 0);
    while (atomic_load(&work->reads_table) != 0 &&
           !rs_connection_is_dead(l->lane.connection))
        sched_yield();
}

bool rs_pull_help(struct lane *l)
{
    struct rs_work *work = work_of(l->ring.words);
    struct rs_pull *pull = &l->pull;
    struct rs_announcement a = {0};
    uint64_t epoch = epoch_of(pull->announced), copied;

    /* Acquire: what the receiver offers. */
    if (atomic_load_explicit(&work->offered, memory_order_acquire) != epoch)
        return false;
    a.offset = work->table[0];
    a.bytes = work->table[1];
    a.version = work->table[2];
    a.rest = pull->announcement.version; /* both tables matter */
    if (memcmp(&a, &pull->offer, sizeof(a)) != 0 &&
        !try_compile_help(l, work, epoch, &a))
        return false;
    pull->copies.nontemporal = work->nontemporal != 0;
    copied = copy_chunks(l, epoch);
    pull->helped += copied;
    return copied > 0;
}

void rs_pull_close(struct lane *l)
{
    struct rs_pull *pull = &l->pull;
    struct rs_work *work;
    uint64_t last, claims;

    if (!pull->sharing)
        return;
    work = work_of(l->ring.words);
    /* Later than any epoch: nothing can be claimed any more. */
    claims = atomic_exchange(&work->claim, UINT64_MAX);
    last = (claims >> RS_WORK_BITS << RS_WORK_BITS) + claimed(claims);
    /* Acquire: the sender's writes are over. */
    while (atomic_load_explicit(&work->done, memory_order_acquire) != last &&
           !rs_connection_is_dead(l->lane.connection))
        sched_yield();
    pull->sharing = false;
}

void rs_pull_fini(struct lane *l)
{
    struct rs_pull *pull = &l->pull;

    rs_pull_withdraw(l);
    /* The table goes with the lane. */
    if (pull->num_maps > 0) {
        rs_maps_drop(maps_of(l), pull->maps[0]);
        pull->maps[0] = NULL;
    }
    put_maps(pull, maps_of(l));
    rs_copies_fini(&pull->rest);
    rs_copies_fini(&pull->copies);
    if (pull->table.place.bytes > 0)
        rsched_free(pull->table.place.address);
    free(pull->table.regions);
    free(pull->table.pieces);
    free(pull->slots.at);
    free(pull->from.at);
    free(pull->to.at);
    free(pull->iovecs.here);
    free(pull->iovecs.there);
    free(pull->maps);
}
