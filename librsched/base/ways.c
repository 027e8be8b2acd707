/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/ways.h"

#include <string.h>

#include "librsched/base/clock.h"

/* Sizes that are looked at: up to 1 GiB, so many within a factor of two. */
enum { OCTAVES = 30, STEPS = 8 };

enum { LINE = 64, WORTH = 16, CHOPPY_BLOCK = 1024 };

/* Pieces of shared work, in bytes. */
#define CHUNK_LEAST (RS_WAY_SHARED_LEAST / 2)
#define CHUNK_MOST (UINT64_C(1) << 20)
#define CHUNKS 8         /* as long as they are no longer than that */
#define CHUNKS_MOST 2048 /* more are not worth their claims */

const char *rs_way_name(enum rs_way way)
{
    static const char *const names[RS_NUM_WAYS] = {
        [RS_WAY_SELF] = "self",         [RS_WAY_LANDING] = "landing",
        [RS_WAY_PULL] = "pull",         [RS_WAY_SHARED] = "shared",
        [RS_WAY_CMA] = "cma",           [RS_WAY_CMA_HUGE] = "cma-huge",
        [RS_WAY_STAGED] = "staged",     [RS_WAY_GDRCOPY] = "gdrcopy",
        [RS_WAY_CUDA_IPC] = "cuda-ipc", [RS_WAY_GDR_LOOPBACK] = "gdr-loopback",
    };

    return names[way];
}

const char *rs_verbs_way_name(enum rs_verbs_way way)
{
    return way == RS_VERBS_LANDING ? "verbs-landing" : "verbs-direct";
}

const char *rs_distance_name(enum rs_distance distance)
{
    static const char *const names[RS_NUM_DISTANCES] = {
        [RS_DISTANCE_SAME_GPU] = "same-gpu",
        [RS_DISTANCE_SAME_NUMA] = "same-numa",
        [RS_DISTANCE_OTHER_NUMA] = "other-numa",
    };

    return names[distance];
}

void rs_ways_set_host(struct rs_ways *ways, const struct rs_host_ways *host)
{
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++)
        ways->host[d] = *host;
    ways->host_guessed = false;
}

static bool is_cost_equal(const struct rs_way_cost *a,
                          const struct rs_way_cost *b)
{
    return a->message == b->message && a->num_ranges == b->num_ranges &&
           memcmp(a->ranges, b->ranges, sizeof(a->ranges)) == 0;
}

bool rs_way_costs_equal(const struct rs_way_costs *a,
                        const struct rs_way_costs *b)
{
    return a->given == b->given && a->latency == b->latency &&
           a->block == b->block && a->sync == b->sync &&
           is_cost_equal(&a->work, &b->work) && is_cost_equal(&a->gap, &b->gap);
}

bool rs_ways_host_is_even(const struct rs_ways *ways)
{
    for (int d = 1; d < RS_NUM_HOST_DISTANCES; d++) {
        for (int way = 0; way < RS_NUM_HOST_WAYS; way++) {
            if (!rs_way_costs_equal(&ways->host[d].of[way],
                                    &ways->host[0].of[way]))
                return false;
        }
    }
    return true;
}

/* Where there are any costs, landing has some: it is always possible. */
bool rs_ways_have_host(const struct rs_ways *ways)
{
    return ways->host[0].of[RS_WAY_LANDING].given;
}

bool rs_ways_have_gpu(const struct rs_ways *ways)
{
    for (int way = 0; way < RS_NUM_GPU_WAYS; way++) {
        for (int d = 0; d < RS_NUM_DISTANCES; d++) {
            if (ways->gpu[way][d].given)
                return true;
        }
    }
    return false;
}

