/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The faces of a box in GPU memory: an exchange, whose kernel packs them all in one
 * launch, beside one copy of the driver for each block, in turn in one run.
 *
 *     rsched-bench-faces [SIDE [ROUNDS]]
 *
 * The box has SIDE (64) numbers of 8 bytes in each direction. Its faces are blocks
 * of a number, of a row, and of a plane; the process sends them to itself, to the
 * same places of other boxes. Exits with 77 where there is no GPU, with 1 where the
 * bytes that have come are wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "driver.h"

enum { FACES = 6, MOST_ROUNDS = 1000, SKIPPED = 77 };
enum { NUMBER = 8 }; /* bytes */

struct bench {
    uint64_t side;
    CUdeviceptr box, received; /* a box for each face */
    struct rsched_run faces[FACES];
    struct rsched_context *context;
    struct rsched_exchange *exchange;
};

static void check(int error, const char *what)
{
    if (error >= 0)
        return;
    fprintf(stderr, "rsched-bench-faces: %s: %s\n", what, rsched_last_error());
    exit(1);
}

/* ---- the faces ---- */

static uint64_t box_bytes(const struct bench *b)
{
    return b->side * b->side * b->side * NUMBER;
}

/* The first and the last numbers of all rows, rows of all planes, and planes. */
static void make_faces(struct bench *b)
{
    uint64_t row = b->side * NUMBER, plane = row * b->side;
    const struct rsched_run first[] = {
        {.bytes = NUMBER, .count = b->side * b->side, .stride = (int64_t)row},
        {.bytes = row, .count = b->side, .stride = (int64_t)plane},
        {.bytes = plane, .count = 1}};
    const uint64_t last[] = {row - NUMBER, plane - row, box_bytes(b) - plane};

    for (int i = 0; i < FACES; i++) {
        b->faces[i] = first[i / 2];
        b->faces[i].offset = i % 2 == 0 ? 0 : (int64_t)last[i / 2];
    }
}

static void make_exchange(struct bench *b)
{
    const struct rsched_context_params one = {.num_processes = 1,
                                              .num_local = 1,
                                              .job = (uint64_t)getpid()};
    const void *send[FACES];
    void *receive[FACES];
    struct rsched_exchange_params params = {.send = send, .receive = receive};
    struct rsched_pattern *pattern;

    check(rsched_context_create(&one, &b->context), "context");
    check(rsched_pattern_create("faces", &pattern), "pattern");
    for (int i = 0; i < FACES; i++) {
        struct rsched_put put = {.bytes = b->faces[i].bytes * b->faces[i].count,
                                 .layout = {&b->faces[i], 1}};

        check((int)rsched_pattern_add_put(pattern, &put), "put");
        check((int)rsched_pattern_add_receive(pattern, &put), "receive");
        send[i] = (void *)(uintptr_t)b->box;
        receive[i] =
            (void *)(uintptr_t)(b->received + (uint64_t)i * box_bytes(b));
    }
    params.pattern = pattern;
    check(rsched_exchange_create(b->context, &params, &b->exchange), "exchange");
    rsched_pattern_destroy(pattern);
}

static void copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    driver_needs(cuda.cuMemcpyAsync(to, from, bytes, cuda.stream), "copy");
}

static void copy_and_wait(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    copy(to, from, bytes);
    driver_needs(cuda.cuStreamSynchronize(cuda.stream), "copy");
}

/* ---- the two ways ---- */

static void exchange(struct bench *b)
{
    check(rsched_exchange_start(b->exchange), "start");
    check(rsched_exchange_wait(b->exchange), "wait");
}

static void copy_blocks(struct bench *b)
{
    for (int i = 0; i < FACES; i++) {
        const struct rsched_run *f = &b->faces[i];

        for (uint64_t k = 0; k < f->count; k++) {
            uint64_t at = (uint64_t)(f->offset + (int64_t)k * f->stride);

            copy(b->received + (uint64_t)i * box_bytes(b) + at, b->box + at,
                 f->bytes);
        }
    }
    driver_needs(cuda.cuStreamSynchronize(cuda.stream), "copies");
}

