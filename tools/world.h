/* SPDX-License-Identifier: BSD-3-Clause */
/* The options that say which world is meant, for simulate and export. */
#ifndef RS_TOOLS_WORLD_H
#define RS_TOOLS_WORLD_H

#include "librsched/world/world.h"
#include "tools/tool.h"

enum { TOOL_WORLD_OPTIONS = 10 };

/** The words of the command line. */
struct tool_world_options {
    const char *machine, *nodes, *planner, *mapping, *routes, *receive,
        *processes, *plan, *jitter, *seed;
    const char *more_planners; /* as for tool_scheduler() */
};

/** What they mean. */
struct tool_world {
    struct rs_world_params params;
    struct rsched_pattern *pattern;
    struct rsched_machine *machine;
    const char *machine_name, *mapping, *routes, *receive;
    bool together;
    struct rs_world_seat *seats; /* a mapping from a file */
};

/** Fill in the table of the options. Returns their number.
 * @param schedulers the help of --scheduler */
size_t tool_world_options(struct tool_world_options *words,
                          const char *schedulers, struct tool_option *options);

/** @return TOOL_OK or a status; tool_world_close() it in any case */
int tool_world_open(const struct tool_world_options *words,
                    const char *pattern, struct tool_world *world);

/** Read the argument of --jitter. @return TOOL_OK or a status */
int tool_jitter(const char *text, uint64_t *ps);

/** rs_world_create() and rs_world_run(), which tell a terminal how far they
 * are. */
int tool_world_create(const struct tool_world *asked, const char *planner,
                      bool together, struct rs_world **world);
int tool_world_run(struct rs_world *world, struct rsched_machine *machine,
                   struct rs_fluid_times *times, struct rs_world_result *result);

void tool_world_close(struct tool_world *world);

#endif
