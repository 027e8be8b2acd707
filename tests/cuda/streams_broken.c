/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges in streams that fail, over the driver in software:
 *
 *     cuda_streams_broken CASE
 *
 * and in captures that do. Ranks are processes; only rank 0's stream fails.
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

/* A start in a capture that fails is none: the stream goes on without its wait, and
 * nothing waits for it. */
static int case_capture(struct rank *self)
{
    struct world w;
    CUdeviceptr memory;
    CUgraph graph;

    RANK_CHECK(begin(self, &w) == 0);
    for (int i = 0; i < 2; i++) {
        begin_capture(self, &w);
        RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
        RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ESTATE);
        RANK_CHECK(w.p.cuMemAlloc(&memory, BYTES) != CUDA_SUCCESS);
        if (i == 0) {
            RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == RSCHED_ESYS);
            RANK_CHECK(strstr(rsched_last_error(),
                              "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED") != NULL);
            RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ESYS);
        }
        RANK_CHECK(w.p.cuStreamEndCapture(w.stream, &graph) ==
                   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == RSCHED_ESTATE);
        compute(self, &w, i);
        RANK_CHECK(enqueue(self, &w, i) == 0);
        RANK_CHECK(synchronize(self, &w) == 0);
        RANK_CHECK(came(self, &w, i, i));
    }
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    return end(self, &w);
}

/* What the stream is told while another one is captured has its own turns. */
static int case_between(struct rank *self)
{
    struct world w;
    CUstream other, stream;
    CUgraphExec exec;
    CUgraph graph;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(w.p.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS);
    stream = w.stream;
    compute(self, &w, 0);
    RANK_CHECK(enqueue(self, &w, 0) == 0); /* which allocates */
    RANK_CHECK(synchronize(self, &w) == 0);
    begin_capture(self, &w);
    RANK_CHECK(rsched_exchange_start_on(w.x, stream) == 0);
    w.stream = other;
    compute(self, &w, 1);
    RANK_CHECK(enqueue(self, &w, 1) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w.x, other) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_wait_on(w.x, stream) == 0);
    w.stream = stream;
    RANK_CHECK(end_capture(self, &w, &graph) == 0);
    RANK_CHECK(w.p.cuStreamSynchronize(other) == CUDA_SUCCESS);
    RANK_CHECK(came(self, &w, 0, 0) && came(self, &w, 1, 1));
    RANK_CHECK(w.p.cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    RANK_CHECK(w.p.cuGraphDestroy(graph) == CUDA_SUCCESS);
    memset(w.p.fakeTouch(w.send), self->rank * 100 + 2, BYTES);
    RANK_CHECK(w.p.cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(*(unsigned char *)w.p.fakeTouch(w.receive) ==
               (unsigned char)((1 - self->rank) * 100 + 2));
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(w.p.cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    RANK_CHECK(w.p.cuStreamDestroy(other) == CUDA_SUCCESS);
    return end(self, &w);
}

static const struct {
    const char *name;
    rank_fn *main;
} cases[] = {{"failed", case_failed},
             {"capture", case_capture},
             {"between", case_between}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            return ranks_run(2, false, cases[i].main, NULL);
    }
    return 2;
}
