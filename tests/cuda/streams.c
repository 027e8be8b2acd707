/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges that are started and waited for in streams, over the driver in
 * software, whose streams do what was enqueued when somebody waits for them:
 *
 *     cuda_streams processes|threads CASE
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "tests/cuda/program.h"
#include "tests/runtime/ranks.h"

enum { BYTES = 200000, EPOCHS = 6, REPLAYS = 40, MOST = 8 };

/* What the program has: what it computes lies in `result`, one for each epoch,
 * is copied to `send` by the stream before the start, and `receive` to `copy`
 * after the wait. */
struct world {
    struct program p;
    CUstream stream;
    CUdeviceptr send, receive, result[MOST], copy[MOST];
    struct rsched_exchange *x;
};

static CUdeviceptr allocate(struct world *w)
{
    CUdeviceptr memory;

    if (w->p.cuMemAlloc(&memory, BYTES) != CUDA_SUCCESS)
        abort();
    memset(w->p.fakeTouch(memory), 0, BYTES);
    return memory;
}

static int create(struct rank *self, struct world *w)
{
    struct rsched_put put = {.bytes = BYTES,
                             .source = self->rank,
                             .destination = 1 - self->rank};
    const void *send = (const void *)(uintptr_t)w->send;
    void *receive = (void *)(uintptr_t)w->receive;
    struct rsched_pattern *pattern;
    struct rsched_exchange_params params = {.send = &send, .receive = &receive};

    RANK_CHECK(rsched_pattern_create("streams", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = 1 - self->rank;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &w->x) == 0);
    rsched_pattern_destroy(pattern);
    return 0;
}

static int begin(struct rank *self, struct world *w)
{
    *w = (struct world){0};
    program_begin(&w->p, self->rank);
    if (w->p.cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        abort();
    w->send = allocate(w);
    w->receive = allocate(w);
    for (int i = 0; i < MOST; i++) {
        w->result[i] = allocate(w);
        w->copy[i] = allocate(w);
    }
    return create(self, w);
}

static int end(struct rank *self, struct world *w)
{
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    w->p.cuMemFree(w->send);
    w->p.cuMemFree(w->receive);
    for (int i = 0; i < MOST; i++) {
        w->p.cuMemFree(w->result[i]);
        w->p.cuMemFree(w->copy[i]);
    }
    RANK_CHECK(w->p.cuStreamDestroy(w->stream) == CUDA_SUCCESS);
    program_end(&w->p, self->rank);
    return 0;
}

static void compute(struct rank *self, struct world *w, int epoch)
{
    memset(w->p.fakeTouch(w->result[epoch % MOST]), self->rank * 100 + epoch,
           BYTES);
    memset(w->p.fakeTouch(w->copy[epoch % MOST]), 0, BYTES);
}

static bool came(struct rank *self, struct world *w, int slot, int epoch)
{
    const unsigned char *copy = w->p.fakeTouch(w->copy[slot]);

    for (int i = 0; i < BYTES; i++) {
        if (copy[i] != (unsigned char)((1 - self->rank) * 100 + epoch))
            return false;
    }
    return true;
}

/* What the stream does in an epoch: all of it is done late. */
static int enqueue(struct rank *self, struct world *w, int slot)
{
    RANK_CHECK(w->p.cuMemcpyAsync(w->send, w->result[slot], BYTES, w->stream) ==
               CUDA_SUCCESS);
    RANK_CHECK(rsched_exchange_start_on(w->x, w->stream) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w->x, w->stream) == 0);
    RANK_CHECK(w->p.cuMemcpyAsync(w->copy[slot], w->receive, BYTES,
                                  w->stream) == CUDA_SUCCESS);
    return 0;
}

static int synchronize(struct rank *self, struct world *w)
{
    RANK_CHECK(w->p.cuStreamSynchronize(w->stream) == CUDA_SUCCESS);
    return 0;
}

/* Many epochs are enqueued before the first one is reached. */
static int case_order(struct rank *self)
{
    struct rsched_stats stats;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        compute(self, &w, epoch);
        RANK_CHECK(enqueue(self, &w, epoch) == 0);
    }
    RANK_CHECK(!rsched_exchange_is_active(w.x));
    RANK_CHECK(synchronize(self, &w) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(came(self, &w, epoch, epoch));
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    rsched_exchange_get_stats(w.x, &stats);
    RANK_CHECK(stats.epochs == EPOCHS);
    return end(self, &w);
}