bool rs_ways_have_verbs(const struct rs_ways *ways)
{
    return ways->verbs[RS_VERBS_LANDING].given ||
           ways->verbs[RS_VERBS_DIRECT].given;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t rs_way_cost_at(const struct rs_way_cost *cost, uint64_t bytes)
{
    unsigned __int128 ps = cost->message;

    for (uint32_t i = 0; i < cost->num_ranges; i++) {
        uint64_t from = cost->ranges[i].from, to = bytes;

        if (i + 1 < cost->num_ranges && cost->ranges[i + 1].from < to)
            to = cost->ranges[i + 1].from;
        if (to > from)
            ps += (unsigned __int128)(to - from) * RS_PS_PER_S /
                  cost->ranges[i].rate;
    }
    return ps > UINT64_MAX ? UINT64_MAX : (uint64_t)ps;
}

uint64_t rs_way_time(const struct rs_way_costs *costs, uint64_t bytes)
{
    return add(add(costs->latency, costs->sync),
               rs_way_cost_at(&costs->work, bytes));
}

void rs_way_part_add(struct rs_way_part *part, uint64_t bytes, uint64_t count,
                     int64_t stride)
{
    part->bytes += bytes * count;
    if (count > 1 && bytes < LINE && (stride >= LINE || stride <= -LINE))
        part->scattered += count;
    else
        part->blocks += count;
}

bool rs_way_part_is_choppy(const struct rs_way_part *part)
{
    return part->bytes / CHOPPY_BLOCK < part->blocks + part->scattered &&
           part->scattered < part->bytes / (2 * LINE);
}

/* @param each what a scattered block costs */
static uint64_t work_of(const struct rs_way_costs *costs,
                        const struct rs_way_part *part, uint64_t each)
{
    uint64_t work = rs_way_cost_at(&costs->work, part->bytes);
    uint64_t lines = part->bytes / LINE + 1, blocks = part->blocks;

    if (blocks > lines)
        blocks = lines;
    if (blocks > 1)
        work = add(work, multiply(costs->block, blocks - 1));
    return add(work, multiply(each, part->scattered));
}

/* Parts of one message are waited for together. */
static void add_part(const struct rs_way_costs *costs,
                     const struct rs_way_part *part, uint64_t each,
                     uint64_t *work, uint64_t *latency)
{
    if (part->bytes == 0)
        return;
    *work = add(*work, work_of(costs, part, each));
    if (costs->latency > *latency)
        *latency = costs->latency;
}

static void join(struct rs_way_part *to, const struct rs_way_part *part)
{
    to->bytes += part->bytes;
    to->blocks += part->blocks;
    to->scattered += part->scattered;
}

void rs_way_parts_set_huge(struct rs_way_parts *parts, uint64_t bytes)
{
    struct rs_way_part *readable = &parts->readable, *huge = &parts->huge;

    if (bytes == 0)
        return;
    if (bytes >= readable->bytes) {
        join(huge, readable);
        *readable = (struct rs_way_part){0};
        return;
    }
    huge->bytes += bytes;
    huge->blocks++;
    readable->bytes -= bytes;
}

uint64_t rs_ways_time(const struct rs_host_ways *ways,
                      const struct rs_way_parts *parts,
                      struct rs_way_choice choice)
{
    const struct rs_way_costs *pull = &ways->of[RS_WAY_PULL];
    const struct rs_way_costs *cma = &ways->of[RS_WAY_CMA];
    const struct rs_way_costs *huge = &ways->of[RS_WAY_CMA_HUGE];
    const struct rs_way_costs *own = &ways->of[RS_WAY_SELF];
    struct rs_way_part landing = parts->rest;
    uint64_t work = 0, latency = 0, self = 0;

    if (choice.pull)
        add_part(pull, &parts->mapped, pull->block, &work, &latency);
    else
        join(&landing, &parts->mapped);
    if (choice.cma)
        add_part(cma, &parts->readable, cma->block, &work, &latency);
    else
        join(&landing, &parts->readable);
    if (choice.huge)
        add_part(huge, &parts->huge, huge->block, &work, &latency);
    else
        join(&landing, &parts->huge);
    add_part(&ways->of[RS_WAY_LANDING], &landing, own->block, &work, &latency);
    if (parts->self.bytes > 0)
        self = work_of(own, &parts->self, own->block);
    return add(work, self > latency ? self : latency);
}

/* A message that is announced is pulled as far as it can be. */
static bool is_possible(const struct rs_host_ways *ways,
                        const struct rs_way_parts *parts,
                        struct rs_way_choice choice)
{
    bool pull = ways->of[RS_WAY_PULL].given && parts->mapped.bytes > 0;
    bool cma = ways->of[RS_WAY_CMA].given && parts->readable.bytes > 0;
    bool huge = ways->of[RS_WAY_CMA_HUGE].given && parts->huge.bytes > 0;
    uint64_t bytes = add(add(parts->mapped.bytes, parts->readable.bytes),
                         add(parts->huge.bytes, parts->rest.bytes));

    if (bytes < ways->least_pull ||
        (bytes < ways->least_once && (choice.cma || choice.huge)))
        return false;
    if ((choice.pull && !pull) || (choice.cma && !cma) ||
        (choice.huge && !huge))
        return false;
    return choice.pull || parts->mapped.bytes == 0;
}

struct rs_way_choice rs_ways_choose(const struct rs_host_ways *ways,
                                    const struct rs_way_parts *parts)
{
    struct rs_way_choice landing = {false, false, false}, best = landing;
    uint64_t least = rs_ways_time(ways, parts, landing);

    least -= least / WORTH;
    for (unsigned i = 1; i < 8; i++) {
        struct rs_way_choice choice = {(i & 1) != 0, (i & 2) != 0,
                                       (i & 4) != 0};
        uint64_t time;

        if (!is_possible(ways, parts, choice))
            continue;
        time = rs_ways_time(ways, parts, choice);
        if (time < least) {
            least = time;
            best = choice;
        }
    }
    return best;
}

/* The sender packs all of it, and the kernel reads that. */
static uint64_t time_packed_and_read(const struct rs_host_ways *ways,
                                     const struct rs_way_part *all)
{
    const struct rs_way_costs *own = &ways->of[RS_WAY_SELF];

    return add(work_of(own, all, own->block),
               rs_way_time(&ways->of[RS_WAY_CMA], all->bytes));
}

bool rs_ways_choose_whole(const struct rs_host_ways *ways,
                          const struct rs_way_parts *parts, enum rs_way twice)
{
    struct rs_way_parts where = {.mapped = parts->mapped,
                                 .readable = parts->readable};
    struct rs_way_choice landing = {false, false, false}, once;
    uint64_t time, other;

    join(&where.readable, &parts->rest);
    once = (struct rs_way_choice){where.mapped.bytes > 0,
                                  where.readable.bytes > 0, false};
    if (add(where.mapped.bytes, where.readable.bytes) <= RS_WAY_WHOLE_LEAST ||
        (once.pull && !ways->of[RS_WAY_PULL].given) ||
        (once.cma && !ways->of[RS_WAY_CMA].given))
        return false;
    time = rs_ways_time(ways, &where, once);
    if (twice == RS_WAY_CMA ||
        (once.cma && add(where.mapped.bytes, where.readable.bytes) >
                         RS_WAY_PACKED_MOST)) {
        join(&where.readable, &where.mapped);
        return time <= time_packed_and_read(ways, &where.readable);
    }
    other = rs_ways_time(ways, &where, landing);
    return time < other - other / WORTH;
}

bool rs_ways_share(const struct rs_host_ways *ways, uint64_t bytes)
{
    const struct rs_way_costs *alone = &ways->of[RS_WAY_PULL];
    const struct rs_way_costs *both = &ways->of[RS_WAY_SHARED];

    return both->given && bytes >= RS_WAY_SHARED_LEAST &&
           rs_way_cost_at(&both->gap, bytes) <
               rs_way_cost_at(&alone->gap, bytes);
}

uint64_t rs_ways_share_chunk(const struct rs_host_ways *ways, uint64_t bytes)
{
    const struct rs_way_costs *alone = &ways->of[RS_WAY_PULL];
    uint64_t copy = rs_way_cost_at(&alone->gap, bytes);
    /* What is copied while a line travels there and back twice. */
    unsigned __int128 least = (unsigned __int128)2 * alone->latency * bytes /
                              (copy > 0 ? copy : 1);
    uint64_t chunk = CHUNK_LEAST;

    while ((chunk < CHUNK_MOST && (chunk < least || bytes / chunk > CHUNKS)) ||
           bytes / chunk > CHUNKS_MOST)
        chunk *= 2;
    return chunk;
}

/* Sizes grow by a factor of two in STEPS equal steps. */
static uint64_t size_at(unsigned step)
{
    uint64_t octave = UINT64_C(1) << step / STEPS;

    return octave + octave * (step % STEPS) / STEPS;
}

/* The first size in (low, high] at which the way is another than at low, as it
 * is at high. */
static uint64_t find_switch(enum rs_way (*way_at)(const void *, uint64_t),
                            const void *arg, uint64_t low, uint64_t high)
{
    enum rs_way before = way_at(arg, low);

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (way_at(arg, middle) == before)
            low = middle;
        else
            high = middle;
    }
    return high;
}

