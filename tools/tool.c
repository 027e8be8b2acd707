/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/text.h"

/* One line, whatever the text holds. */
static void print_error(const char *text)
{
    fputs("rsched: ", stderr);
    text_line(stderr, text);
    fputc('\n', stderr);
}

int tool_bad(const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    print_error(text);
    return TOOL_BAD_INPUT;
}

int tool_library(int error)
{
    print_error(rsched_last_error());
    return error == RSCHED_ENOMEM ? TOOL_FAILED : TOOL_BAD_INPUT;
}

bool tool_ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), n = strlen(ending);

    return length > n && strcmp(path + length - n, ending) == 0;
}

int tool_word(const char *option, const char *word, const char *words)
{
    size_t length = strlen(word);
    int number = 0;

    for (const char *w = words; *w != '\0'; number++) {
        size_t n = strcspn(w, "|");

        if (n == length && strncmp(w, word, n) == 0)
            return number;
        w += n + (w[n] == '|');
    }
    tool_bad("--%s %s: expected %s", option, word, words);
    return -1;
}

int tool_scheduler(const char *name, const char *more)
{
    const struct rsched_planner *p;
    char words[512];
    int n = snprintf(words, sizeof(words), "%s", more);

    for (size_t i = 0; (p = rsched_planner_at(i)) != NULL; i++)
        n += snprintf(words + n, sizeof(words) - (size_t)n, "|%s", p->name);
    return tool_word("scheduler", name, words) < 0 ? TOOL_BAD_INPUT : TOOL_OK;
}

const char *tool_default_machine(const struct rsched_pattern *pattern)
{
    const struct rsched_put *put;

    if (rsched_pattern_num_puts(pattern) == 0)
        return "tofu-k";
    put = rsched_pattern_put(pattern, 0);
    return put->direction[0] == '-' || put->direction[0] == '+' ? "torus3d"
                                                                : "tofu-k";
}

int tool_number(const char *option, const char *text, uint64_t most,
                uint64_t *number)
{
    unsigned long long value;
    char *end;

    if (text == NULL)
        return TOOL_OK;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (*text < '1' || *text > '9' || *end != '\0' || errno != 0)
        return tool_bad("--%s %s: expected a whole number, at least 1",
                        option, text);
    if (value > most)
        return tool_bad("--%s %s: above %" PRIu64, option, text, most);
    *number = value;
    return TOOL_OK;
}

const char *tool_us(uint64_t ps, char *buffer)
{
    uint64_t ns = ps / 1000 + (ps % 1000 >= 500);

    snprintf(buffer, TOOL_TEXT, "%" PRIu64 ".%03" PRIu64, ns / 1000,
             ns % 1000);
    return buffer;
}

const char *tool_gap(const struct rsched_schedule *schedule, char *buffer)
{
    uint64_t ppm = rsched_schedule_gap_ppm(schedule);

    if (ppm == UINT64_MAX)
        return "inf";
    snprintf(buffer, TOOL_TEXT, "%" PRIu64 ".%04" PRIu64, ppm / 10000,
             ppm % 10000);
    return buffer;
}

const char *tool_label(const char *planner)
{
    const struct rsched_planner *p;

    for (size_t i = 0; (p = rsched_planner_at(i)) != NULL; i++) {
        if (strcmp(p->name, planner) == 0)
            return p->label;
    }
    return planner;
}
