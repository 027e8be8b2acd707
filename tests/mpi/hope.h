/* SPDX-License-Identifier: BSD-3-Clause */
/* HOPE: waiting, in rounds, for what lanes make come true sooner or later. */
#ifndef RS_TESTS_MPI_HOPE_H
#define RS_TESTS_MPI_HOPE_H

#include "tests/mpi/common.h"

/* It may take many rounds: where processes have no core of their own,
 * incarnations are stopped again and again. New ones must come. */
enum { PATIENCE = 4000 }; /* rounds without one */

struct hope {
    uint64_t incarnations;
    int rounds; /* since the last one */
};

static inline void go_on(struct hope *hope, const char *what)
{
    uint64_t incarnations = counter("incarnations");

    if (incarnations != hope->incarnations)
        *hope = (struct hope){.incarnations = incarnations};
    hope->rounds++;
    CHECK(hope->rounds < PATIENCE,
          "%s: %" PRIu64 " sends, %" PRIu64 " native starts, %" PRIu64
          " incarnations, %" PRIu64 " stops", what, counter("lane_sends"),
          counter("lane_native"), counter("incarnations"), counter("stops"));
}

#endif
