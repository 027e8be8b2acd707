/* SPDX-License-Identifier: BSD-3-Clause */
/* --scheduler box-optimal: a packing of the paper's boxes, the shortest up to
 * slots of time, found by rsched-box-optimal, a process of its own next to this
 * executable (GLPK is under another licence). tools/glpk/README.md has what is
 * written and read. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "librsched/base/error.h"
#include "librsched/plan/boxes.h"
#include "librsched/plan/schedule.h"
#include "models/machine.h"
#include "tools/progress.h"
#include "tools/tool.h"

/* KINDS and BOXES are the most that the solver takes. */
enum { SLOTS = 70, PATH = 4096, KINDS = 64, BOXES = 512 };
#define HEIGHT_MOST (UINT64_MAX / (4 * BOXES))

/* Of puts without a box: they take no time. */
#define NO_KIND UINT32_MAX

extern char **environ;

/* Boxes of one color and height. */
struct kind {
    int64_t color;
    uint64_t height;
    uint32_t count, placed;
};

struct packing {
    struct rs_problem problem;
    struct kind *kinds;
    uint32_t *kind_of; /* of each put, or NO_KIND */
    size_t num_kinds, num_boxes;
    uint32_t *engines, *positions; /* per put */
    uint64_t *starts;              /* per put, ps */
    uint64_t lower, upper;         /* of the height, ps */
    uint64_t seconds;              /* that the solver may take */
    bool limited;                  /* it wanted more of them */
};

static int find_kinds(struct packing *packing)
{
    const struct rs_problem *problem = &packing->problem;
    uint64_t sum = 0;

    for (size_t i = 0; i < problem->num_puts; i++) {
        uint32_t direction = problem->direction[i];
        int64_t color = problem->directions[direction].colored
                            ? (int64_t)direction
                            : -1;
        uint64_t height;
        size_t k = 0;
        int error = rs_boxes_measure(problem, i, &sum);

        if (error != 0)
            return error;
        height = rs_boxes_height(problem, i, problem->fastest);
        if (height == 0) {
            packing->kind_of[i] = NO_KIND;
            continue;
        }
        if (height > HEIGHT_MOST)
            return rs_fail(RSCHED_ELIMIT, TOOL_BOXES ": put %zu takes longer "
                           "than 2 hours", i);
        while (k < packing->num_kinds && (packing->kinds[k].color != color ||
                                          packing->kinds[k].height != height))
            k++;
        if (k == packing->num_kinds)
            packing->kinds[packing->num_kinds++] =
                (struct kind){color, height, 0, 0};
        packing->kinds[k].count++;
        packing->kind_of[i] = (uint32_t)k;
        if (packing->num_kinds > KINDS)
            return rs_fail(RSCHED_ELIMIT, TOOL_BOXES ": more than %d kinds of "
                           "puts, by direction and size", KINDS);
        if (++packing->num_boxes > BOXES)
            return rs_fail(RSCHED_ELIMIT, TOOL_BOXES ": more than %d puts",
                           BOXES);
    }
    return 0;
}

static int write_boxes(const struct packing *packing, FILE *out)
{
    fprintf(out, "boxes 1\nengines %" PRIu32 "\nopen %" PRIu64 "\nslots %d\n"
            "limit %" PRIu64 "\n", packing->problem.costs.num_engines,
            packing->problem.costs.engine_open, SLOTS, 1000 * packing->seconds);
    for (size_t k = 0; k < packing->num_kinds; k++)
        fprintf(out, "box %" PRId64 " %" PRIu64 " %" PRIu32 "\n",
                packing->kinds[k].color, packing->kinds[k].height,
                packing->kinds[k].count);
    fputs("end\n", out);
    rewind(out);
    return ferror(out) ? rs_fail(RSCHED_ESYS, "box-optimal: %m") : 0;
}

/* The path of the solver: in the folder of this executable. */
static int find_solver(char *path)
{
    static const char name[] = "rsched-box-optimal";
    ssize_t length = readlink("/proc/self/exe", path, PATH - sizeof(name) - 1);
    char *end;

    if (length < 0)
        return rs_fail(RSCHED_ESYS, "box-optimal: /proc/self/exe: %m");
    path[length] = '\0';
    end = strrchr(path, '/');
    strcpy(end == NULL ? path : end + 1, name);
    if (access(path, X_OK) != 0)
        return rs_fail(RSCHED_ENOTSUP, "box-optimal: no %s (it is built where "
                       "GLPK is)", path);
    return 0;
}

/* Wait for it; on a terminal say how far it is. @return as waitpid() */
static pid_t await(pid_t child, uint64_t seconds, int *status)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    struct tool_progress progress;
    pid_t ended;

    tool_progress_begin(&progress, TOOL_BOXES);
    while ((ended = waitpid(child, status, progress.tell ? WNOHANG : 0)) == 0 ||
           (ended < 0 && errno == EINTR)) {
        tool_progress_tell(&progress, "%s: %llu of at most %" PRIu64 " s",
                           progress.what, tool_progress_seconds(&progress),
                           seconds);
        if (ended == 0)
            nanosleep(&pause, NULL);
    }
    tool_progress_end(&progress);
    return ended;
}

