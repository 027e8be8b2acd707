/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That it is tried out whether one copy or slots are faster, where that is
 * wanted and possible (one copy by the kernel, or of short blocks out of mapped
 * memory): messages go both ways then, whatever the costs say, and their bytes are
 * right. Likewise whether slots are written by ordinary stores or past the caches.
 * Which of them is found to be faster is the machine's affair; tests/base/trial.c has
 * that, with given times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/halo.h"

enum { EPOCHS = 200, SKIPPED = 77 };

/* Longer than the slots together, so that they are used again in each epoch; in
 * one process also shorter ones, and both are one message. */
static const struct halo_edge edges[] = {
    {0, 1, 700001}, {1, 0, 40000}, {0, 1, 50000}, {1, 0, 30000},
    {0, 1, 50000 | HALO_SHARED}, {1, 0, 50000 | HALO_SHARED}};

enum { ORDINARY = 4, ALL = 6 };

/* Messages of short blocks in mapped memory: many puts between one pair. */
enum { BLOCKS = 60, BLOCK = 700 };

static struct halo_edge choppy[2 * BLOCKS];

struct expected {
    bool trials, once; /* without trials: all of it in one copy */
    int num_edges;
    bool mapped; /* of short blocks, in mapped memory */
};

static int run_epochs(const struct rank *self, struct halo *halo)
{
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        RANK_CHECK(halo_step(halo, epoch) == 0);
        /* New buffers, of the same lengths: what is known of it is kept. */
        if (epoch % 7 == 0)
            RANK_CHECK(halo_rebind(halo) == 0);
    }
    return 0;
}

/* Of two that send each other as much, rank 1 does what rank 0 does. */
static bool follows(const struct rank *self, bool alike)
{
    return alike && self->rank == 1;
}

static int run(struct rank *self)
{
    const struct expected *e = self->arg;
    struct rsched_stats stats;
    struct halo *halo;
    uint64_t once, slots;
    int failed;

    RANK_CHECK(halo_create(self, e->mapped ? choppy : edges, e->num_edges, 7, 0,
                           &halo) == 0);
    failed = run_epochs(self, halo);
    rsched_exchange_get_stats(halo->x, &stats);
    once = stats.way_bytes[e->mapped ? RSCHED_WAY_PULL : RSCHED_WAY_CMA];
    slots = stats.way_bytes[RSCHED_WAY_LANDING];
    if (e->trials && ((stats.trials == 0) != follows(self, e->mapped) || once == 0 ||
                      slots == 0))
        failed |= RANK_FAIL("rank %d: %llu trials, %llu bytes in one copy, %llu "
                            "through slots", self->rank,
                            (unsigned long long)stats.trials,
                            (unsigned long long)once,
                            (unsigned long long)slots);
    if (!e->trials && (stats.trials != 0 || stats.trial_changes != 0 ||
                       (e->once ? slots : once) != 0))
        failed |= RANK_FAIL("rank %d: %llu trials, %llu bytes another way",
                            self->rank, (unsigned long long)stats.trials,
                            (unsigned long long)(e->once ? slots : once));
    halo_destroy(halo);
    return failed;
}

/* How slots are written: in some epochs each way, or in all of them one. */
enum { BOTH_STORES, ORDINARY_STORES, NONTEMPORAL_STORES };

static struct halo_edge stored[2];

/* Most of it is mapped, and nobody can read the rest but through slots. */
static const struct halo_edge mixed[] = {{0, 1, 50000}, {1, 0, 40000},
                                         {0, 1, 200000 | HALO_SHARED},
                                         {1, 0, 200000 | HALO_SHARED}};

struct stores {
    uint64_t bytes; /* of the two messages */
    bool rest;      /* mixed[] instead */
    int expected;
};

