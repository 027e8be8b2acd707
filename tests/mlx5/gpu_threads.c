/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions that kernels call, with threads in the place of a GPU's:
 *
 *     gpu_threads jacobi|jacobi-proxy|puts|puts-proxy|warps|unasked
 *
 * jacobi runs the example's kernel, a group of threads for each rank, and
 * compares with one processor that needs no exchange. In puts threads write
 * words to a neighbor's memory through one queue pair, each first data and then
 * a flag; who watches the flags must find the data. In warps each group puts its
 * words together. In unasked a thread is slow to ask for a doorbell. The device has a
 * thread of its own.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "tests/mlx5/strip.h"

/* ---- groups ---- */

struct warp {
    pthread_barrier_t barrier;
    uint64_t words[RSCHED_DEVICE_MAX_GROUP];
};

static void warp_sync(void *arg)
{
    pthread_barrier_wait(&((struct warp *)arg)->barrier);
}

static void warp_init(struct warp *w, uint32_t threads)
{
    PAIR_NEEDS(pthread_barrier_init(&w->barrier, NULL, threads) == 0);
}

static struct rsched_device_group warp_thread(struct warp *w, uint32_t rank,
                                              uint32_t size)
{
    return (struct rsched_device_group){.kind = RSCHED_DEVICE_WARP,
                                        .rank = rank,
                                        .size = size,
                                        .sync = warp_sync,
                                        .arg = w,
                                        .words = w->words};
}

static void expect_no_violation(struct rs_softnic *nic)
{
    const char *violation = rs_softnic_violation(nic);

    if (violation[0] != '\0')
        fprintf(stderr, "%s\n", violation);
    PAIR_NEEDS(violation[0] == '\0');
}

/* ---- Jacobi ---- */

struct kernel {
    pthread_t thread;
    struct jacobi *jacobi;
    struct rsched_device_group group;
};

static void *run_kernel(void *arg)
{
    struct kernel *k = arg;

    PAIR_NEEDS(jacobi_run(k->jacobi, &k->group) == 0);
    return NULL;
}

