/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges of GPU memory over RDMA devices, between two ranks that no other
 * engine joins, or does (`beside`), or does in one direction only (`one-way`):
 *
 *     cuda_direct dmabuf|peer|sent|coherent|staged|beside|one-way|cut|managed
 *
 * The device is the interpreter of ../verbs, the driver the one in software. Said
 * is what they do: `dmabuf`, `peer`, devices get at GPU memory, registered so;
 * `sent`, what they write there cannot be made visible; `coherent`, the same of what
 * is registered as peer memory; `staged`, they do not get at it. The counters tell that it was so. `cut`: the wires are, once.
 * `managed`: all memory is managed, and no device gets at any of it.
 */
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "librsched/base/error.h"
#include "librsched/run/run.h"
#include "tests/cuda/buffer.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/interpreter_gpu.h"
#include "tests/verbs/only.h"

enum { EPOCHS = 3, ROWS = 100, ROW = 64, PITCH = 1024 };
enum { NEIGHBORS = 2, NEIGHBOR = 65536 };

static enum {
    DMABUF,
    PEER,
    SENT,
    COHERENT,
    STAGED,
    BESIDE,
    ONE_WAY,
    CUT,
    MANAGED,
    MODES
} mode;

static const char *const modes[] = {"dmabuf", "peer",   "sent",    "coherent",
                                    "staged", "beside", "one-way", "cut", "managed"};

