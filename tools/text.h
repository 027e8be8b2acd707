/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts, which may hold anything, in files of other formats. */
#ifndef RS_TOOLS_TEXT_H
#define RS_TOOLS_TEXT_H

#include <stdio.h>

/** A string of JSON, in quotes. */
void text_json(FILE *out, const char *text);

#endif
