/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring the ways within a node, one at a time. */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/clock.h"
#include "librsched/base/line.h"
#include "tools/probe.h"
#include "tools/tool.h"

enum {
    SHORTEST = 8,
    KERNEL_SHORTEST = 4096,
    BLOCKS = 12, /* of a message */
    BLOCK = 256, /* their bytes, if the kernel does not read them */
};

static bool by_kernel(enum rs_way way)
{
    return way == RS_WAY_CMA || way == RS_WAY_CMA_HUGE;
}

/* Which counters a way is told by. */
static uint64_t bytes_by(enum rs_way way, const struct pair_time *time)
{
    const uint64_t *bytes = time->way_bytes;

    switch (way) {
    case RS_WAY_LANDING:
        return bytes[RSCHED_WAY_LANDING];
    case RS_WAY_PULL:
    case RS_WAY_SHARED: /* how much of it the sender has copied varies */
        return bytes[RSCHED_WAY_PULL] + bytes[RSCHED_WAY_DIRECT];
    case RS_WAY_CMA:
    case RS_WAY_CMA_HUGE:
        return bytes[RSCHED_WAY_CMA];
    default:
        return bytes[RSCHED_WAY_SELF];
    }
}

static bool has_moved(enum rs_way way, const struct pair_time *time)
{
    return bytes_by(way, time) > 0 && (way != RS_WAY_CMA_HUGE || time->huge);
}

/* What went in part another way says nothing of this one. Both know, one says so. */
static int check_way(const struct pair *pair, enum rs_way way,
                     const struct pair_time *time)
{
    uint64_t moved = bytes_by(way, time), all = 0;

    for (int i = 0; i < RSCHED_NUM_WAYS; i++)
        all += time->way_bytes[i];
    if (moved == 0 || moved == all)
        return TOOL_OK;
    if (pair_is_first(pair))
        tool_bad("probe: %s: %llu of %llu bytes went another way",
                 rs_way_name(way), (unsigned long long)(all - moved),
                 (unsigned long long)all);
    return TOOL_FAILED;
}

static int measure_work(struct pair *pair, const struct pair_work *work,
                        enum rs_way way, const struct rs_host_ways *ways,
                        struct pair_time *time)
{
    int status = pair_measure(pair, work, ways, time);

    return status == TOOL_OK ? check_way(pair, way, time) : status;
}

double probe_quartile(struct probe_times *times)
{
    qsort(times->ps, times->count, sizeof(*times->ps), rs_line_compare);
    return times->ps[times->count / 4];
}

static void keep(struct probe_times *times, const struct pair_time *time)
{
    times->ps[times->count++] = time->ps;
}

/* What was measured last for this size. */
static uint64_t gap_of(const struct probe_way *w, uint64_t bytes)
{
    size_t i = 0;

    while (i + 1 < w->count && w->shortest << i < bytes)
        i++;
    return (uint64_t)w->gap_times[i].ps[w->gap_times[i].count - 1];
}

/* Costs by which everything goes one way; memory that is in huge pages before it
 * is loaded is read like any other. What pieces shared work has follows
 * from what a pull has been measured to take. */
static void force(const struct probe *probe, enum rs_way way, uint64_t bytes,
                  struct rs_host_ways *ways)
{
    const struct probe_way *pull = &probe->of[RS_WAY_PULL];

    memset(ways, 0, sizeof(*ways));
    ways->nontemporal = probe->ways.nontemporal;
    ways->of[RS_WAY_LANDING].given = true;
    if (way == RS_WAY_LANDING || way == RS_WAY_SELF)
        return;
    ways->of[RS_WAY_LANDING].latency = RS_PS_PER_S;
    ways->of[way == RS_WAY_CMA_HUGE ? RS_WAY_CMA : way].given = true;
    if (way == RS_WAY_SHARED) {
        ways->of[RS_WAY_PULL] = (struct rs_way_costs){
            .given = true,
            .latency = 2 * probe->line,
            .gap = {.message = gap_of(pull, bytes)}};
    }
}

