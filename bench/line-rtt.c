/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Prints the round trip of a cache line between the first two cores that the
 * process may use: "NANOSECONDS near|far|unknown", the median of a few tries.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "librsched/base/cpus.h"
#include "librsched/base/line.h"

enum { TRIES = 9 };

static struct rs_line line;

static void *other_side(void *unused)
{
    rs_line_pin(1);
    for (int i = 0; i < TRIES; i++)
        rs_line_round_trip(&line, 1);
    return unused;
}

int main(void)
{
    struct rs_cpus allowed;
    pthread_t thread;
    double times[TRIES];

    if (!rs_cpus_allowed(&allowed) || rs_cpus_count(&allowed) < 2) {
        puts("0 unknown");
        return 0;
    }
    if (pthread_create(&thread, NULL, other_side, NULL) != 0) {
        perror("line-rtt: pthread_create");
        return 1;
    }
    rs_line_pin(0);
    for (int i = 0; i < TRIES; i++)
        times[i] = rs_line_round_trip(&line, 0);
    pthread_join(thread, NULL);
    qsort(times, TRIES, sizeof(times[0]), rs_line_compare);
    printf("%.0f %s\n", times[TRIES / 2],
           times[TRIES / 2] < RS_LINE_NEAR_BELOW ? "near" : "far");
    return 0;
}
