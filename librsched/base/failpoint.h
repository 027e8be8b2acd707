/* SPDX-License-Identifier: BSD-3-Clause */
/* Places where tests kill, stop or delay a process (RSCHED_FAILPOINTS). */
#ifndef RS_BASE_FAILPOINT_H
#define RS_BASE_FAILPOINT_H

#include <stdbool.h>

/* Written once, before any exchange exists. */
extern bool rs_failpoints_armed;

/** Whether a value of RSCHED_FAILPOINTS is one. @return 0, or as below */
int rs_failpoints_check(const char *setting);

/** Read RSCHED_FAILPOINTS for this process number.
 * @return 0, or RSCHED_EINVAL with a text that names the wrong part. */
int rs_failpoints_arm(int process);

/** Do what RSCHED_FAILPOINTS says for this point. */
void rs_failpoint_hit(const char *point) __attribute__((cold));

/* One predictable load where it is not armed. */
#define RS_FAILPOINT(point)                                                  \
    do {                                                                     \
        if (__builtin_expect(rs_failpoints_armed, 0))                        \
            rs_failpoint_hit(point);                                         \
    } while (0)

#endif