static int measure_one(struct pair *pair, const struct probe *probe,
                       enum rs_way way, bool one_way, uint64_t bytes,
                       unsigned blocks, struct pair_time *time)
{
    struct pair_work work = {
        .messages = blocks,
        .mapped = way == RS_WAY_PULL || way == RS_WAY_SHARED,
        .huge = way == RS_WAY_CMA_HUGE,
        .one_way = one_way,
        .settles = way == RS_WAY_LANDING || (way == RS_WAY_PULL && bytes <= 1 << 20),
    };
    struct rs_host_ways ways;

    for (unsigned i = 0; i < blocks; i++) {
        work.bytes[i] = bytes / blocks;
        work.self[i] = way == RS_WAY_SELF;
    }
    force(probe, way, bytes, &ways);
    return measure_work(pair, &work, way, &ways, time);
}

/* @return TOOL_OK or a status; *possible: whether it does move bytes */
static int measure_size(struct pair *pair, struct probe *probe, enum rs_way way,
                        size_t sample, bool *possible)
{
    struct probe_way *w = &probe->of[way];
    uint64_t bytes = w->shortest << sample;
    struct pair_time time;
    int status = measure_one(pair, probe, way, false, bytes, 1, &time);

    if (status != TOOL_OK)
        return status;
    *possible = has_moved(way, &time);
    if (!*possible)
        return TOOL_OK;
    keep(&w->work_times[sample], &time);
    if (way != RS_WAY_SELF)
        status = measure_one(pair, probe, way, true, bytes, 1, &time);
    keep(&w->gap_times[sample], &time);
    if (w->count == sample)
        w->count++;
    return status;
}

/* What each further block takes. */
static int measure_blocks(struct pair *pair, struct probe *probe,
                          enum rs_way way)
{
    uint64_t bytes = BLOCKS * (by_kernel(way) ? KERNEL_SHORTEST : BLOCK);
    struct probe_way *w = &probe->of[way];
    struct pair_time time;
    int status = measure_one(pair, probe, way, false, bytes, 1, &time);

    keep(&w->whole, &time);
    if (status == TOOL_OK)
        status = measure_one(pair, probe, way, false, bytes, BLOCKS, &time);
    keep(&w->cut, &time);
    return status;
}

/* Transfers of a line that both sides wait for: the data's, and where the
 * receiver copies, the sender is told that it has. */
static unsigned lines_of(enum rs_way way)
{
    return way == RS_WAY_SELF ? 0 : way == RS_WAY_LANDING ? 1 : 2;
}

int probe_fit(struct probe_way *w, struct rs_way_costs *c)
{
    int error;

    for (size_t i = 0; i < w->count; i++) {
        uint64_t bytes = w->shortest << i;

        w->work[i] = (struct rs_way_sample){
            bytes, probe_quartile(&w->work_times[i])};
        w->gap[i] = (struct rs_way_sample){
            bytes, probe_quartile(&w->gap_times[i])};
        /* Two transfers may overlap, so there may be less to wait for. */
        if (w->work[i].ps < (double)c->latency)
            c->latency = (uint64_t)w->work[i].ps;
    }
    error = rs_way_fit(w->work, w->count, c->latency, &c->work,
                       &w->work_error);
    if (error == 0)
        error = rs_way_fit(w->gap, w->count, 0, &c->gap, &w->gap_error);
    c->given = error == 0;
    return error == 0 ? TOOL_OK : tool_library(error);
}

static int fit(struct probe *probe, enum rs_way way)
{
    struct probe_way *w = &probe->of[way];
    struct rs_way_costs *c = &probe->ways.of[way];
    double whole = probe_quartile(&w->whole), cut = probe_quartile(&w->cut);

    if (cut > whole)
        c->block = (uint64_t)((cut - whole) / (BLOCKS - 1));
    c->latency = lines_of(way) * probe->line;
    return probe_fit(w, c);
}

/* Below, there are no blocks for the kernel, and no pieces to share. */
static uint64_t shortest(enum rs_way way)
{
    if (by_kernel(way))
        return KERNEL_SHORTEST;
    return way == RS_WAY_SHARED ? RS_WAY_SHARED_LEAST : SHORTEST;
}

static int measure_way(struct pair *pair, struct probe *probe, enum rs_way way)
{
    struct probe_way *w = &probe->of[way];
    bool possible = true;
    int status = TOOL_OK;

    if (way == RS_WAY_SHARED && probe->of[RS_WAY_PULL].count == 0)
        return TOOL_OK; /* it is a pull with help */
    w->shortest = shortest(way);
    for (size_t i = 0; w->shortest << i <= probe->longest &&
                       i < RS_WAY_SAMPLES && possible && status == TOOL_OK; i++)
        status = measure_size(pair, probe, way, i, &possible);
    if (status == TOOL_OK && w->count > 0)
        status = measure_blocks(pair, probe, way);
    probe->line = pair_line(pair);
    return status;
}