size_t rs_way_switches(enum rs_way (*way_at)(const void *arg, uint64_t bytes),
                       const void *arg, struct rs_way_switch *list)
{
    size_t count = 1;

    list[0] = (struct rs_way_switch){1, way_at(arg, 1)};
    for (unsigned step = 1;
         step <= OCTAVES * STEPS && count < RS_WAY_SWITCHES; step++) {
        enum rs_way way = way_at(arg, size_at(step));

        if (way == list[count - 1].way)
            continue;
        list[count++] = (struct rs_way_switch){
            find_switch(way_at, arg, size_at(step - 1), size_at(step)), way};
    }
    return count;
}

const char *rs_way_memory_name(enum rs_way_memory memory)
{
    static const char *const names[RS_NUM_WAY_MEMORIES] = {
        [RS_WAY_MEMORY_MAPPED] = "mapped",
        [RS_WAY_MEMORY_OTHER] = "other",
        [RS_WAY_MEMORY_HUGE] = "huge",
    };

    return names[memory];
}

bool rs_ways_tell(const struct rs_host_ways *ways, enum rs_way_memory memory)
{
    return memory != RS_WAY_MEMORY_HUGE || ways->of[RS_WAY_CMA_HUGE].given;
}

/* What rs_way_switches() hands on. */
struct question {
    const struct rs_host_ways *ways;
    enum rs_way_memory memory;
};

