/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers with units, exact: "0.2 us" is 200000 ps, never 199999. */
#ifndef RS_BASE_UNITS_H
#define RS_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/** Room for what the formatting functions write. */
enum { RS_UNITS_TEXT = 48 };

/**
 * Read a whole number: decimal digits only, no sign, no leading zero.
 *
 * @return NULL, or what is wrong with the text (a static string); *value is
 *         written on success only. The same holds for the two below.
 */
const char *rs_parse_whole(const char *text, uint64_t *value);

/** As rs_parse_whole(), with an optional minus sign. */
const char *rs_parse_signed(const char *text, int64_t *value);

/** Read a time: DIGITS[.DIGITS], one space, and ps, ns, us, ms or s. It must
 * be a whole number of picoseconds below 2^63. */
const char *rs_parse_time(const char *text, uint64_t *ps);

/** Read a rate: DIGITS[.DIGITS], one space, and B/s, kB/s, MB/s, GB/s or TB/s
 * (powers of ten). It must be a whole number of bytes per second, from 1 to
 * RS_RATE_MOST. */
const char *rs_parse_rate(const char *text, uint64_t *rate);

/** The largest rate, bytes/s: the simulator computes in 2^-16 bytes/s. */
#define RS_RATE_MOST (UINT64_C(1) << 46)

/** Read a decimal number of microseconds without a unit, as in schedules. */
const char *rs_parse_us(const char *text, uint64_t *ps);

/** Write a time as microseconds without a unit and without trailing zeros
 * ("10.751688", "0"). Returns `buffer`, which has RS_UNITS_TEXT bytes. */
const char *rs_format_us(uint64_t ps, char *buffer);

/** Write a rate so that rs_parse_rate() reads the same value ("3850 MB/s"). */
const char *rs_format_rate(uint64_t rate, char *buffer);

#endif
