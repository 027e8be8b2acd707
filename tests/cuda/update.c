/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways that are chosen again by what has been in flight, over the driver in
 * software and the costs of costs.yaml:
 *
 *     cuda_update processes|threads CASE
 *
 * Two ranks have exchanges of one message each way. Which way it went is
 * asserted from the counters.
 */
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/buffer.h"
#include "tests/runtime/ranks.h"

enum { EXCHANGES = 8, BYTES = 100000 };

static bool threads;

struct world {
    struct program p;
    struct buffer send[EXCHANGES], receive[EXCHANGES];
    struct rsched_exchange *x[EXCHANGES];
    uint64_t sent[RSCHED_NUM_WAYS]; /* of the first exchange, as last seen */
    int epoch;
};

static int create(struct rank *self, struct world *w, int i)
{
    struct rsched_put put = {.bytes = BYTES,
                             .source = self->rank,
                             .destination = 1 - self->rank};
    const void *send = w->send[i].address;
    void *receive = w->receive[i].address;
    struct rsched_exchange_params params = {
        .send = &send, .receive = &receive, .tag = (uint64_t)i};
    struct rsched_pattern *pattern;
    int error;

    if (rsched_pattern_create("update", &pattern) != 0 ||
        rsched_pattern_add_put(pattern, &put) < 0)
        abort();
    put.source = 1 - self->rank;
    put.destination = self->rank;
    if (rsched_pattern_add_receive(pattern, &put) < 0)
        abort();
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &w->x[i]);
    rsched_pattern_destroy(pattern);
    return error;
}

/* Between processes every other buffer has no handle: a descriptor goes, a new
 * one each time. */
static int begin(struct rank *self, struct world *w)
{
    *w = (struct world){0};
    program_begin(&w->p, self->rank);
    for (int i = 0; i < EXCHANGES; i++) {
        if (threads || i % 2 == 0)
            buffer_init(&w->p, &w->send[i], BYTES, true);
        else
            buffer_map(&w->p, &w->send[i], BYTES, true, self->rank);
        buffer_init(&w->p, &w->receive[i], BYTES, true);
        RANK_CHECK(create(self, w, i) == 0);
    }
    return 0;
}

static void end(struct rank *self, struct world *w)
{
    for (int i = 0; i < EXCHANGES; i++)
        rsched_exchange_destroy(w->x[i]);
    mesh_barrier(self->end); /* nobody has the memory open any more */
    for (int i = 0; i < EXCHANGES; i++) {
        buffer_fini(&w->p, &w->send[i]);
        buffer_fini(&w->p, &w->receive[i]);
    }
    program_end(&w->p, self->rank);
}

static char byte_of(int rank, int epoch, int i, size_t at)
{
    return (char)(rank * 89 + epoch * 41 + i * 17 + (int)(at % 251));
}

static int start(struct rank *self, struct world *w, int i)
{
    for (size_t at = 0; at < BYTES; at++)
        w->send[i].touch[at] = byte_of(self->rank, w->epoch, i, at);
    memset(w->receive[i].touch, 0, BYTES);
    RANK_CHECK(rsched_exchange_start(w->x[i]) == 0);
    return 0;
}

static int wait(struct rank *self, struct world *w, int i)
{
    RANK_CHECK(rsched_exchange_wait(w->x[i]) == 0);
    for (size_t at = 0; at < BYTES; at++)
        RANK_CHECK(w->receive[i].touch[at] ==
                   byte_of(1 - self->rank, w->epoch, i, at));
    return 0;
}

static uint64_t under_way(struct rank *self)
{
    struct rsched_context_stats stats;

    rsched_context_get_stats(self->context, &stats);
    return stats.gpu_messages;
}

/* All exchanges at the same time. */
static int overlap(struct rank *self, struct world *w, int epochs)
{
    for (int k = 0; k < epochs; k++, w->epoch++) {
        for (int i = 0; i < EXCHANGES; i++) {
            RANK_CHECK(start(self, w, i) == 0);
            RANK_CHECK(under_way(self) == (uint64_t)i + 1);
        }
        for (int i = 0; i < EXCHANGES; i++)
            RANK_CHECK(wait(self, w, i) == 0);
        RANK_CHECK(under_way(self) == 0);
    }
    return 0;
}

/* One after the other. */
static int take_turns(struct rank *self, struct world *w, int epochs)
{
    for (int k = 0; k < epochs; k++, w->epoch++) {
        for (int i = 0; i < EXCHANGES; i++) {
            RANK_CHECK(start(self, w, i) == 0);
            RANK_CHECK(wait(self, w, i) == 0);
        }
    }
    return 0;
}

/* The ways of the first exchange's messages since the last look. */
static int check_way(struct rank *self, struct world *w, enum rsched_way way,
                     int epochs)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(w->x[0], &stats);
    for (int k = 0; k < RSCHED_NUM_WAYS; k++) {
        RANK_CHECK(stats.way_bytes[k] - w->sent[k] ==
                   (k == (int)way ? (uint64_t)epochs * BYTES : 0));
        w->sent[k] = stats.way_bytes[k];
    }
    return 0;
}

