/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory opened for words, over the engine that is linked with this, whose device is
 * a softnic; threads of each rank, in groups that put together as warps do, are its
 * kernel:
 *
 *     targets processes|threads
 *
 * or, if TARGETS_REASON is set, that there are none, for a reason with this text.
 * That words were put by the kernels, and coalesced, is seen from the counters.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/device.h>
#include <rsched/rsched.h>

#include "tests/conformance/node.h"
#include "tests/mlx5/only_engine.h"
#include "tests/runtime/ranks.h"

enum {
    MAX_RANKS = 3,
    WARPS = 2,
    LANES = 4,
    THREADS = WARPS * LANES,
    ROUNDS = 200,
    ROW = THREADS + 1, /* words that a neighbor has: one of each thread, a flag */
    WORDS = MAX_RANKS * ROW,
};

struct world {
    struct rank *self;
    int num_ranks;
    uint64_t data[2];              /* of the exchange, which moves little */
    uint64_t received[MAX_RANKS];
    uint64_t *words;               /* a row for each rank */
    struct rsched_exchange *exchange;
    struct rsched_targets *targets;
};

static int make_exchange(struct rank *self, struct world *w)
{
    struct rsched_exchange_params params = {0};
    const void *send[MAX_RANKS];
    void *receive[MAX_RANKS];
    int error, n = 0;
    struct rsched_pattern *pattern;

    RANK_CHECK(rsched_pattern_create("words", &pattern) == 0);
    for (int other = 0; other < w->num_ranks; other++) {
        struct rsched_put put = {.bytes = sizeof(uint64_t),
                                 .source = self->rank,
                                 .destination = other};

        if (other == self->rank)
            continue;
        RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
        put.source = other;
        put.destination = self->rank;
        RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
        send[n] = &w->data[0];
        receive[n++] = &w->received[other];
    }
    params.pattern = pattern;
    params.send = send;
    params.receive = receive;
    error = rsched_exchange_create(self->context, &params, &w->exchange);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(error == 0);
    return 0;
}

static int begin(struct rank *self, struct world *w)
{
    *w = (struct world){.self = self, .num_ranks = self->num_ranks};
    w->words = calloc(WORDS, sizeof(*w->words));
    RANK_CHECK(w->words != NULL);
    RANK_CHECK(only_engine(self) == 0);
    return make_exchange(self, w);
}

static int open_targets(struct rank *self, struct world *w)
{
    RANK_CHECK(rsched_exchange_open_targets(
                   w->exchange, RSCHED_NO_GPU, w->words,
                   WORDS * sizeof(*w->words), &w->targets) == 0);
    return 0;
}

static void end(struct world *w)
{
    rsched_targets_close(w->targets);
    rsched_exchange_destroy(w->exchange);
    free(w->words);
}

/* All neighbors have come here. */
static int meet(struct rank *self, struct world *w)
{
    RANK_CHECK(rsched_exchange_start(w->exchange) == 0);
    RANK_CHECK(rsched_exchange_wait(w->exchange) == 0);
    return 0;
}

/* ---- kernels ---- */

struct warp {
    pthread_barrier_t barrier;
    uint64_t words[LANES];
};

struct thread {
    pthread_t thread;
    struct world *world;
    struct rsched_device_group group;
    uint32_t number;
    bool apart; /* words that do not follow one another */
    int status;
};

static void warp_sync(void *arg)
{
    pthread_barrier_wait(&((struct warp *)arg)->barrier);
}

static uint64_t value(int rank, uint64_t round, uint32_t number)
{
    return (uint64_t)(rank + 1) << 56 | round << 16 | number;
}

/* Where a thread's word is in the row of its rank. */
static uint32_t place_of(const struct thread *t)
{
    return t->apart ? THREADS - 1 - t->number : t->number;
}

/* A word of each thread to each neighbor, round after round. */
static void *run_kernel(void *arg)
{
    struct thread *t = arg;
    const struct world *w = t->world;
    int rank = w->self->rank;

    for (uint64_t round = 1; round <= ROUNDS && t->status == 0; round++) {
        for (int other = 0; other < w->num_ranks && t->status == 0; other++) {
            struct rsched_device_target *to =
                rsched_targets_view(w->targets, other);
            uint64_t offset = 8 * ((uint64_t)rank * ROW + place_of(t));

            if (other != rank)
                t->status = rsched_device_put(to, &t->group, offset,
                                              value(rank, round, t->number));
        }
    }
    return NULL;
}