static int run_stores(struct rank *self)
{
    const struct stores *e = self->arg;
    struct rsched_stats stats;
    struct halo *halo;
    uint64_t slots, past;
    bool right;
    int failed;

    stored[0] = (struct halo_edge){0, 1, e->bytes};
    stored[1] = (struct halo_edge){1, 0, e->bytes};
    RANK_CHECK(halo_create(self, e->rest ? mixed : stored, e->rest ? 4 : 2, 7, 0,
                           &halo) == 0);
    failed = run_epochs(self, halo);
    rsched_exchange_get_stats(halo->x, &stats);
    slots = stats.way_bytes[RSCHED_WAY_LANDING];
    past = stats.nontemporal_bytes;
    if (slots == 0 || e->rest != (stats.way_bytes[RSCHED_WAY_PULL] > 0))
        failed |= RANK_FAIL("rank %d: %llu bytes through slots, %llu pulled",
                            self->rank, (unsigned long long)slots,
                            (unsigned long long)stats.way_bytes[RSCHED_WAY_PULL]);
    /* But for the lines in which a chunk begins or ends. Between far cores all is written
     * past the caches from the first trial on, which is in start 17 at the earliest. */
    right = e->expected == ORDINARY_STORES ? past == 0
            : e->expected == NONTEMPORAL_STORES
                ? past > slots / 8 * 7 && past <= slots
                : past > 0 && past < slots / 20 * 19;
#ifndef __x86_64__
    right = past == 0;
#endif
    if (!right ||
        (stats.trials > 0) != (e->expected == BOTH_STORES && !follows(self, true)))
        failed |= RANK_FAIL("rank %d: %llu trials, %llu of %llu bytes past the "
                            "caches, %d is expected", self->rank,
                            (unsigned long long)stats.trials,
                            (unsigned long long)past, (unsigned long long)slots,
                            e->expected);
    halo_destroy(halo);
    return failed;
}

/* Who leads sends no more, or less than is tried out: the other one tries for itself. */
static struct halo_edge often[2], later[2];

static int run_deserted(struct rank *self)
{
    enum { BEFORE = 60, LATER = 200 };
    const struct halo_edge *both[] = {often, later};
    struct halo *halos[2];
    struct rsched_stats stats;
    uint64_t before = 0;
    int failed = 0;

    for (int i = 0; i < 2; i++)
        RANK_CHECK(halo_create(self, both[i], 2, 7 + (uint64_t)i,
                               i == 0 ? RSCHED_EXCHANGE_VARIABLE : 0,
                               &halos[i]) == 0);
    for (int epoch = 1; epoch <= BEFORE + LATER && failed == 0; epoch++) {
        struct halo *h = halos[epoch > BEFORE];
        struct rsched_exchange *x = halos[0]->x;

        if (epoch == BEFORE + 1) {
            rsched_exchange_get_stats(x, &stats);
            before = stats.trials;
            RANK_CHECK((before == 0) == (self->rank == 1));
        }
        if (epoch == 1 || epoch == BEFORE + 1)
            RANK_CHECK(rsched_exchange_load(x, h->pattern,
                                            (const void *const *)h->send,
                                            h->receive) == 0);
        halo_fill(h, epoch);
        RANK_CHECK(rsched_exchange_start(x) == 0 && rsched_exchange_wait(x) == 0);
        failed |= halo_wrong(h, epoch) != 0;
    }
    rsched_exchange_get_stats(halos[0]->x, &stats);
    if (self->rank == 1 && stats.trials == before)
        failed |= RANK_FAIL("rank 1 tries nothing out when rank 0 sends %llu bytes",
                            (unsigned long long)later[0].bytes);
    for (int i = 0; i < 2; i++)
        halo_destroy(halos[i]);
    return failed;
}

/* A sender that copies what it sends takes its time: slots are faster. */
static int run_slow_help(struct rank *self)
{
    enum { STEPS = 300 };
    struct rsched_stats stats;
    struct halo *halo;
    uint64_t once, slots;
    int failed = 0;

    RANK_CHECK(halo_create(self, choppy, 2 * BLOCKS, 7, 0, &halo) == 0);
    for (int epoch = 1; epoch <= STEPS && failed == 0; epoch++)
        failed = halo_step(halo, epoch);
    rsched_exchange_get_stats(halo->x, &stats);
    once = stats.way_bytes[RSCHED_WAY_PULL] + stats.way_bytes[RSCHED_WAY_DIRECT];
    slots = stats.way_bytes[RSCHED_WAY_LANDING];
    if (self->rank == 0 && (stats.way_bytes[RSCHED_WAY_DIRECT] == 0 || once > slots))
        failed |= RANK_FAIL("%llu bytes in one copy, %llu of them by the sender, %llu "
                            "through slots", (unsigned long long)once,
                            (unsigned long long)stats.way_bytes[RSCHED_WAY_DIRECT],
                            (unsigned long long)slots);
    halo_destroy(halo);
    return failed;
}

/* Memory that would be adopted by what has been measured, and not by the costs. */
static const struct halo_edge offered[] = {{0, 1, 40000 | HALO_OFFERED},
                                           {1, 0, 40000 | HALO_OFFERED}};

