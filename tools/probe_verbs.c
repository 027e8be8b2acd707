/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring the ways over RDMA devices, by the engine that programs use. */
#include "tools/probe_verbs.h"

#include <stdlib.h>
#include <string.h>

#include <rsched/engine.h>

#include "librsched/base/error.h"
#include "tools/gpus.h"
#include "tools/tool.h"

enum {
    SHORTEST = 8,
    DIRECT_SHORTEST = 2048, /* longer than a chunk, as what goes directly is */
    WINDOW = 4, /* exchanges in flight; to make more takes emulated machines seconds */
};

/* Of all exchanges of a window together. */
static const uint64_t window_bytes = UINT64_C(1) << 26;

/* So that all goes one way, whatever its length. */
static const char *const settings[RS_NUM_VERBS_WAYS][5] = {
    [RS_VERBS_LANDING] = {"RSCHED_DIRECT", "no"},
    [RS_VERBS_DIRECT] = {"RSCHED_DIRECT", "yes", "RSCHED_CHUNK", "1k"},
};

static const enum rsched_way counted[RS_NUM_VERBS_WAYS] = {
    [RS_VERBS_LANDING] = RSCHED_WAY_LANDING,
    [RS_VERBS_DIRECT] = RSCHED_WAY_DIRECT,
};

/* ---- devices ---- */

static void say_why(struct probe_verbs *probe, const char *why)
{
    snprintf(probe->reason, sizeof(probe->reason), "%s", why);
}

static void ask_engine(const struct rsched_engine_ops *ops,
                       struct probe_verbs *probe)
{
    const struct rsched_engine_env env = {.chunk_bytes = 1 << 16,
                                          .ring_bytes = 1 << 19};
    struct rsched_engine_port ports[RSCHED_MAX_RAILS];
    struct rsched_engine *engine;

    if (ops->open(&env, &engine) != 0) {
        say_why(probe, rsched_last_error());
        return;
    }
    if (ops->ports(engine, ports) > 0)
        snprintf(probe->rail, sizeof(probe->rail), "%s", ports[0].name);
    ops->close(engine);
}

static int find(void *arg)
{
    const struct rsched_engine_absence *absence;
    const struct rsched_engine_ops *ops;
    struct probe_verbs *probe = arg;

    say_why(probe, "built without an engine for RDMA devices");
    for (size_t i = 0; (absence = rsched_engine_absence_at(i)) != NULL; i++) {
        if (strcmp(absence->name, "verbs") == 0)
            say_why(probe, absence->reason);
    }
    for (size_t i = 0; (ops = rsched_engine_at(i)) != NULL; i++) {
        if (ops->ports != NULL)
            ask_engine(ops, probe);
    }
    return TOOL_OK;
}

/* What libraries of devices leave behind is not inherited by those who measure. */
static int run_shared(struct probe_verbs *probe, int (*main)(void *arg))
{
    struct probe_verbs *shared = gpus_share(sizeof(*shared));
    int status;

    if (shared == NULL)
        return tool_bad("no memory");
    *shared = *probe;
    status = gpus_run_apart(main, shared);
    *probe = *shared;
    gpus_unshare(shared, sizeof(*shared));
    return status;
}

bool probe_verbs_find(struct probe_verbs *probe)
{
    return run_shared(probe, find) == TOOL_OK && probe->rail[0] != '\0';
}

/* ---- one measurement ---- */

/* What is said of one way is of all bytes. */
static int measure_work(struct pair *pair, enum rs_verbs_way way,
                        struct pair_work work, struct pair_time *time)
{
    int status = pair_measure(pair, &work, NULL, time);

    for (int i = 0; i < RSCHED_NUM_WAYS && status == TOOL_OK; i++) {
        if (i == (int)counted[way] || time->way_bytes[i] == 0)
            continue;
        status = TOOL_FAILED;
        if (pair_is_first(pair))
            tool_bad("probe: %s: %llu bytes went another way",
                     rs_verbs_way_name(way),
                     (unsigned long long)time->way_bytes[i]);
    }
    return status;
}

static struct pair_work work_of(uint64_t bytes, bool one_way, unsigned window)
{
    return (struct pair_work){
        .bytes = {bytes}, .messages = 1, .one_way = one_way, .window = window};
}

static unsigned window_for(uint64_t bytes)
{
    uint64_t window = window_bytes / bytes;

    return window > WINDOW ? WINDOW : window < 2 ? 2 : (unsigned)window;
}

