/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several rails in a connection and several engines in a context, made from
 * the loopback engine:
 *
 *     runtime_rails threads|processes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/run/run.h"
#include "tests/runtime/halo.h"

enum { RAILS = 3, RANKS = 3, EPOCHS = 20, PUTS = 7 };

static struct rsched_engine_ops railed_ops, refusing_ops, second_ops;

static uint32_t three_rails(const struct rsched_connection *connection)
{
    (void)connection;
    return RAILS;
}

static int refuse(struct rsched_engine *engine, int peer,
                  const unsigned char *address,
                  struct rsched_connection **connection)
{
    (void)engine;
    (void)address;
    (void)connection;
    return rs_fail(RSCHED_EUNREACH, "peer %d is not for this engine", peer);
}

static void make_engines(void)
{
    railed_ops = refusing_ops = second_ops = *rsched_engine_at(0);
    railed_ops.rails = three_rails;
    refusing_ops.connect = refuse;
    second_ops.name = "second";
}

/* A second instance in the place of the engine that is tried next. */
static int open_second(struct rsched_context *context)
{
    struct rs_engine *e = &context->engines[1];
    struct rsched_engine_env env = {.process = context->params.process,
                                    .job = context->params.job,
                                    .chunk_bytes = rs_config()->chunk_bytes,
                                    .ring_bytes = 524288,
                                    .ways = &context->ways};

    if (e->ops != NULL)
        e->ops->close(e->engine);
    e->ops = &second_ops;
    return e->ops->open(&env, &e->engine);
}

/* PUTS from each rank to each other one, of different lengths. */
static int make_edges(struct halo_edge *edges)
{
    int n = 0;

    for (int from = 0; from < RANKS; from++) {
        for (int to = 0; to < RANKS; to++) {
            for (int i = 0; i < PUTS && to != from; i++)
                edges[n++] = (struct halo_edge){from, to, 1u + 3000u * i};
        }
    }
    return n;
}

static int run_epochs(struct rank *self, struct halo *h)
{
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    return 0;
}

/* Without a schedule of its own an exchange is planned; whatever the plan is,
 * no rail has a put of another one and none is missing. */
static int check_rails(struct rank *self, const struct rsched_exchange *x)
{
    uint32_t puts = 0, rails[RANKS] = {0};

    RANK_CHECK(x->num_out == (RANKS - 1) * RAILS);
    for (uint32_t i = 0; i < x->num_out; i++) {
        const struct rs_edge *e = &x->out[i];

        RANK_CHECK(e->rail < RAILS);
        RANK_CHECK((rails[e->peer->process] & 1u << e->rail) == 0);
        rails[e->peer->process] |= 1u << e->rail;
        puts += e->num_order;
        RANK_CHECK(e->lane->stats.bytes[RSCHED_WAY_LANDING] > 0);
    }
    RANK_CHECK(puts == (RANKS - 1) * PUTS);
    RANK_CHECK(x->num_in == x->num_out);
    return 0;
}

static int run_rails(struct rank *self)
{
    struct halo_edge edges[RANKS * RANKS * PUTS];
    int n = make_edges(edges);
    struct halo *h;

    self->context->engines[0].ops = &railed_ops;
    RANK_CHECK(halo_create(self, edges, n, 1, 0, &h) == 0);
    RANK_CHECK(run_epochs(self, h) == 0);
    RANK_CHECK(check_rails(self, h->x) == 0);
    halo_destroy(h);
    return 0;
}

static const char three_engines[] = "rsched: machine/1\n"
                                    "name: three\n"
                                    "engines: {count: 3, rate: 1 GB/s}\n"
                                    "routes: {\"*\": []}\n";

static struct rsched_pattern *pattern_of(int process, const uint64_t *bytes)
{
    struct rsched_pattern *pattern;
    int peer = 1 - process;

    if (rsched_pattern_create("rails", &pattern) != 0)
        return NULL;
    for (int i = 0; i < PUTS; i++) {
        struct rsched_put put = {.bytes = bytes[i],
                                 .source = process,
                                 .destination = peer};
        struct rsched_put receive = {.bytes = bytes[i],
                                     .source = peer,
                                     .destination = process};

        if (rsched_pattern_add_put(pattern, &put) < 0 ||
            rsched_pattern_add_receive(pattern, &receive) < 0)
            return NULL;
    }
    return pattern;
}

/* A schedule's engines are the rails, its order theirs, and the k-th put still
 * meets the k-th receive. */
