/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/text.h"

#include <jansson.h>
#include <string.h>

void text_json(FILE *out, const char *text)
{
    json_t *string = json_string(text);

    if (string == NULL || json_dumpf(string, out, JSON_ENCODE_ANY) != 0)
        fputs("\"?\"", out);
    json_decref(string);
}

void text_csv(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void text_line(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, out);
}

void text_column(FILE *out, size_t width, const char *text)
{
    size_t length = strlen(text);

    text_line(out, text);
    fprintf(out, "%*s", length < width ? (int)(width - length) : 0, "");
}
