/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges of buffers in GPU and host memory between two ranks, each with a
 * GPU of its own if there are two, over the driver in software or a real one:
 *
 *     cuda_exchange processes|threads CASE
 *
 * The way is what RSCHED_GPU_WAY and the costs say; each case asserts from the
 * counters that it was taken.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rsched/engine.h>
#include <rsched/rsched.h>

#include "engines/cuda/lane.h"
#include "librsched/run/run.h"
#include "tests/base/entries.h"
#include "tests/cuda/buffer.h"
#include "tests/runtime/apart.h"

enum { EPOCHS = 5, BYTES = 300000, ROWS = 100, ROW = 64, PITCH = 1024 };

static bool threads;

static char byte_of(int rank, int epoch, int put, size_t at)
{
    return (char)(rank * 89 + epoch * 41 + put * 17 + (int)(at % 251));
}

/* ---- a pattern of puts of all kinds ---- */

struct kind {
    uint64_t bytes;
    bool from_gpu, to_gpu, rows, self;
};

enum { MOST_PUTS = 6 };

static const struct kind kinds[MOST_PUTS] = {
    {1000, false, false, false, false}, {BYTES, true, true, false, false},
    {ROWS * ROW, true, true, true, false}, {5000, true, false, false, false},
    {2000, true, true, false, true},    {7000, false, true, false, false}};

/* Without the last put all that leaves host memory stays there. */
struct world {
    struct program p;
    int puts;
    struct buffer send[MOST_PUTS], receive[MOST_PUTS];
    struct rsched_pattern *pattern;
    struct rsched_exchange *x;
};

static const struct rsched_run rows = {
    .bytes = ROW, .count = ROWS, .stride = PITCH};

static size_t span(const struct kind *k)
{
    return k->rows ? ROWS * PITCH : k->bytes;
}

static size_t place(const struct kind *k, size_t at)
{
    return k->rows ? at / ROW * PITCH + at % ROW : at;
}

static void begin(struct rank *self, struct world *w, int puts, bool declared)
{
    int gpu;

    *w = (struct world){.puts = puts};
    program_begin(&w->p, self->rank);
    gpu = program_gpu(&w->p, self->rank);
    if (rsched_pattern_create("world", &w->pattern) != 0)
        abort();
    for (int i = 0; i < puts; i++) {
        const struct kind *k = &kinds[i];
        int other = k->self ? self->rank : 1 - self->rank;
        struct rsched_put put = {.bytes = k->bytes,
                                 .source = self->rank,
                                 .destination = other};

        if (k->rows)
            put.layout = (struct rsched_layout){&rows, 1};
        put.memory = declared && k->from_gpu ? RSCHED_MEMORY_DEVICE
                                             : RSCHED_MEMORY_HOST;
        put.device = put.memory == RSCHED_MEMORY_DEVICE ? gpu : 0;
        buffer_init(&w->p, &w->send[i], span(k), k->from_gpu);
        buffer_init(&w->p, &w->receive[i], span(k), k->to_gpu);
        if (rsched_pattern_add_put(w->pattern, &put) < 0)
            abort();
        put.source = other;
        put.destination = self->rank;
        put.memory = declared && k->to_gpu ? RSCHED_MEMORY_DEVICE
                                           : RSCHED_MEMORY_HOST;
        put.device = put.memory == RSCHED_MEMORY_DEVICE ? gpu : 0;
        if (rsched_pattern_add_receive(w->pattern, &put) < 0)
            abort();
    }
}

static void addresses(const struct world *w, const void **send, void **receive)
{
    for (int i = 0; i < w->puts; i++) {
        send[i] = w->send[i].address;
        receive[i] = w->receive[i].address;
    }
}

static int create(struct rank *self, struct world *w, unsigned flags)
{
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];
    const struct rsched_exchange_params params = {
        .pattern = w->pattern,
        .send = flags != 0 ? NULL : send,
        .receive = flags != 0 ? NULL : receive,
        .flags = flags};

    addresses(w, send, receive);
    return rsched_exchange_create(self->context, &params, &w->x);
}

static void end(struct rank *self, struct world *w)
{
    rsched_exchange_destroy(w->x);
    /* Nobody has the memory open any more. */
    mesh_barrier(self->end);
    for (int i = 0; i < w->puts; i++) {
        buffer_fini(&w->p, &w->send[i]);
        buffer_fini(&w->p, &w->receive[i]);
    }
    rsched_pattern_destroy(w->pattern);
    program_end(&w->p, self->rank);
}