static const struct kind {
    uint64_t bytes;
    bool from_gpu, to_gpu, rows;
} kinds[] = {
    {300000, true, true, false}, {1000, true, true, false},
    {40, true, true, false},     {300000, true, false, false},
    {5000, false, true, false},  {ROWS * ROW, true, true, true},
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static const struct rsched_run rows = {
    .bytes = ROW, .count = ROWS, .stride = PITCH};

struct world {
    struct program p;
    const struct kind *kind;
    int number;
    struct buffer send, receive;
    struct rsched_exchange *x;
    int epoch;
};

static size_t span(const struct kind *k)
{
    return k->rows ? ROWS * PITCH : k->bytes;
}

static size_t place(const struct kind *k, size_t at)
{
    return k->rows ? at / ROW * PITCH + at % ROW : at;
}

static char byte_of(const struct world *w, int rank, size_t at)
{
    return (char)(rank * 89 + w->epoch * 41 + w->number * 17 + (int)(at % 251));
}

static int create(struct rank *self, struct world *w)
{
    const void *send = w->send.address;
    void *receive = w->receive.address;
    struct rsched_exchange_params params = {
        .send = &send, .receive = &receive, .tag = (uint64_t)w->number};
    struct rsched_put put = {.bytes = w->kind->bytes,
                             .source = self->rank,
                             .destination = 1 - self->rank};
    struct rsched_pattern *pattern;
    int error;

    if (w->kind->rows)
        put.layout = (struct rsched_layout){&rows, 1};
    RANK_CHECK(rsched_pattern_create("direct", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = 1 - self->rank;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &w->x);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(error == 0);
    return 0;
}

/* Where it lies in GPU memory by a copy within that, which the driver may do late. */
static int fill(struct rank *self, struct world *w, const struct buffer *made)
{
    const struct kind *k = w->kind;

    for (size_t at = 0; at < k->bytes; at++)
        made->touch[place(k, at)] = byte_of(w, self->rank, at);
    RANK_CHECK(!w->send.on_gpu ||
               w->p.cuMemcpyDtoD((CUdeviceptr)(uintptr_t)w->send.address,
                                 (CUdeviceptr)(uintptr_t)made->address,
                                 span(k)) == CUDA_SUCCESS);
    return 0;
}

static int run(struct rank *self, struct world *w)
{
    const struct kind *k = w->kind;
    struct buffer made = w->send;

    if (w->send.on_gpu)
        buffer_init(&w->p, &made, span(k), true);
    for (int i = 0; i < EPOCHS; i++, w->epoch++) {
        RANK_CHECK(fill(self, w, &made) == 0);
        memset(w->receive.touch, 0, span(k));
        RANK_CHECK(rsched_exchange_start(w->x) == 0);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
        for (size_t at = 0; at < k->bytes; at++)
            RANK_CHECK(w->receive.touch[place(k, at)] ==
                       byte_of(w, 1 - self->rank, at));
        for (size_t at = 0; k->rows && at < span(k); at++)
            RANK_CHECK(at % PITCH < ROW || w->receive.touch[at] == 0);
    }
    if (w->send.on_gpu)
        buffer_fini(&w->p, &made);
    return 0;
}

/* A connection that has failed: what comes later has another one. */
static int cut(struct rank *self, struct world *w)
{
    int error;

    w->kind = &kinds[0];
    w->number = KINDS + 1;
    buffer_init(&w->p, &w->send, span(w->kind), true);
    buffer_init(&w->p, &w->receive, span(w->kind), true);
    RANK_CHECK(create(self, w) == 0);
    RANK_CHECK(run(self, w) == 0);
    RANK_CHECK(w->x->out[0].peer->life == 0);
    mesh_barrier(self->end);
    interpreter_cut(INTERPRETER_ALL_RAILS);
    mesh_barrier(self->end);
    error = rsched_exchange_start(w->x);
    if (error == 0)
        error = rsched_exchange_wait(w->x);
    RANK_CHECK(error == RSCHED_EPEER);
    mesh_barrier(self->end);
    interpreter_cut(0);
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    RANK_CHECK(create(self, w) == 0);
    RANK_CHECK(w->x->out[0].peer->life == 1);
    RANK_CHECK(run(self, w) == 0);
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    buffer_fini(&w->p, &w->send);
    buffer_fini(&w->p, &w->receive);
    return 0;
}

/* What the sender's device has fetched from GPU memory itself. */
static int check_sent(struct rank *self, const struct world *w, int epochs)
{
    const struct rsched_lane_stats *stats = &w->x->out[0].lane->stats;
    uint64_t bytes = (uint64_t)epochs * w->kind->bytes;

    RANK_CHECK(w->x->num_out == 1 && rs_peer_has_gpus(w->x->out[0].peer));
    RANK_CHECK(strcmp(w->x->out[0].peer->ops->name,
                      mode == BESIDE ? "cuda" : "interpreter") == 0);
    if (mode == BESIDE)
        return 0;
    RANK_CHECK(stats->bytes[RSCHED_WAY_LANDING] +
                   stats->bytes[RSCHED_WAY_DIRECT] ==
               bytes);
    if (!w->kind->from_gpu)
        return 0;
    RANK_CHECK(stats->gathered == (mode == STAGED ? 0 : bytes));
    RANK_CHECK(stats->packed == (mode == STAGED ? bytes : 0));
    return 0;
}

/* What devices have written to GPU memory, by both ranks together: with 100 blocks
 * each they would be too many writes. */
static int check_written(struct rank *self, const struct world *w,
                         uint64_t writes)
{
    bool direct = (mode == DMABUF || mode == PEER || mode == ONE_WAY ||
                   mode == CUT) &&
                  w->kind->to_gpu && !w->kind->rows;

    RANK_CHECK(direct ? interpreter_gpu_writes() - writes >= 2 * EPOCHS
                      : interpreter_gpu_writes() == writes);
    if (direct)
        RANK_CHECK(w->x->out[0].lane->stats.bytes[RSCHED_WAY_DIRECT] ==
                   EPOCHS * w->kind->bytes);
    return 0;
}

/* Bound to host memory and back: what was registered is not any more. */
static int rebind(struct rank *self, struct world *w)
{
    struct buffer send, receive, gpu_send = w->send, gpu_receive = w->receive;

    buffer_init(&w->p, &send, span(w->kind), false);
    buffer_init(&w->p, &receive, span(w->kind), false);
    for (int k = 0; k < 2; k++) {
        const void *from;
        void *to;

        w->send = k == 0 ? send : gpu_send;
        w->receive = k == 0 ? receive : gpu_receive;
        from = w->send.address;
        to = w->receive.address;
        RANK_CHECK(rsched_exchange_bind(w->x, &from, &to) == 0);
        RANK_CHECK(run(self, w) == 0);
    }
    buffer_fini(&w->p, &send);
    buffer_fini(&w->p, &receive);
    return 0;
}

static int one_kind(struct rank *self, struct world *w, int number)
{
    uint64_t writes;

    w->kind = &kinds[number];
    w->number = number;
    w->epoch = 0;
    buffer_init(&w->p, &w->send, span(w->kind), w->kind->from_gpu);
    buffer_init(&w->p, &w->receive, span(w->kind), w->kind->to_gpu);
    RANK_CHECK(create(self, w) == 0);
    mesh_barrier(self->end);
    writes = interpreter_gpu_writes();
    mesh_barrier(self->end);
    RANK_CHECK(run(self, w) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(check_sent(self, w, EPOCHS) == 0);
    RANK_CHECK(check_written(self, w, writes) == 0);
    mesh_barrier(self->end);
    if (w->kind->from_gpu && w->kind->to_gpu)
        RANK_CHECK(rebind(self, w) == 0);
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    buffer_fini(&w->p, &w->send);
    buffer_fini(&w->p, &w->receive);
    return 0;
}

static void managed_init(struct program *p, struct buffer *b, size_t bytes)
{
    CUdeviceptr device;

    if (p->cuMemAllocManaged(&device, bytes, CU_MEM_ATTACH_GLOBAL) !=
        CUDA_SUCCESS)
        abort();
    *b = (struct buffer){.bytes = bytes};
    b->address = b->touch = (char *)(uintptr_t)device;
}

/* Processors move it, also where it is long, at the other end in GPU memory, or
 * loaded later. */
static int managed(struct rank *self, struct world *w, bool to_gpu)
{
    struct rsched_stats stats;

    w->kind = &kinds[0];
    w->number = to_gpu;
    w->epoch = 0;
    managed_init(&w->p, &w->send, span(w->kind));
    if (to_gpu)
        buffer_init(&w->p, &w->receive, span(w->kind), true);
    else
        managed_init(&w->p, &w->receive, span(w->kind));
    RANK_CHECK(create(self, w) == 0);
    RANK_CHECK(run(self, w) == 0);
    RANK_CHECK(!interpreter_reaches(w->send.address, span(w->kind)));
    rsched_exchange_get_stats(w->x, &stats);
    RANK_CHECK(w->x->out[0].lane->stats.packed == EPOCHS * w->kind->bytes);
    if (!to_gpu) {
        RANK_CHECK(!interpreter_reaches(w->receive.address, span(w->kind)));
        RANK_CHECK(stats.way_bytes[RSCHED_WAY_DIRECT] == 0);
        mesh_barrier(self->end);
        RANK_CHECK(rebind(self, w) == 0);
        RANK_CHECK(!interpreter_reaches(w->send.address, span(w->kind)));
        RANK_CHECK(!interpreter_reaches(w->receive.address, span(w->kind)));
    }
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    w->p.cuMemFree((CUdeviceptr)(uintptr_t)w->send.address);
    w->p.cuMemFree((CUdeviceptr)(uintptr_t)w->receive.address);
    return 0;
}

/* Of rank 0 first, so that they touch. */
static int neighbors_init(struct rank *self, struct world *w,
                          struct buffer *buffers)
{
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < NEIGHBORS && turn == self->rank; i++) {
            buffer_init(&w->p, &buffers[i], NEIGHBOR, true);
            RANK_CHECK(i == 0 ||
                       buffers[i].address == buffers[i - 1].address + NEIGHBOR);
        }
        mesh_barrier(self->end);
    }
    return 0;
}

/* Each of the two messages has a rail for itself. */
static int check_rails(struct rank *self, const struct world *w)
{
    const struct rs_edge *out = w->x->out;

    if (mode == BESIDE)
        return 0;
    RANK_CHECK(w->x->num_out == NEIGHBORS && w->x->num_in == NEIGHBORS);
    RANK_CHECK(out[0].rail + out[1].rail == 1 && out[0].rail != out[1].rail);
    for (int i = 0; i < NEIGHBORS; i++) {
        const uint64_t *bytes = out[i].lane->stats.bytes;

        RANK_CHECK(rs_peer_has_gpus(out[i].peer) && out[i].num_order == 1);
        RANK_CHECK(bytes[RSCHED_WAY_DIRECT] + bytes[RSCHED_WAY_LANDING] ==
                   NEIGHBOR);
    }
    return 0;
}

/* Memory is registered within an allocation, also where another one begins at
 * its end. */
static int neighbors(struct rank *self, struct world *w)
{
    struct buffer send[NEIGHBORS], receive[NEIGHBORS];
    const void *from[NEIGHBORS];
    void *to[NEIGHBORS];
    struct rsched_exchange_params params = {
        .send = from, .receive = to, .tag = KINDS};
    struct rsched_pattern *pattern;

    RANK_CHECK(rsched_pattern_create("neighbors", &pattern) == 0);
    RANK_CHECK(neighbors_init(self, w, send) == 0);
    RANK_CHECK(neighbors_init(self, w, receive) == 0);
    for (int i = 0; i < NEIGHBORS; i++) {
        struct rsched_put put = {.bytes = NEIGHBOR,
                                 .source = self->rank,
                                 .destination = 1 - self->rank};

        from[i] = send[i].address;
        to[i] = receive[i].address;
        RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
        put.source = 1 - self->rank;
        put.destination = self->rank;
        RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
        memset(send[i].touch, 10 * i + self->rank + 1, NEIGHBOR);
        memset(receive[i].touch, 0, NEIGHBOR);
    }
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &w->x) == 0);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(rsched_exchange_start(w->x) == 0);
    RANK_CHECK(rsched_exchange_wait(w->x) == 0);
    for (int i = 0; i < NEIGHBORS; i++) {
        for (size_t at = 0; at < NEIGHBOR; at++)
            RANK_CHECK(receive[i].touch[at] == 10 * i + 2 - self->rank);
    }
    RANK_CHECK(check_rails(self, w) == 0);
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end);
    for (int i = 0; i < NEIGHBORS; i++) {
        buffer_fini(&w->p, &send[i]);
        buffer_fini(&w->p, &receive[i]);
    }
    return 0;
}

