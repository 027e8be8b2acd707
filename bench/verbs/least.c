/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/verbs/least.h"

#include <stdlib.h>

static int compare_times(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

double median(double *times, size_t count)
{
    qsort(times, count, sizeof(*times), compare_times);
    return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

void equations_add(struct equations *e, const double *factors, double time)
{
    for (size_t r = 0; r < e->unknowns; r++) {
        for (size_t c = 0; c < e->unknowns; c++)
            e->a[r][c] += factors[r] * factors[c] / (time * time);
        e->a[r][e->unknowns] += factors[r] / time;
    }
}

/* Elimination; the matrix is positive definite, so it needs no pivots. */
void equations_solve(struct equations *e, double *x)
{
    const size_t n = e->unknowns;

    for (size_t p = 0; p < n; p++) {
        for (size_t r = 0; r < n; r++) {
            const double factor = r == p ? 0 : e->a[r][p] / e->a[p][p];

            for (size_t c = p; c <= n; c++)
                e->a[r][c] -= factor * e->a[p][c];
        }
    }
    for (size_t p = 0; p < n; p++)
        x[p] = e->a[p][n] / e->a[p][p];
}
