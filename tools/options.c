/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tool.h"

enum { OPTIONS_MOST = 16, HELP = 1, FIRST = 256 };

static void print_help(const struct tool_command *command,
                       const struct tool_option *options)
{
    printf("usage: rsched %s [OPTIONS]%s%s\n%s\n\n", command->name,
           *command->arguments ? " " : "", command->arguments, command->help);
    for (; options->name != NULL; options++) {
        char text[64];

        snprintf(text, sizeof(text), "--%s%s%s", options->name,
                 options->argument ? " " : "",
                 options->argument ? options->argument : "");
        if (options->letter != 0)
            printf("  -%c, %-24s %s\n", options->letter, text, options->help);
        else
            printf("      %-24s %s\n", text, options->help);
    }
    printf("      %-24s %s\n", "--help", "print this");
}

/* The tables that getopt_long() wants. */
static void translate(const struct tool_option *options, struct option *longs,
                      char *shorts)
{
    size_t count = 0;

    *shorts++ = ':'; /* a missing argument is not an unknown option */
    for (; options[count].name != NULL; count++) {
        bool argument = options[count].argument != NULL;

        longs[count] = (struct option){options[count].name,
                                       argument ? required_argument
                                                : no_argument,
                                       NULL, FIRST + (int)count};
        if (options[count].letter == 0)
            continue;
        *shorts++ = options[count].letter;
        if (argument)
            *shorts++ = ':';
    }
    *shorts = '\0';
    longs[count] = (struct option){"help", no_argument, NULL, HELP};
    longs[count + 1] = (struct option){0};
}

static const struct tool_option *find(const struct tool_option *options,
                                      int found)
{
    if (found >= FIRST)
        return &options[found - FIRST];
    while (options->letter != found)
        options++;
    return options;
}

int tool_parse_only(const struct tool_command *command, int argc, char **argv,
                    const struct tool_option *options, int *first, int least,
                    int most)
{
    struct option longs[OPTIONS_MOST + 2];
    char shorts[2 * OPTIONS_MOST + 2];
    bool given[OPTIONS_MOST] = {false};
    int found;

    translate(options, longs, shorts);
    opterr = 0;
    optind = 0; /* begin again: help may call a command */
    while ((found = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const struct tool_option *option;

        if (found == HELP) {
            print_help(command, options);
            return TOOL_OK;
        }
        if (found == ':')
            return tool_bad("%s: option '%s' needs a value", command->name,
                            argv[optind - 1]);
        if (found == '?' && optopt > HELP && optopt < FIRST)
            return tool_bad("%s: unknown option '-%c'", command->name, optopt);
        if (found == '?')
            return tool_bad("%s: bad option '%s'", command->name,
                            argv[optind - 1]);
        option = find(options, found);
        if (given[option - options])
            return tool_bad("%s: option --%s is given twice", command->name,
                            option->name);
        given[option - options] = true;
        if (option->flag != NULL)
            *option->flag = true;
        else
            *option->value = optarg;
    }
    *first = optind;
    if (argc - optind < least)
        return tool_bad("%s: expected %s", command->name, command->arguments);
    if (argc - optind > most)
        return tool_bad("%s: one argument too many: '%s'", command->name,
                        argv[optind + most]);
    return TOOL_GO_ON;
}

int tool_parse(const struct tool_command *command, int argc, char **argv,
               const struct tool_option *options, int *first, int least,
               int most)
{
    int status = tool_parse_only(command, argc, argv, options, first, least,
                                 most);
    int error = status == TOOL_GO_ON ? rsched_config_check() : 0;

    return error != 0 ? tool_library(error) : status;
}
