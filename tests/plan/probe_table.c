/* SPDX-License-Identifier: BSD-3-Clause */
/* A line of what `rsched probe` prints. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tools/probe.h"

Test(probe_table, bytes_that_cost_nothing_have_no_rate)
{
    const struct rs_way_cost cost = {
        .message = 1500000,
        .num_ranges = 4,
        .ranges = {{0, UINT64_C(12340000000)},
                   {4096, UINT64_C(70368744000000)}, /* the most, in whole MB/s */
                   {8192, UINT64_C(500000000)},
                   {16384, UINT64_C(2500000)}}};
    char line[256] = "";
    FILE *out = fmemopen(line, sizeof(line), "w");

    cr_assert_not_null(out);
    probe_print_cost("o", "O", &cost, 0.244, out);
    fclose(out);
    cr_assert_str_eq(line, "  o    1.500  rms  24.4 %  "
                           "O 12.3, from 4096 B -, from 8192 B 0.5, from 16384 B 0.0025\n");
}