/* What each further message takes where several are on their way. */
static int measure_gap(struct pair *pair, enum rs_verbs_way way, uint64_t bytes,
                       double *ps)
{
    unsigned window = window_for(bytes);
    struct pair_time one, all;
    int status = measure_work(pair, way, work_of(bytes, true, 1), &one);

    if (status == TOOL_OK)
        status = measure_work(pair, way, work_of(bytes, true, window), &all);
    if (status != TOOL_OK)
        return status;
    /* What is disturbed may take longer alone. */
    *ps = all.ps > one.ps ? (all.ps - one.ps) / (window - 1) : all.ps / window;
    return TOOL_OK;
}

static int measure_size(struct pair *pair, struct probe_verbs *probe,
                        enum rs_verbs_way way, size_t sample)
{
    struct probe_way *w = &probe->of[way];
    uint64_t bytes = w->shortest << sample;
    struct pair_time time;
    double gap = 0;
    int status = measure_work(pair, way, work_of(bytes, false, 1), &time);

    if (status == TOOL_OK)
        status = measure_gap(pair, way, bytes, &gap);
    /* Of the two only the first keeps them. */
    if (status != TOOL_OK || !pair_is_first(pair))
        return status;
    w->work_times[sample].ps[w->work_times[sample].count++] = time.ps;
    w->gap_times[sample].ps[w->gap_times[sample].count++] = gap;
    if (w->count == sample)
        w->count++;
    return TOOL_OK;
}

/* ---- all of a way ---- */

struct job {
    struct probe_verbs *probe;
    enum rs_verbs_way way;
};

/* What is waited for where an epoch brings a word. */
static int measure_word(struct pair *pair, struct probe_verbs *probe)
{
    struct pair_work work = work_of(SHORTEST, false, 1);
    double ps = 0;
    int status = pair_measure_wait(pair, &work, &ps);

    if (status == TOOL_OK && pair_is_first(pair))
        probe->word = (uint64_t)ps;
    return status;
}

static int measure(struct pair *pair, void *arg)
{
    const struct job *job = arg;
    struct probe_verbs *probe = job->probe;
    struct probe_way *w = &probe->of[job->way];
    int status = TOOL_OK;

    /* How far the cores are from each other is no matter here. */
    pair_choose_class(pair, "any");
    w->shortest = job->way == RS_VERBS_DIRECT ? DIRECT_SHORTEST : SHORTEST;
    for (unsigned r = 0; r < probe->rounds && status == TOOL_OK; r++) {
        probe_show_round(pair, rs_verbs_way_name(job->way), r, probe->rounds);
        for (size_t s = 0; w->shortest << s <= probe->longest &&
                           s < RS_WAY_SAMPLES && status == TOOL_OK; s++)
            status = measure_size(pair, probe, job->way, s);
    }
    if (status == TOOL_OK && job->way == RS_VERBS_LANDING)
        status = measure_word(pair, probe);
    probe_show_round(pair, "", probe->rounds, probe->rounds);
    return status;
}

static int run_landing(void *arg)
{
    struct job job = {arg, RS_VERBS_LANDING};

    return pair_run_strangers(&job.probe->cores, settings[job.way], measure, &job);
}

static int run_direct(void *arg)
{
    struct job job = {arg, RS_VERBS_DIRECT};

    return pair_run_strangers(&job.probe->cores, settings[job.way], measure, &job);
}

/* Both wait for the data's word; of what is written into a receive buffer also for the
 * receiver's, which says that it may be. */
static int fit(struct probe_verbs *probe, enum rs_verbs_way way)
{
    probe->costs[way].latency = (way == RS_VERBS_DIRECT ? 2 : 1) * probe->word;
    return probe_fit(&probe->of[way], &probe->costs[way]);
}

int probe_verbs_measure(struct probe_verbs *probe)
{
    int status = run_shared(probe, run_landing);

    if (status == TOOL_OK)
        status = run_shared(probe, run_direct);
    for (int way = 0; way < RS_NUM_VERBS_WAYS && status == TOOL_OK; way++)
        status = fit(probe, (enum rs_verbs_way)way);
    return status;
}

void probe_verbs_print(const struct probe_verbs *probe, FILE *out)
{
    fprintf(out, "RDMA device %s and back, cores %d and %d\n", probe->rail,
            probe->cores.cores[0], probe->cores.cores[1]);
    probe_print_head(out);
    for (int way = 0; way < RS_NUM_VERBS_WAYS; way++) {
        const struct rs_way_costs *c = &probe->costs[way];

        fprintf(out, "%-13s L %8.3f", rs_verbs_way_name((enum rs_verbs_way)way),
                (double)c->latency / 1e6);
        probe_print_cost("o", "O", &c->work, probe->of[way].work_error, out);
        fprintf(out, "%-13s   %8s", "", "");
        probe_print_cost("g", "G", &c->gap, probe->of[way].gap_error, out);
    }
}
