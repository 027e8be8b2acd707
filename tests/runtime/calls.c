/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of a running exchange: test of one peer, bind, load, statistics,
 * pause; what is not allowed; and that those who only test learn of a death. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { TAG = 900 };

/* Rank 0 sees each of its peers complete by itself. */
static int run_test_peer(struct rank *self)
{
    const struct halo_edge edges[] = {
        {0, 1, 8}, {1, 0, 8}, {0, 2, 8}, {2, 0, 300000}, {0, 0, 4}};
    struct rsched_pause pause = {0};
    struct halo *h;
    char byte = 0;
    bool done;

    RANK_CHECK(halo_create(self, edges, 5, 1, 0, &h) == 0);
    for (int epoch = 0; epoch < 5; epoch++) {
        int late = 1 + epoch % 2, early = 3 - late;

        if (self->rank == late)
            RANK_CHECK(mesh_receive(self->end, 0, TAG, &byte, 1) == 0);
        if (self->rank != 0) {
            RANK_CHECK(halo_step(h, epoch) == 0);
            continue;
        }
        RANK_CHECK(rsched_exchange_test_peer(h->x, 1, &done) == 0 && done);
        halo_fill(h, epoch);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK(rsched_exchange_test_peer(h->x, 0, &done) == 0 && done);
        do {
            rsched_context_pause(self->context, &pause);
            RANK_CHECK(rsched_exchange_test_peer(h->x, early, &done) == 0);
        } while (!done);
        RANK_CHECK(rsched_exchange_test_peer(h->x, late, &done) == 0 && !done);
        RANK_CHECK(rsched_exchange_test(h->x, &done) == 0 && !done);
        RANK_CHECK(mesh_send(self->end, late, TAG, &byte, 1) == 0);
        do {
            rsched_context_pause(self->context, &pause);
            RANK_CHECK(rsched_exchange_test_peer(h->x, late, &done) == 0);
        } while (!done);
        RANK_CHECK(rsched_exchange_is_active(h->x));
        RANK_CHECK(rsched_exchange_test(h->x, &done) == 0 && done);
        RANK_CHECK(!rsched_exchange_is_active(h->x));
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    halo_destroy(h);
    return 0;
}

/* Other addresses between epochs, also back and forth. */
static int run_bind(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 100}, {1, 0, 300000}, {0, 0, 64}};
    const void *const nowhere[2] = {NULL};
    void *const no_halos[2] = {NULL};
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 3, 1, 0, &h) == 0);
    RANK_CHECK(rsched_exchange_bind(h->x, nowhere, h->receive) == RSCHED_EINVAL);
    RANK_CHECK(strstr(rsched_last_error(), "buffer of put 0 is NULL") != NULL);
    RANK_CHECK(rsched_exchange_bind(h->x, (const void *const *)h->send,
                                    no_halos) == RSCHED_EINVAL);
    RANK_CHECK(rsched_exchange_bind(h->x, NULL, h->receive) == RSCHED_EINVAL);
    RANK_CHECK(rsched_exchange_bind(h->x, (const void *const *)h->send, NULL) ==
               RSCHED_EINVAL);
    for (int epoch = 0; epoch < 12; epoch++) {
        for (int i = 0; i < h->num_send && epoch % 2 == self->rank; i++) {
            free(h->send[i]);
            h->send[i] = malloc(edges[h->send_edges[i]].bytes + 1 +
                                (size_t)epoch);
        }
        for (int i = 0; i < h->num_receive && epoch % 3 == 0; i++) {
            free(h->receive[i]);
            h->receive[i] = malloc(edges[h->receive_edges[i]].bytes + 1 +
                                   (size_t)epoch);
        }
        RANK_CHECK(rsched_exchange_bind(h->x, (const void *const *)h->send,
                                        h->receive) == 0);
        halo_fill(h, epoch);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK(rsched_exchange_bind(h->x, (const void *const *)h->send,
                                        h->receive) == RSCHED_ESTATE);
        RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_ESTATE);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0); /* inactive: at once */
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    RANK_CHECK(rsched_exchange_load(h->x, h->pattern,
                                    (const void *const *)h->send,
                                    h->receive) == RSCHED_ESTATE);
    halo_destroy(h);
    return 0;
}

/* Where messages lie is written where others can read it. If there is no more room for
 * that they go another way. */
