/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process whose context is replaced by another one with the same number, in the same
 * process or in another, when that has died: the others go on with the new instance, and
 * keep nothing of the old ones.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { INSTANCES = 6 };

static const struct halo_edge edges[] = {{0, 1, 20000}, {1, 0, 300}};

static int check_connections(const struct rank *self)
{
    struct rsched_context_stats stats;

    rsched_context_get_stats(self->context, &stats);
    if (stats.connections == 1)
        return 0;
    return RANK_FAIL("rank %d has %llu connections", self->rank,
                     (unsigned long long)stats.connections);
}

/* Now and then rank 0 has the exchange with the last instance until that with the next
 * one is made. */
static int run_reopened(struct rank *self)
{
    struct halo *before = NULL, *h;

    for (int i = 0; i < INSTANCES; i++) {
        if (self->rank == 1 && i > 0) {
            rank_close(self);
            RANK_CHECK(rank_open(self) == 0);
        }
        RANK_CHECK(halo_create(self, edges, 2, (uint64_t)i, 0, &h) == 0);
        if (before != NULL)
            halo_destroy(before);
        before = NULL;
        RANK_CHECK(halo_step(h, i) == 0);
        RANK_CHECK(check_connections(self) == 0);
        if (self->rank == 0 && i % 2 == 0)
            before = h;
        else
            halo_destroy(h);
    }
    return 0;
}

int main(void)
{
    int failed = ranks_run(2, false, run_reopened, NULL);

    return failed != 0;
}
