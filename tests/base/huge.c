/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory in huge pages: which is found, and that nobody sees it move. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engines/common/huge.h"
#include "librsched/base/huge.h"

enum { UNITS = 4, PAGE = 4096 };

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* How the kernel answers instead of making huge pages, if not 0; and how often it
 * was asked. */
static int refusal;
static unsigned asked;

/* In the place of libc's. */
int madvise(void *address, size_t bytes, int advice)
{
    if (advice == MADV_COLLAPSE) {
        asked++;
        errno = refusal;
        if (refusal != 0)
            return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* Of so many huge pages, the first one aligned; not there yet. */
static char *map_units(size_t units)
{
    uint64_t unit = rs_huge_unit();
    char *room = mmap(NULL, (units + 1) * unit, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert(room != MAP_FAILED);
    return room + (unit - (uintptr_t)room % unit) % unit;
}

/* Bytes of huge pages in the mappings that begin in [low, high). */
static uint64_t huge_bytes(const char *low, const char *high)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    unsigned long first, last, kib;
    bool within = false;
    uint64_t bytes = 0;
    char line[512];

    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
            within = last > (uintptr_t)low && first < (uintptr_t)high;
        else if (within && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
            bytes += (uint64_t)kib << 10;
    }
    fclose(file);
    return bytes;
}

/* Kernels before 6.1, and machines whose administrator wants none. */
static bool can_make(void)
{
    const char *low, *high;
    char *memory;

    if (rs_huge_unit() == 0)
        return false;
    memory = map_units(1);
    memset(memory, 1, rs_huge_unit());
    low = memory;
    high = memory + rs_huge_unit();
    return rs_huge_make(&low, &high);
}

Test(huge, what_is_not_there_is_not_found)
{
    uint64_t unit = rs_huge_unit();
    char *memory, *low, *high;

    if (unit == 0)
        cr_skip_test("there are no huge pages here");
    memory = map_units(UNITS);
    low = memory;
    cr_assert_null(rs_huge_find(&low, memory + UNITS * unit));
    memset(memory + unit, 1, 2 * unit - PAGE); /* the last page is not there */
    low = memory;
    high = rs_huge_find(&low, memory + UNITS * unit);
    cr_assert_eq(low, memory + unit);
    cr_assert_eq(high, memory + 2 * unit);
    low = high;
    cr_assert_null(rs_huge_find(&low, memory + UNITS * unit));
    memset(memory + unit, 1, 2 * unit);
    low = memory + 3;
    high = rs_huge_find(&low, memory + 2 * unit + 17); /* within a huge page */
    cr_assert_eq(low, memory + unit);
    cr_assert_eq(high, memory + 2 * unit + 17);
    low = high;
    cr_assert_null(rs_huge_find(&low, high)); /* nothing is left */
    low = memory + unit + 5;
    high = rs_huge_find(&low, memory + unit + 9);
    cr_assert_eq(low, memory + unit + 5);
    cr_assert_eq(high, memory + unit + 9);
    /* No huge page may reach over an end of the mapping. */
    munmap(memory, unit + PAGE);
    low = memory + unit + PAGE;
    high = rs_huge_find(&low, memory + 3 * unit);
    cr_assert_eq(low, memory + 2 * unit);
    cr_assert_eq(high, memory + 3 * unit);
}

struct writer {
    atomic_uint *words;
    size_t number;
    atomic_bool stop;
    unsigned rounds;
};

static void *write_on(void *arg)
{
    struct writer *w = arg;

    while (!atomic_load(&w->stop)) {
        for (size_t i = 0; i < w->number; i += 97)
            atomic_fetch_add(&w->words[i], 1);
        w->rounds++;
    }
    return NULL;
}

Test(huge, memory_stays_as_it_is_under_a_writer)
{
    uint64_t unit = rs_huge_unit(), before, others;
    struct writer w = {.stop = false};
    const char *low, *high;
    pthread_t thread;
    char *memory;
    bool made = false;

    if (!can_make())
        cr_skip_test("the kernel makes no huge pages");
    memory = map_units(UNITS);
    for (size_t i = 0; i < UNITS * unit; i += sizeof(unsigned))
        *(unsigned *)(void *)(memory + i) = (unsigned)i;
    before = rsched_memory_huge();
    w.words = (void *)memory;
    w.number = UNITS * unit / sizeof(unsigned);
    cr_assert_eq(pthread_create(&thread, NULL, write_on, &w), 0);
    /* of what the kernel has joined with this mapping */
    others = huge_bytes(memory, memory + UNITS * unit);
    low = memory + 1;
    high = memory + UNITS * unit - 1;
    for (int i = 0; i < 100 && !made; i++)
        made = rs_huge_make(&low, &high);
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    cr_assert(made);
    cr_assert_eq(low, memory + 1);
    cr_assert_eq(high, memory + UNITS * unit - 1);
    cr_assert_eq(huge_bytes(memory, memory + UNITS * unit) - others,
                 UNITS * unit);
    cr_assert_eq(rsched_memory_huge() - before, UNITS * unit - 2);
    for (size_t i = 0; i < w.number; i++)
        cr_assert_eq(atomic_load(&w.words[i]),
                     (unsigned)(i * sizeof(unsigned)) +
                         (i % 97 == 0 ? w.rounds : 0));
}

/* A mapping of another kind reaches into the last huge page, one into the first;
 * all pages are there. */
Test(huge, ends_that_others_share_are_left_out)
{
    uint64_t unit = rs_huge_unit(), before;
    const char *low, *high;
    char *memory;

    if (!can_make())
        cr_skip_test("the kernel makes no huge pages");
    memory = map_units(UNITS);
    for (int end = 0; end < 2; end++) {
        char *other = end == 0 ? memory : memory + UNITS * unit - PAGE;

        cr_assert_neq(mmap(other, PAGE, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                      MAP_FAILED);
    }
    memset(memory, 1, UNITS * unit);
    before = rsched_memory_huge();
    low = memory;
    high = rs_huge_find(&(char *){memory}, memory + UNITS * unit);
    cr_assert_eq(high, memory + UNITS * unit);
    cr_assert(rs_huge_make(&low, &high));
    cr_assert_eq(low, memory + unit);
    cr_assert_eq(high, memory + (UNITS - 1) * unit);
    cr_assert_eq(rsched_memory_huge() - before, (UNITS - 2) * unit);
    /* and where nothing is mapped */
    munmap(memory, UNITS * unit);
    low = memory;
    high = memory + unit;
    cr_assert_not(rs_huge_make(&low, &high));
    cr_assert_eq(rsched_memory_huge() - before, (UNITS - 2) * unit);
}

/* Of private memory, where the kernel says that all is well. */
Test(huge, pages_of_two_mappings_are_left_out)
{
    uint64_t unit = rs_huge_unit(), before;
    const char *low, *high;
    char *memory;

    if (!can_make())
        cr_skip_test("the kernel makes no huge pages");
    memory = map_units(2 * UNITS);
    memset(memory, 1, 2 * UNITS * unit);
    cr_assert_eq(madvise(memory + UNITS * unit + PAGE, (UNITS - 1) * unit,
                         MADV_DONTFORK), 0);
    before = rsched_memory_huge();
    low = memory + UNITS * unit;
    high = low + unit;
    cr_assert_not(rs_huge_make(&low, &high));
    high = low + (UNITS - 1) * unit;
    cr_assert(rs_huge_make(&low, &high));
    cr_assert_eq(low, memory + (UNITS + 1) * unit);
    low = memory;
    high = memory + (UNITS + 1) * unit;
    cr_assert(rs_huge_make(&low, &high));
    cr_assert_eq(high, memory + UNITS * unit);
    cr_assert_eq(rsched_memory_huge() - before, (2 * UNITS - 2) * unit);
    low = memory; /* it cannot be said which of them are */
    high = memory + 2 * UNITS * unit;
    cr_assert_not(rs_huge_make(&low, &high));
}

static uint64_t saves_much(const void *arg, uint64_t bytes)
{
    (void)arg;
    return bytes * RS_HUGE_PS_PER_BYTE;
}

/* To find out that there is no memory may take the kernel long, each time. */
Test(huge, where_there_is_no_memory_it_is_asked_for_once)
{
    static const int refusals[] = {ENOMEM, EBUSY};
    uint64_t unit = rs_huge_unit();
    struct rsched_piece pieces[UNITS];
    struct rs_huge_pages pages = {0};
    char *memory;

    if (unit == 0)
        cr_skip_test("there are no huge pages here");
    memory = map_units(UNITS);
    memset(memory, 1, UNITS * unit);
    for (int i = 0; i < UNITS; i++) /* a part each */
        pieces[i] = (struct rsched_piece){memory + i * unit + PAGE,
                                          unit - 2 * PAGE, 1, 0};
    for (int i = 0; i < 2; i++) {
        rs_huge_watch(&pages);
        refusal = refusals[i];
        asked = 0;
        cr_assert_eq(rs_huge_consider(&pages, pieces, UNITS, saves_much, NULL),
                     0);
        cr_assert_eq(asked, 1, "%u times", asked);
        cr_assert_eq(pages.parts.number, 0);
    }
    refusal = 0;
    rs_huge_fini(&pages);
}
