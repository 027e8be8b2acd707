/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts, which may hold anything, in files of other formats. */
#ifndef RS_TOOLS_TEXT_H
#define RS_TOOLS_TEXT_H

#include <stdio.h>

/** A string of JSON, in quotes. */
void text_json(FILE *out, const char *text);

/** A field of CSV, in quotes when it has to be (RFC 4180). */
void text_csv(FILE *out, const char *text);

/** On the line that is written: control characters are question marks. */
void text_line(FILE *out, const char *text);

/** The same, with blanks behind it up to `width` bytes. */
void text_column(FILE *out, size_t width, const char *text);

#endif
