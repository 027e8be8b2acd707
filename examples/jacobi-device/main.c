/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Jacobi's method on a grid that is cut into strips, in three ways that have to
 * come to the same bits:
 *
 *     jacobi-device host|thread|gpu [RANKS [STEPS]]
 *
 *   host    a loop of the program starts the exchange of each step
 *   thread  the kernel's function does, called by a thread: rsched/device.h
 *   gpu     the kernel does, on a GPU, where the grids lie
 *
 * A kernel reaches its neighbors by rings of its own where that is possible, else
 * by the proxy, with the same code; how many it were is printed, and why not all
 * by rings.
 *
 * Ranks are threads of this process, each with a context, a strip, and for gpu a
 * stream. The result is compared with one processor's that exchanges nothing.
 * Exits with 77 where there is no GPU, or no kernel for it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "gpu.h"
#include "jacobi.h"
#include "post.h"

enum { ROWS = 24, WIDTH = 50, MOST_RANKS = 16, SKIPPED = 77 };
enum { STRIP = (ROWS + 2) * WIDTH }; /* values of a grid */
enum mode { HOST, THREAD, GPU };

struct rank {
    pthread_t thread;
    int number;
    enum mode mode;
    struct post_end post;
    struct rsched_context *context;
    struct gpu *gpu; /* NULL: host memory */
    double *grid[2]; /* in the memory of the mode */
    struct rsched_exchange *sets[2];
    double *result; /* the strip's rows, in the host's memory */
    struct rsched_opening_stats stats; /* of its kernel */
    char reason[128]; /* why it has not reached all neighbors by rings */
};

static int num_ranks = 3, num_gpus;
static uint64_t num_steps = 100;
static pthread_barrier_t barrier;

static void needs(const struct rank *r, int error, const char *what)
{
    if (error == 0)
        return;
    fprintf(stderr, "jacobi-device: rank %d: %s: %s\n", r->number, what,
            rsched_last_error());
    exit(1);
}

/* ---- the grid ---- */

static double initial(int row, int column)
{
    return (row * 7919 + column * 104729) % 1000 / 7.0;
}

/* Rows [first, first + rows + 2) of the whole grid. */
static void fill(double *grid, int first, int rows)
{
    for (int row = 0; row < rows + 2; row++) {
        for (int column = 0; column < WIDTH; column++)
            grid[row * WIDTH + column] = initial(first + row, column);
    }
}

static void allocate(struct rank *r)
{
    double *values = malloc(STRIP * sizeof(double));

    for (int set = 0; set < 2; set++) {
        r->grid[set] = r->gpu != NULL
                           ? gpu_allocate(r->gpu, STRIP * sizeof(double))
                           : malloc(STRIP * sizeof(double));
        if (values == NULL || r->grid[set] == NULL)
            exit(1);
        fill(values, r->number * ROWS, ROWS);
        if (r->gpu != NULL)
            gpu_write(r->gpu, r->grid[set], values, STRIP * sizeof(double));
        else
            memcpy(r->grid[set], values, STRIP * sizeof(double));
    }
    free(values);
}

static void release(struct rank *r)
{
    for (int set = 0; set < 2; set++) {
        if (r->gpu != NULL)
            gpu_free(r->gpu, r->grid[set]);
        else
            free(r->grid[set]);
    }
}

/* ---- the exchange ---- */

struct halo {
    struct rsched_pattern *pattern;
    const void *send[2];
    void *receive[2];
    int num;
};

/* An edge row to a neighbor, whose own edge row comes to the halo row. */
static void add_neighbor(struct rank *r, struct halo *h, int neighbor,
                         double *edge, double *halo)
{
    struct rsched_put put = {.bytes = WIDTH * sizeof(double),
                             .source = r->number,
                             .destination = neighbor};

    if (neighbor < 0 || neighbor == num_ranks)
        return;
    needs(r, rsched_pattern_add_put(h->pattern, &put) < 0, "put");
    put.source = neighbor;
    put.destination = r->number;
    needs(r, rsched_pattern_add_receive(h->pattern, &put) < 0, "receive");
    h->send[h->num] = edge;
    h->receive[h->num++] = halo;
}

