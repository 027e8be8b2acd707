/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that both processes had added, and that one of them has taken back between two
 * epochs: the other sends from it, or receives there. What the process has there now is
 * neither sent nor written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rsched/memory.h>
#include <rsched/rsched.h>

#include "tests/runtime/ranks.h"

enum { ID = 4711, BYTES = 16 << 20, EPOCHS = 4, OTHER = 0x55 };

static char *window; /* in both processes at the same address */
static int keeper;   /* the rank that has the message there, and keeps it */

static int take_back(struct rank *self)
{
    RANK_CHECK(rsched_memory_remove(ID) == 0);
    RANK_CHECK(mmap(window, BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == window);
    memset(window, OTHER, BYTES);
    return 0;
}

static bool is_all(const char *memory, int value)
{
    return memory[0] == value && memcmp(memory, memory + 1, BYTES - 1) == 0;
}

static int run_removed(struct rank *self)
{
    const struct rsched_put put = {.bytes = BYTES, .source = 0, .destination = 1};
    struct rsched_exchange_params params = {0};
    struct rsched_pattern *pattern;
    struct rsched_exchange *x;
    struct rsched_stats stats;
    void *memory = window;

    RANK_CHECK(rsched_memory_add(ID, window, BYTES) == 0);
    if (self->rank != keeper)
        RANK_CHECK(rsched_alloc(BYTES, &memory) == 0);
    RANK_CHECK(rsched_pattern_create("removed", &pattern) == 0);
    RANK_CHECK((self->rank == 0 ? rsched_pattern_add_put(pattern, &put)
                                : rsched_pattern_add_receive(pattern, &put)) == 0);
    params = (struct rsched_exchange_params){.pattern = pattern,
                                             .send = (const void *[]){memory},
                                             .receive = (void *[]){memory}};
    RANK_CHECK(rsched_exchange_create(self->context, &params, &x) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        if (self->rank == 0)
            memset(memory, 1 + epoch, BYTES);
        mesh_barrier(self->end);
        RANK_CHECK(rsched_exchange_start(x) == 0);
        RANK_CHECK(rsched_exchange_wait(x) == 0);
        RANK_CHECK(self->rank == 0 || is_all(memory, 1 + epoch));
        mesh_barrier(self->end);
        if (epoch == 1 && self->rank != keeper)
            RANK_CHECK(take_back(self) == 0);
        mesh_barrier(self->end);
    }
    RANK_CHECK(self->rank == keeper || is_all(window, OTHER));
    rsched_exchange_get_stats(x, &stats);
    RANK_CHECK(self->rank != 0 || stats.way_bytes[RSCHED_WAY_PULL] > 0);
    rsched_exchange_destroy(x);
    rsched_pattern_destroy(pattern);
    if (self->rank != keeper)
        rsched_free(memory);
    else
        RANK_CHECK(rsched_memory_remove(ID) == 0);
    return 0;
}

int main(int argc, char **argv)
{
    keeper = argc > 1 ? atoi(argv[1]) : 0;
    window = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setenv("RSCHED_MAPPED", "1", 1);
    return ranks_run(2, false, run_removed, NULL);
}
