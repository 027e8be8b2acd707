/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that processors copy, by GDRCopy in software, between two ranks, each
 * with a GPU of its own:
 *
 *     cuda_gdrcopy processes|threads CASE
 *
 * Bytes that a processor has written are seen once something has been read back, so
 * a receiver that did not wait for that has others.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/buffer.h"
#include "tests/cuda/fake_gdr.h"
#include "tests/runtime/ranks.h"

enum { EPOCHS = 4, ROWS = 20, ROW = 24, PITCH = 100 };

static bool threads;

struct kind {
    size_t bytes, shift; /* where it begins in its buffer */
    bool from_gpu, to_gpu;
    bool from_rows, to_rows;
};

enum { MOST_PUTS = 10 };

/* Of all lengths and alignments; some in host memory. */
static const struct kind plain[] = {
    {8, 0, true, true, false, false},      {1001, 3, true, true, false, false},
    {70000, 65530, true, true, false, false}, {5000, 1, true, false, false, false},
    {600, 7, false, true, false, false}};
static const struct kind from_rows[] = {
    {1000, 0, true, true, false, false}, {ROWS * ROW, 0, true, true, true, false}};
static const struct kind to_rows[] = {
    {1000, 0, true, true, false, false}, {ROWS * ROW, 0, true, true, false, true}};
static const struct kind small[] = {{64, 0, true, true, false, false}};
static const struct kind large[] = {{300000, 0, true, true, false, false}};

struct world {
    struct program p;
    unsigned long long (*count)(enum fake_gdr_count); /* NULL: no library */
    void *library;
    const struct kind *kinds;
    int puts;
    struct buffer send[MOST_PUTS], receive[MOST_PUTS];
    struct rsched_pattern *pattern;
    struct rsched_exchange *x;
};

static const struct rsched_run rows = {
    .bytes = ROW, .count = ROWS, .stride = PITCH};

static size_t place(const struct kind *k, bool in_rows, size_t at)
{
    return k->shift + (in_rows ? at / ROW * PITCH + at % ROW : at);
}

static size_t span(const struct kind *k, bool in_rows)
{
    return k->shift + (in_rows ? (size_t)ROWS * PITCH : k->bytes);
}

static char byte_of(int rank, int epoch, int put, size_t at)
{
    return (char)(rank * 89 + epoch * 41 + put * 17 + (int)(at % 251) + 1);
}

static void add(struct world *w, const struct rank *self, int i, bool out)
{
    const struct kind *k = &w->kinds[i];
    bool in_rows = out ? k->from_rows : k->to_rows;
    struct rsched_put put = {.bytes = k->bytes,
                             .source = out ? self->rank : 1 - self->rank,
                             .destination = out ? 1 - self->rank : self->rank};

    if (in_rows)
        put.layout = (struct rsched_layout){&rows, 1};
    if ((out ? rsched_pattern_add_put(w->pattern, &put)
             : rsched_pattern_add_receive(w->pattern, &put)) < 0)
        abort();
}

static void make_buffers(struct world *w)
{
    for (int i = 0; i < w->puts; i++) {
        const struct kind *k = &w->kinds[i];

        buffer_init(&w->p, &w->send[i], span(k, k->from_rows), k->from_gpu);
        buffer_init(&w->p, &w->receive[i], span(k, k->to_rows), k->to_gpu);
    }
}

static void free_buffers(struct world *w)
{
    for (int i = 0; i < w->puts; i++) {
        buffer_fini(&w->p, &w->send[i]);
        buffer_fini(&w->p, &w->receive[i]);
    }
}

static void begin(struct rank *self, struct world *w, const struct kind *kinds,
                  int puts)
{
    void *symbol;

    *w = (struct world){.kinds = kinds, .puts = puts};
    program_begin(&w->p, self->rank);
    w->library = dlopen("libgdrapi.so.2", RTLD_NOW);
    if (w->library != NULL) {
        symbol = dlsym(w->library, "fakeGdrCount");
        memcpy(&w->count, &symbol, sizeof(symbol));
    }
    if (rsched_pattern_create("gdrcopy", &w->pattern) != 0)
        abort();
    for (int i = 0; i < puts; i++) {
        add(w, self, i, true);
        add(w, self, i, false);
    }
    make_buffers(w);
}

