/* SPDX-License-Identifier: BSD-3-Clause */
/* HOPE: waiting, in rounds, for what lanes make come true sooner or later. */
#ifndef RS_TESTS_MPI_HOPE_H
#define RS_TESTS_MPI_HOPE_H

#include "tests/mpi/common.h"

/* It may take many rounds, and seconds: where processes have no core of their own,
 * incarnations are stopped again and again. New ones must come. */
enum {
    PATIENCE = 20000, /* rounds without one; trials are up to 5600 apart, */
    PATIENCE_S = 20,  /* and so long: a sender rests 64 times as long as it has waited */
    AT_ONCE = 60,    /* rounds in which all processes are to have it at once */
};

struct hope {
    uint64_t incarnations;
    int rounds; /* since the last one */
    double since; /* it, s */
    int all;
    int had; /* this process, in some round */
};

/* Whether it has come true in this round in all processes, or, after many
 * rounds, in each in some round: processes without a core of their own take
 * turns. Collective. */
static inline bool all_have(struct hope *hope, bool has)
{
    int good[2];

    hope->had |= has;
    good[0] = has;
    good[1] = hope->had && hope->all++ >= AT_ONCE;
    PMPI_Allreduce(MPI_IN_PLACE, good, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return good[0] || good[1];
}

static inline void go_on(struct hope *hope, const char *what)
{
    uint64_t incarnations = counter("incarnations");

    if (hope->rounds == 0 || incarnations != hope->incarnations) {
        hope->rounds = 0;
        hope->since = MPI_Wtime();
    }
    hope->incarnations = incarnations;
    hope->rounds++;
    CHECK(hope->rounds < PATIENCE || MPI_Wtime() - hope->since < PATIENCE_S,
          "%s: %" PRIu64 " sends, %" PRIu64 " native starts, %" PRIu64
          " incarnations, %" PRIu64 " stops", what, counter("lane_sends"),
          counter("lane_native"), counter("incarnations"), counter("stops"));
}

#endif
