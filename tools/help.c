/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched help: the commands, or the help of one. */
#include <string.h>

#include "tools/tool.h"

static void print_commands(void)
{
    printf("usage: rsched COMMAND [OPTIONS] ...\n"
           "Plans and draws halo exchanges.\n\n");
    for (const struct tool_command *c = tool_commands; c->name; c++)
        printf("  %-8s %-22s %.*s\n", c->name, c->arguments,
               (int)strcspn(c->help, "\n"), c->help);
    printf("\nPATTERN is a file or a built-in pattern such as "
           "scale-les3:872:all.\n"
           "rsched COMMAND --help describes the options of a command; rsched "
           "--help or -h\nprints this, rsched --version the version.\n"
           "Exit status: 0, 2 for bad input, 1 for failure.\n");
}

int tool_help(const struct tool_command *command, int argc, char **argv)
{
    const struct tool_option options[] = {{0}};
    char *ask[] = {NULL, "--help", NULL};
    int first;
    int status = tool_parse_only(command, argc, argv, options, &first, 0, 1);

    if (status != TOOL_GO_ON)
        return status;
    if (first == argc) {
        print_commands();
        return TOOL_OK;
    }
    for (const struct tool_command *c = tool_commands; c->name; c++) {
        if (strcmp(c->name, argv[first]) == 0) {
            ask[0] = argv[first];
            return c->run(c, 2, ask);
        }
    }
    return tool_bad("help: no command '%s' (rsched help lists them)",
                    argv[first]);
}
