/* SPDX-License-Identifier: BSD-3-Clause */
/* Medians, and linear least squares of relative errors. */
#ifndef BENCH_VERBS_LEAST_H
#define BENCH_VERBS_LEAST_H

#include <stddef.h>

/** The median of times, which are sorted. */
double median(double *times, size_t count);

enum { UNKNOWNS_MOST = 3 };

/* The normal equations; all zero but `unknowns` to begin with. */
struct equations {
    size_t unknowns;
    double a[UNKNOWNS_MOST][UNKNOWNS_MOST + 1];
};

/** Add: the sum of factors[i] * x[i] is to be `time`, in relative terms. */
void equations_add(struct equations *equations, const double *factors,
                   double time);

/** Find the x, of which there is one. It spoils the equations. */
void equations_solve(struct equations *equations, double *x);

#endif
