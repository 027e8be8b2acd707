/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bottom-left packing (RSched paper, section 3.2.2, figure 2). A put is a box,
 * one engine wide and command + bytes/rate high. Puts are taken by decreasing
 * bytes, then by the machine's direction order (or, when `requested`, by the
 * order in which directions appear in the pattern), then by id; each is placed
 * as early as possible, on the leftmost engine where it can start that early,
 * never while another put of its direction is under way, if a link is on the way
 * of both (the paper's machine has one for each direction; of several rails each
 * may have its own). Diagonals (puts whose route has more than one link) may only
 * use the first `diagonals` engines.
 *
 * Seeded (the paper's figure 14): engine k is taken until k * open, its
 * opening, before the packing begins.
 *
 * The free time of an engine, and of a direction, is a list of gaps. It keeps
 * at most GAPS of them and forgets the shortest, so that n puts cost O(n);
 * packings of fewer puts than that are exact.
 */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/plan/boxes.h"
#include "librsched/plan/planners.h"

enum { GAPS = 128 };

struct gap {
    uint64_t from, to; /* ps; to is UINT64_MAX in the last gap */
};

struct gaps {
    size_t count;
    struct gap gap[GAPS + 1]; /* in order of time */
};

struct box {
    uint32_t put;
    uint32_t rank; /* among those of equal bytes */
};

struct packer {
    const struct rs_problem *problem;
    struct gaps *engines;
    struct gaps *directions;
    struct gaps kept;  /* those of a direction that a box fits into */
    struct box *boxes; /* in the order of placement */
};

static const struct gaps always_free = {.count = 1,
                                        .gap = {{0, UINT64_MAX}}};

/* The gaps of at least `height`. */
static void keep_long(const struct gaps *gaps, uint64_t height,
                      struct gaps *kept)
{
    kept->count = 0;
    for (size_t i = 0; i < gaps->count; i++) {
        kept->gap[kept->count] = gaps->gap[i];
        kept->count += gaps->gap[i].to - gaps->gap[i].from >= height;
    }
}

/* The first time before `limit` at which both have `height` of free time, or
 * `limit`. All gaps in `b` are as long as that. */
static uint64_t find_gap(const struct gaps *a, const struct gaps *b,
                         uint64_t height, uint64_t limit)
{
    const struct gap *y = b->gap;

    for (const struct gap *x = a->gap; x->from < limit; x++) {
        uint64_t from;

        if (x->to - x->from < height)
            continue;
        while (y->to < x->from + height)
            y++;
        from = x->from > y->from ? x->from : y->from;
        if (from >= limit)
            break;
        if (from + height <= x->to)
            return from;
    }
    return limit;
}

static void forget_shortest(struct gaps *gaps)
{
    size_t shortest = 0;

    for (size_t i = 1; i + 1 < gaps->count; i++) {
        if (gaps->gap[i].to - gaps->gap[i].from <
            gaps->gap[shortest].to - gaps->gap[shortest].from)
            shortest = i;
    }
    gaps->count--;
    memmove(&gaps->gap[shortest], &gaps->gap[shortest + 1],
            (gaps->count - shortest) * sizeof(gaps->gap[0]));
}

/* Take [from, to), which lies in one gap. */
static void take(struct gaps *gaps, uint64_t from, uint64_t to)
{
    struct gap *gap = gaps->gap;
    size_t after;

    if (from == to)
        return;
    while (gap->to < to)
        gap++;
    after = (size_t)(&gaps->gap[gaps->count] - gap) - 1;
    if (gap->from == from && gap->to == to) {
        memmove(gap, gap + 1, after * sizeof(*gap));
        gaps->count--;
    } else if (gap->from == from) {
        gap->from = to;
    } else if (gap->to == to) {
        gap->to = from;
    } else {
        memmove(gap + 2, gap + 1, after * sizeof(*gap));
        gap[1] = (struct gap){to, gap->to};
        gap->to = from;
        if (++gaps->count > GAPS)
            forget_shortest(gaps);
    }
}

/* Of equal bytes. */
static int compare_boxes(const void *left, const void *right)
{
    const struct box *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->put < b->put ? -1 : 1;
}

static unsigned __int128 height_of(const struct rs_problem *problem,
                                   size_t put, uint64_t rate)
{
    unsigned __int128 ps = (unsigned __int128)problem->bytes[put] *
                           1000000000000u;

    return (ps + rate - 1) / rate + problem->costs.command;
}

uint64_t rs_boxes_height(const struct rs_problem *problem, size_t put,
                         uint64_t rate)
{
    return (uint64_t)height_of(problem, put, rate);
}

int rs_boxes_measure(const struct rs_problem *problem, size_t put,
                     uint64_t *sum)
{
    unsigned __int128 ps = height_of(problem, put, problem->slowest);

    if (ps + *sum > INT64_MAX)
        return rs_fail(RSCHED_ELIMIT, "the schedule takes longer than 2 "
                                      "hours");
    *sum += (uint64_t)ps;
    return 0;
}

static uint64_t place(struct packer *packer, uint32_t put, uint32_t engines,
                      struct rs_place *where)
{
    const struct rs_problem *problem = packer->problem;
    uint32_t number = problem->direction[put];
    bool colored = problem->directions[number].colored;
    const struct gaps *color = colored ? &packer->directions[number]
                                       : &always_free;
    uint64_t rate = 0, height = 0, end = 0;

    where->order = UINT64_MAX;
    for (uint32_t e = 0; e < engines; e++) {
        uint64_t start;

        if (rs_problem_rate(problem, e) != rate) {
            rate = rs_problem_rate(problem, e);
            height = rs_boxes_height(problem, put, rate);
            keep_long(color, height, &packer->kept);
        }
        start = find_gap(&packer->engines[e], &packer->kept, height,
                         where->order);
        if (start < where->order) {
            where->order = start;
            where->engine = e;
            end = start + height;
        }
    }
    take(&packer->engines[where->engine], where->order, end);
    if (colored)
        take(&packer->directions[number], where->order, end);
    return end;
}

static void sort_boxes(struct packer *packer, const struct rs_packing *packing)
{
    const struct rs_problem *problem = packer->problem;
    size_t run = 0; /* the first one of as many bytes as the last one */

    for (size_t i = 0; i < problem->num_puts; i++) {
        uint32_t put = problem->by_bytes[i];
        uint32_t direction = problem->direction[put];

        packer->boxes[i] = (struct box){
            put, packing->requested ? direction
                                    : problem->directions[direction].rank};
        if (problem->bytes[put] != problem->bytes[packer->boxes[run].put]) {
            qsort(&packer->boxes[run], i - run, sizeof(*packer->boxes),
                  compare_boxes);
            run = i;
        }
    }
    qsort(&packer->boxes[run], problem->num_puts - run, sizeof(*packer->boxes),
          compare_boxes);
}

static int pack(struct packer *packer, const struct rs_packing *packing,
                struct rs_place *places, uint64_t *box_makespan)
{
    const struct rs_problem *problem = packer->problem;
    uint32_t all = problem->costs.num_engines;
    uint32_t few = packing->diagonals < all ? packing->diagonals : all;
    uint64_t sum = problem->costs.engine_open * (packing->seeded ? all : 0);

    for (uint32_t e = 0; e < all; e++) {
        packer->engines[e] = always_free;
        if (packing->seeded)
            packer->engines[e].gap[0].from = e * problem->costs.engine_open;
    }
    for (size_t i = 0; i < problem->num_directions; i++)
        packer->directions[i] = always_free;
    sort_boxes(packer, packing);
    for (size_t i = 0; i < problem->num_puts; i++) {
        uint32_t put = packer->boxes[i].put;
        bool diagonal = problem->directions[problem->direction[put]].diagonal;
        uint64_t end;
        int error = rs_boxes_measure(problem, put, &sum);

        if (error != 0)
            return error;
        end = place(packer, put, diagonal ? few : all, &places[put]);
        *box_makespan = end > *box_makespan ? end : *box_makespan;
    }
    return 0;
}

int rs_boxes_pack(const struct rs_problem *problem,
                  const struct rs_packing *packing, struct rs_place *places,
                  uint64_t *box_makespan)
{
    struct packer packer = {
        .problem = problem,
        .engines = calloc(problem->costs.num_engines, sizeof(struct gaps)),
        .directions = calloc(problem->num_directions + 1, sizeof(struct gaps)),
        .boxes = calloc(problem->num_puts + 1, sizeof(struct box)),
    };
    int error;

    if (packer.engines == NULL || packer.directions == NULL ||
        packer.boxes == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan %zu puts",
                        problem->num_puts);
    else
        error = pack(&packer, packing, places, box_makespan);
    free(packer.boxes);
    free(packer.directions);
    free(packer.engines);
    return error;
}

int rs_plan_bottom_left(const struct rs_problem *problem,
                        const struct rs_planner *planner,
                        struct rs_place *places, struct rs_findings *findings)
{
    const struct rs_packing packing = {planner->engines, planner->seeded,
                                       false};

    return rs_boxes_pack(problem, &packing, places, &findings->box_makespan);
}
