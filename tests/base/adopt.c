/* SPDX-License-Identifier: BSD-3-Clause */
/* When memory is adopted, what of it is emptied or taken away, and pieces of offers.
 * tests/runtime/adopt.c has what others see meanwhile. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "librsched/base/adopt.h"
#include "librsched/base/error.h"
#include "librsched/base/offer.h"
#include "librsched/base/shared.h"

enum { PAGE = 4096, PAGES = 12, ALL = PAGES * PAGE };

static unsigned opened; /* files */

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    opened++;
    return __real_fopen(path, mode);
}

static char *adopted_memory(void)
{
    char *memory = mmap(NULL, ALL, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert_neq(memory, MAP_FAILED);
    for (int i = 0; i < ALL; i++)
        memory[i] = (char)(1 + i / PAGE);
    cr_assert_eq(rs_shared_adopt(memory, ALL), 0);
    return memory;
}

/* Bits of the pages that are adopted. */
static unsigned adopted_pages(char *memory)
{
    unsigned pages = 0;
    void *first;

    for (int i = 0; i < PAGES; i++) {
        if (rsched_memory_adopted(memory + i * PAGE, PAGE, &first) == PAGE)
            pages |= 1u << i;
    }
    return pages;
}

static void expect_values(const char *memory, unsigned pages)
{
    for (int i = 0; i < ALL; i++) {
        if (pages & 1u << i / PAGE)
            cr_assert_eq(memory[i], 1 + i / PAGE, "byte %d is %d", i, memory[i]);
    }
}

Test(base_adopt, it_is_due_when_it_pays)
{
    const uint64_t ms = UINT64_C(1000000000), bytes = 1 << 20;
    struct rs_adopt_watch w = {.in = 0};
    uint32_t starts = 4;

    cr_assert_not(rs_adopt_is_due(&w, 0, 1, bytes));
    cr_assert_eq(w.in, 0, "what saves nothing is not looked at again");
    cr_assert(rs_adopt_is_due(&w, UINT64_MAX, 1, bytes));
    cr_assert(rs_adopt_is_due(&w, ms, 1, bytes));
    /* 1 MiB takes about 1 ms: 1 us a start is about 1000 starts. */
    w = (struct rs_adopt_watch){.in = 0};
    while (!rs_adopt_is_due(&w, ms / 1000, 1, bytes)) {
        cr_assert_eq(w.in, starts, "after twice as many");
        starts *= 2;
        cr_assert_leq(starts, 2048);
    }
    cr_assert_geq(starts, 512);
    /* The same in pieces of two pages takes more than ten times as long. */
    w = (struct rs_adopt_watch){.in = 0};
    cr_assert_not(rs_adopt_is_due(&w, ms, bytes / (2 * PAGE), bytes));
    w = (struct rs_adopt_watch){.in = 0};
    cr_assert_not(rs_adopt_is_due(&w, ms, SIZE_MAX, bytes));
    /* What saves next to nothing is not looked at for ever. */
    w = (struct rs_adopt_watch){.in = 0};
    for (int i = 0; i < 40; i++) {
        w.in = 0;
        cr_assert_not(rs_adopt_is_due(&w, 1, 1, UINT64_MAX));
    }
    cr_assert_eq(w.in, 0);
}

Test(base_adopt, what_is_emptied_is_zero_and_still_adopted)
{
    char *memory = adopted_memory();

    cr_assert_eq(rsched_memory_empty(memory + 2 * PAGE, PAGE + 1), 0);
    for (int i = 2 * PAGE; i < 4 * PAGE; i++)
        cr_assert_eq(memory[i], 0);
    expect_values(memory, 0xff3);
    cr_assert_eq(adopted_pages(memory), 0xfff);
    /* As for the kernel: an address within a page is none. */
    cr_assert_eq(rsched_memory_empty(memory + 5 * PAGE + 1, PAGE), 0);
    expect_values(memory, 0xff3);
    /* More than is adopted. */
    cr_assert_eq(rsched_memory_empty(memory - PAGE, ALL + 2 * PAGE), 0);
    for (int i = 0; i < ALL; i++)
        cr_assert_eq(memory[i], 0);
    cr_assert_eq(rs_shared_unadopt(memory, memory + ALL), 0);
    munmap(memory, ALL);
}

struct range {
    char *address;
    size_t bytes;
};

static bool unmap(void *arg)
{
    struct range *r = arg;

    return munmap(r->address, r->bytes) == 0;
}

static bool fail(void *arg)
{
    (void)arg;
    return false;
}

static void take(char *memory, int first, int pages)
{
    struct range r = {memory + first * PAGE, (size_t)pages * PAGE};

    cr_assert_eq(rsched_memory_unmap(r.address, r.bytes, unmap, &r), 0);
}

Test(base_adopt, what_is_around_what_is_unmapped_stays_adopted)
{
    char *memory = adopted_memory();
    uint64_t changes = atomic_load(&rs_shared_changes);
    struct rs_place place;

    cr_assert_eq(rsched_memory_unmap(memory, ALL, fail, NULL), 0);
    cr_assert_eq(adopted_pages(memory), 0xfff);
    take(memory, 4, 2); /* in the middle */
    cr_assert_eq(adopted_pages(memory), 0xfcf);
    cr_assert_gt(atomic_load(&rs_shared_changes), changes);
    take(memory, 0, 1); /* the first, and the last */
    take(memory, 11, 1);
    cr_assert_eq(adopted_pages(memory), 0x7ce);
    expect_values(memory, 0x7ce);
    /* Both parts are where they were in the file. */
    cr_assert(rs_shared_find(memory + 6 * PAGE, memory + 7 * PAGE, &place));
    cr_assert_eq(place.address, memory + 6 * PAGE);
    cr_assert_eq(place.bytes, 5 * PAGE);
    cr_assert_eq(rs_shared_resolve(&place), memory + 6 * PAGE);
    take(memory, 2, 6); /* over the gap */
    cr_assert_eq(adopted_pages(memory), 0x702);
    expect_values(memory, 0x702);
    take(memory, 0, PAGES);
    cr_assert_eq(adopted_pages(memory), 0);
    cr_assert_not(rs_shared_find(memory, memory + ALL, &place));
}

/* The file goes with the last region: whatever was cut out of which. */
Test(base_adopt, nothing_is_left_of_what_was_cut)
{
    struct rs_shared_file file;
    uint64_t first;
    char *memory;

    cr_assert_eq(rs_shared_open(&file), 0);
    first = file.id;
    memory = adopted_memory();
    take(memory, 3, 1);
    take(memory, 7, 1);
    cr_assert_eq(rs_shared_unadopt(memory, memory + ALL), 0);
    munmap(memory, ALL);
    rs_shared_close();
    cr_assert_eq(rs_shared_open(&file), 0);
    cr_assert_neq(file.id, first, "the file is still there");
    rs_shared_close();
}

static struct rs_offer *list;
static size_t listed;

static void look(const char *low, const char *high)
{
    free(list);
    cr_assert(rs_offers_list(low, high, &list, &listed));
}

Test(base_adopt, pieces_of_offers)
{
    static char memory[100];
    const char *m = memory, *end = memory + 100;

    look(m, end);
    cr_assert_eq(rs_offers_edge(list, listed, m, end), end);
    cr_assert_null(rs_offers_holding(list, listed, m, end));
    rsched_memory_offer(memory + 30, 30);
    rsched_memory_offer(memory + 10, 20);
    look(m, end);
    cr_assert_eq(listed, 2);
    cr_assert_eq(rs_offers_edge(list, listed, m, end), m + 10);
    cr_assert_eq(rs_offers_edge(list, listed, m + 10, end), m + 30);
    cr_assert_eq(rs_offers_edge(list, listed, m + 30, end), m + 60);
    cr_assert_eq(rs_offers_edge(list, listed, m + 30, m + 50), m + 50);
    cr_assert_eq(rs_offers_holding(list, listed, m + 10, m + 30), &list[0]);
    cr_assert_eq(rs_offers_holding(list, listed, m + 40, m + 41), &list[1]);
    cr_assert_null(rs_offers_holding(list, listed, m + 29, m + 31));
    cr_assert_null(rs_offers_holding(list, listed, m + 59, m + 61));
    cr_assert_null(rs_offers_holding(list, listed, m + 60, m + 61));
    look(m + 30, m + 31);
    cr_assert_eq(listed, 1);
    /* What is no longer offered, or barred, is not marked. */
    cr_assert(rs_offer_mark(&list[0]));
    rsched_memory_bar(memory + 50, 1);
    cr_assert_not(rs_offer_mark(&list[0]));
    look(m, end);
    cr_assert_null(rs_offers_holding(list, listed, m + 40, m + 41));
    cr_assert_eq(rsched_memory_reclaim(memory + 10), 0);
    cr_assert_not(rs_offer_mark(&list[0]));
    cr_assert_eq(rsched_memory_reclaim(memory + 30), 0);
}

/* A pool that was given out, and parts of it that were, too. */
Test(base_adopt, offers_within_an_offer)
{
    static char memory[100];
    const char *m = memory, *end = memory + 100;

    rsched_memory_offer(memory, 100);
    rsched_memory_offer(memory + 20, 10);
    rsched_memory_offer(memory + 50, 10);
    look(m, end);
    cr_assert_eq(listed, 3);
    cr_assert_eq(rs_offers_holding(list, listed, m + 70, m + 80), &list[0]);
    cr_assert_eq(rs_offers_holding(list, listed, m + 30, m + 50), &list[0]);
    cr_assert_null(rs_offers_holding(list, listed, m + 20, m + 30));
    cr_assert_null(rs_offers_holding(list, listed, m + 40, m + 51));
    cr_assert_eq(rs_offers_edge(list, listed, m, end), m + 20);
    cr_assert_eq(rs_offers_edge(list, listed, m + 20, end), m + 30);
    cr_assert_eq(rs_offers_edge(list, listed, m + 60, end), end);
    cr_assert_eq(rsched_memory_reclaim(memory), 0);
    cr_assert_eq(rsched_memory_reclaim(memory + 20), 0);
    cr_assert_eq(rsched_memory_reclaim(memory + 50), 0);
}

static struct rsched_piece part(char *memory, int low, int high)
{
    return (struct rsched_piece){memory + low, (uint64_t)(high - low), 1, 0};
}

Test(base_adopt, pages_of_parts_in_any_order)
{
    char *m = mmap(NULL, ALL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rsched_piece parts[] = {
        part(m, 8 * PAGE, 9 * PAGE - 1),             /* no page */
        part(m, 5 * PAGE + 7, 7 * PAGE),             /* its second half is behind it */
        part(m, 4 * PAGE - 1, 5 * PAGE + 7),         /* they touch */
        part(m, 0, PAGE + 1), part(m, 10, 3 * PAGE), /* they overlap */
        part(m, PAGE, PAGE + 1),
    };

    cr_assert_eq(rs_adopt_pages(NULL, 0), 0);
    cr_assert_eq(rs_adopt_pages(parts, sizeof(parts) / sizeof(parts[0])), 2);
    cr_assert(parts[0].address == m && parts[0].bytes == 3 * PAGE);
    cr_assert(parts[1].address == m + 4 * PAGE && parts[1].bytes == 3 * PAGE);
    cr_assert(parts[0].count == 1 && parts[1].count == 1);
}

Test(base_adopt, no_more_parts_than_a_process_can_have)
{
    enum { MANY = 8200 };
    char *m = mmap(NULL, 2 * MANY * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int left = MANY, error;

    cr_assert_neq(m, MAP_FAILED);
    do
        error = rs_shared_adopt(m + (size_t)(2 * left) * PAGE - PAGE, PAGE);
    while (error == 0 && --left > 0);
    cr_assert_eq(error, RSCHED_ELIMIT);
    cr_assert_leq(MANY - left, 8192);
    cr_assert_eq(rs_shared_unadopt(m + (size_t)(2 * left) * PAGE,
                                   m + (size_t)(2 * left + 3) * PAGE), 0);
    cr_assert_eq(rs_shared_adopt(m, PAGE), 0, "there is room again");
}

/* Lists of the process are as long as it has mappings, and each piece adds some. */
Test(base_adopt, the_process_is_looked_at_once_for_many_pieces)
{
    enum { PIECES = 50, STEP = 4 * PAGE };
    char *memory = mmap(NULL, PIECES * STEP, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rsched_piece pages[PIECES];
    uint64_t before = rsched_memory_adoptions(RSCHED_ADOPTED);

    cr_assert_neq(memory, MAP_FAILED);
    memset(memory, 1, PIECES * STEP);
    rsched_memory_offer(memory, PIECES * STEP);
    for (int i = 0; i < PIECES; i++)
        pages[i] = part(memory, i * STEP, i * STEP + 2 * PAGE);
    opened = 0;
    rs_adopt(pages, PIECES);
    cr_assert_eq(rsched_memory_adoptions(RSCHED_ADOPTED) - before,
                 PIECES * 2 * PAGE);
    cr_assert_leq(opened, 2, "%u files", opened);
    cr_assert_eq(rsched_memory_reclaim(memory), 0);
    munmap(memory, PIECES * STEP);
}
