/* SPDX-License-Identifier: BSD-3-Clause */
/* The parameters of a way from measurements. */
#include <math.h>
#include <string.h>

#include <rsched/error.h>

#include "librsched/base/clock.h"
#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "models/ways.h"

/* Further ranges that do not lower the error to less than this part of it only
 * follow noise; below the floor nothing is gained. */
#define WORTH_MORE 0.8
#define ERROR_FLOOR 0.002

#define MEGA UINT64_C(1000000)

/* Parameters: o, then the ps for a byte of each range. */
enum { PARAMETERS = RS_WAY_RANGES + 1 };

struct fit {
    const struct rs_way_sample *samples;
    size_t count;
    double latency;
    uint64_t from[RS_WAY_RANGES];
    uint32_t num_ranges;
    double x[PARAMETERS];
    double error; /* root of the mean square */
};

/* What a parameter is multiplied by for a sample. */
static double factor_of(const struct fit *f, uint32_t parameter,
                        uint64_t bytes)
{
    uint64_t from, to = bytes;

    if (parameter == 0)
        return 1;
    from = f->from[parameter - 1];
    if (parameter < f->num_ranges && f->from[parameter] < to)
        to = f->from[parameter];
    return to > from ? (double)(to - from) : 0;
}

/* Gauss with row pivots. Columns differ by powers of ten, so each is scaled by
 * its diagonal first. @return whether there is one solution */
