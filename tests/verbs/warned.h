/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library has logged, for programs that are linked with --wrap=rs_log. */
#ifndef TESTS_VERBS_WARNED_H
#define TESTS_VERBS_WARNED_H

#include <stdbool.h>

/** How many warnings of this process have had this text in them. They are on standard
 * error, too. */
int warned(const char *text);

#endif