static int run_no_room(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 100000 | HALO_SHARED},
                                      {1, 0, 100000 | HALO_SHARED},
                                      {0, 1, 100000}, {1, 0, 100000}};
    struct rlimit limit;
    struct rsched_stats stats;
    struct halo *h;
    void *memory;

    RANK_CHECK(halo_create(self, edges, 4, 1, RSCHED_EXCHANGE_VARIABLE, &h) == 0);
    RANK_CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = 1;
    RANK_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    RANK_CHECK(rsched_alloc(1 << 20, &memory) == RSCHED_ENOMEM);
    RANK_CHECK(rsched_exchange_load(h->x, h->pattern, (const void *const *)h->send,
                                    h->receive) == 0);
    limit.rlim_cur = limit.rlim_max;
    RANK_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (int epoch = 0; epoch < 3; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    rsched_exchange_get_stats(h->x, &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_LANDING] == 600000);
    halo_destroy(h);
    return 0;
}

/* A variable exchange: not before a load, nor after one that failed. */
static int run_load(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 5000}, {1, 1, 8}};
    struct rsched_put put = {.bytes = 8,
                             .source = self->rank,
                             .destination = 1 - self->rank,
                             .memory = RSCHED_MEMORY_DEVICE};
    const void *const nowhere[2] = {NULL};
    struct rsched_pattern *empty, *device;
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 3, 1, RSCHED_EXCHANGE_VARIABLE,
                           &h) == 0);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_bind(h->x, (const void *const *)h->send,
                                    h->receive) == RSCHED_ESTATE);
    RANK_CHECK(rsched_pattern_create("empty", &empty) == 0);
    RANK_CHECK(rsched_exchange_load(h->x, empty, NULL, NULL) == RSCHED_EINVAL);
    RANK_CHECK(rsched_exchange_load(h->x, h->pattern, nowhere, h->receive) ==
               RSCHED_EINVAL);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_ESTATE);
    for (int epoch = 0; epoch < 3; epoch++) {
        RANK_CHECK(rsched_exchange_load(h->x, h->pattern,
                                        (const void *const *)h->send,
                                        h->receive) == 0);
        RANK_CHECK(halo_step(h, epoch) == 0);
        /* What was loaded before one that is refused does not move again. */
        if (epoch == 0)
            RANK_CHECK(rsched_exchange_load(h->x, empty, NULL, NULL) == RSCHED_EINVAL);
        else if (epoch == 1)
            RANK_CHECK(rsched_exchange_load(h->x, h->pattern, NULL, h->receive) ==
                       RSCHED_EINVAL);
        else
            RANK_CHECK(rsched_exchange_load(h->x, h->pattern,
                                            (const void *const *)h->send, NULL) ==
                       RSCHED_EINVAL);
        RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_ESTATE);
    }
    /* The first edge cannot be loaded: none may start. */
    RANK_CHECK(rsched_pattern_create("device", &device) == 0);
    RANK_CHECK(rsched_pattern_add_put(device, &put) >= 0);
    put.destination = 1;
    if (self->rank == 1)
        RANK_CHECK(rsched_pattern_add_put(device, &put) >= 0);
    put = (struct rsched_put){.bytes = 8, .source = 1 - self->rank,
                              .destination = self->rank};
    RANK_CHECK(rsched_pattern_add_receive(device, &put) >= 0);
    put.source = 1;
    if (self->rank == 1)
        RANK_CHECK(rsched_pattern_add_receive(device, &put) >= 0);
    RANK_CHECK(rsched_exchange_load(h->x, device,
                                    (const void *const *)h->send,
                                    h->receive) == RSCHED_ENOTSUP);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_ESTATE);
    RANK_CHECK(rsched_exchange_load(h->x, h->pattern,
                                    (const void *const *)h->send,
                                    h->receive) == 0);
    RANK_CHECK(halo_step(h, 7) == 0);
    rsched_pattern_destroy(device);
    rsched_pattern_destroy(empty);
    halo_destroy(h);
    return 0;
}

