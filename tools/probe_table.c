/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs as tables of `rsched probe` have them. */
#include "librsched/base/units.h"
#include "tools/probe.h"

void probe_print_head(FILE *out)
{
    fputs("L, o, g and block in us; O and G in GB/s, and from how many bytes on: "
          "bytes cost\nnothing where there is a dash. rms: how far measured times "
          "are from these, as root\nof the mean square\n\n", out);
}

/* Below that tenths of GB/s say nothing: of devices in software. */
#define SLOW 100000000

/* The rate of what costs nothing, as a fit has it: in whole MB/s. */
#define RATE_FREE (RS_RATE_MOST / 1000000 * 1000000)

void probe_print_cost(const char *name, const char *bytes_name,
                      const struct rs_way_cost *cost, double error, FILE *out)
{
    fprintf(out, "  %s %8.3f  rms %5.1f %%  %s ", name,
            (double)cost->message / 1e6, 100 * error, bytes_name);
    for (uint32_t i = 0; i < cost->num_ranges; i++) {
        if (i > 0)
            fprintf(out, ", from %llu B ",
                    (unsigned long long)cost->ranges[i].from);
        if (cost->ranges[i].rate < RATE_FREE)
            fprintf(out, "%.*f", cost->ranges[i].rate < SLOW ? 4 : 1,
                    (double)cost->ranges[i].rate / 1e9);
        else
            fputc('-', out);
    }
    fputc('\n', out);
}
