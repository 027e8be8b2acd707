/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/line.h"

#include <stdlib.h>
#include <time.h>

#include "librsched/base/cpus.h"

enum { SAMPLES = 15, TRIPS = 32 };

double rs_line_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int rs_line_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double rs_line_round_trip(struct rs_line *line, int side)
{
    /* Both sides count from the same even number: the other side cannot begin
     * the next measurement before this one has ended. */
    uint64_t turn = (uint64_t)atomic_load(&line->done) * 2 * SAMPLES * TRIPS;
    double times[SAMPLES];

    for (int i = 0; i < SAMPLES; i++) {
        double start = rs_line_now();

        for (int k = 0; k < TRIPS; k++, turn += 2) {
            if (side == 0)
                atomic_store_explicit(&line->turn, turn + 1,
                                      memory_order_release);
            while (atomic_load_explicit(&line->turn, memory_order_acquire) !=
                   turn + (side == 0 ? 2 : 1))
                ;
            if (side == 1)
                atomic_store_explicit(&line->turn, turn + 2,
                                      memory_order_release);
        }
        times[i] = (rs_line_now() - start) / TRIPS;
    }
    qsort(times, SAMPLES, sizeof(times[0]), rs_line_compare);
    /* Side 1 may not look at `done` for its next measurement before side 0 has
     * counted this one. */
    uint64_t done = turn / (2 * SAMPLES * TRIPS);
    if (side == 0)
        atomic_store(&line->done, done);
    else
        while (atomic_load(&line->done) != done)
            ;
    return times[SAMPLES / 2];
}

void rs_line_pin(int index)
{
    struct rs_cpus allowed;

    if (rs_cpus_allowed(&allowed))
        rs_cpus_bind_to(
            rs_cpus_nth(&allowed, index % rs_cpus_count(&allowed)));
}
