/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers and exchanges of each of the two. */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/huge.h"
#include "librsched/run/run.h"
#include "tools/pair_inside.h"
#include "tools/tool.h"

enum { PAGE = 4096 };

static uint64_t room_for(const struct pair_work *work, unsigned message)
{
    return work->bytes[message] / LINE * LINE + LINE;
}

/* A context of the GPU holds it; the host's part is of no use here. */
static char *get_gpu_buffer(const struct station *s, struct rsched_gpu_memory *gpu)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    int count;

    if (gpus == NULL || gpus->open(&count) != 0 ||
        gpus->memory_create(s->gpu, LINE, s->bytes, gpu) != 0) {
        *gpu = (struct rsched_gpu_memory){0};
        return NULL;
    }
    return (char *)(uintptr_t)gpu->gpu;
}

static char *get_buffer(const struct station *s, struct rsched_gpu_memory *gpu)
{
    uint64_t unit = s->huge ? rs_huge_unit() : PAGE;
    void *memory = NULL;

    if (s->on_gpu)
        return get_gpu_buffer(s, gpu);
    if (!s->mapped)
        memory = aligned_alloc(unit, (s->bytes + unit - 1) / unit * unit);
    else if (rsched_alloc(s->bytes, &memory) != 0)
        memory = NULL;
    if (memory != NULL)
        memset(memory, 1, s->huge ? (s->bytes + unit - 1) / unit * unit
                                  : s->bytes);
    return memory;
}

static bool make_huge(const char *memory, uint64_t bytes)
{
    const char *low = memory, *high = memory + bytes;

    return rs_huge_make(&low, &high) && low == memory && high == low + bytes;
}

static void put_buffer(const struct station *s, char *memory,
                       struct rsched_gpu_memory *gpu)
{
    if (s->on_gpu && memory != NULL)
        rsched_gpus()->memory_destroy(gpu);
    if (s->on_gpu)
        return;
    if (s->mapped)
        rsched_free(memory);
    else
        free(memory);
}

void station_close_exchanges(struct station *s)
{
    for (unsigned i = 0; i < s->window; i++)
        rsched_exchange_destroy(s->exchanges[i]);
    s->window = 0;
}

void station_close(struct station *s)
{
    station_close_exchanges(s);
    put_buffer(s, s->send, &s->gpu_send);
    put_buffer(s, s->receive, &s->gpu_receive);
}

static int add_message(const struct pair *pair, const struct pair_work *work,
                       unsigned message, struct rsched_pattern *pattern,
                       bool put)
{
    int other = work->self[message] ? pair->side : 1 - pair->side;
    struct rsched_put p = {.bytes = work->bytes[message],
                           .source = put ? pair->side : other,
                           .destination = put ? other : pair->side};

    return (int)(put ? rsched_pattern_add_put(pattern, &p)
                     : rsched_pattern_add_receive(pattern, &p));
}

/* Whether this side sends (or receives) a message. */
static bool takes_part(const struct pair *pair, const struct pair_work *work,
                       bool sends)
{
    return !work->one_way || (pair->side == 0) == sends;
}

/* The next one of the window; `*at` is where its messages lie in the buffers. */
static int make_exchange(struct pair *pair, const struct pair_work *work,
                         struct station *s, uint64_t *at)
{
    void *sends[PAIR_MESSAGES], *receives[PAIR_MESSAGES];
    struct rsched_pattern *pattern;
    struct rsched_exchange_params params = {
        .send = (const void *const *)sends,
        .receive = receives,
        .tag = ++pair->tags,
    };
    int error = rsched_pattern_create("probe", &pattern);

    if (error != 0)
        return error;
    for (unsigned i = 0; i < work->messages && error >= 0; i++) {
        sends[i] = s->send + *at;
        receives[i] = s->receive + *at;
        *at += room_for(work, i);
        if (takes_part(pair, work, true))
            error = add_message(pair, work, i, pattern, true);
        if (error >= 0 && takes_part(pair, work, false))
            error = add_message(pair, work, i, pattern, false);
    }
    params.pattern = pattern;
    if (error >= 0)
        error = rsched_exchange_create(pair->context, &params,
                                       &s->exchanges[s->window]);
    rsched_pattern_destroy(pattern);
    s->window += error == 0;
    return error;
}

int station_no_buffers(const struct station *s)
{
    if (s->on_gpu)
        return tool_library(RSCHED_ENOMEM);
    return tool_bad("no memory for two buffers of %llu bytes",
                    (unsigned long long)s->bytes);
}

static unsigned window_of(const struct pair_work *work)
{
    return work->window == 0 ? 1 : work->window;
}

static void set_host_ways(struct pair *pair, const struct rs_host_ways *ways)
{
    rs_ways_set_host(&pair->context->ways, ways);
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++)
        pair->context->ways.host[d].shortest_once = rs_ways_shortest_once(ways);
}

void pair_set_gpu_ways(struct pair *pair, const struct rs_ways *ways)
{
    memcpy(pair->context->ways.gpu, ways->gpu, sizeof(ways->gpu));
}

int station_open(struct pair *pair, const struct pair_work *work,
                        const struct rs_host_ways *ways, struct station *s)
{
    uint64_t at = 0;
    int error = 0;

    *s = (struct station){.mapped = work->mapped,
                          .reads = work->reads,
                          .settles = work->settles,
                          .on_gpu = work->on_gpu,
                          .updates = work->updates,
                          .huge = work->huge && rs_huge_unit() > 0,
                          .gpu = work->gpus[pair->side]};
    for (unsigned i = 0; i < work->messages; i++)
        s->bytes += window_of(work) * room_for(work, i);
    s->send = get_buffer(s, &s->gpu_send);
    s->receive = get_buffer(s, &s->gpu_receive);
    if (s->send == NULL || s->receive == NULL) {
        station_close(s);
        return station_no_buffers(s);
    }
    if (s->huge)
        s->huge = make_huge(s->send, s->bytes);
    if (ways != NULL)
        set_host_ways(pair, ways);
    for (unsigned i = 0; i < window_of(work) && error == 0; i++)
        error = make_exchange(pair, work, s, &at);
    if (error == 0)
        return TOOL_OK;
    station_close(s);
    return tool_library(error);
}