#define BEGIN(self, w, kinds) begin(self, w, kinds, sizeof(kinds) / sizeof((kinds)[0]))

static void addresses(const struct world *w, const void **send, void **receive)
{
    for (int i = 0; i < w->puts; i++) {
        send[i] = w->send[i].address + w->kinds[i].shift;
        receive[i] = w->receive[i].address + w->kinds[i].shift;
    }
}

static int create(struct rank *self, struct world *w)
{
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];
    const struct rsched_exchange_params params = {
        .pattern = w->pattern, .send = send, .receive = receive};

    addresses(w, send, receive);
    return rsched_exchange_create(self->context, &params, &w->x);
}

static void end(struct rank *self, struct world *w)
{
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    free_buffers(w);
    rsched_pattern_destroy(w->pattern);
    if (w->library != NULL)
        dlclose(w->library);
    program_end(&w->p, self->rank);
}

static void fill(struct rank *self, struct world *w, int epoch)
{
    for (int i = 0; i < w->puts; i++) {
        const struct kind *k = &w->kinds[i];

        for (size_t at = 0; at < k->bytes; at++)
            w->send[i].touch[place(k, k->from_rows, at)] =
                byte_of(self->rank, epoch, i, at);
        memset(w->receive[i].touch, 0, span(k, k->to_rows));
    }
}

static int compare(struct rank *self, struct world *w, int epoch)
{
    for (int i = 0; i < w->puts; i++) {
        const struct kind *k = &w->kinds[i];

        for (size_t at = 0; at < k->bytes; at++)
            RANK_CHECK(w->receive[i].touch[place(k, k->to_rows, at)] ==
                       byte_of(1 - self->rank, epoch, i, at));
        for (size_t at = 0; at < k->shift; at++)
            RANK_CHECK(w->receive[i].touch[at] == 0);
    }
    return 0;
}

static int run(struct rank *self, struct world *w, int epochs)
{
    for (int epoch = 0; epoch < epochs; epoch++) {
        fill(self, w, epoch);
        RANK_CHECK(rsched_exchange_start(w->x) == 0);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
        RANK_CHECK(compare(self, w, epoch) == 0);
    }
    return 0;
}

static uint64_t bytes_of(const struct world *w)
{
    uint64_t bytes = 0;

    for (int i = 0; i < w->puts; i++)
        bytes += w->kinds[i].bytes;
    return bytes;
}

static int check_way(struct rank *self, struct world *w, enum rsched_way way,
                     uint64_t epochs)
{
    static const enum rsched_way ways[] = {RSCHED_WAY_STAGED, RSCHED_WAY_CUDA_IPC,
                                           RSCHED_WAY_GDRCOPY};
    struct rsched_stats stats;

    rsched_exchange_get_stats(w->x, &stats);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        RANK_CHECK(stats.way_bytes[ways[i]] ==
                   (ways[i] == way ? epochs * bytes_of(w) : 0));
    return 0;
}

/* ---- cases ---- */

/* What the driver is asked for in epochs. */
static unsigned long long calls(struct world *w)
{
    return w->p.fakeCount(FAKE_PUSHES) + w->p.fakeCount(FAKE_COPIES) +
           w->p.fakeCount(FAKE_LAUNCHES);
}

/* Four blocks leave a GPU's memory and four come into it, mapped once for each
 * exchange. Epochs do not call the driver. Each epoch reads four times, and writes
 * into four blocks, which one more read follows. */
