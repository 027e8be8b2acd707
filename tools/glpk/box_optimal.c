/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A packing of boxes over engines, the shortest up to the slots of time, as a
 * time-indexed mixed integer program. See README.md for input and output, and for
 * the licence of the executable.
 *
 * Time is cut into slots. x[kind, t] boxes of a kind start in slot t:
 *
 *   sum over t of x[kind, t] = how many there are
 *   in every slot: boxes at work <= engines that are open
 *   in every slot and color: boxes at work <= 1
 *
 * Engines are not told apart, so the program has no symmetry in them; they are
 * assigned afterwards, each box to any one that is free. Whether a horizon of H
 * slots is enough is asked for growing H. With heights and openings rounded up
 * to slots the answer is a packing. With both rounded down it is a bound: a
 * packing whose starts are rounded down to slots is feasible for it. A packing by
 * a list of the boxes, highest first, stands in where none is found in time.
 *
 * Each question is answered by a process of its own, which a timer ends: GLPK
 * looks at its limit of time only now and then.
 */
#include <errno.h>
#include <glpk.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    KINDS = 64,
    BOXES = 512,
    ENGINES = 1024,
    SLOTS = 2000,
    LIMIT_MS = 60000,         /* for all, unless the input says it */
    LIMIT_MOST_MS = 86400000, /* a day */
    HORIZONS = 40,            /* tried above the first one */
};

struct kind {
    int64_t color;
    uint64_t height;
    int count;
};

struct input {
    uint64_t engines, open, slots, limit; /* limit: ms */
    struct kind kinds[KINDS];
    int num_kinds, num_boxes;
    uint64_t slot; /* ps */
};

struct place {
    int kind, slot; /* slot: where it stands in the order, too */
    uint64_t engine, start;
};

static int fail(int status, const char *text)
{
    fprintf(stderr, "rsched-box-optimal: %s\n", text);
    return status;
}

/* ----------------------------------------------------------------- input */

static bool read_kind(struct input *input, const char *line)
{
    struct kind kind;
    int end = 0;

    if (sscanf(line, "box %" SCNd64 " %" SCNu64 " %d\n%n", &kind.color,
               &kind.height, &kind.count, &end) != 3 || line[end] != '\0' ||
        kind.color < -1 || kind.height == 0 ||
        kind.height > UINT64_MAX / (4 * BOXES) || kind.count < 1 ||
        kind.count > BOXES - input->num_boxes || input->num_kinds == KINDS)
        return false;
    input->kinds[input->num_kinds++] = kind;
    input->num_boxes += kind.count;
    return true;
}

static bool read_number(const char *line, const char *name, uint64_t *number)
{
    size_t length = strlen(name);
    int end = 0;

    return strncmp(line, name, length) == 0 &&
           sscanf(line + length, " %" SCNu64 "\n%n", number, &end) == 1 &&
           line[length + (size_t)end] == '\0';
}

static bool read_input(struct input *input)
{
    char line[256];
    uint64_t format = 0;

    input->limit = LIMIT_MS;
    if (fgets(line, sizeof(line), stdin) == NULL ||
        !read_number(line, "boxes", &format) || format != 1)
        return false;
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strcmp(line, "end\n") == 0)
            return input->num_kinds > 0 && input->engines >= 1 &&
                   input->engines <= ENGINES && input->slots >= 1 &&
                   input->slots <= SLOTS / 4 &&
                   input->limit <= LIMIT_MOST_MS &&
                   input->open <= UINT64_MAX / (4 * ENGINES);
        if (!read_number(line, "engines", &input->engines) &&
            !read_number(line, "open", &input->open) &&
            !read_number(line, "slots", &input->slots) &&
            !read_number(line, "limit", &input->limit) &&
            !read_kind(input, line))
            return false;
    }
    return false;
}