static void run_jacobi(uint32_t ranks, uint32_t threads, uint64_t steps,
                       bool proxy, unsigned seed)
{
    struct strip_options o = {
        .nic = {.seed = seed, .drop_percent = 10, .late_steps = 3},
        .ranks = ranks,
        .rows = 3 + seed % 3,
        .width = 50,
        .puts = 1 + seed % 6,
        .blocks = 64,
        .proxy = proxy};
    static struct strip s;
    static struct warp warps[STRIP_MAX_RANKS];
    struct kernel kernels[STRIP_MAX_RANKS][RSCHED_DEVICE_MAX_GROUP];

    strip_init(&s, &o);
    PAIR_NEEDS(rs_softnic_start(s.nic) == 0);
    for (uint32_t r = 0; r < ranks; r++) {
        warp_init(&warps[r], threads);
        s.ranks[r].jacobi.steps = steps;
        if (proxy)
            PAIR_NEEDS(rs_gpu_proxy_start(s.ranks[r].proxy) == 0);
        for (uint32_t t = 0; t < threads; t++) {
            struct kernel *k = &kernels[r][t];

            k->jacobi = &s.ranks[r].jacobi;
            k->group = warp_thread(&warps[r], t, threads);
            PAIR_NEEDS(pthread_create(&k->thread, NULL, run_kernel, k) == 0);
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        for (uint32_t t = 0; t < threads; t++)
            pthread_join(kernels[r][t].thread, NULL);
        rs_gpu_proxy_stop(s.ranks[r].proxy);
        PAIR_NEEDS(rs_gpu_proxy_taken(s.ranks[r].proxy) == (proxy ? steps : 0));
        pthread_barrier_destroy(&warps[r].barrier);
    }
    rs_softnic_stop(s.nic);
    rs_softnic_settle(s.nic);
    expect_no_violation(s.nic);
    PAIR_NEEDS(rs_softnic_stats(s.nic).doorbells <=
               2 * (uint64_t)(ranks - 1) * steps);
    PAIR_NEEDS(strip_compare(&s, steps) == 0);
    strip_fini(&s);
}

/* ---- puts ---- */

enum { SLOTS = 64 /* words of a thread's data */, MAX_WRITERS = 8 };

struct writer_memory {
    uint64_t data[SLOTS];
    uint64_t flag; /* rounds of data that are there */
};

struct puts {
    struct pair pair;
    struct rs_gpu_proxy *proxy;
    struct rs_gpu_target *target;
    struct writer_memory *memory; /* at the neighbor */
    uint32_t writers;
    uint64_t rounds;
};

struct writer {
    pthread_t thread;
    struct puts *puts;
    uint32_t number;
    uint64_t last[SLOTS]; /* what each word is to be in the end */
};

static uint64_t value_of(uint32_t writer, uint64_t round, uint32_t slot)
{
    return (uint64_t)writer << 56 | round << 16 | slot;
}

static void puts_init(struct puts *p, uint32_t writers, uint64_t rounds,
                      uint32_t blocks, bool proxy, unsigned seed)
{
    struct pair_options o = {
        .nic = {.seed = seed, .drop_percent = 5, .late_steps = 2,
                .free_ends = true},
        .blocks = blocks};
    uint64_t bytes = writers * sizeof(struct writer_memory);

    *p = (struct puts){.writers = writers, .rounds = rounds};
    pair_init(&p->pair, &o);
    p->memory = calloc(writers, sizeof(*p->memory));
    PAIR_NEEDS(p->memory != NULL);
    PAIR_NEEDS(rs_gpu_proxy_create(&rs_gpu_memory_plain, 16, &p->proxy) == 0);
    PAIR_NEEDS(rs_gpu_target_create(
                   &rs_gpu_memory_plain, &p->pair.a.memory,
                   (uintptr_t)p->memory,
                   end_register(&p->pair.b, p->memory, bytes), bytes,
                   proxy ? p->proxy : NULL, &p->target) == 0);
    PAIR_NEEDS(rs_softnic_start(p->pair.nic) == 0);
    if (proxy)
        PAIR_NEEDS(rs_gpu_proxy_start(p->proxy) == 0);
}

static void puts_fini(struct puts *p)
{
    rs_gpu_proxy_stop(p->proxy);
    rs_softnic_stop(p->pair.nic);
    rs_softnic_settle(p->pair.nic);
    expect_no_violation(p->pair.nic);
    PAIR_NEEDS(rs_gpu_target_check(p->target) == 0);
    rs_gpu_target_destroy(p->target);
    rs_gpu_proxy_destroy(p->proxy);
    pair_fini(&p->pair);
    free(p->memory);
}

static uint64_t offset_of(uint32_t writer, uint32_t slot)
{
    return writer * sizeof(struct writer_memory) +
           offsetof(struct writer_memory, data) + 8 * (uint64_t)slot;
}

static void *run_writer(void *arg)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct writer *w = arg;
    struct puts *p = w->puts;
    struct rsched_device_target *t = rs_gpu_target_view(p->target);
    unsigned seed = w->number;

    for (uint64_t round = 1; round <= p->rounds; round++) {
        for (int i = rand_r(&seed) % 4; i >= 0; i--) {
            uint32_t slot = (uint32_t)rand_r(&seed) % SLOTS;

            w->last[slot] = value_of(w->number, round, slot);
            PAIR_NEEDS(rsched_device_put(t, &g, offset_of(w->number, slot),
                                         w->last[slot]) == 0);
        }
        w->last[0] = value_of(w->number, round, 0);
        PAIR_NEEDS(rsched_device_put(t, &g, offset_of(w->number, 0),
                                     w->last[0]) == 0);
        PAIR_NEEDS(rsched_device_put(
                       t, &g,
                       w->number * sizeof(struct writer_memory) +
                           offsetof(struct writer_memory, flag),
                       round) == 0);
    }
    PAIR_NEEDS(rsched_device_flush(t) == 0);
    /* What has been flushed is there. */
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        PAIR_NEEDS(rsched_device_load(&p->memory[w->number].data[slot]) ==
                   w->last[slot]);
    return NULL;
}

/* Until all are through. Who sees a flag finds the data of that round, or of a
 * later one, where each round writes the first word. */
