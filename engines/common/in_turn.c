/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists whose parts are copied line by line in turn. */
#include <assert.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "engines/common/copy.h"
#include "engines/common/long_copy.h"

enum {
    LINE = RS_COPY_LINE,
    PARTS = RS_COPY_PARTS,
    PAGE = 4096,
    /* From one part's place in its page to the next one's: lines at the same place of many pages
     * share few places in a cache, and stores past the caches that alternate between such
     * take three times as long (Zen 3, four parts). */
    APART = PAGE / PARTS / LINE * LINE,
};

/* Where the copy of a part is. */
struct part {
    const struct rs_copy *copy;
    uint64_t block; /* of the copy */
    char *to;
    const char *from;
    uint64_t bytes; /* of the block from here on, as far as the part goes */
    uint64_t left;  /* of the part, behind these */
};

static void enter_block(struct part *p, uint64_t skip)
{
    const struct rs_copy *c = p->copy;
    uint64_t bytes = c->bytes - skip;

    p->to = c->other + (int64_t)p->block * c->other_stride + skip;
    p->from = c->user + (int64_t)p->block * c->stride + skip;
    p->bytes = bytes < p->left ? bytes : p->left;
    p->left -= p->bytes;
}

static struct part part_of(const struct rs_copies *list, uint64_t begin, uint64_t end)
{
    struct part p = {.copy = list->copies, .left = end - begin};

    while (begin >= p.copy->bytes * p.copy->count) {
        begin -= p.copy->bytes * p.copy->count;
        p.copy++;
    }
    p.block = begin / p.copy->bytes;
    enter_block(&p, begin % p.copy->bytes);
    return p;
}

static void skip_bytes(struct part *p, uint64_t bytes)
{
    p->to += bytes;
    p->from += bytes;
    p->bytes -= bytes;
}

/* @return whether there is another block */
static bool next_block(struct part *p)
{
    if (p->left == 0)
        return false;
    if (++p->block == p->copy->count) {
        p->copy++;
        p->block = 0;
    }
    enter_block(p, 0);
    return true;
}

/* Copy up to where the destination begins a line and has all of it.
 * @return whether there is such a line */
static bool come_to_line(struct part *p)
{
    do {
        uint64_t bytes = -(uintptr_t)p->to % LINE;

        if (p->bytes < bytes + LINE)
            bytes = p->bytes;
        memcpy(p->to, p->from, bytes);
        skip_bytes(p, bytes);
        if (p->bytes >= LINE)
            return true;
    } while (next_block(p));
    return false;
}

static void copy_rest(struct part *p)
{
    do {
        rs_copy_bytes(p->to, p->from, p->bytes);
    } while (next_block(p));
}

/* Where a part begins: about so far on, at its place in its page. */
static uint64_t begin_of(const struct rs_copies *list, uint64_t bytes, int part, int place)
{
    uint64_t begin = bytes / PARTS * (uint64_t)part - PAGE / 2, shift;
    struct part p = part_of(list, begin, bytes);

    shift = ((uintptr_t)list->copies->other + (uintptr_t)place * APART - (uintptr_t)p.to) % PAGE;
    return shift < p.bytes ? begin + shift : begin;
}

static uint64_t shortest(const struct rs_parts *parts)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < PARTS; i++)
        if (least > parts->begin[i + 1] - parts->begin[i])
            least = parts->begin[i + 1] - parts->begin[i];
    return least;
}

void rs_copies_divide(const struct rs_copies *list, uint64_t bytes, struct rs_parts *parts)
{
    static_assert(PARTS == 3, "the other two in one order or the other");
    struct rs_parts swapped = {.begin = {[PARTS] = bytes}};

    *parts = swapped;
    if (bytes < PARTS * PAGE) {
        for (int i = 0; i < PARTS; i++)
            parts->begin[i] = bytes / PARTS * (uint64_t)i;
        return;
    }
    for (int i = 1; i < PARTS; i++) {
        parts->begin[i] = begin_of(list, bytes, i, i);
        swapped.begin[i] = begin_of(list, bytes, i, PARTS - i);
    }
    if (shortest(parts) < shortest(&swapped))
        *parts = swapped;
}

uint64_t rs_copies_run_in_turn(const struct rs_copies *list, const struct rs_parts *divided)
{
    struct part parts[PARTS];
    uint64_t copied = 0;

    for (int i = 0; i < PARTS; i++)
        parts[i] = part_of(list, divided->begin[i], divided->begin[i + 1]);
    for (;;) {
        char *to[PARTS];
        const char *from[PARTS];
        uint64_t lines = UINT64_MAX;
        int i;

        for (i = 0; i < PARTS && come_to_line(&parts[i]); i++) {
            to[i] = parts[i].to;
            from[i] = parts[i].from;
            if (lines > parts[i].bytes / LINE)
                lines = parts[i].bytes / LINE;
        }
        if (i < PARTS)
            break;
        rs_copy_in_turn(to, from, lines, list->nontemporal);
        copied += PARTS * lines * LINE;
        for (i = 0; i < PARTS; i++)
            skip_bytes(&parts[i], lines * LINE);
    }
    for (int i = 0; i < PARTS; i++)
        copy_rest(&parts[i]);
    if (!RS_HAS_NONTEMPORAL || !list->nontemporal)
        return 0;
#if defined(__x86_64__)
    _mm_sfence(); /* the stores would pass the one that tells of them */
#endif
    return copied;
}