/* Ranks may be threads: the program of one does nothing that breaks a capture
 * of the other. */
static void begin_capture(struct rank *self, struct world *w)
{
    mesh_barrier(self->end);
    if (w->p.cuStreamBeginCapture(w->stream, CU_STREAM_CAPTURE_MODE_GLOBAL) !=
        CUDA_SUCCESS)
        abort();
}

static int end_capture(struct rank *self, struct world *w, CUgraph *graph)
{
    CUresult result = w->p.cuStreamEndCapture(w->stream, graph);

    mesh_barrier(self->end);
    RANK_CHECK(result == CUDA_SUCCESS);
    return 0;
}

/* One capture, launched many times. */
static int case_graph(struct rank *self)
{
    struct rsched_stats stats;
    struct world w;
    CUgraphExec exec;
    CUgraph graph;

    RANK_CHECK(begin(self, &w) == 0);
    begin_capture(self, &w);
    RANK_CHECK(enqueue(self, &w, 0) == 0);
    RANK_CHECK(end_capture(self, &w, &graph) == 0);
    RANK_CHECK(w.p.cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    RANK_CHECK(w.p.cuGraphDestroy(graph) == CUDA_SUCCESS);
    for (int epoch = 0; epoch < REPLAYS; epoch++) {
        compute(self, &w, 0);
        memset(w.p.fakeTouch(w.result[0]), self->rank * 100 + epoch, BYTES);
        RANK_CHECK(w.p.cuGraphLaunch(exec, w.stream) == CUDA_SUCCESS);
        RANK_CHECK(synchronize(self, &w) == 0);
        RANK_CHECK(came(self, &w, 0, epoch));
    }
    /* without anybody looking in between */
    for (int i = 0; i < REPLAYS; i++)
        RANK_CHECK(w.p.cuGraphLaunch(exec, w.stream) == CUDA_SUCCESS);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    rsched_exchange_get_stats(w.x, &stats);
    RANK_CHECK(stats.epochs == 2 * REPLAYS);
    RANK_CHECK(w.p.cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    return end(self, &w);
}

/* A graph and a stream that still have an exchange when it is destroyed: they
 * go on, and what it had is given back once nobody needs it. */
static int case_destroyed(struct rank *self)
{
    struct world w;
    CUgraphExec exec;
    CUgraph graph;

    RANK_CHECK(begin(self, &w) == 0);
    compute(self, &w, 0);
    RANK_CHECK(enqueue(self, &w, 0) == 0);
    RANK_CHECK(synchronize(self, &w) == 0);
    begin_capture(self, &w);
    RANK_CHECK(enqueue(self, &w, 1) == 0);
    RANK_CHECK(end_capture(self, &w, &graph) == 0);
    RANK_CHECK(w.p.cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    RANK_CHECK(w.p.cuGraphDestroy(graph) == CUDA_SUCCESS);
    RANK_CHECK(enqueue(self, &w, 2) == 0);
    mesh_barrier(self->end);
    rsched_exchange_destroy(w.x);
    w.x = NULL;
    RANK_CHECK(w.p.cuGraphLaunch(exec, w.stream) == CUDA_SUCCESS);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(w.p.cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    /* The next one finds that it can be freed. */
    RANK_CHECK(create(self, &w) == 0);
    compute(self, &w, 3);
    RANK_CHECK(enqueue(self, &w, 3) == 0);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(came(self, &w, 3, 3));
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    return end(self, &w);
}

/* What may not be mixed. */
static int case_states(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == RSCHED_ESTATE);
    compute(self, &w, 0);
    RANK_CHECK(w.p.cuMemcpyAsync(w.send, w.result[0], BYTES, w.stream) ==
               CUDA_SUCCESS);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == RSCHED_ESTATE);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    /* An epoch of the host's in between. */
    memset(w.p.fakeTouch(w.send), self->rank * 100 + 1, BYTES);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(*(unsigned char *)w.p.fakeTouch(w.receive) ==
               (unsigned char)((1 - self->rank) * 100 + 1));
    compute(self, &w, 2);
    RANK_CHECK(enqueue(self, &w, 2) == 0);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(came(self, &w, 2, 2));
    return end(self, &w);
}

/* The peer gives up: the stream goes on, and the host is told. */
static int case_failing(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    if (self->rank == 1) {
        rsched_exchange_destroy(w.x);
        w.x = NULL;
        mesh_barrier(self->end);
        return end(self, &w);
    }
    mesh_barrier(self->end);
    compute(self, &w, 0);
    RANK_CHECK(enqueue(self, &w, 0) == 0);
    RANK_CHECK(enqueue(self, &w, 1) == 0);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == RSCHED_EPEER);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_EPEER);
    return end(self, &w);
}

