/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges opened for kernels, whose functions threads of this process call:
 *
 *     runtime_device processes|threads
 *
 * Whether an epoch was started by a kernel is seen from the counters of its
 * opening.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/device.h>
#include <rsched/rsched.h>

#include "tests/runtime/ranks.h"

enum { WORDS = 500, EPOCHS = 300, MOST_THREADS = 4 };

struct world {
    uint64_t send[2][WORDS], receive[2][WORDS];
    struct rsched_exchange *sets[2];
    struct rsched_opening *opening;
};

static int create_set(struct rank *self, struct world *w, int set)
{
    struct rsched_put put = {.bytes = sizeof(w->send[0]),
                             .source = self->rank,
                             .destination = 1 - self->rank};
    const void *send = w->send[set];
    void *receive = w->receive[set];
    struct rsched_exchange_params params = {.send = &send,
                                            .receive = &receive};
    struct rsched_pattern *pattern;
    int error;

    RANK_CHECK(rsched_pattern_create("kernels", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = 1 - self->rank;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &w->sets[set]);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(error == 0);
    return 0;
}

static int begin(struct rank *self, struct world **world)
{
    struct world *w = calloc(1, sizeof(*w));

    RANK_CHECK(w != NULL);
    for (int set = 0; set < 2; set++)
        RANK_CHECK(create_set(self, w, set) == 0);
    *world = w;
    return 0;
}

static int open_sets(struct rank *self, struct world *w)
{
    RANK_CHECK(rsched_exchange_open_device(w->sets, RSCHED_NO_GPU,
                                           &w->opening) == 0);
    return 0;
}

static void end(struct world *w)
{
    rsched_opening_close(w->opening);
    rsched_exchange_destroy(w->sets[0]);
    rsched_exchange_destroy(w->sets[1]);
    free(w);
}

static int expect_stats(struct rank *self, struct world *w, uint64_t asked,
                        uint64_t completed)
{
    struct rsched_opening_stats stats;

    rsched_opening_get_stats(w->opening, &stats);
    RANK_CHECK(stats.asked == asked && stats.completed == completed);
    return 0;
}

static uint64_t value(int rank, uint64_t epoch, int i)
{
    return (uint64_t)rank << 60 | epoch << 20 | (uint64_t)i;
}

static void fill(struct world *w, int rank, uint64_t epoch, uint32_t from,
                 uint32_t step)
{
    for (uint32_t i = from; i < WORDS; i += step)
        w->send[epoch % 2][i] = value(rank, epoch, (int)i);
}

static bool came(const struct world *w, int rank, uint64_t epoch)
{
    for (int i = 0; i < WORDS; i++) {
        if (w->receive[epoch % 2][i] != value(1 - rank, epoch, i))
            return false;
    }
    return true;
}

/* ---- a kernel ---- */

struct kernel {
    pthread_t thread;
    struct world *world;
    struct rsched_device_group group;
    int rank;
    uint64_t epochs;
    bool tests; /* in the place of waits */
    int status;
    uint64_t wrong; /* epochs whose data were not there */
};

static void group_sync(void *arg)
{
    pthread_barrier_wait(arg);
}

static int wait_for(struct kernel *k)
{
    struct rsched_device_exchange *view = rsched_opening_view(k->world->opening);
    bool done = false;
    int status = 0;

    if (!k->tests)
        return rsched_device_wait(view, &k->group);
    while (status == 0 && !done)
        status = rsched_device_test(view, &k->group, &done);
    return status;
}

static void *run_kernel(void *arg)
{
    struct kernel *k = arg;
    struct rsched_device_exchange *view = rsched_opening_view(k->world->opening);

    for (uint64_t epoch = 0; epoch < k->epochs && k->status == 0; epoch++) {
        fill(k->world, k->rank, epoch, k->group.rank, k->group.size);
        k->status = rsched_device_start(view, &k->group);
        if (k->status == 0)
            k->status = wait_for(k);
        if (k->status == 0)
            k->wrong += !came(k->world, k->rank, epoch);
    }
    return NULL;
}

static int run_threads(struct rank *self, struct world *w, uint32_t threads,
                       uint64_t epochs)
{
    struct kernel kernels[MOST_THREADS];
    pthread_barrier_t barrier;

    pthread_barrier_init(&barrier, NULL, threads);
    for (uint32_t i = 0; i < threads; i++) {
        kernels[i] = (struct kernel){.world = w,
                                     .group = rsched_device_thread(),
                                     .rank = self->rank,
                                     .epochs = epochs,
                                     .tests = threads == 3};
        kernels[i].group.rank = i;
        kernels[i].group.size = threads;
        kernels[i].group.sync = group_sync;
        kernels[i].group.arg = &barrier;
        RANK_CHECK(pthread_create(&kernels[i].thread, NULL, run_kernel,
                                  &kernels[i]) == 0);
    }
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(kernels[i].thread, NULL);
        RANK_CHECK(kernels[i].status == 0);
        RANK_CHECK(kernels[i].wrong == 0);
    }
    pthread_barrier_destroy(&barrier);
    return 0;
}

