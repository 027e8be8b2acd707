/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Words of 8 bytes that a kernel puts: written and rung by itself, beside the same
 * puts by the proxy, in turn in one run.
 *
 *     rsched-bench-words [gpu|threads [WORDS [ROUNDS]]]
 *
 * gpu has a kernel, threads has threads of the processors in its place. No NIC
 * takes part: a softnic reads the rings, which is slower than any. So a producer is
 * measured alone, by bursts of WORDS (8192) words, or one of each thread, that the
 * ring has room for, until all of them are rung; then the softnic reads the ring
 * that is filled, which is its limit; and then both at once, for longer than the
 * ring has room. The producer is the kernel, or kernel and proxy. ROUNDS (11)
 * count; what is printed is medians.
 *
 * Exits with 77 where there is no GPU, or no kernel for it, with 1 where a word is
 * wrong, the softnic complains, or somebody has rung who should not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "words_way.h"

enum { SKIPPED = 77, MOST_ROUNDS = 1000 };

static const struct shape {
    uint32_t blocks, groups; /* groups of a block */
    bool warps, apart;
} shapes[] = {
    {1, 1, false, false},
    {8, 1, false, false},
    {1, 1, true, false},
    {1, 1, true, true},
    {4, 2, true, false},
    {4, 2, true, true},
};

enum { NUM_SHAPES = sizeof(shapes) / sizeof(shapes[0]), NUM_WAYS = 2 };

/* Of a way and a shape. */
struct figures {
    double rate[MOST_ROUNDS], cycles[MOST_ROUNDS]; /* alone */
    double limit[MOST_ROUNDS], stream[MOST_ROUNDS];
    double rings, wqes; /* for each put, all rounds */
};

static struct words_job job_of(const struct words_side *side,
                               const struct shape *s, uint32_t words)
{
    struct words_job job = {.blocks = s->blocks,
                            .groups = s->groups,
                            .threads = s->warps ? side->warp : 1,
                            .apart = s->apart};
    uint32_t threads;

    if (job.blocks * job.groups > side->most_groups) {
        job.blocks = side->most_groups;
        job.groups = 1;
    }
    threads = job.blocks * job.groups * job.threads;
    job.puts = words > threads ? words / threads : 1;
    return job;
}

static uint32_t puts_of(const struct words_job *job)
{
    return job->blocks * job->groups * job->threads * job->puts;
}

/* ---- measuring ---- */

static void measure(struct words_way *way, const struct words_job *job,
                    struct figures *f, int round, int rounds)
{
    struct words_taken burst = words_way_burst(way, *job);
    struct words_taken stream = words_way_stream(way, *job);

    if (round < 0) /* what is done for the first time takes longer */
        return;
    f->rate[round] = puts_of(job) / burst.seconds;
    f->cycles[round] = burst.cycles;
    f->limit[round] = burst.limit;
    f->stream[round] = (double)puts_of(job) * WORDS_BURSTS / stream.seconds;
    f->rings += burst.rings / rounds;
    f->wqes += burst.wqes / rounds;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int num)
{
    qsort(values, (size_t)num, sizeof(*values), by_value);
    return values[num / 2];
}

/* ---- the table ---- */

static void print_head(const struct words_side *side, uint32_t words,
                       int rounds)
{
    printf("words of 8 bytes, put by %s; bursts of %u, %d rounds\n", side->name,
           words, rounds);
    printf("puts/s until all are rung; cycles of %s, of a thread or warp for "
           "each\nof its puts (by the proxy: for asking); read by a softnic, "
           "which is no NIC\n\n",
           side->cycles);
    printf("%-20s %-10s %11s %9s %9s %8s   %11s %11s\n", "", "",
           "alone:", "", "doorbells", "", "consumed:", "its limit:");
    printf("%-20s %-10s %11s %9s %9s %8s   %11s %11s\n", "threads", "way",
           "puts/s", "cycles", "per put", "WQEs", "puts/s", "WQEs/s");
}

