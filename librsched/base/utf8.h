/* SPDX-License-Identifier: BSD-3-Clause */
/* UTF-8, as far as names need it. */
#ifndef RS_BASE_UTF8_H
#define RS_BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Decode one character.
 *
 * @param text  not at its terminating zero
 * @param point where the code point is stored
 * @return its length in bytes, or 0 when the text is not UTF-8 there
 */
int rs_utf8_decode(const char *text, uint32_t *point);

/** Whether a text is UTF-8. */
bool rs_utf8_valid(const char *text);

#endif