static int case_moves(struct rank *self)
{
    bool whole = getenv("RSCHED_CHUNK") == NULL; /* in one chunk */
    unsigned long long before, reads, writes;
    struct world w, second;

    BEGIN(self, &w, plain);
    RANK_CHECK(create(self, &w) == 0);
    RANK_CHECK(run(self, &w, 1) == 0);
    mesh_barrier(self->end);
    before = calls(&w);
    reads = w.count(FAKE_GDR_READS);
    writes = w.count(FAKE_GDR_WRITES);
    RANK_CHECK(run(self, &w, EPOCHS) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_GDRCOPY, EPOCHS + 1) == 0);
    RANK_CHECK(calls(&w) == before);
    RANK_CHECK(threads || !whole ||
               w.count(FAKE_GDR_READS) - reads == 5 * EPOCHS);
    RANK_CHECK(threads || !whole ||
               w.count(FAKE_GDR_WRITES) - writes == 4 * EPOCHS);
    RANK_CHECK(threads || w.count(FAKE_GDR_PINS) == 8);
    RANK_CHECK(threads || w.count(FAKE_GDR_MAPPED) == 8);
    second = w;
    RANK_CHECK(create(self, &second) == 0);
    RANK_CHECK(run(self, &second, 2) == 0);
    RANK_CHECK(threads || w.count(FAKE_GDR_MAPPED) == 16);
    rsched_exchange_destroy(second.x);
    RANK_CHECK(run(self, &w, 1) == 0);
    RANK_CHECK(threads || w.count(FAKE_GDR_PINS) == 16);
    rsched_exchange_destroy(w.x);
    w.x = NULL;
    RANK_CHECK(threads || w.count(FAKE_GDR_PINNED) == 0);
    end(self, &w);
    return 0;
}

static int bind(struct world *w)
{
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];

    addresses(w, send, receive);
    return rsched_exchange_bind(w->x, send, receive);
}

/* The same buffers stay mapped; others, and memory that was freed since though it
 * has the same addresses, are mapped anew. */
static int case_bound(struct rank *self)
{
    struct buffer old_send[MOST_PUTS], old_receive[MOST_PUTS];
    struct world w;

    BEGIN(self, &w, plain);
    RANK_CHECK(create(self, &w) == 0);
    RANK_CHECK(run(self, &w, 2) == 0);
    RANK_CHECK(bind(&w) == 0);
    RANK_CHECK(run(self, &w, 2) == 0);
    RANK_CHECK(w.count(FAKE_GDR_PINS) == 8);
    memcpy(old_send, w.send, sizeof(old_send));
    memcpy(old_receive, w.receive, sizeof(old_receive));
    make_buffers(&w);
    RANK_CHECK(bind(&w) == 0);
    RANK_CHECK(run(self, &w, 2) == 0);
    RANK_CHECK(w.count(FAKE_GDR_PINS) == 16);
    RANK_CHECK(w.count(FAKE_GDR_PINNED) == 8);
    for (int i = 0; i < w.puts; i++) {
        buffer_fini(&w.p, &old_send[i]);
        buffer_fini(&w.p, &old_receive[i]);
    }
    RANK_CHECK(run(self, &w, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_GDRCOPY, 7) == 0);
    end(self, &w);
    return 0;
}

static int goes(struct rank *self, const struct kind *kinds, int puts,
                enum rsched_way way)
{
    struct world w;

    begin(self, &w, kinds, puts);
    RANK_CHECK(create(self, &w) == 0);
    RANK_CHECK(run(self, &w, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, way, EPOCHS) == 0);
    end(self, &w);
    return 0;
}

/* By costs: what is short is copied by processors. */
static int case_chosen(struct rank *self)
{
    RANK_CHECK(goes(self, small, 1, RSCHED_WAY_GDRCOPY) == 0);
    return goes(self, large, 1, RSCHED_WAY_CUDA_IPC);
}

/* Of what was asked for, or is not there, something else takes the place: no
 * library, no kernel module, the setting, a refusal. */
static int case_not_here(struct rank *self)
{
    return goes(self, small, 1, RSCHED_WAY_CUDA_IPC);
}

/* Blocks that lie apart leave by another way. They are taken by another one too,
 * but the sender need not know that. */
static int case_rows(struct rank *self)
{
    RANK_CHECK(goes(self, from_rows, 2, RSCHED_WAY_CUDA_IPC) == 0);
    return goes(self, to_rows, 2, RSCHED_WAY_GDRCOPY);
}