static void print_shape(const struct words_job *job, bool warps)
{
    uint32_t groups = job->blocks * job->groups;
    char name[64];

    snprintf(name, sizeof(name), "%u %s%s%s", groups, warps ? "warp" : "thread",
             groups > 1 ? "s" : "",
             !warps       ? ""
             : job->apart ? ", apart"
                          : ", together");
    printf("%-20s ", name);
}

/* @return puts in a second of the producer alone */
static double print_way(const struct words_way *way, struct figures *f,
                        int rounds)
{
    double rate = median(f->rate, rounds);

    printf("%-10s %11.0f %9.1f %9.3f %8.3f   %11.0f %11.0f\n", way->name, rate,
           median(f->cycles, rounds), f->rings, f->wqes,
           median(f->stream, rounds), median(f->limit, rounds));
    return rate;
}

static void print_all(struct words_way *ways, struct figures *all,
                      uint32_t words, int rounds)
{
    const struct words_side *side = ways[0].side;
    double least = 0, most = 0;

    print_head(side, words, rounds);
    for (int s = 0; s < NUM_SHAPES; s++) {
        struct words_job job = job_of(side, &shapes[s], words);
        double rates[NUM_WAYS];

        for (int w = 0; w < NUM_WAYS; w++) {
            if (w == 0)
                print_shape(&job, shapes[s].warps);
            else
                printf("%-20s ", "");
            rates[w] = print_way(&ways[w], &all[s * NUM_WAYS + w], rounds);
        }
        rates[0] /= rates[1];
        least = s == 0 || rates[0] < least ? rates[0] : least;
        most = rates[0] > most ? rates[0] : most;
    }
    printf("\nkernels put %.2f to %.2f times what the proxy puts\n", least,
           most);
}

static void run(const struct words_side *side, uint32_t words, int rounds)
{
    static struct words_way ways[NUM_WAYS];
    struct figures *all = calloc(NUM_SHAPES * NUM_WAYS, sizeof(*all));
    uint32_t burst = 0;

    if (all == NULL) {
        fputs("rsched-bench-words: no memory\n", stderr);
        exit(1);
    }
    for (int s = 0; s < NUM_SHAPES; s++) {
        const struct words_job job = job_of(side, &shapes[s], words);

        burst = puts_of(&job) > burst ? puts_of(&job) : burst;
    }
    for (int w = 0; w < NUM_WAYS; w++)
        words_way_init(&ways[w], side, w == 1, burst);
    for (int round = -1; round < rounds; round++) {
        for (int s = 0; s < NUM_SHAPES; s++) {
            const struct words_job job = job_of(side, &shapes[s], words);

            for (int w = 0; w < NUM_WAYS; w++)
                measure(&ways[w], &job, &all[s * NUM_WAYS + w], round, rounds);
        }
    }
    print_all(ways, all, words, rounds);
    for (int w = 0; w < NUM_WAYS; w++)
        words_way_fini(&ways[w]);
    free(all);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "gpu", *reason = NULL;
    int words = argc > 2 ? atoi(argv[2]) : 8192;
    int rounds = argc > 3 ? atoi(argv[3]) : 11;
    bool threads = strcmp(mode, "threads") == 0;
    struct words_side side;

    if (argc > 4 || (!threads && strcmp(mode, "gpu") != 0) || words < 1 ||
        words > WORDS_MOST || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr,
                "usage: rsched-bench-words [gpu|threads [WORDS (1 to %d) "
                "[ROUNDS (1 to %d)]]]\n",
                WORDS_MOST, MOST_ROUNDS);
        return 2;
    }
    if (threads)
        words_begin_threads(&side);
    else
        reason = words_begin_gpu(&side);
    if (reason != NULL) {
        printf("SKIP: %s\n", reason);
        return SKIPPED;
    }
    run(&side, (uint32_t)words, rounds);
    side.end();
    return 0;
}
