/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/units.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct scale {
    const char *name;
    int digits; /* the unit is 10^digits of the smallest one */
};

#define TIME_UNITS "(ps, ns, us, ms, s)"
#define RATE_UNITS "(B/s, kB/s, MB/s, GB/s, TB/s)"

static const struct scale time_scales[] = {
    {"ps", 0}, {"ns", 3}, {"us", 6}, {"ms", 9}, {"s", 12}, {NULL, 0}};
static const struct scale rate_scales[] = {{"B/s", 0},  {"kB/s", 3},
                                           {"MB/s", 6}, {"GB/s", 9},
                                           {"TB/s", 12}, {NULL, 0}};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* value = value * 10 + digit, or false when that does not fit. */
static bool append(uint64_t *value, int digit)
{
    return !__builtin_mul_overflow(*value, UINT64_C(10), value) &&
           !__builtin_add_overflow(*value, (uint64_t)digit, value);
}

const char *rs_parse_whole(const char *text, uint64_t *value)
{
    uint64_t number = 0;

    if (*text == '-' && is_digit(text[1]))
        return "a negative number is not allowed here";
    if (!is_digit(*text))
        return "expected a whole number";
    if (*text == '0' && is_digit(text[1]))
        return "a number must not start with 0";
    for (; is_digit(*text); text++) {
        if (!append(&number, *text - '0'))
            return "the number is too large";
    }
    if (*text != '\0')
        return "expected a whole number";
    *value = number;
    return NULL;
}

const char *rs_parse_signed(const char *text, int64_t *value)
{
    bool negative = *text == '-';
    uint64_t number = 0;
    const char *cause = rs_parse_whole(text + (negative ? 1 : 0), &number);

    if (cause != NULL)
        return cause;
    if (number > (uint64_t)INT64_MAX)
        return "the number is too large";
    *value = negative ? -(int64_t)number : (int64_t)number;
    return NULL;
}

/* DIGITS[.DIGITS] times 10^digits, exactly; *end is what follows. */
static const char *parse_decimal(const char *text, const char **end,
                                 int digits, uint64_t *value)
{
    uint64_t number = 0;
    bool fits = true, whole = true;

    if (*text == '0' && is_digit(text[1]))
        return "a number must not start with 0";
    for (; is_digit(*text); text++)
        fits = fits && append(&number, *text - '0');
    if (*text == '.') {
        if (!is_digit(*++text))
            return "expected digits after the point";
        for (; is_digit(*text); text++) {
            if (digits > 0)
                fits = fits && append(&number, *text - '0');
            else if (*text != '0')
                whole = false;
            digits -= digits > 0;
        }
    }
    for (; digits > 0; digits--)
        fits = fits && append(&number, 0);
    *end = text;
    if (!fits || number > (uint64_t)INT64_MAX)
        return "the number is too large";
    if (!whole)
        return "more digits than the smallest unit has";
    *value = number;
    return NULL;
}

static const char *parse_scaled(const char *text, const struct scale *scale,
                                const char *expected, const char *unknown,
                                uint64_t *value)
{
    const char *end = text + strspn(text, "0123456789.");

    if (*text == '-')
        return "a negative value is not allowed";
    if (!is_digit(*text))
        return expected;
    if (*end == '\0')
        return "the unit is missing";
    if (*end++ != ' ')
        return expected;
    for (; scale->name != NULL; scale++) {
        if (strcmp(scale->name, end) != 0)
            continue;
        const char *cause = parse_decimal(text, &end, scale->digits, value);
        return cause == NULL && *end != ' ' ? expected : cause;
    }
    return unknown;
}

const char *rs_parse_time(const char *text, uint64_t *ps)
{
    return parse_scaled(text, time_scales,
                        "expected a time such as 0.2 us " TIME_UNITS,
                        "unknown unit " TIME_UNITS, ps);
}

const char *rs_parse_rate(const char *text, uint64_t *rate)
{
    uint64_t value = 0;
    const char *cause = parse_scaled(
        text, rate_scales,
        "expected a rate such as 3850 MB/s " RATE_UNITS,
        "unknown unit " RATE_UNITS, &value);

    if (cause != NULL)
        return cause;
    if (value == 0)
        return "a rate of 0";
    if (value > RS_RATE_MOST)
        return "the rate is above 70.368744177664 TB/s";
    *rate = value;
    return NULL;
}

/* "e-05" or "e-5" is how JSON writers end a number below 0.0001. */
static int read_exponent(const char *text)
{
    if (strncmp(text, "e-", 2) != 0)
        return -1;
    text += text[2] == '0' && text[3] != '\0' ? 3 : 2;
    return text[0] >= '0' && text[0] <= '6' && text[1] == '\0' ? text[0] - '0'
                                                               : -1;
}

const char *rs_parse_us(const char *text, uint64_t *ps)
{
    const char *end = text + strspn(text, "0123456789.");
    int exponent = *end == '\0' ? 0 : read_exponent(end);
    const char *cause;
    uint64_t value = 0;

    if (!is_digit(*text) || exponent < 0)
        return "expected a number of microseconds";
    cause = parse_decimal(text, &text, 6 - exponent, &value);
    if (cause == NULL && text != end)
        return "expected a number of microseconds";
    if (cause == NULL)
        *ps = value;
    return cause;
}

/* value / 10^digits without trailing zeros. */
static const char *format_decimal(uint64_t value, int digits, char *buffer)
{
    uint64_t unit = 1;
    int length;

    for (int i = 0; i < digits; i++)
        unit *= 10;
    length = snprintf(buffer, RS_UNITS_TEXT, "%" PRIu64 ".%0*" PRIu64,
                      value / unit, digits, value % unit);
    while (buffer[length - 1] == '0')
        length--;
    if (buffer[length - 1] == '.')
        length--;
    buffer[length] = '\0';
    return buffer;
}

const char *rs_format_us(uint64_t ps, char *buffer)
{
    return format_decimal(ps, 6, buffer);
}

const char *rs_format_rate(uint64_t rate, char *buffer)
{
    format_decimal(rate, 6, buffer);
    return strcat(buffer, " MB/s");
}