/* What every packing takes: its colors, its engines, its highest box. */
static uint64_t trivial_bound(const struct input *input)
{
    uint64_t bound = 0, sum = 0, least = UINT64_MAX;

    for (int k = 0; k < input->num_kinds; k++) {
        const struct kind *kind = &input->kinds[k];
        uint64_t color = 0;

        for (int i = 0; i < input->num_kinds; i++) {
            if (kind->color >= 0 && input->kinds[i].color == kind->color)
                color += input->kinds[i].height *
                         (uint64_t)input->kinds[i].count;
        }
        sum += kind->height * (uint64_t)kind->count;
        color = color > kind->height ? color : kind->height;
        bound = color > bound ? color : bound;
    }
    /* The boxes on m engines, which open late: the least over m. */
    for (uint64_t m = 1; m <= input->engines; m++) {
        uint64_t share = (sum + input->open * (m * (m - 1) / 2)) / m;

        least = share < least ? share : least;
    }
    return bound > least ? bound : least;
}

/* --------------------------------------------------------------- program */

static int slots_of(const struct input *input, uint64_t time, bool up)
{
    return (int)((time + (up ? input->slot - 1 : 0)) / input->slot);
}

/* The column of x[kind, slot]: all kinds have `horizon` columns, of which those
 * that start too late stay at 0. */
static int column_of(int kind, int slot, int horizon)
{
    return kind * horizon + slot + 1;
}

static void bound_columns(glp_prob *lp, const struct input *input, int horizon,
                          bool up)
{
    glp_add_cols(lp, input->num_kinds * horizon);
    for (int k = 0; k < input->num_kinds; k++) {
        int length = slots_of(input, input->kinds[k].height, up);

        for (int t = 0; t < horizon; t++) {
            int column = column_of(k, t, horizon);

            glp_set_col_kind(lp, column, GLP_IV);
            if (t + length > horizon)
                glp_set_col_bnds(lp, column, GLP_FX, 0, 0);
            else
                glp_set_col_bnds(lp, column, GLP_DB, 0,
                                 input->kinds[k].count);
        }
    }
}

/* A row over the boxes that are at work in a slot: those of one kind, or, when
 * `kind` is -1, all. Adds to the `count` entries. */
static int at_work(const struct input *input, int horizon, bool up, int kind,
                   int slot, int *index, double *value, int count)
{
    int length = slots_of(input, input->kinds[kind].height, up);
    int first = slot - length + 1 > 0 ? slot - length + 1 : 0;

    for (int t = first; t <= slot; t++) {
        index[++count] = column_of(kind, t, horizon);
        value[count] = 1;
    }
    return count;
}

static void add_row(glp_prob *lp, int kind, double bound, int count,
                    const int *index, const double *value)
{
    int row;

    if (count == 0)
        return;
    row = glp_add_rows(lp, 1);
    glp_set_row_bnds(lp, row, kind, bound, bound);
    glp_set_mat_row(lp, row, count, index, value);
}

static void add_rows(glp_prob *lp, const struct input *input, int horizon,
                     bool up, int *index, double *value)
{
    for (int k = 0; k < input->num_kinds; k++) {
        int count = 0;

        for (int t = 0; t < horizon; t++) {
            index[++count] = column_of(k, t, horizon);
            value[count] = 1;
        }
        add_row(lp, GLP_FX, input->kinds[k].count, count, index, value);
    }
    for (int t = 0; t < horizon; t++) {
        uint64_t open = 0;
        int count = 0;

        while (open < input->engines &&
               slots_of(input, open * input->open, up) <= t)
            open++;
        for (int k = 0; k < input->num_kinds; k++)
            count = at_work(input, horizon, up, k, t, index, value, count);
        add_row(lp, GLP_UP, (double)open, count, index, value);
        for (int k = 0; k < input->num_kinds; k++) {
            bool first = input->kinds[k].color >= 0;

            for (int i = 0; i < k; i++)
                first = first && input->kinds[i].color !=
                                     input->kinds[k].color;
            count = 0;
            for (int i = k; first && i < input->num_kinds; i++) {
                if (input->kinds[i].color == input->kinds[k].color)
                    count = at_work(input, horizon, up, i, t, index, value,
                                    count);
            }
            add_row(lp, GLP_UP, 1, count, index, value);
        }
    }
}

