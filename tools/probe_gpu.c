/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring the ways of GPU memory within a node, one at a time. */
#include "tools/probe_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/coordinator.h"
#include "librsched/base/line.h"
#include "librsched/base/units.h"
#include "tools/tool.h"

enum {
    SHORTEST = 8,
    GDRCOPY_LONGEST = 1 << 18, /* reading a GPU's memory takes processors long */
};

/* Of all exchanges of a window together. */
static const uint64_t window_bytes = UINT64_C(1) << 26;

static const enum rsched_way counted[RS_NUM_GPU_WAYS] = {
    [RS_WAY_STAGED - RS_NUM_HOST_WAYS] = RSCHED_WAY_STAGED,
    [RS_WAY_GDRCOPY - RS_NUM_HOST_WAYS] = RSCHED_WAY_GDRCOPY,
    [RS_WAY_CUDA_IPC - RS_NUM_HOST_WAYS] = RSCHED_WAY_CUDA_IPC,
    [RS_WAY_GDR_LOOPBACK - RS_NUM_HOST_WAYS] = RSCHED_WAY_GDR_LOOPBACK,
};

static enum rs_way way_at(int i)
{
    return (enum rs_way)(RS_NUM_HOST_WAYS + i);
}

static bool has_moved(int i, const struct pair_time *time)
{
    return time->way_bytes[counted[i]] > 0;
}

/* ---- one measurement ---- */

static unsigned window_for(uint64_t bytes)
{
    uint64_t window = window_bytes / bytes;

    return window > PAIR_WINDOW ? PAIR_WINDOW : window < 2 ? 2 : (unsigned)window;
}

/* Costs by which everything goes one way, if it is possible. */
static void force(int i, struct rs_ways *ways)
{
    memset(ways, 0, sizeof(*ways));
    for (int d = 0; d < RS_NUM_DISTANCES; d++)
        ways->gpu[i][d].given = true;
}

/* Exchanges of `puts` puts, `bytes` together. */
static struct pair_work work_of(uint64_t bytes, unsigned puts, bool one_way,
                                unsigned window)
{
    struct pair_work work = {
        .messages = puts, .one_way = one_way, .window = window, .on_gpu = true};

    for (unsigned i = 0; i < puts; i++)
        work.bytes[i] = bytes / puts;
    return work;
}

static int measure_one(struct pair *pair, const struct probe_gpu *probe,
                       const struct rs_ways *ways, struct pair_work work,
                       struct pair_time *time)
{
    memcpy(work.gpus, probe->where.gpus, sizeof(work.gpus));
    pair_set_gpu_ways(pair, ways);
    return pair_measure(pair, &work, NULL, time);
}

/* What each further message takes where several are on their way. */
static int measure_gap(struct pair *pair, const struct probe_gpu *probe,
                       const struct rs_ways *ways, uint64_t bytes, double *ps)
{
    unsigned window = window_for(bytes);
    struct pair_time one, all;
    int status = measure_one(pair, probe, ways, work_of(bytes, 1, true, 1),
                             &one);

    if (status == TOOL_OK)
        status = measure_one(pair, probe, ways, work_of(bytes, 1, true, window),
                             &all);
    if (status != TOOL_OK)
        return status;
    /* What is disturbed may take longer alone. */
    *ps = all.ps > one.ps ? (all.ps - one.ps) / (window - 1) : all.ps / window;
    return TOOL_OK;
}

/* ---- all of a way ---- */

static int measure_size(struct pair *pair, struct probe_gpu *probe, int i,
                        size_t sample, bool *possible)
{
    struct probe_way *w = &probe->of[i];
    uint64_t bytes = w->shortest << sample;
    struct pair_time time;
    struct rs_ways ways;
    double gap = 0;
    int status;

    force(i, &ways);
    status = measure_one(pair, probe, &ways, work_of(bytes, 1, false, 1),
                         &time);
    if (status != TOOL_OK)
        return status;
    *possible = has_moved(i, &time);
    if (!*possible)
        return TOOL_OK;
    status = measure_gap(pair, probe, &ways, bytes, &gap);
    /* Of the two only the first keeps them. */
    if (status != TOOL_OK || !pair_is_first(pair))
        return status;
    w->work_times[sample].ps[w->work_times[sample].count++] = time.ps;
    w->gap_times[sample].ps[w->gap_times[sample].count++] = gap;
    if (w->count == sample)
        w->count++;
    return TOOL_OK;
}

