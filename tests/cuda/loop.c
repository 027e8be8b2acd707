/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages in GPU memory that go through the NIC of a node, between two ranks that
 * have other ways too:
 *
 *     cuda_loop CASE
 *
 * The NIC is the interpreter of ../verbs in the place of verbs, the driver the one
 * in software; both are of one process, so ranks are threads. What the NIC writes
 * to GPU memory is visible after a flush only. Which way messages went is asserted
 * from the counters, and that of what was written by it.
 */
#include <stdlib.h>
#include <string.h>

#include "engines/cuda/lane.h"
#include "librsched/run/talk.h"
#include "tests/cuda/swap.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/interpreter_gpu.h"
#include "tests/verbs/only.h"

enum { EPOCHS = 3, ROWS = 100, MOST = 4 };

static const struct swap_kind tiny = {8, 0, true, true, false, false};
static const struct swap_kind small = {1000, 0, true, true, false, false};
static const struct swap_kind large = {300000, 0, true, true, false, false};
static const struct swap_kind last_looped = {16161, 0, true, true, false,
                                             false};
static const struct swap_kind first_pulled = {16162, 0, true, true, false,
                                              false};
static const struct swap_kind to_gpu = {1000, 0, false, true, false, false};
static const struct swap_kind to_host = {1000, 0, true, false, false, false};
static const struct swap_kind from_rows = {ROWS * SWAP_ROW, 0, true, true, true,
                                           false};
static const struct swap_kind to_rows = {ROWS * SWAP_ROW, 0, true, true, false,
                                         true};

struct world {
    struct swap s;
    uint64_t sent[RSCHED_NUM_WAYS]; /* as last seen */
    uint64_t writes;                /* likewise, of the NIC */
};

static int create(struct rank *self, struct world *w)
{
    int error = swap_create(self, &w->s);

    memset(w->sent, 0, sizeof(w->sent));
    w->writes = interpreter_gpu_writes();
    return error;
}

static int begin(struct rank *self, struct world *w)
{
    *w = (struct world){0};
    program_begin(&w->s.p, self->rank);
    return 0;
}

/* Bytes that went this way since the last look. */
static uint64_t count_way(struct world *w, enum rsched_way way)
{
    struct rsched_stats stats;
    uint64_t before = w->sent[way];

    rsched_exchange_get_stats(w->s.x, &stats);
    w->sent[way] = stats.way_bytes[way];
    return w->sent[way] - before;
}

/* Both ranks' epochs since the last look went this way, and through the NIC if
 * it is that. */
static int check_way(struct rank *self, struct world *w, enum rsched_way way,
                     int epochs)
{
    struct rs_engine *nic = only_engine(self, "verbs");
    size_t number = (size_t)(nic - self->context->engines);
    struct rsched_stats stats;

    rsched_exchange_get_stats(w->s.x, &stats);
    for (int k = 0; k < RSCHED_NUM_WAYS; k++) {
        RANK_CHECK(stats.way_bytes[k] - w->sent[k] ==
                   (k == (int)way ? (uint64_t)epochs * w->s.kinds->bytes : 0));
        w->sent[k] = stats.way_bytes[k];
    }
    RANK_CHECK(stats.engine_bytes[number] ==
               stats.way_bytes[RSCHED_WAY_GDR_LOOPBACK]);
    mesh_barrier(self->end);
    if (way == RSCHED_WAY_GDR_LOOPBACK)
        RANK_CHECK(interpreter_gpu_writes() - w->writes >=
                   2 * (uint64_t)epochs);
    else
        RANK_CHECK(interpreter_gpu_writes() == w->writes);
    mesh_barrier(self->end);
    w->writes = interpreter_gpu_writes();
    return 0;
}

