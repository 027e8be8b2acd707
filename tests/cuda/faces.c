/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faces of boxes in GPU memory, packed and unpacked by kernels, over a real driver
 * or the one in software, which runs the kernel on the processor:
 *
 *     cuda_faces processes|threads CASE
 *
 * How many launches that takes the one in software counts. RSCHED_PROGRESS is 0,
 * so nothing is launched but by the calls below.
 */
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/buffer.h"
#include "tests/runtime/ranks.h"

enum { SIDE = 32, EPOCHS = 3, RANKS = 4, GPUS = 2, FACES = 3 };

#define ROW ((uint64_t)SIDE * 8)
#define PLANE (ROW * SIDE)
#define BOX (PLANE * SIDE)

/* The faces of a box of numbers of 8 bytes: single numbers, rows, one piece. */
static const struct rsched_run faces[FACES] = {
    {.bytes = 8, .count = SIDE * SIDE, .stride = (int64_t)ROW},
    {.bytes = ROW, .count = SIDE, .stride = (int64_t)PLANE},
    {.bytes = PLANE, .count = 1, .stride = 0}};

/* Where they begin; the last numbers, rows and planes. */
static const uint64_t corners[FACES] = {ROW - 8, PLANE - ROW, BOX - PLANE};

/* Not where the kernel could move more than four bytes at once. */
enum { SHIFT = 4 };

static bool threads; /* the ranks are: they share the fake's counts */

struct world {
    struct program p;
    bool sends, receives; /* this rank */
    struct buffer send, receive[RANKS];
    struct buffer other; /* on another GPU, in place of `send` */
    struct rsched_exchange *x;
    unsigned long long allocations; /* before the exchange */
};

static const struct buffer *source(const struct world *w)
{
    return w->other.address != NULL ? &w->other : &w->send;
}

/* Who sends to whom: everybody, himself included; or to or from rank 0. What
 * HALF_HOST's rank 2 sends to rank 0 goes to host memory. */
enum kind { ALL, GATHER, SCATTER, HALF_HOST };

static bool sends_to(enum kind kind, int from, int to)
{
    switch (kind) {
    case ALL:
        return true;
    case SCATTER:
        return from == 0;
    default:
        return to == 0 && from != 0;
    }
}

static bool is_received_on_gpu(enum kind kind, int from)
{
    return kind != HALF_HOST || from != 2;
}

static void addresses(const struct rank *self, const struct world *w,
                      enum kind kind, const void **send, void **receive)
{
    char *from = source(w)->address;
    int puts = 0, receives = 0;

    for (int other = 0; other < RANKS; other++) {
        for (int f = 0; f < FACES; f++) {
            if (sends_to(kind, self->rank, other))
                send[puts++] = from + corners[f];
            if (sends_to(kind, other, self->rank))
                receive[receives++] =
                    w->receive[other].address + corners[f] + SHIFT;
        }
    }
}

static int begin(struct rank *self, struct world *w, enum kind kind)
{
    const void *send[RANKS * FACES];
    void *receive[RANKS * FACES];
    struct rsched_pattern *pattern;
    struct rsched_exchange_params params = {.send = send, .receive = receive};

    *w = (struct world){0};
    program_begin(&w->p, self->rank % GPUS);
    buffer_init(&w->p, &w->send, BOX + SHIFT, true);
    RANK_CHECK(rsched_pattern_create("faces", &pattern) == 0);
    for (int other = 0; other < RANKS; other++) {
        buffer_init(&w->p, &w->receive[other], BOX + SHIFT,
                    is_received_on_gpu(kind, other));
        for (int f = 0; f < FACES; f++) {
            struct rsched_put put = {.bytes = faces[f].bytes * faces[f].count,
                                     .layout = {&faces[f], 1},
                                     .source = self->rank,
                                     .destination = other};

            if (sends_to(kind, self->rank, other)) {
                RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
                w->sends = true;
            }
            if (!sends_to(kind, other, self->rank))
                continue;
            put.source = other;
            put.destination = self->rank;
            RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
            w->receives = true;
        }
    }
    addresses(self, w, kind, send, receive);
    w->allocations = program_count(&w->p, FAKE_DEVICE);
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &w->x) == 0);
    rsched_pattern_destroy(pattern);
    return 0;
}

