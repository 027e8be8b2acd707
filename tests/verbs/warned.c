/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/verbs/warned.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "librsched/base/log.h"

enum { LINES = 256, LINE_BYTES = 320 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES][LINE_BYTES];
static int num_lines;

void __real_rs_log(enum rs_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void __wrap_rs_log(enum rs_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void __wrap_rs_log(enum rs_log_level level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    __real_rs_log(level, "%s", line);
    if (level != RS_LOG_WARN)
        return;
    pthread_mutex_lock(&lock);
    assert(num_lines < LINES);
    memcpy(lines[num_lines++], line, sizeof(line));
    pthread_mutex_unlock(&lock);
}

int warned(const char *text)
{
    int count = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < num_lines; i++)
        count += strstr(lines[i], text) != NULL;
    pthread_mutex_unlock(&lock);
    return count;
}
