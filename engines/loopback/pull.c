/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of messages that are copied once. */
#include "engines/loopback/pull.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engines/loopback/lane.h"
#include "engines/loopback/pages.h"
#include "librsched/base/clock.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/base/log.h"

static struct rs_maps *maps_of(const struct lane *l)
{
    return &l->lane.connection->maps;
}

static int get_place(struct lane *l, struct rs_place *place)
{
    return rs_map_list_get(&l->pull.maps, maps_of(l), place);
}

static int bad_table(const struct lane *l)
{
    return rs_fail(RSCHED_EMISMATCH,
                   "loopback: peer %d: its message is not in its memory",
                   l->lane.connection->peer);
}

static int view_table(const struct lane *l, const void *address,
                      uint64_t bytes, struct rs_table_view *v)
{
    return rs_table_view(address, bytes, v) ? 0 : bad_table(l);
}

/* What the table says, with addresses of this process. Pieces that come
 * through slots have any. */
static int read_pieces(struct lane *l, const struct rs_table_view *v,
                       struct rs_pieces *pieces)
{
    struct rs_place *places =
        calloc(v->head.num_regions + 1, sizeof(*places));
    int error = 0;

    if (places == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a table");
    for (uint64_t i = 0; i < v->head.num_regions && error == 0; i++) {
        places[i] = (struct rs_place){v->regions[i].id, v->regions[i].offset,
                                      v->regions[i].bytes, NULL};
        error = get_place(l, &places[i]);
    }
    if (error == 0) {
        error = rs_table_pieces(v, places, l->ring.slots, l->bytes, pieces);
        if (error == RSCHED_EMISMATCH)
            error = bad_table(l);
    }
    free(places);
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
        return rs_iovecs_add(&m->pull->iovecs, copy);
    return rs_copies_append_pair(&m->pull->copies, copy, true, m->pull->chunk);
}

static int compile(struct lane *l, const struct rs_table_view *v,
                   const struct rsched_message *to)
{
    struct rs_pull *pull = &l->pull;
    struct matcher m = {pull, v->pieces};
    struct rsched_message from;
    int error = read_pieces(l, v, &pull->from);

    if (error != 0)
        return error;
    RS_FAILPOINT("rx:table");
    from = (struct rsched_message){.pieces = pull->from.at,
                                   .num_pieces = pull->from.number,
                                   .bytes = l->bytes};
    pull->slots.number = pull->iovecs.number = 0;
    pull->copies.num_copies = pull->copies.num_chunks = 0;
    error = rs_copies_match(&from, to, match, &m);
    if (error == 0 && pull->chunk != UINT64_MAX)
        rs_prefetch_load_chunks(&pull->in_turn, &pull->copies);
    return error;
}

/* Both begin at the same time. So when the sender has copied what it gets itself,
 * half of what we copy must be left. */
static bool is_worth_help(const struct lane *l, const struct rs_announcement *a)
{
    return l->pull.shares && a->incoming <= l->incoming / 2;
}

/* By a copy of the table: a sender that gives up frees it, whoever reads it. */
static int compile_copy(struct lane *l, const void *table, uint64_t bytes,
                        const struct rsched_message *to)
{
    struct rs_table_view v = {.regions = NULL};
    void *copy = malloc(bytes + 1);
    int error;

    if (copy == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a table");
    memcpy(copy, table, bytes);
    error = view_table(l, copy, bytes, &v);
    if (error == 0)
        error = compile(l, &v, to);
    free(copy);
    return error;
}

int rs_pull_compile(struct lane *l, const struct rs_announcement *a)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    struct rs_place place = {maps_of(l)->id, a->offset, a->bytes, NULL};
    struct rsched_message to = lane_message(l);
    struct rs_pull *pull = &l->pull;
    int error;

    rs_pull_forget(pull);
    pull->chunk = is_worth_help(l, a) ? rs_ways_share_chunk(ways, l->bytes)
                                      : UINT64_MAX;
    rs_map_list_clear(&pull->maps, maps_of(l));
    error = get_place(l, &place);
    if (error == 0)
        error = compile_copy(l, place.address, a->bytes, &to);
    if (error == 0)
        error = rs_pieces_compile(&pull->slots, l, &pull->rest);
    if (error == 0 && pull->rest.num_chunks != a->rest)
        error = bad_table(l);
    if (error == 0) {
        rs_prefetch_load(&pull->prefetch, &pull->copies);
        pull->announcement = *a;
    } else {
        rs_prefetch_drop(&pull->prefetch);
    }
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

int rs_pull_read(struct lane *l)
{
    struct rsched_connection *c = l->lane.connection;
    const struct rs_iovecs *v = &l->pull.iovecs;
    int error = 0;

    if (v->number == 0)
        return 0;
    RS_FAILPOINT("rx:read");
    if (rs_iovecs_read(v, c->pid) != 0)
        error = errno;
    /* The number of a dead process may be another's by now. */
    if (rs_connection_is_dead(c))
        return rs_fail(RSCHED_EPEER, "loopback: peer %d (pid %d) is dead",
                       c->peer, (int)c->pid);
    errno = error;
    return error == 0 ? 0
                      : rs_fail(RSCHED_EUNREACH,
                                "loopback: peer %d: reading its memory: %m",
                                c->peer);
}

/* ---- shared work ---- */

/* The number of an epoch that is announced, the same on both sides; not 0. */
static uint64_t epoch_of(uint64_t sequence)
{
    return (sequence + 1) << RS_WORK_BITS;
}

#define ONE_SIDE ((UINT64_C(1) << RS_WORK_SIDE_BITS) - 1)

/* The most bytes that are claimed at a time: who has done so does nothing else
 * meanwhile. */
#define CLAIM_MOST (UINT64_C(1) << 20)

/* How many chunks of an epoch are claimed. */
static uint64_t claimed(uint64_t claims)
{
    return (claims & ONE_SIDE) + (claims >> RS_WORK_SIDE_BITS & ONE_SIDE);
}

/* How many of them the sender has. */
static uint64_t claimed_by_sender(uint64_t claims)
{
    return claims >> RS_WORK_SIDE_BITS & ONE_SIDE;
}

/* Chunks that a side has claimed: `count` of them, from its own end on behind those that
 * it had before. */
struct claim {
    uint32_t before, count;
};

/* Whether the sender may write a chunk, with so many behind it: what nobody has written
 * to is the receiver's to write, who has its pages on its NUMA node then. */
static bool may_write(const struct lane *l, uint64_t behind)
{
    const struct rs_copies *copies = &l->pull.copies;

    return likely(behind < l->pull.mapped) ||
           rs_pages_are_there(copies,
                              &copies->chunks[copies->num_chunks - 1 - behind]);
}

/* How many are claimed at a time: before a claim the stores of the last one have to
 * reach the cache, and its line travels, so there should be few; and short ones at the
 * end. Three quarters of what is missing to a half. But the sender's first ones one by
 * one, as it finds their pages. */
static uint64_t claim_count(const struct lane *l, uint64_t left, uint64_t mine)
{
    uint64_t half = l->pull.copies.num_chunks / 2;
    uint64_t count = mine < half ? (half - mine) * 3 / 4 : 0;
    uint64_t most = CLAIM_MOST / l->pull.chunk;

    if (most > left / 2)
        most = left / 2;
    if (count > most)
        count = most;
    if (l->sends && mine + count > l->pull.mapped)
        count = 1;
    return count > 0 ? count : 1;
}

/* @return whether there are any for us */
static bool claim_chunks(const struct lane *l, uint64_t epoch, struct claim *claim)
{
    const unsigned shift = l->sends ? RS_WORK_SIDE_BITS : 0;
    const uint64_t num_chunks = l->pull.copies.num_chunks;
    struct rs_work *work = work_of(l->ring.words);
    uint64_t old = atomic_load_explicit(&work->claim, memory_order_relaxed), mine;

    do {
        mine = old >> shift & ONE_SIDE;
        if (old >> RS_WORK_BITS != epoch >> RS_WORK_BITS ||
            claimed(old) >= num_chunks || (l->sends && !may_write(l, mine)))
            return false;
        claim->count = (uint32_t)claim_count(l, num_chunks - claimed(old), mine);
        /* Acquire: what the receiver did before it offered the epoch. */
    } while (!atomic_compare_exchange_weak_explicit(
        &work->claim, &old, old + ((uint64_t)claim->count << shift),
        memory_order_acquire, memory_order_relaxed));
    claim->before = (uint32_t)mine;
    return true;
}

/* @return its bytes */
static uint64_t copy_chunk(struct lane *l, uint32_t chunk)
{
    const struct rs_copies *copies = &l->pull.copies;

    if (l->sends && unlikely(copies->num_chunks - chunk > l->pull.mapped)) {
        rs_pages_map(copies, &copies->chunks[chunk]);
        l->pull.mapped++;
    }
    l->lane.stats.prefetched += rs_prefetch_run_chunk(&l->pull.in_turn, copies, chunk,
                                                      &l->lane.stats.nontemporal);
    return copies->chunks[chunk].bytes;
}

/* @return the bytes that this side has copied */
static uint64_t copy_chunks(struct lane *l, uint64_t epoch)
{
    struct rs_work *work = work_of(l->ring.words);
    uint32_t last = l->pull.copies.num_chunks - 1;
    struct claim claim;
    uint64_t bytes = 0;

    while (claim_chunks(l, epoch, &claim)) {
        uint32_t end = claim.before + claim.count;
        uint32_t first = l->sends ? last + 1 - end : claim.before;

        if (l->sends)
            RS_FAILPOINT("tx:claimed");
        for (uint32_t i = 0; i < claim.count; i++)
            bytes += copy_chunk(l, first + i);
        if (l->sends)
            /* Release: the bytes are there before they are counted. */
            atomic_store_explicit(&work->done, epoch + end,
                                  memory_order_release);
    }
    return bytes;
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

/* Where our buffers lie has changed. Who cannot tell copies alone. */
static void __attribute__((cold)) renew_offer(struct lane *l)
{
    struct rs_error_text kept;

    rs_error_save(&kept);
    if (rs_pull_offer(l) != 0) {
        rs_error_restore(&kept);
        rs_pull_withdraw(l);
    }
}

int rs_pull_copy(struct lane *l, bool timed)
{
    struct rs_pull *pull = &l->pull;
    struct rs_work *work = work_of(l->ring.words);
    uint64_t epoch = epoch_of(l->ring.sequence), claims;

    if (!pull->sharing && pull->shares && rs_pull_is_stale(pull))
        renew_offer(l);
    if (!pull->sharing && (!pull->shares || pull->copies.num_chunks < 2 ||
                           pull->copies.num_chunks > ONE_SIDE)) {
        l->lane.stats.prefetched += rs_prefetch_run(&pull->prefetch, &pull->copies, timed,
                                                    &l->lane.stats.nontemporal);
        return RSCHED_LANE_DONE;
    }
    if (!pull->sharing) {
        offer(l, epoch);
        RS_FAILPOINT("rx:offered");
    }
    pull->sharing = true;
    copy_chunks(l, epoch);
    /* All are claimed, and ours are done. */
    claims = atomic_load_explicit(&work->claim, memory_order_relaxed);
    for (int i = 0; i < DONE_POLLS; i++) {
        /* Acquire: what the sender has copied. */
        if (atomic_load_explicit(&work->done, memory_order_acquire) ==
            epoch + claimed_by_sender(claims)) {
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
    struct rs_table_view own = {.regions = NULL}, theirs = own;
    int error;

    pull->offer.version = 0;
    pull->chunk = work_of(l->ring.words)->chunk;
    if (pull->chunk == 0)
        return bad_table(l);
    rs_map_list_clear(&pull->maps, maps_of(l));
    error = get_place(l, &place);
    if (error == 0)
        error = view_table(l, place.address, a->bytes, &theirs);
    if (error == 0)
        error = read_pieces(l, &theirs, &pull->to);
    if (error == 0)
        error = view_table(l, pull->place.address,
                           pull->place.bytes, &own);
    if (error != 0)
        return error;
    to = (struct rsched_message){.pieces = pull->to.at,
                                 .num_pieces = pull->to.number,
                                 .bytes = l->bytes};
    error = compile(l, &own, &to);
    pull->mapped = 0;
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
    struct rs_error_text kept;
    bool good;

    rs_error_save(&kept);
    atomic_store(&work->reads_table, 1);
    good = atomic_load(&work->offered) == epoch && compile_help(l, a) == 0;
    atomic_store(&work->reads_table, 0);
    if (!good)
        rs_error_restore(&kept);
    return good;
}

/* So long is waited for a sender that reads our table. */
#define TABLE_PS (100 * UINT64_C(1000000000))

/* It stays as it is: another one will be elsewhere. */
static void __attribute__((cold)) leave_table(struct lane *l)
{
    struct rs_place *place = &l->pull.place;

    rs_log(RS_LOG_WARN,
           "loopback: peer %d (pid %d) has stopped while it reads a table of %llu "
           "bytes, which are left to it",
           l->lane.connection->peer, (int)l->lane.connection->pid,
           (unsigned long long)place->bytes);
    *place = (struct rs_place){0};
}

void rs_pull_withdraw(struct lane *l)
{
    struct rs_work *work;
    uint64_t until_ps;

    if (!l->pull.shares)
        return;
    work = work_of(l->ring.words);
    l->pull.shares = false;
    atomic_store(&work->offered, 0);
    if (atomic_load(&work->reads_table) == 0)
        return;
    until_ps = rs_clock_now() + TABLE_PS;
    while (atomic_load(&work->reads_table) != 0 &&
           !rs_connection_is_dead(l->lane.connection)) {
        if (rs_clock_now() > until_ps) {
            leave_table(l);
            return;
        }
        sched_yield();
    }
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
    if (pull->helpless == epoch)
        return false;
    if ((memcmp(&a, &pull->offer, sizeof(a)) != 0 || rs_map_list_is_stale(&pull->maps)) &&
        !try_compile_help(l, work, epoch, &a)) {
        pull->helpless = epoch;
        return false;
    }
    pull->copies.nontemporal = work->nontemporal != 0;
    copied = copy_chunks(l, epoch);
    pull->helped += copied;
    return copied > 0;
}

void rs_pull_close(struct lane *l)
{
    struct rs_pull *pull = &l->pull;
    uint64_t claims;

    if (!pull->sharing)
        return;
    /* Later than any epoch: nothing can be claimed any more. */
    claims = atomic_exchange(&work_of(l->ring.words)->claim, UINT64_MAX);
    pull->last =
        (claims >> RS_WORK_BITS << RS_WORK_BITS) + claimed_by_sender(claims);
}

bool rs_pull_is_over(struct lane *l)
{
    struct rs_pull *pull = &l->pull;

    /* Acquire: the sender's writes are over. */
    if (pull->sharing &&
        (atomic_load_explicit(&work_of(l->ring.words)->done,
                              memory_order_acquire) == pull->last ||
         rs_connection_is_dead(l->lane.connection)))
        pull->sharing = false;
    return !pull->sharing;
}

void rs_pull_fini(struct lane *l)
{
    struct rs_pull *pull = &l->pull;

    rs_pull_withdraw(l);
    /* The table goes with the lane. */
    if (pull->maps.number > 0) {
        rs_maps_drop(maps_of(l), pull->maps.at[0]);
        pull->maps.at[0] = NULL;
    }
    rs_map_list_fini(&pull->maps, maps_of(l));
    rs_copies_fini(&pull->rest);
    rs_copies_fini(&pull->copies);
    rs_prefetch_fini_chunks(&pull->in_turn);
    if (pull->place.bytes > 0)
        rsched_free(pull->place.address);
    rs_table_fini(&pull->table);
    free(pull->slots.at);
    rs_huge_fini(&pull->huge);
    free(pull->from.at);
    free(pull->to.at);
    rs_iovecs_fini(&pull->iovecs);
}