/* Run the solver; its output is in *out, rewound. */
static int run_solver(FILE *in, FILE *out, uint64_t seconds)
{
    char path[PATH], *arguments[] = {path, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status, error = find_solver(path);

    if (error != 0)
        return error;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return rs_fail(RSCHED_ENOMEM, "box-optimal: no memory");
    posix_spawn_file_actions_adddup2(&actions, fileno(in), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
    /* What it says there is said again below. */
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
                                     O_WRONLY, 0);
    errno = posix_spawn(&child, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (errno != 0)
        return rs_fail(RSCHED_ESYS, "%s: %m", path);
    if (await(child, seconds, &status) < 0)
        return rs_fail(RSCHED_ESYS, "%s: %m", path);
    if (status != 0)
        return rs_fail(RSCHED_ESYS, TOOL_BOXES ": %s failed", path);
    rewind(out);
    return 0;
}

/* A box of a kind: the next put of that kind has it. */
static bool place(struct packing *packing, uint64_t kind, uint64_t engine,
                  uint64_t start)
{
    uint32_t skip;

    if (kind >= packing->num_kinds ||
        engine >= packing->problem.costs.num_engines ||
        packing->kinds[kind].placed == packing->kinds[kind].count)
        return false;
    skip = packing->kinds[kind].placed++;
    for (size_t i = 0; i < packing->problem.num_puts; i++) {
        if (packing->kind_of[i] != kind || skip-- > 0)
            continue;
        packing->engines[i] = (uint32_t)engine;
        packing->starts[i] = start;
        return true;
    }
    return false;
}

static int read_packing(struct packing *packing, FILE *in)
{
    uint64_t kind, engine, start;
    size_t placed = 0;
    int limited;

    if (fscanf(in, "lower %" SCNu64 " upper %" SCNu64 " limited %d",
               &packing->lower, &packing->upper, &limited) != 3)
        goto err_answer;
    packing->limited = limited != 0;
    while (fscanf(in, " place %" SCNu64 " %" SCNu64 " %" SCNu64, &kind,
                  &engine, &start) == 3) {
        if (!place(packing, kind, engine, start))
            goto err_answer;
        placed++;
    }
    if (placed == packing->num_boxes)
        return 0;
err_answer:
    return rs_fail(RSCHED_EPARSE, "box-optimal: the solver's answer is not "
                   "understood");
}

/* The place in a queue is how many start before on that engine. Puts without a
 * box are on engine 0 when it begins, beside the box that starts then. */
static void find_positions(struct packing *packing)
{
    size_t puts = packing->problem.num_puts;

    for (size_t i = 0; i < puts; i++) {
        packing->positions[i] = 0;
        for (size_t j = 0; j < puts; j++)
            packing->positions[i] +=
                packing->engines[j] == packing->engines[i] &&
                (packing->starts[j] < packing->starts[i] ||
                 (packing->starts[j] == packing->starts[i] && j < i));
    }
}

static int place_boxes(struct packing *packing)
{
    FILE *in = tmpfile(), *out = tmpfile();
    int error;

    if (in == NULL || out == NULL)
        error = rs_fail(RSCHED_ESYS, "box-optimal: no temporary file: %m");
    else
        error = write_boxes(packing, in);
    if (error == 0)
        error = run_solver(in, out, packing->seconds);
    if (error == 0)
        error = read_packing(packing, out);
    if (in != NULL)
        fclose(in);
    if (out != NULL)
        fclose(out);
    return error;
}

static int pack(struct packing *packing)
{
    int error = find_kinds(packing);

    if (error == 0 && packing->num_boxes > 0)
        error = place_boxes(packing);
    if (error == 0)
        find_positions(packing);
    return error;
}

int tool_boxes_plan(const struct rsched_pattern *pattern,
                    struct rsched_machine *machine, uint64_t seconds,
                    struct rsched_schedule **schedule, bool *limited)
{
    struct packing packing = {.seconds = seconds};
    size_t puts;
    int error = rs_problem_init(&packing.problem, pattern, machine, NULL, 0);

    if (error != 0)
        return error;
    if (packing.problem.slowest != packing.problem.fastest) {
        rs_problem_fini(&packing.problem);
        return rs_fail(RSCHED_EINVAL, TOOL_BOXES ": the engines of machine %s "
                       "have different rates, so a put has no one box",
                       rs_machine_label(machine));
    }
    puts = packing.problem.num_puts + 1;
    packing.kinds = calloc(puts, sizeof(*packing.kinds));
    packing.kind_of = calloc(puts, sizeof(*packing.kind_of));
    packing.engines = calloc(puts, sizeof(*packing.engines));
    packing.positions = calloc(puts, sizeof(*packing.positions));
    packing.starts = calloc(puts, sizeof(*packing.starts));
    if (packing.kinds == NULL || packing.kind_of == NULL ||
        packing.engines == NULL || packing.positions == NULL ||
        packing.starts == NULL)
        error = rs_fail(RSCHED_ENOMEM, "box-optimal: no memory");
    else
        error = pack(&packing);
    if (error == 0)
        error = rsched_schedule_create_queues(pattern, machine, TOOL_BOXES,
                                              packing.engines,
                                              packing.positions, schedule);
    if (error == 0) {
        rs_schedule_note_boxes(*schedule, packing.upper, packing.lower);
        *limited = packing.limited;
    }
    free(packing.kinds);
    free(packing.kind_of);
    free(packing.engines);
    free(packing.positions);
    free(packing.starts);
    rs_problem_fini(&packing.problem);
    return error;
}
