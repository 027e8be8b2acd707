/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether processes outnumber the cores that they may use, on machines made up, and
 * how soon they sleep. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

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
};

static const struct example examples[] = {
    {"two cores for both", 64, {{0, 2}, {0, 2}}, 0, false, false},
    {"one core for both", 64, {{0, 1}, {0, 1}}, 0, true, true},
    {"a core each", 64, {{0, 1}, {1, 1}}, 0, true, false},
    {"a core each, as the host says", 64, {{0, 1}, {1, 1}}, 2, false, false},
    {"one core, as the host says", 64, {{0, 2}, {0, 2}}, 1, true, true},
    {"one core, which neighbors know better", 64, {{0, 1}, {0, 1}}, 2, false, true},
    {"more possible cores than a cpu_set_t has", 2048, {{0, 2}, {0, 2}}, 0, false,
     false},
    {"one of them for both", 2048, {{1500, 1}, {1500, 1}}, 0, true, true},
    {"one of them each", 2048, {{3, 1}, {1500, 1}}, 0, true, false},
    {"more than Linux may have", 16384, {{0, 1}, {0, 1}}, 0, false, false},
};

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

    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        struct example e = examples[i];

        if (ranks_run(RANKS, false, run, &e) != 0) {
            printf("failed: %s\n", e.name);
            failed = 1;
        }
    }
    return failed;
}