static int run_stats(struct rank *self)
{
    const struct halo_edge edges[] = {
        {0, 1, 8}, {0, 1, 100}, {1, 0, 200}, {0, 0, 50}, {1, 0, 0}};
    struct rsched_context_stats all;
    struct rsched_stats s;
    struct halo *h;
    bool first = self->rank == 0;

    RANK_CHECK(halo_create(self, edges, 5, 1, 0, &h) == 0);
    for (int epoch = 0; epoch < 4; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    rsched_exchange_get_stats(h->x, &s);
    RANK_CHECK(s.epochs == 4 && s.edges_out == (first ? 2 : 1) &&
               s.edges_in == (first ? 2 : 1) && s.edges_self == (first ? 1 : 0));
    RANK_CHECK(s.puts == (first ? 12 : 8) && s.bytes == (first ? 632 : 800) &&
               s.self_bytes == (first ? 200 : 0));
    RANK_CHECK(s.chunks_out == 4 && s.chunks_in == 4 && s.deferred == 0);
    rsched_context_get_stats(self->context, &all);
    RANK_CHECK(all.connections == 1 && all.shared_bytes > 0);
    halo_destroy(h);
    return 0;
}

/* Statistics are read while the progress thread counts. */
static int run_stats_while_active(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 4 << 20}, {1, 0, 4 << 20}};
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
    for (int epoch = 0; epoch < 5; epoch++) {
        struct rsched_pause pause = {0};
        struct rsched_stats s = {0};

        halo_fill(h, epoch);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        /* Nothing but looking: it goes on all the same. */
        for (uint64_t old = 0; s.chunks_in + s.chunks_out != old || old == 0;) {
            old = s.chunks_in + s.chunks_out;
            for (int i = 0; i < 4; i++)
                rsched_context_pause(self->context, &pause);
            rsched_exchange_get_stats(h->x, &s);
            rsched_context_progress(self->context);
        }
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    halo_destroy(h);
    return 0;
}

/* Destroyed while active, on both sides or with the other one waiting, which is
 * only done if all had come first (the data of the epoch before). */
static int run_give_up(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 2 << 20}, {1, 0, 2 << 20}};
    int error, told = 0;
    struct halo *h;

    for (int round = 0; round < 20; round++) {
        RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
        RANK_CHECK(halo_step(h, 0) == 0);
        if (round % 3 == 2 || self->rank == round % 3) {
            RANK_CHECK(rsched_exchange_start(h->x) == 0);
        } else {
            halo_fill(h, 1);
            error = rsched_exchange_start(h->x);
            if (error == 0)
                error = rsched_exchange_wait(h->x);
            RANK_CHECK(error == 0 ||
                       (error == RSCHED_EPEER &&
                        strstr(rsched_last_error(), "given up") != NULL));
            told += error != 0;
            if (error != 0) /* and stays so, whatever is bound to it */
                RANK_CHECK(halo_rebind(h) == error);
        }
        halo_destroy(h);
    }
    RANK_CHECK(told > 0);
    mesh_barrier(self->end); /* who has gone is dead, not just fed up */
    return 0;
}

/* Rank 1 dies; rank 0 does nothing but test, with and without pauses. */
static int run_death(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    struct halo *h[3];
    int error;

    for (int i = 0; i < 3; i++)
        RANK_CHECK(halo_create(self, edges, 2, (uint64_t)i, 0, &h[i]) == 0);
    mesh_barrier(self->end);
    if (self->rank == 1)
        raise(SIGKILL);
    for (int i = 0; i < 3; i++) {
        struct rsched_pause pause = {0};
        bool done = false;

        error = rsched_exchange_start(h[i]->x);
        while (error == 0 && !done) {
            error = i == 2 ? rsched_exchange_test_peer(h[i]->x, 1, &done)
                           : rsched_exchange_test(h[i]->x, &done);
            if (i == 1)
                rsched_context_pause(self->context, &pause);
        }
        RANK_CHECK(error == RSCHED_EPEER && !rsched_exchange_is_active(h[i]->x));
        RANK_CHECK(strstr(rsched_last_error(), ranks_share_node(0, 1)
                                               ? "peer 1 (pid "
                                               : "to peer 1: ") != NULL);
        halo_destroy(h[i]);
    }
    return 0;
}

static const struct {
    const char *name;
    rank_fn *run;
    int num_ranks;
    bool alone; /* not in one process with another rank */
    bool deadly;
} cases[] = {
    {"test-peer", run_test_peer, 3, false, false},
    {"bind", run_bind, 2, false, false},
    {"load", run_load, 2, false, false},
    {"no-room", run_no_room, 2, true, false},
    {"stats", run_stats, 2, false, false},
    {"stats-while-active", run_stats_while_active, 2, false, false},
    {"give-up", run_give_up, 2, false, false},
    {"death", run_death, 2, true, true},
};

int main(int argc, char **argv)
{
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;

    alarm(RANKS_HANG_SECONDS);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int result;

        if ((argc > 2 && strcmp(argv[2], cases[i].name) != 0) ||
            (threads && cases[i].alone))
            continue;
        result = ranks_run(cases[i].num_ranks, threads, cases[i].run, NULL);
        if (result != (cases[i].deadly ? RANKS_KILLED : 0)) {
            fprintf(stderr, "FAILED: %s\n", cases[i].name);
            return 1;
        }
        printf("PASS %s\n", cases[i].name);
    }
    return 0;
}