static void watch(struct puts *p, bool first_word)
{
    for (bool all = false; !all;) {
        all = true;
        for (uint32_t i = 0; i < p->writers; i++) {
            uint64_t round = rsched_device_load(&p->memory[i].flag);

            PAIR_NEEDS(!first_word || round == 0 ||
                       rsched_device_load(&p->memory[i].data[0]) >=
                           value_of(i, round, 0));
            all = all && round == p->rounds;
        }
        sched_yield();
    }
}

static void run_puts(uint32_t writers, uint64_t rounds, uint32_t blocks,
                     bool proxy, unsigned seed)
{
    static struct writer all[MAX_WRITERS];
    static struct puts p;
    const struct rsched_device_target *used;

    puts_init(&p, writers, rounds, blocks, proxy, seed);
    for (uint32_t i = 0; i < writers; i++) {
        all[i] = (struct writer){.puts = &p, .number = i};
        PAIR_NEEDS(pthread_create(&all[i].thread, NULL, run_writer, &all[i]) ==
                   0);
    }
    watch(&p, true);
    for (uint32_t i = 0; i < writers; i++)
        pthread_join(all[i].thread, NULL);
    used = rs_gpu_target_view(p.target);
    if (proxy) {
        PAIR_NEEDS(used->wqes == 0 && used->queue.rings == 0);
        PAIR_NEEDS(rs_gpu_proxy_taken(p.proxy) >= 3 * rounds * writers);
    } else {
        PAIR_NEEDS(used->wqes == used->puts && used->puts >= 3 * rounds);
        PAIR_NEEDS(used->queue.rings <= used->wqes);
        PAIR_NEEDS(rs_gpu_proxy_taken(p.proxy) == 0);
    }
    puts_fini(&p);
}

/* ---- a thread that has published its word, and has not asked for a doorbell ---- */

struct slow {
    struct puts *puts;
    bool told; /* orders nothing, so it is the target's words that have to */
};

static void *run_slow(void *arg)
{
    enum { SEGMENTS = 3 };
    struct slow *slow = arg;
    struct puts *p = slow->puts;
    struct rsched_device_target *t = rs_gpu_target_view(p->target);
    uint64_t first;

    PAIR_NEEDS(rsched_device_target_reserve(t, 1, &first) == 0);
    rsched_device_target_head(t, first, offset_of(0, 0), 8, true);
    rsched_device_target_only_word(t, first, value_of(0, 1, 0));
    rsched_device_prepare_near();
    rsched_device_exchange_near(&t->published, (first + 1) << 6 | SEGMENTS);
    __atomic_store_n(&slow->told, true, __ATOMIC_RELAXED);
    while (rsched_device_load(&p->memory[1].data[0]) == 0)
        sched_yield();
    if (rsched_device_add_near(&t->asking, 1) == 0)
        rsched_device_target_ring_all(t,
                                      rsched_device_load_near(&t->published));
    return NULL;
}

/* Who rings sends it, too. The thread sanitizer sees whether it is ordered before. */
static void run_unasked(void)
{
    const struct rsched_device_group g = rsched_device_thread();
    static struct puts p;
    struct slow slow = {.puts = &p};
    struct rsched_device_target *t;
    pthread_t thread;

    puts_init(&p, 2, 1, 32, false, 1);
    t = rs_gpu_target_view(p.target);
    PAIR_NEEDS(pthread_create(&thread, NULL, run_slow, &slow) == 0);
    while (!__atomic_load_n(&slow.told, __ATOMIC_RELAXED))
        sched_yield();
    PAIR_NEEDS(rsched_device_put(t, &g, offset_of(1, 0), value_of(1, 1, 0)) == 0);
    PAIR_NEEDS(rsched_device_flush(t) == 0);
    for (uint32_t i = 0; i < 2; i++)
        PAIR_NEEDS(rsched_device_load(&p.memory[i].data[0]) == value_of(i, 1, 0));
    pthread_join(thread, NULL);
    PAIR_NEEDS(t->queue.rings == 1 && t->asking == 0);
    puts_fini(&p);
}

/* ---- warps ---- */