static void fill(struct rank *self, struct world *w, int epoch)
{
    for (int i = 0; i < w->puts; i++) {
        for (size_t at = 0; at < kinds[i].bytes; at++)
            w->send[i].touch[place(&kinds[i], at)] =
                byte_of(self->rank, epoch, i, at);
        memset(w->receive[i].touch, 0, span(&kinds[i]));
        buffer_push(&w->p, &w->send[i]);
        buffer_push(&w->p, &w->receive[i]);
    }
}

static int compare(struct rank *self, struct world *w, int epoch)
{
    for (int i = 0; i < w->puts; i++) {
        const struct kind *k = &kinds[i];
        int from = k->self ? self->rank : 1 - self->rank;

        buffer_pull(&w->p, &w->receive[i]);
        for (size_t at = 0; at < k->bytes; at++)
            RANK_CHECK(w->receive[i].touch[place(k, at)] ==
                       byte_of(from, epoch, i, at));
        for (size_t at = 0; k->rows && at < span(k); at++)
            RANK_CHECK(at % PITCH < ROW || w->receive[i].touch[at] == 0);
    }
    return 0;
}

static int run(struct rank *self, struct world *w, int epochs)
{
    for (int epoch = 0; epoch < epochs; epoch++) {
        fill(self, w, epoch);
        RANK_CHECK(rsched_exchange_start(w->x) == 0);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
        RANK_CHECK(compare(self, w, epoch) == 0);
    }
    return 0;
}

/* Of a process to the other one with an end in GPU memory, in an epoch. */
static uint64_t gpu_bytes(const struct world *w)
{
    uint64_t bytes = 0;

    for (int i = 0; i < w->puts; i++) {
        if (!kinds[i].self && (kinds[i].from_gpu || kinds[i].to_gpu))
            bytes += kinds[i].bytes;
    }
    return bytes;
}

static int check_way(struct rank *self, struct world *w, enum rsched_way way,
                     uint64_t epochs)
{
    enum rsched_way other = way == RSCHED_WAY_STAGED ? RSCHED_WAY_CUDA_IPC
                                                     : RSCHED_WAY_STAGED;
    struct rsched_stats stats;

    rsched_exchange_get_stats(w->x, &stats);
    RANK_CHECK(stats.way_bytes[way] == epochs * gpu_bytes(w));
    RANK_CHECK(stats.way_bytes[other] == 0);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_SELF] == epochs * kinds[4].bytes);
    return 0;
}

static enum rsched_way way_wanted(void)
{
    const char *way = getenv("RSCHED_GPU_WAY");

    return way != NULL && strcmp(way, "staged") == 0 ? RSCHED_WAY_STAGED
                                                     : RSCHED_WAY_CUDA_IPC;
}

/* ---- cases ---- */

/* Handles are opened at the first epoch, and no second time by another exchange
 * of the same buffers. */
static int check_handles(struct rank *self, struct world *w, bool open)
{
    bool pulled = way_wanted() == RSCHED_WAY_CUDA_IPC && !threads;

    /* Three buffers of the peer have been read. */
    RANK_CHECK(program_counted(&w->p, FAKE_HANDLES_OPEN,
                               pulled && open ? 3 : 0));
    RANK_CHECK(program_counted(&w->p, FAKE_HANDLES, pulled ? 3 : 0));
    return 0;
}

static int case_moves(struct rank *self)
{
    struct world w, second;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    RANK_CHECK(run(self, &w, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, way_wanted(), EPOCHS) == 0);
    RANK_CHECK(threads || check_handles(self, &w, true) == 0);
    second = w;
    RANK_CHECK(create(self, &second, 0) == 0);
    RANK_CHECK(run(self, &second, 2) == 0);
    RANK_CHECK(threads || check_handles(self, &w, true) == 0);
    rsched_exchange_destroy(second.x);
    RANK_CHECK(run(self, &w, 1) == 0);
    rsched_exchange_destroy(w.x);
    w.x = NULL;
    RANK_CHECK(threads || check_handles(self, &w, false) == 0);
    end(self, &w);
    return 0;
}

