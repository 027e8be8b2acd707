/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The C API in a small program: a plate of ROWS x COLUMNS cells, cut into
 * strips between forked processes that form a ring. A step averages each cell
 * with its neighbors; the columns at a strip's edges come from the processes
 * to the left and to the right. They are strided in memory.
 *
 *     halo-c-api [PROCESSES [STEPS]]
 *
 * The result is compared, to the bit, with a strip that is the whole plate.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "mailbox.h"

enum { ROWS = 64, COLUMNS = 32 }; /* of one strip, without its halo */

/* COLUMNS * strips cells wide, one halo column on each side. */
struct strip {
    int columns, pitch;
    double *now, *next;
};

static bool strip_init(struct strip *s, int columns, int first)
{
    s->columns = columns;
    s->pitch = columns + 2;
    s->now = calloc((size_t)(ROWS * s->pitch), sizeof(double));
    s->next = calloc((size_t)(ROWS * s->pitch), sizeof(double));
    if (s->now == NULL || s->next == NULL)
        return false;
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < columns; x++)
            s->now[y * s->pitch + x + 1] = (first + x) * 37 % 101 + y % 7;
    return true;
}

static void strip_fini(struct strip *s)
{
    free(s->now);
    free(s->next);
}

static void strip_step(struct strip *s)
{
    for (int y = 0; y < ROWS; y++) {
        int up = (y + ROWS - 1) % ROWS, down = (y + 1) % ROWS;

        for (int x = 1; x <= s->columns; x++)
            s->next[y * s->pitch + x] =
                0.2 * (s->now[y * s->pitch + x] +
                       (s->now[y * s->pitch + x - 1] +
                        s->now[y * s->pitch + x + 1]) +
                       (s->now[up * s->pitch + x] +
                        s->now[down * s->pitch + x]));
    }
    /* Copied back, not swapped: the exchange is bound to this buffer. */
    memcpy(s->now, s->next, (size_t)(ROWS * s->pitch) * sizeof(double));
}

static int failed(int process, const char *what)
{
    fprintf(stderr, "halo-c-api: process %d: %s: %s\n", process, what,
            rsched_last_error());
    return 1;
}

/* Two puts and two receives, a column each; with two processes, both go to the
 * same one, and pairs are made in the order of addition: what this process
 * sends to the right is what the right one receives from its left. */
static int make_pattern(const struct strip *s, int process, int processes,
                        struct rsched_pattern **pattern)
{
    int left = (process + processes - 1) % processes;
    int right = (process + 1) % processes;
    struct rsched_run column = {.bytes = sizeof(double), .count = ROWS,
                                .stride = s->pitch * (int)sizeof(double)};
    struct rsched_put put = {.bytes = ROWS * sizeof(double),
                             .source = process, .destination = process,
                             .layout = {.runs = &column, .num_runs = 1}};
    int error = rsched_pattern_create("plate", pattern);
    struct rsched_put receive = put;

    if (error != 0)
        return error;
    put.destination = left;
    put.direction = "W";
    if (rsched_pattern_add_put(*pattern, &put) < 0)
        goto err_pattern;
    put.destination = right;
    put.direction = "E";
    if (rsched_pattern_add_put(*pattern, &put) < 0)
        goto err_pattern;
    receive.source = right;
    if (rsched_pattern_add_receive(*pattern, &receive) < 0)
        goto err_pattern;
    receive.source = left;
    if (rsched_pattern_add_receive(*pattern, &receive) < 0)
        goto err_pattern;
    return 0;

err_pattern:
    rsched_pattern_destroy(*pattern);
    return RSCHED_EINVAL;
}

static int make_exchange(struct rsched_context *context, struct strip *s,
                         int process, int processes,
                         struct rsched_exchange **exchange)
{
    /* The columns' first cells, in the order of the puts and receives. */
    const void *send[] = {s->now + 1, s->now + s->columns};
    void *receive[] = {s->now + s->columns + 1, s->now};
    struct rsched_exchange_params params = {.send = send, .receive = receive};
    struct rsched_pattern *pattern;
    int error = make_pattern(s, process, processes, &pattern);

    if (error != 0)
        return error;
    params.pattern = pattern;
    error = rsched_exchange_create(context, &params, exchange);
    rsched_pattern_destroy(pattern);
    return error;
}

