/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That it is tried out whether one copy or slots are faster, where that is
 * wanted and possible (one copy by the kernel, or of short blocks out of mapped
 * memory): messages go both ways then, whatever the costs say, and their bytes are
 * right. Which of the two is found to be faster is the machine's
 * affair; tests/base/trial.c has that, with given times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/halo.h"

enum { EPOCHS = 60, SKIPPED = 77 };

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
    if (e->trials && (stats.trials == 0 || once == 0 || slots == 0))
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

#define COST(rate) "{L: 1 us, o: 1 us, O: [{rate: " rate " MB/s}], g: 1 us, " \
                   "G: [{rate: " rate " MB/s}]}\n"
#define HEAD "rsched: machine/1\nname: trials\nextends: host\nways:\n"
#define SLOTS_FASTER HEAD "  landing: " COST("10000") "  cma: " COST("100")
#define KERNEL_FASTER HEAD "  landing: " COST("100") "  cma: " COST("10000")
#define NO_KERNEL HEAD "  landing: " COST("10000")
#define MAPPED HEAD "  landing: " COST("100") "  pull: " COST("1000") \
                    "  cma: " COST("1000")
#define MAPPED_SLOWER HEAD "  landing: " COST("10000") "  pull: " COST("100")

static int check(const char *costs, const char *setting,
                 struct expected expected)
{
    char file[64] = "RSCHED_WAYS=/tmp/rsched-trials-XXXXXX";
    char *path = strchr(file, '=') + 1;
    const char *const both[2] = {file, file};
    int fd = mkstemp(path), status;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

    if (f == NULL || fputs(costs, f) < 0 || fclose(f) != 0 ||
        setenv("RSCHED_TRIALS", setting, 1) != 0)
        abort();
    status = ranks_run_with(2, false, run, &expected, both);
    remove(path);
    if (status != 0)
        fprintf(stderr, "failed: RSCHED_TRIALS=%s, %s", setting, costs);
    return status != 0;
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

int main(void)
{
    int failed = 0;

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
    failed |= check_built_in("RSCHED_CMA", "0", false);
    failed |= check_built_in("RSCHED_NODE", "", true);
    return failed;
}