/* A message that comes from host memory in part is staged. */
static int case_mixed(struct rank *self)
{
    struct world w;

    begin(self, &w, 6, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    RANK_CHECK(run(self, &w, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, EPOCHS) == 0);
    end(self, &w);
    return 0;
}

static int case_variable(struct rank *self)
{
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];
    struct world w;

    begin(self, &w, 5, true);
    addresses(&w, send, receive);
    RANK_CHECK(create(self, &w, RSCHED_EXCHANGE_VARIABLE) == 0);
    for (int i = 0; i < 3; i++) {
        RANK_CHECK(rsched_exchange_load(w.x, w.pattern, send, receive) == 0);
        RANK_CHECK(run(self, &w, 2) == 0);
    }
    RANK_CHECK(check_way(self, &w, way_wanted(), 6) == 0);
    RANK_CHECK(threads || check_handles(self, &w, true) == 0);
    end(self, &w);
    return 0;
}

/* Memory of cuMemCreate goes as a descriptor; without the right to that, and
 * memory of which the peer may not open the handle, is staged. */
static int with_mapped(struct rank *self, bool exportable)
{
    struct world w;

    begin(self, &w, 5, false);
    for (int i = 1; i < 4; i++) {
        buffer_fini(&w.p, &w.send[i]);
        buffer_map(&w.p, &w.send[i], span(&kinds[i]), exportable, self->rank);
    }
    RANK_CHECK(create(self, &w, 0) == 0);
    RANK_CHECK(run(self, &w, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w,
                         exportable ? RSCHED_WAY_CUDA_IPC : RSCHED_WAY_STAGED,
                         EPOCHS) == 0);
    RANK_CHECK(threads ||
               program_counted(&w.p, FAKE_IMPORTS, exportable ? 3 : 0));
    RANK_CHECK(program_counted(&w.p, FAKE_HANDLES, 0));
    rsched_exchange_destroy(w.x);
    w.x = NULL;
    RANK_CHECK(program_counted(&w.p, FAKE_IMPORTS_MAPPED, 0));
    end(self, &w);
    return 0;
}

static int case_descriptors(struct rank *self)
{
    return with_mapped(self, true);
}

/* New memory, and other memory, again and again: nothing of what was there before
 * stays open. */
static int with_new_memory(struct rank *self)
{
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];
    struct world w;
    int files = 0;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    for (int round = 0; round < 4; round++) {
        /* The peer has none of it open any more. */
        mesh_barrier(self->end);
        for (int i = 1; i < 4; i++) {
            buffer_fini(&w.p, &w.send[i]);
            buffer_map(&w.p, &w.send[i], span(&kinds[i]), true, self->rank);
        }
        addresses(&w, send, receive);
        /* Of the second bind nothing is new; the tables of the first are not
         * sent. */
        RANK_CHECK(rsched_exchange_bind(w.x, send, receive) == 0);
        RANK_CHECK(rsched_exchange_bind(w.x, send, receive) == 0);
        RANK_CHECK(run(self, &w, 2) == 0);
        RANK_CHECK(rsched_exchange_bind(w.x, send, receive) == 0);
        RANK_CHECK(run(self, &w, 1) == 0);
        RANK_CHECK(program_counted(&w.p, FAKE_IMPORTS_MAPPED, 3));
        RANK_CHECK(files == 0 || count_descriptors() == files);
        files = round == 0 ? 0 : count_descriptors();
    }
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, 12) == 0);
    end(self, &w);
    return 0;
}

static const struct rs_cuda_lane *find_lane(const struct world *w)
{
    for (uint32_t i = 0; i < w->x->num_out; i++) {
        struct rsched_lane *lane = w->x->out[i].lane;

        if (strcmp(lane->ops->name, "cuda") == 0 && !lane->connection->self)
            return rs_cuda_lane_of(lane);
    }
    abort();
}

/* Whether the table names no descriptor that is to be taken. */
static bool has_sent_all(const struct rs_cuda_lane *l)
{
    for (size_t i = 0; i < l->num_regions; i++) {
        if (l->regions[i].kind == RS_CUDA_DESCRIPTOR && l->regions[i].fd >= 0)
            return false;
    }
    return l->num_regions > 0 && l->has_sent;
}

/* Tables that are not sent, since no epoch comes: the peer takes their descriptors
 * as it is loaded, so there is room for those of the next one. Of memory that is the
 * same nothing is sent again. */