static int run_schedule(struct rank *self)
{
    static const uint64_t bytes[PUTS] = {8, 800, 80, 8000, 1, 64, 70000};
    static const uint32_t engine[PUTS] = {2, 0, 2, 1, 0, 2, 1};
    static const uint32_t position[PUTS] = {2, 1, 0, 1, 0, 1, 0};
    static const uint32_t rail_of_edge[RAILS][3] = {
        {4, 1}, {6, 3}, {2, 5, 0}};
    static char from[PUTS][70000], to[PUTS][70000];
    struct rsched_pattern *pattern;
    struct rsched_machine *machine;
    struct rsched_schedule *schedule;
    const void *send[PUTS];
    void *receive[PUTS];
    struct rsched_exchange *x;

    if (self->rank > 1)
        return 0;
    self->context->engines[0].ops = &railed_ops;
    pattern = pattern_of(self->rank, bytes);
    RANK_CHECK(pattern != NULL);
    RANK_CHECK(rsched_machine_parse("three", three_engines,
                                    strlen(three_engines), &machine) == 0);
    RANK_CHECK(rsched_schedule_create_queues(pattern, machine, "mine", engine,
                                             position, &schedule) == 0);
    for (int i = 0; i < PUTS; i++) {
        send[i] = from[i];
        receive[i] = to[i];
    }
    RANK_CHECK(rsched_exchange_create(
                   self->context,
                   &(struct rsched_exchange_params){.pattern = pattern,
                                                    .schedule = schedule,
                                                    .send = send,
                                                    .receive = receive,
                                                    .tag = 2},
                   &x) == 0);
    RANK_CHECK(x->num_out == RAILS && x->num_in == RAILS);
    for (uint32_t e = 0; e < RAILS; e++) {
        const struct rs_edge *out = &x->out[e], *in = &x->in[e];

        RANK_CHECK(in->rail == out->rail && in->num_order == out->num_order);
        for (uint32_t i = 0; i < out->num_order; i++) {
            RANK_CHECK(out->order[i] == rail_of_edge[out->rail][i]);
            RANK_CHECK(in->order[i] == out->order[i]);
        }
    }
    rsched_exchange_destroy(x);
    rsched_schedule_destroy(schedule);
    rsched_machine_destroy(machine);
    rsched_pattern_destroy(pattern);
    return 0;
}

/* The first engine reaches nobody from rank 0: all that rank 0 has to do with
 * goes by the second one, the others stay with the first. */
static int run_engines(struct rank *self)
{
    struct halo_edge edges[RANKS * RANKS * PUTS];
    uint64_t bytes[2] = {0};
    struct rsched_stats stats;
    struct halo *h;
    int n = make_edges(edges);

    if (self->rank == 0)
        self->context->engines[0].ops = &refusing_ops;
    RANK_CHECK(open_second(self->context) == 0);
    for (int tag = 10; tag < 12; tag++) { /* connections are kept */
        RANK_CHECK(halo_create(self, edges, n, (uint64_t)tag, 0, &h) == 0);
        RANK_CHECK(run_epochs(self, h) == 0);
        rsched_exchange_get_stats(h->x, &stats);
        bytes[0] = bytes[1] = 0;
        for (int i = 0; i < n; i++) {
            if (edges[i].from == self->rank)
                bytes[self->rank == 0 || edges[i].to == 0] +=
                    EPOCHS * edges[i].bytes;
        }
        RANK_CHECK(stats.engine_bytes[0] == bytes[0]);
        RANK_CHECK(stats.engine_bytes[1] == bytes[1] && bytes[1] > 0);
        RANK_CHECK(stats.way_bytes[RSCHED_WAY_LANDING] ==
                   bytes[0] + bytes[1]);
        halo_destroy(h);
    }
    mesh_barrier(self->end); /* the engines of all live till here */
    return 0;
}

/* Nobody reaches rank 0: its neighbors are told by name and reason. */
static int run_unreachable(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    struct halo *h;

    if (self->rank > 1)
        return 0;
    if (self->rank == 0)
        self->context->engines[0].ops = &refusing_ops;
    RANK_CHECK(halo_create(self, edges, 2, 20, 0, &h) == RSCHED_EUNREACH);
    RANK_CHECK(strstr(rsched_last_error(), "is not for this engine") != NULL);
    mesh_barrier(self->end);
    return 0;
}

/* Processes that pretend to be on nodes of their own share no memory. */
static int run_nodes(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 2, 30, 0, &h) == RSCHED_EUNREACH);
    RANK_CHECK(strstr(rsched_last_error(), "another node") != NULL);
    mesh_barrier(self->end);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        rank_fn *run;
        int ranks;
    } cases[] = {
        {"rails", run_rails, RANKS},
        {"schedule", run_schedule, 2},
        {"engines", run_engines, RANKS},
        {"unreachable", run_unreachable, 2},
    };
    static const char *const nodes[2] = {"RSCHED_NODE=even", "RSCHED_NODE=odd"};
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    int failed = 0;

    setenv("RSCHED_TRIALS", "no", 1); /* bytes go by the costs */
    make_engines();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (ranks_run(cases[i].ranks, threads, cases[i].run, NULL) != 0) {
            printf("FAILED: %s\n", cases[i].name);
            failed = 1;
        }
    }
    if (!threads &&
        ranks_run_with(2, false, run_nodes, NULL, nodes) != 0) {
        printf("FAILED: nodes\n");
        failed = 1;
    }
    return failed;
}
