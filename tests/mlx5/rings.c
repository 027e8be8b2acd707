/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges opened by rings, over the engine that is linked with this, whose device
 * is a softnic; threads of each rank are its kernel:
 *
 *     rings processes|threads
 *
 * That kernels have rung themselves is seen from the counters of the openings, and
 * that the host has not, from those of the exchanges.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/device.h>
#include <rsched/rsched.h>

#include "tests/mlx5/only_engine.h"
#include "tests/runtime/ranks.h"

enum { MAX_RANKS = 4, BLOCKS = 6, WORDS = 40, EPOCHS = 120, MOST_THREADS = 4 };

/* What moves between each two: so many blocks of WORDS words, every other one. */
struct plan {
    int num_ranks;
    uint32_t blocks[2]; /* of even and odd epochs */
    bool to_itself;     /* each rank sends to itself too */
    bool one_way;       /* to higher ranks only */
    bool in_a_row;      /* only between ranks that follow one another */
    bool variable;
};

static const struct plan both_ways = {.num_ranks = 2, .blocks = {1, 1}};

struct buffers {
    uint64_t *send[2], *receive[2]; /* blocks, with as many bytes between them */
};

struct world {
    const struct plan *plan;
    int rank;
    struct buffers with[MAX_RANKS]; /* NULL: nothing moves */
    struct rsched_exchange *sets[2];
    struct rsched_opening *opening;
};

static bool sends(const struct plan *p, int from, int to)
{
    if (from == to)
        return p->to_itself;
    if (p->in_a_row && abs(from - to) > 1)
        return false;
    return !p->one_way || from < to;
}

/* ---- ranks ---- */

static uint64_t *new_buffer(uint32_t blocks)
{
    return calloc((size_t)2 * blocks * WORDS, sizeof(uint64_t));
}

static void add_puts(struct world *w, int set, struct rsched_pattern *pattern,
                     const void **send, void **receive)
{
    uint32_t blocks = w->plan->blocks[set];
    struct rsched_run run = {.bytes = WORDS * sizeof(uint64_t),
                             .count = blocks,
                             .stride = 2 * WORDS * sizeof(uint64_t)};
    struct rsched_put put = {.bytes = run.bytes * blocks,
                             .layout = {.runs = &run, .num_runs = 1}};
    int puts = 0, receives = 0;

    for (int other = 0; other < w->plan->num_ranks; other++) {
        struct buffers *b = &w->with[other];

        put.source = w->rank;
        put.destination = other;
        if (sends(w->plan, w->rank, other)) {
            b->send[set] = new_buffer(blocks);
            send[puts++] = b->send[set];
            rsched_pattern_add_put(pattern, &put);
        }
        put.source = other;
        put.destination = w->rank;
        if (sends(w->plan, other, w->rank)) {
            b->receive[set] = new_buffer(blocks);
            receive[receives++] = b->receive[set];
            rsched_pattern_add_receive(pattern, &put);
        }
    }
}

static int create_set(struct rank *self, struct world *w, int set)
{
    const void *send[MAX_RANKS];
    void *receive[MAX_RANKS];
    struct rsched_exchange_params params = {
        .send = send,
        .receive = receive,
        .tag = (uint64_t)set,
        .flags = w->plan->variable ? RSCHED_EXCHANGE_VARIABLE : 0};
    struct rsched_pattern *pattern;
    int error;

    RANK_CHECK(rsched_pattern_create("rings", &pattern) == 0);
    add_puts(w, set, pattern, send, receive);
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &w->sets[set]);
    if (error == 0 && w->plan->variable)
        error = rsched_exchange_load(w->sets[set], pattern, send, receive);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(error == 0);
    return 0;
}

static int begin(struct rank *self, const struct plan *plan,
                 struct world **world)
{
    struct world *w = calloc(1, sizeof(*w));

    RANK_CHECK(w != NULL);
    w->plan = plan;
    w->rank = self->rank;
    RANK_CHECK(only_engine(self) == 0);
    for (int set = 0; set < 2; set++)
        RANK_CHECK(create_set(self, w, set) == 0);
    *world = w;
    return 0;
}