static uint64_t longest_of(const struct probe_gpu *probe, int i)
{
    return way_at(i) == RS_WAY_GDRCOPY && probe->longest > GDRCOPY_LONGEST
               ? GDRCOPY_LONGEST
               : probe->longest;
}

/* @param[in,out] here false: nothing goes this way, which is found out once, as
 * each exchange that is forced to it says why in a warning */
static int measure_way(struct pair *pair, struct probe_gpu *probe, int i,
                       bool *here)
{
    bool possible = *here;
    int status = TOOL_OK;

    probe->of[i].shortest = SHORTEST;
    for (size_t s = 0; probe->of[i].shortest << s <= longest_of(probe, i) &&
                       s < RS_WAY_SAMPLES && possible && status == TOOL_OK;
         s++) {
        status = measure_size(pair, probe, i, s, &possible);
        *here = possible || s > 0;
    }
    return status;
}

static int measure(struct pair *pair, void *arg)
{
    struct probe_gpu *probe = arg;
    bool here[RS_NUM_GPU_WAYS];
    uint64_t line;
    int status = TOOL_OK;

    memset(here, true, sizeof(here));

    pair_choose_class(pair, probe->class);
    /* Rounds around all, so that what disturbs for seconds is in one round. */
    for (unsigned r = 0; r < probe->rounds; r++) {
        probe_show_round(pair, "ways of GPU memory", r, probe->rounds);
        for (int i = 0; i < RS_NUM_GPU_WAYS && status == TOOL_OK; i++)
            status = measure_way(pair, probe, i, &here[i]);
    }
    probe_show_round(pair, "", probe->rounds, probe->rounds);
    line = pair_line(pair);
    if (pair_is_first(pair))
        probe->line = line;
    return status;
}

static int run_measure(void *arg)
{
    struct probe_gpu *probe = arg;

    return pair_run(&probe->cores, measure, probe);
}

/* ---- fitting ---- */

/* L is the transfers of a line that both sides wait for: the slot's, and where the
 * receiver copies out of the sender's memory, or has it written by the NIC, the
 * answer. What else everybody waits
 * for, S too, is in o: it cannot be told from it by times. */
static int fit(struct probe_gpu *probe, int i)
{
    probe->costs[i].latency =
        (way_at(i) == RS_WAY_CUDA_IPC || way_at(i) == RS_WAY_GDR_LOOPBACK ? 2
                                                                          : 1) *
        probe->line;
    return probe_fit(&probe->of[i], &probe->costs[i]);
}

/* Staging needs nothing but copies, so where no way moves anything they fail. */
static bool has_any(const struct probe_gpu *probe)
{
    for (int i = 0; i < RS_NUM_GPU_WAYS; i++) {
        if (probe->of[i].count > 0)
            return true;
    }
    return false;
}

int probe_gpu_measure(struct probe_gpu *probe)
{
    struct probe_gpu *shared;
    int status;

    shared = gpus_share(sizeof(*shared));
    if (shared == NULL)
        return tool_bad("no memory");
    *shared = *probe;
    status = gpus_run_apart(run_measure, shared);
    *probe = *shared;
    gpus_unshare(shared, sizeof(*shared));
    if (status == TOOL_OK && !has_any(probe)) {
        fprintf(stderr, "rsched: between GPUs %d and %d no way moves anything\n",
                probe->where.gpus[0], probe->where.gpus[1]);
        status = TOOL_FAILED;
    }
    for (int i = 0; i < RS_NUM_GPU_WAYS && status == TOOL_OK; i++) {
        if (probe->of[i].count > 1)
            status = fit(probe, i);
    }
    return status;
}

static void print_cores(const struct probe_gpu *probe, FILE *out)
{
    fprintf(out, "GPUs %d and %d, %s, cores %d and %d\n", probe->where.gpus[0],
            probe->where.gpus[1], rs_distance_name(probe->where.distance),
            probe->cores.cores[0], probe->cores.cores[1]);
}

void probe_gpu_print(const struct probe_gpu *probe, FILE *out)
{
    print_cores(probe, out);
    probe_print_head(out);
    for (int i = 0; i < RS_NUM_GPU_WAYS; i++) {
        const struct rs_way_costs *c = &probe->costs[i];
        const char *name = rs_way_name(way_at(i));

        if (!c->given) {
            fprintf(out, "%-12s not here\n", name);
            continue;
        }
        fprintf(out, "%-12s L %8.3f", name, (double)c->latency / 1e6);
        probe_print_cost("o", "O", &c->work, probe->of[i].work_error, out);
        fprintf(out, "%-12s   %8s", "", "");
        probe_print_cost("g", "G", &c->gap, probe->of[i].gap_error, out);
    }
}