static struct rs_way_parts parts_of(enum rs_way_memory memory, uint64_t bytes)
{
    const struct rs_way_part all = {bytes, 1, 0};

    switch (memory) {
    case RS_WAY_MEMORY_MAPPED:
        return (struct rs_way_parts){.mapped = all};
    case RS_WAY_MEMORY_HUGE:
        return (struct rs_way_parts){.huge = all};
    default:
        return (struct rs_way_parts){.readable = all};
    }
}

static enum rs_way once_of(enum rs_way_memory memory)
{
    return memory == RS_WAY_MEMORY_MAPPED ? RS_WAY_PULL
           : memory == RS_WAY_MEMORY_HUGE ? RS_WAY_CMA_HUGE
                                          : RS_WAY_CMA;
}

static enum rs_way way_of(const void *arg, uint64_t bytes)
{
    const struct question *q = arg;
    struct rs_way_parts parts = parts_of(q->memory, bytes);
    struct rs_way_choice choice = rs_ways_choose(q->ways, &parts);

    if (choice.pull && rs_ways_share(q->ways, bytes))
        return RS_WAY_SHARED;
    return choice.pull || choice.cma || choice.huge ? once_of(q->memory) : RS_WAY_LANDING;
}

size_t rs_ways_switches(const struct rs_host_ways *ways,
                        enum rs_way_memory memory, struct rs_way_switch *list)
{
    return rs_way_switches(way_of, &(struct question){ways, memory}, list);
}

static enum rs_way whole_of(const void *arg, uint64_t bytes)
{
    const struct question *q = arg;
    struct rs_way_parts parts = parts_of(q->memory, bytes);

    return rs_ways_choose_whole(q->ways, &parts, RS_WAY_LANDING)
               ? once_of(q->memory)
               : RS_WAY_LANDING;
}

size_t rs_ways_switches_whole(const struct rs_host_ways *ways,
                              enum rs_way_memory memory,
                              struct rs_way_switch *list)
{
    return rs_way_switches(whole_of, &(struct question){ways, memory}, list);
}

uint64_t rs_ways_shortest_once(const struct rs_host_ways *ways)
{
    struct rs_way_switch list[RS_WAY_SWITCHES];
    uint64_t shortest = UINT64_MAX;

    for (enum rs_way_memory memory = 0; memory < RS_NUM_WAY_MEMORIES;
         memory++) {
        size_t count = rs_ways_switches(ways, memory, list);

        for (size_t i = 0; i < count; i++) {
            uint64_t end = i + 1 < count ? list[i + 1].bytes : UINT64_MAX;
            uint64_t from = list[i].bytes;

            if (from < ways->least_once)
                from = ways->least_once;
            if (list[i].way != RS_WAY_LANDING && from < end && from < shortest)
                shortest = from;
        }
    }
    return shortest;
}
