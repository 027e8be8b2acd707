/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That the costs in a file decide how bytes move, asserted from counters, and
 * that a file which cannot be used, or a device that is not there, changes nothing
 * but the log.
 */
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "engines/common/long_copy.h"
#include "tests/runtime/halo.h"

enum { BYTES = 100000, EPOCHS = 3 };

/* From each rank to the other one, in memory of both kinds. */
static const struct halo_edge edges[] = {{0, 1, BYTES},
                                         {1, 0, BYTES},
                                         {0, 1, BYTES | HALO_SHARED},
                                         {1, 0, BYTES | HALO_SHARED}};

/* What the ranks with even and odd numbers must have sent. */
struct expected {
    uint64_t landing[2], pull[2], cma[2];
    bool nontemporal[2]; /* what was pulled was written past the caches */
    bool prefetched[2];  /* with more lines under way */
    int epochs;          /* 0: EPOCHS */
    int tried;           /* of them, in which that is tried out */
};

static int run(struct rank *self)
{
    const struct expected *e = self->arg;
    struct rsched_stats stats;
    struct halo *halo;
    int side = self->rank, epochs = e->epochs > 0 ? e->epochs : EPOCHS;
    uint64_t pulled, rest;

    RANK_CHECK(halo_create(self, edges, 4, 7, 0, &halo) == 0);
    for (int epoch = 0; epoch < epochs; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    rsched_exchange_get_stats(halo->x, &stats);
    pulled = stats.way_bytes[RSCHED_WAY_PULL] +
             stats.way_bytes[RSCHED_WAY_DIRECT];
    if (stats.way_bytes[RSCHED_WAY_LANDING] != (uint64_t)epochs * e->landing[side] ||
        pulled != (uint64_t)epochs * e->pull[side] ||
        stats.way_bytes[RSCHED_WAY_CMA] != (uint64_t)epochs * e->cma[side])
        return RANK_FAIL("rank %d: %llu bytes landed, %llu were pulled, %llu "
                         "read by the kernel", self->rank,
                         (unsigned long long)stats.way_bytes[RSCHED_WAY_LANDING],
                         (unsigned long long)pulled,
                         (unsigned long long)stats.way_bytes[RSCHED_WAY_CMA]);
    /* But for the lines at both ends of the message; copied in turn, for what parts are
     * longer than others, too. */
    rest = e->prefetched[side] ? 8192 : 128;
    if (e->nontemporal[side] ? stats.nontemporal_bytes < EPOCHS * (BYTES - rest)
                       : stats.nontemporal_bytes > 0)
        return RANK_FAIL("rank %d: %llu bytes past the caches", self->rank,
                         (unsigned long long)stats.nontemporal_bytes);
    if (stats.prefetched_bytes !=
        BYTES * (uint64_t)(e->prefetched[side] ? epochs : e->tried))
        return RANK_FAIL("rank %d: %llu bytes with more lines under way", self->rank,
                         (unsigned long long)stats.prefetched_bytes);
    halo_destroy(halo);
    return 0;
}

static const struct halo_edge own_edges[] = {{0, 0, BYTES}, {1, 1, BYTES}};

/* What a rank sends to itself, with more lines under way or as it comes. */
static int run_own(struct rank *self)
{
    const bool *prefetched = self->arg;
    struct rsched_stats stats;
    struct halo *halo;

    RANK_CHECK(halo_create(self, own_edges, 2, 7, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    rsched_exchange_get_stats(halo->x, &stats);
    RANK_CHECK(stats.self_bytes == EPOCHS * BYTES);
    RANK_CHECK(stats.prefetched_bytes == (*prefetched ? EPOCHS * BYTES : 0));
    halo_destroy(halo);
    return 0;
}

static const struct halo_edge one_way[] = {{0, 1, (1 << 20) | HALO_SHARED}};

/* What both ranks copy, each some of it, in turn or as it comes. */
static int run_shared(struct rank *self)
{
    enum { STEPS = 30 };
    const bool *in_turn = self->arg;
    struct rsched_stats stats = {.puts = 0};
    uint64_t helped, all;
    struct halo *halo;

    RANK_CHECK(halo_create(self, one_way, 1, 7, 0, &halo) == 0);
    for (int epoch = 0; epoch < STEPS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    rsched_exchange_get_stats(halo->x, &stats);
    helped = stats.way_bytes[RSCHED_WAY_DIRECT];
    all = helped + stats.way_bytes[RSCHED_WAY_PULL];
    if (self->rank == 0 &&
        (helped == 0 || helped == all || stats.prefetched_bytes != (*in_turn ? helped : 0)))
        return RANK_FAIL("of %llu bytes %llu copied by the sender, %llu with more lines under way",
                         (unsigned long long)all, (unsigned long long)helped,
                         (unsigned long long)stats.prefetched_bytes);
    if (self->rank == 1 && (stats.prefetched_bytes > 0) != *in_turn)
        return RANK_FAIL("the receiver copies %llu bytes with more lines under way",
                         (unsigned long long)stats.prefetched_bytes);
    halo_destroy(halo);
    return 0;
}

/* Where the other rank is, on a machine that hwloc takes for one of two NUMA
 * nodes with a core each. The contexts that the harness has made know of none. */
struct placing {
    int cores[2];
    const struct expected *expected;
};

static int run_placed(struct rank *self)
{
    const struct placing *placing = self->arg;
    cpu_set_t core;

    rank_close(self);
    CPU_ZERO(&core);
    CPU_SET(placing->cores[self->rank], &core);
    RANK_CHECK(sched_setaffinity(0, sizeof(core), &core) == 0);
    RANK_CHECK(rank_open(self) == 0);
    self->arg = (void *)(uintptr_t)placing->expected;
    return run(self);
}

#define COST(rate) "{L: 1 us, o: 1 us, O: [{rate: " rate " MB/s}], g: 1 us, " \
                   "G: [{rate: " rate " MB/s}]}\n"
#define HEAD "rsched: machine/1\nname: extreme\nextends: host\nways:\n"

static char folder[] = "/tmp/rsched-ways-XXXXXX";

enum { FILES = 16 };

static char settings[FILES][64];
static int num_settings;

/* What a setting names. */
static const char *path_of(const char *s)
{
    return strchr(s, '=') + 1;
}

/* A file, as a setting. */
static const char *setting(const char *name, const char *text)
{
    char *s = settings[num_settings];
    FILE *file;

    if (num_settings++ == FILES)
        abort();
    snprintf(s, sizeof(settings[0]), "RSCHED_WAYS=%s/%s", folder, name);
    file = fopen(path_of(s), "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
    return s;
}

static void remove_files(void)
{
    while (num_settings > 0)
        remove(path_of(settings[--num_settings]));
    remove(folder);
}

static int check(const char *what, const char *even, const char *odd,
                 const struct expected *e)
{
    const char *const both[2] = {even, odd};

    if (ranks_run_with(2, false, run, (void *)(uintptr_t)e, both) == 0)
        return 0;
    fprintf(stderr, "failed: %s\n", what);
    return 1;
}

static int check_own(bool prefetched)
{
    if (ranks_run(2, false, run_own, &prefetched) == 0)
        return 0;
    fprintf(stderr, "failed: what a rank sends to itself%s\n",
            prefetched ? ", with more lines under way" : "");
    return 1;
}

static int check_shared(const char *both, bool in_turn)
{
    const char *const files[2] = {both, both};
    int status;

    /* So that each finds chunks, though both may have one core. */
    setenv("RSCHED_FAILPOINTS", "tx:claimed#each=delay:1ms,rx:offered#each=delay:300us", 1);
    status = ranks_run_with(2, false, run_shared, &in_turn, files);
    unsetenv("RSCHED_FAILPOINTS");
    if (status == 0)
        return 0;
    fprintf(stderr, "failed: what both ranks copy%s\n",
            in_turn ? ", with more lines under way" : "");
    return 1;
}

/* The same, and the log has a line with `words`, from each rank. */
static int check_log(const char *what, const char *both,
                     const struct expected *e, const char *words)
{
    const char *log_setting = setting("log", "");
    char line[2048];
    int saved = dup(STDERR_FILENO), status, found = 0;
    FILE *log;

    fflush(stderr);
    if (freopen(path_of(log_setting), "w", stderr) == NULL)
        abort();
    status = check(what, both, both, e);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    log = fopen(path_of(log_setting), "r");
    while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
        found += strstr(line, words) != NULL;
        fputs(line, stdout);
    }
    fclose(log);
    if (found != 2) {
        fprintf(stderr, "%s: %d lines with '%s'\n", what, found, words);
        status = 1;
    }
    return status;
}

/* Two cores with the numbers that the machine of `synthetic` has. */
static bool can_place(void)
{
    cpu_set_t cores;

    return sched_getaffinity(0, sizeof(cores), &cores) == 0 &&
           CPU_ISSET(0, &cores) && CPU_ISSET(1, &cores);
}

static int check_placed(const char *what, const char *file, int first,
                        int second, const struct expected *e)
{
    const char *const both[2] = {file, file};
    struct placing placing = {{first, second}, e};

    if (ranks_run_with(2, false, run_placed, &placing, both) == 0)
        return 0;
    fprintf(stderr, "failed: %s\n", what);
    return 1;
}

#ifdef RSCHED_HWLOC
static const bool knows_nodes = true;
#else
static const bool knows_nodes = false; /* all counts as two nodes */
#endif

/* Slots are cheap between cores of one NUMA node and dear between two. */
static int check_distances(const struct expected *lands,
                           const struct expected *pulls)
{
    const char *file = setting(
        "far", HEAD "  landing:\n    same-numa: " COST("10000")
        "    other-numa: " COST("1") "  pull:\n    same-numa: " COST("1")
        "    other-numa: " COST("10000"));
    const struct expected *near = knows_nodes ? lands : pulls;
    int failed = 0;

    setenv("HWLOC_SYNTHETIC", "node:2 pu:1", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    failed |= check_placed("one NUMA node", file, 0, 0, near);
    failed |= check_placed("two NUMA nodes", file, 0, 1, pulls);
    setenv("HWLOC_SYNTHETIC", "node:1 pu:2", 1);
    failed |= check_placed("one NUMA node of two cores", file, 0, 1, near);
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
    return failed;
}

/* By the built-in costs, an epoch that fills the last cache goes past it. */
static int check_caches(const struct expected *stays)
{
    const char *built_in = "RSCHED_WAYS=";
    struct expected passes = *stays;
    int failed = 0;

    passes.nontemporal[0] = passes.nontemporal[1] = knows_nodes;
    setenv("HWLOC_SYNTHETIC", "node:1 l3:1(size=200000) l2:2(size=100000) pu:1", 1);
    failed |= check("a small cache", built_in, built_in, &passes);
    setenv("HWLOC_SYNTHETIC", "node:1 l3:1(size=200001) l2:2(size=100000) pu:1", 1);
    failed |= check("a cache that is large enough", built_in, built_in, stays);
    setenv("HWLOC_SYNTHETIC", "node:1 pu:2", 1);
    failed |= check("no known cache", built_in, built_in, stays);
    unsetenv("HWLOC_SYNTHETIC");
    return failed;
}

/* What is pulled is copied with more lines under way where that is wanted and the processor can; what
 * is written past the caches if they are copied in turn. */
static int check_prefetch(const char *pull, const char *large, const char *share,
                          const struct expected *pulls, const struct expected *even_passes)
{
    struct expected both = *pulls, odd = *even_passes, tried = *pulls;
    enum rs_copy_prefetch how = rs_copy_prefetch();
    int failed = 0;

    both.prefetched[0] = both.prefetched[1] = odd.prefetched[1] = how != RS_PREFETCH_NONE;
    odd.prefetched[0] = how == RS_PREFETCH_IN_TURN;
    setenv("RSCHED_PREFETCH", "yes", 1);
    failed |= check("more lines under way", pull, pull, &both);
    failed |= check("more lines under way, or past the caches", large, pull, &odd);
    failed |= check_own(how == RS_PREFETCH_IN_TURN);
    failed |= check_shared(share, how == RS_PREFETCH_IN_TURN);
    unsetenv("RSCHED_PREFETCH");
    /* Of the first epochs after 16, the first trial's, half have more; and those before, if that
     * is copied in turn. */
    setenv("RSCHED_SLOT_STORES", "ordinary", 1); /* these are tried out, too */
    tried.epochs = 16 + 32;
    tried.tried = rs_copy_prefetch_gains() ? 32 / 2 : 0;
    if (tried.tried > 0 && how == RS_PREFETCH_IN_TURN)
        tried.tried += 16;
    failed |= check("more lines under way to see whether that is faster", pull, pull, &tried);
    unsetenv("RSCHED_SLOT_STORES");
    setenv("RSCHED_PREFETCH", "no", 1);
    failed |= check_own(false);
    failed |= check_shared(share, false);
    if (!rs_copy_prefetch_gains())
        printf("nothing is known to be gained by it on this processor\n");
    if (how == RS_PREFETCH_NONE)
        printf("this processor has no way to have more lines under way\n");
    return failed;
}

int main(void)
{
    /* How the built-in costs send it is the model's, so they are a file too. */
    const struct expected lands = {.landing = {2 * BYTES, 2 * BYTES}};
    const struct expected pulls = {.landing = {BYTES, BYTES},
                                   .pull = {BYTES, BYTES}};
    const struct expected even_passes = {.landing = {BYTES, BYTES},
                                         .pull = {BYTES, BYTES},
                                         .nontemporal = {true, false}};
    const struct expected reads = {.pull = {BYTES, BYTES},
                                   .cma = {BYTES, BYTES}};
    const struct expected mixed = {.landing = {BYTES, 2 * BYTES},
                                   .pull = {BYTES, 0}};
    const char *land, *pull, *large, *share;
    glob_t devices = {0};
    int failed = 0;

    if (mkdtemp(folder) == NULL)
        abort();
    setenv("RSCHED_PREFETCH", "no", 1); /* but where it is looked at */
    land = setting("land", HEAD "  landing: " COST("10000") "  pull: "
                   COST("1") "  cma: " COST("1"));
    pull = setting("pull", HEAD "  landing: " COST("1") "  pull: "
                   COST("10000"));
    failed |= check("dear copies", land, land, &lands);
    failed |= check("dear slots", pull, pull, &pulls);
    /* An epoch brings twice as many bytes as a message has. */
    large = setting("large", HEAD "  nontemporal: 200000\n  landing: " COST("1")
                    "  pull: " COST("10000"));
    failed |= check("large epochs", large, pull, &even_passes);
    share = setting("share", HEAD "  landing: " COST("1") "  pull: " COST("1000")
                    "  shared: " COST("2000"));
    failed |= check_prefetch(pull, large, share, &pulls, &even_passes);
    failed |= check("less large epochs", setting("less", HEAD "  nontemporal: "
                    "200001\n  landing: " COST("1") "  pull: " COST("10000")),
                    pull, &pulls);
    failed |= check("only slots", setting("only", HEAD "  landing: "
                    COST("1")), land, &lands);
    /* What a process sends is its own decision. */
    failed |= check("two minds", pull, land, &mixed);
    if (ranks_may_read()) {
        const char *all = setting("all", HEAD "  landing: " COST("1")
                                  "  pull: " COST("10000") "  cma: "
                                  COST("9000"));

        failed |= check("dear slots, and the kernel", all, all, &reads);
    } else {
        printf("the kernel does not let processes read each other\n");
    }
    if (can_place())
        failed |= check_distances(&lands, &pulls);
    else
        printf("there are no cores 0 and 1: distances are not looked at\n");
    /* The settings are limits; what is built in is not looked at then. */
    setenv("RSCHED_MAPPED", "1", 1);
    setenv("RSCHED_CMA", "0", 1);
    failed |= check_log("garbage", setting("garbage", "rsched: machine/1\n"
                                           "name: x\nextends: host\nways: {\n"),
                        &pulls, "garbage:5:1: ");
    failed |= check_log("no ways", setting("none", "rsched: machine/1\nname: "
                                           "x\nengines: {count: 1, rate: 1 "
                                           "MB/s}\nroutes: {\"*\": []}\n"),
                        &pulls, "there is no key 'ways' in it");
    failed |= check_log("no file", "RSCHED_WAYS=/nonexistent/ways.yaml", &pulls,
                        "/nonexistent/ways.yaml");
    if (glob("/sys/class/infiniband/*", 0, NULL, &devices) == GLOB_NOMATCH)
        failed |= check_log("no device", "RSCHED_DEVICES=none", &pulls,
                            "RSCHED_DEVICES=none: no device is used: ");
    else
        printf("there are devices: one that is named may be looked for in vain\n");
    globfree(&devices);
    failed |= check_caches(&pulls);
    remove_files();
    return failed;
}
