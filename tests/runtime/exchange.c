/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random exchanges between ranks, byte for byte. Run as `exchange threads` the
 * ranks are threads (for the thread sanitizer), as `exchange processes` they
 * are processes.
 *
 * All ranks draw the same random numbers, so each knows every edge; what must
 * arrive follows from sender, put and epoch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "tests/runtime/ranks.h"

enum { MAX_EDGES = 64, EPOCHS = 7 };

struct edge {
    int from, to;
    uint64_t bytes;    /* a multiple of `block` */
    uint64_t block[2]; /* of the sender's and the receiver's layout */
    int64_t gap[2];    /* bytes between blocks */
    bool shared[2];    /* the buffer is of rsched_alloc() */
};

struct plan {
    unsigned seed;
    int num_edges;
    struct edge edges[MAX_EDGES];
    bool variable;
};

static uint64_t draw(unsigned *seed, uint64_t below)
{
    return ((uint64_t)rand_r(seed) << 15 ^ (uint64_t)rand_r(seed)) % below;
}

static const uint64_t sizes[] = {0,    1,     8,     8,     40,     48,    49,
                                 64,   333,   4096,  8192,  32768,  32769, 70000,
                                 8192, 300000, 1200000};

static void make_plan(struct plan *plan, unsigned seed, int num_ranks)
{
    plan->seed = seed;
    plan->variable = seed % 3 == 2;
    plan->num_edges = 1 + (int)draw(&seed, 5 * (uint64_t)num_ranks);
    if (plan->num_edges > MAX_EDGES)
        plan->num_edges = MAX_EDGES;
    for (int i = 0; i < plan->num_edges; i++) {
        struct edge *e = &plan->edges[i];

        e->from = (int)draw(&seed, (uint64_t)num_ranks);
        e->to = (int)draw(&seed, (uint64_t)num_ranks);
        e->bytes = sizes[draw(&seed, sizeof(sizes) / sizeof(sizes[0]))];
        for (int side = 0; side < 2; side++) {
            e->block[side] = e->bytes;
            for (uint64_t b = 8; b <= 4096 && draw(&seed, 3) == 0; b *= 8) {
                if (e->bytes > b && e->bytes % b == 0)
                    e->block[side] = b;
            }
            e->gap[side] = (int64_t)draw(&seed, 24);
            e->shared[side] = draw(&seed, 2) == 0;
        }
    }
}

static char expected(const struct plan *plan, int edge, int epoch, uint64_t i)
{
    return (char)(plan->seed * 31 + (unsigned)edge * 7 + (unsigned)epoch * 13 +
                  (unsigned)(i * 11 >> 3) + (unsigned)i);
}

/* A buffer with guards around and gaps between the blocks. */
struct buffer {
    char *memory;
    uint64_t span;
    struct rsched_run run;
    bool shared;
};

static uint64_t place(const struct rsched_run *run, uint64_t i)
{
    return (uint64_t)(run->offset + (int64_t)(i / run->bytes) * run->stride) +
           i % run->bytes;
}

static struct buffer make_buffer(const struct edge *e, int side)
{
    struct buffer b = {.shared = e->shared[side]};
    uint64_t block = e->block[side] == 0 ? 1 : e->block[side];
    uint64_t count = e->bytes / block;

    b.run = (struct rsched_run){.offset = 16 + e->gap[side],
                                .bytes = block,
                                .count = count == 0 ? 1 : count,
                                .stride = (int64_t)block + e->gap[side]};
    b.span = 64 + (uint64_t)e->gap[side] +
             b.run.count * (block + (uint64_t)e->gap[side]);
    if (!b.shared)
        b.memory = malloc(b.span);
    else if (rsched_alloc(b.span, (void **)&b.memory) != 0)
        abort();
    return b;
}

static void fill(struct buffer *b, const struct plan *plan, int edge, int epoch)
{
    for (uint64_t i = 0; i < plan->edges[edge].bytes; i++)
        b->memory[place(&b->run, i)] = expected(plan, edge, epoch, i);
}

static int check(struct rank *self, struct buffer *b, const struct plan *plan,
                 int edge, int epoch)
{
    uint64_t bytes = plan->edges[edge].bytes, guards = 0;

    for (uint64_t i = 0; i < bytes; i++) {
        if (b->memory[place(&b->run, i)] != expected(plan, edge, epoch, i))
            return RANK_FAIL("seed %u rank %d edge %d epoch %d byte %llu of "
                             "%llu is wrong",
                             plan->seed, self->rank, edge, epoch,
                             (unsigned long long)i, (unsigned long long)bytes);
        b->memory[place(&b->run, i)] = (char)0xa5;
    }
    for (uint64_t i = 0; i < b->span; i++)
        guards += b->memory[i] != (char)0xa5;
    return guards == 0 ? 0
                       : RANK_FAIL("seed %u rank %d edge %d: written outside",
                                   plan->seed, self->rank, edge);
}

