/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges that are started and waited for in streams, over a real driver or the
 * one in software, whose streams do what was enqueued when somebody waits for them:
 *
 *     cuda_streams processes|threads CASE
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda/streams.h"

enum { EPOCHS = 6, REPLAYS = 40 };

/* Replays ahead, or epochs of one graph: what a launch has no room for it waits for,
 * and a real driver keeps all others waiting meanwhile (docs/gpu.md). */
static int ahead(const struct world *w)
{
    enum { FEW = 4 };

    return w->p.is_fake ? REPLAYS : FEW;
}

static int enqueue_epochs(struct rank *self, struct world *w)
{
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        compute(self, w, epoch);
    all_have_computed(self, w);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(enqueue(self, w, epoch) == 0);
    return 0;
}

/* Many epochs are enqueued before the first one is reached. */
static int case_order(struct rank *self)
{
    struct rsched_stats stats;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(enqueue_epochs(self, &w) == 0);
    RANK_CHECK(!w.p.is_fake || !rsched_exchange_is_active(w.x));
    RANK_CHECK(synchronize(self, &w) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(came(self, &w, epoch, epoch));
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    rsched_exchange_get_stats(w.x, &stats);
    RANK_CHECK(stats.epochs == w.epochs + EPOCHS);
    return end(self, &w);
}

/* The host has the first epoch. FAKE_CUDA_WAITS: then nothing in those of the stream
 * waits for it. */
static int case_warm(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(enqueue_epochs(self, &w) == 0);
    RANK_CHECK(synchronize(self, &w) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(came(self, &w, epoch, epoch));
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    return end(self, &w);
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
        set(&w, w.result[0], self->rank * 100 + epoch);
        all_have_computed(self, &w);
        RANK_CHECK(w.p.cuGraphLaunch(exec, w.stream) == CUDA_SUCCESS);
        RANK_CHECK(synchronize(self, &w) == 0);
        RANK_CHECK(came(self, &w, 0, epoch));
    }
    /* without anybody looking in between */
    for (int i = 0; i < ahead(&w); i++)
        RANK_CHECK(w.p.cuGraphLaunch(exec, w.stream) == CUDA_SUCCESS);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    rsched_exchange_get_stats(w.x, &stats);
    RANK_CHECK(stats.epochs == w.epochs + REPLAYS + (uint64_t)ahead(&w));
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
    all_have_computed(self, &w);
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
    RANK_CHECK(create(self, &w) == 0 && open_up(self, &w) == 0);
    compute(self, &w, 3);
    all_have_computed(self, &w);
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
    all_have_computed(self, &w);
    RANK_CHECK(w.p.cuMemcpyAsync(w.send, w.result[0], BYTES, w.stream) ==
               CUDA_SUCCESS);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == RSCHED_ESTATE);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    /* An epoch of the host's in between. */
    set(&w, w.send, self->rank * 100 + 1);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(holds(&w, w.receive, (1 - self->rank) * 100 + 1));
    compute(self, &w, 2);
    all_have_computed(self, &w);
    RANK_CHECK(enqueue(self, &w, 2) == 0);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(came(self, &w, 2, 2));
    return end(self, &w);
}

/* What streams have is not opened for kernels, and stays theirs: a graph is launched
 * afterwards. */
