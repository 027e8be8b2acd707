/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines on stderr: "rsched[rank] level: text". Never on the hot path. */
#ifndef RS_BASE_LOG_H
#define RS_BASE_LOG_H

#include "librsched/base/config.h"

void rs_log(enum rs_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/** The number that log lines of this process carry; -1 (none) at first. */
void rs_log_set_rank(int rank);

#endif
