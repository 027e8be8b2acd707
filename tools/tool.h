/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the subcommands of rsched share. A subcommand is one file and one line
 * of the table in main.c. It returns the exit status of the process, and has
 * printed one line on standard error when that is not 0.
 */
#ifndef RS_TOOLS_TOOL_H
#define RS_TOOLS_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rsched/rsched.h>

enum {
    TOOL_OK = 0,
    TOOL_FAILED = 1,    /* no memory, no space on the disk, ... */
    TOOL_BAD_INPUT = 2, /* the command line, or a file */
    TOOL_GO_ON = -1,    /* of tool_parse(): the arguments are good */
};

struct tool_command {
    const char *name;
    const char *arguments; /* for the usage line */
    const char *help;      /* one line; further ones for its own help */
    int (*run)(const struct tool_command *command, int argc, char **argv);
};

/** The commands, up to one whose name is NULL. */
extern const struct tool_command tool_commands[];

int tool_compare(const struct tool_command *command, int argc, char **argv);
int tool_draw(const struct tool_command *command, int argc, char **argv);
int tool_export(const struct tool_command *command, int argc, char **argv);
int tool_help(const struct tool_command *command, int argc, char **argv);
int tool_info(const struct tool_command *command, int argc, char **argv);
int tool_pattern(const struct tool_command *command, int argc, char **argv);
int tool_plan(const struct tool_command *command, int argc, char **argv);
int tool_probe(const struct tool_command *command, int argc, char **argv);
int tool_run(const struct tool_command *command, int argc, char **argv);
int tool_simulate(const struct tool_command *command, int argc, char **argv);

/** Print "rsched: text" as one line on standard error; returns
 * TOOL_BAD_INPUT. */
int tool_bad(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** The same for the library's last error; returns the status that `error`
 * means. */
int tool_library(int error);

/** One option of a subcommand. Exactly one of `value` and `flag` is set. */
struct tool_option {
    const char *name;     /* without the dashes; NULL ends a table */
    char letter;          /* short form, or 0 */
    const char *argument; /* what its argument is called; NULL for a flag */
    const char *help;
    const char **value;
    bool *flag;
};

/** Any arguments, with options of their own. */
enum { TOOL_REST = -1 };

/**
 * Read the options of a subcommand. --help is always there, whatever the settings
 * are; else they must be good. Standard input ("-") can be named once.
 *
 * @param first where the index of the first argument that is no option is
 *              stored; options may stand behind arguments
 * @param least number of arguments that must be there
 * @param most  number that may be there, or TOOL_REST: options end at the first
 *              one, and what follows is for others
 * @return TOOL_GO_ON, or the status to exit with
 */
int tool_parse(const struct tool_command *command, int argc, char **argv,
               const struct tool_option *options, int *first, int least,
               int most);

/** The same, whatever the settings are. */
int tool_parse_only(const struct tool_command *command, int argc, char **argv,
                    const struct tool_option *options, int *first, int least,
                    int most);

/** Whether a name has an ending, and more before it. */
bool tool_ends_in(const char *path, const char *ending);

/** The number of `word` in `words` ("text|json"), or -1 after printing that
 * it is not one of them. */
int tool_word(const char *option, const char *word, const char *words);

/** Whether there is such a scheduler, or it is a word of `more` ("all|best").
 * @return TOOL_OK, or TOOL_BAD_INPUT after printing that it is not */
int tool_scheduler(const char *name, const char *more);

/** A file that appears when it is complete. */
struct tool_output {
    FILE *file;
    const char *path; /* NULL or "-": standard output */
    char *target;     /* what appears: path, or where it points */
    char *temporary;  /* next to it; NULL when written to directly */
};

/** @return TOOL_OK, or a status; then there is nothing to close */
int tool_output_open(struct tool_output *output, const char *path);

/**
 * Close it; the file appears when all was written and `error` (of the
 * library, already with its text) is 0, else nothing is left behind. `error` is
 * what writing has returned: RSCHED_ESYS is a failure, not bad input.
 *
 * @return the status
 */
int tool_output_close(struct tool_output *output, int error);

/** Whether it could be opened, before something that takes long; leaves nothing
 * behind. `path` may be NULL. @return TOOL_OK, or a status */
int tool_output_check(const char *path);

/** Write what `file` still holds. @return TOOL_OK, or TOOL_FAILED after saying
 * that this, or a write before, has failed */
int tool_flush(FILE *file, const char *name);

/** The machine to use for a pattern when none is given: "torus3d" for the
 * directions of 3-D halos, else "tofu-k". */
const char *tool_default_machine(const struct rsched_pattern *pattern);

/** The scheduler to use when none is given. */
#define TOOL_DEFAULT_PLANNER "fllf"

/** A scheduler that is a process of its own; see tools/glpk. */
#define TOOL_BOXES "box-optimal"

/**
 * Plan with it, in `seconds` at most.
 *
 * @param limited whether it would have needed more; then its packing may not be
 *                the shortest, nor its bound the highest
 * @return as rsched_schedule_create(); RSCHED_ENOTSUP when it was not built,
 *         RSCHED_ELIMIT when the pattern is too large for it
 */
int tool_boxes_plan(const struct rsched_pattern *pattern,
                    struct rsched_machine *machine, uint64_t seconds,
                    struct rsched_schedule **schedule, bool *limited);

/** The number, at least 1, that an option asks for; without `text` *number stays.
 * @return TOOL_OK or a status */
int tool_number(const char *option, const char *text, uint64_t most,
                uint64_t *number);

/** Room for the texts below. */
enum { TOOL_TEXT = 48 };

/** Microseconds with three digits, rounded, for tables ("72.000"). */
const char *tool_us(uint64_t ps, char *buffer);

/** gap_percent with four digits, or "inf". */
const char *tool_gap(const struct rsched_schedule *schedule, char *buffer);

/** A planner's label ("rs%4"); its name when it has none. */
const char *tool_label(const char *planner);

#endif