static int goes(struct rank *self, struct world *w,
                const struct swap_kind *kind, enum rsched_way way)
{
    swap_make_buffers(&w->s, kind, 1);
    RANK_CHECK(create(self, w) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(swap_run(self, &w->s, EPOCHS) == 0);
    RANK_CHECK(check_way(self, w, way, EPOCHS) == 0);
    swap_forget(self, &w->s);
    return 0;
}

/* With other buffers, which are this kind's. */
static int rebind(struct rank *self, struct world *w,
                  const struct swap_kind *kind)
{
    struct buffer send = w->s.send[0], receive = w->s.receive[0];
    const void *from;
    void *to;

    (void)self;
    swap_make_buffers(&w->s, kind, 1);
    from = w->s.send[0].address;
    to = w->s.receive[0].address;
    RANK_CHECK(rsched_exchange_bind(w->s.x, &from, &to) == 0);
    mesh_barrier(self->end);
    buffer_fini(&w->s.p, &send);
    buffer_fini(&w->s.p, &receive);
    return 0;
}

/* ---- cases ---- */

/* Where it was asked for. What has an end in host memory is staged. */
static int case_moves(struct rank *self)
{
    const struct swap_kind *through[] = {&tiny, &small, &large, &from_rows};
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    for (size_t i = 0; i < sizeof(through) / sizeof(through[0]); i++)
        RANK_CHECK(goes(self, &w, through[i], RSCHED_WAY_GDR_LOOPBACK) == 0);
    RANK_CHECK(goes(self, &w, &to_gpu, RSCHED_WAY_STAGED) == 0);
    RANK_CHECK(goes(self, &w, &to_host, RSCHED_WAY_STAGED) == 0);
    RANK_CHECK(interpreter_counts().dmabufs > 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* By costs, on both sides of where they are equal. */
static int case_chosen(struct rank *self)
{
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    RANK_CHECK(goes(self, &w, &tiny, RSCHED_WAY_GDR_LOOPBACK) == 0);
    RANK_CHECK(goes(self, &w, &last_looped, RSCHED_WAY_GDR_LOOPBACK) == 0);
    RANK_CHECK(goes(self, &w, &first_pulled, RSCHED_WAY_CUDA_IPC) == 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

static int forecast(struct rank *self, const struct rs_creation *c, bool *loops)
{
    bool *twice;

    RANK_CHECK(rs_creation_forecast(c, &twice) == 0);
    *loops = twice != NULL && twice[0];
    free(twice);
    return 0;
}

/* The plan has what will go that way cross the NIC twice, and nothing else. */
static int case_forecast(struct rank *self)
{
    static const struct {
        const struct swap_kind *kind;
        bool on_gpu, nic, loops;
    } puts[] = {{&last_looped, true, true, true},
                {&first_pulled, true, true, false},
                {&last_looped, false, true, false},
                {&last_looped, true, false, false}};
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    for (size_t i = 0; i < sizeof(puts) / sizeof(puts[0]); i++) {
        struct rsched_pattern *pattern;
        struct rsched_place place = {
            puts[i].on_gpu ? RSCHED_PLACE_GPU : RSCHED_PLACE_HOST, -1};
        struct rs_talk talk = {.process = 1 - self->rank};
        struct rs_creation c = {.context = self->context,
                                .puts = &place,
                                .talks = &talk,
                                .num_talks = 1};
        bool loops;

        swap_make_buffers(&w.s, puts[i].kind, 1);
        pattern = swap_pattern(self, &w.s);
        RANK_CHECK(create(self, &w) == 0);
        c.pattern = pattern;
        c.x = w.s.x;
        if (puts[i].nic)
            talk.peers[RS_USE_LOOPBACK] = w.s.x->out[0].beside_peer;
        RANK_CHECK(forecast(self, &c, &loops) == 0);
        RANK_CHECK(loops == puts[i].loops);
        rsched_pattern_destroy(pattern);
        swap_forget(self, &w.s);
    }
    program_end(&w.s.p, self->rank);
    return 0;
}

/* Exchanges that are under way together, and one by one again. */
static int case_update(struct rank *self)
{
    struct world w[MOST];
    uint32_t changed;

    RANK_CHECK(only_for_verbs(self) == 0);
    for (int i = 0; i < MOST; i++) {
        RANK_CHECK(begin(self, &w[i]) == 0);
        w[i].s.tag = (uint64_t)i;
        swap_make_buffers(&w[i].s, &small, 1);
        RANK_CHECK(create(self, &w[i]) == 0);
    }
    mesh_barrier(self->end);
    for (int mode = 0; mode < 2; mode++) {
        for (int k = 0; k < 16; k++) {
            for (int i = 0; i < MOST; i++) {
                RANK_CHECK(swap_start(self, &w[i].s) == 0);
                if (mode == 1)
                    RANK_CHECK(swap_wait(self, &w[i].s) == 0);
            }
            for (int i = 0; i < MOST && mode == 0; i++)
                RANK_CHECK(swap_wait(self, &w[i].s) == 0);
        }
        for (int i = 0; i < MOST; i++) {
            struct rsched_stats stats;

            rsched_exchange_get_stats(w[i].s.x, &stats);
            RANK_CHECK(stats.way_bytes[mode == 0 ? RSCHED_WAY_GDR_LOOPBACK
                                                 : RSCHED_WAY_CUDA_IPC] ==
                       16 * small.bytes);
            RANK_CHECK(rsched_exchange_update(w[i].s.x, &changed) == 0);
            RANK_CHECK(changed == 1);
        }
    }
    w[0].sent[RSCHED_WAY_GDR_LOOPBACK] = 16 * small.bytes;
    w[0].sent[RSCHED_WAY_CUDA_IPC] = 16 * small.bytes;
    mesh_barrier(self->end);
    w[0].writes = interpreter_gpu_writes();
    mesh_barrier(self->end);
    RANK_CHECK(swap_run(self, &w[0].s, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w[0], RSCHED_WAY_GDR_LOOPBACK, EPOCHS) == 0);
    for (int i = 0; i < MOST; i++)
        swap_forget(self, &w[i].s);
    for (int i = 0; i < MOST; i++)
        program_end(&w[i].s.p, self->rank);
    return 0;
}

/* The other way that is kept ready for a refusal is prepared once: there is no table
 * with other descriptors for each update. */
static int case_prepared(struct rank *self)
{
    const struct rs_cuda_lane *lane;
    struct world w;
    uint64_t version;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    swap_make_buffers(&w.s, &small, 1);
    RANK_CHECK(create(self, &w) == 0);
    lane = rs_cuda_lane_of(w.s.x->out[0].lane);
    version = lane->version;
    RANK_CHECK(version > 0 && lane->otherwise == RS_WAY_CUDA_IPC);
    mesh_barrier(self->end);
    for (int i = 0; i < 5; i++) {
        uint32_t changed;

        RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
        RANK_CHECK(check_way(self, &w, RSCHED_WAY_GDR_LOOPBACK, EPOCHS) == 0);
        RANK_CHECK(rsched_exchange_update(w.s.x, &changed) == 0);
        RANK_CHECK(changed == 0 && lane->version == version);
    }
    swap_forget(self, &w.s);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* Loaded with other buffers: each load decides anew, and the lanes beside go on
 * from where they were. */
static int case_rebound(struct rank *self)
{
    static const struct swap_kind host = {1000, 0, false, false, false, false};
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    swap_make_buffers(&w.s, &small, 1);
    RANK_CHECK(create(self, &w) == 0);
    mesh_barrier(self->end);
    for (int i = 0; i < 3; i++) {
        RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
        RANK_CHECK(check_way(self, &w, RSCHED_WAY_GDR_LOOPBACK, EPOCHS) == 0);
        RANK_CHECK(rebind(self, &w, &host) == 0);
        RANK_CHECK(swap_run(self, &w.s, 2) == 0);
        RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, 2) == 0);
        RANK_CHECK(rebind(self, &w, &small) == 0);
    }
    swap_forget(self, &w.s);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* One end's buffers change, and the other end is not told. Rank 1 refuses to have
 * its host memory written; rank 0 asks again once it is loaded itself. */
static int case_alone(struct rank *self)
{
    bool first = self->rank == 0;
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    swap_make_buffers(&w.s, &small, 1);
    RANK_CHECK(create(self, &w) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_GDR_LOOPBACK, EPOCHS) == 0);
    RANK_CHECK(rebind(self, &w, first ? &small : &to_host) == 0);
    RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
    RANK_CHECK(count_way(&w, RSCHED_WAY_GDR_LOOPBACK) ==
               (first ? 0 : EPOCHS * small.bytes));
    RANK_CHECK(count_way(&w, RSCHED_WAY_CUDA_IPC) ==
               (first ? EPOCHS * small.bytes : 0));
    for (int turn = 1; turn >= 0; turn--) {
        if (self->rank == turn)
            RANK_CHECK(rebind(self, &w, &small) == 0);
        else
            mesh_barrier(self->end);
        RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
        RANK_CHECK(count_way(&w, turn == 0 || !first
                                     ? RSCHED_WAY_GDR_LOOPBACK
                                     : RSCHED_WAY_CUDA_IPC) ==
                   EPOCHS * small.bytes);
    }
    swap_forget(self, &w.s);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* The receivers refuse what the senders ask for: their memory is too scattered, or
 * (the environment) what the NIC writes there could not be made visible. */
static int case_refused(struct rank *self)
{
    const struct swap_kind *kind = getenv("FAKE_CUDA_FLUSH") == NULL ? &to_rows
                                                                : &small;
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    RANK_CHECK(goes(self, &w, kind, RSCHED_WAY_CUDA_IPC) == 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* The senders' NIC does not get at GPU memory, or there is none: nobody is asked. */
static int case_not_here(struct rank *self)
{
    struct world w;

    RANK_CHECK(getenv("LOOP_NIC") != NULL || only_for_verbs(self) == 0);
    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(goes(self, &w, &small, RSCHED_WAY_CUDA_IPC) == 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* Rank 1 does not know what it costs: so there is none with it. */
static int case_one_sided(struct rank *self)
{
    struct rs_way_costs *costs =
        self->context->ways.gpu[RS_WAY_GDR_LOOPBACK - RS_NUM_HOST_WAYS];
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    for (int d = 0; d < RS_NUM_DISTANCES && self->rank == 1; d++)
        costs[d].given = false;
    RANK_CHECK(goes(self, &w, &small, RSCHED_WAY_CUDA_IPC) == 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* What comes with the lengths of each load has no place that the NIC knows. */
static int case_variable(struct rank *self)
{
    bool forced = strcmp(getenv("RSCHED_GPU_WAY"), "auto") != 0;
    struct rsched_pattern *pattern;
    const void *from;
    struct world w;
    void *to;
    int error;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    w.s.flags = RSCHED_EXCHANGE_VARIABLE;
    swap_make_buffers(&w.s, &small, 1);
    from = w.s.send[0].address;
    to = w.s.receive[0].address;
    RANK_CHECK(rsched_pattern_create("variable", &pattern) == 0);
    for (int out = 0; out < 2; out++) {
        const struct rsched_put put = {
            .bytes = small.bytes,
            .source = out == 1 ? self->rank : 1 - self->rank,
            .destination = out == 1 ? 1 - self->rank : self->rank,
            .memory = RSCHED_MEMORY_DEVICE,
            .device = out == 1 ? self->rank : self->rank};

        RANK_CHECK((out == 1 ? rsched_pattern_add_put(pattern, &put)
                             : rsched_pattern_add_receive(pattern, &put)) >= 0);
    }
    RANK_CHECK(rsched_exchange_create(
                   self->context,
                   &(struct rsched_exchange_params){.pattern = pattern,
                                                    .flags = w.s.flags},
                   &w.s.x) == 0);
    error = rsched_exchange_load(w.s.x, pattern, &from, &to);
    rsched_pattern_destroy(pattern);
    w.writes = interpreter_gpu_writes();
    mesh_barrier(self->end);
    if (forced) {
        RANK_CHECK(error == RSCHED_ENOTSUP);
        RANK_CHECK(strstr(rsched_last_error(), "variable length") != NULL);
    } else {
        RANK_CHECK(error == 0 && swap_run(self, &w.s, EPOCHS) == 0);
        RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, EPOCHS) == 0);
    }
    swap_forget(self, &w.s);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* The way was asked for, and cannot be: why is said. */
static int fails(struct rank *self, struct world *w,
                 const struct swap_kind *kind, int error, const char *text)
{
    swap_make_buffers(&w->s, kind, 1);
    RANK_CHECK(create(self, w) == error);
    RANK_CHECK(strstr(rsched_last_error(), "RSCHED_GPU_WAY=gdr-loopback") !=
               NULL);
    if (strstr(rsched_last_error(), text) == NULL)
        return RANK_FAIL("no \"%s\" in \"%s\"", text, rsched_last_error());
    w->s.x = NULL;
    swap_forget(self, &w->s);
    return 0;
}

static int case_insisted_nic(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    only_engine(self, "verbs")->ops = NULL;
    RANK_CHECK(fails(self, &w, &small, RSCHED_EUNREACH, "no engine") == 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

static int case_insisted_memory(struct rank *self)
{
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    RANK_CHECK(fails(self, &w, &small, RSCHED_ENOTSUP, "peer memory") == 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* Only rank 1's memory is such that it has to refuse; rank 0 learns that it gave
 * up. */
static int case_insisted_receiver(struct rank *self)
{
    struct world w;
    int error;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    swap_make_buffers(&w.s, self->rank == 0 ? &from_rows : &to_rows, 1);
    RANK_CHECK(create(self, &w) == 0);
    error = swap_start(self, &w.s);
    if (error == 0)
        error = swap_wait(self, &w.s);
    RANK_CHECK(error == (self->rank == 0 ? RSCHED_EPEER : RSCHED_ENOTSUP));
    RANK_CHECK(self->rank == 0 ||
               strstr(rsched_last_error(), "RSCHED_GPU_WAY=gdr-loopback: ") !=
                   NULL);
    RANK_CHECK(self->rank == 0 ||
               strstr(rsched_last_error(), "more than 64 blocks") != NULL);
    swap_forget(self, &w.s);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* Given up by one in the midst of an epoch: what it had sent arrives, the next
 * epoch fails, and another exchange works. */
static int case_given_up(struct rank *self)
{
    struct world w;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    swap_make_buffers(&w.s, &small, 1);
    RANK_CHECK(create(self, &w) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(swap_run(self, &w.s, 1) == 0);
    RANK_CHECK(self->rank == 0 || swap_start(self, &w.s) == 0);
    if (self->rank == 0)
        rsched_exchange_destroy(w.s.x);
    else
        RANK_CHECK(rsched_exchange_wait(w.s.x) == RSCHED_EPEER);
    if (self->rank == 0)
        w.s.x = NULL;
    swap_forget(self, &w.s);
    RANK_CHECK(goes(self, &w, &small, RSCHED_WAY_GDR_LOOPBACK) == 0);
    program_end(&w.s.p, self->rank);
    return 0;
}

/* A NIC that fails fails what goes through it, and the next exchange has another
 * connection. */
static int case_cut(struct rank *self)
{
    struct world w;
    int error;

    RANK_CHECK(only_for_verbs(self) == 0 && begin(self, &w) == 0);
    swap_make_buffers(&w.s, &small, 1);
    RANK_CHECK(create(self, &w) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(swap_run(self, &w.s, 1) == 0);
    RANK_CHECK(w.s.x->out[0].beside_peer->life == 0);
    mesh_barrier(self->end);
    interpreter_cut(INTERPRETER_ALL_RAILS);
    mesh_barrier(self->end);
    error = swap_start(self, &w.s);
    if (error == 0)
        error = swap_wait(self, &w.s);
    RANK_CHECK(error == RSCHED_EPEER);
    mesh_barrier(self->end);
    interpreter_cut(0);
    swap_forget(self, &w.s);
    swap_make_buffers(&w.s, &small, 1);
    RANK_CHECK(create(self, &w) == 0);
    RANK_CHECK(w.s.x->out[0].beside_peer->life == 1);
    mesh_barrier(self->end);
    RANK_CHECK(swap_run(self, &w.s, EPOCHS) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_GDR_LOOPBACK, EPOCHS) == 0);
    swap_forget(self, &w.s);
    program_end(&w.s.p, self->rank);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *main;
} cases[] = {
    {"moves", case_moves},
    {"chosen", case_chosen},
    {"forecast", case_forecast},
    {"update", case_update},
    {"rebound", case_rebound},
    {"prepared", case_prepared},
    {"alone", case_alone},
    {"refused", case_refused},
    {"not-here", case_not_here},
    {"one-sided", case_one_sided},
    {"variable", case_variable},
    {"insisted-nic", case_insisted_nic},
    {"insisted-memory", case_insisted_memory},
    {"insisted-receiver", case_insisted_receiver},
    {"given-up", case_given_up},
    {"cut", case_cut},
};

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            return ranks_run(2, true, cases[i].main, NULL) == 0 ? 0 : 1;
    }
    return 2;
}