static void end(struct world *w)
{
    rsched_opening_close(w->opening);
    for (int set = 0; set < 2; set++) {
        rsched_exchange_destroy(w->sets[set]);
        for (int other = 0; other < MAX_RANKS; other++) {
            free(w->with[other].send[set]);
            free(w->with[other].receive[set]);
        }
    }
    free(w);
}

static int open_rings(struct rank *self, struct world *w)
{
    RANK_CHECK(rsched_exchange_open_rings(w->sets, RSCHED_NO_GPU,
                                          &w->opening) == 0);
    return 0;
}

/* ---- data ---- */

static uint64_t value(int from, int to, uint64_t epoch, uint32_t i)
{
    return (uint64_t)from << 60 | (uint64_t)to << 56 | epoch << 20 | i;
}

static void fill(struct world *w, uint64_t epoch, uint32_t from, uint32_t step)
{
    uint32_t words = w->plan->blocks[epoch % 2] * WORDS;

    for (int to = 0; to < w->plan->num_ranks; to++) {
        uint64_t *send = w->with[to].send[epoch % 2];

        for (uint32_t i = from; i < words && send != NULL; i += step)
            send[i / WORDS * 2 * WORDS + i % WORDS] =
                value(w->rank, to, epoch, i);
    }
}

/* @return words that are not what was sent, between blocks too */
static uint64_t count_wrong(const struct world *w, uint64_t epoch)
{
    uint32_t words = w->plan->blocks[epoch % 2] * WORDS;
    uint64_t wrong = 0;

    for (int from = 0; from < w->plan->num_ranks; from++) {
        const uint64_t *receive = w->with[from].receive[epoch % 2];

        for (uint32_t i = 0; i < words && receive != NULL; i++) {
            const uint64_t *at = &receive[i / WORDS * 2 * WORDS + i % WORDS];

            wrong += at[0] != value(from, w->rank, epoch, i);
            wrong += at[WORDS] != 0;
        }
    }
    return wrong;
}

/* ---- kernels ---- */

struct kernel {
    pthread_t thread;
    struct world *world;
    struct rsched_device_group group;
    uint64_t epochs;
    bool tests; /* in the place of waits */
    int status;
    uint64_t wrong;
};

static void group_sync(void *arg)
{
    pthread_barrier_wait(arg);
}

static int wait_for(struct kernel *k, struct rsched_device_exchange *view)
{
    bool done = false;
    int status = 0;

    if (!k->tests)
        return rsched_device_wait(view, &k->group);
    while (status == 0 && !done) {
        status = rsched_device_test(view, &k->group, &done);
        sched_yield();
    }
    return status;
}

static void *run_kernel(void *arg)
{
    struct kernel *k = arg;
    struct rsched_device_exchange *view =
        rsched_opening_view(k->world->opening);

    for (uint64_t epoch = 0; epoch < k->epochs && k->status == 0; epoch++) {
        fill(k->world, epoch, k->group.rank, k->group.size);
        k->status = rsched_device_start(view, &k->group);
        if (k->status == 0)
            k->status = wait_for(k, view);
        if (k->status == 0)
            k->wrong += count_wrong(k->world, epoch);
    }
    return NULL;
}

static struct kernel kernel_of(struct world *w, uint64_t epochs)
{
    return (struct kernel){
        .world = w, .group = rsched_device_thread(), .epochs = epochs};
}

static int run_threads(struct rank *self, struct world *w, uint32_t threads,
                       uint64_t epochs)
{
    struct kernel kernels[MOST_THREADS];
    pthread_barrier_t barrier;

    pthread_barrier_init(&barrier, NULL, threads);
    for (uint32_t i = 0; i < threads; i++) {
        kernels[i] = kernel_of(w, epochs);
        kernels[i].tests = threads == 3;
        kernels[i].group.rank = i;
        kernels[i].group.size = threads;
        kernels[i].group.sync = group_sync;
        kernels[i].group.arg = &barrier;
        RANK_CHECK(pthread_create(&kernels[i].thread, NULL, run_kernel,
                                  &kernels[i]) == 0);
    }
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(kernels[i].thread, NULL);
    for (uint32_t i = 0; i < threads; i++) {
        RANK_CHECK((rsched_opening_check(w->opening), kernels[i].status == 0));
        RANK_CHECK(kernels[i].wrong == 0);
    }
    pthread_barrier_destroy(&barrier);
    return 0;
}

