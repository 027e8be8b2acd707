/* SPDX-License-Identifier: BSD-3-Clause */
/* Filling the skyline; see boxes.h. */
#include <stdlib.h>

#include "librsched/base/error.h"
#include "librsched/plan/boxes.h"

struct box {
    uint64_t height; /* on the fastest engine */
    uint32_t put;
};

struct skyline {
    const struct rs_problem *problem;
    struct box *boxes;   /* direction by direction, the longest first */
    size_t *next, *end;  /* per direction, in `boxes` */
    uint64_t *left;      /* per direction: heights of the boxes left */
    uint64_t *busy;      /* per direction: until when it is at work */
    uint64_t *top;       /* per engine */
    uint32_t engines;
};

static int sort_boxes(struct skyline *skyline)
{
    const struct rs_problem *problem = skyline->problem;
    uint64_t sum = problem->costs.engine_open * problem->costs.num_engines;

    for (uint32_t i = 0; i < problem->num_puts; i++) {
        int error = rs_boxes_measure(problem, i, &sum);

        if (error != 0)
            return error;
        skyline->end[problem->direction[i]]++;
    }
    for (size_t d = 1; d < problem->num_directions; d++)
        skyline->end[d] += skyline->end[d - 1];
    for (size_t i = problem->num_puts; i-- > 0;) {
        uint32_t put = problem->by_bytes[i];
        uint32_t direction = problem->direction[put];
        uint64_t height = rs_boxes_height(problem, put, problem->fastest);

        skyline->boxes[--skyline->end[direction]] = (struct box){height, put};
        skyline->left[direction] += height;
    }
    /* Where one direction begins the one before it ends. */
    for (size_t d = 0; d < problem->num_directions; d++) {
        skyline->next[d] = skyline->end[d];
        skyline->end[d] = d + 1 < problem->num_directions ? skyline->end[d + 1]
                                                          : problem->num_puts;
    }
    return 0;
}

/* The direction to take a box from at a time, or UINT32_MAX; then *until is
 * the first time at which a direction is through. */
static uint32_t choose(const struct skyline *skyline, enum rs_filling filling,
                       uint64_t now, uint64_t *until)
{
    uint32_t best = UINT32_MAX;
    uint64_t most = 0;

    *until = UINT64_MAX;
    for (uint32_t d = 0; d < skyline->problem->num_directions; d++) {
        uint64_t value;

        if (skyline->next[d] == skyline->end[d])
            continue;
        if (skyline->problem->directions[d].colored &&
            skyline->busy[d] > now) {
            *until = skyline->busy[d] < *until ? skyline->busy[d] : *until;
            continue;
        }
        value = filling == RS_FILL_LOAD
                    ? skyline->left[d]
                    : skyline->boxes[skyline->next[d]].height;
        if (best == UINT32_MAX || value > most) {
            best = d;
            most = value;
        }
    }
    return best;
}

static void fill(struct skyline *skyline, enum rs_filling filling,
                 struct rs_place *places)
{
    size_t placed = 0;

    while (placed < skyline->problem->num_puts) {
        uint32_t lowest = 0, direction;
        uint64_t until;
        const struct box *box;

        for (uint32_t e = 1; e < skyline->engines; e++)
            lowest = skyline->top[e] < skyline->top[lowest] ? e : lowest;
        direction = choose(skyline, filling, skyline->top[lowest], &until);
        if (direction == UINT32_MAX) {
            skyline->top[lowest] = until;
            continue;
        }
        box = &skyline->boxes[skyline->next[direction]++];
        places[box->put] = (struct rs_place){lowest, placed++};
        skyline->top[lowest] += rs_boxes_height(
            skyline->problem, box->put,
            rs_problem_rate(skyline->problem, lowest));
        skyline->busy[direction] = skyline->top[lowest];
        skyline->left[direction] -= box->height;
    }
}

int rs_boxes_fill(const struct rs_problem *problem, enum rs_filling filling,
                  uint32_t engines, struct rs_place *places)
{
    size_t directions = problem->num_directions + 1;
    struct skyline skyline = {
        .problem = problem,
        .boxes = calloc(problem->num_puts + 1, sizeof(*skyline.boxes)),
        .next = calloc(directions, sizeof(*skyline.next)),
        .end = calloc(directions, sizeof(*skyline.end)),
        .left = calloc(directions, sizeof(*skyline.left)),
        .busy = calloc(directions, sizeof(*skyline.busy)),
        .top = calloc(engines, sizeof(*skyline.top)),
        .engines = engines,
    };
    int error;

    if (skyline.boxes == NULL || skyline.next == NULL || skyline.end == NULL ||
        skyline.left == NULL || skyline.busy == NULL || skyline.top == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan %zu puts",
                        problem->num_puts);
    else
        error = sort_boxes(&skyline);
    if (error == 0) {
        for (uint32_t e = 0; e < engines; e++)
            skyline.top[e] = e * problem->costs.engine_open;
        fill(&skyline, filling, places);
    }
    free(skyline.boxes);
    free(skyline.next);
    free(skyline.end);
    free(skyline.left);
    free(skyline.busy);
    free(skyline.top);
    return error;
}