static int end(struct rank *self, struct world *w)
{
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    RANK_CHECK(threads ||
               program_counted(&w->p, FAKE_DEVICE, w->allocations));
    buffer_fini(&w->p, &w->send);
    if (w->other.address != NULL) {
        buffer_fini(&w->p, &w->other);
        program_end(&w->p, (self->rank + 1) % GPUS);
    }
    for (int i = 0; i < RANKS; i++)
        buffer_fini(&w->p, &w->receive[i]);
    program_end(&w->p, self->rank % GPUS);
    return 0;
}

static char byte_of(int rank, int epoch, uint64_t i)
{
    return (char)((uint64_t)(rank * 89 + epoch * 41 + 1) + i +
                           i / 251);
}

static void fill(struct rank *self, struct world *w, int epoch)
{
    const struct buffer *send = source(w);

    for (uint64_t i = 0; i < BOX; i++)
        send->touch[i] = byte_of(self->rank, epoch, i);
    buffer_push(&w->p, send);
    for (int i = 0; i < RANKS; i++) {
        memset(w->receive[i].touch, 0, BOX + SHIFT);
        buffer_push(&w->p, &w->receive[i]);
    }
}

/* The faces have come, and nothing else has changed. */
static int compare(struct rank *self, struct world *w, enum kind kind,
                   int epoch)
{
    char *expected = malloc(BOX + SHIFT);

    for (int other = 0; other < RANKS; other++) {
        memset(expected, 0, BOX + SHIFT);
        for (int f = 0; f < FACES && sends_to(kind, other, self->rank); f++) {
            for (uint64_t k = 0; k < faces[f].count; k++) {
                for (uint64_t i = 0; i < faces[f].bytes; i++) {
                    uint64_t at =
                        corners[f] + k * (uint64_t)faces[f].stride + i;

                    expected[SHIFT + at] = byte_of(other, epoch, at);
                }
            }
        }
        buffer_pull(&w->p, &w->receive[other]);
        RANK_CHECK(memcmp(expected, w->receive[other].touch, BOX + SHIFT) == 0);
    }
    free(expected);
    return 0;
}

static bool staged(void)
{
    return strcmp(getenv("RSCHED_GPU_WAY"), "staged") == 0;
}

/* All ranks, in all directions. */
static int case_all(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w, ALL) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        fill(self, &w, epoch);
        RANK_CHECK(rsched_exchange_start(w.x) == 0);
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
        RANK_CHECK(compare(self, &w, ALL, epoch) == 0);
    }
    return end(self, &w);
}

/* A start packs for all neighbors, and for the process itself, in one
 * launch. */
static int case_scatter(struct rank *self)
{
    unsigned long long copies, launches;
    struct world w;

    RANK_CHECK(begin(self, &w, SCATTER) == 0);
    copies = program_count(&w.p, FAKE_COPIES);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        fill(self, &w, epoch);
        launches = program_count(&w.p, FAKE_LAUNCHES);
        RANK_CHECK(rsched_exchange_start(w.x) == 0);
        RANK_CHECK(program_counted(&w.p, FAKE_LAUNCHES, launches + w.sends));
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
        RANK_CHECK(compare(self, &w, SCATTER, epoch) == 0);
    }
    /* of the sender, who has nothing else to bring to the GPU */
    RANK_CHECK(!w.sends || program_counted(&w.p, FAKE_COPIES, copies));
    return end(self, &w);
}

/* All has been sent before rank 0 looks, who copies it with one launch. */
static int gather(struct rank *self, struct world *w, enum kind kind, int epoch)
{
    unsigned long long launches;

    fill(self, w, epoch);
    if (w->sends) {
        RANK_CHECK(rsched_exchange_start(w->x) == 0);
        /* Through slots it is complete without the receiver. */
        RANK_CHECK(!staged() || rsched_exchange_wait(w->x) == 0);
        mesh_barrier(self->end);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
    } else {
        mesh_barrier(self->end);
        launches = program_count(&w->p, FAKE_LAUNCHES);
        RANK_CHECK(rsched_exchange_start(w->x) == 0);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
        RANK_CHECK(program_counted(&w->p, FAKE_LAUNCHES, launches + 1));
    }
    RANK_CHECK(compare(self, w, kind, epoch) == 0);
    mesh_barrier(self->end);
    return 0;
}

