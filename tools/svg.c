/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/svg.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "librsched/base/utf8.h"

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

/* What XML has no place for: control characters, two code points that are none,
 * and bytes that are not UTF-8, as of a text that was cut. */
static bool is_allowed(uint32_t point)
{
    return point >= 0x20 && point != 0xfffe && point != 0xffff;
}

/* The length of the first character; one for all bytes of a broken one, whose
 * *point is 0. */
static size_t read_character(const char *text, uint32_t *point)
{
    int length;

    *point = 0;
    length = rs_utf8_decode(text, point);
    if (length > 0)
        return (size_t)length;
    *point = 0;
    length = 1;
    while ((text[length] & 0xc0) == 0x80)
        length++;
    return (size_t)length;
}

static void escape(FILE *out, const char *text, const char *end)
{
    while (text < end) {
        uint32_t point;
        size_t length = read_character(text, &point);

        if (!is_allowed(point))
            fputc('?', out);
        else if (point == '&')
            fputs("&amp;", out);
        else if (point == '<')
            fputs("&lt;", out);
        else if (point == '>')
            fputs("&gt;", out);
        else if (point == '"')
            fputs("&quot;", out);
        else
            fwrite(text, 1, length, out);
        text += length;
    }
}

void svg_escape(FILE *out, const char *text)
{
    escape(out, text, text + strlen(text));
}

/* The bytes at the beginning of a text that are at most so wide. */
static size_t find_within(const char *text, size_t most)
{
    size_t bytes = 0, width = 0;

    while (text[bytes] != '\0') {
        uint32_t point;
        size_t length = read_character(text + bytes, &point);

        width += point < 0x1100 ? 1 : 2;
        if (width > most)
            break;
        bytes += length;
    }
    return bytes;
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

static void begin_text(FILE *out, int64_t x, int64_t y, const char *more)
{
    fputs("<text", out);
    svg_attribute(out, "x", x);
    svg_attribute(out, "y", y);
    fprintf(out, "%s%s>", *more ? " " : "", more);
}

void svg_text(FILE *out, int64_t x, int64_t y, const char *more,
              const char *text)
{
    begin_text(out, x, y, more);
    svg_escape(out, text);
    fputs("</text>\n", out);
}

void svg_text_within(FILE *out, int64_t x, int64_t y, const char *more,
                     const char *text, size_t most)
{
    if (text[find_within(text, most)] == '\0') {
        svg_text(out, x, y, more, text);
        return;
    }
    begin_text(out, x, y, more);
    fputs("<title>", out);
    svg_escape(out, text);
    fputs("</title>", out);
    escape(out, text, text + find_within(text, most - 1));
    fputs("\xe2\x80\xa6</text>\n", out);
}