/* Both sides by kernels, of groups of one and of several threads, again and
 * again. */
static int case_epochs(struct rank *self)
{
    struct world *w;

    RANK_CHECK(begin(self, &w) == 0);
    for (uint32_t threads = 1; threads <= MOST_THREADS; threads++) {
        uint64_t epochs = EPOCHS / threads + 1; /* of either parity */

        RANK_CHECK(open_sets(self, w) == 0);
        RANK_CHECK(run_threads(self, w, threads, epochs) == 0);
        RANK_CHECK(rsched_opening_check(w->opening) == 0);
        RANK_CHECK(expect_stats(self, w, epochs, epochs) == 0);
        rsched_opening_close(w->opening);
        w->opening = NULL;
    }
    end(w);
    return 0;
}

/* Rank 1 has no kernel: its host starts the same epochs. */
static int case_host(struct rank *self)
{
    struct world *w;

    RANK_CHECK(begin(self, &w) == 0);
    if (self->rank == 0) {
        RANK_CHECK(open_sets(self, w) == 0);
        RANK_CHECK(run_threads(self, w, 2, EPOCHS) == 0);
        RANK_CHECK(expect_stats(self, w, EPOCHS, EPOCHS) == 0);
    }
    for (uint64_t epoch = 0; epoch < EPOCHS && self->rank == 1; epoch++) {
        fill(w, 1, epoch, 0, 1);
        RANK_CHECK(rsched_exchange_start(w->sets[epoch % 2]) == 0);
        RANK_CHECK(rsched_exchange_wait(w->sets[epoch % 2]) == 0);
        RANK_CHECK(came(w, 1, epoch));
    }
    end(w);
    return 0;
}

/* The neighbor gives up in the middle. */
static int case_failing(struct rank *self)
{
    enum { GOOD = 3 };
    const struct rsched_device_group g = rsched_device_thread();
    struct world *w;
    struct kernel k;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(open_sets(self, w) == 0);
    k = (struct kernel){.world = w,
                        .group = g,
                        .rank = self->rank,
                        .epochs = self->rank == 0 ? EPOCHS : GOOD};
    run_kernel(&k);
    RANK_CHECK(k.wrong == 0);
    if (self->rank == 0) {
        RANK_CHECK(k.status == RSCHED_EPEER);
        RANK_CHECK(rsched_opening_check(w->opening) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), "peer 1") != NULL);
        RANK_CHECK(rsched_device_start(rsched_opening_view(w->opening), &g) ==
                   RSCHED_EPEER);
        rsched_opening_stop(w->opening, RSCHED_ESTATE); /* the first one stays */
        RANK_CHECK(rsched_opening_check(w->opening) == RSCHED_EPEER);
        rsched_opening_close(w->opening);
        w->opening = NULL;
        RANK_CHECK(rsched_exchange_open_device(w->sets, RSCHED_NO_GPU,
                                               &w->opening) == RSCHED_EPEER);
    } else {
        RANK_CHECK(k.status == 0);
    }
    end(w);
    return 0;
}

/* The neighbor never starts, and the program does not want to wait for it: by a
 * code that kernels are to have, and with a text. */
static int stopped(struct rank *self, bool tests, int code, int status,
                   const char *text)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct rsched_opening_stats stats = {0};
    struct world *w;
    struct kernel k;

    RANK_CHECK(begin(self, &w) == 0);
    if (self->rank == 0) {
        RANK_CHECK(open_sets(self, w) == 0);
        k = (struct kernel){
            .world = w, .group = g, .epochs = 1, .tests = tests};
        RANK_CHECK(pthread_create(&k.thread, NULL, run_kernel, &k) == 0);
        while (stats.asked == 0)
            rsched_opening_get_stats(w->opening, &stats);
        rsched_opening_stop(w->opening, code);
        rsched_opening_stop(w->opening, RSCHED_ENOMEM); /* the first one stays */
        pthread_join(k.thread, NULL);
        RANK_CHECK(k.status == status);
        RANK_CHECK(rsched_opening_check(w->opening) == status);
        RANK_CHECK(strstr(rsched_last_error(), text) != NULL);
        RANK_CHECK(rsched_device_start(rsched_opening_view(w->opening), &g) ==
                   status);
        RANK_CHECK(expect_stats(self, w, 1, 0) == 0);
    }
    mesh_barrier(self->end);
    end(w);
    return 0;
}

