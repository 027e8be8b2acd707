/* SPDX-License-Identifier: BSD-3-Clause */
/* Of which GPU an address of a message is, beside what a look at all pieces says. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "engines/cuda/spans.h"

enum { MEMORY = 4096, MOST_PIECES = 40, MESSAGES = 300, GPUS = 3 };
static char memory[MEMORY];

static int has(const struct rsched_piece *p, const char *address, const char **low)
{
    int64_t reach = (int64_t)(p->count - 1) * p->stride;

    *low = p->address + (reach < 0 ? reach : 0);
    return address >= *low &&
           address < p->address + (reach > 0 ? reach : 0) + p->bytes;
}

/* Of those that have it, the one that begins last. */
static int look(const struct rsched_piece *pieces, const int *gpus, int number,
                const char *address)
{
    const char *low, *last = NULL;
    int gpu = -1;

    for (int i = 0; i < number; i++) {
        if (!has(&pieces[i], address, &low) || (last != NULL && low < last))
            continue;
        last = low;
        gpu = gpus[i];
    }
    return gpu;
}

/* Each in a part of its own of what is this long, of one GPU. */
static struct rsched_piece make(char *from, int length)
{
    struct rsched_piece p = {.bytes = (uint64_t)(1 + rand() % (length / 2)), .count = 1};
    int room = length - (int)p.bytes;

    p.address = from + rand() % (room + 1);
    if (rand() % 2 == 0) {
        p.count = 2;
        p.stride = rand() % 2 == 0 ? from + room - p.address : from - p.address;
    }
    return p;
}

static void check_all(const struct rsched_piece *pieces, const int *gpus, int number)
{
    struct rs_spans spans = {0};

    for (int i = 0; i < number; i++)
        cr_assert_eq(rs_spans_add(&spans, &pieces[i], gpus[i]), 0);
    rs_spans_sort(&spans);
    for (int i = 0; i < MEMORY; i++)
        cr_assert_eq(rs_spans_find(&spans, &memory[i]),
                     look(pieces, gpus, number, &memory[i]), "byte %d", i);
    rs_spans_fini(&spans);
}

/* Host memory lies between them, and some touch. */
Test(spans, allocations_of_several_gpus)
{
    struct rsched_piece pieces[MOST_PIECES];
    int gpus[MOST_PIECES], of_part[MOST_PIECES];

    for (int m = 0; m < MESSAGES; m++) {
        int number = rand() % MOST_PIECES, length = 16 + rand() % 64;
        int parts = MEMORY / length < MOST_PIECES ? MEMORY / length : MOST_PIECES;

        for (int i = 0; i < parts; i++)
            of_part[i] = rand() % GPUS;
        for (int i = 0; i < number; i++) {
            int part = rand() % parts;

            pieces[i] = make(memory + part * length, length);
            gpus[i] = of_part[part];
        }
        check_all(pieces, gpus, number);
    }
}

/* As where what was reserved at once is mapped on several. */
Test(spans, between_the_blocks_of_another)
{
    const struct rsched_piece pieces[] = {
        {memory + 1000, 100, 2, 1500}, /* up to 2600 */
        {memory + 2000, 10, 1, 0},
        {memory + 1200, 50, 8, 60}, /* up to 1670 */
        {memory + 1300, 8, 1, 0},
    };
    const int gpus[] = {0, 1, 1, 2};

    check_all(pieces, gpus, 4);
}

Test(spans, there_are_none)
{
    struct rs_spans spans = {0};

    rs_spans_sort(&spans);
    cr_assert_eq(rs_spans_find(&spans, memory), -1);
    cr_assert_eq(rs_spans_add(&spans, &(struct rsched_piece){memory, 8, 1, 0}, 0), 0);
    rs_spans_sort(&spans);
    cr_assert_eq(rs_spans_find(&spans, memory + 7), 0);
    cr_assert_eq(rs_spans_find(&spans, memory + 8), -1);
    rs_spans_clear(&spans);
    cr_assert_eq(rs_spans_find(&spans, memory), -1);
    rs_spans_fini(&spans);
}
