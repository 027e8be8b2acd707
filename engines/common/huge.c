/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/huge.h"

#include <errno.h>
#include <stdlib.h>

#include "librsched/base/config.h"
#include "librsched/base/huge.h"
#include "librsched/base/shared.h"

enum {
    FIRST = 4, /* the start in which it is looked at: by then a program has written
                  what it sends, so that its pages are there */
    LEAST = 64 << 10, /* bytes: shorter parts are not worth a page */
    MOST = 1024,      /* parts of a message */
};

void rs_huge_watch(struct rs_huge_pages *h)
{
    h->in = rs_config()->huge ? FIRST : 0;
    h->after = 0;
    h->parts.number = 0;
}

/* What can be put into huge pages. */
struct found {
    struct rs_pieces parts;
    uint64_t bytes; /* of these */
    uint64_t pages; /* bytes of the huge pages */
};

static int find(const struct rsched_piece *pieces, size_t num, struct found *f)
{
    uint64_t unit = rs_huge_unit();
    struct rs_place place;
    char *low, *high, *end;
    int error = 0;

    for (size_t i = 0; error == 0 && f->parts.number < MOST &&
                       rs_pieces_run(pieces, num, &i, &low, &high);) {
        if (rs_shared_find(low, high, &place))
            continue; /* others map it */
        for (; error == 0 && high - low >= LEAST &&
               (end = rs_huge_find(&low, high)) != NULL;
             low = end) {
            struct rsched_piece part = {.address = low,
                                        .bytes = (uint64_t)(end - low),
                                        .count = 1};

            f->bytes += part.bytes;
            f->pages += ((uintptr_t)end + unit - 1) / unit * unit -
                        (uintptr_t)low / unit * unit;
            error = rs_pieces_append(&f->parts, &part);
        }
    }
    return error;
}

static int make(struct rs_huge_pages *h, const struct rs_pieces *parts)
{
    int error = 0;

    for (size_t i = 0; i < parts->number && error == 0; i++) {
        struct rsched_piece p = parts->at[i];
        const char *low = p.address, *high = low + p.bytes;

        if (!rs_huge_make(&low, &high)) {
            if (errno == ENOMEM)
                break; /* each part would take as long to find that out */
            continue;
        }
        p.address += low - p.address;
        p.bytes = (uint64_t)(high - low);
        error = rs_pieces_append(&h->parts, &p);
    }
    return error;
}

int rs_huge_consider(struct rs_huge_pages *h, const struct rsched_piece *pieces,
                     size_t num,
                     uint64_t (*saves)(const void *arg, uint64_t bytes),
                     const void *arg)
{
    uint32_t starts = h->after > 0 ? h->after : FIRST;
    struct found f = {.bytes = 0};
    uint64_t saved, after;
    int error = find(pieces, num, &f);

    saved = error == 0 && f.bytes > 0 ? saves(arg, f.bytes) : 0;
    after = saved > 0 ? f.pages * RS_HUGE_PS_PER_BYTE / saved : UINT64_MAX;
    if (after <= starts) {
        error = make(h, &f.parts);
    } else if (after <= UINT32_MAX) {
        h->after = (uint32_t)after;
        h->in = h->after - starts;
    }
    free(f.parts.at);
    return error;
}

void rs_huge_fini(struct rs_huge_pages *h)
{
    free(h->parts.at);
}
