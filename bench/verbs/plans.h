/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans as text, so that programs with nothing in common run the same ones.
 * Lines:
 *     plan NAME
 *     rail NUMBER BYTES...     what that rail sends, in this order
 */
#ifndef BENCH_VERBS_PLANS_H
#define BENCH_VERBS_PLANS_H

#include <stddef.h>
#include <stdint.h>

enum { PLAN_NAME = 128, PLAN_RAILS_MOST = 16 };

/** What one rail sends, in this order. */
struct rail_list {
    uint64_t *bytes;
    size_t num_puts;
};

struct plan {
    char name[PLAN_NAME];
    struct rail_list rails[PLAN_RAILS_MOST];
};

struct plans {
    struct plan *plans;
    size_t count;
    uint64_t most_bytes; /* of a rail in a plan */
    unsigned most_puts;
};

/** Ends the program with a text if the file is not that. */
struct plans plans_read(const char *path);
void plans_free(struct plans *plans);

#endif