static bool solve(double a[PARAMETERS][PARAMETERS], double *b, double *x,
                  uint32_t n)
{
    double scale[PARAMETERS];

    for (uint32_t i = 0; i < n; i++) {
        if (a[i][i] <= 0)
            return false;
        scale[i] = 1 / sqrt(a[i][i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        b[i] *= scale[i];
        for (uint32_t j = 0; j < n; j++)
            a[i][j] *= scale[i] * scale[j];
    }
    for (uint32_t k = 0; k < n; k++) {
        if (a[k][k] < 1e-12) /* positive definite, but for rounding */
            return false;
        for (uint32_t i = k + 1; i < n; i++) {
            double m = a[i][k] / a[k][k];

            for (uint32_t j = k; j < n; j++)
                a[i][j] -= m * a[k][j];
            b[i] -= m * b[k];
        }
    }
    for (uint32_t k = n; k-- > 0;) {
        double sum = b[k];

        for (uint32_t j = k + 1; j < n; j++)
            sum -= a[k][j] * x[j];
        x[k] = sum / a[k][k];
    }
    for (uint32_t i = 0; i < n; i++)
        x[i] *= scale[i];
    return true;
}

static double error_of(const struct fit *f)
{
    double sum = 0;

    for (size_t s = 0; s < f->count; s++) {
        double model = f->latency, difference;

        for (uint32_t i = 0; i <= f->num_ranges; i++)
            model += f->x[i] * factor_of(f, i, f->samples[s].bytes);
        difference = (model - f->samples[s].ps) / f->samples[s].ps;
        sum += difference * difference;
    }
    return sqrt(sum / (double)f->count);
}

/* Least squares with some parameters held at 0. */
static bool fit_free(struct fit *f, const bool *held)
{
    double a[PARAMETERS][PARAMETERS] = {{0}}, b[PARAMETERS] = {0};
    double x[PARAMETERS] = {0}, row[PARAMETERS];
    uint32_t number[PARAMETERS], n = 0;

    for (uint32_t i = 0; i <= f->num_ranges; i++) {
        if (!held[i])
            number[n++] = i;
    }
    for (size_t s = 0; s < f->count; s++) {
        double weight = 1 / f->samples[s].ps;
        double target = (f->samples[s].ps - f->latency) * weight;

        for (uint32_t i = 0; i < n; i++)
            row[i] = factor_of(f, number[i], f->samples[s].bytes) * weight;
        for (uint32_t i = 0; i < n; i++) {
            b[i] += row[i] * target;
            for (uint32_t j = 0; j < n; j++)
                a[i][j] += row[i] * row[j];
        }
    }
    if (!solve(a, b, x, n))
        return false;
    memset(f->x, 0, sizeof(f->x));
    for (uint32_t i = 0; i < n; i++)
        f->x[number[i]] = x[i];
    return true;
}

/* Of the solutions in which no parameter is negative, the best one: it is that
 * of least squares with the right ones held at 0. */
static bool fit_ranges(struct fit *f)
{
    struct fit best = *f;
    bool any = false;

    for (uint32_t mask = 0; mask < UINT32_C(1) << (f->num_ranges + 1); mask++) {
        bool held[PARAMETERS] = {false}, good;

        for (uint32_t i = 0; i <= f->num_ranges; i++)
            held[i] = (mask >> i & 1) != 0;
        good = fit_free(f, held);
        for (uint32_t i = 0; i <= f->num_ranges && good; i++)
            good = f->x[i] >= 0;
        if (!good)
            continue;
        f->error = error_of(f);
        if (!any || f->error < best.error)
            best = *f;
        any = true;
        if (mask == 0)
            break; /* nothing held is the best there is */
    }
    *f = best;
    return any;
}

/* Whether a range may begin at a sample: no other one does, and there are
 * samples on both sides. */
static bool is_free(const struct fit *f, size_t sample)
{
    for (uint32_t i = 0; i < f->num_ranges; i++) {
        if (f->from[i] == f->samples[sample].bytes)
            return false;
    }
    return sample > 0 && sample + 1 < f->count;
}

/* Beginnings ascend but for number `range`. */
static void sort_range(struct fit *f, uint32_t range)
{
    uint64_t from = f->from[range];

    for (; range > 1 && f->from[range - 1] > from; range--)
        f->from[range] = f->from[range - 1];
    for (; range + 1 < f->num_ranges && f->from[range + 1] < from; range++)
        f->from[range] = f->from[range + 1];
    f->from[range] = from;
}

/* Find the best place for one range. @return whether it is a better one */
static bool place_range(struct fit *f, uint32_t range)
{
    struct fit best = *f;

    for (size_t s = 0; s < f->count; s++) {
        struct fit tried = *f;

        if (!is_free(f, s))
            continue;
        tried.from[range] = f->samples[s].bytes;
        sort_range(&tried, range);
        if (fit_ranges(&tried) && tried.error < best.error)
            best = tried;
    }
    if (best.error >= f->error)
        return false;
    *f = best;
    return true;
}

/* One range more. @return whether there is a place that makes it better */
static bool add_range(struct fit *f)
{
    bool better;

    f->from[f->num_ranges++] = UINT64_MAX;
    if (!place_range(f, f->num_ranges - 1))
        return false;
    do {
        better = false;
        for (uint32_t i = 1; i < f->num_ranges; i++)
            better = place_range(f, i) || better;
    } while (better);
    return true;
}

/* As a rate, in whole MB/s if there are any: more digits say nothing. */
static uint64_t to_rate(double ps)
{
    double most = (double)RS_RATE_MOST;
    double rate = ps * most < (double)RS_PS_PER_S ? most
                                                  : (double)RS_PS_PER_S / ps;
    uint64_t whole = rate < 1 ? 1 : (uint64_t)rate;

    return whole < MEGA ? whole : whole / MEGA * MEGA;
}

static void to_cost(const struct fit *f, struct rs_way_cost *cost)
{
    *cost = (struct rs_way_cost){.message = (uint64_t)(f->x[0] + 0.5),
                                 .num_ranges = f->num_ranges};
    for (uint32_t i = 0; i < f->num_ranges; i++)
        cost->ranges[i] =
            (struct rs_way_range){f->from[i], to_rate(f->x[i + 1])};
}

static bool is_usable(const struct rs_way_sample *samples, size_t count)
{
    if (count < 2 || count > RS_WAY_SAMPLES)
        return false;
    for (size_t s = 0; s < count; s++) {
        if (!(samples[s].ps > 0) ||
            (s > 0 && samples[s].bytes <= samples[s - 1].bytes))
            return false;
    }
    return true;
}

int rs_way_fit(const struct rs_way_sample *samples, size_t count,
               uint64_t latency, struct rs_way_cost *cost, double *error)
{
    struct fit fits[RS_WAY_RANGES] = {{.samples = samples,
                                       .count = count,
                                       .latency = (double)latency,
                                       .num_ranges = 1}};
    size_t chosen = 0;

    if (!is_usable(samples, count))
        return rs_fail(RSCHED_EINVAL, "%zu samples that cannot be fitted",
                       count);
    fit_ranges(&fits[0]);
    /* One range may gain nothing without the next one, so all are tried. */
    for (size_t n = 1; n < RS_WAY_RANGES; n++) {
        fits[n] = fits[n - 1];
        if (!add_range(&fits[n]))
            break;
        if (fits[chosen].error > ERROR_FLOOR &&
            fits[n].error < WORTH_MORE * fits[chosen].error)
            chosen = n;
    }
    to_cost(&fits[chosen], cost);
    *error = fits[chosen].error;
    return 0;
}
