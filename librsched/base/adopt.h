/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole pages of ordinary memory, moved in place onto the memfd that others
 * map: docs/adopted.md.
 */
#ifndef RS_BASE_ADOPT_H
#define RS_BASE_ADOPT_H

#include <stdint.h>

/** Adopt what may be adopted of [low, high), which nobody writes until this
 * returns. What was adopted, rs_shared_find() finds; why the rest was not is
 * counted. */
void rs_adopt(char *low, char *high);

/** The bytes of the whole pages of [low, high). */
uint64_t rs_adopt_whole(const char *low, const char *high);

#endif