/* A dma-buf needs the least, so nothing else is asked for where it is taken. */
static int check_registered(struct rank *self)
{
    struct interpreter_counts counts = interpreter_counts();

    RANK_CHECK((counts.dmabufs > 0) ==
               (mode == DMABUF || mode == SENT || mode == ONE_WAY ||
                mode == CUT));
    RANK_CHECK((counts.peers > 0) == (mode == PEER || mode == COHERENT));
    return 0;
}

static int refuse(struct rsched_engine *engine, int peer,
                  const unsigned char *address,
                  struct rsched_connection **connection)
{
    (void)engine;
    (void)address;
    (void)connection;
    return rs_fail(RSCHED_EUNREACH, "process %d is not for this engine", peer);
}

static int open_beside(struct rank *self)
{
    static struct rsched_engine_ops refusing;
    struct rs_engine *cuda = only_engine(self, "cuda");

    RANK_CHECK(cuda != NULL && cuda->ops != NULL);
    RANK_CHECK(only_for_verbs(self) == 0);
    if (mode == ONE_WAY && self->rank == 0) {
        refusing = *cuda->ops;
        refusing.connect = refuse;
        cuda->ops = &refusing;
    }
    return 0;
}

static int rank_main(struct rank *self)
{
    struct world w = {0};

    if (mode == BESIDE || mode == ONE_WAY)
        RANK_CHECK(open_beside(self) == 0);
    else
        RANK_CHECK(only_interpreter(self, NULL) == 0);
    program_begin(&w.p, self->rank);
    if (mode == CUT)
        RANK_CHECK(cut(self, &w) == 0);
    if (mode == MANAGED) {
        RANK_CHECK(managed(self, &w, false) == 0);
        RANK_CHECK(managed(self, &w, true) == 0);
        program_end(&w.p, self->rank);
        return 0;
    }
    for (int i = 0; i < KINDS; i++)
        RANK_CHECK(one_kind(self, &w, i) == 0);
    RANK_CHECK(neighbors(self, &w) == 0);
    RANK_CHECK(check_registered(self) == 0);
    program_end(&w.p, self->rank);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    while (mode < MODES && strcmp(argv[1], modes[mode]) != 0)
        mode++;
    if (mode == MODES)
        return 2;
    return ranks_run(2, true, rank_main, NULL) == 0 ? 0 : 1;
}
