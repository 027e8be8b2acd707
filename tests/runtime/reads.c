/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel reads costs one call of it for each source and epoch, however
 * many messages there are and however they lie.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { EPOCHS = 5, SOURCES = 2, SKIPPED = 77 };

/* Long ones are several pieces of a call: engines/common/iovecs.c. */
static const struct halo_edge edges[] = {
    {1, 0, 900000}, {1, 0, 300000}, {1, 0, 20000},
    {2, 0, 600000}, {2, 0, 70000},
};

enum { NUM_EDGES = sizeof(edges) / sizeof(edges[0]) };

static atomic_uint calls, most_parts;

/* Comes before the C library's. */
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *here, unsigned long num_here,
                 const struct iovec *there, unsigned long num_there,
                 unsigned long flags)
{
    atomic_fetch_add(&calls, 1);
    if (num_there > atomic_load(&most_parts))
        atomic_store(&most_parts, (unsigned)num_there);
    return syscall(SYS_process_vm_readv, pid, here, num_here, there, num_there,
                   flags);
}

static uint64_t sent_by(int rank)
{
    uint64_t bytes = 0;

    for (int i = 0; i < NUM_EDGES; i++)
        bytes += edges[i].from == rank ? edges[i].bytes : 0;
    return bytes;
}

static int run(struct rank *self)
{
    struct rsched_stats stats;
    struct halo *halo;

    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 1, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        unsigned before = atomic_load(&calls);

        RANK_CHECK(halo_step(halo, epoch) == 0);
        RANK_CHECK(atomic_load(&calls) - before ==
                   (self->rank == 0 ? SOURCES : 0));
    }
    RANK_CHECK(self->rank != 0 || atomic_load(&most_parts) > 3);
    rsched_exchange_get_stats(halo->x, &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_CMA] == EPOCHS * sent_by(self->rank));
    halo_destroy(halo);
    return 0;
}

int main(void)
{
    if (!ranks_may_read()) {
        printf("SKIP: the kernel does not let processes read each other\n");
        return SKIPPED;
    }
    setenv("RSCHED_CMA", "1", 1); /* not what costs say */
    if (ranks_run(3, false, run, NULL) != 0)
        return 1;
    printf("%d epochs\n", EPOCHS);
    return 0;
}
