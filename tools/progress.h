/* SPDX-License-Identifier: BSD-3-Clause */
/* How far something is that takes long: one line on standard error, written
 * again and again and erased in the end, where that is a terminal. */
#ifndef RS_TOOLS_PROGRESS_H
#define RS_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <time.h>

#include "librsched/world/world.h"

struct tool_progress {
    /* For rs_world_params. Without a terminal there is nobody in it. */
    struct rs_world_watch watch;
    bool tell;
    const char *what;
    struct timespec begin;
    struct timespec planned_told, searched_told; /* 0: not yet */
    size_t planned, puts; /* of a world */
};

/** It stays where it is until its end.
 * @param what goes on, such as the name of a scheduler; a string that stays */
void tool_progress_begin(struct tool_progress *progress, const char *what);

/** Write the line anew, cut off where the terminal ends; without a terminal
 * nothing. */
void tool_progress_tell(struct tool_progress *progress, const char *format,
                        ...) __attribute__((format(printf, 2, 3)));

/** Whole seconds since it began. */
unsigned long long tool_progress_seconds(const struct tool_progress *progress);

/** Erase the line, before anything else is printed. */
void tool_progress_end(struct tool_progress *progress);

/** rsched_schedule_create_options(), which tells a terminal how far it is. */
int tool_progress_plan(const struct rsched_pattern *pattern,
                       struct rsched_machine *machine,
                       const struct rsched_plan_options *options,
                       struct rsched_schedule **schedule);

#endif
