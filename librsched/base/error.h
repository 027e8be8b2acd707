/* SPDX-License-Identifier: BSD-3-Clause */
/* Setting the text of a failure. The first one to decide an error sets it. */
#ifndef RS_BASE_ERROR_H
#define RS_BASE_ERROR_H

#include <stdbool.h>

#include <rsched/error.h>

/**
 * Note a failure: keep the formatted text as the calling thread's last error
 * and return `error`, so that `return rs_fail(RSCHED_EINVAL, ...)` works. errno
 * is kept, and %m may be used.
 */
int rs_fail(int error, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/** Put "prefix: " before the last error of this thread and return `error`. */
int rs_fail_within(int error, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/** The last error of a thread, kept by a call that may succeed although something
 * that it tries does not. */
struct rs_error_text {
    char text[1024];
};

void rs_error_save(struct rs_error_text *kept);
void rs_error_restore(const struct rs_error_text *kept);

/** Whether it is one of RSCHED_E*, for codes that come from outside. */
bool rs_is_error(int error);

#endif