static int case_not_opened(struct rank *self)
{
    struct rsched_opening *opening;
    struct rsched_exchange *sets[2];
    struct world w, other;
    CUgraphExec exec;
    CUgraph graph;

    RANK_CHECK(begin(self, &w) == 0);
    other = w;
    RANK_CHECK(create(self, &other) == 0);
    compute(self, &w, 0);
    all_have_computed(self, &w);
    begin_capture(self, &w);
    RANK_CHECK(enqueue(self, &w, 0) == 0);
    RANK_CHECK(end_capture(self, &w, &graph) == 0);
    RANK_CHECK(w.p.cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    RANK_CHECK(w.p.cuGraphDestroy(graph) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        sets[i] = w.x;
        sets[1 - i] = other.x;
        RANK_CHECK(rsched_exchange_open_device(sets, self->rank, &opening) ==
                   RSCHED_ESTATE);
        RANK_CHECK(strstr(rsched_last_error(), "after a start") != NULL);
        RANK_CHECK(rsched_exchange_open_rings(sets, self->rank, &opening) ==
                   RSCHED_ESTATE);
    }
    RANK_CHECK(w.p.cuGraphLaunch(exec, w.stream) == CUDA_SUCCESS);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(came(self, &w, 0, 0));
    RANK_CHECK(rsched_exchange_start(other.x) == 0);
    RANK_CHECK(rsched_exchange_wait(other.x) == 0);
    rsched_exchange_destroy(other.x);
    RANK_CHECK(w.p.cuGraphExecDestroy(exec) == CUDA_SUCCESS);
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

static int not_on_streams(struct rank *self, const char *reason)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == RSCHED_ENOTSUP);
    RANK_CHECK(strstr(rsched_last_error(), reason) != NULL);
    set(&w, w.send, self->rank * 100);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    return end(self, &w);
}

/* RSCHED_PROGRESS=0: nobody would begin what a stream starts. */
static int case_no_thread(struct rank *self)
{
    return not_on_streams(self, "RSCHED_PROGRESS");
}

/* A driver without operations on words. */
static int case_too_old(struct rank *self)
{
    return not_on_streams(self, "cuStreamWaitValue32");
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

/* A stream that waits is one that somebody waits for. */
static int start_and_wait(struct rank *self, struct world *w, pthread_t *thread)
{
    RANK_CHECK(rsched_exchange_start_on(w->x, w->stream) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w->x, w->stream) == 0);
    RANK_CHECK(pthread_create(thread, NULL, wait_for_stream, w) == 0);
    while (!rsched_exchange_is_active(w->x))
        sched_yield();
    return 0;
}

