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

#include "tests/cuda/fake_gdr.h"
#include "tests/cuda/swap.h"

enum { EPOCHS = 4, ROWS = 20 };

static bool threads;

/* Of all lengths and alignments; some in host memory. */
static const struct swap_kind plain[] = {
    {8, 0, true, true, false, false},
    {1001, 3, true, true, false, false},
    {70000, 65530, true, true, false, false},
    {5000, 1, true, false, false, false},
    {600, 7, false, true, false, false}};
static const struct swap_kind from_rows[] = {
    {1000, 0, true, true, false, false},
    {ROWS * SWAP_ROW, 0, true, true, true, false}};
static const struct swap_kind to_rows[] = {
    {1000, 0, true, true, false, false},
    {ROWS * SWAP_ROW, 0, true, true, false, true}};
static const struct swap_kind small[] = {{64, 0, true, true, false, false}};
static const struct swap_kind large[] = {{300000, 0, true, true, false, false}};

struct world {
    struct swap s;
    unsigned long long (*count)(enum fake_gdr_count); /* NULL: no library */
    void *library;
};

static void begin(struct rank *self, struct world *w,
                  const struct swap_kind *kinds, size_t puts)
{
    void *symbol;

    *w = (struct world){0};
    program_begin(&w->s.p, self->rank);
    w->library = dlopen("libgdrapi.so.2", RTLD_NOW);
    if (w->library != NULL) {
        symbol = dlsym(w->library, "fakeGdrCount");
        memcpy(&w->count, &symbol, sizeof(symbol));
    }
    swap_make_buffers(&w->s, kinds, puts);
}

static void end(struct rank *self, struct world *w)
{
    swap_forget(self, &w->s);
    if (w->library != NULL)
        dlclose(w->library);
    program_end(&w->s.p, self->rank);
}

static int check_way(struct rank *self, struct world *w, enum rsched_way way,
                     uint64_t epochs)
{
    static const enum rsched_way ways[] = {RSCHED_WAY_STAGED, RSCHED_WAY_CUDA_IPC,
                                           RSCHED_WAY_GDRCOPY};
    struct rsched_stats stats;

    rsched_exchange_get_stats(w->s.x, &stats);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        RANK_CHECK(stats.way_bytes[ways[i]] ==
                   (ways[i] == way ? epochs * swap_bytes(&w->s) : 0));
    return 0;
}

/* ---- cases ---- */

/* What the driver is asked for in epochs. */
static unsigned long long calls(struct world *w)
{
    return w->s.p.fakeCount(FAKE_PUSHES) + w->s.p.fakeCount(FAKE_COPIES) +
           w->s.p.fakeCount(FAKE_LAUNCHES);
}

/* Four blocks leave a GPU's memory and four come into it, mapped once for each
 * exchange. Epochs do not call the driver. Each epoch reads four times, and writes
 * into four blocks, which one more read follows. */
static int case_moves(struct rank *self)
{
    bool whole = getenv("RSCHED_CHUNK") == NULL; /* in one chunk */
    unsigned long long before, reads, writes;
    struct world w, second;

    begin(self, &w, SWAP_KINDS(plain));
    RANK_CHECK(swap_create(self, &w.s) == 0);
    RANK_CHECK(swap_run(self, &w.s, 1) == 0);
    mesh_barrier(self->end);
    before = calls(&w);
    reads = w.count(FAKE_GDR_READS);
    writes = w.count(FAKE_GDR_WRITES);
    RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
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
    RANK_CHECK(swap_create(self, &second.s) == 0);
    RANK_CHECK(swap_run(self, &second.s, 2) == 0);
    RANK_CHECK(threads || w.count(FAKE_GDR_MAPPED) == 16);
    rsched_exchange_destroy(second.s.x);
    RANK_CHECK(swap_run(self, &w.s, 1) == 0);
    RANK_CHECK(threads || w.count(FAKE_GDR_PINS) == 16);
    rsched_exchange_destroy(w.s.x);
    w.s.x = NULL;
    RANK_CHECK(threads || w.count(FAKE_GDR_PINNED) == 0);
    end(self, &w);
    return 0;
}

static int bind(struct world *w)
{
    const void *send[SWAP_MOST];
    void *receive[SWAP_MOST];

    swap_addresses(&w->s, send, receive);
    return rsched_exchange_bind(w->s.x, send, receive);
}

/* The same buffers stay mapped; others, and memory that was freed since though it
 * has the same addresses, are mapped anew. */
static int case_bound(struct rank *self)
{
    struct buffer old_send[SWAP_MOST], old_receive[SWAP_MOST];
    struct world w;

    begin(self, &w, SWAP_KINDS(plain));
    RANK_CHECK(swap_create(self, &w.s) == 0);
    RANK_CHECK(swap_run(self, &w.s, 2) == 0);
    RANK_CHECK(bind(&w) == 0);
    RANK_CHECK(swap_run(self, &w.s, 2) == 0);
    RANK_CHECK(w.count(FAKE_GDR_PINS) == 8);
    memcpy(old_send, w.s.send, sizeof(old_send));
    memcpy(old_receive, w.s.receive, sizeof(old_receive));
    swap_make_buffers(&w.s, SWAP_KINDS(plain));
    RANK_CHECK(bind(&w) == 0);
    RANK_CHECK(swap_run(self, &w.s, 2) == 0);
    RANK_CHECK(w.count(FAKE_GDR_PINS) == 16);
    RANK_CHECK(w.count(FAKE_GDR_PINNED) == 8);
    for (int i = 0; i < w.s.puts; i++) {
        buffer_fini(&w.s.p, &old_send[i]);
        buffer_fini(&w.s.p, &old_receive[i]);
    }
    RANK_CHECK(swap_run(self, &w.s, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_GDRCOPY, 7) == 0);
    end(self, &w);
    return 0;
}

