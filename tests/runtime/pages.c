/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages of a buffer that two map, as the kernel has them in both page tables. */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engines/loopback/pages.h"

enum { PAGES = 600, BLOCKS = 40 };

static size_t page;

/* Of one memfd, in two places. */
static char *ours, *theirs;

static void map_both(void)
{
    int fd = memfd_create("pages", MFD_CLOEXEC);

    page = (size_t)sysconf(_SC_PAGESIZE);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, (off_t)(PAGES * page)), 0);
    ours = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    theirs = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(ours, MAP_FAILED);
    cr_assert_neq(theirs, MAP_FAILED);
    close(fd);
}

/* How many pages from there on the page table of this process has. */
static unsigned mapped(const char *address, size_t pages)
{
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    unsigned number = 0;

    cr_assert_geq(fd, 0);
    for (size_t i = 0; i < pages; i++) {
        uint64_t entry;

        cr_assert_eq(pread(fd, &entry, sizeof(entry),
                           (off_t)(((uintptr_t)address / page + i) * sizeof(entry))),
                     sizeof(entry));
        number += entry >> 63;
    }
    close(fd);
    return number;
}

static struct rs_chunk whole = {0, 1, 0};

static struct rs_copies list_of(struct rs_copy *copy)
{
    return (struct rs_copies){.copies = copy, .chunks = &whole, .num_copies = 1,
                              .num_chunks = 1};
}

Test(runtime_pages, of_a_block_are_mapped_once_they_are_there, .init = map_both)
{
    struct rs_copy copy = {.other = ours + page / 2, .count = 1,
                           .bytes = (PAGES - 1) * page};
    struct rs_copies list = list_of(&copy);

    cr_assert(!rs_pages_are_there(&list, &whole));
    memset(theirs, 1, (PAGES - 1) * page);
    cr_assert(!rs_pages_are_there(&list, &whole), "the last page is missing");
    theirs[(PAGES - 1) * page] = 1;
    cr_assert(rs_pages_are_there(&list, &whole));
    cr_assert_eq(mapped(ours, PAGES), 0);
    rs_pages_map(&list, &whole);
    cr_assert_eq(mapped(ours, PAGES), PAGES);
    cr_assert_eq(ours[page], 1);
}

/* Upwards and downwards, and no page beyond. */
Test(runtime_pages, of_blocks_are_those_between_both_ends, .init = map_both)
{
    int64_t stride = (int64_t)page / 2;
    struct rs_copy copy = {.other = ours + page, .count = BLOCKS, .bytes = page / 4,
                           .other_stride = stride};
    struct rs_copies list = list_of(&copy);

    rs_pages_map(&list, &whole);
    cr_assert_eq(mapped(ours, PAGES), BLOCKS / 2);
    cr_assert_eq(mapped(ours + page, BLOCKS / 2), BLOCKS / 2);
    copy.other = ours + (PAGES - 1) * page;
    copy.other_stride = -stride;
    rs_pages_map(&list, &whole);
    cr_assert_eq(mapped(ours, PAGES), BLOCKS + 1);
    cr_assert_eq(mapped(ours + (PAGES - 1 - BLOCKS / 2) * page, BLOCKS / 2 + 1),
                 BLOCKS / 2 + 1);
    cr_assert(rs_pages_are_there(&list, &whole));
}

Test(runtime_pages, of_a_face_of_an_array_are_left_alone, .init = map_both)
{
    struct rs_copy copy = {.other = ours, .count = BLOCKS, .bytes = sizeof(double),
                           .other_stride = 512};
    struct rs_copies list = list_of(&copy);

    rs_pages_map(&list, &whole);
    cr_assert_eq(mapped(ours, PAGES), 0);
    cr_assert(rs_pages_are_there(&list, &whole));
}