static int run_threads(struct rank *self, struct world *w, bool apart)
{
    struct warp warps[WARPS];
    struct thread threads[THREADS];

    for (uint32_t i = 0; i < WARPS; i++)
        pthread_barrier_init(&warps[i].barrier, NULL, LANES);
    for (uint32_t i = 0; i < THREADS; i++) {
        struct warp *warp = &warps[i / LANES];

        threads[i] = (struct thread){.world = w,
                                     .group = rsched_device_thread(),
                                     .number = i,
                                     .apart = apart};
        threads[i].group.kind = RSCHED_DEVICE_WARP;
        threads[i].group.rank = i % LANES;
        threads[i].group.size = LANES;
        threads[i].group.sync = warp_sync;
        threads[i].group.arg = warp;
        threads[i].group.words = warp->words;
        RANK_CHECK(pthread_create(&threads[i].thread, NULL, run_kernel,
                                  &threads[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i].thread, NULL);
    for (uint32_t i = 0; i < WARPS; i++)
        pthread_barrier_destroy(&warps[i].barrier);
    for (uint32_t i = 0; i < THREADS; i++)
        RANK_CHECK((rsched_targets_check(w->targets), threads[i].status == 0));
    return 0;
}

/* The last words, and behind them a flag; then the neighbors' are looked at. */
static int compare(struct rank *self, struct world *w, bool apart)
{
    const struct rsched_device_group alone = rsched_device_thread();

    for (int other = 0; other < w->num_ranks; other++) {
        struct rsched_device_target *to = rsched_targets_view(w->targets, other);
        uint64_t offset = 8 * ((uint64_t)self->rank * ROW + THREADS);

        if (other == self->rank)
            continue;
        RANK_CHECK(rsched_device_put(to, &alone, offset, ROUNDS + apart) == 0);
    }
    for (int other = 0; other < w->num_ranks; other++) {
        const uint64_t *row = &w->words[other * ROW];

        if (other == self->rank)
            continue;
        while (rsched_device_load(&row[THREADS]) != (uint64_t)ROUNDS + apart)
            sched_yield();
        for (uint32_t i = 0; i < THREADS; i++)
            RANK_CHECK(row[apart ? THREADS - 1 - i : i] ==
                       value(other, ROUNDS, i));
    }
    for (int other = 0; other < w->num_ranks; other++) {
        if (other != self->rank)
            RANK_CHECK(rsched_device_flush(
                           rsched_targets_view(w->targets, other)) == 0);
    }
    return 0;
}

/* ---- cases ---- */

static int case_words(struct rank *self)
{
    uint64_t neighbors = (uint64_t)self->num_ranks - 1;
    uint64_t puts = neighbors * ROUNDS * THREADS, calls = neighbors;
    struct rsched_targets_stats stats;
    struct rsched_stats moved;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(open_targets(self, &w) == 0);
    RANK_CHECK(rsched_targets_view(w.targets, self->rank) == NULL);
    for (int other = 0; other < self->num_ranks; other++) {
        RANK_CHECK(rsched_targets_reason(w.targets, other) == NULL);
        RANK_CHECK(rsched_targets_bytes(w.targets, other) ==
                   (other == self->rank ? 0 : WORDS * sizeof(uint64_t)));
        /* A whole warp's words are one WQE. */
        RANK_CHECK(other == self->rank ||
                   rsched_targets_view(w.targets, other)->max_inline >=
                       8 * RSCHED_DEVICE_MAX_GROUP);
    }
    RANK_CHECK(run_threads(self, &w, false) == 0);
    RANK_CHECK(compare(self, &w, false) == 0);
    rsched_targets_get_stats(w.targets, &stats);
    RANK_CHECK(stats.targets == neighbors && stats.puts == puts + calls);
    /* A warp's words that follow one another are one WQE. */
    RANK_CHECK(stats.wqes == puts / LANES + calls);
    RANK_CHECK(stats.doorbells > 0 && stats.doorbells <= stats.wqes);
    RANK_CHECK(meet(self, &w) == 0);
    RANK_CHECK(run_threads(self, &w, true) == 0);
    RANK_CHECK(compare(self, &w, true) == 0);
    rsched_targets_get_stats(w.targets, &stats);
    RANK_CHECK(stats.wqes == puts / LANES + puts + 2 * calls);
    RANK_CHECK(meet(self, &w) == 0);
    rsched_exchange_get_stats(w.exchange, &moved);
    RANK_CHECK(moved.epochs == 2);
    end(&w);
    return 0;
}

/* Memory of other lengths, none at all, and beyond its end; again and again. */
static int case_lengths(struct rank *self)
{
    const struct rsched_device_group alone = rsched_device_thread();
    int other = 1 - self->rank;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    for (uint64_t words = 0; words < 4; words++) {
        /* What this rank offers, and what the other one does. */
        uint64_t own = self->rank == 0 ? words : 3 - words, far = 3 - own;
        struct rsched_device_target *to;

        memset(w.words, 0, WORDS * sizeof(*w.words));
        RANK_CHECK(rsched_exchange_open_targets(w.exchange, RSCHED_NO_GPU,
                                                w.words, 8 * own,
                                                &w.targets) == 0);
        to = rsched_targets_view(w.targets, other);
        RANK_CHECK(to != NULL);
        RANK_CHECK(rsched_targets_bytes(w.targets, other) == 8 * far);
        for (uint64_t i = 0; i < far; i++)
            RANK_CHECK(rsched_device_put(to, &alone, 8 * i, i + 1) == 0);
        RANK_CHECK(rsched_device_put(to, &alone, 8 * far, 1) == RSCHED_EINVAL);
        RANK_CHECK(rsched_device_put(to, &alone, 4, 1) == RSCHED_EINVAL);
        RANK_CHECK(rsched_device_flush(to) == 0);
        RANK_CHECK(meet(self, &w) == 0);
        for (uint64_t i = 0; i < WORDS; i++)
            RANK_CHECK(rsched_device_load(&w.words[i]) ==
                       (i < own ? i + 1 : 0));
        rsched_targets_close(w.targets);
        w.targets = NULL;
    }
    end(&w);
    return 0;
}

/* A neighbor that has closed takes nothing, and who puts learns it. */
static int case_closed(struct rank *self)
{
    const struct rsched_device_group alone = rsched_device_thread();
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(open_targets(self, &w) == 0);
    if (self->rank == 1) {
        rsched_targets_close(w.targets);
        w.targets = NULL;
    }
    RANK_CHECK(meet(self, &w) == 0);
    if (self->rank == 0) {
        struct rsched_device_target *to = rsched_targets_view(w.targets, 1);
        int status = rsched_device_put(to, &alone, 0, 1);

        if (status == 0)
            status = rsched_device_flush(to);
        RANK_CHECK(status == RSCHED_EPEER);
        RANK_CHECK(rsched_targets_check(w.targets) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), "peer 1") != NULL);
        RANK_CHECK(rsched_device_put(to, &alone, 0, 1) == RSCHED_EPEER);
    }
    end(&w);
    return 0;
}

