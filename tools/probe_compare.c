/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole exchanges, measured and as the costs of the ways say. */
#include <math.h>
#include <stdio.h>

#include "tools/probe.h"
#include "tools/tool.h"

/* The paper's grid: levels with two more at each end, in doubles. */
enum { GRID_EDGE = 4, ELEMENT = 8 };

struct tally {
    double sum, worst;
    unsigned number;
};

/* Eight neighbors of a periodic grid of 2 x 1 processes. */
static void eight_neighbors(struct pair_work *work, uint64_t bytes)
{
    work->messages = 8;
    for (unsigned i = 0; i < work->messages; i++) {
        work->bytes[i] = bytes;
        work->self[i] = i >= 6;
    }
}

/* The 14 messages of SCALE-LES3 on such a grid: two to the process itself,
 * four rows and eight corners to the other. */
static void scale_les3(struct pair_work *work, uint64_t grid)
{
    static const unsigned columns[] = {32, 32, 16, 16, 16, 16, 2,
                                       2,  2,  2,  2,  2,  2,  2};

    work->messages = sizeof(columns) / sizeof(columns[0]);
    for (unsigned i = 0; i < work->messages; i++) {
        work->bytes[i] = (grid + GRID_EDGE) * ELEMENT * columns[i];
        work->self[i] = i < 2;
    }
}

static enum rs_way_memory memory_of(const struct pair_work *work)
{
    return work->mapped ? RS_WAY_MEMORY_MAPPED
           : work->huge ? RS_WAY_MEMORY_HUGE
                        : RS_WAY_MEMORY_OTHER;
}

static void predict(const struct rs_host_ways *ways, const struct pair_work *work,
                    const char **how, double *ps)
{
    struct rs_way_parts parts = {0};
    struct rs_way_choice choice;

    for (unsigned i = 0; i < work->messages; i++) {
        struct rs_way_part *part = work->self[i]  ? &parts.self
                                   : work->mapped ? &parts.mapped
                                   : work->huge   ? &parts.huge
                                                  : &parts.readable;

        rs_way_part_add(part, work->bytes[i], 1, 0);
    }
    choice = rs_ways_choose(ways, &parts);
    *how = rs_way_name(choice.pull                ? RS_WAY_PULL
                       : choice.cma && work->huge ? RS_WAY_CMA_HUGE
                       : choice.cma               ? RS_WAY_CMA
                                                  : RS_WAY_LANDING);
    *ps = (double)rs_ways_time(ways, &parts, choice);
}

struct row {
    char name[32];
    struct pair_work work;
    struct probe_times times;
};

static void print_row(const struct rs_host_ways *ways, struct row *row,
                      struct tally *tally)
{
    double measured = probe_quartile(&row->times), ps, error;
    const char *how;

    predict(ways, &row->work, &how, &ps);
    error = (ps - measured) / measured;
    tally->sum += fabs(error);
    tally->number++;
    if (fabs(error) > tally->worst)
        tally->worst = fabs(error);
    printf("%-18s %-7s %-8s %12.3f %12.3f %+7.1f %%\n", row->name,
           rs_way_memory_name(memory_of(&row->work)), how, measured / 1e6,
           ps / 1e6, 100 * error);
}

static void print_rows(struct pair *pair, const struct rs_host_ways *ways,
                       struct row *rows, unsigned count)
{
    struct tally tally = {0};

    printf("cores %d and %d, %s\n", pair_where(pair)->cores[0],
           pair_where(pair)->cores[1],
           rs_distance_name(pair_where(pair)->distance));
    printf("%-18s %-7s %-8s %12s %12s %9s\n", "exchange", "memory", "way",
           "measured us", "predicted us", "error");
    for (unsigned i = 0; i < count; i++)
        print_row(ways, &rows[i], &tally);
    printf("mean error %.1f %%, worst %.1f %%, class %s, line %.0f ns\n",
           100 * tally.sum / tally.number, 100 * tally.worst,
           pair_class(pair), 2 * (double)pair_line(pair) / 1000);
}

/* 8 B to 4 MiB, and the paper's grids; each in mapped memory and in other memory,
 * long ones in huge pages too. */
enum {
    SIZES = 10,
    GRIDS = 3,
    ROWS = RS_NUM_WAY_MEMORIES * (SIZES + GRIDS),
    HUGE_LEAST = 2 << 20, /* bytes: shorter ones rarely cover a huge page */
};

static void make_row(struct row *row, unsigned what)
{
    static const uint64_t sizes[SIZES] = {8,     64,    512,    4096,   8192,
                                          32768, 65536, 262144, 524288, 4194304};
    static const uint64_t grids[GRIDS] = {60, 218, 872};

    if (what < SIZES) {
        eight_neighbors(&row->work, sizes[what]);
        snprintf(row->name, sizeof(row->name), "8 x %llu B",
                 (unsigned long long)sizes[what]);
    } else {
        scale_les3(&row->work, grids[what - SIZES]);
        snprintf(row->name, sizeof(row->name), "scale-les3:%llu",
                 (unsigned long long)grids[what - SIZES]);
    }
}

static uint64_t bytes_of(const struct pair_work *work)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < work->messages; i++)
        bytes += work->bytes[i];
    return bytes;
}

/* @return how many there are */
static unsigned make_rows(const struct rs_host_ways *ways, struct row *rows)
{
    unsigned count = 0;

    for (unsigned i = 0; i < ROWS; i++) {
        enum rs_way_memory memory = i % RS_NUM_WAY_MEMORIES;
        struct row *row = &rows[count];

        make_row(row, i / RS_NUM_WAY_MEMORIES);
        row->work.mapped = memory == RS_WAY_MEMORY_MAPPED;
        row->work.huge = memory == RS_WAY_MEMORY_HUGE;
        if (rs_ways_tell(ways, memory) &&
            (!row->work.huge || bytes_of(&row->work) >= HUGE_LEAST))
            count++;
    }
    return count;
}

/* So that what is in huge pages before it is loaded is taken for that, and that
 * nothing else is put into them between two epochs. */
static struct rs_host_ways settle(const struct rs_host_ways *ways,
                                  const struct pair_work *work)
{
    struct rs_host_ways settled = *ways;

    if (work->huge)
        settled.of[RS_WAY_CMA] = ways->of[RS_WAY_CMA_HUGE];
    settled.of[RS_WAY_CMA_HUGE].given = false;
    return settled;
}

int probe_compare(struct pair *pair, const struct rs_host_ways *ways,
                  unsigned rounds)
{
    struct row rows[ROWS + 1] = {0};
    unsigned count = make_rows(ways, rows);
    int status = TOOL_OK;

    for (unsigned round = 0; round < rounds; round++) {
        probe_show_round(pair, "exchanges", round, rounds);
        for (unsigned i = 0; i < count && status == TOOL_OK; i++) {
            struct rs_host_ways settled = settle(ways, &rows[i].work);
            struct pair_time time;

            rows[i].work.settles = true;
            status = pair_measure(pair, &rows[i].work, &settled, &time);
            rows[i].times.ps[rows[i].times.count++] = time.ps;
        }
    }
    probe_show_round(pair, "", rounds, rounds);
    if (status == TOOL_OK && pair_is_first(pair))
        print_rows(pair, ways, rows, count);
    return status;
}