static int check_stats(struct rank *self, struct world *w, int i,
                       uint64_t in_flight, uint64_t changes)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(w->x[i], &stats);
    RANK_CHECK(stats.gpu_messages == 1);
    RANK_CHECK(stats.gpu_in_flight == in_flight);
    RANK_CHECK(stats.way_changes == changes);
    return 0;
}

/* All exchanges of this rank. The first of them takes over what was counted. */
static int update(struct rank *self, struct world *w, uint32_t changes)
{
    for (int i = 0; i < EXCHANGES; i++) {
        uint32_t changed = 100;

        RANK_CHECK(rsched_exchange_update(w->x[i], &changed) == 0);
        RANK_CHECK(changed == changes);
    }
    return 0;
}

/* ---- cases ---- */

/* Rank 0 updates before rank 1 does, and has other ways for a while. */
static int case_modes(struct rank *self)
{
    bool first = self->rank == 0;
    struct rsched_context_stats stats;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(check_stats(self, &w, 0, 1, 0) == 0);
    RANK_CHECK(overlap(self, &w, 1) == 0);
    RANK_CHECK(update(self, &w, 0) == 0); /* too few starts to tell */
    RANK_CHECK(overlap(self, &w, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, 2) == 0);

    /* All of them at once. */
    if (first)
        RANK_CHECK(update(self, &w, 1) == 0);
    RANK_CHECK(overlap(self, &w, 2) == 0);
    RANK_CHECK(check_way(self, &w,
                         first ? RSCHED_WAY_STAGED : RSCHED_WAY_CUDA_IPC,
                         2) == 0);
    if (!first)
        RANK_CHECK(update(self, &w, 1) == 0);
    RANK_CHECK(check_stats(self, &w, EXCHANGES - 1, EXCHANGES, 1) == 0);
    rsched_context_get_stats(self->context, &stats);
    RANK_CHECK(stats.gpu_in_flight == EXCHANGES);
    RANK_CHECK(overlap(self, &w, 1) == 0);
    RANK_CHECK(update(self, &w, 0) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, 1) == 0);

    /* One at a time. Rank 1 has the others in its mean still, 8 starts of 24. */
    RANK_CHECK(take_turns(self, &w, 2) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, 2) == 0);
    RANK_CHECK(update(self, &w, first ? 1 : 0) == 0);
    RANK_CHECK(check_stats(self, &w, 0, first ? 1 : 3, first ? 2 : 1) == 0);
    RANK_CHECK(take_turns(self, &w, 2) == 0);
    RANK_CHECK(check_way(self, &w,
                         first ? RSCHED_WAY_CUDA_IPC : RSCHED_WAY_STAGED,
                         2) == 0);
    RANK_CHECK(update(self, &w, first ? 0 : 1) == 0);
    RANK_CHECK(check_stats(self, &w, 1, 1, 2) == 0);
    RANK_CHECK(take_turns(self, &w, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, 1) == 0);
    end(self, &w);
    return 0;
}

/* An update concerns its exchange; others that are bound, or made, later are for
 * the new number. */
static int case_later(struct rank *self)
{
    struct world w;
    const void *send;
    void *receive;
    uint32_t changed;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(overlap(self, &w, 2) == 0);
    RANK_CHECK(rsched_exchange_update(w.x[7], NULL) == 0);
    RANK_CHECK(check_stats(self, &w, 7, EXCHANGES, 1) == 0);
    RANK_CHECK(check_stats(self, &w, 0, 1, 0) == 0);
    RANK_CHECK(overlap(self, &w, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, 3) == 0);
    send = w.send[0].address;
    receive = w.receive[0].address;
    RANK_CHECK(rsched_exchange_bind(w.x[0], &send, &receive) == 0);
    RANK_CHECK(check_stats(self, &w, 0, EXCHANGES, 0) == 0);
    RANK_CHECK(overlap(self, &w, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, 1) == 0);
    rsched_exchange_destroy(w.x[0]);
    RANK_CHECK(create(self, &w, 0) == 0);
    RANK_CHECK(check_stats(self, &w, 0, EXCHANGES, 0) == 0);
    memset(w.sent, 0, sizeof(w.sent));
    RANK_CHECK(overlap(self, &w, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, 1) == 0);
    RANK_CHECK(rsched_exchange_update(w.x[0], &changed) == 0 && changed == 0);
    end(self, &w);
    return 0;
}

/* RSCHED_GPU_WAY has said it. */
static int case_fixed(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(overlap(self, &w, 2) == 0);
    RANK_CHECK(update(self, &w, 0) == 0);
    RANK_CHECK(check_stats(self, &w, 0, EXCHANGES, 0) == 0);
    RANK_CHECK(overlap(self, &w, 1) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_CUDA_IPC, 3) == 0);
    end(self, &w);
    return 0;
}

/* FAKE_CUDA_FAIL has the receiver's driver refuse handles: what one of them has
 * announced is staged, whatever would be cheaper. */