static int goes(struct rank *self, const struct swap_kind *kinds, size_t puts,
                enum rsched_way way)
{
    struct world w;

    begin(self, &w, kinds, puts);
    RANK_CHECK(swap_create(self, &w.s) == 0);
    RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, way, EPOCHS) == 0);
    end(self, &w);
    return 0;
}

/* By costs: what is short is copied by processors. */
static int case_chosen(struct rank *self)
{
    RANK_CHECK(goes(self, SWAP_KINDS(small), RSCHED_WAY_GDRCOPY) == 0);
    return goes(self, SWAP_KINDS(large), RSCHED_WAY_CUDA_IPC);
}

/* Of what was asked for, or is not there, something else takes the place: no
 * library, no kernel module, the setting, a refusal. */
static int case_not_here(struct rank *self)
{
    return goes(self, SWAP_KINDS(small), RSCHED_WAY_CUDA_IPC);
}

/* Blocks that lie apart leave by another way. They are taken by another one too,
 * but the sender need not know that. */
static int case_rows(struct rank *self)
{
    RANK_CHECK(goes(self, SWAP_KINDS(from_rows), RSCHED_WAY_CUDA_IPC) == 0);
    return goes(self, SWAP_KINDS(to_rows), RSCHED_WAY_GDRCOPY);
}

/* Rank 1 can map nothing: what it sends goes another way, what it receives it has
 * copied. */
static int case_one_sided(struct rank *self)
{
    if (self->rank == 1)
        setenv("FAKE_GDR_FAIL", "gdr_pin_buffer:1:12", 1);
    return goes(self, SWAP_KINDS(small),
                self->rank == 0 ? RSCHED_WAY_GDRCOPY : RSCHED_WAY_CUDA_IPC);
}

/* The way was asked for, and is refused: why is said. */
static int fails(struct rank *self, const struct swap_kind *kinds, size_t puts,
                 int error, const char *text)
{
    struct world w;

    begin(self, &w, kinds, puts);
    RANK_CHECK(swap_create(self, &w.s) == error);
    RANK_CHECK(strstr(rsched_last_error(), "RSCHED_GPU_WAY=gdrcopy") != NULL);
    if (strstr(rsched_last_error(), text) == NULL)
        return RANK_FAIL("no \"%s\" in \"%s\"", text, rsched_last_error());
    w.s.x = NULL;
    RANK_CHECK(w.count == NULL || w.count(FAKE_GDR_PINNED) == 0);
    end(self, &w);
    return 0;
}

static int case_insisted_rows(struct rank *self)
{
    return fails(self, SWAP_KINDS(from_rows), RSCHED_ENOTSUP, "lie apart");
}

static int case_insisted_pin(struct rank *self)
{
    return fails(self, SWAP_KINDS(small), RSCHED_ENOTSUP,
                 "GDRCopy: pinning GPU memory: Operation not permitted");
}

static int case_insisted_map(struct rank *self)
{
    return fails(self, SWAP_KINDS(small), RSCHED_ENOTSUP,
                 "GDRCopy: mapping GPU memory: Resource temporarily");
}

static int case_insisted_module(struct rank *self)
{
    return fails(self, SWAP_KINDS(small), RSCHED_ENOTSUP,
                 "gdrdrv is not loaded");
}

static int case_insisted_library(struct rank *self)
{
    return fails(self, SWAP_KINDS(small), RSCHED_ENOTSUP,
                 "no GDRCopy: libgdrapi.so.2");
}

static int case_insisted_off(struct rank *self)
{
    return fails(self, SWAP_KINDS(small), RSCHED_ENOTSUP, "RSCHED_GDRCOPY=no");
}

/* Rank 0's third read fails, which is that of its second epoch's message. */
static int case_failing(struct rank *self)
{
    struct world w;
    int error;

    if (self->rank == 0)
        setenv("FAKE_GDR_FAIL", "gdr_copy_from_mapping:3:5", 1);
    begin(self, &w, SWAP_KINDS(small));
    RANK_CHECK(swap_create(self, &w.s) == 0);
    RANK_CHECK(swap_run(self, &w.s, 1) == 0);
    error = rsched_exchange_start(w.s.x);
    if (error == 0)
        error = rsched_exchange_wait(w.s.x);
    RANK_CHECK(error == (self->rank == 0 ? RSCHED_ESYS : RSCHED_EPEER));
    RANK_CHECK(self->rank != 0 ||
               strstr(rsched_last_error(),
                      "peer 1: GDRCopy: reading GPU memory: Input/output") !=
                   NULL);
    RANK_CHECK(rsched_exchange_start(w.s.x) == error);
    rsched_exchange_destroy(w.s.x);
    w.s.x = NULL;
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
