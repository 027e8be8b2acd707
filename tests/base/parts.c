/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of a message's parts when pages of it are moved to where others map
 * them: each byte is in one part. */
#include <criterion/criterion.h>

#include "engines/common/table.h"

enum { PAGE = 4096, PAGES = 64 };

static _Alignas(PAGE) char memory[PAGES * PAGE];

static uint64_t sum(const struct rs_way_parts *p)
{
    return p->mapped.bytes + p->readable.bytes + p->huge.bytes + p->rest.bytes;
}

/* A message that begins 100 bytes into a page and ends 200 before one does. */
static struct rsched_piece message = {memory + 100, (PAGES - 1) * PAGE - 300, 1, 0};

static struct rs_way_parts move(struct rs_way_parts parts, uint64_t first,
                                uint64_t pages)
{
    struct rsched_piece all = {memory + first * PAGE, pages * PAGE, 1, 0};

    rs_table_parts_add(&parts, &message, 1, &all, 1);
    return parts;
}

Test(parts, pages_leave_the_part_in_which_they_were)
{
    for (uint64_t mapped = 0; mapped < 10; mapped++) {
        for (uint64_t huge = 0; huge < 50; huge += 7) {
            for (uint64_t rest = 0; rest < 3; rest++) {
                struct rs_way_parts before = {
                    .mapped = {.bytes = mapped * PAGE, .blocks = mapped > 0},
                    .huge = {.bytes = huge * PAGE, .blocks = huge > 0},
                    .rest = {.bytes = rest * 900, .blocks = rest}};
                struct rs_way_parts after;

                before.readable = (struct rs_way_part){
                    message.bytes - sum(&before), 1, 0};
                after = move(before, 1, PAGES - 3);
                cr_assert_eq(after.mapped.bytes, (PAGES - 3) * PAGE);
                cr_assert_eq(sum(&after), message.bytes,
                             "%llu pages mapped, %llu huge: %llu bytes",
                             (unsigned long long)mapped, (unsigned long long)huge,
                             (unsigned long long)sum(&after));
                cr_assert_eq(after.rest.bytes, 0);
            }
        }
    }
}

/* As after madvise() has put all of it into huge pages. */
Test(parts, all_of_it_is_huge)
{
    struct rs_way_parts before = {.huge = {.bytes = message.bytes, .blocks = 1}};
    struct rs_way_parts after = move(before, 1, PAGES - 3);

    cr_assert_eq(after.mapped.bytes, (PAGES - 3) * PAGE);
    cr_assert_eq(after.huge.bytes, message.bytes - (PAGES - 3) * PAGE);
}

Test(parts, pages_that_are_mapped_already)
{
    struct rs_way_parts before = {.mapped = {.bytes = 10 * PAGE, .blocks = 1}};
    struct rs_way_parts after;

    before.readable = (struct rs_way_part){message.bytes - sum(&before), 1, 0};
    after = move(before, 1, 10);
    cr_assert_eq(after.mapped.bytes, 10 * PAGE);
    cr_assert_eq(after.readable.bytes, before.readable.bytes);
}
