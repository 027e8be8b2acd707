/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That the costs in a file decide how bytes move, asserted from counters, and
 * that a file which cannot be used changes nothing but the log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/rsched.h>

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
};

static int run(struct rank *self)
{
    const struct expected *e = self->arg;
    struct rsched_stats stats;
    struct halo *halo;
    int side = self->rank;
    uint64_t pulled;

    RANK_CHECK(halo_create(self, edges, 4, 7, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    rsched_exchange_get_stats(halo->x, &stats);
    pulled = stats.way_bytes[RSCHED_WAY_PULL] +
             stats.way_bytes[RSCHED_WAY_DIRECT];
    if (stats.way_bytes[RSCHED_WAY_LANDING] != EPOCHS * e->landing[side] ||
        pulled != EPOCHS * e->pull[side] ||
        stats.way_bytes[RSCHED_WAY_CMA] != EPOCHS * e->cma[side])
        return RANK_FAIL("rank %d: %llu bytes landed, %llu were pulled, %llu "
                         "read by the kernel", self->rank,
                         (unsigned long long)stats.way_bytes[RSCHED_WAY_LANDING],
                         (unsigned long long)pulled,
                         (unsigned long long)stats.way_bytes[RSCHED_WAY_CMA]);
    halo_destroy(halo);
    return 0;
}

#define COST(rate) "{L: 1 us, o: 1 us, O: [{rate: " rate " MB/s}], g: 1 us, " \
                   "G: [{rate: " rate " MB/s}]}\n"
#define HEAD "rsched: machine/1\nname: extreme\nextends: host\nways:\n"

static char folder[] = "/tmp/rsched-ways-XXXXXX";

enum { FILES = 10 };

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
    char *s = settings[num_settings++];
    FILE *file;

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

int main(void)
{
    /* How the built-in costs send it is the model's, so they are a file too. */
    const struct expected lands = {.landing = {2 * BYTES, 2 * BYTES}};
    const struct expected pulls = {.landing = {BYTES, BYTES},
                                   .pull = {BYTES, BYTES}};
    const struct expected reads = {.pull = {BYTES, BYTES},
                                   .cma = {BYTES, BYTES}};
    const struct expected mixed = {.landing = {BYTES, 2 * BYTES},
                                   .pull = {BYTES, 0}};
    const char *land, *pull;
    int failed = 0;

    if (mkdtemp(folder) == NULL)
        abort();
    land = setting("land", HEAD "  landing: " COST("10000") "  pull: "
                   COST("1") "  cma: " COST("1"));
    pull = setting("pull", HEAD "  landing: " COST("1") "  pull: "
                   COST("10000"));
    failed |= check("dear copies", land, land, &lands);
    failed |= check("dear slots", pull, pull, &pulls);
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
    remove_files();
    return failed;
}
