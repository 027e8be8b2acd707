/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a GPU opened for words, and targets that its kernels put to, over the
 * driver in software: addresses of the host's are none of theirs.
 *
 *     mlx5_targets_gpu words|refused
 */
#include <stdlib.h>
#include <string.h>

#include <rsched/device.h>
#include <rsched/rsched.h>

#include "tests/cuda/program.h"
#include "tests/mlx5/only_engine.h"
#include "tests/runtime/ranks.h"

enum { WORDS = 100 };

struct world {
    struct program p;
    uint64_t sent, received;
    CUdeviceptr words; /* behind them, what the kernel returns */
    uint64_t *touch;   /* the same, for processors */
    struct rsched_exchange *exchange;
    struct rsched_targets *targets;
};

static int begin(struct rank *self, struct world *w)
{
    struct rsched_put put = {.bytes = sizeof(uint64_t),
                             .source = self->rank,
                             .destination = 1 - self->rank};
    const void *send = &w->sent;
    void *receive = &w->received;
    struct rsched_exchange_params params = {.send = &send, .receive = &receive};
    struct rsched_pattern *pattern;
    int error;

    memset(w, 0, sizeof(*w));
    program_begin(&w->p, self->rank);
    RANK_CHECK(w->p.cuMemAlloc(&w->words, (WORDS + 1) * sizeof(uint64_t)) ==
               CUDA_SUCCESS);
    w->touch = w->p.fakeTouch(w->words);
    memset(w->touch, 0, (WORDS + 1) * sizeof(uint64_t));
    RANK_CHECK(only_engine(self) == 0);
    RANK_CHECK(rsched_pattern_create("words", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = 1 - self->rank;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &w->exchange);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(error == 0);
    RANK_CHECK(rsched_exchange_open_targets(
                   w->exchange, self->rank, (void *)(uintptr_t)w->words,
                   WORDS * sizeof(uint64_t), &w->targets) == 0);
    return 0;
}

static void end(struct rank *self, struct world *w)
{
    rsched_targets_close(w->targets);
    rsched_exchange_destroy(w->exchange);
    w->p.cuMemFree(w->words);
    program_end(&w->p, self->rank);
}

struct argument {
    struct rsched_device_target *to;
    uint64_t *returned;
};

static void put_words(void *argument)
{
    const struct rsched_device_group alone = rsched_device_thread();
    const struct argument *a = argument;
    int status = 0;

    for (uint64_t i = 0; i < WORDS && status == 0; i++)
        status = rsched_device_put(a->to, &alone, 8 * i, i + 1);
    if (status == 0)
        status = rsched_device_flush(a->to);
    *a->returned = status == 0 ? WORDS : 0;
}

static int case_words(struct rank *self)
{
    struct rsched_targets_stats stats;
    struct argument a;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    a.to = rsched_targets_view(w.targets, 1 - self->rank);
    a.returned = (uint64_t *)(uintptr_t)w.words + WORDS;
    RANK_CHECK(a.to != NULL);
    w.p.fakeRun(put_words, &a);
    RANK_CHECK(rsched_targets_check(w.targets) == 0);
    RANK_CHECK(w.touch[WORDS] == WORDS);
    RANK_CHECK(rsched_exchange_start(w.exchange) == 0);
    RANK_CHECK(rsched_exchange_wait(w.exchange) == 0);
    for (uint64_t i = 0; i < WORDS; i++)
        RANK_CHECK(w.touch[i] == i + 1);
    rsched_targets_get_stats(w.targets, &stats);
    RANK_CHECK(stats.targets == 1 && stats.puts == WORDS);
    RANK_CHECK(stats.wqes == WORDS && stats.doorbells > 0);
    end(self, &w);
    return 0;
}

/* A GPU that cannot be put to, or whose kernels get to no queue pair. */
static int case_refused(struct rank *self)
{
    int other = 1 - self->rank;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(rsched_targets_view(w.targets, other) == NULL);
    RANK_CHECK(strstr(rsched_targets_reason(w.targets, other),
                      getenv("TARGETS_REASON")) != NULL);
    RANK_CHECK(rsched_targets_bytes(w.targets, other) == 0);
    RANK_CHECK(rsched_targets_check(w.targets) == 0);
    end(self, &w);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    return ranks_run(2, false,
                     strcmp(argv[1], "words") == 0 ? case_words : case_refused,
                     NULL);
}
