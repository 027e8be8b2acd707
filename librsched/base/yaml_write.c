/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/yaml.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "librsched/base/utf8.h"

/* Words that every YAML reader takes for a text. */
static bool is_plain(const char *text)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char *const taken[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        if (strcasecmp(text, taken[i]) == 0 && strlen(text) > 1)
            return false;
    }
    return *text != '\0' && strchr(first, *text) != NULL &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789_./+-")] == '\0';
}

/* Characters that a double-quoted scalar holds as they are. */
static bool is_printable(uint32_t point)
{
    return (point >= 0x20 && point < 0x7f) ||
           (point >= 0xa0 && point != 0x2028 && point != 0x2029 &&
            point != 0xfeff && point != 0xfffe && point != 0xffff);
}

void rs_yaml_write_text(FILE *out, const char *text)
{
    uint32_t point = 0;

    if (is_plain(text)) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    while (*text != '\0') {
        int length = rs_utf8_decode(text, &point);

        if (length == 0)
            break;
        if (point == '"' || point == '\\')
            fprintf(out, "\\%c", (char)point);
        else if (is_printable(point))
            fwrite(text, 1, (size_t)length, out);
        else
            fprintf(out, "\\u%04" PRIx32, point); /* all are below 0x10000 */
        text += length;
    }
    fputc('"', out);
}