static int run_offered(struct rank *self)
{
    enum { STEPS = 2000 };
    const bool *adopts = self->arg;
    struct rsched_stats stats;
    struct halo *halo;
    uint64_t adopted;
    int failed = 0;

    RANK_CHECK(halo_create(self, offered, 2, 7, 0, &halo) == 0);
    for (int epoch = 1; epoch <= STEPS && failed == 0; epoch++)
        failed = halo_step(halo, epoch);
    rsched_exchange_get_stats(halo->x, &stats);
    adopted = rsched_memory_adoptions(RSCHED_ADOPTED);
    if ((adopted > 0) != *adopts || (stats.way_bytes[RSCHED_WAY_PULL] > 0) != *adopts)
        failed |= RANK_FAIL("rank %d: %llu bytes adopted, %llu pulled", self->rank,
                            (unsigned long long)adopted,
                            (unsigned long long)stats.way_bytes[RSCHED_WAY_PULL]);
    halo_destroy(halo);
    return failed;
}

#define COST(rate) "{L: 1 us, o: 1 us, O: [{rate: " rate " MB/s}], g: 1 us, " \
                   "G: [{rate: " rate " MB/s}]}\n"
#define HEAD "rsched: machine/1\nname: trials\nextends: host\nways:\n"
#define SLOTS_FASTER HEAD "  landing: " COST("10000") "  cma: " COST("100")
#define KERNEL_FASTER HEAD "  landing: " COST("100") "  cma: " COST("10000")
#define NO_KERNEL HEAD "  landing: " COST("10000")
#define MAPPED HEAD "  landing: " COST("100") "  pull: " COST("1000") \
                    "  cma: " COST("1000")
#define SHARED MAPPED "  shared: " COST("2000")
#define PULL_ONLY HEAD "  landing: " COST("100") "  pull: " COST("1000")
#define MAPPED_SLOWER HEAD "  landing: " COST("10000") "  pull: " COST("100")
#define ONCE_SLOWER MAPPED_SLOWER "  cma: " COST("100")

/* Two ranks, by costs in a file. */
static int run_by(const char *costs, const char *trials,
                  rank_fn *program, void *arg)
{
    char file[64] = "RSCHED_WAYS=/tmp/rsched-trials-XXXXXX";
    char *path = strchr(file, '=') + 1;
    const char *const both[2] = {file, file};
    int fd = mkstemp(path), status;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

    if (f == NULL || fputs(costs, f) < 0 || fclose(f) != 0 ||
        setenv("RSCHED_TRIALS", trials, 1) != 0)
        abort();
    status = ranks_run_with(2, false, program, arg, both);
    remove(path);
    return status;
}

static int check(const char *costs, const char *setting,
                 struct expected expected)
{
    int status = run_by(costs, setting, run, &expected);

    if (status != 0)
        fprintf(stderr, "failed: RSCHED_TRIALS=%s, %s", setting, costs);
    return status != 0;
}

static int check_stores(const char *costs, const char *trials,
                        const char *setting, struct stores stores)
{
    int status;

    setenv("RSCHED_SLOT_STORES", setting, 1);
    status = run_by(costs, trials, run_stores, &stores);
    if (status != 0)
        fprintf(stderr, "failed: RSCHED_TRIALS=%s, RSCHED_SLOT_STORES=%s, %llu "
                        "bytes, %s", trials, setting,
                (unsigned long long)stores.bytes, costs);
    return status != 0;
}

static int check_all_stores(void)
{
    static const uint64_t bytes[] = {4096, 10000, 300001, 700001};
    int failed = 0;

    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        const struct stores both = {bytes[i], false, BOTH_STORES};
        const struct stores ordinary = {bytes[i], false, ORDINARY_STORES};
        const struct stores past = {bytes[i], false, NONTEMPORAL_STORES};

        failed |= check_stores(NO_KERNEL, "auto", "auto", both);
        failed |= check_stores(NO_KERNEL, "yes", "auto", both);
        failed |= check_stores(NO_KERNEL, "no", "auto", ordinary);
        failed |= check_stores(NO_KERNEL, "auto", "ordinary", ordinary);
        failed |= check_stores(NO_KERNEL, "no", "nontemporal", past);
    }
    failed |= check_stores(NO_KERNEL, "auto", "auto",
                           (struct stores){4095, false, ORDINARY_STORES});
    failed |= check_stores(NO_KERNEL, "auto", "nontemporal",
                           (struct stores){4095, false, ORDINARY_STORES});
    /* What is left beside one copy. */
    failed |= check_stores(PULL_ONLY, "auto", "auto",
                           (struct stores){4096, true, BOTH_STORES});
    failed |= check_stores(PULL_ONLY, "auto", "nontemporal",
                           (struct stores){4096, true, NONTEMPORAL_STORES});
    failed |= check_stores(PULL_ONLY, "auto", "ordinary",
                           (struct stores){4096, true, ORDINARY_STORES});
    return failed;
}

