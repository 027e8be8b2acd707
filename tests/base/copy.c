/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from layout to layout, with stores of both kinds. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engines/common/copy.h"

enum { ROOM = 1 << 16, LAYOUTS = 400, PIECES = 4 };

/* Blocks shorter and longer than those that non-temporal stores are for, at any
 * address, a few bytes apart. @return their bytes, or 0 if they need more room */
static uint64_t draw(unsigned *seed, char *memory, struct rsched_piece *pieces)
{
    uint64_t at = (uint64_t)rand_r(seed) % 200, sum = 0;

    for (int i = 0; i < PIECES; i++) {
        uint64_t bytes = 1 + (uint64_t)rand_r(seed) % (i % 2 == 0 ? 300 : 6000);
        uint64_t count = 1 + (uint64_t)rand_r(seed) % 3;
        uint64_t stride = bytes + (uint64_t)rand_r(seed) % 70;

        pieces[i] = (struct rsched_piece){.address = memory + at,
                                          .bytes = bytes,
                                          .count = count,
                                          .stride = (int64_t)stride};
        at += count * stride;
        sum += count * bytes;
    }
    return at <= ROOM ? sum : 0;
}

/* The message's bytes in their order. */
static void gather(const struct rsched_piece *pieces, int count, char *to)
{
    for (int i = 0; i < count; i++) {
        for (uint64_t k = 0; k < pieces[i].count; k++) {
            memcpy(to, pieces[i].address + (int64_t)k * pieces[i].stride,
                   pieces[i].bytes);
            to += pieces[i].bytes;
        }
    }
}

static uint64_t long_bytes(const struct rs_copies *list)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < list->num_copies; i++) {
        if (list->copies[i].bytes >= 2048)
            sum += (list->copies[i].bytes - 126) * list->copies[i].count;
    }
    return sum;
}

/* From pieces into one block, and back; nothing beside them is written. */
static void there_and_back(bool nontemporal)
{
    static char from[ROOM], block[ROOM], expected[ROOM], back[ROOM], whole[ROOM];
    unsigned seed = 7;
    uint64_t stored = 0, least = 0;

    for (int i = 0; i < LAYOUTS; i++) {
        struct rs_copies list = {.nontemporal = nontemporal};
        struct rsched_piece pieces[PIECES], others[PIECES], one;
        unsigned again = seed;
        uint64_t bytes = draw(&seed, from, pieces);
        struct rsched_message scattered = {pieces, PIECES, bytes, 0, 1, 0};
        struct rsched_message contiguous = {&one, 1, bytes, 0, 1, 0};

        if (bytes == 0)
            continue;
        for (int k = 0; k < ROOM; k++)
            from[k] = (char)rand_r(&seed);
        memset(block, 0, sizeof(block));
        one = (struct rsched_piece){.address = block + i % 64,
                                    .bytes = bytes,
                                    .count = 1};
        cr_assert_eq(rs_copies_compile_pair(&list, &scattered, &contiguous), 0);
        stored += rs_copies_run_pair(&list);
        least += long_bytes(&list);
        gather(pieces, PIECES, expected);
        cr_assert_eq(memcmp(block + i % 64, expected, bytes), 0);
        cr_assert_eq(block[i % 64 + bytes], 0);

        draw(&again, back, others);
        memset(back, 0, sizeof(back));
        memset(whole, 0, sizeof(whole));
        scattered.pieces = others;
        cr_assert_eq(rs_copies_compile_pair(&list, &contiguous, &scattered), 0);
        stored += rs_copies_run_chunk(&list, &list.chunks[0]);
        least += long_bytes(&list);
        for (int k = 0; k < PIECES; k++) {
            for (uint64_t b = 0; b < others[k].count; b++) {
                ptrdiff_t at = others[k].address - back +
                               (int64_t)b * others[k].stride;

                memcpy(whole + at, from + at, others[k].bytes);
            }
        }
        cr_assert_eq(memcmp(back, whole, sizeof(back)), 0);
        rs_copies_fini(&list);
    }
    cr_assert_gt(least, 0);
#ifdef __x86_64__
    if (nontemporal)
        cr_assert_geq(stored, least);
#endif
    if (!nontemporal)
        cr_assert_eq(stored, 0);
}

Test(copy, through_the_caches)
{
    there_and_back(false);
}

Test(copy, past_the_caches)
{
    there_and_back(true);
}
