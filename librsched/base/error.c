/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_SIZE = sizeof(struct rs_error_text) };

static _Thread_local char last_error[TEXT_SIZE];

const char *rsched_strerror(int error)
{
    switch (error) {
    case 0:
        return "success";
#define RSCHED_XX(name, value, text)                                         \
    case value:                                                              \
        return text;
        RSCHED_ERRNO_MAP(RSCHED_XX)
#undef RSCHED_XX
    default:
        return "unknown error";
    }
}

const char *rsched_error_name(int error)
{
    switch (error) {
    case 0:
        return "0";
#define RSCHED_XX(name, value, text)                                         \
    case value:                                                              \
        return "RSCHED_" #name;
        RSCHED_ERRNO_MAP(RSCHED_XX)
#undef RSCHED_XX
    default:
        return "unknown";
    }
}

bool rs_is_error(int error)
{
    switch (error) {
#define RSCHED_XX(name, value, text) case value:
        RSCHED_ERRNO_MAP(RSCHED_XX)
#undef RSCHED_XX
        return true;
    default:
        return false;
    }
}

const char *rsched_last_error(void)
{
    return last_error;
}

int rs_fail(int error, const char *format, ...)
{
    int saved_errno = errno;
    char text[TEXT_SIZE]; /* the arguments may point at last_error */
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(last_error, text, strlen(text) + 1);
    errno = saved_errno;
    return error;
}

void rs_error_save(struct rs_error_text *kept)
{
    strcpy(kept->text, last_error);
}

void rs_error_restore(const struct rs_error_text *kept)
{
    strcpy(last_error, kept->text);
}

int rsched_fail(int error, const char *text)
{
    return rs_fail(error, "%s", text);
}

int rs_fail_within(int error, const char *format, ...)
{
    int saved_errno = errno;
    char prefix[TEXT_SIZE];
    char cause[TEXT_SIZE];
    va_list args;

    memcpy(cause, last_error, sizeof(cause));
    va_start(args, format);
    vsnprintf(prefix, sizeof(prefix), format, args);
    va_end(args);
    snprintf(last_error, sizeof(last_error), "%s: %s", prefix, cause);
    errno = saved_errno;
    return error;
}