/* ---- cases ---- */

/* What kernels have done by rings, and what is left to the host. */
static int expect_counts(struct rank *self, struct world *w, uint64_t epochs,
                         uint32_t rings, bool host)
{
    struct rsched_opening_stats opening;
    struct rsched_stats stats[2];

    rsched_opening_get_stats(w->opening, &opening);
    RANK_CHECK(opening.asked == epochs && opening.completed == epochs);
    RANK_CHECK(opening.rings == rings && opening.proxied == host);
    RANK_CHECK(opening.doorbells == rings * epochs);
    for (int set = 0; set < 2; set++)
        rsched_exchange_get_stats(w->sets[set], &stats[set]);
    RANK_CHECK(stats[0].epochs + stats[1].epochs == (host ? epochs : 0));
    RANK_CHECK(stats[0].engine_bytes[0] + stats[1].engine_bytes[0] == 0);
    RANK_CHECK(stats[0].bytes == stats[0].self_bytes);
    return 0;
}

static int run_plan(struct rank *self, const struct plan *plan)
{
    uint32_t rings = (uint32_t)plan->num_ranks - 1;
    struct world *w;

    RANK_CHECK(begin(self, plan, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    for (int other = 0; other < plan->num_ranks; other++) {
        const char *reason = rsched_opening_reason(w->opening, other);

        RANK_CHECK((reason != NULL) ==
                   (other == self->rank && plan->to_itself));
    }
    RANK_CHECK(run_threads(self, w, 2, EPOCHS) == 0);
    RANK_CHECK(rsched_opening_check(w->opening) == 0);
    RANK_CHECK(expect_counts(self, w, EPOCHS, rings, plan->to_itself) == 0);
    end(w);
    return 0;
}

static int case_plan(struct rank *self)
{
    return run_plan(self, self->arg);
}

/* Groups of one and of several threads, again and again, and the host in
 * between. */
static int case_again(struct rank *self)
{
    struct rsched_stats stats;
    struct world *w;

    RANK_CHECK(begin(self, &both_ways, &w) == 0);
    for (uint32_t threads = 1; threads <= MOST_THREADS; threads++) {
        uint64_t epochs = EPOCHS / threads + 1; /* of either parity */
        struct rsched_opening_stats opening;

        RANK_CHECK(open_rings(self, w) == 0);
        RANK_CHECK(run_threads(self, w, threads, epochs) == 0);
        rsched_opening_get_stats(w->opening, &opening);
        RANK_CHECK(opening.doorbells == epochs);
        rsched_opening_close(w->opening);
        w->opening = NULL;
        fill(w, 7, 0, 1);
        RANK_CHECK(rsched_exchange_start(w->sets[1]) == 0);
        RANK_CHECK(rsched_exchange_wait(w->sets[1]) == 0);
        RANK_CHECK(count_wrong(w, 7) == 0);
        mesh_barrier(self->end);
    }
    rsched_exchange_get_stats(w->sets[1], &stats);
    RANK_CHECK(stats.epochs == MOST_THREADS);
    RANK_CHECK(stats.bytes == MOST_THREADS * WORDS * sizeof(uint64_t));
    end(w);
    return 0;
}

/* The neighbor leaves after some epochs: how, its argument says. */
static int case_left_alone(struct rank *self)
{
    enum { GOOD = 5 };
    const struct rsched_device_group g = rsched_device_thread();
    bool dies = self->arg != NULL;
    struct world *w;
    struct kernel k;

    RANK_CHECK(begin(self, &both_ways, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    k = kernel_of(w, self->rank == 0 ? EPOCHS : GOOD);
    run_kernel(&k);
    RANK_CHECK(k.wrong == 0);
    if (self->rank == 1) {
        RANK_CHECK(k.status == 0);
        if (dies)
            raise(SIGKILL);
    } else {
        RANK_CHECK(k.status == RSCHED_EPEER);
        RANK_CHECK(rsched_opening_check(w->opening) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), "peer 1") != NULL);
        RANK_CHECK(rsched_device_start(rsched_opening_view(w->opening), &g) ==
                   RSCHED_EPEER);
    }
    end(w);
    return 0;
}

/* Rank 1 loses rank 2, and rank 0, which waits for rank 1 only, learns it though
 * that one closes nothing. */
static int case_spreads(struct rank *self)
{
    static const struct plan row = {
        .num_ranks = 3, .blocks = {1, 1}, .in_a_row = true};
    struct world *w;
    struct kernel k;

    RANK_CHECK(begin(self, &row, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    k = kernel_of(w, self->rank == 2 ? 4 : EPOCHS);
    run_kernel(&k);
    RANK_CHECK(k.wrong == 0);
    RANK_CHECK(k.status == (self->rank == 2 ? 0 : RSCHED_EPEER));
    if (self->rank == 2)
        end(w);
    mesh_barrier(self->end);
    if (self->rank == 2)
        return 0;
    RANK_CHECK(rsched_opening_check(w->opening) == RSCHED_EPEER);
    rsched_opening_close(w->opening);
    w->opening = NULL;
    RANK_CHECK(rsched_exchange_start(w->sets[0]) == RSCHED_EPEER);
    end(w);
    return 0;
}

/* The neighbor never starts, and the program does not want to wait for it. */
static int case_stopped(struct rank *self)
{
    struct rsched_opening_stats stats = {0};
    struct world *w;
    struct kernel k;

    RANK_CHECK(begin(self, &both_ways, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    if (self->rank == 0) {
        k = kernel_of(w, 1);
        RANK_CHECK(pthread_create(&k.thread, NULL, run_kernel, &k) == 0);
        while (stats.asked == 0)
            rsched_opening_get_stats(w->opening, &stats);
        rsched_opening_stop(w->opening, RSCHED_EUNREACH);
        pthread_join(k.thread, NULL);
        RANK_CHECK(k.status == RSCHED_EUNREACH);
        RANK_CHECK(rsched_opening_check(w->opening) == RSCHED_EUNREACH);
        RANK_CHECK(strstr(rsched_last_error(), "has stopped") != NULL);
    }
    mesh_barrier(self->end);
    end(w);
    return 0;
}

/* By what is no error, and by another one after that: kernels that wait later get
 * what the program is told. */
static int case_stopped_before(struct rank *self)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct world *w;

    RANK_CHECK(begin(self, &both_ways, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    if (self->rank == 0) {
        rsched_opening_stop(w->opening, 0);
        rsched_opening_stop(w->opening, RSCHED_ENOMEM);
        RANK_CHECK(rsched_device_start(rsched_opening_view(w->opening), &g) ==
                   0);
        RANK_CHECK(rsched_device_wait(rsched_opening_view(w->opening), &g) ==
                   RSCHED_EINVAL);
        RANK_CHECK(rsched_opening_check(w->opening) == RSCHED_EINVAL);
        RANK_CHECK(strstr(rsched_last_error(), "with 0, which is no error") !=
                   NULL);
    }
    mesh_barrier(self->end);
    end(w);
    return 0;
}

/* The neighbor closes when it has all, long before this one looks. */
static int case_late(struct rank *self)
{
    const struct rsched_device_group g = rsched_device_thread();
    struct rsched_device_exchange *view;
    struct world *w;

    RANK_CHECK(begin(self, &both_ways, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    view = rsched_opening_view(w->opening);
    fill(w, 0, 0, 1);
    RANK_CHECK(rsched_device_start(view, &g) == 0);
    if (self->rank == 1) {
        RANK_CHECK(rsched_device_wait(view, &g) == 0);
        rsched_opening_close(w->opening);
        w->opening = NULL;
        mesh_barrier(self->end);
    } else {
        mesh_barrier(self->end);
        while (rsched_device_load32((const uint32_t *)view->gone) == 0)
            sched_yield(); /* this side has noticed it by then */
        RANK_CHECK(rsched_device_wait(view, &g) == 0);
        RANK_CHECK(rsched_opening_check(w->opening) == 0);
        RANK_CHECK(count_wrong(w, 0) == 0);
    }
    end(w);
    return 0;
}

/* Threads of a group, of whom the second one hears only when rank 0 has left that
 * it may ring. */
struct late_sync {
    pthread_barrier_t *barrier;
    struct mesh_end *end; /* of whoever is late, else NULL */
    int calls;
};

enum { LEFT_TAG = 99, BEFORE_RINGING = 3 /* calls of a start */ };

static void late_sync(void *arg)
{
    struct late_sync *s = arg;
    char byte;

    pthread_barrier_wait(s->barrier);
    if (s->end == NULL || ++s->calls != BEFORE_RINGING)
        return;
    mesh_receive(s->end, 0, LEFT_TAG, &byte, 1);
    usleep(300000); /* rank 1 looks for the one that has left */
}

static int run_late(struct rank *self, struct world *w)
{
    pthread_barrier_t barrier;
    struct late_sync syncs[2] = {{&barrier, NULL, 0}, {&barrier, self->end, 0}};
    struct kernel kernels[2];

    pthread_barrier_init(&barrier, NULL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        kernels[i] = kernel_of(w, 1);
        kernels[i].group.rank = i;
        kernels[i].group.size = 2;
        kernels[i].group.sync = late_sync;
        kernels[i].group.arg = &syncs[i];
        RANK_CHECK(pthread_create(&kernels[i].thread, NULL, run_kernel,
                                  &kernels[i]) == 0);
    }
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(kernels[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (uint32_t i = 0; i < 2; i++) {
        RANK_CHECK((rsched_opening_check(w->opening), kernels[i].status == 0));
        RANK_CHECK(kernels[i].wrong == 0);
    }
    return 0;
}

/* Rank 0 has all, closes and leaves while rank 1 still waits for rank 2. */
static int case_others(struct rank *self)
{
    static const struct plan plan = {.num_ranks = 3, .blocks = {1, 1}};
    char byte = 0;
    struct world *w;

    RANK_CHECK(begin(self, &plan, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    if (self->rank == 2)
        RANK_CHECK(run_late(self, w) == 0);
    else
        RANK_CHECK(run_threads(self, w, 1, 1) == 0);
    RANK_CHECK(rsched_opening_check(w->opening) == 0);
    end(w);
    if (self->rank == 0)
        RANK_CHECK(mesh_send(self->end, 2, LEFT_TAG, &byte, 1) == 0);
    return 0;
}

/* What rings cannot do goes by the proxy, and both ends know why. */
static int proxied(struct rank *self, const struct plan *plan, const char *why)
{
    struct rsched_opening_stats stats;
    struct world *w;

    RANK_CHECK(begin(self, plan, &w) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    RANK_CHECK(strstr(rsched_opening_reason(w->opening, 1 - self->rank), why) !=
               NULL);
    RANK_CHECK(run_threads(self, w, 2, EPOCHS) == 0);
    rsched_opening_get_stats(w->opening, &stats);
    RANK_CHECK(stats.rings == 0 && stats.proxied == 1 && stats.doorbells == 0);
    RANK_CHECK(stats.completed == EPOCHS);
    end(w);
    return 0;
}

static int case_blocks(struct rank *self)
{
    static const struct plan plan = {.num_ranks = 2, .blocks = {1, 65}};

    return proxied(self, &plan, "more than 64 blocks");
}

static int case_blocks_at_one_end(struct rank *self)
{
    static const struct plan plan = {
        .num_ranks = 2, .blocks = {65, 1}, .one_way = true};

    return proxied(self, &plan, "more than 64 blocks");
}

static int case_variable(struct rank *self)
{
    static const struct plan plan = {
        .num_ranks = 2, .blocks = {1, 1}, .variable = true};

    return proxied(self, &plan, "variable");
}

/* What is wrong at one end, the other one is told. */
static int case_refused(struct rank *self)
{
    struct world *w;
    int error;

    RANK_CHECK(begin(self, &both_ways, &w) == 0);
    if (self->rank == 1)
        RANK_CHECK(rsched_exchange_start(w->sets[1]) == 0);
    error = rsched_exchange_open_rings(w->sets, RSCHED_NO_GPU, &w->opening);
    RANK_CHECK(error == RSCHED_ESTATE && w->opening == NULL);
    RANK_CHECK(self->rank == 1 ||
               strstr(rsched_last_error(), "process 1 says") != NULL);
    if (self->rank == 0)
        RANK_CHECK(rsched_exchange_start(w->sets[1]) == 0);
    RANK_CHECK(rsched_exchange_wait(w->sets[1]) == 0);
    RANK_CHECK(open_rings(self, w) == 0);
    RANK_CHECK(run_threads(self, w, 1, 3) == 0);
    end(w);
    return 0;
}

/* The neighbor is killed at a step of the opening. Who knows by then that both
 * have a ring learns it from its kernel. */
static int case_killed_early(struct rank *self)
{
    const char *point = self->arg;
    bool knows = strcmp(point, "open:end") == 0;
    struct world *w;
    struct kernel k;
    int error;

    RANK_CHECK(begin(self, &both_ways, &w) == 0);
    error = rsched_exchange_open_rings(w->sets, RSCHED_NO_GPU, &w->opening);
    RANK_CHECK(self->rank == 0);
    RANK_CHECK((error == 0) == knows);
    k = kernel_of(w, 1);
    if (knows) {
        run_kernel(&k);
        RANK_CHECK(k.status == RSCHED_EPEER);
    }
    end(w);
    return 0;
}

static int kill_early(const char *point)
{
    char setting[64];
    const char *const settings[2] = {NULL, setting};

    snprintf(setting, sizeof(setting), "RSCHED_FAILPOINTS=%s=kill", point);
    return ranks_run_with(2, false, case_killed_early, (void *)(uintptr_t)point,
                          settings);
}

static int run_killed(void)
{
    static const char *const points[] = {"open:rings", "open:joined",
                                         "open:end"};
    static const bool dies = true;

    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        if (kill_early(points[i]) != RANKS_KILLED)
            return RANK_FAIL("killed at %s", points[i]);
    }
    if (ranks_run(2, false, case_left_alone, (void *)(uintptr_t)&dies) !=
        RANKS_KILLED)
        return RANK_FAIL("killed in an epoch");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        rank_fn *run;
        int ranks;
    } cases[] = {
        {"again", case_again, 2},     {"left alone", case_left_alone, 2},
        {"spreads", case_spreads, 3}, {"stopped", case_stopped, 2},
        {"stopped before", case_stopped_before, 2},
        {"late", case_late, 2},       {"others", case_others, 3},
        {"blocks", case_blocks, 2},
        {"one end", case_blocks_at_one_end, 2},
        {"variable", case_variable, 2}, {"refused", case_refused, 2},
    };
    static struct plan plans[] = {
        {.num_ranks = 2, .blocks = {1, 1}},
        {.num_ranks = 3, .blocks = {BLOCKS, 1}},
        {.num_ranks = 2, .blocks = {2, 64}},
        {.num_ranks = 3, .blocks = {3, 3}, .one_way = true},
        {.num_ranks = 4, .blocks = {1, 2}, .to_itself = true},
    };
    bool threads = argc == 2 && strcmp(argv[1], "threads") == 0;

    if (argc != 2)
        return 2;
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        if (ranks_run(plans[i].num_ranks, threads, case_plan, &plans[i]) != 0)
            return RANK_FAIL("plan %zu", i);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (ranks_run(cases[i].ranks, threads, cases[i].run, NULL) != 0)
            return RANK_FAIL("case %s", cases[i].name);
    }
    return threads ? 0 : run_killed();
}