static void linger(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* Rank 0's stream waits for an epoch, while its program destroys another
 * exchange: the driver waits for the stream before it closes what that had
 * open, and the stream for what the epoch has to open. */
static int case_beside(struct rank *self)
{
    CUdeviceptr send, receive;
    struct rsched_exchange *other;
    struct world w;
    pthread_t thread;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(w.p.fakeCount(FAKE_HANDLES) == 1);
    other = w.x;
    send = w.send;
    receive = w.receive;
    w.send = allocate(&w);
    w.receive = allocate(&w);
    RANK_CHECK(create(self, &w) == 0);
    if (self->rank == 0)
        RANK_CHECK(start_and_wait(self, &w, &thread) == 0);
    mesh_barrier(self->end);
    if (self->rank == 1) {
        linger(); /* else rank 0 would not come to wait */
        RANK_CHECK(rsched_exchange_start(w.x) == 0);
    }
    rsched_exchange_destroy(other);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    if (self->rank == 0)
        pthread_join(thread, NULL);
    RANK_CHECK(w.p.fakeCount(FAKE_HANDLES) == 2);
    RANK_CHECK(w.p.fakeCount(FAKE_HANDLES_OPEN) == 1);
    mesh_barrier(self->end);
    w.p.cuMemFree(send);
    w.p.cuMemFree(receive);
    return end(self, &w);
}

/* Rank 0 receives in a stream what rank 1 sends from there. */
static int receive_from(struct rank *self, struct world *w, CUdeviceptr from,
                        int epoch)
{
    const void *send = (const void *)(uintptr_t)from;
    void *receive = (void *)(uintptr_t)w->receive;
    pthread_t thread;

    memset(w->p.fakeTouch(from), self->rank * 100 + epoch, BYTES);
    if (self->rank == 0) {
        RANK_CHECK(start_and_wait(self, w, &thread) == 0);
        mesh_barrier(self->end);
        pthread_join(thread, NULL);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
        RANK_CHECK(*(unsigned char *)w->p.fakeTouch(w->receive) ==
                   (unsigned char)(100 + epoch));
    } else {
        RANK_CHECK(rsched_exchange_bind(w->x, &send, &receive) == 0);
        mesh_barrier(self->end);
        RANK_CHECK(rsched_exchange_start(w->x) == 0);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
    }
    mesh_barrier(self->end);
    return 0;
}

/* Rank 1 sends from elsewhere in each epoch: what rank 0 had open for the one
 * before is not closed while its stream waits. What comes again is not opened
 * again, though rank 0 is bound in between; but of many none stays. */
static int case_rebound(struct rank *self)
{
    enum { FEW = 3, TURNS = 5 };
    const void *send;
    void *receive;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    send = (const void *)(uintptr_t)w.send;
    receive = (void *)(uintptr_t)w.receive;
    for (int epoch = 0; epoch < TURNS * FEW; epoch++) {
        if (self->rank == 0 && epoch >= 2 * FEW)
            RANK_CHECK(rsched_exchange_bind(w.x, &send, &receive) == 0);
        RANK_CHECK(receive_from(self, &w, w.result[epoch % FEW], epoch) == 0);
        RANK_CHECK(self->rank != 0 || (int)w.p.fakeCount(FAKE_HANDLES) ==
                                          (epoch < FEW ? epoch + 1 : FEW));
    }
    for (int i = FEW; i < MOST; i++)
        RANK_CHECK(receive_from(self, &w, w.result[i], i) == 0);
    if (self->rank == 0) {
        RANK_CHECK(w.p.fakeCount(FAKE_HANDLES_OPEN) == MOST);
        /* Now nobody waits. */
        RANK_CHECK(rsched_exchange_bind(w.x, &send, &receive) == 0);
        RANK_CHECK(w.p.fakeCount(FAKE_HANDLES_OPEN) == 1);
    }
    return end(self, &w);
}

/* What a GPU does by itself, here a thread has to. */
struct worker {
    struct world *w;
    pthread_t thread;
    atomic_bool stop;
};

static void *work(void *arg)
{
    struct worker *worker = arg;

    while (!atomic_load(&worker->stop)) {
        wait_for_stream(worker->w);
        sched_yield();
    }
    return NULL;
}

/* A graph may have any number of starts: while it is captured none of them is
 * enqueued. */
static int replay(struct rank *self, struct world *w)
{
    CUgraphExec exec;
    CUgraph graph;

    begin_capture(self, w);
    for (int epoch = 0; epoch < ahead(w); epoch++)
        RANK_CHECK(enqueue(self, w, epoch % MOST) == 0);
    RANK_CHECK(end_capture(self, w, &graph) == 0);
    RANK_CHECK(w->p.cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    RANK_CHECK(w->p.cuGraphDestroy(graph) == CUDA_SUCCESS);
    RANK_CHECK(w->p.cuGraphLaunch(exec, w->stream) == CUDA_SUCCESS);
    RANK_CHECK(synchronize(self, w) == 0);
    RANK_CHECK(w->p.cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    return 0;
}

/* More epochs than a stream has room for. FAKE_CUDA_QUEUE: and it is full of what
 * the program enqueues besides; else our own never fill it. */
static int case_ahead(struct rank *self)
{
    enum { AHEAD = 400 };
    struct rsched_stats stats;
    struct worker worker = {0};
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    for (int i = 0; i < MOST; i++)
        compute(self, &w, i);
    RANK_CHECK(replay(self, &w) == 0);
    worker.w = &w;
    RANK_CHECK(pthread_create(&worker.thread, NULL, work, &worker) == 0);
    for (int epoch = 0; epoch < AHEAD; epoch++)
        RANK_CHECK(enqueue(self, &w, epoch % MOST) == 0);
    atomic_store(&worker.stop, true);
    pthread_join(worker.thread, NULL);
    RANK_CHECK(synchronize(self, &w) == 0);
    for (int i = 0; i < MOST; i++)
        RANK_CHECK(came(self, &w, i, i));
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    rsched_exchange_get_stats(w.x, &stats);
    RANK_CHECK(stats.epochs == w.epochs + AHEAD + (uint64_t)ahead(&w));
    RANK_CHECK(!w.p.is_fake || (w.p.fakeCount(FAKE_FULL) > 0) ==
                                   (getenv("FAKE_CUDA_QUEUE") != NULL));
    return end(self, &w);
}

/* The host looks at the exchange while epochs are under way, and gives as many starts
 * as it may. RSCHED_PROGRESS is so long that the test never ends if the progress thread,
 * which comes by while the host has the exchange, rests for that. */
static int case_watched(struct rank *self)
{
    enum { AHEAD = 200 };
    struct rsched_stats stats;
    struct worker worker = {0};
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    for (int i = 0; i < MOST; i++)
        compute(self, &w, i);
    worker.w = &w;
    RANK_CHECK(pthread_create(&worker.thread, NULL, work, &worker) == 0);
    for (int epoch = 0; epoch < AHEAD; epoch++) {
        RANK_CHECK(enqueue(self, &w, epoch % MOST) == 0);
        rsched_exchange_get_stats(w.x, &stats);
    }
    while (rsched_exchange_is_active(w.x) || stats.epochs < w.epochs + AHEAD)
        rsched_exchange_get_stats(w.x, &stats);
    atomic_store(&worker.stop, true);
    pthread_join(worker.thread, NULL);
    RANK_CHECK(synchronize(self, &w) == 0);
    for (int i = 0; i < MOST; i++)
        RANK_CHECK(came(self, &w, i, i));
    return end(self, &w);
}

enum { MOST_RUNS = 40 };

/* Messages of more and more blocks: rank 0's tables of them grow while its
 * stream waits. */
static int case_reloaded(struct rank *self)
{
    struct rsched_run runs[MOST_RUNS];
    struct rsched_exchange_params params = {.flags = RSCHED_EXCHANGE_VARIABLE};
    struct world w;
    pthread_t thread;

    RANK_CHECK(begin(self, &w) == 0);
    rsched_exchange_destroy(w.x);
    for (int i = 0; i < MOST_RUNS; i++)
        runs[i] = (struct rsched_run){
            .offset = i * 1000, .bytes = 4, .count = 10, .stride = 8 + 4 * i};
    for (int num = 0; num <= MOST_RUNS; num = num == 0 ? 1 : 6 * num + 4) {
        const void *send = (const void *)(uintptr_t)w.send;
        void *receive = (void *)(uintptr_t)w.receive;
        struct rsched_pattern *pattern;
        struct rsched_put put = {.bytes = (uint64_t)num * 40,
                                 .source = 1,
                                 .destination = 0,
                                 .memory = RSCHED_MEMORY_DEVICE,
                                 .device = self->rank,
                                 .layout = {runs, (size_t)num}};

        RANK_CHECK(rsched_pattern_create("reloaded", &pattern) == 0);
        if (self->rank == 1)
            RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
        else
            RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
        params.pattern = pattern;
        if (num == 0) {
            RANK_CHECK(rsched_exchange_create(self->context, &params, &w.x) ==
                       0);
            rsched_pattern_destroy(pattern);
            continue;
        }
        RANK_CHECK(rsched_exchange_load(w.x, pattern, &send, &receive) == 0);
        rsched_pattern_destroy(pattern);
        memset(w.p.fakeTouch(w.send), num, BYTES);
        if (self->rank == 0)
            RANK_CHECK(start_and_wait(self, &w, &thread) == 0);
        mesh_barrier(self->end);
        if (self->rank == 1)
            RANK_CHECK(rsched_exchange_start(w.x) == 0);
        else
            pthread_join(thread, NULL);
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
        for (int i = 0; i < num && self->rank == 0; i++) {
            const unsigned char *came = w.p.fakeTouch(w.receive);

            RANK_CHECK(came[runs[i].offset + 9 * runs[i].stride] == num);
        }
        mesh_barrier(self->end);
    }
    return end(self, &w);
}

/* Only the program uses the GPU whose stream waits, and it is through with it
 * before the context is closed. */
static int case_host(struct rank *self)
{
    static unsigned char send[2][BYTES], receive[2][BYTES];
    struct world w = {.send = (CUdeviceptr)(uintptr_t)send[self->rank],
                      .receive = (CUdeviceptr)(uintptr_t)receive[self->rank]};

    program_begin(&w.p, self->rank);
    RANK_CHECK(w.p.cuStreamCreate(&w.stream, CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS);
    memset(send[self->rank], 1 + self->rank, BYTES);
    RANK_CHECK(create(self, &w) == 0);
    RANK_CHECK(rsched_exchange_start_on(w.x, w.stream) == 0);
    RANK_CHECK(rsched_exchange_wait_on(w.x, w.stream) == 0);
    RANK_CHECK(synchronize(self, &w) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(receive[self->rank][BYTES - 1] == 2 - self->rank);
    rsched_exchange_destroy(w.x);
    RANK_CHECK(w.p.cuStreamDestroy(w.stream) == CUDA_SUCCESS);
    program_end(&w.p, self->rank);
    return 0;
}

/* ---- many contexts of a process, which come and go ---- */

enum { COMING = 4, ROUNDS = 12 };
static pthread_barrier_t pairs[COMING / 2];

/* An exchange with the neighbor; what others do meanwhile is their thing. */
static int come_and_go(struct rank *self, int round)
{
    struct rank half = *self; /* of a pair */
    struct world w;

    half.rank = self->rank % 2;
    RANK_CHECK(rank_open(self) == 0);
    half.context = self->context;
    w = (struct world){0};
    program_begin(&w.p, half.rank);
    RANK_CHECK(w.p.cuStreamCreate(&w.stream, CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS);
    w.send = allocate(&w);
    w.receive = allocate(&w);
    w.result[0] = allocate(&w);
    w.copy[0] = allocate(&w);
    RANK_CHECK(create(self, &w) == 0);
    compute(&half, &w, 0);
    RANK_CHECK(enqueue(self, &w, 0) == 0);
    if (round % 2 == 0) {
        RANK_CHECK(synchronize(self, &w) == 0);
        RANK_CHECK(came(&half, &w, 0, 0));
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    }
    rsched_exchange_destroy(w.x);
    RANK_CHECK(synchronize(self, &w) == 0);
    pthread_barrier_wait(&pairs[self->rank / 2]);
    w.p.cuMemFree(w.send);
    w.p.cuMemFree(w.receive);
    w.p.cuMemFree(w.result[0]);
    w.p.cuMemFree(w.copy[0]);
    RANK_CHECK(w.p.cuStreamDestroy(w.stream) == CUDA_SUCCESS);
    if (round % 3 == 0)
        rank_close(self);
    program_end(&w.p, half.rank);
    if (round % 3 != 0)
        rank_close(self);
    return 0;
}

static int case_coming(struct rank *self)
{
    rank_close(self);
    for (int round = 0; round < ROUNDS; round++)
        RANK_CHECK(come_and_go(self, round) == 0);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *main;
    enum program_needs needs;
} cases[] = {{"order", case_order, ANY_DRIVER},
             {"graph", case_graph, ANY_DRIVER},
             {"destroyed", case_destroyed, ANY_DRIVER},
             {"states", case_states, ANY_DRIVER},
             {"not-opened", case_not_opened, ANY_DRIVER},
             {"failing", case_failing, ANY_DRIVER},
             {"freed", case_freed, FAKE_DRIVER},
             {"given-up", case_given_up, ANY_DRIVER},
             {"no-thread", case_no_thread, ANY_DRIVER},
             {"refused", case_refused, FAKE_DRIVER},
             {"beside", case_beside, FAKE_DRIVER},
             {"rebound", case_rebound, FAKE_DRIVER},
             {"reloaded", case_reloaded, FAKE_DRIVER},
             {"ahead", case_ahead, ANY_DRIVER},
             {"watched", case_watched, ANY_DRIVER},
             {"host", case_host, ANY_DRIVER},
             {"too-old", case_too_old, FAKE_DRIVER},
             {"coming", case_coming, FAKE_DRIVER},
             {"warm", case_warm, ANY_DRIVER}};

int main(int argc, char **argv)
{
    int num_ranks = argc == 3 && strcmp(argv[2], "coming") == 0 ? COMING : 2;

    if (argc != 3)
        return 2;
    for (int i = 0; i < COMING / 2; i++)
        pthread_barrier_init(&pairs[i], NULL, 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[2], cases[i].name) != 0)
            continue;
        if (program_skips(cases[i].needs))
            return 77;
        return ranks_run(num_ranks, strcmp(argv[1], "threads") == 0,
                         cases[i].main, NULL);
    }
    return 2;
}
