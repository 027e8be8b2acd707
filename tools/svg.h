/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing SVG. Lengths are integers in hundredths of a pixel, so that the same
 * picture has the same bytes everywhere. */
#ifndef RS_TOOLS_SVG_H
#define RS_TOOLS_SVG_H

#include <stdint.h>
#include <stdio.h>

#define PX(pixels) ((int64_t)(pixels) * 100)

/** Write a length. */
void svg_length(FILE *out, int64_t length);

/** Write ` name="length"`. */
void svg_attribute(FILE *out, const char *name, int64_t length);

/** Write text with &, <, > and quotes escaped; what XML does not allow is a
 * question mark. */
void svg_escape(FILE *out, const char *text);

/** Write a rectangle; `more` are further attributes. `title`, when it is not
 * NULL, is shown on hover. */
void svg_rect(FILE *out, int64_t x, int64_t y, int64_t width, int64_t height,
              const char *more, const char *title);

/** Write a line. */
void svg_line(FILE *out, int64_t x1, int64_t y1, int64_t x2, int64_t y2,
              const char *more);

/** Write a text whose baseline is at y. */
void svg_text(FILE *out, int64_t x, int64_t y, const char *more,
              const char *text);

/** The same of at most `most` characters, of which wide ones count twice: of a
 * longer text the beginning and an ellipsis, with all of it shown on hover. */
void svg_text_within(FILE *out, int64_t x, int64_t y, const char *more,
                     const char *text, size_t most);

#endif
