/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That the machine's costs decide how strided memory is handed to a device:
 * gathered or packed, scattered or unpacked. Counters say which it was, and the
 * bytes are the same either way. Messages of variable length are packed in any case. As verbs_sources the ranks are threads over the
 * interpreter, as verbs-sources processes over verbs, in the guest of
 * tests/rdma-vm.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "librsched/run/run.h"
#include "models/sources.h"
#include "tests/runtime/ranks.h"

#ifdef SOURCES_ON_DEVICE
enum { THREADS = false };
#else
#include "tests/verbs/only.h"
enum { THREADS = true };
#endif

enum { EPOCHS = 4, GAP = 40, CHUNK_BYTES = 65536 };

struct costs {
    const char *text; /* of the key `sources` */
    bool gathers, scatters;
};

static const struct costs dear_copies = {
    "{gather: {o: 0 us, block: 0.001 us}, scatter: {block: 0.001 us}, "
    "pack: {block: 1 us, rate: 1 MB/s}}", true, true};
static const struct costs dear_entries = {
    "{gather: {o: 0 us, block: 1000 us}, scatter: {block: 1000 us}, "
    "pack: {block: 0 us, rate: 100000 MB/s}}", false, false};
/* Who copies is not the same at both ends. */
static const struct costs mixed = {
    "{gather: {o: 0 us, block: 1000 us}, scatter: {block: 0.001 us}, "
    "pack: {block: 0 us, rate: 1000 MB/s}}", false, true};

/* Blocks with gaps on both sides; what the receiver has is another number. */
struct shape {
    uint64_t bytes, sent_blocks, received_blocks;
    bool packed; /* whatever it costs: no queue takes so many */
    bool variable; /* so is this: at the address may be other memory next time */
};

static const struct shape shapes[] = {
    {16000, 80, 40, false, false},   /* lands in one chunk */
    {160000, 200, 50, false, false}, /* direct, if the receiver wants it so */
    {24000, 8000, 40, true, false},
    {192000, 16000, 50, true, false},
    {20000, 80, 40, false, true},
    {200000, 200, 50, false, true},
};

static struct rsched_run run_of(uint64_t bytes, uint64_t blocks)
{
    return (struct rsched_run){.bytes = bytes / blocks,
                               .count = blocks,
                               .stride = (int64_t)(bytes / blocks + GAP)};
}

static char expected(int epoch, uint64_t i)
{
    return (char)((uint64_t)epoch * 31 + i + (i >> 8) + 1);
}

/* Write the bytes of a run's blocks, or count those that are wrong, and the
 * bytes between blocks that are not what they were. */
static uint64_t visit(char *memory, const struct rsched_run *run, int epoch,
                      bool fill)
{
    uint64_t wrong = 0;

    for (uint64_t b = 0; b < run->count; b++) {
        char *block = memory + b * (uint64_t)run->stride;

        for (uint64_t i = 0; i < run->bytes; i++) {
            char byte = expected(epoch, b * run->bytes + i);

            if (fill)
                block[i] = byte;
            wrong += block[i] != byte;
        }
        for (uint64_t i = run->bytes; i < (uint64_t)run->stride && !fill; i++)
            wrong += block[i] != 0x5a;
    }
    return wrong;
}

static int make_exchange(struct rank *self, const struct shape *s,
                         const struct rsched_run *run, char *memory,
                         struct rsched_exchange **x)
{
    const void *send[1] = {memory};
    void *receive[1] = {memory};
    struct rsched_put put = {.bytes = s->bytes,
                             .source = 0,
                             .destination = 1,
                             .layout = {run, 1}};
    struct rsched_exchange_params params = {
        .send = send,
        .receive = receive,
        .tag = s->bytes,
        .flags = s->variable ? RSCHED_EXCHANGE_VARIABLE : 0};
    struct rsched_pattern *pattern;

    RANK_CHECK(rsched_pattern_create("strided", &pattern) == 0);
    if (self->rank == 0)
        RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    else
        RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, x) == 0);
    if (s->variable)
        RANK_CHECK(rsched_exchange_load(*x, pattern, send, receive) == 0);
    rsched_pattern_destroy(pattern);
    return 0;
}

