/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the rails between two hosts and writes them as a machine file.
 *
 * What is measured are exchanges: both hosts send n puts of m bytes to the
 * other, prepared and posted at once. On one rail the time is modelled as
 *
 *     T(n, m) = base + n * command + n * m * G
 *
 * with base = L + o, command = g, the gap of a put, and G, the gap of a byte.
 * The three are the least squares of the relative errors,
 * min sum ((model - T) / T)^2, over all n and all m of a packet or more: linear
 * in the three. The rate of engine and links is 1 / G. The last packet is carried
 * once more when all others have been, by the switch, which is in the base; of a
 * shorter put that is less, by up to G times a packet, and the model has no term
 * for it. With R rails that all send the same list,
 *
 *     T_R(n, m) = base + n * command + (R - 1) * open + R * n * m / inject
 *
 * where `open` is what a rail more costs those after it and `inject` what all
 * rails of a host carry together, by least squares in the same way; rails that
 * carry R / G together have no such ceiling. O is the slope of the time of
 * posting. strided.h has what is measured of strided memory.
 *
 * Usage: probe [NAME [REPETITIONS]]; the file goes to stdout, what was measured
 * to stderr.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/verbs/least.h"
#include "bench/verbs/queues.h"
#include "bench/verbs/strided.h"

enum {
    SKIP = 77,
    MOST_PUTS = 16,
    MOST_BYTES = 400000,
    RAILS_MOST = 16,
    PACKET = 4096, /* the MTU; shorter puts are measured and not fitted */
};

static const uint64_t sizes[] = {1024, 4096, 10000, 25000, 50000, 100000};
static const size_t counts[] = {1, 2, 4, 8, 16};

/* One measured point, ns. */
struct point {
    uint64_t bytes;
    size_t puts;
    unsigned rails;
    double time, posted;
};

/* ns, and ns per byte. */
struct model {
    double base, command, byte;
    double open, inject; /* inject 0: no ceiling */
};

/* Time of an exchange in which `rails` rails send `puts` puts each. */
static struct point measure(struct pair *pair, unsigned rails, size_t puts,
                            uint64_t bytes, size_t repetitions)
{
    struct queue queues[2 * RAILS_MOST];
    struct rail_list lists[RAILS_MOST] = {0};
    uint64_t list[MOST_PUTS];
    double times[repetitions], posted[repetitions];
    size_t num_queues;

    for (size_t i = 0; i < puts; i++)
        list[i] = bytes;
    for (unsigned r = 0; r < rails; r++)
        lists[r] = (struct rail_list){list, puts};
    num_queues = pair_queues(pair, lists, queues);
    for (size_t i = 0; i < repetitions; i++) {
        times[i] = (double)queues_run(queues, num_queues);
        posted[i] = (double)queues[0].posted;
    }
    for (size_t i = 0; i < num_queues; i++)
        queue_destroy(&queues[i]);
    return (struct point){bytes, puts, rails, median(times, repetitions),
                          median(posted, repetitions)};
}

/* Least squares of the relative errors over the points with one rail. */
static struct model fit(const struct point *points, size_t count)
{
    struct equations equations = {.unknowns = 3};
    double x[UNKNOWNS_MOST];

    for (size_t i = 0; i < count; i++) {
        const double puts = (double)points[i].puts;

        if (points[i].bytes < PACKET)
            continue;
        equations_add(&equations,
                      (double[]){1, puts, puts * (double)points[i].bytes},
                      points[i].time);
    }
    equations_solve(&equations, x);
    return (struct model){.base = x[0], .command = x[1], .byte = x[2]};
}

static double predict(const struct model *model, const struct point *p)
{
    return model->base + (double)p->puts * model->command +
           (double)p->puts * (double)p->bytes * model->byte;
}