static void make_set(struct rank *r, int set)
{
    double *grid = r->grid[set];
    struct halo h = {.num = 0};
    struct rsched_exchange_params params = {.send = h.send,
                                            .receive = h.receive,
                                            .tag = (uint64_t)set};

    needs(r, rsched_pattern_create("jacobi", &h.pattern), "pattern");
    add_neighbor(r, &h, r->number - 1, grid + WIDTH, grid);
    add_neighbor(r, &h, r->number + 1, grid + ROWS * WIDTH,
                 grid + (ROWS + 1) * WIDTH);
    params.pattern = h.pattern;
    needs(r, rsched_exchange_create(r->context, &params, &r->sets[set]),
          "exchange");
    rsched_pattern_destroy(h.pattern);
}

/* ---- the three ways ---- */

static void run_host(struct rank *r, struct jacobi *j)
{
    for (uint64_t step = 0; step < j->steps; step++) {
        struct rsched_exchange *x = r->sets[step % 2];

        needs(r, rsched_exchange_start(x), "start");
        for (uint32_t row = 2; row < j->rows; row++)
            jacobi_row(j, step, row, 0, 1);
        needs(r, rsched_exchange_wait(x), "wait");
        jacobi_row(j, step, 1, 0, 1);
        jacobi_row(j, step, j->rows, 0, 1);
    }
}

static void run_on_gpu(struct rank *r, struct jacobi *j)
{
    struct jacobi *there = gpu_allocate(r->gpu, sizeof(*j));

    gpu_write(r->gpu, there, j, sizeof(*j));
    gpu_run(r->gpu, there);
    gpu_read(r->gpu, j, there, sizeof(*j));
    gpu_free(r->gpu, there);
}

static void run_kernel(struct rank *r, struct jacobi *j)
{
    const struct rsched_device_group alone = rsched_device_thread();
    const struct rsched_opening_stats *stats = &r->stats;
    struct rsched_opening *opening;

    /* Memory of neighbors is opened in an exchange's first epoch: not while a
     * kernel waits for it. It moves what is there, the initial values. */
    for (int set = 0; set < 2; set++) {
        needs(r, rsched_exchange_start(r->sets[set]), "start");
        needs(r, rsched_exchange_wait(r->sets[set]), "wait");
    }
    needs(r,
          rsched_exchange_open_rings(
              r->sets, r->mode == GPU ? r->number % num_gpus : RSCHED_NO_GPU,
              &opening),
          "open");
    /* Opening may wait for kernels, which wait for those that have not opened. */
    pthread_barrier_wait(&barrier);
    j->halo = rsched_opening_view(opening);
    if (r->mode == GPU)
        run_on_gpu(r, j);
    else
        jacobi_run(j, &alone);
    needs(r, rsched_opening_check(opening), "kernel");
    rsched_opening_get_stats(opening, &r->stats);
    if (j->status != 0 || stats->completed != num_steps ||
        stats->doorbells != stats->rings * num_steps) {
        fprintf(stderr,
                "jacobi-device: rank %d: %llu epochs, %llu doorbells of %u "
                "rings, status %d\n",
                r->number, (unsigned long long)stats->completed,
                (unsigned long long)stats->doorbells, stats->rings, j->status);
        exit(1);
    }
    for (int neighbor = 0; neighbor < num_ranks; neighbor++) {
        const char *reason = rsched_opening_reason(opening, neighbor);

        if (reason != NULL)
            snprintf(r->reason, sizeof(r->reason), "%s", reason);
    }
    rsched_opening_close(opening);
}

static void solve(struct rank *r)
{
    struct jacobi j = {.grid = {r->grid[0], r->grid[1]},
                       .rows = ROWS,
                       .width = WIDTH,
                       .steps = num_steps};
    const double *last = r->grid[num_steps % 2] + WIDTH;

    if (r->mode == HOST)
        run_host(r, &j);
    else
        run_kernel(r, &j);
    if (r->gpu != NULL)
        gpu_read(r->gpu, r->result, last, ROWS * WIDTH * sizeof(double));
    else
        memcpy(r->result, last, ROWS * WIDTH * sizeof(double));
}

