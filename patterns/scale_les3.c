/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The halo exchange of SCALE-LES3 (Hatanaka, Hori, Ishikawa, "RDMA scheduling
 * for MPI communication", table 1): grids of K x 16 x 16 doubles with a halo
 * of 2. A put carries (2+K+2) * 2 * 16 * 8 bytes east-west, half of that
 * north-south and a sixteenth of it diagonally.
 */
#include <inttypes.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "patterns/builtin.h"

/* Request order: diagonals first, then east-west, then north-south, so that
 * round-robin meets them as in the paper's figures 3 to 11. */
static const struct {
    const char *direction;
    uint64_t share; /* bytes are those of an east-west put divided by this */
    const char *sets;
} requests[] = {
    {"NW", 16, " diag all "}, {"NW", 16, " diag all "},
    {"NE", 16, " diag all "}, {"NE", 16, " diag all "},
    {"SW", 16, " diag all "}, {"SW", 16, " diag all "},
    {"SE", 16, " diag all "}, {"SE", 16, " diag all "},
    {"W", 1, " ew ewns all "}, {"E", 1, " ew ewns all "},
    {"N", 2, " ns ewns all "}, {"N", 2, " ns ewns all "},
    {"S", 2, " ns ewns all "}, {"S", 2, " ns ewns all "},
};

static int check_grid(const char *specification, const char *text,
                      uint64_t *grid)
{
    static const uint16_t grids[] = {60,  70,  80,  109, 218, 327,
                                     436, 545, 654, 763, 872};

    if (rs_parse_whole(text, grid) == NULL) {
        for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
            if (grids[i] == *grid)
                return 0;
        }
    }
    return rs_fail(RSCHED_EINVAL, "pattern %s: '%s' is not a grid of the "
                   "paper (60, 70, 80, 109, 218, 327, 436, 545, 654, 763, "
                   "872)", specification, text);
}

static int check_set(const char *specification, const char *set)
{
    static const char *const sets[] = {"ew", "ns", "ewns", "diag", "all"};

    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (strcmp(sets[i], set) == 0)
            return 0;
    }
    return rs_fail(RSCHED_EINVAL, "pattern %s: '%s' is not a set of "
                   "directions (ew, ns, ewns, diag, all)", specification, set);
}

int rs_pattern_fill_scale_les3(const char *specification,
                               char *const *arguments, size_t num_arguments,
                               struct rsched_pattern *pattern)
{
    uint64_t grid = 0;
    char set[8];
    int error = check_grid(specification, arguments[0], &grid);

    (void)num_arguments;
    if (error == 0)
        error = check_set(specification, arguments[1]);
    if (error != 0)
        return error;
    snprintf(set, sizeof(set), " %s ", arguments[1]);
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        uint64_t bytes = (2 + grid + 2) * 2 * 16 * 8 / requests[i].share;

        if (strstr(requests[i].sets, set) == NULL)
            continue;
        error = rs_pattern_append(pattern, requests[i].direction, bytes);
        if (error != 0)
            return error;
    }
    return 0;
}
