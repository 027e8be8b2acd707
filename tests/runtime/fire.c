/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges while the application frees, moves and maps memory, forks, and
 * runs other programs: thousands of epochs, every byte compared.
 *
 * fire processes|threads
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum {
    REBIND = 10,
    FORK = 200 / FIRE_FEWER, /* as often in fewer epochs */
    EPOCHS = 2000 / FIRE_FEWER,
    ADOPT = 3,
    PAGE = 4096,
};

static const struct halo_edge edges[] = {
    {0, 1, 300000 | HALO_SHARED}, {1, 0, 300000 | HALO_OFFERED},
    {1, 0, 700000 | HALO_SHARED}, {0, 1, 8},
    {0, 1, 40000 | HALO_OFFERED}, {1, 0, 20000 | HALO_SHARED},
    {0, 0, 5000 | HALO_SHARED},   {1, 1, 5000},
};

enum { NUM_EDGES = sizeof(edges) / sizeof(edges[0]) };

/* The rest of an application: memory comes, grows and goes, shared or not. */
static void *churn(void *arg)
{
    atomic_bool *stop = arg;
    unsigned seed = (unsigned)getpid();

    while (!atomic_load(stop)) {
        size_t bytes = (size_t)rand_r(&seed) % 400000 + 1;
        char *grown = malloc(bytes), *larger;
        void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void *shared = NULL;

        if (grown == NULL || mapped == MAP_FAILED ||
            rsched_alloc(bytes, &shared) != 0)
            abort();
        memset(grown, 0xee, bytes);
        memset(mapped, 0xee, bytes);
        memset(shared, 0xee, bytes);
        larger = realloc(grown, 2 * bytes);
        free(larger);
        munmap(mapped, bytes);
        rsched_free(shared);
        usleep(200);
    }
    return NULL;
}

/* The child sees what was there, and spoils what it has. */
static int fork_once(struct halo *h, int epoch)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        int bad = halo_wrong(h, epoch) != 0;

        halo_fill(h, epoch + 1);
        _exit(bad);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                   WEXITSTATUS(status) == 0
               ? 0
               : 1;
}

static int run(struct rank *self)
{
    atomic_bool stop = false;
    uint64_t once = 0, adopted = 0, pulled;
    struct rsched_stats stats;
    pthread_t other;
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 1, 0, &h) == 0);
    pthread_create(&other, NULL, churn, &stop);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        if (epoch % REBIND == REBIND - 1)
            RANK_CHECK(halo_rebind(h) == 0);
        RANK_CHECK(halo_step(h, epoch) == 0);
        if (epoch % FORK == FORK / 2)
            RANK_CHECK(fork_once(h, epoch) == 0);
        if (epoch % FORK == FORK / 3)
            RANK_CHECK(system("true") == 0);
    }
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    rsched_exchange_get_stats(h->x, &stats);
    for (int i = 0; i < NUM_EDGES; i++) {
        if (edges[i].from != self->rank || edges[i].to == self->rank)
            continue;
        if ((edges[i].bytes & HALO_SHARED) != 0)
            once += edges[i].bytes & ~HALO_SHARED;
        /* But for what lies before the first page and behind the last. */
        if ((edges[i].bytes & HALO_OFFERED) != 0)
            adopted += (edges[i].bytes & ~HALO_OFFERED) - 2 * PAGE;
    }
    pulled = stats.way_bytes[RSCHED_WAY_PULL] +
             stats.way_bytes[RSCHED_WAY_DIRECT];
    once *= EPOCHS;
    adopted *= EPOCHS / REBIND * (REBIND - ADOPT + 1);
    RANK_CHECK(pulled >= once + adopted);
    halo_destroy(h);
    return 0;
}

int main(int argc, char **argv)
{
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;

    setenv("RSCHED_MAPPED", "12k", 1); /* not what costs say */
    setenv("RSCHED_CMA", "0", 1);
    setenv("RSCHED_ADOPT", "3", 1);
    if (ranks_run(2, threads, run, NULL) != 0)
        return 1;
    printf("%d epochs\n", EPOCHS);
    return 0;
}