enum answer { NO, YES, UNKNOWN };

/* Whether all boxes go into `horizon` slots; `starts` per column if they do. */
static enum answer solve(const struct input *input, int horizon, bool up,
                         int *starts)
{
    int columns = input->num_kinds * horizon;
    int *index = calloc((size_t)columns + 1, sizeof(*index));
    double *value = calloc((size_t)columns + 1, sizeof(*value));
    glp_prob *lp = glp_create_prob();
    enum answer answer = UNKNOWN;
    glp_iocp options;
    int error;

    glp_init_iocp(&options);
    options.presolve = GLP_ON;
    options.gmi_cuts = options.mir_cuts = options.cov_cuts =
        options.clq_cuts = GLP_ON;
    options.msg_lev = GLP_MSG_OFF;
    if (index == NULL || value == NULL) {
        error = GLP_EFAIL;
    } else {
        bound_columns(lp, input, horizon, up);
        add_rows(lp, input, horizon, up, index, value);
        error = glp_intopt(lp, &options);
    }
    if (error == GLP_ENOPFS || error == GLP_ENODFS ||
        (error == 0 && glp_mip_status(lp) == GLP_NOFEAS))
        answer = NO;
    else if (error == 0 && (glp_mip_status(lp) == GLP_OPT ||
                            glp_mip_status(lp) == GLP_FEAS))
        answer = YES;
    for (int c = 0; answer == YES && c < columns; c++)
        starts[c] = (int)(glp_mip_col_val(lp, c + 1) + 0.5);
    glp_delete_prob(lp);
    free(index);
    free(value);
    return answer;
}

static void set_timer(uint64_t ms)
{
    const struct itimerval timer = {
        .it_value = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000) * 1000}};
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* The same within `ms`, else UNKNOWN. */
static enum answer solve_in(const struct input *input, int horizon, bool up,
                            uint64_t ms, int *starts)
{
    pid_t child = ms > 0 ? fork() : -1;
    int status;

    if (child < 0)
        return UNKNOWN;
    if (child == 0) {
        set_timer(ms);
        _exit(solve(input, horizon, up, starts));
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return UNKNOWN;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) <= UNKNOWN
               ? (enum answer)WEXITSTATUS(status)
               : UNKNOWN;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* What is left until `end`, ms. */
static uint64_t left_until(uint64_t end)
{
    uint64_t now = now_ms();

    return end > now ? end - now : 0;
}

/* ---------------------------------------------------------------- answers */

/* The bound, ps: below it the program with everything rounded down has no
 * solution. */
static uint64_t find_lower(const struct input *input, uint64_t trivial,
                           uint64_t end, int *starts, bool *limited)
{
    int horizon = slots_of(input, trivial, false);
    enum answer answer = NO;

    if (horizon == 0)
        return trivial;
    while (horizon < SLOTS) {
        answer = solve_in(input, horizon, false, left_until(end), starts);
        if (answer != NO)
            break;
        horizon++;
    }
    *limited |= answer == UNKNOWN;
    return (uint64_t)horizon * input->slot > trivial
               ? (uint64_t)horizon * input->slot
               : trivial;
}

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return (a->kind > b->kind) - (a->kind < b->kind);
}

/* Boxes in the order of their slots, each on the engine that is free first and
 * as early as its color allows: never later than its slot. Returns the
 * height. */
static uint64_t assign(const struct input *input, struct place *places)
{
    static uint64_t free_from[ENGINES];
    uint64_t height = 0;

    qsort(places, (size_t)input->num_boxes, sizeof(*places), compare_places);
    for (uint64_t e = 0; e < input->engines; e++)
        free_from[e] = e * input->open;
    for (int i = 0; i < input->num_boxes; i++) {
        const struct kind *kind = &input->kinds[places[i].kind];
        uint64_t engine = 0, start;

        for (uint64_t e = 1; e < input->engines; e++)
            engine = free_from[e] < free_from[engine] ? e : engine;
        start = free_from[engine];
        for (int j = 0; j < i && kind->color >= 0; j++) {
            const struct kind *before = &input->kinds[places[j].kind];

            if (before->color == kind->color &&
                places[j].start + before->height > start)
                start = places[j].start + before->height;
        }
        places[i].engine = engine;
        places[i].start = start;
        free_from[engine] = start + kind->height;
        height = free_from[engine] > height ? free_from[engine] : height;
    }
    return height;
}