struct side {
    struct buffer buffers[MAX_EDGES];
    void *addresses[MAX_EDGES];
    int edges[MAX_EDGES];
    int number;
};

static int add_edges(struct rank *self, const struct plan *plan,
                     struct rsched_pattern *pattern, struct side *send,
                     struct side *receive)
{
    for (int i = 0; i < plan->num_edges; i++) {
        const struct edge *e = &plan->edges[i];

        for (int in = 0; in < 2; in++) {
            struct side *s = in ? receive : send;
            struct buffer *b = &s->buffers[s->number];
            struct rsched_put put = {.bytes = e->bytes,
                                     .source = e->from,
                                     .destination = e->to};

            if ((in ? e->to : e->from) != self->rank)
                continue;
            *b = make_buffer(e, in);
            memset(b->memory, 0xa5, b->span);
            if (e->bytes > 0)
                put.layout = (struct rsched_layout){&b->run, 1};
            s->addresses[s->number] = b->memory;
            s->edges[s->number++] = i;
            RANK_CHECK((in ? rsched_pattern_add_receive(pattern, &put)
                           : rsched_pattern_add_put(pattern, &put)) >= 0);
        }
    }
    return 0;
}

static void free_side(struct side *s)
{
    for (int i = 0; i < s->number; i++) {
        if (!s->buffers[i].shared)
            free(s->buffers[i].memory);
        else if (rsched_free(s->buffers[i].memory) != 0)
            abort();
    }
}

static int complete(struct rank *self, struct rsched_exchange *x, int how)
{
    struct rsched_pause pause = {0};
    bool done = false;

    if (how % 2 == 0)
        return rsched_exchange_wait(x);
    while (!done) {
        int error = rsched_exchange_test(x, &done);

        if (error != 0)
            return error;
        if (!done)
            rsched_context_pause(self->context, &pause);
    }
    return 0;
}

static int run_epochs(struct rank *self, const struct plan *plan,
                      struct rsched_exchange *x, struct rsched_pattern *pattern,
                      struct side *send, struct side *receive)
{
    unsigned seed = plan->seed * 1000 + (unsigned)self->rank;

    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int i = 0; i < send->number; i++)
            fill(&send->buffers[i], plan, send->edges[i], epoch);
        if (plan->variable)
            RANK_CHECK(rsched_exchange_load(
                           x, pattern, (const void *const *)send->addresses,
                           receive->addresses) == 0);
        if (draw(&seed, 4) == 0)
            usleep((useconds_t)draw(&seed, 1500));
        RANK_CHECK(rsched_exchange_start(x) == 0);
        RANK_CHECK(rsched_exchange_start(x) == RSCHED_ESTATE);
        if (draw(&seed, 8) == 0)
            usleep(2000);
        RANK_CHECK(complete(self, x, (int)draw(&seed, 2)) == 0);
        for (int i = 0; i < receive->number; i++) {
            if (check(self, &receive->buffers[i], plan, receive->edges[i],
                      epoch) != 0)
                return 1;
        }
    }
    return 0;
}

/* With RSCHED_CMA: memory that cannot be mapped is read by the kernel. */
static bool cma;

enum { CMA_BLOCK = 2048 };

/* What the rank must have sent in a way that copies once. */
static uint64_t bytes_once(const struct plan *plan, int rank,
                           enum rsched_way way)
{
    uint64_t bytes = 0;

    for (int i = 0; i < plan->num_edges; i++) {
        const struct edge *e = &plan->edges[i];

        if (e->from == rank && e->to != rank &&
            ranks_share_node(e->from, e->to) &&
            (way == RSCHED_WAY_PULL
                 ? e->shared[0]
                 : cma && !e->shared[0] && e->block[0] >= CMA_BLOCK))
            bytes += e->bytes;
    }
    return EPOCHS * bytes;
}

/* What the rank must have sent within its node, or out of it. */
static uint64_t bytes_to(const struct plan *plan, int rank, bool near)
{
    uint64_t bytes = 0;

    for (int i = 0; i < plan->num_edges; i++) {
        const struct edge *e = &plan->edges[i];

        if (e->from == rank && ranks_share_node(e->from, e->to) == near)
            bytes += e->bytes;
    }
    return EPOCHS * bytes;
}

