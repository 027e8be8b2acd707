/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/search.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

enum {
    LATE = 100,
    SLACK_PERCENT = 8, /* what the first step may lose */
    TRIES = 8,         /* to draw two puts that differ */
};

/* All queues in one row: put ids, and a bar (a number from the number of puts
 * on) between two engines. */
struct climber {
    const struct rs_problem *problem;
    struct rs_stage *stage;
    uint64_t random;
    uint32_t *row, *trial, *best;
    size_t length;    /* of a row */
    size_t *queues;   /* of the trial */
    uint32_t *order;
    uint64_t late[LATE];
};

/* From 0 to below `limit` (xorshift64*). */
static size_t draw(struct climber *climber, size_t limit)
{
    uint64_t *r = &climber->random;

    *r ^= *r >> 12;
    *r ^= *r << 25;
    *r ^= *r >> 27;
    return (*r * UINT64_C(2685821657736338717) >> 32) * limit >> 32;
}

static size_t draw_put(struct climber *climber)
{
    for (;;) {
        size_t at = draw(climber, climber->length);

        if (climber->row[at] < climber->problem->num_puts)
            return at;
    }
}

/* Take a put out and put it in somewhere else. */
static void relocate(struct climber *climber)
{
    size_t from = draw_put(climber);
    size_t to = draw(climber, climber->length);
    uint32_t put = climber->row[from];
    uint32_t *row = climber->trial;

    memcpy(row, climber->row, climber->length * sizeof(*row));
    if (from < to)
        memmove(row + from, row + from + 1, (to - from) * sizeof(*row));
    else
        memmove(row + to + 1, row + to, (from - to) * sizeof(*row));
    row[to] = put;
}

static bool differ(const struct rs_problem *problem, uint32_t a, uint32_t b)
{
    return problem->bytes[a] != problem->bytes[b] ||
           problem->direction[a] != problem->direction[b];
}

/* Exchange two puts. */
static void swap(struct climber *climber)
{
    size_t a = draw_put(climber), b = draw_put(climber);
    uint32_t *row = climber->trial;

    for (int i = 1; i < TRIES && !differ(climber->problem, climber->row[a],
                                         climber->row[b]); i++)
        b = draw_put(climber);
    memcpy(row, climber->row, climber->length * sizeof(*row));
    row[a] = climber->row[b];
    row[b] = climber->row[a];
}

static void write_row(const struct climber *climber, const size_t *queues,
                      const uint32_t *order)
{
    uint32_t *row = climber->row, bar = (uint32_t)climber->problem->num_puts;
    size_t engine = 0;

    for (size_t i = 0; i < climber->problem->num_puts; i++) {
        for (; i == queues[engine + 1]; engine++)
            *row++ = bar++;
        *row++ = order[i];
    }
    while (row < climber->row + climber->length)
        *row++ = bar++;
}

static void read_row(const struct climber *climber, const uint32_t *row,
                     size_t *queues, uint32_t *order)
{
    size_t engine = 0, next = 0;

    queues[0] = 0;
    for (size_t i = 0; i < climber->length; i++) {
        if (row[i] < climber->problem->num_puts)
            order[next++] = row[i];
        else
            queues[++engine] = next;
    }
    while (engine < climber->problem->costs.num_engines)
        queues[++engine] = next;
}

static void climb(struct climber *climber, const struct rs_search *search,
                  uint64_t *makespan)
{
    uint64_t now = *makespan;

    for (uint64_t i = 0; i < LATE; i++)
        climber->late[i] =
            now + now / 100 * SLACK_PERCENT * (LATE - 1 - i) / LATE;
    for (uint32_t step = 0; step < search->steps; step++) {
        uint64_t *late = &climber->late[step % LATE];
        uint64_t limit = *late > now ? *late : now, value;

        if (draw(climber, 3) < 2)
            relocate(climber);
        else
            swap(climber);
        read_row(climber, climber->trial, climber->queues, climber->order);
        value = rs_stage_play(climber->stage, climber->queues, climber->order,
                              limit);
        if (value <= limit) {
            uint32_t *row = climber->row;

            climber->row = climber->trial;
            climber->trial = row;
            now = value;
        }
        *late = now < *late ? now : *late;
        if (value < *makespan) {
            *makespan = value;
            memcpy(climber->best, climber->row,
                   climber->length * sizeof(*climber->best));
            if (value <= search->enough)
                return;
        }
    }
}

static int start(struct climber *climber, const struct rs_search *search,
                 size_t *queues, uint32_t *order, uint64_t *makespan)
{
    uint64_t before = *makespan;

    write_row(climber, queues, order);
    climb(climber, search, makespan);
    if (*makespan < before)
        read_row(climber, climber->best, queues, order);
    return 0;
}

int rs_search_run(const struct rs_search *search, struct rs_stage *stage,
                  size_t *queues, uint32_t *order, uint64_t *makespan)
{
    const struct rs_problem *problem = stage->script->problem;
    size_t engines = problem->costs.num_engines;
    size_t used = engines < problem->num_puts || problem->num_rails > 1
                      ? engines
                      : problem->num_puts;
    size_t length = problem->num_puts + used;
    struct climber climber = {
        .problem = problem,
        .stage = stage,
        .random = search->seed,
        .row = calloc(length, sizeof(uint32_t)),
        .trial = calloc(length, sizeof(uint32_t)),
        .best = calloc(length, sizeof(uint32_t)),
        .length = length - 1,
        .queues = calloc(engines + 1, sizeof(size_t)),
        .order = calloc(length, sizeof(uint32_t)),
    };
    int error = 0;

    if (problem->num_puts == 0)
        goto out;
    if (climber.row == NULL || climber.trial == NULL || climber.best == NULL ||
        climber.queues == NULL || climber.order == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
    else
        error = start(&climber, search, queues, order, makespan);
out:
    free(climber.row);
    free(climber.trial);
    free(climber.best);
    free(climber.queues);
    free(climber.order);
    return error;
}