/* ---- the coordinator's choice beside each way ---- */

/* Messages of one length: ways by themselves, and the choice behind them. */
enum { CHOICE = RS_NUM_GPU_WAYS, COLUMNS };
enum { PUTS = 8, KINDS = 3 };

struct row {
    uint64_t bytes;
    unsigned puts; /* that the message is made of */
    unsigned in_flight;
    enum rs_way way; /* that was chosen */
    struct probe_times times[COLUMNS]; /* of each round; 0: not measured in it */
    double ps[COLUMNS]; /* 0: the way is not possible */
};

struct table {
    struct probe_gpu probe;
    struct rs_ways ways;
    struct row rows[PROBE_GPU_ROWS];
    unsigned num;
};

/* Lengths that grow by eight times, and the longest: one in flight, many, and one
 * of several puts, as patterns have them. */
static void make_rows(struct table *t)
{
    uint64_t bytes = SHORTEST;
    bool last = false;

    while (!last && t->num + KINDS <= PROBE_GPU_ROWS) {
        last = bytes >= t->probe.longest;
        if (last)
            bytes = t->probe.longest;
        t->rows[t->num++] = (struct row){bytes, 1, .in_flight = 1};
        t->rows[t->num++] =
            (struct row){bytes, 1, .in_flight = window_for(bytes)};
        t->rows[t->num++] = (struct row){bytes, PUTS, .in_flight = 1};
        bytes *= 8;
    }
}

static int measure_cell(struct pair *pair, struct table *t, struct row *row,
                        int column, unsigned round, bool *here)
{
    struct pair_work work = work_of(row->bytes, row->puts, row->in_flight > 1,
                                    row->in_flight);
    struct rs_ways forced;
    struct pair_time time;
    int status;

    work.updates = column == CHOICE;
    if (column != CHOICE)
        force(column, &forced);
    status = measure_one(pair, &t->probe, column == CHOICE ? &t->ways : &forced,
                         work, &time);
    if (status != TOOL_OK)
        return status;
    *here = column == CHOICE || has_moved(column, &time);
    if (!*here || !pair_is_first(pair))
        return TOOL_OK;
    row->times[column].ps[round] = time.ps;
    row->times[column].count = round + 1;
    for (int i = 0; column == CHOICE && i < RS_NUM_GPU_WAYS; i++) {
        if (has_moved(i, &time))
            row->way = way_at(i);
    }
    return status;
}

static bool is_worth_it(const struct table *t, const struct row *row, int column)
{
    return column == CHOICE || row->bytes <= longest_of(&t->probe, column);
}

/* Ways that at first move nothing of the first row are not tried any more. Every other
 * round goes backward. */
static int measure_row(struct pair *pair, struct table *t, struct row *row,
                       unsigned round, bool *here)
{
    int status = TOOL_OK;

    for (int k = 0; k < COLUMNS && status == TOOL_OK; k++) {
        int c = round % 2 == 1 ? COLUMNS - 1 - k : k;
        bool moves;

        if (!here[c] || !is_worth_it(t, row, c))
            continue;
        status = measure_cell(pair, t, row, c, round, &moves);
        if (status == TOOL_OK && row == t->rows && round == 0)
            here[c] = moves;
    }
    return status;
}

static int measure_table(struct pair *pair, void *arg)
{
    struct table *t = arg;
    bool here[COLUMNS];
    int status = TOOL_OK;

    memset(here, true, sizeof(here));
    pair_choose_class(pair, t->probe.class);
    for (unsigned r = 0; r < t->probe.rounds; r++) {
        probe_show_round(pair, "messages of GPU memory", r, t->probe.rounds);
        for (unsigned k = 0; k < t->num && status == TOOL_OK; k++)
            status = measure_row(pair, t, &t->rows[k], r, here);
    }
    probe_show_round(pair, "", t->probe.rounds, t->probe.rounds);
    return status;
}

static int run_table(void *arg)
{
    struct table *t = arg;

    return pair_run(&t->probe.cores, measure_table, t);
}

struct tally {
    double worst;  /* of what the choice takes, the best way being 1; 0: unknown */
    double gained; /* that staged takes, the choice being 1: the most */
    double error, worst_error;
    unsigned errors;
};

