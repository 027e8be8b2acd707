/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges in streams that fail, over the driver in software:
 *
 *     cuda_streams_broken CASE
 *
 * Ranks are processes, and only rank 0's stream does.
 */
#include "tests/cuda/streams.h"

enum { AHEAD = 16 }; /* starts that a stream has not reached */

/* Rank 0's stream copies what is freed meanwhile, and comes to nothing behind that:
 * no start of those that fill it is ever reached. */
static int case_failed(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    if (self->rank == 0) {
        CUdeviceptr gone = allocate(&w);

        RANK_CHECK(w.p.cuMemcpyAsync(w.copy[0], gone, BYTES, w.stream) ==
                   CUDA_SUCCESS);
        RANK_CHECK(w.p.cuMemFree(gone) == CUDA_SUCCESS);
        for (int i = 0; i < AHEAD; i++) {
            RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
            RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == 0);
        }
        RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ESYS);
        RANK_CHECK(strstr(rsched_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS") !=
                   NULL);
        RANK_CHECK(!rsched_exchange_is_active(w.x));
    }
    mesh_barrier(self->end);
    return end(self, &w);
}

static const struct {
    const char *name;
    rank_fn *main;
} cases[] = {{"failed", case_failed}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            return ranks_run(2, false, cases[i].main, NULL);
    }
    return 2;
}