/* ---- bytes ---- */

static void *allocate(uint64_t bytes)
{
    void *memory = calloc(1, bytes);

    if (memory == NULL) {
        fputs("rsched-bench-faces: no memory\n", stderr);
        exit(1);
    }
    return memory;
}

/* That a way has moved the faces, and nothing else. */
static void verify(struct bench *b, void (*way)(struct bench *b),
                   const char *name)
{
    uint64_t bytes = box_bytes(b);
    uint64_t *box = allocate(bytes), *all = allocate(FACES * bytes);
    char *expected = allocate(FACES * bytes);

    for (uint64_t i = 0; i < bytes / NUMBER; i++)
        box[i] = i * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < FACES; i++) {
        for (uint64_t k = 0; k < b->faces[i].count; k++) {
            int64_t at = b->faces[i].offset + (int64_t)k * b->faces[i].stride;

            memcpy(expected + (uint64_t)i * bytes + at, (char *)box + at,
                   b->faces[i].bytes);
        }
    }
    copy_and_wait(b->box, (CUdeviceptr)(uintptr_t)box, bytes);
    copy_and_wait(b->received, (CUdeviceptr)(uintptr_t)all, FACES * bytes);
    way(b);
    copy_and_wait((CUdeviceptr)(uintptr_t)all, b->received, FACES * bytes);
    if (memcmp(all, expected, FACES * bytes) != 0) {
        fprintf(stderr, "rsched-bench-faces: wrong bytes by %s\n", name);
        exit(1);
    }
    free(expected);
    free(all);
    free(box);
}

/* ---- time ---- */

static double microseconds(struct bench *b, void (*way)(struct bench *b))
{
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    way(b);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) * 1e6 +
           (double)(to.tv_nsec - from.tv_nsec) / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double lower_quartile(double *times, int count)
{
    qsort(times, (size_t)count, sizeof(*times), by_value);
    return times[count / 4];
}

static void measure(struct bench *b, int rounds)
{
    static double packed[MOST_ROUNDS], copied[MOST_ROUNDS];
    double exchanged, blocks;

    for (int r = 0; r < rounds; r++) {
        packed[r] = microseconds(b, exchange);
        copied[r] = microseconds(b, copy_blocks);
    }
    exchanged = lower_quartile(packed, rounds);
    blocks = lower_quartile(copied, rounds);
    printf("the %d faces of a box of %llu^3 numbers: exchanged in %.1f us, "
           "copied block by block in %.1f us\n",
           FACES, (unsigned long long)b->side, exchanged, blocks);
    printf("copies take %.2f times what the exchange takes\n",
           blocks / exchanged);
}

int main(int argc, char **argv)
{
    struct bench b = {.side = argc > 1 ? (uint64_t)atoi(argv[1]) : 64};
    int rounds = argc > 2 ? atoi(argv[2]) : 51;
    const char *reason;

    if (argc > 3 || b.side < 2 || b.side > 256 || rounds < 1 ||
        rounds > MOST_ROUNDS) {
        fputs("usage: rsched-bench-faces [SIDE (2 to 256) [ROUNDS (1 to 1000)]]\n",
              stderr);
        return 2;
    }
    reason = driver_begin();
    if (reason != NULL) {
        printf("SKIP: %s\n", reason);
        return SKIPPED;
    }
    driver_needs(cuda.cuMemAlloc(&b.box, box_bytes(&b)), "memory");
    driver_needs(cuda.cuMemAlloc(&b.received, FACES * box_bytes(&b)), "memory");
    make_faces(&b);
    make_exchange(&b);
    verify(&b, exchange, "the exchange");
    verify(&b, copy_blocks, "copies");
    measure(&b, rounds);
    rsched_exchange_destroy(b.exchange);
    rsched_context_destroy(b.context);
    driver_needs(cuda.cuMemFree(b.received), "memory");
    driver_needs(cuda.cuMemFree(b.box), "memory");
    driver_end();
    return 0;
}
