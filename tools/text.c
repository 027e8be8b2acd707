/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/text.h"

#include <jansson.h>

void text_json(FILE *out, const char *text)
{
    json_t *string = json_string(text);

    if (string == NULL || json_dumpf(string, out, JSON_ENCODE_ANY) != 0)
        fputs("\"?\"", out);
    json_decref(string);
}
