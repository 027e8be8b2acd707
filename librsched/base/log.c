/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int log_rank = -1;

void rs_log_set_rank(int rank)
{
    atomic_store_explicit(&log_rank, rank, memory_order_relaxed);
}

void rs_log(enum rs_log_level level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    int saved_errno = errno;
    int rank = atomic_load_explicit(&log_rank, memory_order_relaxed);
    char line[1200];
    size_t length;
    va_list args;

    if ((uint64_t)level > rs_config()->log_level)
        return;
    if (rank >= 0)
        length = (size_t)snprintf(line, sizeof(line), "rsched[%d] %s: ", rank,
                                  names[level]);
    else
        length = (size_t)snprintf(line, sizeof(line), "rsched %s: ",
                                  names[level]);
    errno = saved_errno;
    va_start(args, format);
    vsnprintf(line + length, sizeof(line) - length, format, args);
    va_end(args);
    /* One call, so that the lines of several processes do not mix. */
    fprintf(stderr, "%s\n", line);
    errno = saved_errno;
}
