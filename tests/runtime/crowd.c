/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether processes outnumber the cores that they may use, or what a quota gives them, on
 * machines made up, and how soon they sleep. */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { RANKS = 2, YIELDS = 2000, YIELDS_CROWDED = 200 };

/* Cores from one number on. */
struct cores {
    int first, num;
};

struct example {
    const char *name;
    size_t possible; /* cores that the machine may ever have */
    struct cores of[RANKS];
    int num_cores; /* that the host says; 0: it does not know */
    bool alone, connected; /* crowded before and after ranks know each other */
    const char *groups[RANKS]; /* with quotas, or none */
};

static const struct example examples[] = {
    {"two cores for both", 64, {{0, 2}, {0, 2}}, 0, false, false, {NULL}},
    {"one core for both", 64, {{0, 1}, {0, 1}}, 0, true, true, {NULL}},
    {"a core each", 64, {{0, 1}, {1, 1}}, 0, true, false, {NULL}},
    {"a core each, as the host says", 64, {{0, 1}, {1, 1}}, 2, false, false, {NULL}},
    {"one core, as the host says", 64, {{0, 2}, {0, 2}}, 1, true, true, {NULL}},
    {"one core, which neighbors know better", 64, {{0, 1}, {0, 1}}, 2, false, true, {NULL}},
    {"more possible cores than a cpu_set_t has", 2048, {{0, 2}, {0, 2}}, 0, false,
     false, {NULL}},
    {"one of them for both", 2048, {{1500, 1}, {1500, 1}}, 0, true, true, {NULL}},
    {"one of them each", 2048, {{3, 1}, {1500, 1}}, 0, true, false, {NULL}},
    {"more than Linux may have", 16384, {{0, 1}, {0, 1}}, 0, false, false, {NULL}},
    {"a quota of one core for both", 64, {{0, 2}, {0, 2}}, 0, true, true, {"one", "one"}},
    {"of two cores", 64, {{0, 2}, {0, 2}}, 0, false, false, {"two", "two"}},
    {"of one core each", 64, {{0, 2}, {0, 2}}, 0, true, false, {"one", "also"}},
    {"of one core each, as the host knows", 64, {{0, 2}, {0, 2}}, 2, false, false,
     {"one", "also"}},
    {"of one core, which neighbors know better", 64, {{0, 2}, {0, 2}}, 2, false, true,
     {"one", "one"}},
    {"of less than a core", 64, {{0, 2}, {0, 2}}, 2, true, true, {"half", "half"}},
    {"of groups in a group", 64, {{0, 2}, {0, 2}}, 2, false, true, {"one/x", "one/y"}},
    {"not enough cores, and a quota", 64, {{0, 1}, {0, 1}}, 0, true, true, {"two", "two"}},
};

/* Control groups, and what they have. */
static const struct {
    const char *name, *max;
} groups[] = {
    {"one", "100000 100000"}, {"one/x", "max 100000"},      {"one/y", "max 100000"},
    {"also", "100000 100000"}, {"two", "200000 100000"}, {"half", "50000 100000"},
};

static char root[] = "/tmp/rsched-crowd-XXXXXX";
static const char *group; /* the process's, or NULL */

static size_t possible = 64;
static struct cores mine = {0, RANKS};

/* Comes before the C library's. */
__attribute__((visibility("default"))) int
sched_getaffinity(pid_t pid, size_t size, cpu_set_t *cores)
{
    (void)pid;
    if (8 * size < possible) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(size, cores);
    for (int i = 0; i < mine.num; i++)
        CPU_SET_S((size_t)(mine.first + i), size, cores);
    return 0;
}

static FILE *open_text(const char *text)
{
    FILE *file = tmpfile();

    if (file != NULL) {
        fputs(text, file);
        rewind(file);
    }
    return file;
}

/* Comes before the C library's. */
__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *);
    char text[256];

    if (strcmp(path, "/proc/self/mountinfo") == 0) {
        snprintf(text, sizeof(text), "29 22 0:26 / %s rw - cgroup2 x rw\n", root);
        return open_text(text);
    }
    if (strcmp(path, "/proc/self/cgroup") == 0) {
        snprintf(text, sizeof(text), "0::/%s\n", group == NULL ? "" : group);
        return open_text(text);
    }
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real(path, mode);
}

static int make_groups(void)
{
    char path[128];

    if (mkdtemp(root) == NULL)
        return -1;
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", root, groups[i].name);
        if (mkdir(path, 0700) != 0)
            return -1;
        snprintf(path, sizeof(path), "%s/%s/cpu.max", root, groups[i].name);
        file = fopen(path, "w");
        if (file == NULL)
            return -1;
        fprintf(file, "%s\n", groups[i].max);
        fclose(file);
    }
    return 0;
}

static int drop_groups(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command);
}

static bool is_crowded(struct rank *self)
{
    struct rsched_context_stats stats;

    rsched_context_get_stats(self->context, &stats);
    return stats.crowded;
}

/* In a wait before it sleeps. */
static uint64_t count_yields(struct rank *self)
{
    struct rsched_context_stats before, stats;
    struct rsched_pause pause = {0};

    rsched_context_get_stats(self->context, &before);
    do {
        rsched_context_pause(self->context, &pause);
        rsched_context_get_stats(self->context, &stats);
    } while (stats.sleeps == before.sleeps);
    return stats.yields - before.yields;
}

static int run(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    const struct example *e = self->arg;
    struct halo *halo;

    possible = e->possible;
    self->num_cores = e->num_cores;
    mine = e->of[self->rank];
    group = e->groups[self->rank];
    rank_close(self);
    RANK_CHECK(rank_open(self) == 0);
    RANK_CHECK(is_crowded(self) == e->alone);
    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &halo) == 0);
    RANK_CHECK(is_crowded(self) == e->connected);
    RANK_CHECK(halo_step(halo, 0) == 0);
    if (e->connected)
        RANK_CHECK(count_yields(self) <= YIELDS_CROWDED);
    else
        RANK_CHECK(count_yields(self) == YIELDS);
    halo_destroy(halo);
    return 0;
}

int main(void)
{
    int failed = 0;

    if (make_groups() != 0) {
        perror(root);
        return 1;
    }
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        struct example e = examples[i];

        if (ranks_run(RANKS, false, run, &e) != 0) {
            printf("failed: %s\n", e.name);
            failed = 1;
        }
    }
    return drop_groups() != 0 || failed;
}
