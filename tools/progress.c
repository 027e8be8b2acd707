/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/tool.h"

enum { LINE = 256, PAUSE_NS = 100000000 };

static int64_t since(const struct timespec *then)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return INT64_C(1000000000) * (now.tv_sec - then->tv_sec) + now.tv_nsec -
           then->tv_nsec;
}

unsigned long long tool_progress_seconds(const struct tool_progress *progress)
{
    return (unsigned long long)since(&progress->begin) / 1000000000;
}

/* What may come thousands of times a second is told ten times. */
static bool is_due(struct timespec *told)
{
    if (told->tv_sec != 0 && since(told) < PAUSE_NS)
        return false;
    clock_gettime(CLOCK_MONOTONIC, told);
    return true;
}

void tool_progress_tell(struct tool_progress *progress, const char *format,
                        ...)
{
    struct winsize window;
    char line[LINE];
    int width = LINE;
    va_list args;

    if (!progress->tell)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        width = window.ws_col - 1;
    fprintf(stderr, "\r%.*s\033[K", width, line);
    fflush(stderr);
}

static void show_planned(void *arg, size_t planned, size_t puts)
{
    struct tool_progress *progress = arg;

    progress->planned = planned;
    progress->puts = puts;
    if (is_due(&progress->planned_told))
        tool_progress_tell(progress, "%s: %zu of %zu puts planned, %llu s",
                           progress->what, planned, puts,
                           tool_progress_seconds(progress));
}

/* What is the same for long comes last, in case the line is cut off. */
static void show_searched(void *arg, const struct rsched_search *search)
{
    struct tool_progress *progress = arg;
    char before[LINE] = "", text[2][TOOL_TEXT];

    if (!is_due(&progress->searched_told))
        return;
    if (progress->puts > 0)
        snprintf(before, sizeof(before), "%zu of %zu puts planned, ",
                 progress->planned, progress->puts);
    tool_progress_tell(progress, "%s: %s%llu s, %" PRIu64 " of at most %"
                       PRIu64 " nodes, best %s, bound %s us", search->planner,
                       before, tool_progress_seconds(progress), search->nodes,
                       search->most_nodes, tool_us(search->makespan, text[0]),
                       tool_us(search->lower_bound, text[1]));
}

static void show_simulated(void *arg, size_t ended, size_t puts)
{
    tool_progress_tell(arg, "%zu of %zu puts, %zu %%", ended, puts,
                       100 * ended / puts);
}

void tool_progress_begin(struct tool_progress *progress, const char *what)
{
    *progress = (struct tool_progress){.tell = isatty(STDERR_FILENO),
                                       .what = what};
    clock_gettime(CLOCK_MONOTONIC, &progress->begin);
    if (progress->tell)
        progress->watch = (struct rs_world_watch){show_planned, show_searched,
                                                  show_simulated, progress};
}

void tool_progress_end(struct tool_progress *progress)
{
    if (progress->tell)
        fputs("\r\033[K", stderr);
}

int tool_progress_plan(const struct rsched_pattern *pattern,
                       struct rsched_machine *machine,
                       const struct rsched_plan_options *options,
                       struct rsched_schedule **schedule)
{
    struct rsched_plan_options told = *options;
    struct tool_progress progress;
    int error;

    tool_progress_begin(&progress, options->planner);
    told.progress = progress.watch.searched;
    told.progress_arg = &progress;
    error = rsched_schedule_create_options(pattern, machine, &told, schedule);
    tool_progress_end(&progress);
    return error;
}
