/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process holds grows with its neighbors, not with the number of
 * ranks: a ring of 3 and one of 12 cost each rank the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rsched/rsched.h>

#include "tests/base/entries.h"
#include "tests/runtime/ranks.h"

enum { BYTES = 10000 };

struct cost {
    uint64_t shared_bytes, connections;
    int descriptors, mappings;
};

static int count_lines(const char *file)
{
    FILE *f = fopen(file, "r");
    int count = 0;

    for (int c; f != NULL && (c = getc(f)) != EOF;)
        count += c == '\n';
    if (f != NULL)
        fclose(f);
    return count;
}

static int run_ring(struct rank *self)
{
    static char send[2][BYTES], receive[2][BYTES];
    const void *from[] = {send[0], send[1]};
    void *to[] = {receive[0], receive[1]};
    int n = self->num_ranks, me = self->rank;
    struct rsched_exchange_params params = {.send = from, .receive = to};
    int descriptors = count_descriptors();
    int mappings = count_lines("/proc/self/maps");
    struct rsched_context_stats stats;
    struct rsched_pattern *pattern;
    struct rsched_exchange *x;
    struct cost *cost = self->arg;

    RANK_CHECK(rsched_pattern_create("ring", &pattern) == 0);
    for (int side = 0; side < 2; side++) {
        struct rsched_put put = {.bytes = BYTES, .source = me};

        put.destination = (me + (side == 0 ? 1 : n - 1)) % n;
        RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
        put.source = (me + (side == 0 ? n - 1 : 1)) % n;
        put.destination = me;
        RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    }
    params.pattern = pattern;
    memset(send, me + 1, sizeof(send));
    RANK_CHECK(rsched_exchange_create(self->context, &params, &x) == 0);
    RANK_CHECK(rsched_exchange_start(x) == 0);
    RANK_CHECK(rsched_exchange_wait(x) == 0);
    RANK_CHECK(receive[0][BYTES - 1] == (me + n - 1) % n + 1);
    RANK_CHECK(receive[1][BYTES - 1] == (me + 1) % n + 1);
    rsched_context_get_stats(self->context, &stats);
    if (me == 1)
        *cost = (struct cost){
            .shared_bytes = stats.shared_bytes,
            .connections = stats.connections,
            .descriptors = count_descriptors() - descriptors,
            .mappings = count_lines("/proc/self/maps") - mappings,
        };
    mesh_barrier(self->end);
    rsched_exchange_destroy(x);
    rsched_pattern_destroy(pattern);
    return 0;
}

/* What an exchange between two adds to the memory that a process shares. */
static int add_exchange(struct rank *self, uint64_t tag, struct rsched_exchange **x,
                        uint64_t *added)
{
    static char send[BYTES], receive[BYTES];
    const void *from[] = {send};
    void *to[] = {receive};
    struct rsched_put put = {.bytes = BYTES, .source = self->rank,
                             .destination = 1 - self->rank};
    struct rsched_exchange_params params = {.send = from, .receive = to, .tag = tag};
    struct rsched_context_stats before, after;
    struct rsched_pattern *pattern;

    RANK_CHECK(rsched_pattern_create("pair", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put = (struct rsched_put){.bytes = BYTES, .source = 1 - self->rank,
                              .destination = self->rank};
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    rsched_context_get_stats(self->context, &before);
    RANK_CHECK(rsched_exchange_create(self->context, &params, x) == 0);
    rsched_context_get_stats(self->context, &after);
    *added = after.shared_bytes - before.shared_bytes;
    RANK_CHECK(rsched_exchange_start(*x) == 0 && rsched_exchange_wait(*x) == 0);
    rsched_pattern_destroy(pattern);
    return 0;
}

/* Slots for more than a cache has, once, unless it is said how many an edge has. */
static int run_shares(struct rank *self)
{
    enum { FEW = 16 * (BYTES + 200) };
    bool shares = *(const bool *)self->arg;
    struct rsched_exchange *x[4];
    uint64_t added[4];

    for (uint64_t i = 0; i < 4; i++)
        RANK_CHECK(add_exchange(self, i + 1, &x[i], &added[i]) == 0);
    if (self->rank == 0)
        printf("%s: %llu, then %llu bytes of slots\n", shares ? "auto" : "512k",
               (unsigned long long)added[0], (unsigned long long)added[3]);
    /* How many, is the cache's affair. */
    RANK_CHECK((added[0] > added[3]) == shares && added[3] <= 2 * FEW);
    mesh_barrier(self->end);
    for (int i = 0; i < 4; i++)
        rsched_exchange_destroy(x[i]);
    return 0;
}

static int check_shares(void)
{
    bool shares = true;
    int failed = ranks_run(2, false, run_shares, &shares);

    shares = false;
    setenv("RSCHED_RING", "512k", 1);
    failed |= ranks_run(2, false, run_shares, &shares);
    unsetenv("RSCHED_RING");
    return failed;
}

int main(void)
{
    struct cost *costs = mmap(NULL, 2 * sizeof(*costs), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int ranks[] = {3, 12};

    for (int i = 0; i < 2; i++) {
        if (ranks_run(ranks[i], false, run_ring, &costs[i]) != 0)
            return 1;
        printf("%2d ranks: %llu shared bytes, %llu connections, %d "
               "descriptors, %d mappings\n",
               ranks[i], (unsigned long long)costs[i].shared_bytes,
               (unsigned long long)costs[i].connections, costs[i].descriptors,
               costs[i].mappings);
    }
    if (costs[0].connections != 2 || costs[1].connections != 2 ||
        costs[0].shared_bytes == 0 ||
        costs[0].shared_bytes != costs[1].shared_bytes ||
        costs[0].descriptors != costs[1].descriptors ||
        costs[1].mappings > costs[0].mappings + 2) {
        fprintf(stderr, "the cost of a rank depends on the number of ranks\n");
        return 1;
    }
    if (getenv("RANKS_NODES") == NULL && check_shares() != 0) /* slots within a node */
        return 1;
    return 0;
}