static int check_built_in(const char *name, const char *value, bool trials)
{
    struct expected expected = {trials, false, ORDINARY, false};
    int status;

    setenv("RSCHED_TRIALS", "auto", 1);
    setenv(name, value, 1);
    status = ranks_run(2, false, run, &expected);
    unsetenv(name);
    if (status != 0)
        fprintf(stderr, "failed: built-in costs, %s=%s\n", name, value);
    return status != 0;
}

static int check_deserted(const char *costs, uint64_t bytes, uint64_t later_bytes,
                          uint64_t answer)
{
    often[0] = (struct halo_edge){0, 1, bytes};
    often[1] = (struct halo_edge){1, 0, bytes};
    later[0] = (struct halo_edge){0, 1, later_bytes};
    later[1] = (struct halo_edge){1, 0, answer};
    return run_by(costs, "yes", run_deserted, NULL);
}

static int check_offered(const char *costs, const char *trials, bool adopts)
{
    int status = run_by(costs, trials, run_offered, &adopts);

    if (status != 0)
        fprintf(stderr, "failed: RSCHED_TRIALS=%s, %s", trials, costs);
    return status != 0;
}

/* One that is mapped is not followed by one whose memory the kernel would have to read, who
 * finds out for itself that this takes longer. */
static int check_kernel_slower(void)
{
    int failed;

    setenv("RSCHED_FAILPOINTS", "rx:read#each=delay:300us", 1);
    failed = check_offered(ONCE_SLOWER, "yes", true);
    unsetenv("RSCHED_FAILPOINTS");
    return failed;
}

static int check_slow_help(void)
{
    int failed;

    for (int i = 0; i < 2 * BLOCKS; i++)
        choppy[i] = (struct halo_edge){0, 1, BLOCK | HALO_SHARED};
    setenv("RSCHED_FAILPOINTS", "tx:claimed#each=delay:1ms,rx:offered#each=delay:300us", 1);
    failed = run_by(SHARED, "yes", run_slow_help, NULL);
    unsetenv("RSCHED_FAILPOINTS");
    return failed;
}

int main(void)
{
    int failed = 0;

    setenv("RSCHED_RING", "512k", 1); /* few slots: a trial uses all of them first */

    failed |= check_all_stores();
    setenv("RSCHED_SLOT_STORES", "auto", 1);
#ifdef __x86_64__ /* where slots are written in two ways */
    failed |= check_deserted(NO_KERNEL, 65536, 0, 65536);
    failed |= check_deserted(NO_KERNEL, 65536, 4000, 5000);
    failed |= check_offered(MAPPED_SLOWER, "yes", true);
    failed |= check_offered(MAPPED_SLOWER, "auto", false);
#endif
    setenv("RSCHED_SLOT_STORES", "ordinary", 1);
    for (int i = 0; i < 2 * BLOCKS; i++)
        choppy[i] = (struct halo_edge){i % 2, 1 - i % 2, BLOCK | HALO_SHARED};
    if (!ranks_may_read()) {
        printf("SKIP: the kernel does not let processes read each other\n");
        return SKIPPED;
    }
    failed |= check(SLOTS_FASTER, "yes",
                    (struct expected){true, false, ORDINARY, false});
    failed |= check(KERNEL_FASTER, "yes",
                    (struct expected){true, true, ORDINARY, false});
    /* Who names costs is believed. */
    failed |= check(SLOTS_FASTER, "auto",
                    (struct expected){false, false, ORDINARY, false});
    failed |= check(KERNEL_FASTER, "auto",
                    (struct expected){false, true, ORDINARY, false});
    failed |= check(KERNEL_FASTER, "no",
                    (struct expected){false, true, ORDINARY, false});
    /* There is nothing to choose. */
    failed |= check(NO_KERNEL, "yes",
                    (struct expected){false, false, ORDINARY, false});
    failed |= check(MAPPED, "yes",
                    (struct expected){false, true, ALL, false});
    /* Blocks that are mapped: who is faster is in doubt. */
    failed |= check(MAPPED, "yes",
                    (struct expected){true, true, 2 * BLOCKS, true});
    failed |= check(MAPPED_SLOWER, "yes",
                    (struct expected){true, false, 2 * BLOCKS, true});
    failed |= check(MAPPED, "no",
                    (struct expected){false, true, 2 * BLOCKS, true});
    failed |= check(MAPPED_SLOWER, "auto",
                    (struct expected){false, false, 2 * BLOCKS, true});
    failed |= check_deserted(SLOTS_FASTER, 65536, 0, 65536);
    failed |= check_kernel_slower();
    failed |= check_slow_help();
    failed |= check_built_in("RSCHED_CMA", "0", false);
    failed |= check_built_in("RSCHED_NODE", "", true);
    return failed;
}