struct warp_writer {
    pthread_t thread;
    struct puts *puts;
    struct rsched_device_group group;
    uint32_t number; /* of the warp */
    bool together;
};

/* Words that follow one another, or each somewhere else. */
static void *run_warp(void *arg)
{
    struct warp_writer *w = arg;
    struct puts *p = w->puts;
    struct rsched_device_target *t = rs_gpu_target_view(p->target);
    const struct rsched_device_group *g = &w->group;
    struct rsched_device_group thread = rsched_device_thread();

    for (uint64_t round = 1; round <= p->rounds; round++) {
        uint32_t slot =
            w->together
                ? (uint32_t)(round % (SLOTS - g->size + 1)) + g->rank
                : (g->rank * 2 + (uint32_t)round) % SLOTS;

        PAIR_NEEDS(rsched_device_put(t, g, offset_of(w->number, slot),
                                     value_of(w->number, round, slot)) == 0);
        /* One thread that is wrong makes all fail, and nothing is put. */
        PAIR_NEEDS(rsched_device_put(t, g, g->rank == round % g->size ? 4 : 0,
                                     1) == RSCHED_EINVAL);
        if (round == p->rounds) {
            PAIR_NEEDS(rsched_device_flush(t) == 0);
            PAIR_NEEDS(
                rsched_device_load(&p->memory[w->number].data[slot]) ==
                value_of(w->number, round, slot));
        }
    }
    rsched_device_sync(g);
    if (g->rank == 0)
        PAIR_NEEDS(rsched_device_put(
                       t, &thread,
                       w->number * sizeof(struct writer_memory) +
                           offsetof(struct writer_memory, flag),
                       p->rounds) == 0);
    return NULL;
}

static void run_warps(uint32_t warps, uint32_t threads, uint64_t rounds,
                      uint32_t blocks, bool together)
{
    static struct warp barriers[MAX_WRITERS];
    static struct warp_writer all[MAX_WRITERS][RSCHED_DEVICE_MAX_GROUP];
    static struct puts p;
    const struct rsched_device_target *t;

    puts_init(&p, warps, rounds, blocks, false, threads);
    for (uint32_t w = 0; w < warps; w++) {
        warp_init(&barriers[w], threads);
        for (uint32_t i = 0; i < threads; i++) {
            all[w][i] = (struct warp_writer){
                .puts = &p,
                .group = warp_thread(&barriers[w], i, threads),
                .number = w,
                .together = together};
            PAIR_NEEDS(pthread_create(&all[w][i].thread, NULL, run_warp,
                                      &all[w][i]) == 0);
        }
    }
    watch(&p, false);
    for (uint32_t w = 0; w < warps; w++) {
        for (uint32_t i = 0; i < threads; i++)
            pthread_join(all[w][i].thread, NULL);
        pthread_barrier_destroy(&barriers[w].barrier);
    }
    t = rs_gpu_target_view(p.target);
    PAIR_NEEDS(t->puts == warps * (rounds * threads + 1));
    PAIR_NEEDS(t->wqes == warps * (rounds * (together ? 1 : threads) + 1));
    puts_fini(&p);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";

    if (strncmp(mode, "jacobi", 6) == 0) {
        bool proxy = strcmp(mode, "jacobi-proxy") == 0;

        run_jacobi(2, 1, 500, proxy, 1);
        run_jacobi(3, 2, 150, proxy, 2);
        run_jacobi(2, 5, 60, proxy, 3);
    } else if (strncmp(mode, "puts", 4) == 0) {
        bool proxy = strcmp(mode, "puts-proxy") == 0;

        run_puts(1, 8000, 32, proxy, 1); /* indices wrap */
        run_puts(4, 1000, 64, proxy, 2);
        run_puts(8, 300, 512, proxy, 3);
    } else if (strcmp(mode, "warps") == 0) {
        run_warps(1, 32, 150, 32, true);
        run_warps(1, 32, 100, 32, false);
        run_warps(2, 4, 800, 32, true);
        run_warps(2, 3, 800, 64, false);
    } else if (strcmp(mode, "unasked") == 0) {
        for (int i = 0; i < 20; i++)
            run_unasked();
    } else {
        return 2;
    }
    return 0;
}
