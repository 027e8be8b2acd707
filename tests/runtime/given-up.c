/* SPDX-License-Identifier: BSD-3-Clause */
/* A sender gives up an exchange, and its table goes, while the receiver is between
 * reading where the message lies and what to do with it. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { BYTES = 1 << 20 };

static const struct halo_edge edges[] = {{0, 1, BYTES}};

static int play(struct rank *self)
{
    struct halo *halo;

    /* Ranks are forked, and would have buffers at the same addresses. */
    if (self->rank == 0)
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
    RANK_CHECK(halo_create(self, edges, 1, 1, 0, &halo) == 0);
    halo_fill(halo, 0);
    RANK_CHECK(rsched_exchange_start(halo->x) == 0);
    if (self->rank == 0) {
        usleep(150000);
        halo_destroy(halo);
        usleep(800000);
        return 0;
    }
    RANK_CHECK(rsched_exchange_wait(halo->x) == RSCHED_EPEER);
    halo_destroy(halo);
    return 0;
}

int main(void)
{
    if (!ranks_may_read()) {
        printf("SKIP: processes may not read each other's memory\n");
        return 77;
    }
    setenv("RSCHED_CMA", "1", 1);
    setenv("RSCHED_FAILPOINTS", "rx:table@1=delay:400ms", 1);
    return ranks_run(2, false, play, NULL) == 0 ? 0 : 1;
}
