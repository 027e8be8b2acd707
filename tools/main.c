/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "tools/tool.h"

/* One line per subcommand. */
const struct tool_command tool_commands[] = {
    {"pattern", "NAME", "print a pattern as YAML", tool_pattern},
    {"plan", "PATTERN", "make one schedule", tool_plan},
    {"compare", "PATTERN...", "every scheduler side by side", tool_compare},
    {"export", "PATTERN", "for LogGOPSim (GOAL) or a trace viewer",
     tool_export},
    {"simulate", "PATTERN", "the whole machine", tool_simulate},
    {"draw", "PATTERN|SCHEDULE", "draw a schedule as SVG", tool_draw},
    {"run", "mpirun ... PROGRAM ...",
     "run an MPI program with its halo exchanges accelerated", tool_run},
    {"probe", "",
     "measure what the ways within this node cost\n"
     "\nIt takes about two minutes for each pair of cores and loads both; --rounds and\n"
     "--longest shorten it. The two cores are to have nothing else to do meanwhile, and\n"
     "others nothing that fills caches or moves much memory.",
     tool_probe},
    {"info", "", "what there is: schedulers, patterns, machines, settings",
     tool_info},
    {"help", "[COMMAND]", "print this, or the help of a command", tool_help},
    {NULL, NULL, NULL, NULL}};

/* What a command has printed without tool_output_close(), such as help. */
static int finish(int status)
{
    return status == TOOL_OK ? tool_flush(stdout, "standard output") : status;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    if (name == NULL)
        return tool_bad("no command given (rsched help lists them)");
    if (strcmp(name, "--version") == 0) {
        printf("rsched %s\n", rsched_version());
        return finish(TOOL_OK);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    for (const struct tool_command *c = tool_commands; c->name; c++) {
        if (strcmp(c->name, name) == 0)
            return finish(c->run(c, argc - 1, argv + 1));
    }
    return tool_bad("no command '%s' (rsched help lists them)", name);
}
