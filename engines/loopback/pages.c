/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/loopback/pages.h"

#include <sys/mman.h>
#include <unistd.h>

/* Whole pages. */
struct pages {
    char *first;
    uint64_t bytes;
};

/* @return none if there is more between the blocks than in them */
static struct pages pages_of(const struct rs_copy *c)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)c->other, end = first, skew;

    if (c->count > 1)
        end += (uintptr_t)((int64_t)(c->count - 1) * c->other_stride);
    if (end < first) {
        first = end;
        end = (uintptr_t)c->other;
    }
    end += c->bytes;
    if (end - first > 2 * c->count * c->bytes)
        return (struct pages){NULL, 0};
    skew = first % page;
    return (struct pages){(char *)first - skew,
                          (end - first + skew + page - 1) / page * page};
}

static bool are_there(struct pages p)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char there[256];

    while (p.bytes > 0) {
        uint64_t bytes = p.bytes < sizeof(there) * page ? p.bytes
                                                        : sizeof(there) * page;

        if (mincore(p.first, bytes, there) != 0)
            return true;
        for (uint64_t i = 0; i < bytes / page; i++)
            if ((there[i] & 1) == 0)
                return false;
        p.first += bytes;
        p.bytes -= bytes;
    }
    return true;
}

bool rs_pages_are_there(const struct rs_copies *list, const struct rs_chunk *chunk)
{
    for (uint32_t i = chunk->first; i < chunk->end; i++)
        if (!are_there(pages_of(&list->copies[i])))
            return false;
    return true;
}

void rs_pages_map(const struct rs_copies *list, const struct rs_chunk *chunk)
{
    for (uint32_t i = chunk->first; i < chunk->end; i++) {
        struct pages p = pages_of(&list->copies[i]);

        if (p.bytes > 0)
            madvise(p.first, p.bytes, MADV_POPULATE_WRITE);
    }
}