/* Mean and largest relative error of the fit. @return how many points it has */
static size_t judge(const struct model *model, const struct point *points,
                    size_t count, double *mean, double *most)
{
    size_t fitted = 0;

    *mean = *most = 0;
    for (size_t i = 0; i < count; i++) {
        const double time = predict(model, &points[i]);
        const double error = fabs(time / points[i].time - 1);

        if (points[i].bytes >= PACKET) {
            *mean += error;
            *most = fmax(*most, error);
            fitted++;
        }
        fprintf(stderr, "%2zu puts of %6" PRIu64 ": %8.3f ms, fitted %8.3f "
                "(%+5.1f %%), posted after %7.3f\n", points[i].puts,
                points[i].bytes, points[i].time / 1e6, time / 1e6,
                100 * (time / points[i].time - 1), points[i].posted / 1e6);
    }
    *mean /= (double)fitted;
    return fitted;
}

/* The slope of y over x, by least squares. */
static double slope(const double *x, const double *y, size_t count)
{
    double sx = 0, sy = 0, sxx = 0, sxy = 0;

    for (size_t i = 0; i < count; i++) {
        sx += x[i];
        sy += y[i];
        sxx += x[i] * x[i];
        sxy += x[i] * y[i];
    }
    return ((double)count * sxy - sx * sy) / ((double)count * sxx - sx * sx);
}

/* The part of the model for all rails at once: open and inject. */
static void fit_rails(struct pair *pair, size_t repetitions,
                      struct model *model)
{
    const double rails = pair->num_rails;
    struct equations both = {.unknowns = 2}, one = {.unknowns = 1};
    double x[UNKNOWNS_MOST];

    if (pair->num_rails < 2)
        return;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        const struct point p = measure(pair, pair->num_rails, 4, sizes[s],
                                       repetitions);
        const double more = p.time - model->base - 4 * model->command;
        const double all = rails * 4 * (double)p.bytes;

        fprintf(stderr, "%u rails, 4 puts of %6" PRIu64 " each: %8.3f ms\n",
                p.rails, p.bytes, p.time / 1e6);
        if (p.bytes < PACKET)
            continue;
        if (more <= 0)
            die("%u rails take no longer than a list without bytes", p.rails);
        equations_add(&both, (double[]){rails - 1, all}, more);
        equations_add(&one, &(double){rails - 1}, more - all * model->byte / rails);
    }
    equations_solve(&both, x);
    model->open = fmax(0, x[0]);
    model->inject = x[1];
    if (x[1] * rails <= model->byte) {
        equations_solve(&one, x);
        model->open = fmax(0, x[0]);
        model->inject = 0;
    }
}

/* Two lanes at once over one, from the given rails of host 0 to rail 0 of
 * host 1. */
static double together(struct fabric *fabric, unsigned second,
                       size_t repetitions)
{
    const uint64_t bytes = MOST_BYTES / 2;
    double times[2][repetitions];
    struct lane lanes[2];
    struct queue queues[2];

    for (unsigned i = 0; i < 2; i++) {
        lane_create(&lanes[i], fabric_rail(fabric, 0, i * second),
                    fabric_rail(fabric, 1, 0), bytes, 1);
        queue_create(&queues[i], &lanes[i], &bytes, 1);
    }
    for (size_t i = 0; i < 2 * repetitions; i++)
        times[i % 2][i / 2] = (double)queues_run(queues, i % 2 + 1);
    for (unsigned i = 0; i < 2; i++) {
        queue_destroy(&queues[i]);
        lane_destroy(&lanes[i]);
    }
    return median(times[1], repetitions) / median(times[0], repetitions);
}

static size_t measure_rail(struct pair *pair, size_t repetitions,
                           struct point *points)
{
    size_t count = 0;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
            if (sizes[s] * counts[c] <= MOST_BYTES)
                points[count++] = measure(pair, 1, counts[c], sizes[s],
                                          repetitions);
        }
    }
    return count;
}

/* The time of posting one put, over its bytes: O, ns per byte. */
static double posting_slope(const struct point *points, size_t count)
{
    double x[count], y[count];
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        if (points[i].puts != 1)
            continue;
        x[used] = (double)points[i].bytes;
        y[used++] = points[i].posted;
    }
    return slope(x, y, used);
}

