/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/utf8.h"

int rs_utf8_decode(const char *text, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)*text;
    uint32_t value;
    int length = first < 0x80             ? 1
                 : (first & 0xe0) == 0xc0 ? 2
                 : (first & 0xf0) == 0xe0 ? 3
                 : (first & 0xf8) == 0xf0 ? 4
                                          : 0;

    if (length == 0)
        return 0;
    value = length == 1 ? first : first & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (value < least[length] || value > 0x10ffff ||
        (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *point = value;
    return length;
}

bool rs_utf8_valid(const char *text)
{
    uint32_t point;

    while (*text != '\0') {
        int length = rs_utf8_decode(text, &point);

        if (length == 0)
            return false;
        text += length;
    }
    return true;
}
