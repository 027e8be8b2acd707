/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges opened by rings that send from managed memory, which no device is to
 * read: the opening has the proxy, and says why. Over the driver in software:
 *
 *     mlx5_rings_managed gpu|threads
 *
 * whose kernels would ring.
 */
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/program.h"
#include "tests/mlx5/only_engine.h"
#include "tests/runtime/ranks.h"

enum { BYTES = 300000 };

struct world {
    struct program p;
    bool on_gpu; /* the receive buffers, and kernels */
    CUdeviceptr managed[2], receive[2];
    char *send_host[2], *receive_host[2]; /* other buffers */
    struct rsched_exchange *sets[2];
};

static int create_set(struct rank *self, struct world *w, int set)
{
    const void *send = (void *)(uintptr_t)w->managed[set];
    void *receive = (void *)(uintptr_t)w->receive[set];
    struct rsched_exchange_params params = {
        .send = &send, .receive = &receive, .tag = (uint64_t)set};
    struct rsched_put put = {.bytes = BYTES,
                             .source = self->rank,
                             .destination = 1 - self->rank};
    struct rsched_pattern *pattern;
    int error;

    RANK_CHECK(rsched_pattern_create("managed", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = 1 - self->rank;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &w->sets[set]);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(error == 0);
    return 0;
}

static int begin(struct rank *self, struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->on_gpu = strcmp(self->arg, "gpu") == 0;
    program_begin(&w->p, self->rank);
    RANK_CHECK(only_engine(self) == 0);
    for (int set = 0; set < 2; set++) {
        RANK_CHECK(w->p.cuMemAllocManaged(&w->managed[set], BYTES,
                                          CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
        RANK_CHECK((w->on_gpu ? w->p.cuMemAlloc(&w->receive[set], BYTES)
                              : w->p.cuMemAllocManaged(&w->receive[set], BYTES,
                                                       CU_MEM_ATTACH_GLOBAL)) ==
                   CUDA_SUCCESS);
        RANK_CHECK(create_set(self, w, set) == 0);
    }
    return 0;
}

static int expect_proxy(struct rank *self, struct world *w, const char *why)
{
    struct rsched_opening *opening;
    struct rsched_opening_stats stats;
    const char *reason;

    RANK_CHECK(rsched_exchange_open_rings(
                   w->sets, w->on_gpu ? self->rank : RSCHED_NO_GPU, &opening) ==
               0);
    reason = rsched_opening_reason(opening, 1 - self->rank);
    RANK_CHECK(reason != NULL ? why != NULL && strstr(reason, why) != NULL
                              : why == NULL);
    rsched_opening_get_stats(opening, &stats);
    RANK_CHECK(stats.rings == (why == NULL));
    rsched_opening_close(opening);
    return 0;
}

/* The same where the device may read: nothing else stands against rings. */
static int send_from_host(struct rank *self, struct world *w)
{
    for (int set = 0; set < 2; set++) {
        const void *send;
        void *receive = (void *)(uintptr_t)w->receive[set];

        send = w->send_host[set] = calloc(1, BYTES);
        if (!w->on_gpu)
            receive = w->receive_host[set] = calloc(1, BYTES);
        RANK_CHECK(rsched_exchange_bind(w->sets[set], &send, &receive) == 0);
    }
    return 0;
}

static int rank_main(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(expect_proxy(self, &w, "managed memory") == 0);
    RANK_CHECK(send_from_host(self, &w) == 0);
    RANK_CHECK(expect_proxy(self, &w, NULL) == 0);
    for (int set = 0; set < 2; set++) {
        rsched_exchange_destroy(w.sets[set]);
        free(w.send_host[set]);
        free(w.receive_host[set]);
        w.p.cuMemFree(w.managed[set]);
        w.p.cuMemFree(w.receive[set]);
    }
    program_end(&w.p, self->rank);
    return 0;
}

int main(int argc, char **argv)
{
    return argc == 2 ? ranks_run(2, false, rank_main, argv[1]) : 2;
}
