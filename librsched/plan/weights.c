/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/weights.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/plan/alike.h"

typedef unsigned __int128 wide;

enum {
    ONE_BITS = 30,     /* of the fixed-point numbers */
    TINY = 1 << 14,    /* what counts as 0 */
    PIVOTS = 200,
    WEIGHT_BITS = 14,  /* of the largest weight */
};

static const int64_t ONE = INT64_C(1) << ONE_BITS;

/* ------------------------------------------------------------------ sets */

/* The sets are gone through twice: once to count them. */
struct walk {
    struct rs_sets *sets; /* counted only, while it has no `rates` */
    struct rs_stage *stage;
    uint32_t alike[RS_WEIGHTS_ENGINES];
    size_t least[RS_WEIGHTS_ENGINES]; /* per label: kinds of engines that are
                                         alike do not decrease */
};

static void add_set(struct walk *walk, uint32_t chosen)
{
    struct rs_sets *sets = walk->sets;

    if (sets->rates != NULL) {
        rs_stage_rates(walk->stage,
                       sets->rates + sets->count * (sets->num_classes + 1));
        sets->engines[sets->count] = (uint8_t)chosen;
    }
    sets->count++;
}

/* Add the sets that go on from this one, in which `chosen` engines below
 * `engine` are at work; of engines that are alike the first ones are, so none
 * with a label in `idle` follows. */
static void add_sets(struct walk *walk, uint32_t engine, uint32_t chosen,
                     uint32_t idle)
{
    const struct rs_sets *sets = walk->sets;

    add_set(walk, chosen);
    for (uint32_t e = engine; e < sets->script->num_engines; e++) {
        struct rs_actor *actor = &walk->stage->actors[e];
        uint32_t label = walk->alike[e];
        size_t least = walk->least[label];

        for (size_t k = least; (idle >> label & 1) == 0 &&
                               k <= sets->num_classes &&
                               sets->count <= RS_WEIGHTS_SETS; k++) {
            actor->cls = (uint32_t)k;
            actor->phase = k < sets->num_classes ? RS_FLOWS : RS_COMMAND;
            walk->least[label] = k;
            add_sets(walk, e + 1, chosen + 1, idle);
        }
        walk->least[label] = least;
        actor->phase = RS_CLOSED;
        idle |= UINT32_C(1) << label;
    }
}

static void walk_sets(struct walk *walk)
{
    walk->sets->count = 0;
    rs_stage_begin(walk->stage, walk->sets->script->num_engines);
    for (uint32_t e = 0; e < walk->sets->script->num_engines; e++)
        rs_stage_close(walk->stage, e);
    add_sets(walk, 0, 0, 0);
}

int rs_sets_init(struct rs_sets *sets, struct rs_script *script)
{
    struct walk walk = {.sets = sets};
    int error = 0;

    *sets = (struct rs_sets){.script = script,
                             .num_classes = script->num_classes};
    if (script->num_classes > RS_WEIGHTS_CLASSES ||
        script->num_engines > RS_WEIGHTS_ENGINES)
        return RSCHED_ELIMIT; /* the caller knows what to do without */
    walk.stage = rs_stage_create(script);
    if (walk.stage == NULL)
        return RSCHED_ENOMEM;
    rs_alike_find(script, walk.alike);
    walk_sets(&walk);
    if (sets->count > RS_WEIGHTS_SETS) {
        error = RSCHED_ELIMIT;
    } else {
        sets->rates = calloc(sets->count * (script->num_classes + 1),
                             sizeof(uint64_t));
        sets->engines = calloc(sets->count, sizeof(*sets->engines));
        if (sets->rates == NULL || sets->engines == NULL)
            error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
        else
            walk_sets(&walk);
    }
    free(walk.stage);
    if (error != 0)
        rs_sets_fini(sets);
    return error;
}

void rs_sets_fini(struct rs_sets *sets)
{
    free(sets->rates);
    free(sets->engines);
    memset(sets, 0, sizeof(*sets));
}

/* --------------------------------------------------------------- simplex */

/* Maximise goal * x with rows * x <= 1 and x >= 0. The tableau has a row for
 * every set and the goal as the last one; column `columns` is the right-hand
 * side. */
struct tableau {
    int64_t *cell;
    size_t rows, columns;
    size_t *basic; /* per row: what it stands for; below `columns`: an x */
    size_t *other; /* per column, likewise */
};

static int64_t *cell(const struct tableau *t, size_t row, size_t column)
{
    return &t->cell[row * (t->columns + 1) + column];
}

static int64_t times(int64_t a, int64_t b)
{
    return (int64_t)(((__int128)a * b) >> ONE_BITS);
}

/* Wraps: numbers that have run away make bad weights, and nothing worse. */
static int64_t minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* The column that promises most, or `columns`. */
static size_t find_column(const struct tableau *t)
{
    size_t best = t->columns;
    int64_t most = TINY;

    for (size_t c = 0; c < t->columns; c++) {
        if (*cell(t, t->rows, c) > most) {
            most = *cell(t, t->rows, c);
            best = c;
        }
    }
    return best;
}

/* The row that binds first, or `rows`. */
static size_t find_row(const struct tableau *t, size_t column)
{
    size_t best = t->rows;

    for (size_t r = 0; r < t->rows; r++) {
        int64_t a = *cell(t, r, column);

        if (a <= TINY)
            continue;
        if (best == t->rows ||
            (__int128)*cell(t, r, t->columns) * *cell(t, best, column) <
                (__int128)*cell(t, best, t->columns) * a)
            best = r;
    }
    return best;
}

