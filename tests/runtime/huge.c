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

#include <rsched/pull.h>
#include <rsched/rsched.h>

#include "librsched/base/huge.h"
#include "librsched/base/ways.h"
#include "tests/runtime/halo.h"

enum { BYTES = (7 << 20) + 4711, SHORT = 50000, EPOCHS = 40, SKIPPED = 77 };

/* Messages of one peer that do not follow each other in memory are one message
 * of several pieces. */
static const struct halo_edge edges[] = {
    {0, 1, BYTES}, {1, 0, BYTES}, {0, 1, SHORT}, {1, 0, SHORT},
    {0, 1, BYTES | HALO_SHARED}, {1, 0, BYTES | HALO_SHARED}};

enum { ORDINARY = 4, ALL = 6 };

/* Between which epochs, from 1 on, the kernel reads first; 0: in none. It depends on
 * how many huge pages the buffers reach into. */
struct expected {
    int from, to;
    int num_edges;
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
    uint64_t made = rsched_memory_huge(), unit = rs_huge_unit(), before, bytes;
    int first = 0;

    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        before = read_by_kernel(halo);
        RANK_CHECK(halo_step(halo, epoch) == 0);
        bytes = read_by_kernel(halo) - before;
        if (bytes > 0 && first == 0)
            first = epoch;
        if (bytes != (first > 0 ? rsched_memory_huge() - made : 0))
            return RANK_FAIL("rank %d: %llu bytes read by the kernel in epoch "
                             "%d, %llu are in huge pages", self->rank,
                             (unsigned long long)bytes, epoch,
                             (unsigned long long)(rsched_memory_huge() - made));
    }
    if (first < e->from || first > e->to)
        return RANK_FAIL("rank %d: the kernel reads from epoch %d on",
                         self->rank, first);
    made = rsched_memory_huge() - made;
    /* At least what of it must be whole huge pages. */
    if (first == 0 ? made != 0 : made < 2 * unit || made > BYTES + SHORT)
        return RANK_FAIL("rank %d: %llu bytes in huge pages", self->rank,
                         (unsigned long long)made);
    return 0;
}

static int run(struct rank *self)
{
    const struct expected *e = self->arg;
    uint64_t mapped = e->num_edges == ALL ? BYTES : 0;
    struct rsched_stats stats;
    struct halo *halo;
    int failed;

    RANK_CHECK(halo_create(self, edges, e->num_edges, 7, 0, &halo) == 0);
    failed = run_epochs(self, halo);
    if (failed == 0) {
        RANK_CHECK(halo_rebind(halo) == 0);
        failed = run_epochs(self, halo);
    }
    rsched_exchange_get_stats(halo->x, &stats);
    if (stats.way_bytes[RSCHED_WAY_CMA] + stats.way_bytes[RSCHED_WAY_LANDING] !=
            (uint64_t)2 * EPOCHS * (BYTES + SHORT) ||
        stats.way_bytes[RSCHED_WAY_PULL] + stats.way_bytes[RSCHED_WAY_DIRECT] !=
            2 * EPOCHS * mapped)
        failed |= RANK_FAIL("rank %d: bytes went another way", self->rank);
    halo_destroy(halo);
    return failed;
}

#define COST(rate) "{L: 1 us, o: 1 us, O: [{rate: " rate " MB/s}], g: 1 us, " \
                   "G: [{rate: " rate " MB/s}]}\n"
#define HEAD "rsched: machine/1\nname: huge\nextends: host\nways:\n"