/* A packing without a search: the highest boxes first. Returns its height. */
static uint64_t pack_list(const struct input *input, struct place *places)
{
    bool listed[KINDS] = {false};
    int next = 0;

    for (int rank = 0; rank < input->num_kinds; rank++) {
        int highest = -1;

        for (int k = 0; k < input->num_kinds; k++) {
            if (!listed[k] && (highest < 0 || input->kinds[k].height >
                                                  input->kinds[highest].height))
                highest = k;
        }
        listed[highest] = true;
        for (int i = 0; i < input->kinds[highest].count; i++)
            places[next++] = (struct place){highest, rank, 0, 0};
    }
    return assign(input, places);
}

/* The packing that a solution is. Returns its height. */
static uint64_t pack_starts(const struct input *input, int horizon,
                            const int *starts, struct place *places)
{
    int next = 0;

    for (int k = 0; k < input->num_kinds; k++) {
        for (int t = 0; t < horizon; t++) {
            for (int i = starts[column_of(k, t, horizon) - 1];
                 i > 0 && next < input->num_boxes; i--)
                places[next++] = (struct place){k, t, 0, 0};
        }
    }
    return next == input->num_boxes ? assign(input, places) : UINT64_MAX;
}

/* A packing. Returns its height. */
static uint64_t find_upper(const struct input *input, uint64_t lower,
                           uint64_t end, int *starts, struct place *places,
                           bool *limited)
{
    static struct place found[BOXES];
    int first = slots_of(input, lower, true);
    uint64_t upper = pack_list(input, places), height = UINT64_MAX;

    /* A quarter of what is left, since later horizons are the easier ones. */
    for (int horizon = first;
         horizon < first + HORIZONS && horizon <= SLOTS &&
         (uint64_t)(horizon - 1) * input->slot < upper;
         horizon++) {
        enum answer answer = solve_in(input, horizon, true,
                                      left_until(end) / 4, starts);

        if (answer == YES)
            height = pack_starts(input, horizon, starts, found);
        *limited |= answer == UNKNOWN;
        if (answer == YES)
            break;
    }
    if (height >= upper)
        return upper;
    memcpy(places, found, sizeof(found));
    return height;
}

/* For the columns of every horizon, shared with the processes that solve. */
static int *share_starts(void)
{
    void *starts = mmap(NULL, sizeof(int) * KINDS * SLOTS,
                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                        0);

    return starts == MAP_FAILED ? NULL : starts;
}

int main(void)
{
    static struct input input;
    static struct place places[BOXES];
    uint64_t trivial, lower, upper, begin = now_ms();
    bool limited = false;
    int *starts = share_starts();

    if (!read_input(&input))
        return fail(2, "bad input (tools/glpk/README.md says what is good)");
    if (starts == NULL)
        return fail(1, "no memory");
    glp_term_out(GLP_OFF);
    trivial = trivial_bound(&input);
    input.slot = (trivial + input.slots - 1) / input.slots;
    lower = find_lower(&input, trivial, begin + input.limit / 2, starts,
                       &limited);
    upper = find_upper(&input, lower, begin + input.limit, starts, places,
                       &limited);
    printf("lower %" PRIu64 "\nupper %" PRIu64 "\nlimited %d\n", lower, upper,
           limited);
    for (int i = 0; i < input.num_boxes; i++)
        printf("place %d %" PRIu64 " %" PRIu64 "\n", places[i].kind,
               places[i].engine, places[i].start);
    return fflush(stdout) != 0 ? fail(1, strerror(errno)) : 0;
}