/* Rank 0 has lost the memory that its stream's start sends. */
static int case_freed(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    if (self->rank == 0)
        RANK_CHECK(w.p.cuMemFree(w.send) == CUDA_SUCCESS);
    mesh_barrier(self->end);
    for (int i = 0; i < 2; i++) {
        RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
        RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == 0);
    }
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) ==
               (self->rank == 0 ? RSCHED_ESYS : RSCHED_EPEER));
    RANK_CHECK(!rsched_exchange_is_active(w.x));
    if (self->rank == 0)
        w.send = allocate(&w);
    return end(self, &w);
}

static void *wait_for_stream(void *arg)
{
    struct world *w = arg;

    if (w->p.cuCtxSetCurrent(w->p.context) != CUDA_SUCCESS ||
        w->p.cuStreamSynchronize(w->stream) != CUDA_SUCCESS)
        abort();
    return NULL;
}

/* The epoch is under way, and will not be complete: the peer never starts it.
 * Whoever destroys the exchange lets the stream go. */
static int case_given_up(struct rank *self)
{
    struct world w;
    pthread_t thread;

    RANK_CHECK(begin(self, &w) == 0);
    if (self->rank == 0) {
        bool done = true;

        RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
        RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == 0);
        RANK_CHECK(pthread_create(&thread, NULL, wait_for_stream, &w) == 0);
        while (!rsched_exchange_is_active(w.x))
            sched_yield();
        RANK_CHECK(rsched_exchange_test_peer(w.x, 1, &done) == 0 && !done);
        RANK_CHECK(rsched_exchange_test(w.x, &done) == 0 && !done);
        RANK_CHECK(rsched_exchange_start(w.x) == RSCHED_ESTATE);
        RANK_CHECK(rsched_exchange_bind(w.x, NULL, NULL) == RSCHED_ESTATE);
        rsched_exchange_destroy(w.x);
        w.x = NULL;
        pthread_join(thread, NULL);
    }
    mesh_barrier(self->end);
    return end(self, &w);
}

/* RSCHED_PROGRESS=0: nobody would begin what a stream starts. */
static int case_no_thread(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ENOTSUP);
    RANK_CHECK(strstr(rsched_last_error(), "RSCHED_PROGRESS") != NULL);
    memset(w.p.fakeTouch(w.send), self->rank * 100, BYTES);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    return end(self, &w);
}

/* FAKE_CUDA_FAIL: what cannot be enqueued is told, and the next time it can. */
static int case_refused(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    compute(self, &w, 0);
    RANK_CHECK(w.p.cuMemcpyAsync(w.send, w.result[0], BYTES, w.stream) ==
               CUDA_SUCCESS);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ENOMEM);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == RSCHED_ENOMEM);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == 0);
    RANK_CHECK(w.p.cuMemcpyAsync(w.copy[0], w.receive, BYTES, w.stream) ==
               CUDA_SUCCESS);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(came(self, &w, 0, 0));
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    return end(self, &w);
}

static const struct {
    const char *name;
    rank_fn *main;
} cases[] = {{"order", case_order},
             {"graph", case_graph},
             {"destroyed", case_destroyed},
             {"states", case_states},
             {"failing", case_failing},
             {"freed", case_freed},
             {"given-up", case_given_up},
             {"no-thread", case_no_thread},
             {"refused", case_refused}};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[2], cases[i].name) == 0)
            return ranks_run(2, strcmp(argv[1], "threads") == 0, cases[i].main,
                             NULL);
    }
    return 2;
}
