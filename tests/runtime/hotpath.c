/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What start and wait may cost: no allocation, no system call when the peer is
 * ready, hardly any CPU time while a peer is late, and no time slices when
 * ranks outnumber cores.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/base/sleeps.h"
#include "tests/runtime/counted.h"
#include "tests/runtime/halo.h"

#if !COUNTED
int main(void)
{
    printf("SKIP: sanitizers allocate and make system calls of their own\n");
    return 77;
}
#else

/* ---- nothing but the copies ---- */

enum { EPOCHS = 2000 };

static int run_self(struct rank *self)
{
    const struct halo_edge edges[8] = {{0, 0, 8}, {0, 0, 8}, {0, 0, 8},
                                       {0, 0, 8}, {0, 0, 8}, {0, 0, 8},
                                       {0, 0, 8}, {0, 0, 40000}};
    struct halo *h;
    int error = 0;

    RANK_CHECK(halo_create(self, edges, 8, 1, 0, &h) == 0);
    if (counted_begin() != 0)
        return RANK_FAIL("no system call filter: %s", strerror(errno));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        error |= rsched_exchange_start(h->x);
        error |= rsched_exchange_wait(h->x);
    }
    RANK_CHECK(error == 0);
    return counted_end(self);
}

/* Whose turn it is, so that each finds the other's message there. */
static atomic_int *turn;

static void await(int value)
{
    while (atomic_load(turn) != value)
        ;
}

/* Rank 0 finds all that it needs; rank 1 is never asleep meanwhile. */
static int run_ready(struct rank *self)
{
    const struct halo_edge edges[] = {
        {0, 1, 8}, {1, 0, 8}, {0, 1, 100}, {1, 0, 8192}, {0, 1, 32768}};
    uint64_t before;
    struct halo *h;
    int error = 0;

    RANK_CHECK(halo_create(self, edges, 5, 1, 0, &h) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0 && counted_begin() != 0)
        return RANK_FAIL("no system call filter: %s", strerror(errno));
    before = counted_now().allocations;
    for (int epoch = 0; epoch < EPOCHS / 4; epoch++) {
        await(2 * epoch + 1 - self->rank);
        error |= rsched_exchange_start(h->x);
        if (self->rank == 1) {
            atomic_store(turn, 2 * epoch + 1);
            await(2 * epoch + 2);
            error |= rsched_exchange_wait(h->x);
        } else {
            error |= rsched_exchange_wait(h->x);
            atomic_store(turn, 2 * epoch + 2);
        }
        if (self->rank == 1 && epoch + 1 == EPOCHS / 4)
            RANK_CHECK(error == 0 && counted_now().allocations == before);
    }
    if (self->rank == 0) {
        RANK_CHECK(error == 0);
        return counted_end(self);
    }
    halo_destroy(h);
    return 0;
}

/* ---- waiting ---- */

/* Rank 0 waits for two seconds, for data and for the one that takes its
 * data. All threads of the process count. */
static int run_idle(struct rank *self)
{
    const struct halo_edge edges[] = {{1, 0, 8}, {0, 1, 1 << 20}};
    double before, limit = 1.9 * (0.01 + bare_sleeps());
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
    RANK_CHECK(halo_step(h, 0) == 0);
    mesh_barrier(self->end);
    halo_fill(h, 1);
    if (self->rank == 1)
        usleep(2000000);
    else
        usleep(100000); /* the progress thread has gone to sleep */
    before = cpu_seconds();
    if (self->rank == 0) {
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        printf("waiting: %.2f %% of a core\n",
               (cpu_seconds() - before) / 1.9 * 100);
        RANK_CHECK(cpu_seconds() - before < limit);
    } else {
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
    }
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

/* ---- more ranks than cores ---- */

enum { CROWD = 16, CROWD_EPOCHS = 3000 };

static int run_crowd(struct rank *self)
{
    struct halo_edge edges[2 * CROWD];
    struct rsched_context_stats stats;
    struct halo *h;

    for (int i = 0; i < CROWD; i++) {
        edges[2 * i] = (struct halo_edge){i, (i + 1) % CROWD, 8};
        edges[2 * i + 1] = (struct halo_edge){(i + 1) % CROWD, i, 8};
    }
    RANK_CHECK(halo_create(self, edges, 2 * CROWD, 1, 0, &h) == 0);
    for (int epoch = 0; epoch < CROWD_EPOCHS; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    rsched_context_get_stats(self->context, &stats);
    if (sysconf(_SC_NPROCESSORS_ONLN) < CROWD)
        RANK_CHECK(stats.yields + stats.sleeps > 0);
    RANK_CHECK(stats.connections == 2);
    halo_destroy(h);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *run;
    int num_ranks;
    int tries; /* other work only ever adds to what a wait costs */
} cases[] = {
    {"self", run_self, 1, 1},
    {"ready", run_ready, 2, 1},
    {"idle", run_idle, 2, 3},
    {"crowd", run_crowd, CROWD, 1},
};

int main(int argc, char **argv)
{
    turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    alarm(RANKS_HANG_SECONDS);
    /* What lands, and so needs nobody's help, is not for costs to say. */
    setenv("RSCHED_CMA", "0", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int tries = cases[i].tries;

        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        while (ranks_run(cases[i].num_ranks, false, cases[i].run, NULL) != 0 &&
               --tries > 0)
            ;
        if (tries == 0) {
            fprintf(stderr, "FAILED: %s\n", cases[i].name);
            return 1;
        }
        printf("PASS %s\n", cases[i].name);
    }
    return 0;
}
#endif
