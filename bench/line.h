/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * LINE: how long a cache line takes to another core and back.
 *
 * On virtual machines this flips between two classes within seconds, and every
 * small-message time with it, so each timed block carries its own measurement.
 */
#ifndef BENCH_LINE_H
#define BENCH_LINE_H

#include <stdatomic.h>
#include <stdint.h>

/** Round trips below this many nanoseconds are called "near", others "far";
 * what was seen lies between 45 and 115, and between 475 and 560. */
#define LINE_NEAR_BELOW 250

/** In memory that both sides map, zeroed once. */
struct line {
    _Alignas(64) _Atomic uint64_t turn; /* counts half round trips */
    _Alignas(64) _Atomic uint64_t done; /* measurements completed */
};

/** Measure; side 0 and side 1 must call it at about the same time. Others may
 * watch `done`. Returns the median round trip in nanoseconds. */
double line_round_trip(struct line *line, int side);

/** Nanoseconds of CLOCK_MONOTONIC. */
double line_now(void);

/** Keep the calling thread on the index-th of the cores it may use. */
void line_pin(int index);

int line_compare_doubles(const void *a, const void *b);

#endif