/* The first engine is the one within a node. */
static int check_engines(const struct plan *plan, int rank,
                         const struct rsched_stats *stats)
{
    uint64_t far = 0;

    for (int i = 1; i < RSCHED_MAX_ENGINES; i++)
        far += stats->engine_bytes[i];
    if (stats->engine_bytes[0] == bytes_to(plan, rank, true) &&
        far == bytes_to(plan, rank, false))
        return 0;
    return RANK_FAIL("seed %u rank %d: %llu bytes within the node, %llu out of "
                     "it",
                     plan->seed, rank,
                     (unsigned long long)stats->engine_bytes[0],
                     (unsigned long long)far);
}

static int check_ways(const struct plan *plan, int rank,
                      const struct rsched_stats *stats)
{
    uint64_t mapped = stats->way_bytes[RSCHED_WAY_PULL] +
                      stats->way_bytes[RSCHED_WAY_DIRECT];
    uint64_t read = stats->way_bytes[RSCHED_WAY_CMA];
    uint64_t once = bytes_once(plan, rank, RSCHED_WAY_PULL);

    /* What leaves the node may go directly too. */
    if (mapped >= once && mapped - once <= bytes_to(plan, rank, false) &&
        read == bytes_once(plan, rank, RSCHED_WAY_CMA))
        return 0;
    return RANK_FAIL("seed %u rank %d: %llu bytes were copied from mapped "
                     "pages, %llu by the kernel",
                     plan->seed, rank, (unsigned long long)mapped,
                     (unsigned long long)read);
}

static int run_plan(struct rank *self)
{
    const struct plan *plan = self->arg;
    struct side *send = calloc(1, sizeof(*send));
    struct side *receive = calloc(1, sizeof(*receive));
    struct rsched_exchange_params params = {.tag = plan->seed};
    struct rsched_exchange *x;
    struct rsched_stats stats;
    int result;

    RANK_CHECK(rsched_pattern_create(
                   "random", (struct rsched_pattern **)(uintptr_t)&params.pattern) == 0);
    if (add_edges(self, plan, (struct rsched_pattern *)(uintptr_t)params.pattern,
                  send, receive) != 0)
        return 1;
    params.send = (const void *const *)send->addresses;
    params.receive = receive->addresses;
    params.flags = plan->variable ? RSCHED_EXCHANGE_VARIABLE : 0;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &x) == 0);
    result = run_epochs(self, plan, x,
                        (struct rsched_pattern *)(uintptr_t)params.pattern,
                        send, receive);
    rsched_exchange_get_stats(x, &stats);
    if (result == 0 && (stats.epochs != EPOCHS ||
                        stats.puts != EPOCHS * (uint64_t)send->number))
        result = RANK_FAIL("counters: %llu epochs %llu puts",
                           (unsigned long long)stats.epochs,
                           (unsigned long long)stats.puts);
    if (result == 0)
        result = check_ways(plan, self->rank, &stats);
    if (result == 0)
        result = check_engines(plan, self->rank, &stats);
    rsched_exchange_destroy(x);
    rsched_pattern_destroy((struct rsched_pattern *)(uintptr_t)params.pattern);
    free_side(send);
    free_side(receive);
    free(send);
    free(receive);
    return result;
}

/* Several plans one after the other in the same contexts, so that shared
 * memory is used again. */
static int run_plans(struct rank *self)
{
    const int *range = self->arg;
    struct plan *plan = calloc(1, sizeof(*plan));
    int result = 0;

    for (int seed = range[0]; seed < range[1] && result == 0; seed++) {
        make_plan(plan, (unsigned)seed, self->num_ranks);
        self->arg = plan;
        result = run_plan(self);
    }
    free(plan);
    return result;
}

int main(int argc, char **argv)
{
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    int rounds = argc > 2 ? atoi(argv[2]) : 12;
    int passed = 0;

    setenv("RSCHED_MAPPED", "1", 1);
    cma = getenv("RSCHED_CMA") != NULL;
    if (!cma)
        setenv("RSCHED_CMA", "0", 1);
    if (cma && !ranks_may_read()) {
        printf("SKIP: the kernel does not let processes read each other\n");
        return 77;
    }
    for (int ranks = 1; ranks <= 9; ranks += ranks < 4 ? 1 : 5) {
        int range[2] = {ranks * 1000, ranks * 1000 + rounds};

        if (ranks_run(ranks, threads, run_plans, range) != 0) {
            fprintf(stderr, "failed with %d ranks\n", ranks);
            return 1;
        }
        passed += rounds;
    }
    printf("%d exchanges of %d epochs\n", passed, EPOCHS);
    return 0;
}