static int case_without(struct rank *self)
{
    int other = 1 - self->rank;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(open_targets(self, &w) == 0);
    RANK_CHECK(rsched_targets_view(w.targets, other) == NULL);
    RANK_CHECK(strstr(rsched_targets_reason(w.targets, other),
                      getenv("TARGETS_REASON")) != NULL);
    mesh_barrier(self->end);
    end(&w);
    return 0;
}

/* What is wrong at one end, both learn. */
static int case_refused(struct rank *self)
{
    struct rsched_exchange *sets[2];
    struct rsched_opening *opening = NULL;
    struct world w, other;
    int error;

    RANK_CHECK(begin(self, &w) == 0);
    error = rsched_exchange_open_targets(w.exchange, RSCHED_NO_GPU,
                                         (char *)w.words + 4 * self->rank, 64,
                                         &w.targets);
    RANK_CHECK(error == RSCHED_EINVAL && w.targets == NULL);
    RANK_CHECK(strstr(rsched_last_error(), "aligned") != NULL);
    error = rsched_exchange_open_targets(w.exchange, RSCHED_NO_GPU,
                                         self->rank == 0 ? w.words : NULL, 64,
                                         &w.targets);
    RANK_CHECK(error == RSCHED_EINVAL && w.targets == NULL);
    RANK_CHECK(strstr(rsched_last_error(), "64 bytes at NULL") != NULL);
    RANK_CHECK(open_targets(self, &w) == 0);
    rsched_targets_close(w.targets);
    w.targets = NULL;
    /* The one opens rings. */
    other = (struct world){.self = self, .num_ranks = self->num_ranks};
    RANK_CHECK(make_exchange(self, &other) == 0);
    sets[0] = w.exchange;
    sets[1] = other.exchange;
    error = self->rank == 0
                ? rsched_exchange_open_rings(sets, RSCHED_NO_GPU, &opening)
                : rsched_exchange_open_targets(w.exchange, RSCHED_NO_GPU,
                                               w.words, 64, &w.targets);
    RANK_CHECK(error == RSCHED_EMISMATCH && opening == NULL &&
               w.targets == NULL);
    rsched_targets_close(NULL);
    rsched_exchange_destroy(other.exchange);
    end(&w);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        rank_fn *run;
        int ranks;
    } cases[] = {
        {"words", case_words, MAX_RANKS}, {"lengths", case_lengths, 2},
        {"closed", case_closed, 2},       {"refused", case_refused, 2},
    };
    bool threads = argc == 2 && strcmp(argv[1], "threads") == 0;

    if (argc != 2)
        return 2;
    if (getenv("TARGETS_REASON") != NULL)
        return ranks_run(2, threads, case_without, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (ranks_run(cases[i].ranks, threads, cases[i].run, NULL) != 0)
            return RANK_FAIL("case %s", cases[i].name);
    }
    return 0;
}