static int check_counters(struct rank *self, const struct costs *costs,
                          const struct shape *s,
                          const struct rsched_exchange *x)
{
    const uint64_t all = EPOCHS * s->bytes;
    const struct rsched_lane_stats *stats;
    bool direct = costs->scatters && s->bytes > CHUNK_BYTES && !s->variable;
    bool gathers = costs->gathers && !s->packed && !s->variable;

    RANK_CHECK(x->num_out == 1);
    stats = &x->out[0].lane->stats;
    RANK_CHECK(stats->gathered == (gathers ? all : 0));
    RANK_CHECK(stats->packed == (gathers ? 0 : all));
    RANK_CHECK(stats->bytes[RSCHED_WAY_DIRECT] == (direct ? all : 0));
    RANK_CHECK(stats->bytes[RSCHED_WAY_LANDING] == (direct ? 0 : all));
    return 0;
}

static int run_shape(struct rank *self, const struct costs *costs,
                     const struct shape *s)
{
    struct rsched_run run = run_of(s->bytes, self->rank == 0
                                                 ? s->sent_blocks
                                                 : s->received_blocks);
    uint64_t span = run.count * (uint64_t)run.stride;
    char *memory = malloc(span);
    struct rsched_exchange *x;

    RANK_CHECK(memory != NULL);
    RANK_CHECK(make_exchange(self, s, &run, memory, &x) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        memset(memory, 0x5a, span);
        if (self->rank == 0)
            visit(memory, &run, epoch, true);
        RANK_CHECK(rsched_exchange_start(x) == 0);
        RANK_CHECK(rsched_exchange_wait(x) == 0);
        RANK_CHECK(visit(memory, &run, epoch, false) == 0);
    }
    if (self->rank == 0)
        RANK_CHECK(check_counters(self, costs, s, x) == 0);
    mesh_barrier(self->end);
    rsched_exchange_destroy(x);
    free(memory);
    return 0;
}

static int run_costs(struct rank *self)
{
    const struct costs *costs = self->arg;
    int result = 0;
#ifndef SOURCES_ON_DEVICE
    struct rsched_machine *machine;
    char text[512];
    int length = snprintf(text, sizeof(text),
                          "rsched: machine/1\nname: costs\nextends: rails\n"
                          "sources: %s\n", costs->text);

    RANK_CHECK(rsched_machine_parse("costs", text, (size_t)length, &machine) ==
               0);
    RANK_CHECK(only_interpreter(self, rs_machine_sources(machine)) == 0);
#endif
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        result |= run_shape(self, costs, &shapes[i]);
#ifndef SOURCES_ON_DEVICE
    /* The engine looks at the costs as long as it is open. */
    rank_close(self);
    rsched_machine_destroy(machine);
#endif
    return result;
}

/* What the machine file says reaches the engine by RSCHED_MACHINE. */
static int run(const struct costs *costs)
{
    static const char *const nodes[2] = {"RSCHED_NODE=even", "RSCHED_NODE=odd"};
    static const char *const none[2] = {NULL, NULL};
    char path[] = "/tmp/rsched-sources-XXXXXX.yaml";
    FILE *file = fdopen(mkstemps(path, 5), "w");
    int result;

    if (file == NULL)
        return RANK_FAIL("cannot write %s", path);
    fprintf(file, "rsched: machine/1\nname: costs\nextends: rails\n"
                  "sources: %s\n", costs->text);
    fclose(file);
    if (!THREADS)
        setenv("RSCHED_MACHINE", path, 1);
    result = ranks_run_with(2, THREADS, run_costs, (void *)(uintptr_t)costs,
                            THREADS ? none : nodes);
    unlink(path);
    return result;
}

int main(void)
{
    if (!THREADS)
        setenv("RSCHED_DEVICES", "h0r0/h1r0", 1);
    return run(&dear_copies) != 0 || run(&dear_entries) != 0 ||
           run(&mixed) != 0;
}