static int case_unsent(struct rank *self)
{
    enum { BINDS = 500, CHANGED = 1 };
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];
    struct buffer mapped[2];
    struct world w;
    uint64_t version;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    for (int i = 0; i < 2; i++)
        buffer_map(&w.p, &mapped[i], span(&kinds[CHANGED]), true, self->rank);
    buffer_fini(&w.p, &w.send[CHANGED]);
    for (int i = 0; i < BINDS; i++) {
        w.send[CHANGED] = mapped[i % 2];
        addresses(&w, send, receive);
        RANK_CHECK(rsched_exchange_bind(w.x, send, receive) == 0);
        RANK_CHECK(has_sent_all(find_lane(&w)));
        mesh_barrier(self->end);
    }
    version = find_lane(&w)->version;
    RANK_CHECK(rsched_exchange_bind(w.x, send, receive) == 0);
    RANK_CHECK(find_lane(&w)->version == version);
    RANK_CHECK(run(self, &w, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, EPOCHS) == 0);
    mesh_barrier(self->end);
    end(self, &w);
    buffer_fini(&w.p, &mapped[BINDS % 2]);
    return 0;
}

/* Without sockets the peer takes the descriptors of the last bind, which are others
 * than those of the one before though the memory is the same. */
static int case_taken(struct rank *self)
{
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];
    struct rs_cuda_notes *notes;
    struct world w;

    begin(self, &w, 5, false);
    for (int i = 1; i < 4; i++) {
        buffer_fini(&w.p, &w.send[i]);
        buffer_map(&w.p, &w.send[i], span(&kinds[i]), true, self->rank);
    }
    RANK_CHECK(create(self, &w, 0) == 0);
    notes = &find_lane(&w)->lane.connection->notes;
    close(notes->out);
    notes->out = -1;
    addresses(&w, send, receive);
    for (int i = 0; i < 4; i++) {
        RANK_CHECK(rsched_exchange_bind(w.x, send, receive) == 0);
        if (i % 2 != 0)
            RANK_CHECK(run(self, &w, EPOCHS) == 0);
    }
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, 2 * EPOCHS) == 0);
    RANK_CHECK(program_counted(&w.p, FAKE_IMPORTS, 3));
    end(self, &w);
    return 0;
}

static int both_descriptors(struct rank *self)
{
    RANK_CHECK(with_mapped(self, true) == 0);
    return with_new_memory(self);
}

/* Containers, which see no processes of each other and may not look into them. */
enum {
    CONTAINER = CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUSER
};

static int case_apart(struct rank *self)
{
    return apart_run(self, CONTAINER, both_descriptors);
}

/* Rank 1 stays where it is: a container and its host. */
static int case_half_apart(struct rank *self)
{
    return self->rank == 0 ? apart_run(self, CONTAINER, both_descriptors)
                           : both_descriptors(self);
}

static int case_private(struct rank *self)
{
    return with_mapped(self, false);
}

/* FAKE_CUDA_FAIL has the receiver's driver refuse. */
static int case_refused(struct rank *self)
{
    struct world w;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    RANK_CHECK(run(self, &w, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, EPOCHS) == 0);
    RANK_CHECK(program_counted(&w.p, FAKE_HANDLES, 0));
    end(self, &w);
    return 0;
}

/* Handles mean nothing across namespaces of processes. */
static int case_apart_handles(struct rank *self)
{
    return apart_run(self, CONTAINER, case_refused);
}

/* The same where the way was asked for. Both are told: whoever could not open
 * it says why, and who had been waiting for that one that it has given up. */
static int case_insisted(struct rank *self)
{
    struct world w;
    int error;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    fill(self, &w, 0);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    error = rsched_exchange_wait(w.x);
    RANK_CHECK((error == RSCHED_ENOTSUP &&
                strstr(rsched_last_error(), "cuIpcOpenMemHandle") != NULL) ||
               (error == RSCHED_EPEER &&
                strstr(rsched_last_error(), "given up") != NULL));
    RANK_CHECK(rsched_exchange_start(w.x) == error);
    end(self, &w);
    return 0;
}

/* Rank 1 dies; rank 0 has its memory open. */
static int case_killed(struct rank *self)
{
    bool pulled = way_wanted() == RSCHED_WAY_CUDA_IPC;
    struct world w;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    RANK_CHECK(run(self, &w, 2) == 0);
    if (self->rank == 1)
        raise(SIGKILL);
    RANK_CHECK(program_counted(&w.p, FAKE_HANDLES_OPEN, pulled ? 3 : 0));
    if (rsched_exchange_start(w.x) == 0)
        RANK_CHECK(rsched_exchange_wait(w.x) == RSCHED_EPEER);
    RANK_CHECK(strstr(rsched_last_error(), "peer 1") != NULL);
    RANK_CHECK(rsched_exchange_start(w.x) == RSCHED_EPEER);
    rsched_exchange_destroy(w.x);
    RANK_CHECK(program_counted(&w.p, FAKE_HANDLES_OPEN, 0));
    for (int i = 0; i < w.puts; i++) {
        buffer_fini(&w.p, &w.send[i]);
        buffer_fini(&w.p, &w.receive[i]);
    }
    rsched_pattern_destroy(w.pattern);
    program_end(&w.p, self->rank);
    return 0;
}