/* Rank 1 can map nothing: what it sends goes another way, what it receives it has
 * copied. */
static int case_one_sided(struct rank *self)
{
    if (self->rank == 1)
        setenv("FAKE_GDR_FAIL", "gdr_pin_buffer:1:12", 1);
    return goes(self, small, 1,
                self->rank == 0 ? RSCHED_WAY_GDRCOPY : RSCHED_WAY_CUDA_IPC);
}

/* The way was asked for, and is refused: why is said. */
static int fails(struct rank *self, const struct kind *kinds, int puts,
                 int error, const char *text)
{
    struct world w;

    begin(self, &w, kinds, puts);
    RANK_CHECK(create(self, &w) == error);
    RANK_CHECK(strstr(rsched_last_error(), "RSCHED_GPU_WAY=gdrcopy") != NULL);
    if (strstr(rsched_last_error(), text) == NULL)
        return RANK_FAIL("no \"%s\" in \"%s\"", text, rsched_last_error());
    w.x = NULL;
    RANK_CHECK(w.count == NULL || w.count(FAKE_GDR_PINNED) == 0);
    end(self, &w);
    return 0;
}

static int case_insisted_rows(struct rank *self)
{
    return fails(self, from_rows, 2, RSCHED_ENOTSUP, "lie apart");
}

static int case_insisted_pin(struct rank *self)
{
    return fails(self, small, 1, RSCHED_ENOTSUP,
                 "GDRCopy: pinning GPU memory: Operation not permitted");
}

static int case_insisted_map(struct rank *self)
{
    return fails(self, small, 1, RSCHED_ENOTSUP,
                 "GDRCopy: mapping GPU memory: Resource temporarily");
}

static int case_insisted_module(struct rank *self)
{
    return fails(self, small, 1, RSCHED_ENOTSUP, "gdrdrv is not loaded");
}

static int case_insisted_library(struct rank *self)
{
    return fails(self, small, 1, RSCHED_ENOTSUP, "no GDRCopy: libgdrapi.so.2");
}

static int case_insisted_off(struct rank *self)
{
    return fails(self, small, 1, RSCHED_ENOTSUP, "RSCHED_GDRCOPY=no");
}

/* Rank 0's third read fails, which is that of its second epoch's message. */
static int case_failing(struct rank *self)
{
    struct world w;
    int error;

    if (self->rank == 0)
        setenv("FAKE_GDR_FAIL", "gdr_copy_from_mapping:3:5", 1);
    BEGIN(self, &w, small);
    RANK_CHECK(create(self, &w) == 0);
    RANK_CHECK(run(self, &w, 1) == 0);
    error = rsched_exchange_start(w.x);
    if (error == 0)
        error = rsched_exchange_wait(w.x);
    RANK_CHECK(error == (self->rank == 0 ? RSCHED_ESYS : RSCHED_EPEER));
    RANK_CHECK(self->rank != 0 ||
               strstr(rsched_last_error(),
                      "peer 1: GDRCopy: reading GPU memory: Input/output") !=
                   NULL);
    RANK_CHECK(rsched_exchange_start(w.x) == error);
    rsched_exchange_destroy(w.x);
    w.x = NULL;
    RANK_CHECK(w.count(FAKE_GDR_PINNED) == 0);
    end(self, &w);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *main;
} cases[] = {
    {"moves", case_moves},
    {"bound", case_bound},
    {"chosen", case_chosen},
    {"not-here", case_not_here},
    {"rows", case_rows},
    {"one-sided", case_one_sided},
    {"insisted-rows", case_insisted_rows},
    {"insisted-pin", case_insisted_pin},
    {"insisted-map", case_insisted_map},
    {"insisted-module", case_insisted_module},
    {"insisted-library", case_insisted_library},
    {"insisted-off", case_insisted_off},
    {"failing", case_failing},
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    threads = strcmp(argv[1], "threads") == 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[2], cases[i].name) == 0)
            return ranks_run(2, threads, cases[i].main, NULL) == 0 ? 0 : 1;
    }
    return 2;
}
