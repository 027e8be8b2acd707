/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/offer.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include <rsched/memory.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"
#include "librsched/base/shared.h"

enum {
    NUM_BUCKETS = 8192, /* 1 MiB, of which what is used takes memory */
    BUCKET = 8,         /* entries: two cache lines */
    BUSY = 1,           /* an address that is being written */
};

/* In the lowest bits of an entry's state; above them are the bytes. */
enum { ADOPTED = 1, BARRED = 2, STATE_BITS = 2 };

struct entry {
    atomic_uintptr_t address; /* 0: free */
    atomic_size_t state;
};

static struct entry table[NUM_BUCKETS][BUCKET];
/* A bit for each bucket that was ever used. */
static atomic_uint_fast64_t used[NUM_BUCKETS / 64];
static atomic_bool any;

/* Allocators give out multiples of 16, large ones often of pages with the same
 * offset. */
static size_t bucket_of(const void *address)
{
    uint64_t key = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);

    return key >> 51;
}
static_assert(NUM_BUCKETS == 1 << (64 - 51), "the upper bits choose a bucket");

static struct entry *find(const void *address)
{
    struct entry *e = table[bucket_of(address)];

    for (int i = 0; i < BUCKET; i++) {
        if (atomic_load_explicit(&e[i].address, memory_order_acquire) ==
            (uintptr_t)address)
            return &e[i];
    }
    return NULL;
}

void rsched_memory_offer(void *address, size_t bytes)
{
    size_t bucket = bucket_of(address);
    uint64_t bit = UINT64_C(1) << bucket % 64;
    struct entry *e = table[bucket];

    if (address == NULL || bytes == 0 || bytes > SIZE_MAX >> STATE_BITS)
        return;
    if (!atomic_load_explicit(&any, memory_order_relaxed))
        atomic_store_explicit(&any, true, memory_order_relaxed);
    if (!(atomic_load_explicit(&used[bucket / 64], memory_order_relaxed) &
          bit))
        atomic_fetch_or_explicit(&used[bucket / 64], bit,
                                 memory_order_relaxed);
    for (int i = 0; i < BUCKET; i++) {
        uintptr_t none = 0;

        if (!atomic_compare_exchange_strong_explicit(
                &e[i].address, &none, BUSY, memory_order_relaxed,
                memory_order_relaxed))
            continue;
        atomic_store_explicit(&e[i].state, bytes << STATE_BITS,
                              memory_order_relaxed);
        /* Release: whoever finds the address finds its bytes. */
        atomic_store_explicit(&e[i].address, (uintptr_t)address,
                              memory_order_release);
        return;
    }
}

int rsched_memory_reclaim(void *address)
{
    struct entry *e = find(address);
    size_t state;
    int error = 0;

    if (address == NULL || e == NULL)
        return 0;
    state = atomic_load_explicit(&e->state, memory_order_relaxed);
    if (state & ADOPTED)
        error = rs_shared_unadopt(address,
                                  (char *)address + (state >> STATE_BITS));
    if (error == 0)
        /* Release: the address is another's only when all this is done. */
        atomic_store_explicit(&e->address, 0, memory_order_release);
    return error;
}

/* Call `each` for each piece that has a byte of [low, high). */
static void visit(const char *low, const char *high,
                  void (*each)(struct entry *e, const char *start,
                               const char *end, void *arg),
                  void *arg)
{
    for (size_t i = 0; i < NUM_BUCKETS; i++) {
        if (atomic_load_explicit(&used[i / 64], memory_order_relaxed) == 0) {
            i += 63;
            continue;
        }
        for (int k = 0; k < BUCKET; k++) {
            struct entry *e = &table[i][k];
            uintptr_t address =
                atomic_load_explicit(&e->address, memory_order_acquire);
            size_t bytes = atomic_load_explicit(&e->state,
                                                memory_order_relaxed) >>
                           STATE_BITS;
            const char *start = (const char *)address;

            if (address > BUSY && start < high && start + bytes > low)
                each(e, start, start + bytes, arg);
        }
    }
}

static void set(struct entry *e, const char *start, const char *end, void *arg)
{
    const size_t *bit = arg;

    (void)start;
    (void)end;
    atomic_fetch_or_explicit(&e->state, *bit, memory_order_relaxed);
}

bool rs_offer_any(void)
{
    return atomic_load_explicit(&any, memory_order_relaxed);
}

/* ---- those of a range ---- */

struct offers {
    struct rs_offer *at;
    size_t number, room;
    bool failed;
};

static void add(struct entry *e, const char *start, const char *end, void *arg)
{
    struct offers *o = arg;
    struct rs_offer *larger =
        rs_array_grow(o->at, &o->room, o->number + 1, sizeof(*larger));

    o->failed = o->failed || larger == NULL;
    if (larger == NULL)
        return;
    o->at = larger;
    larger[o->number++] = (struct rs_offer){
        start, end, end, atomic_load_explicit(&e->state, memory_order_relaxed) & BARRED};
}

static int compare(const void *a, const void *b)
{
    const struct rs_offer *o = a, *p = b;

    return o->low < p->low ? -1 : o->low > p->low;
}

bool rs_offers_list(const char *low, const char *high, struct rs_offer **list,
                    size_t *number)
{
    struct offers o = {0};

    visit(low, high, add, &o);
    if (o.failed) {
        free(o.at);
        o = (struct offers){.failed = true};
    }
    if (o.number > 0)
        qsort(o.at, o.number, sizeof(*o.at), compare);
    for (size_t i = 1; i < o.number; i++) {
        if (o.at[i].reach < o.at[i - 1].reach)
            o.at[i].reach = o.at[i - 1].reach;
    }
    *list = o.at;
    *number = o.number;
    return !o.failed;
}

/* The first one that can have a byte behind `low`. */
static size_t first_behind(const struct rs_offer *list, size_t number, const char *low)
{
    size_t first = 0;

    while (first < number) {
        size_t middle = first + (number - first) / 2;

        if (list[middle].reach <= low)
            first = middle + 1;
        else
            number = middle;
    }
    return first;
}

/* Of two pieces, as of a pool that the C library has given out and a part of it, the
 * one would be taken back, and the pages with it, while the other is in use. */
const struct rs_offer *rs_offers_holding(const struct rs_offer *list, size_t number,
                                         const char *low, const char *high)
{
    const struct rs_offer *holding = NULL;

    for (size_t i = first_behind(list, number, low); i < number && list[i].low < high; i++) {
        if (list[i].high <= low)
            continue;
        if (holding != NULL || list[i].low > low || list[i].high < high || list[i].barred)
            return NULL;
        holding = &list[i];
    }
    return holding;
}

const char *rs_offers_edge(const struct rs_offer *list, size_t number, const char *low,
                           const char *high)
{
    const char *edge = high;

    for (size_t i = first_behind(list, number, low); i < number && list[i].low < edge; i++) {
        if (list[i].low > low)
            edge = list[i].low;
        else if (list[i].high > low && list[i].high < edge)
            edge = list[i].high;
    }
    return edge;
}

bool rs_offer_mark(const struct rs_offer *offer)
{
    struct entry *e = find(offer->low);

    return e != NULL &&
           !(atomic_fetch_or_explicit(&e->state, ADOPTED, memory_order_relaxed) & BARRED);
}

void rsched_memory_bar(const void *address, size_t bytes)
{
    uintptr_t end = (uintptr_t)address + bytes;
    size_t bit = BARRED;

    visit(address, (const char *)(end < bytes ? UINTPTR_MAX : end), set, &bit);
}
