/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/adopt.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "librsched/base/adoptable.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/offer.h"
#include "librsched/base/shared.h"

static const char *const names[RSCHED_NUM_ADOPTIONS] = {
    [RSCHED_ADOPTED] = "adopted",       [RSCHED_ADOPT_ORIGIN] = "origin",
    [RSCHED_ADOPT_MAPPING] = "mapping", [RSCHED_ADOPT_DEVICE] = "device",
    [RSCHED_ADOPT_BUDGET] = "budget",   [RSCHED_ADOPT_SYSTEM] = "system",
    [RSCHED_ADOPT_GUARD] = "guard",
};

static atomic_uint_fast64_t counts[RSCHED_NUM_ADOPTIONS];

const char *rsched_adoption_name(enum rsched_adoption adoption)
{
    return adoption < RSCHED_NUM_ADOPTIONS ? names[adoption] : NULL;
}

uint64_t rsched_memory_adoptions(enum rsched_adoption adoption)
{
    return adoption < RSCHED_NUM_ADOPTIONS
               ? atomic_load_explicit(&counts[adoption], memory_order_relaxed)
               : 0;
}

/* ---- adopting ---- */

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

char *rs_page_up(char *address)
{
    return address + (-(uintptr_t)address & (page_bytes() - 1));
}

char *rs_page_down(char *address)
{
    return address - ((uintptr_t)address & (page_bytes() - 1));
}

static char *end_of(const struct rsched_piece *p)
{
    return p->address + p->bytes;
}

static int compare(const void *a, const void *b)
{
    const struct rsched_piece *p = a, *q = b;

    return p->address < q->address ? -1 : p->address > q->address;
}

/* In the order of addresses; what touches becomes one. */
static size_t merge(struct rsched_piece *parts, size_t number)
{
    size_t kept = 0;

    if (number > 0)
        qsort(parts, number, sizeof(*parts), compare);
    for (size_t i = 0; i < number; i++) {
        const struct rsched_piece *p = &parts[i];
        struct rsched_piece *last = kept > 0 ? &parts[kept - 1] : NULL;

        if (last == NULL || p->address > end_of(last))
            parts[kept++] = *p;
        else if (end_of(p) > end_of(last))
            last->bytes = (uint64_t)(end_of(p) - last->address);
    }
    return kept;
}

size_t rs_adopt_pages(struct rsched_piece *parts, size_t number)
{
    size_t merged = merge(parts, number), kept = 0;

    for (size_t i = 0; i < merged; i++) {
        char *low = rs_page_up(parts[i].address);
        char *high = rs_page_down(end_of(&parts[i]));

        if (low < high)
            parts[kept++] = (struct rsched_piece){low, (uint64_t)(high - low), 1, 0};
    }
    return kept;
}

uint64_t rs_adopt_bytes(const struct rsched_piece *pages, size_t number)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < number; i++)
        bytes += pages[i].bytes;
    return bytes;
}

size_t rs_adopt_common(const struct rsched_piece *a, size_t num_a, const struct rsched_piece *b,
                       size_t num_b, struct rsched_piece *common)
{
    size_t number = 0;

    for (size_t i = 0, k = 0; i < num_a && k < num_b;) {
        char *low = a[i].address > b[k].address ? a[i].address : b[k].address;
        char *high = end_of(&a[i]) < end_of(&b[k]) ? end_of(&a[i]) : end_of(&b[k]);

        if (low < high)
            common[number++] = (struct rsched_piece){low, (uint64_t)(high - low), 1, 0};
        if (end_of(&a[i]) < end_of(&b[k]))
            i++;
        else
            k++;
    }
    return number;
}

/* What that takes, in ps, together with taking it back; measured from 16 KiB to 4 MiB:
 * docs/adopted.md. */
static uint64_t adopt_time(size_t pieces, uint64_t bytes)
{
    const uint64_t piece_ps = UINT64_C(90) * 1000 * 1000, byte_ps = 560;
    uint64_t ps, all;

    return __builtin_mul_overflow(bytes, byte_ps, &ps) ||
                   __builtin_mul_overflow(pieces, piece_ps, &all) ||
                   __builtin_add_overflow(ps, all, &all)
               ? UINT64_MAX
               : all;
}

bool rs_adopt_is_due(struct rs_adopt_watch *w, uint64_t saves, size_t pieces,
                     uint64_t bytes)
{
    uint64_t all;

    if (w->after == 0)
        w->after = (uint32_t)rs_config()->adopt;
    if (saves == 0)
        return false;
    if (__builtin_mul_overflow(saves, (uint64_t)w->after, &all) ||
        all >= adopt_time(pieces, bytes))
        return true;
    if (w->after <= UINT32_MAX / 2) {
        w->in = w->after;
        w->after *= 2;
    }
    return false;
}

static void count(enum rsched_adoption result, uint64_t bytes)
{
    atomic_fetch_add_explicit(&counts[result], bytes, memory_order_relaxed);
}

/* Whole pages, of which none lies in a region. @return whether it is known now
 * what has become of them */
static bool adopt(const struct rs_adoptable *a, char *low, char *high)
{
    enum rsched_adoption result = rs_adoptable_is(a, low, high);
    int error;

    /* Marked before, so that whoever reclaims it looks for adopted pages. */
    if (result == RSCHED_ADOPTED &&
        !rs_offer_mark(rs_offers_holding(a->offers, a->num_offers, low, high)))
        result = RSCHED_ADOPT_ORIGIN;
    if (result == RSCHED_ADOPTED) {
        error = rs_shared_adopt(low, (uint64_t)(high - low));
        if (error == RSCHED_ESTATE)
            return false; /* another thread has adopted or pinned pages of it */
        if (error != 0)
            result = error == RSCHED_ELIMIT ? RSCHED_ADOPT_BUDGET
                                            : RSCHED_ADOPT_SYSTEM;
    }
    count(result, (uint64_t)(high - low));
    return true;
}

/* Of pages that nobody has adopted, each piece that was offered by itself. */
static bool adopt_pieces(const struct rs_adoptable *a, char *low, char *high)
{
    bool known = true;

    while (low < high && known) {
        char *edge = (char *)rs_offers_edge(a->offers, a->num_offers, low, high);
        char *end = rs_page_down(edge);

        if (low < end)
            known = adopt(a, low, end);
        low = rs_page_up(edge);
    }
    return known;
}

static void adopt_part(const struct rs_adoptable *a, char *low, char *high)
{
    struct rs_place place;

    while (low < high) {
        bool found = rs_shared_find(low, high, &place);
        char *end = found ? rs_page_down(place.address) : high;

        if (low < end && !adopt_pieces(a, low, end))
            continue;
        low = found ? rs_page_up(place.address + place.bytes) : high;
    }
}

void rs_adopt(const struct rsched_piece *pages, size_t number)
{
    struct rs_adoptable a;
    bool looked;

    if (number == 0)
        return;
    looked = rs_adoptable_look(&a, pages[0].address, end_of(&pages[number - 1]));
    for (size_t i = 0; i < number; i++) {
        if (looked)
            adopt_part(&a, pages[i].address, end_of(&pages[i]));
        else
            count(RSCHED_ADOPT_SYSTEM, pages[i].bytes);
    }
    if (looked)
        rs_adoptable_fini(&a);
}
