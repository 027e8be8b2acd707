/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/svg.h"

#include <inttypes.h>

void svg_length(FILE *out, int64_t length)
{
    uint64_t size = (uint64_t)(length < 0 ? -length : length);

    fprintf(out, "%s%" PRIu64, length < 0 ? "-" : "", size / 100);
    if (size % 100 != 0)
        fprintf(out, ".%02" PRIu64, size % 100);
}

void svg_attribute(FILE *out, const char *name, int64_t length)
{
    fprintf(out, " %s=\"", name);
    svg_length(out, length);
    fputc('"', out);
}

void svg_escape(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default: /* control characters are not allowed in XML */
            fputc((unsigned char)*text < ' ' ? '?' : *text, out);
        }
    }
}

void svg_rect(FILE *out, int64_t x, int64_t y, int64_t width, int64_t height,
              const char *more, const char *title)
{
    fputs("<rect", out);
    svg_attribute(out, "x", x);
    svg_attribute(out, "y", y);
    svg_attribute(out, "width", width);
    svg_attribute(out, "height", height);
    fprintf(out, " %s", more);
    if (title == NULL) {
        fputs("/>\n", out);
        return;
    }
    fputs("><title>", out);
    svg_escape(out, title);
    fputs("</title></rect>\n", out);
}

void svg_line(FILE *out, int64_t x1, int64_t y1, int64_t x2, int64_t y2,
              const char *more)
{
    fputs("<line", out);
    svg_attribute(out, "x1", x1);
    svg_attribute(out, "y1", y1);
    svg_attribute(out, "x2", x2);
    svg_attribute(out, "y2", y2);
    fprintf(out, " %s/>\n", more);
}

void svg_text(FILE *out, int64_t x, int64_t y, const char *more,
              const char *text)
{
    fputs("<text", out);
    svg_attribute(out, "x", x);
    svg_attribute(out, "y", y);
    fprintf(out, "%s%s>", *more ? " " : "", more);
    svg_escape(out, text);
    fputs("</text>\n", out);
}
