/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

/* Every test is a process of its own, so each may set what it likes before the
 * settings are read. */

static int saved_stderr;

static FILE *redirect(void)
{
    FILE *file = tmpfile();

    cr_assert_not_null(file);
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    cr_assert_geq(saved_stderr, 0);
    cr_assert_geq(dup2(fileno(file), STDERR_FILENO), 0);
    return file;
}

static const char *written(FILE *file)
{
    static char text[8192];
    size_t length;

    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    rewind(file);
    length = fread(text, 1, sizeof(text) - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

Test(log, levels_above_the_setting_are_silent)
{
    FILE *file;

    unsetenv("RSCHED_LOG_LEVEL"); /* the default is warn */
    file = redirect();
    rs_log(RS_LOG_ERROR, "one %d", 1);
    rs_log(RS_LOG_WARN, "two");
    rs_log(RS_LOG_INFO, "three");
    rs_log(RS_LOG_DEBUG, "four");
    cr_assert_str_eq(written(file), "rsched error: one 1\nrsched warning: two\n");
}

Test(log, debug_prints_everything)
{
    FILE *file;

    setenv("RSCHED_LOG_LEVEL", "debug", 1);
    file = redirect();
    rs_log(RS_LOG_INFO, "three");
    rs_log(RS_LOG_DEBUG, "four");
    cr_assert_str_eq(written(file), "rsched info: three\nrsched debug: four\n");
}

Test(log, error_silences_warnings)
{
    FILE *file;

    setenv("RSCHED_LOG_LEVEL", "error", 1);
    file = redirect();
    rs_log(RS_LOG_WARN, "two");
    cr_assert_str_eq(written(file), "");
}

Test(log, lines_carry_the_rank)
{
    FILE *file = redirect();

    rs_log_set_rank(0);
    rs_log(RS_LOG_WARN, "a");
    rs_log_set_rank(17);
    rs_log(RS_LOG_WARN, "b");
    rs_log_set_rank(-1);
    rs_log(RS_LOG_WARN, "c");
    cr_assert_str_eq(written(file), "rsched[0] warning: a\n"
                                    "rsched[17] warning: b\n"
                                    "rsched warning: c\n");
}

Test(log, errno_is_kept_and_may_be_printed)
{
    FILE *file = redirect();

    errno = ENOSPC;
    rs_log(RS_LOG_ERROR, "write: %m");
    cr_assert_eq(errno, ENOSPC);
    errno = EPERM;
    rs_log(RS_LOG_DEBUG, "not printed");
    cr_assert_eq(errno, EPERM);
    cr_assert_str_eq(written(file),
                     "rsched error: write: No space left on device\n");
}

Test(log, long_texts_are_cut_and_still_end_the_line)
{
    FILE *file = redirect();
    char text[5000];
    const char *line;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    rs_log(RS_LOG_ERROR, "%s", text);
    line = written(file);
    cr_assert_eq(strncmp(line, "rsched error: xxx", 17), 0);
    cr_assert_lt(strlen(line), 1300);
    cr_assert_eq(line[strlen(line) - 1], '\n');
}
