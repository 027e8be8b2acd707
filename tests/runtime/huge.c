/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That ordinary send buffers are put into huge pages in the start by which the
 * costs say that it has paid, that the kernel reads them from then on and slots
 * carry the rest, and that the bytes are right throughout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rsched/rsched.h>

#include "librsched/base/huge.h"
#include "tests/runtime/halo.h"

enum { BYTES = (7 << 20) + 4711, SHORT = 100000, EPOCHS = 40, SKIPPED = 77 };

/* Messages of one peer that do not follow each other in memory are one message
 * of several pieces. */
static const struct halo_edge edges[] = {
    {0, 1, BYTES}, {1, 0, BYTES}, {0, 1, SHORT}, {1, 0, SHORT}};

/* Between which epochs, from 1 on, the kernel reads first; 0: in none. It depends on
 * how many huge pages the buffers reach into. */
struct expected {
    int from, to;
};

static uint64_t read_by_kernel(const struct halo *halo)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(halo->x, &stats);
    return stats.way_bytes[RSCHED_WAY_CMA];
}

static int run_epochs(struct rank *self, struct halo *halo)
{
    const struct expected *e = self->arg;
    uint64_t made = rs_huge_made(), unit = rs_huge_unit(), before, bytes;
    int first = 0;

    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        before = read_by_kernel(halo);
        RANK_CHECK(halo_step(halo, epoch) == 0);
        bytes = read_by_kernel(halo) - before;
        if (bytes > 0 && first == 0)
            first = epoch;
        if (bytes != (first > 0 ? rs_huge_made() - made : 0))
            return RANK_FAIL("rank %d: %llu bytes read by the kernel in epoch "
                             "%d, %llu are in huge pages", self->rank,
                             (unsigned long long)bytes, epoch,
                             (unsigned long long)(rs_huge_made() - made));
    }
    if (first < e->from || first > e->to)
        return RANK_FAIL("rank %d: the kernel reads from epoch %d on",
                         self->rank, first);
    made = rs_huge_made() - made;
    /* At least what of it must be whole huge pages. */
    if (first == 0 ? made != 0 : made < 2 * unit || made > BYTES + SHORT)
        return RANK_FAIL("rank %d: %llu bytes in huge pages", self->rank,
                         (unsigned long long)made);
    return 0;
}

static int run(struct rank *self)
{
    struct rsched_stats stats;
    struct halo *halo;
    int failed;

    RANK_CHECK(halo_create(self, edges, 4, 7, 0, &halo) == 0);
    failed = run_epochs(self, halo);
    if (failed == 0) {
        RANK_CHECK(halo_rebind(halo) == 0);
        failed = run_epochs(self, halo);
    }
    rsched_exchange_get_stats(halo->x, &stats);
    if (stats.way_bytes[RSCHED_WAY_CMA] + stats.way_bytes[RSCHED_WAY_LANDING] !=
        (uint64_t)2 * EPOCHS * (BYTES + SHORT))
        failed |= RANK_FAIL("rank %d: bytes went another way", self->rank);
    halo_destroy(halo);
    return failed;
}

#define COST(rate) "{L: 1 us, o: 1 us, O: [{rate: " rate " MB/s}], g: 1 us, " \
                   "G: [{rate: " rate " MB/s}]}\n"
#define HEAD "rsched: machine/1\nname: huge\nextends: host\nways:\n"

static int check(const char *what, const char *costs, int from, int to)
{
    const struct expected e = {from, to};
    char setting[64] = "RSCHED_WAYS=/tmp/rsched-huge-XXXXXX";
    char *path = strchr(setting, '=') + 1;
    const char *const both[2] = {setting, setting};
    int fd = mkstemp(path), status;
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

    if (file == NULL || fputs(costs, file) < 0 || fclose(file) != 0)
        abort();
    status = ranks_run_with(2, false, run, (void *)(uintptr_t)&e, both);
    remove(path);
    if (status != 0)
        fprintf(stderr, "failed: %s\n", what);
    return status != 0;
}

static bool can_make(void)
{
    uint64_t unit = rs_huge_unit();
    const char *low, *high;
    char *memory;
    bool made;

    if (unit == 0)
        return false;
    memory = mmap(NULL, 2 * unit, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    memset(memory, 1, 2 * unit);
    low = memory + (unit - (uintptr_t)memory % unit) % unit;
    high = low + unit;
    made = rs_huge_make(&low, &high);
    munmap(memory, 2 * unit);
    return made;
}

int main(void)
{
    int failed = 0;

    if (!ranks_may_read()) {
        printf("SKIP: the kernel does not let processes read each other\n");
        return SKIPPED;
    }
    if (!can_make()) {
        printf("SKIP: the kernel makes no huge pages (MADV_COLLAPSE)\n");
        return SKIPPED;
    }
    /* A byte takes 0.2 ns to be put there. It saves 0.1 ns, so two starts are
     * enough, but it is looked at in the fourth. */
    failed |= check("much to gain", HEAD "  landing: " COST("10000")
                    "  cma-huge: " COST("1000000"), 4, 4);
    /* It saves 10.26 ps: 19.5 starts if all of the pages are the message's. */
    failed |= check("less to gain", HEAD "  landing: " COST("10000")
                    "  cma-huge: " COST("11143"), 19, 38);
    failed |= check("nothing to gain", HEAD "  landing: " COST("10000")
                    "  cma-huge: " COST("10000"), 0, 0);
    failed |= check("not known", HEAD "  landing: " COST("10000"), 0, 0);
    setenv("RSCHED_HUGE", "no", 1);
    failed |= check("not wanted", HEAD "  landing: " COST("10000")
                    "  cma-huge: " COST("1000000"), 0, 0);
    return failed;
}