/* Rank 0 frees a buffer that it goes on to send: its copy engine refuses, and
 * rank 1 learns that it has given up. */
static int case_freed(struct rank *self)
{
    struct world w;
    int error;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    RANK_CHECK(run(self, &w, 2) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        buffer_fini(&w.p, &w.send[1]);
        error = rsched_exchange_start(w.x);
        if (error == 0)
            error = rsched_exchange_wait(w.x);
        RANK_CHECK(error == RSCHED_ESYS);
        RANK_CHECK(strstr(rsched_last_error(), "CUDA_ERROR_INVALID_VALUE") !=
                   NULL);
        buffer_init(&w.p, &w.send[1], 1, true);
    } else {
        error = rsched_exchange_start(w.x);
        if (error == 0)
            error = rsched_exchange_wait(w.x);
        RANK_CHECK(error == RSCHED_EPEER);
    }
    end(self, &w);
    return 0;
}

/* Rank 0 gets no stream. Its peer, which has its exchange, learns of it. */
static int case_no_memory(struct rank *self)
{
    struct world w;
    int error;

    begin(self, &w, 5, false);
    if (self->rank == 0) {
        setenv("FAKE_CUDA_FAIL", "cuStreamCreateWithPriority:1:2", 1);
        RANK_CHECK(create(self, &w, 0) == RSCHED_ENOMEM);
        RANK_CHECK(strstr(rsched_last_error(), "CUDA_ERROR_OUT_OF_MEMORY") !=
                   NULL);
        w.x = NULL;
    } else {
        RANK_CHECK(create(self, &w, 0) == 0);
        error = rsched_exchange_start(w.x);
        if (error == 0)
            error = rsched_exchange_wait(w.x);
        RANK_CHECK(error == RSCHED_EPEER);
    }
    end(self, &w);
    return 0;
}

/* A receiver that declares another GPU than it has; its peer fails too. */
static int case_wrong_gpu(struct rank *self)
{
    struct world w;
    struct rsched_pattern *pattern;

    begin(self, &w, 1, false);
    RANK_CHECK(rsched_pattern_create("wrong", &pattern) == 0);
    for (int out = 0; out < 2; out++) {
        struct rsched_put put = {.bytes = kinds[0].bytes,
                                 .source = out ? self->rank : 1 - self->rank,
                                 .destination =
                                     out ? 1 - self->rank : self->rank};

        if (out == 0 && self->rank == 1) {
            put.memory = RSCHED_MEMORY_DEVICE;
            put.device = 0;
            buffer_fini(&w.p, &w.receive[0]);
            buffer_init(&w.p, &w.receive[0], kinds[0].bytes, true);
        }
        RANK_CHECK((out ? rsched_pattern_add_put
                        : rsched_pattern_add_receive)(pattern, &put) >= 0);
    }
    rsched_pattern_destroy(w.pattern);
    w.pattern = pattern;
    RANK_CHECK(create(self, &w, 0) != 0);
    RANK_CHECK(strstr(rsched_last_error(),
                      "receive 0 lies in the memory of GPU 1, not 0") != NULL);
    w.x = NULL;
    end(self, &w);
    return 0;
}

/* On two nodes (RSCHED_NODE). */
static int case_far(struct rank *self)
{
    struct world w;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == RSCHED_EUNREACH);
    w.x = NULL;
    end(self, &w);
    return 0;
}

/* One side computes for long: the progress thread goes on, in its own thread,
 * whose current context is none. */
static int case_late(struct rank *self)
{
    struct rsched_context_stats stats;
    struct world w;

    begin(self, &w, 5, false);
    RANK_CHECK(create(self, &w, 0) == 0);
    fill(self, &w, 0);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    if (self->rank == 0) {
        mesh_barrier(self->end); /* the other one is through */
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
        rsched_context_get_stats(self->context, &stats);
        /* Slots of threads are not pinned: a real driver has copied to them
         * when it comes back. */
        RANK_CHECK(stats.tick_moves > 0 || (threads && !w.p.is_fake));
    } else {
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
        mesh_barrier(self->end);
    }
    RANK_CHECK(compare(self, &w, 0) == 0);
    end(self, &w);
    return 0;
}

