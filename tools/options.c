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
    printf("  -h, %-24s %s\n", "--help", "print this");
}

/* The tables that getopt_long() wants. */
static void translate(const struct tool_option *options, bool rest,
                      struct option *longs, char *shorts)
{
    size_t count = 0;

    if (rest)
        *shorts++ = '+'; /* the first argument ends the options */
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
    *shorts++ = 'h';
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

/* What is wrong with a long option that getopt_long() does not know. */
static int tell_bad(const struct tool_command *command, const char *word,
                    const struct tool_option *options)
{
    size_t length = strcspn(word, "="), used = 0;
    bool help = length > 2 && strncmp(word, "--help", length) == 0;
    char known[256] = "";
    int count = help;

    if (help)
        used += (size_t)snprintf(known, sizeof(known), "--help");
    for (; options->name != NULL; options++) {
        if (length <= 2 || strncmp(options->name, word + 2, length - 2) != 0)
            continue;
        if (used < sizeof(known))
            used += (size_t)snprintf(known + used, sizeof(known) - used,
                                     "%s--%s", count > 0 ? ", " : "",
                                     options->name);
        count++;
    }
    if (count == 0)
        return tool_bad("%s: bad option '%s'", command->name, word);
    if (count == 1)
        return tool_bad("%s: option %s takes no value", command->name, known);
    return tool_bad("%s: option '%.*s' may be any of %s", command->name,
                    (int)length, word, known);
}

/* Whether the value of an option is read, if it names a file. */
static bool is_input(const struct tool_option *option)
{
    return option->value != NULL && strcmp(option->name, "output") != 0 &&
           strcmp(option->name, "svg") != 0;
}

/* What is read to its end is empty when it is read again. */
static int check_inputs(const struct tool_command *command,
                        const struct tool_option *options, const bool *given,
                        char *const *arguments)
{
    size_t count = 0;

    for (size_t i = 0; options[i].name != NULL; i++)
        count += given[i] && is_input(&options[i]) &&
                 strcmp(*options[i].value, "-") == 0;
    for (; *arguments != NULL; arguments++)
        count += strcmp(*arguments, "-") == 0;
    return count > 1 ? tool_bad("%s: standard input ('-') is named more than "
                                "once", command->name)
                     : TOOL_GO_ON;
}

int tool_parse_only(const struct tool_command *command, int argc, char **argv,
                    const struct tool_option *options, int *first, int least,
                    int most)
{
    struct option longs[OPTIONS_MOST + 2];
    char shorts[2 * OPTIONS_MOST + 4];
    bool given[OPTIONS_MOST] = {false};
    int found;

    translate(options, most == TOOL_REST, longs, shorts);
    if (most != TOOL_REST)
        unsetenv("POSIXLY_CORRECT"); /* it would end them there, too */
    opterr = 0;
    optind = 0; /* begin again: help may call a command */
    while ((found = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const struct tool_option *option;

        if (found == HELP || found == 'h') {
            print_help(command, options);
            return TOOL_OK;
        }
        if (found == ':')
            return tool_bad("%s: option '%s' needs a value", command->name,
                            argv[optind - 1]);
        if (found == '?' && optopt > HELP && optopt < FIRST)
            return tool_bad("%s: unknown option '-%c'", command->name, optopt);
        if (found == '?')
            return tell_bad(command, argv[optind - 1], options);
        option = find(options, found);
        if (given[option - options])
            return tool_bad("%s: option --%s is given twice", command->name,
                            option->name);
        given[option - options] = true;
        if (option->value != NULL && *optarg == '\0')
            return tool_bad("%s: option --%s has an empty value", command->name,
                            option->name);
        if (option->flag != NULL)
            *option->flag = true;
        else
            *option->value = optarg;
    }
    *first = optind;
    if (argc - optind < least)
        return tool_bad("%s: expected %s", command->name, command->arguments);
    if (most == TOOL_REST)
        return TOOL_GO_ON;
    if (argc - optind > most)
        return tool_bad("%s: one argument too many: '%s'", command->name,
                        argv[optind + most]);
    return check_inputs(command, options, given, argv + optind);
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