static double predict(const struct table *t, const struct row *row)
{
    const struct rs_way_costs *c =
        rs_gpu_way_costs(&t->ways, row->way, t->probe.where.distance);

    return c->given ? (double)rs_gpu_way_time(c, row->bytes, row->in_flight) : 0;
}

/* Of rounds that both were measured in, one after the other: what is slow for a while
 * is so for both. @return the median; 0: there are none */
static double beside(const struct probe_times *choice, const struct probe_times *way)
{
    struct probe_times ratios = {0};

    for (unsigned r = 0; r < choice->count && r < way->count; r++) {
        if (choice->ps[r] > 0 && way->ps[r] > 0)
            ratios.ps[ratios.count++] = choice->ps[r] / way->ps[r];
    }
    if (ratios.count == 0)
        return 0;
    qsort(ratios.ps, ratios.count, sizeof(*ratios.ps), rs_line_compare);
    return ratios.ps[ratios.count / 2];
}

static double quartile_of(const struct probe_times *times)
{
    struct probe_times measured = {0};

    for (unsigned r = 0; r < times->count; r++) {
        if (times->ps[r] > 0)
            measured.ps[measured.count++] = times->ps[r];
    }
    return measured.count > 0 ? probe_quartile(&measured) : 0;
}

static void print_ratio(struct tally *sum, double ratio, FILE *out)
{
    if (ratio > 0)
        fprintf(out, " %6.3f", ratio);
    else
        fprintf(out, " %6s", "-");
    if (ratio > sum->worst)
        sum->worst = ratio;
}

static void print_row(const struct table *t, struct row *row, struct tally *sum,
                      FILE *out)
{
    double predicted = predict(t, row), error;
    int best = CHOICE;

    fprintf(out, "%10llu %4u %9u", (unsigned long long)row->bytes, row->puts,
            row->in_flight);
    for (int c = 0; c < COLUMNS; c++) {
        double ps = row->ps[c] = quartile_of(&row->times[c]);

        if (c != CHOICE && ps > 0 && (best == CHOICE || ps < row->ps[best]))
            best = c;
        if (ps > 0)
            fprintf(out, " %12.3f", ps / 1e6);
        else
            fprintf(out, " %12s", "-");
    }
    fprintf(out, " %-12s", rs_way_name(row->way));
    print_ratio(sum,
                best == CHOICE ? 0
                               : beside(&row->times[CHOICE], &row->times[best]),
                out);
    if (row->ps[0] / row->ps[CHOICE] > sum->gained)
        sum->gained = row->ps[0] / row->ps[CHOICE];
    if (predicted == 0) {
        fputs("  -\n", out);
        return;
    }
    error = predicted / row->ps[CHOICE] - 1;
    fprintf(out, " %12.3f %+8.1f %%\n", predicted / 1e6, 100 * error);
    error = error < 0 ? -error : error;
    sum->error += error;
    sum->errors++;
    if (error > sum->worst_error)
        sum->worst_error = error;
}

static void print_table(struct table *t, FILE *out)
{
    struct tally sum = {0};

    print_cores(&t->probe, out);
    fprintf(out, "%10s %4s %9s", "bytes", "puts", "in flight");
    for (int i = 0; i < RS_NUM_GPU_WAYS; i++)
        fprintf(out, " %12s", rs_way_name(way_at(i)));
    fprintf(out, " %12s %-12s %6s %12s %10s\n", "choice us", "goes", "/ best",
            "predicted us", "error");
    for (unsigned k = 0; k < t->num; k++)
        print_row(t, &t->rows[k], &sum, out);
    if (sum.worst > 0)
        fprintf(out, "the choice takes at most %.3f of the best way\n", sum.worst);
    fprintf(out, "staged takes up to %.2f times what the choice takes\n",
            sum.gained);
    if (sum.errors > 0)
        fprintf(out, "mean error %.1f %%, worst %.1f %%\n",
                100 * sum.error / sum.errors, 100 * sum.worst_error);
}

int probe_gpu_compare(const struct probe_gpu *probe, const struct rs_ways *ways,
                      FILE *out)
{
    struct table *t = gpus_share(sizeof(*t));
    int status;

    if (t == NULL)
        return tool_bad("no memory");
    t->probe = *probe;
    t->ways = *ways;
    make_rows(t);
    status = gpus_run_apart(run_table, t);
    if (status == TOOL_OK)
        print_table(t, out);
    gpus_unshare(t, sizeof(*t));
    return status;
}