static void *work(void *arg)
{
    struct rank *r = arg;
    struct rsched_context_params params = {.process = r->number,
                                           .num_processes = num_ranks,
                                           .num_local = num_ranks,
                                           .job = (uint64_t)getpid(),
                                           .oob = post_oob(&r->post)};

    needs(r, rsched_context_create(&params, &r->context), "context");
    if (r->mode == GPU)
        r->gpu = gpu_open(r->number % num_gpus);
    allocate(r);
    for (int set = 0; set < 2; set++)
        make_set(r, set);
    solve(r);
    for (int set = 0; set < 2; set++)
        rsched_exchange_destroy(r->sets[set]);
    /* Neighbors read each other's memory until all have. */
    pthread_barrier_wait(&barrier);
    release(r);
    if (r->gpu != NULL)
        gpu_close(r->gpu);
    rsched_context_destroy(r->context);
    return NULL;
}

/* ---- comparing ---- */

static bool equals_serial(const double *result)
{
    int rows = num_ranks * ROWS;
    size_t values = (size_t)(rows + 2) * WIDTH;
    double *memory = malloc(2 * values * sizeof(double));
    struct jacobi whole = {.grid = {memory, memory + values},
                           .rows = (uint32_t)rows,
                           .width = WIDTH};
    bool equal;

    if (memory == NULL)
        exit(1);
    fill(whole.grid[0], 0, rows);
    fill(whole.grid[1], 0, rows);
    for (uint64_t step = 0; step < num_steps; step++) {
        for (uint32_t row = 1; row <= whole.rows; row++)
            jacobi_row(&whole, step, row, 0, 1);
    }
    equal = memcmp(result, whole.grid[num_steps % 2] + WIDTH,
                   (size_t)rows * WIDTH * sizeof(double)) == 0;
    free(memory);
    return equal;
}

static void report(const struct rank *ranks)
{
    uint32_t rings = 0, proxied = 0;
    const char *reason = "";

    for (int i = 0; i < num_ranks; i++) {
        rings += ranks[i].stats.rings;
        proxied += ranks[i].stats.proxied;
        if (ranks[i].reason[0] != '\0')
            reason = ranks[i].reason;
    }
    printf("halos by rings of the kernels' own: %u; by the proxy: %u%s%s\n",
           rings, proxied, proxied > 0 ? ": " : "", reason);
}

static void run(enum mode mode, double *result)
{
    struct rank ranks[MOST_RANKS];
    struct post *post = post_create();

    if (post == NULL)
        exit(1);
    pthread_barrier_init(&barrier, NULL, (unsigned)num_ranks);
    for (int i = 0; i < num_ranks; i++) {
        ranks[i] = (struct rank){.number = i,
                                 .mode = mode,
                                 .post = {post, i},
                                 .result = result + i * ROWS * WIDTH};
        if (pthread_create(&ranks[i].thread, NULL, work, &ranks[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < num_ranks; i++)
        pthread_join(ranks[i].thread, NULL);
    if (mode != HOST)
        report(ranks);
    pthread_barrier_destroy(&barrier);
    post_destroy(post);
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"host", "thread", "gpu"};
    enum mode mode = HOST;
    const char *reason;
    double *result;
    bool equal;

    while (argc > 1 && mode <= GPU && strcmp(argv[1], modes[mode]) != 0)
        mode++;
    if (argc > 2)
        num_ranks = atoi(argv[2]);
    if (argc > 3)
        num_steps = (uint64_t)atoll(argv[3]);
    if (argc < 2 || argc > 4 || mode > GPU || num_ranks < 1 ||
        num_ranks > MOST_RANKS) {
        fputs("usage: jacobi-device host|thread|gpu [RANKS (1 to 16) [STEPS]]\n",
              stderr);
        return 2;
    }
    reason = mode == GPU ? gpu_find(&num_gpus) : NULL;
    if (reason != NULL) {
        printf("SKIP: %s\n", reason);
        return SKIPPED;
    }
    result = malloc((size_t)num_ranks * ROWS * WIDTH * sizeof(double));
    if (result == NULL)
        return 1;
    run(mode, result);
    equal = equals_serial(result);
    free(result);
    printf("%d ranks, %llu steps, %s: %s\n", num_ranks,
           (unsigned long long)num_steps, modes[mode],
           equal ? "equal to the serial result, to the bit"
                 : "DIFFERS from the serial result");
    return equal ? 0 : 1;
}
