/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who copies short blocks, kernels or copy engines, over the driver in software:
 *
 *     cuda_turns GPUS PUTS BYTES LAUNCHES COPIES ROWS
 *
 * Two processes, each on a GPU of its own or both on one (GPUS 2 or 1), send each
 * other so many puts in GPU memory, which do not touch. An epoch takes so many
 * launches, copies and copies of rows, in each process.
 */
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/buffer.h"
#include "tests/runtime/ranks.h"

enum { EPOCHS = 3, MOST = 100 };

struct wanted {
    int gpus, puts;
    uint64_t bytes;
    unsigned long long launches, copies, rows;
};

struct world {
    struct program p;
    struct buffer send, receive;
    struct rsched_exchange *x;
};

static char byte_of(int rank, int epoch, size_t at)
{
    return (char)(rank * 89 + epoch * 41 + (int)(at % 251));
}

static int begin(struct rank *self, struct world *w, const struct wanted *wanted)
{
    struct rsched_put put = {.bytes = wanted->bytes,
                             .source = self->rank,
                             .destination = 1 - self->rank};
    struct rsched_put receive = {.bytes = wanted->bytes,
                                 .source = 1 - self->rank,
                                 .destination = self->rank};
    const void *from[MOST];
    void *to[MOST];
    struct rsched_exchange_params params = {.send = from, .receive = to};
    struct rsched_pattern *pattern;
    size_t bytes = 2 * wanted->bytes * (size_t)wanted->puts;

    program_begin(&w->p, wanted->gpus == 2 ? self->rank : 0);
    buffer_init(&w->p, &w->send, bytes, true);
    buffer_init(&w->p, &w->receive, bytes, true);
    RANK_CHECK(rsched_pattern_create("turns", &pattern) == 0);
    for (int i = 0; i < wanted->puts; i++) {
        RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
        RANK_CHECK(rsched_pattern_add_receive(pattern, &receive) >= 0);
        from[i] = w->send.address + 2 * wanted->bytes * (size_t)i;
        to[i] = w->receive.address + 2 * wanted->bytes * (size_t)i;
    }
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &w->x) == 0);
    rsched_pattern_destroy(pattern);
    return 0;
}

static int run(struct rank *self, struct world *w, const struct wanted *wanted,
               int epoch)
{
    for (size_t at = 0; at < w->send.bytes; at++)
        w->send.touch[at] = byte_of(self->rank, epoch, at);
    memset(w->receive.touch, 0, w->receive.bytes);
    RANK_CHECK(rsched_exchange_start(w->x) == 0);
    RANK_CHECK(rsched_exchange_wait(w->x) == 0);
    for (size_t at = 0; at < w->receive.bytes; at++)
        RANK_CHECK(w->receive.touch[at] ==
                   (at / wanted->bytes % 2 == 0
                        ? byte_of(1 - self->rank, epoch, at)
                        : 0));
    return 0;
}

static int check(struct rank *self)
{
    const struct wanted *wanted = self->arg;
    unsigned long long launches, copies, rows;
    struct world w = {0};

    RANK_CHECK(begin(self, &w, wanted) == 0);
    RANK_CHECK(run(self, &w, wanted, 0) == 0);
    launches = w.p.fakeCount(FAKE_LAUNCHES);
    copies = w.p.fakeCount(FAKE_COPIES);
    rows = w.p.fakeCount(FAKE_ROWS);
    for (int epoch = 1; epoch <= EPOCHS; epoch++)
        RANK_CHECK(run(self, &w, wanted, epoch) == 0);
    launches = w.p.fakeCount(FAKE_LAUNCHES) - launches;
    copies = w.p.fakeCount(FAKE_COPIES) - copies;
    rows = w.p.fakeCount(FAKE_ROWS) - rows;
    if (launches != EPOCHS * wanted->launches ||
        copies != EPOCHS * wanted->copies || rows != EPOCHS * wanted->rows)
        return RANK_FAIL("%llu launches, %llu copies, %llu of rows, in %d epochs",
                         launches, copies, rows, (int)EPOCHS);
    rsched_exchange_destroy(w.x);
    mesh_barrier(self->end);
    buffer_fini(&w.p, &w.send);
    buffer_fini(&w.p, &w.receive);
    program_end(&w.p, wanted->gpus == 2 ? self->rank : 0);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long long number[6];
    struct wanted wanted;

    if (argc != 7)
        return 2;
    for (int i = 0; i < 6; i++)
        number[i] = strtoull(argv[i + 1], NULL, 10);
    wanted = (struct wanted){(int)number[0], (int)number[1], number[2],
                             number[3],      number[4],      number[5]};
    return ranks_run(2, false, check, &wanted);
}