/* Copies of rank 1 take 300 ms. Rank 0, which begins later, is through once
 * those are done that rank 1 sends, and goes while it still receives. */
static int case_gone(struct rank *self)
{
    struct world w;

    begin(self, &w, 5, false);
    if (self->rank == 1)
        setenv("FAKE_CUDA_LATE", "300", 1);
    RANK_CHECK(create(self, &w, 0) == 0);
    if (self->rank == 0)
        usleep(150000);
    RANK_CHECK(run(self, &w, 1) == 0);
    end(self, &w);
    return 0;
}

/* Rank 1 has host memory only, and a program that knows of no GPU. */
static int case_host_only(struct rank *self)
{
    bool on_gpu = self->rank == 0;
    struct rsched_put put = {.bytes = BYTES,
                             .source = self->rank,
                             .destination = 1 - self->rank};
    struct rsched_pattern *pattern;
    struct rsched_stats stats;
    struct buffer send, receive;
    struct program p = {0};
    const void *from;
    void *to;
    struct rsched_exchange_params params = {.send = &from, .receive = &to};
    struct rsched_exchange *x;

    if (on_gpu)
        program_begin(&p, 0);
    buffer_init(&p, &send, BYTES, on_gpu);
    buffer_init(&p, &receive, BYTES, on_gpu);
    RANK_CHECK(rsched_pattern_create("host-only", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = 1 - self->rank;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    from = send.address;
    to = receive.address;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &x) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (size_t at = 0; at < BYTES; at++)
            send.touch[at] = byte_of(self->rank, epoch, 0, at);
        memset(receive.touch, 0, BYTES);
        buffer_push(&p, &send);
        buffer_push(&p, &receive);
        RANK_CHECK(rsched_exchange_start(x) == 0);
        RANK_CHECK(rsched_exchange_wait(x) == 0);
        buffer_pull(&p, &receive);
        for (size_t at = 0; at < BYTES; at++)
            RANK_CHECK(receive.touch[at] ==
                       byte_of(1 - self->rank, epoch, 0, at));
    }
    rsched_exchange_get_stats(x, &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_STAGED] == (uint64_t)EPOCHS * BYTES);
    RANK_CHECK(on_gpu ==
               (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL));
    rsched_exchange_destroy(x);
    mesh_barrier(self->end);
    buffer_fini(&p, &send);
    buffer_fini(&p, &receive);
    rsched_pattern_destroy(pattern);
    if (on_gpu)
        program_end(&p, 0);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *main;
    int result;
    enum program_needs needs;
} cases[] = {
    {"moves", case_moves, 0, ANY_DRIVER},
    {"mixed", case_mixed, 0, ANY_DRIVER},
    {"variable", case_variable, 0, ANY_DRIVER},
    {"descriptors", case_descriptors, 0, ANY_DRIVER},
    {"private", case_private, 0, ANY_DRIVER},
    {"refused", case_refused, 0, FAKE_DRIVER},
    {"insisted", case_insisted, 0, FAKE_DRIVER},
    {"killed", case_killed, RANKS_KILLED, ANY_DRIVER},
    {"freed", case_freed, 0, FAKE_DRIVER},
    {"no-memory", case_no_memory, 0, FAKE_DRIVER},
    {"wrong-gpu", case_wrong_gpu, 0, TWO_GPUS},
    {"far", case_far, 0, ANY_DRIVER},
    {"late", case_late, 0, ANY_DRIVER},
    {"gone", case_gone, 0, FAKE_DRIVER},
    {"host-only", case_host_only, 0, ANY_DRIVER},
    {"apart", case_apart, 0, ANY_DRIVER},
    {"unsent", case_unsent, 0, ANY_DRIVER},
    {"taken", case_taken, 0, ANY_DRIVER},
    {"half-apart", case_half_apart, 0, ANY_DRIVER},
    {"apart-handles", case_apart_handles, 0, FAKE_DRIVER},
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    threads = strcmp(argv[1], "threads") == 0;
    if (strstr(argv[2], "apart") != NULL && !apart_is_possible(CONTAINER)) {
        printf("SKIP: no namespaces: %s\n", strerror(EPERM));
        return 77;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[2], cases[i].name) != 0)
            continue;
        if (program_skips(cases[i].needs))
            return 77;
        return ranks_run(2, threads, cases[i].main, NULL) == cases[i].result
                   ? 0
                   : 1;
    }
    return 2;
}