static int case_stopped(struct rank *self)
{
    static const int no_errors[] = {0, 7, -1000};

    for (int tests = 0; tests < 2; tests++)
        RANK_CHECK(stopped(self, tests, RSCHED_EUNREACH, RSCHED_EUNREACH,
                           "no engine reaches the peer") == 0);
    for (size_t i = 0; i < sizeof(no_errors) / sizeof(no_errors[0]); i++)
        RANK_CHECK(stopped(self, false, no_errors[i], RSCHED_EINVAL,
                           "which is no error code") == 0);
    return 0;
}

/* What a kernel has left, the host may finish. */
static int case_left(struct rank *self)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct rsched_opening_stats stats = {0};
    struct world *w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(open_sets(self, w) == 0);
    fill(w, self->rank, 0, 0, 1);
    RANK_CHECK(rsched_device_start(rsched_opening_view(w->opening), &g) == 0);
    RANK_CHECK(rsched_opening_check(w->opening) == 0);
    while (stats.asked == 0)
        rsched_opening_get_stats(w->opening, &stats);
    rsched_opening_close(w->opening);
    w->opening = NULL;
    RANK_CHECK(rsched_exchange_wait(w->sets[0]) == 0);
    RANK_CHECK(came(w, self->rank, 0));
    end(w);
    return 0;
}

static int expect_refused(struct rank *self, struct rsched_exchange *even,
                          struct rsched_exchange *odd, int gpu, int error)
{
    struct rsched_exchange *const sets[2] = {even, odd};
    struct rsched_opening *opening = NULL;

    RANK_CHECK(rsched_exchange_open_device(sets, gpu, &opening) == error);
    RANK_CHECK(opening == NULL);
    return 0;
}

static int case_refused(struct rank *self)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct world *w, *other;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(begin(self, &other) == 0);
    RANK_CHECK(expect_refused(self, w->sets[0], NULL, RSCHED_NO_GPU,
                              RSCHED_EINVAL) == 0);
    RANK_CHECK(expect_refused(self, w->sets[0], w->sets[0], RSCHED_NO_GPU,
                              RSCHED_EINVAL) == 0);
    RANK_CHECK(expect_refused(self, w->sets[0], w->sets[1], -2,
                              RSCHED_EINVAL) == 0);
    /* Nobody has loaded a driver. */
    RANK_CHECK(expect_refused(self, w->sets[0], w->sets[1], 0,
                              RSCHED_ENOTSUP) == 0);
    RANK_CHECK(open_sets(self, w) == 0);
    RANK_CHECK(expect_refused(self, other->sets[0], w->sets[1], RSCHED_NO_GPU,
                              RSCHED_ESTATE) == 0);
    RANK_CHECK(rsched_exchange_update(w->sets[0], NULL) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_update(other->sets[0], NULL) == 0);
    rsched_opening_close(w->opening);
    w->opening = NULL;
    RANK_CHECK(rsched_exchange_start(w->sets[1]) == 0);
    RANK_CHECK(expect_refused(self, w->sets[0], w->sets[1], RSCHED_NO_GPU,
                              RSCHED_ESTATE) == 0);
    RANK_CHECK(rsched_exchange_wait(w->sets[1]) == 0);
    RANK_CHECK(open_sets(self, w) == 0);
    RANK_CHECK(rsched_device_start(rsched_opening_view(w->opening), &g) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(rsched_device_wait(rsched_opening_view(w->opening), &g) == 0);
    rsched_opening_close(NULL);
    end(other);
    end(w);
    return 0;
}

int main(int argc, char **argv)
{
    static rank_fn *const cases[] = {case_epochs, case_host, case_failing,
                                     case_stopped, case_left, case_refused};
    bool threads = argc == 2 && strcmp(argv[1], "threads") == 0;

    if (argc != 2)
        return 2;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (ranks_run(2, threads, cases[i], NULL) != 0)
            return 1;
    }
    return 0;
}