static int check_edges(const char *what, const char *costs, int from, int to,
                       int num_edges)
{
    const struct expected e = {from, to, num_edges};
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

static int check(const char *what, const char *costs, int from, int to)
{
    return check_edges(what, costs, from, to, ORDINARY);
}

/* ---- messages of protocols that are none of an engine ---- */

#define RATE(mb) {0, 1, {{0, UINT64_C(mb) * 1000000}}}
#define WAY(mb) {true, 0, RATE(mb), RATE(mb), 0, 0}

enum { SOURCE_BYTES = 6 << 20, SOURCE_LOADS = 8 };

static int load_source(const struct rs_ways *ways, bool wanted)
{
    const struct rsched_pull_reader reader = {.maps = false};
    struct rsched_piece pieces[2] = {{NULL, SOURCE_BYTES / 2, 1, 0},
                                     {NULL, SOURCE_BYTES / 2, 1, 0}};
    const struct rsched_message message = {
        .pieces = pieces, .num_pieces = 2, .bytes = SOURCE_BYTES};
    struct rsched_pull_memory memory;
    struct rsched_pull_group *group;
    struct rsched_pull_source *source;
    struct rsched_pull_notice notice;
    uint64_t made = rsched_memory_huge();
    char *buffer = malloc(SOURCE_BYTES);
    int failed = 0;

    memset(buffer, 1, SOURCE_BYTES);
    pieces[0].address = buffer;
    pieces[1].address = buffer + SOURCE_BYTES / 2;
    if (rsched_pull_memory_open(&memory) != 0 ||
        rsched_pull_group_create(NULL, NULL, &group) != 0 ||
        rsched_pull_source_create(&message, ways, &reader, group, &source) != 0 ||
        rsched_pull_source_way(source, 0, 1) != RSCHED_PULL_IN_PLACE)
        return RANK_FAIL("a source: %s", rsched_last_error());
    for (int load = 1; load <= SOURCE_LOADS && failed == 0; load++) {
        failed = rsched_pull_source_load(source, &notice);
        if ((rsched_memory_huge() > made) != (wanted && load >= 4))
            failed = RANK_FAIL("%llu bytes in huge pages in load %d",
                               (unsigned long long)(rsched_memory_huge() - made), load);
    }
    made = rsched_memory_huge() - made;
    if (wanted && (made < 2 * rs_huge_unit() || made > SOURCE_BYTES))
        failed |= RANK_FAIL("%llu bytes in huge pages", (unsigned long long)made);
    rsched_pull_source_destroy(source);
    rsched_pull_group_destroy(group);
    rsched_pull_memory_close();
    free(buffer);
    return failed;
}

static int run_sources(struct rank *self)
{
    static const struct rs_host_ways known = {
        .of = {[RS_WAY_LANDING] = WAY(100), [RS_WAY_SELF] = WAY(100),
               [RS_WAY_CMA] = WAY(10000), [RS_WAY_CMA_HUGE] = WAY(1000000)}};
    static struct rs_ways ways;
    const char *setting = getenv("RSCHED_HUGE");
    int failed;

    (void)self;
    rs_ways_set_host(&ways, &known);
    failed = load_source(&ways, setting == NULL);
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++)
        ways.host[d].of[RS_WAY_CMA_HUGE].given = false;
    return failed | load_source(&ways, false);
}

static int check_sources(const char *what)
{
    if (ranks_run(1, false, run_sources, NULL) == 0)
        return 0;
    fprintf(stderr, "failed: sources, %s\n", what);
    return 1;
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
    /* It saves 10.26 ps: 19.5 starts if all of the pages are the message's, which
     * reaches into five at most; the short one is not worth one. */
    failed |= check("less to gain", HEAD "  landing: " COST("20000")
                    "  cma-huge: " COST("25161"), 19, 29);
    /* What neighbors map stays as it is. */
    failed |= check_edges("mapped memory beside", HEAD "  landing: "
                          COST("1000") "  pull: " COST("1000000")
                          "  cma-huge: " COST("1000000"), 4, 4, ALL);
    failed |= check("nothing to gain", HEAD "  landing: " COST("10000")
                    "  cma-huge: " COST("10000"), 0, 0);
    failed |= check("not known", HEAD "  landing: " COST("10000"), 0, 0);
    failed |= check_sources("much to gain");
    setenv("RSCHED_HUGE", "no", 1);
    failed |= check_sources("not wanted");
    failed |= check("not wanted", HEAD "  landing: " COST("10000")
                    "  cma-huge: " COST("1000000"), 0, 0);
    return failed;
}