static void write_machine(const char *name, unsigned rails,
                          const struct model *model,
                          const struct strided *strided)
{
    const uint64_t rate = (uint64_t)llround(1e9 / model->byte);

    printf("rsched: machine/1\nname: %s\n"
           "description: hosts with %u Soft-RoCE rails on one switch\n"
           "path: verbs\n"
           "engines: {count: %u, rate: %" PRIu64 " B/s, open: %.1f us, "
           "command: %.1f us}\n", name, rails, rails, rate, model->open / 1e3,
           fmax(0, model->command) / 1e3);
    if (model->inject > 0) {
        const uint64_t inject = (uint64_t)llround(1e9 / model->inject);

        printf("# What the processors of the host carry on all rails.\n"
               "node: {inject: %" PRIu64 " B/s, eject: %" PRIu64 " B/s}\n",
               inject, inject);
    }
    printf("exchange: {base: %.1f us}\n"
           "# Every rail is a network of its own: a host's port on it is a link, "
           "both ways.\n"
           "topology: {type: fat-tree, leaf: 16, link: %" PRIu64 " B/s, "
           "rails: %u}\n"
           "# One queue pair fills a rail: within a host nothing else is shared.\n"
           "routes: {\"*\": []}\n", fmax(0, model->base) / 1e3, rate, rails);
    printf("# Strided memory, on one device.\n"
           "sources:\n  gather: {o: %.3f us, block: %.3f us}\n"
           "  scatter: {block: %.3f us}\n"
           "  pack: {block: %.3f us, rate: %.0f MB/s}\n",
           strided->gather_message / 1e3, strided->gather_block / 1e3,
           strided->scatter_block / 1e3, strided->pack_block / 1e3,
           fmax(1, 1e3 / strided->pack_byte));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "rails";
    const size_t repetitions = argc > 2 ? strtoul(argv[2], NULL, 10) : 7;
    struct point points[sizeof(sizes) / sizeof(*sizes) *
                        (sizeof(counts) / sizeof(*counts))];
    struct fabric fabric;
    struct pair pair;
    struct strided strided;
    struct model model;
    double mean, most, shared, incast;
    size_t count, fitted;

    if (!fabric_open(&fabric, RAIL_TIMEOUT_MEASURED)) {
        puts("SKIP: there are no devices h0r0, h0r1, ...");
        return SKIP;
    }
    if (fabric.num_hosts < 2 || repetitions < 1 || repetitions > 100)
        die("two hosts are needed, and 1 to 100 repetitions");
    pair_create(&pair, &fabric, fabric.num_rails, MOST_BYTES, MOST_PUTS);
    measure(&pair, 1, 4, 25000, 2); /* caches and lazy set-up */
    count = measure_rail(&pair, repetitions, points);
    model = fit(points, count);
    fitted = judge(&model, points, count, &mean, &most);
    fit_rails(&pair, repetitions, &model);
    shared = together(&fabric, 0, repetitions);
    incast = fabric.num_rails > 1 ? together(&fabric, 1, repetitions) : 0;
    fprintf(stderr, "2 QPs on one rail: %.2f times one; from two rails into one "
            "port: %.2f\n", shared, incast);
    strided = strided_measure(fabric_rail(&fabric, 0, 0), repetitions);
    printf("# SPDX-License-Identifier: BSD-3-Clause\n"
           "# Measured by bench/verbs/probe: %zu points with puts of a packet or "
           "more, each the\n# median of %zu runs. The fit (its source has the "
           "formula) misses them by %.1f %%\n# on average, by %.1f %% at most. L + o %.1f us, g %.1f us, G %.4f "
           "ns, O %.4f ns. Two queue pairs on one\n# rail take %.2f times one, "
           "from two rails into one port %.2f times.\n",
           fitted, repetitions, 100 * mean, 100 * most, model.base / 1e3,
           model.command / 1e3, model.byte, posting_slope(points, count), shared,
           incast);
    write_machine(name, fabric.num_rails, &model, &strided);
    pair_destroy(&pair);
    fabric_close(&fabric);
    return EXIT_SUCCESS;
}