/* What has come from all neighbors is unpacked, or pulled, in one launch. */
static int case_gather(struct rank *self)
{
    unsigned long long copies = 0;
    struct world w;

    RANK_CHECK(begin(self, &w, GATHER) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        RANK_CHECK(gather(self, &w, GATHER, epoch) == 0);
        /* The first epoch brings tables to the GPU. */
        RANK_CHECK(epoch == 0 || w.sends ||
                   program_counted(&w.p, FAKE_COPIES, copies));
        copies = program_count(&w.p, FAKE_COPIES);
    }
    return end(self, &w);
}

/* Rank 2 sends from the other one of its GPUs from now on. */
static int move(struct rank *self, struct world *w, enum kind kind)
{
    const void *send[RANKS * FACES];
    void *receive[RANKS * FACES];
    CUcontext context;

    if (self->rank != 2)
        return 0;
    if (w->p.cuDevicePrimaryCtxRetain(&context, (self->rank + 1) % GPUS) !=
            CUDA_SUCCESS ||
        w->p.cuCtxSetCurrent(context) != CUDA_SUCCESS)
        abort();
    buffer_init(&w->p, &w->other, BOX + SHIFT, true);
    w->allocations++;
    if (w->p.cuCtxSetCurrent(w->p.context) != CUDA_SUCCESS)
        abort();
    addresses(self, w, kind, send, receive);
    RANK_CHECK(rsched_exchange_bind(w->x, send, receive) == 0);
    return 0;
}

/* What comes from rank 2 to host memory is copied by the GPU that it lies on.
 * When that becomes another one, in mid-epoch, the others' messages are in the
 * launch to come. Lanes are looked at in any order, so there are neighbors
 * before and behind. */
static int case_moving(struct rank *self)
{
    unsigned long long handles;
    struct world w;

    RANK_CHECK(begin(self, &w, HALF_HOST) == 0);
    RANK_CHECK(gather(self, &w, HALF_HOST, 0) == 0);
    handles = w.p.fakeCount(FAKE_HANDLES);
    RANK_CHECK(handles == (w.receives ? 3 : 0));
    RANK_CHECK(move(self, &w, HALF_HOST) == 0);
    RANK_CHECK(gather(self, &w, HALF_HOST, 1) == 0);
    RANK_CHECK(w.p.fakeCount(FAKE_HANDLES) == handles + w.receives);
    RANK_CHECK(gather(self, &w, HALF_HOST, 2) == 0);
    return end(self, &w);
}

/* What the driver does not take, or does not reach, is left to copy engines. */
static int case_refused(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w, ALL) == 0);
    fill(self, &w, 0);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(compare(self, &w, ALL, 0) == 0);
    RANK_CHECK(w.p.fakeCount(FAKE_LAUNCHES) == 0);
    RANK_CHECK(w.p.fakeCount(FAKE_COPIES) > 0);
    return end(self, &w);
}

/* A launch that the driver refuses fails the exchange, and those of others. */
static int case_failing(struct rank *self)
{
    struct world w;
    int error;

    RANK_CHECK(begin(self, &w, ALL) == 0);
    if (self->rank == 0)
        setenv("FAKE_CUDA_FAIL", "cuLaunchKernel:1:701", 1);
    fill(self, &w, 0);
    error = rsched_exchange_start(w.x);
    RANK_CHECK((self->rank == 0) == (error != 0));
    if (error == 0)
        error = rsched_exchange_wait(w.x);
    RANK_CHECK(error == (self->rank == 0 ? RSCHED_ESYS : RSCHED_EPEER));
    RANK_CHECK(self->rank != 0 ||
               strstr(rsched_last_error(), "cuLaunchKernel") != NULL);
    return end(self, &w);
}

static const struct {
    const char *name;
    rank_fn *main;
    enum program_needs needs;
} cases[] = {{"all", case_all, ANY_DRIVER},
             {"scatter", case_scatter, ANY_DRIVER},
             {"gather", case_gather, ANY_DRIVER},
             {"moving", case_moving, FAKE_DRIVER},
             {"refused", case_refused, FAKE_DRIVER},
             {"failing", case_failing, FAKE_DRIVER}};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    threads = strcmp(argv[1], "threads") == 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[2], cases[i].name) != 0)
            continue;
        if (program_skips(cases[i].needs))
            return 77;
        return ranks_run(RANKS, threads, cases[i].main, NULL);
    }
    return 2;
}
