/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a cache line takes to another core and back.
 *
 * On virtual machines this flips between two classes within seconds, and every
 * small-message time with it, so each timed block carries its own measurement.
 */
#ifndef RS_BASE_LINE_H
#define RS_BASE_LINE_H

#include <stdatomic.h>
#include <stdint.h>

/** Round trips below this many nanoseconds are called "near", others "far";
 * what was seen lies between 45 and 115, and between 475 and 560. */
#define RS_LINE_NEAR_BELOW 250

/** In memory that both sides map, zeroed once. */
struct rs_line {
    _Alignas(64) _Atomic uint64_t turn; /* counts half round trips */
    _Alignas(64) _Atomic uint64_t done; /* measurements completed */
};

/** Measure; side 0 and side 1 must call it at about the same time. Others may
 * watch `done`. Returns the median round trip in nanoseconds. */
double rs_line_round_trip(struct rs_line *line, int side);

/** Nanoseconds of CLOCK_MONOTONIC. */
double rs_line_now(void);

/** Keep the calling thread on the index-th of the cores it may use. */
void rs_line_pin(int index);

int rs_line_compare(const void *a, const void *b);

#endif
