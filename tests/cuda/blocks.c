/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables for the kernel and the kernel's arithmetic, compiled for the
 * processor: every byte of the blocks arrives, and no other is touched. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engines/cuda/blocks.h"

static unsigned long long stores;

static void *reach(uint64_t address, size_t bytes, bool store)
{
    (void)bytes;
    stores += store;
    return (void *)(uintptr_t)address;
}

#include "tests/cuda/pack_here.h"

/* Entries [first, end) of a table; all of a launch. */
static void add_job(struct rs_pack_launch *launch, const struct rs_blocks *b,
                    uint32_t first, uint32_t end, uint64_t to, uint64_t from)
{
    uint64_t begin = b->entries[first].tiles_before;
    uint64_t stop = end < b->num ? b->entries[end].tiles_before : b->tiles;

    launch->jobs[launch->num_jobs++] = (struct rs_pack_job){
        .entries = (uint64_t)(uintptr_t)b->entries,
        .from = from,
        .to = to,
        .first_tile = begin,
        .tiles_before = launch->tiles,
        .first = first,
        .end = end};
    launch->tiles += stop - begin;
}

static uint64_t address_of(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

enum { AREA = 1 << 17 };

/* Two areas, the first one filled. */
struct areas {
    unsigned char *from, *to, *expected;
};

static struct areas areas_of(void)
{
    struct areas a = {aligned_alloc(64, AREA), aligned_alloc(64, AREA),
                      aligned_alloc(64, AREA)};

    for (size_t i = 0; i < AREA; i++)
        a.from[i] = (unsigned char)(i * 7 + i / 256 + 1);
    memset(a.to, 0, AREA);
    memset(a.expected, 0, AREA);
    return a;
}

static void free_areas(struct areas *a)
{
    free(a->from);
    free(a->to);
    free(a->expected);
}

struct shape {
    size_t to, from; /* of the first block */
    int64_t to_stride, from_stride;
    uint64_t bytes, count;
    unsigned width; /* log2, expected */
};

static void check_shape(const struct shape *s, unsigned blocks)
{
    struct rs_pack_launch launch = {0};
    struct rs_blocks table = {0};
    struct areas a = areas_of();

    for (uint64_t i = 0; i < s->count; i++)
        memcpy(a.expected + s->to + (int64_t)i * s->to_stride,
               a.from + s->from + (int64_t)i * s->from_stride, s->bytes);
    cr_assert_eq(rs_blocks_add(&table, address_of(a.to) + s->to, s->to_stride,
                               address_of(a.from) + s->from, s->from_stride,
                               s->bytes, s->count), 0);
    cr_assert_eq(table.num, 1);
    cr_assert_eq(table.entries[0].width, s->width, "%u",
                 table.entries[0].width);
    add_job(&launch, &table, 0, 1, 0, 0);
    stores = 0;
    run_launch(&launch, blocks);
    cr_assert_eq(stores, s->bytes * s->count >> s->width,
                 "each word is stored once");
    cr_assert_eq(memcmp(a.to, a.expected, AREA), 0);
    free_areas(&a);
    rs_blocks_fini(&table);
}

Test(blocks, of_all_shapes)
{
    static const struct shape shapes[] = {
        {0, 0, 8, 512, 8, 64, 3},             /* a face of single numbers */
        {0, 4, 8, 512, 8, 64, 2},             /* not aligned to them */
        {1, 0, 8, 512, 8, 64, 0},
        {64, 65536 + 512, 16, -1024, 16, 64, 4}, /* backwards */
        {32000, 64, -48, 96, 48, 100, 4},
        {30002, 64, -50, 96, 34, 100, 1},
        {0, 0, 1000, 1000, 1000, 100, 3},     /* in one piece */
        {7, 9, 0, 0, 30001, 1, 0},            /* distances without meaning */
        {16, 32, 3, 5, 30000, 1, 4},
        {0, 16, 4096, 4100, 12, 20, 2},
        {0, 16, 17, 19, 1, 3000, 0},
        {0, 0, 4096, 4096, 4096, 20, 4},      /* many tiles */
        {8, 8, 16, 24, 8, 1, 3},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_shape(&shapes[i], 1);
        check_shape(&shapes[i], 3);
        check_shape(&shapes[i], 1000);
    }
}

Test(blocks, division_is_exact)
{
    uint64_t random = 1;

    for (int i = 0; i < 20000; i++) {
        struct rs_blocks table = {0};
        const struct rs_pack_entry *e;
        uint32_t bytes, n;

        random = random * 6364136223846793005u + 1442695040888963407u;
        bytes = (uint32_t)(random >> 33) >> (i % 31);
        bytes = bytes == 0 ? 1 : bytes;
        cr_assert_eq(rs_blocks_add(&table, 1, 0, 1, 0, bytes, 1), 0);
        e = &table.entries[0];
        for (int j = 0; j < 8; j++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            n = (uint32_t)(random >> 33);
            if (j < 6) /* about multiples */
                n = n / bytes * bytes + (uint32_t)(j % 3) - 1u;
            n &= INT32_MAX;
            cr_assert_eq(n * e->magic >> e->shift, n / bytes, "%u / %u", n,
                         bytes);
        }
        rs_blocks_fini(&table);
    }
}

/* One launch of jobs of several tables, with bases, of parts of tables. */
Test(blocks, many_jobs_in_a_launch)
{
    struct rs_pack_launch launch = {0};
    struct rs_blocks tables[2] = {0};
    struct areas a = areas_of();
    enum { BASE = 65536 };

    for (uint32_t t = 0; t < 2; t++) {
        for (uint32_t i = 0; i < 30; i++) {
            uint64_t bytes = 16 + 48 * t, row = (t * 30 + i) * 1024;

            /* from offsets of a slot to rows */
            cr_assert_eq(rs_blocks_add(&tables[t], address_of(a.to) + row, 128,
                                       i * 1000 / 16 * 16, (int64_t)bytes,
                                       bytes, 8), 0);
            if (i < 5 || i >= 25)
                continue;
            for (uint32_t k = 0; k < 8; k++)
                memcpy(a.expected + row + k * 128,
                       a.from + t * BASE + i * 1000 / 16 * 16 + k * bytes,
                       bytes);
        }
    }
    for (uint32_t i = 5; i < 25; i += 2) { /* two entries a job, in turn */
        add_job(&launch, &tables[1], i, i + 2, 0, address_of(a.from) + BASE);
        add_job(&launch, &tables[0], i, i + 2, 0, address_of(a.from));
    }
    cr_assert_eq(launch.num_jobs, 20);
    run_launch(&launch, 2);
    cr_assert_eq(memcmp(a.to, a.expected, AREA), 0);
    free_areas(&a);
    rs_blocks_fini(&tables[0]);
    rs_blocks_fini(&tables[1]);
}

/* Distances, and blocks together, beyond 2^32 bytes. The memory is there, but
 * hardly a page of it is used. */
Test(blocks, far_apart)
{
    const int64_t stride = (INT64_C(3) << 30) + 4;
    const size_t span = (size_t)stride * 4 + 4096;
    struct rs_pack_launch launch = {0};
    struct rs_blocks table = {0};
    unsigned char *memory, gathered[5 * 12];

    memory = mmap(NULL, span, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        cr_skip_test("no address space of 12 GiB");
    for (int i = 0; i < 5; i++)
        memset(memory + i * stride, i + 1, 12);
    /* backwards: the last one first */
    cr_assert_eq(rs_blocks_add(&table, address_of(gathered), 12,
                               address_of(memory + 4 * stride), -stride, 12, 5),
                 0);
    add_job(&launch, &table, 0, 1, 0, 0);
    run_launch(&launch, 4);
    for (int i = 0; i < 5 * 12; i++)
        cr_assert_eq(gathered[i], 5 - i / 12);
    munmap(memory, span);
    rs_blocks_fini(&table);
}

/* More words than an entry has numbers for. */
Test(blocks, too_many_words_are_divided)
{
    const uint64_t bytes = 24, count = (UINT64_C(1) << 32) + 5;
    const uint64_t words = bytes / 8 * count;
    struct rs_blocks table = {0};
    uint64_t seen = 0, tiles = 0;

    cr_assert_eq(rs_blocks_add(&table, 1 << 20, 32, 1 << 21, -64, bytes, count),
                 0);
    for (size_t i = 0; i < table.num; i++) {
        const struct rs_pack_entry *e = &table.entries[i];

        cr_assert_eq(e->width, 3);
        cr_assert_lt(e->total, UINT32_C(1) << 31);
        cr_assert_eq(e->total % e->words, 0);
        cr_assert_eq(e->tiles_before, tiles);
        cr_assert_eq(e->to, (UINT64_C(1) << 20) + seen / 3 * 32);
        cr_assert_eq(e->from, (UINT64_C(1) << 21) - seen / 3 * 64);
        seen += e->total;
        tiles += (e->total + RS_PACK_TILE - 1) / RS_PACK_TILE;
    }
    cr_assert_eq(seen, words);
    cr_assert_eq(table.tiles, tiles);
    cr_assert_not(rs_blocks_fit(UINT64_C(1) << 31));
    cr_assert(rs_blocks_fit((UINT64_C(1) << 31) - 1));
    rs_blocks_fini(&table);
}