/* ---- non-temporal stores ---- */

static int measure_stores(struct pair *pair, struct probe *probe, size_t i)
{
    struct pair_work work = {
        .bytes = {(uint64_t)PROBE_STORES_SHORTEST << i},
        .messages = 1,
        .mapped = true,
        .reads = true,
    };
    struct rs_host_ways ways;
    struct pair_time time;
    int status = TOOL_OK;

    force(probe, RS_WAY_PULL, work.bytes[0], &ways);
    for (int nontemporal = 0; nontemporal < 2 && status == TOOL_OK;
         nontemporal++) {
        ways.nontemporal = (uint64_t)nontemporal;
        status = measure_work(pair, &work, RS_WAY_PULL, &ways, &time);
        if (status == TOOL_OK && has_moved(RS_WAY_PULL, &time))
            keep(&probe->stores.times[nontemporal][i], &time);
    }
    return status;
}

/* From which size on they gain a sixteenth, at all sizes. */
static void choose_stores(struct probe *probe)
{
    struct probe_stores *s = &probe->stores;
    bool gains = true;

    for (size_t i = s->count; i-- > 0;) {
        s->share[i] = probe_quartile(&s->times[1][i]) /
                      probe_quartile(&s->times[0][i]);
        gains = gains && s->share[i] <= 15.0 / 16;
        if (gains)
            probe->ways.nontemporal = (uint64_t)PROBE_STORES_SHORTEST << i;
    }
}

/* All rounds at once: what the ways take depends on it. */
static int probe_stores(struct pair *pair, struct probe *probe)
{
    struct probe_stores *s = &probe->stores;
    int status = TOOL_OK;
    size_t sizes = 0;

    while (sizes < PROBE_STORES &&
           (uint64_t)PROBE_STORES_SHORTEST << sizes <= probe->longest)
        sizes++;
    for (unsigned round = 0; round < probe->rounds; round++) {
        probe_show_round(pair, "non-temporal stores", round, probe->rounds);
        for (size_t i = 0; i < sizes && status == TOOL_OK; i++)
            status = measure_stores(pair, probe, i);
    }
    while (s->count < sizes && s->times[1][s->count].count == probe->rounds &&
           s->times[0][s->count].count == probe->rounds)
        s->count++;
    choose_stores(probe);
    return status;
}

/* ---- the floor of shared work ---- */

static int measure_copies(struct pair *pair, struct probe *probe)
{
    struct probe_copies *c = &probe->copies;
    int status = TOOL_OK;

    c->count = 0;
    for (size_t i = 0; i < PROBE_STORES &&
                       (uint64_t)PROBE_STORES_SHORTEST << i <= probe->longest; i++) {
        for (int halves = 0; halves < 2 && status == TOOL_OK; halves++) {
            struct pair_time time = {0};

            status = pair_measure_copies(pair, (uint64_t)PROBE_STORES_SHORTEST << i,
                                         halves == 1, &time.ps);
            keep(&c->times[halves][i], &time);
        }
        c->count++;
    }
    return status;
}

int probe_measure(struct pair *pair, struct probe *probe)
{
    int status = probe_stores(pair, probe);

    /* Rounds around all, so that what disturbs for seconds is in one round.
     * Shared work comes after pulls, whose times it needs. */
    for (unsigned i = 0; i < probe->rounds; i++) {
        probe_show_round(pair, "ways", i, probe->rounds);
        for (enum rs_way way = 0; way < RS_NUM_HOST_WAYS && status == TOOL_OK; way++)
            status = measure_way(pair, probe, way);
        if (status == TOOL_OK)
            status = measure_copies(pair, probe);
    }
    probe_show_round(pair, "", probe->rounds, probe->rounds);
    for (enum rs_way way = 0; way < RS_NUM_HOST_WAYS && status == TOOL_OK; way++) {
        if (probe->of[way].count > 1)
            status = fit(probe, way);
    }
    probe->ways.least_once = RS_WAY_ONCE_LEAST;
    probe->ways.least_pull = RS_WAY_PULL_LEAST;
    probe->class = pair_class(pair);
    probe->where = pair_where(pair);
    return status;
}