static int case_refused(struct rank *self)
{
    struct rsched_stats stats;
    uint32_t changed;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(overlap(self, &w, 2) == 0);
    for (int k = 0; k < 2; k++) {
        RANK_CHECK(rsched_exchange_update(w.x[0], &changed) == 0);
        RANK_CHECK(changed == 0);
        RANK_CHECK(take_turns(self, &w, 2) == 0);
    }
    RANK_CHECK(check_stats(self, &w, 0, 1, 0) == 0);
    RANK_CHECK(check_way(self, &w, RSCHED_WAY_STAGED, 6) == 0);
    rsched_exchange_get_stats(w.x[1], &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_STAGED] == 0);
    end(self, &w);
    return 0;
}

/* What may not be updated, and what there is nothing to update of. */
static int case_states(struct rank *self)
{
    const struct rsched_put put = {.bytes = 1,
                                   .source = self->rank,
                                   .destination = self->rank};
    char from = 7, to = 0;
    const void *send = &from;
    void *receive = &to;
    struct rsched_exchange_params params = {
        .send = &send, .receive = &receive, .tag = 100};
    struct rsched_pattern *pattern;
    struct rsched_exchange *host;
    struct rsched_stats stats;
    uint32_t changed = 100;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(start(self, &w, 0) == 0);
    RANK_CHECK(rsched_exchange_update(w.x[0], &changed) == RSCHED_ESTATE);
    RANK_CHECK(changed == 100);
    RANK_CHECK(strstr(rsched_last_error(), "while active") != NULL);
    RANK_CHECK(wait(self, &w, 0) == 0);
    RANK_CHECK(rsched_exchange_update(w.x[0], &changed) == 0 && changed == 0);

    RANK_CHECK(rsched_pattern_create("host", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &host) == 0);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(rsched_exchange_start(host) == 0);
    RANK_CHECK(under_way(self) == 0);
    RANK_CHECK(rsched_exchange_wait(host) == 0 && to == 7);
    RANK_CHECK(rsched_exchange_update(host, &changed) == 0 && changed == 0);
    rsched_exchange_get_stats(host, &stats);
    RANK_CHECK(stats.gpu_messages == 0 && stats.gpu_in_flight == 0);
    rsched_exchange_destroy(host);
    end(self, &w);
    return 0;
}

/* Epochs that do not come to a good end are not in flight any more: one that is
 * given up, and those of the neighbor. */
static int case_given_up(struct rank *self)
{
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(overlap(self, &w, 1) == 0);
    if (self->rank == 0) {
        RANK_CHECK(start(self, &w, 0) == 0 && start(self, &w, 1) == 0);
        RANK_CHECK(under_way(self) == 2);
        rsched_exchange_destroy(w.x[0]);
        rsched_exchange_destroy(w.x[1]);
        w.x[0] = w.x[1] = NULL;
        mesh_barrier(self->end);
    } else {
        /* A sender who waits for a receiver that has gone. */
        mesh_barrier(self->end);
        for (int i = 0; i < 2; i++) {
            uint32_t changed = 100;
            int error = rsched_exchange_start(w.x[i]);

            if (error == 0)
                error = rsched_exchange_wait(w.x[i]);
            RANK_CHECK(error == RSCHED_EPEER);
            RANK_CHECK(rsched_exchange_update(w.x[i], &changed) ==
                       RSCHED_EPEER);
            RANK_CHECK(changed == 100);
        }
    }
    RANK_CHECK(under_way(self) == 0);
    end(self, &w);
    return 0;
}

/* Epochs that a stream starts count like others. */
static int case_streams(struct rank *self)
{
    struct rsched_context_stats stats;
    CUstream stream;
    struct world w;

    RANK_CHECK(begin(self, &w) == 0);
    RANK_CHECK(w.p.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS);
    for (int k = 0; k < 16; k++) {
        RANK_CHECK(rsched_exchange_start_on(w.x[0], stream) == 0);
        RANK_CHECK(rsched_exchange_wait_on(w.x[0], stream) == 0);
    }
    RANK_CHECK(w.p.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    RANK_CHECK(rsched_exchange_wait(w.x[0]) == 0);
    RANK_CHECK(under_way(self) == 0);
    rsched_context_get_stats(self->context, &stats);
    RANK_CHECK(stats.gpu_in_flight == 0);
    RANK_CHECK(rsched_exchange_update(w.x[0], NULL) == 0);
    rsched_context_get_stats(self->context, &stats);
    RANK_CHECK(stats.gpu_in_flight == 1);
    RANK_CHECK(w.p.cuStreamDestroy(stream) == CUDA_SUCCESS);
    end(self, &w);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *main;
} cases[] = {
    {"modes", case_modes},       {"later", case_later},
    {"fixed", case_fixed},       {"refused", case_refused},
    {"states", case_states},     {"given-up", case_given_up},
    {"streams", case_streams},
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    threads = strcmp(argv[1], "threads") == 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[2], cases[i].name) == 0)
            return ranks_run(2, threads, cases[i].main, NULL) == 0 ? 0 : 1;
    }
    return 2;
}