static void pivot(struct tableau *t, size_t row, size_t column)
{
    int64_t inverse = (int64_t)(((__int128)ONE * ONE) / *cell(t, row, column));
    size_t name = t->basic[row];

    for (size_t c = 0; c <= t->columns; c++)
        *cell(t, row, c) = times(*cell(t, row, c), inverse);
    *cell(t, row, column) = inverse;
    for (size_t r = 0; r <= t->rows; r++) {
        int64_t factor = *cell(t, r, column);

        if (r == row || factor == 0)
            continue;
        *cell(t, r, column) = 0;
        for (size_t c = 0; c <= t->columns; c++)
            *cell(t, r, c) = minus(*cell(t, r, c),
                                   times(factor, *cell(t, row, c)));
    }
    t->basic[row] = t->other[column];
    t->other[column] = name;
}

static void maximise(struct tableau *t)
{
    for (int i = 0; i < PIVOTS; i++) {
        size_t column = find_column(t), row;

        if (column == t->columns)
            return;
        row = find_row(t, column);
        if (row == t->rows)
            return;
        pivot(t, row, column);
    }
}

static void fill(struct tableau *t, const struct rs_sets *sets,
                 const uint64_t *left)
{
    uint64_t most = 1;

    for (size_t c = 0; c < t->columns; c++)
        most = left[c] > most ? left[c] : most;
    for (size_t r = 0; r < t->rows; r++) {
        for (size_t c = 0; c < t->columns; c++)
            *cell(t, r, c) =
                (int64_t)(((wide)sets->rates[r * t->columns + c]
                           << ONE_BITS) / sets->script->cap);
        *cell(t, r, t->columns) = ONE;
        t->basic[r] = t->columns + r;
    }
    for (size_t c = 0; c < t->columns; c++) {
        *cell(t, t->rows, c) =
            (int64_t)(((wide)left[c] << ONE_BITS) / most);
        t->other[c] = c;
    }
}

/* --------------------------------------------------------------- weights */

static void work_out_most(const struct rs_sets *sets,
                          struct rs_weights *weights)
{
    size_t kinds = sets->num_classes + 1;

    memset(weights->most, 0, sizeof(weights->most));
    for (size_t i = 0; i < sets->count; i++) {
        wide sum = 0;

        for (size_t k = 0; k < kinds; k++)
            sum += (wide)weights->weight[k] * sets->rates[i * kinds + k];
        if (sum > weights->most[sets->engines[i]])
            weights->most[sets->engines[i]] = sum;
    }
    for (size_t e = 1; e <= RS_WEIGHTS_ENGINES; e++) {
        if (weights->most[e] < weights->most[e - 1])
            weights->most[e] = weights->most[e - 1];
    }
}

static void read_weights(const struct tableau *t, struct rs_weights *weights)
{
    uint64_t value[RS_WEIGHTS_CLASSES + 1] = {0}, most = 1;

    for (size_t r = 0; r < t->rows; r++) {
        int64_t x = *cell(t, r, t->columns);

        if (t->basic[r] >= t->columns || x < 0 || x > ONE)
            continue;
        value[t->basic[r]] = (uint64_t)x;
        most = (uint64_t)x > most ? (uint64_t)x : most;
    }
    for (size_t c = 0; c < t->columns; c++)
        weights->weight[c] = ((value[c] << WEIGHT_BITS) + most / 2) / most;
}

int rs_weights_find(const struct rs_sets *sets, const uint64_t *left,
                    struct rs_weights *weights)
{
    struct tableau t = {.rows = sets->count, .columns = sets->num_classes + 1};
    int error = 0;

    t.cell = calloc((t.rows + 1) * (t.columns + 1), sizeof(*t.cell));
    t.basic = calloc(t.rows, sizeof(*t.basic));
    t.other = calloc(t.columns, sizeof(*t.other));
    if (t.cell == NULL || t.basic == NULL || t.other == NULL) {
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
    } else {
        fill(&t, sets, left);
        maximise(&t);
        memset(weights, 0, sizeof(*weights));
        read_weights(&t, weights);
        work_out_most(sets, weights);
    }
    free(t.cell);
    free(t.basic);
    free(t.other);
    return error;
}

void rs_weights_plain(const struct rs_script *script,
                      struct rs_weights *weights)
{
    const struct rs_problem *problem = script->problem;
    wide ceiling = problem->node >= 0
                       ? (wide)problem->capacity[problem->node]
                             << RS_STAGE_RATE_BITS
                       : (wide)-1 >> 2;
    uint64_t steps[RS_WEIGHTS_ENGINES];
    wide last, rate = 0;

    memset(weights, 0, sizeof(*weights));
    rs_problem_steps(problem, steps);
    for (size_t c = 0; c < script->num_classes; c++)
        weights->weight[c] = UINT64_C(1) << WEIGHT_BITS;
    for (size_t e = 1; e <= script->num_engines; e++) {
        rate += (wide)steps[e - 1] << RS_STAGE_RATE_BITS;
        weights->most[e] = (rate < ceiling ? rate : ceiling) << WEIGHT_BITS;
    }
    last = weights->most[script->num_engines] -
           weights->most[script->num_engines - 1];
    weights->weight[script->num_classes] = (uint64_t)(last / script->cap);
}