static int run_steps(struct rsched_exchange *exchange, struct strip *s,
                     int steps)
{
    for (int i = 0; i < steps; i++) {
        int error = rsched_exchange_start(exchange);

        /* What needs no halo could be computed here. */
        if (error == 0)
            error = rsched_exchange_wait(exchange);
        if (error != 0)
            return error;
        strip_step(s);
    }
    return 0;
}

static void report(const struct rsched_exchange *exchange, int process)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(exchange, &stats);
    printf("process %d: %llu exchanges, %llu puts, %llu bytes\n", process,
           (unsigned long long)stats.epochs, (unsigned long long)stats.puts,
           (unsigned long long)stats.bytes);
}

/* One process's work; its columns go to `result`. */
static int work(struct mailbox *box, int process, int processes, int steps,
                double *result)
{
    struct rsched_context_params params = {
        .process = process, .num_processes = processes,
        .num_local = processes, .job = (uint64_t)getppid(),
        .oob = mailbox_oob(box)};
    struct rsched_context *context;
    struct rsched_exchange *exchange;
    struct strip s;
    int status = 1;

    mailbox_become(box, process);
    if (!strip_init(&s, COLUMNS, process * COLUMNS))
        return 1;
    if (rsched_context_create(&params, &context) != 0) {
        failed(process, "context");
        goto out_strip;
    }
    if (make_exchange(context, &s, process, processes, &exchange) != 0) {
        failed(process, "exchange");
        goto out_context;
    }
    if (run_steps(exchange, &s, steps) != 0) {
        failed(process, "step");
        goto out_exchange;
    }
    for (int y = 0; y < ROWS; y++)
        memcpy(&result[(y * processes + process) * COLUMNS],
               &s.now[y * s.pitch + 1], COLUMNS * sizeof(double));
    report(exchange, process);
    status = 0;

out_exchange:
    rsched_exchange_destroy(exchange);
out_context:
    rsched_context_destroy(context);
out_strip:
    strip_fini(&s);
    return status;
}

static bool equals_serial(const double *result, int processes, int steps)
{
    int columns = processes * COLUMNS;
    struct strip s;
    bool equal = strip_init(&s, columns, 0);

    for (int i = 0; i < steps && equal; i++) {
        for (int y = 0; y < ROWS; y++) {
            s.now[y * s.pitch] = s.now[y * s.pitch + columns];
            s.now[y * s.pitch + columns + 1] = s.now[y * s.pitch + 1];
        }
        strip_step(&s);
    }
    for (int y = 0; y < ROWS && equal; y++)
        equal = memcmp(&result[y * columns], &s.now[y * s.pitch + 1],
                       (size_t)columns * sizeof(double)) == 0;
    strip_fini(&s);
    return equal;
}

/* Fork the processes and wait for them; false if one fails. */
static bool run_processes(struct mailbox *box, int processes, int steps,
                          double *result)
{
    bool good = true;
    int status;

    for (int p = 0; p < processes; p++) {
        pid_t pid = fork();

        if (pid == 0) {
            int code = work(box, p, processes, steps, result);

            fflush(stdout);
            _exit(code);
        }
        good = good && pid > 0;
    }
    while (wait(&status) > 0)
        good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return good;
}

int main(int argc, char **argv)
{
    int processes = argc > 1 ? atoi(argv[1]) : 4;
    int steps = argc > 2 ? atoi(argv[2]) : 100;
    size_t bytes = (size_t)processes * ROWS * COLUMNS * sizeof(double);
    struct mailbox *box;
    double *result;
    bool good;

    if (processes < 1 || processes > 64 || steps < 0 || argc > 3) {
        fputs("usage: halo-c-api [PROCESSES (1 to 64) [STEPS]]\n", stderr);
        return 2;
    }
    box = mailbox_create(processes);
    result = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (box == NULL || result == MAP_FAILED) {
        perror("halo-c-api");
        return 1;
    }
    good = run_processes(box, processes, steps, result);
    if (good && !equals_serial(result, processes, steps)) {
        fputs("halo-c-api: DIFFERS from the serial result\n", stderr);
        good = false;
    }
    if (good)
        puts("equal to the serial result, to the bit");
    munmap(result, bytes);
    mailbox_destroy(box);
    return good ? 0 : 1;
}
