/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making exchanges: what can go wrong, and what may overlap. Run as
 * `create threads` or `create processes`. Whatever goes wrong, both sides get
 * an error that says what it was, at once, and the contexts stay usable.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

/* ---- two ranks that disagree ---- */

/* What rank 1 does differently, and what both get. */
struct quarrel {
    const char *name;
    struct halo_edge edges[2][3]; /* of rank 0 and of rank 1 */
    int num_edges[2];
    unsigned flags;       /* of rank 1 */
    uint64_t job;         /* added to rank 1's */
    size_t offset;        /* of what is changed in rank 1's hello */
    unsigned char change; /* exclusive or; two foreign processes are so to
                             each other, then it is in both hellos */
    int errors[2];
    const char *texts[2];
};

/* Offsets in the hello message; see talk.h. */
enum { AT_MAGIC = 0, AT_ORDER = 4, AT_VERSION = 6, AT_PAGE = 8, AT_TAG = 32 };

#define BOTH(error) {RSCHED_##error, RSCHED_##error}
#define EDGES {{{0, 1, 8}, {1, 0, 8}}, {{0, 1, 8}, {1, 0, 8}}}, {2, 2}

static const struct quarrel quarrels[] = {
    {"more puts than receives", {{{0, 1, 8}, {0, 1, 8}}, {{0, 1, 8}}}, {2, 1},
     0, 0, 0, 0, BOTH(EMISMATCH), {"expects 1 puts, this one has 2", "has 2"}},
    {"more receives than puts", {{{0, 1, 8}}, {{0, 1, 8}, {0, 1, 8}}}, {1, 2},
     0, 0, 0, 0, BOTH(EMISMATCH), {"expects 2 puts, this one has 1", "has 1"}},
    {"too long", {{{0, 1, 9}}, {{0, 1, 8}}}, {1, 1},
     0, 0, 0, 0, BOTH(ETRUNC), {"has 9 bytes", "expects 8"}},
    {"too short", {{{0, 1, 8}}, {{0, 1, 9}}}, {1, 1},
     0, 0, 0, 0, BOTH(EMISMATCH), {"has 8 bytes", "expects 9"}},
    {"other split", {{{0, 1, 8}, {0, 1, 16}}, {{0, 1, 16}, {0, 1, 8}}}, {2, 2},
     0, 0, 0, 0, BOTH(ETRUNC), {"put 1 of process 0", "put 1 of process 0"}},
    {"flags", EDGES, RSCHED_EXCHANGE_VARIABLE, 0, 0, 0, BOTH(EMISMATCH),
     {"process 1 has the flag RSCHED_EXCHANGE_VARIABLE, this one has not",
      "process 0 has no flag RSCHED_EXCHANGE_VARIABLE, this one has"}},
    {"compared", EDGES, RSCHED_EXCHANGE_COMPARED, 0, 0, 0, BOTH(EMISMATCH),
     {"process 1 has the flag RSCHED_EXCHANGE_COMPARED, this one has not",
      "process 0 has no flag RSCHED_EXCHANGE_COMPARED, this one has"}},
    {"unknown flags", EDGES, 1u << 31, 0, 0, 0, BOTH(EINVAL),
     {"process 1 says: making exchange 5: unknown flags", "unknown flags"}},
    {"job", EDGES, 0, 1, 0, 0, BOTH(EMISMATCH), {"another job", "another job"}},
    {"magic", EDGES, 0, 0, AT_MAGIC, 1, BOTH(EMISMATCH),
     {"does not run rsched", "does not run rsched"}},
    {"byte order", EDGES, 0, 0, AT_ORDER, 3, BOTH(EMISMATCH),
     {"another byte order", "another byte order"}},
    {"version", EDGES, 0, 0, AT_VERSION, 1, BOTH(EMISMATCH),
     {"speaks protocol", "speaks protocol"}},
    {"page size", EDGES, 0, 0, AT_PAGE + 1, 0x50, BOTH(EMISMATCH),
     {"has pages of 16384 bytes", "pages of 16384 bytes"}},
    {"tag", EDGES, 0, 0, AT_TAG, 1, BOTH(EMISMATCH),
     {"its tag is 4, here it is 5", "its tag is 4, here it is 5"}},
};

enum { NUM_QUARRELS = sizeof(quarrels) / sizeof(quarrels[0]) };

struct doctor {
    const struct quarrel *q;
    bool done;
};

static void spoil_hello(void *arg, int peer, char *data, size_t length)
{
    struct doctor *d = arg;

    (void)peer;
    if (!d->done && d->q->change != 0 && length > d->q->offset)
        data[d->q->offset] ^= (char)d->q->change;
    d->done = true;
}

static int quarrel(struct rank *self, const struct quarrel *q)
{
    const struct halo_edge good[2] = {{0, 1, 100}, {1, 0, 100}};
    struct doctor doctor = {.q = q};
    struct halo *h;
    int error;

    if (self->rank == 1 || q->offset < AT_PAGE)
        mesh_end_set_doctor(self->end, spoil_hello, &doctor);
    if (self->rank == 1 && q->job != 0)
        self->job_offset = q->job;
    RANK_CHECK(rank_open(self) == 0);
    error = halo_create(self, q->edges[self->rank], q->num_edges[self->rank], 5,
                        self->rank == 1 ? q->flags : 0, &h);
    mesh_end_set_doctor(self->end, NULL, NULL);
    if (error != q->errors[self->rank] ||
        strstr(rsched_last_error(), q->texts[self->rank]) == NULL)
        return RANK_FAIL("%s: rank %d: %s (%s)", q->name, self->rank,
                         rsched_error_name(error), rsched_last_error());
    mesh_barrier(self->end);
    if (q->job == 0) {
        RANK_CHECK(halo_create(self, good, 2, 6, 0, &h) == 0);
        for (int epoch = 0; epoch < 3; epoch++)
            RANK_CHECK(halo_step(h, epoch) == 0);
        halo_destroy(h);
    }
    self->job_offset = 0;
    rank_close(self);
    mesh_forget(self->end);
    mesh_barrier(self->end);
    return 0;
}

static int run_quarrels(struct rank *self)
{
    rank_close(self);
    for (int i = 0; i < NUM_QUARRELS; i++) {
        if (quarrel(self, &quarrels[i]) != 0)
            return 1;
    }
    return 0;
}

/* ---- one edge of many ---- */

/* Ranks 0 and 1 disagree; 2 is a neighbor of 1, 3 one of 2. All of them fail:
 * nobody may wait for an exchange that somebody else does not have. */
static int run_chain_reaction(struct rank *self)
{
    struct halo_edge edges[] = {{0, 1, 8}, {1, 2, 8}, {2, 1, 8}, {2, 3, 8}};
    const struct halo_edge good[] = {{0, 1, 8}, {1, 2, 8}, {2, 3, 8}, {3, 0, 8}};
    struct halo *h;
    int error;

    edges[0].bytes += self->rank == 0;
    error = halo_create(self, edges, 4, 1, 0, &h);
    if (error == 0) /* only too far away to know: it must not wait for ever */
        RANK_CHECK(self->rank == 3 && halo_step(h, 0) == RSCHED_EPEER &&
                   (halo_destroy(h), true));
    else
        RANK_CHECK(error == RSCHED_ETRUNC);
    RANK_CHECK(halo_create(self, good, 4, 2, 0, &h) == 0);
    RANK_CHECK(halo_step(h, 0) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

/* None is needed for nothing, and where offsets count from address 0.
 * @param wrong whether the first one has none for 8 bytes */
static int make_without_buffers(struct rank *self, bool wrong)
{
    static char here[8];
    const struct rsched_run run = {(int64_t)(intptr_t)here, 8, 1, 0};
    struct rsched_put put = {.source = RSCHED_ANY_PROCESS,
                             .destination = 1 - self->rank};
    struct rsched_exchange_params params = {
        .tag = 7, .send = (const void *[3]){NULL}, .receive = (void *[3]){NULL}};
    struct rsched_pattern *pattern;
    struct rsched_exchange *x = NULL;
    int error;

    rsched_pattern_create("nowhere", &pattern);
    for (int i = 0; i < 3; i++) {
        put.bytes = i == 1 ? 0 : 8;
        put.layout = (struct rsched_layout){&run, i != 1 && !(i == 0 && wrong)};
        rsched_pattern_add_put(pattern, &put);
        put.layout = (struct rsched_layout){&run, i != 1};
        rsched_pattern_add_receive(
            pattern, &(struct rsched_put){.bytes = put.bytes,
                                          .source = 1 - self->rank,
                                          .destination = RSCHED_ANY_PROCESS,
                                          .layout = put.layout});
    }
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &x);
    rsched_exchange_destroy(x);
    rsched_pattern_destroy(pattern);
    return error;
}

/* A process that is wrong about itself, or that comes too late. */
static int run_own_mistake(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    const struct halo_edge nobody[] = {{0, 99, 8}, {0, 1, 8}, {1, 0, 8}, {99, 1, 8}};
    struct rsched_pattern *pattern;
    struct rsched_exchange_params params = {.tag = 4};
    struct rsched_exchange *x;
    struct rsched_put put = {.bytes = 8, .source = self->rank};
    char buffer[8];
    const void *send[2] = {buffer, buffer};
    void *receive[2] = {buffer, buffer};
    struct halo *h;
    int error;

    RANK_CHECK(rsched_pattern_create("own", &pattern) == 0);
    put.destination = 1 - self->rank;
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.destination = self->rank; /* rank 1 expects nothing from itself */
    if (self->rank == 1)
        RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put = (struct rsched_put){.bytes = 8, .source = 1 - self->rank,
                              .destination = self->rank};
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    params.send = send;
    params.receive = receive;
    error = rsched_exchange_create(self->context, &params, &x);
    RANK_CHECK(error == RSCHED_EMISMATCH);
    RANK_CHECK(strstr(rsched_last_error(), "to the process itself") != NULL);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(make_without_buffers(self, false) == 0);
    RANK_CHECK(make_without_buffers(self, self->rank == 1) == RSCHED_EINVAL);
    RANK_CHECK(strstr(rsched_last_error(), "buffer of put 0 is NULL") != NULL);
    /* Without a pattern nobody is asked. */
    params.pattern = NULL;
    RANK_CHECK(rsched_exchange_create(self->context, &params, &x) ==
               RSCHED_EINVAL);
    /* A pattern that names a process that does not exist: both are told, and then the
     * same tag is good. */
    RANK_CHECK(halo_create(self, nobody, 3, 3, 0, &h) == RSCHED_EINVAL);
    RANK_CHECK(strstr(rsched_last_error(), self->rank == 0
                          ? "making exchange 3: put 0 goes from process 0 to 99 (this is 0"
                          : "process 0 says: making exchange 3: put 0 goes from") != NULL);
    RANK_CHECK(halo_create(self, nobody + 1, 3, 3, 0, &h) == RSCHED_EINVAL);
    RANK_CHECK(strstr(rsched_last_error(), self->rank == 1
                          ? "making exchange 3: receive 1 goes from process 99 to 1 (this is 1"
                          : "process 1 says: making exchange 3: receive 1 goes") != NULL);
    RANK_CHECK(halo_create(self, edges, 2, 3, 0, &h) == 0);
    RANK_CHECK(halo_step(h, 0) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    RANK_CHECK(halo_create(self, edges, 2, 2, 0, &h) == 0);
    RANK_CHECK(halo_step(h, 0) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

/* ---- sizes ---- */

struct sizes {
    uint64_t puts[2], receives[2];
};

/* Two puts to a process, and two receives from there. */
static struct rsched_pattern *make_pattern(const struct rank *self, int peer,
                                           const struct sizes *s)
{
    struct rsched_pattern *pattern;

    if (rsched_pattern_create("sizes", &pattern) != 0)
        return NULL;
    for (int i = 0; i < 2; i++) {
        struct rsched_put put = {
            .bytes = s->puts[i], .source = self->rank, .destination = peer};

        rsched_pattern_add_put(pattern, &put);
        put = (struct rsched_put){
            .bytes = s->receives[i], .source = peer, .destination = self->rank};
        rsched_pattern_add_receive(pattern, &put);
    }
    return pattern;
}

static char sent[2][64], received[2][64];
static const void *const sends[2] = {sent[0], sent[1]};
static void *const receives[2] = {received[0], received[1]};

static int make_sized(struct rank *self, int peer, unsigned flags, const struct sizes *s,
                      struct rsched_exchange **x)
{
    struct rsched_pattern *pattern = make_pattern(self, peer, s);
    struct rsched_exchange_params params = {.pattern = pattern, .send = sends,
                                            .receive = receives, .tag = 9, .flags = flags};
    int error = rsched_exchange_create(self->context, &params, x);

    rsched_pattern_destroy(pattern);
    return error;
}

/* The first sizes of a variable exchange, where they are to be compared. */
static int run_compared(struct rank *self)
{
    const unsigned compared = RSCHED_EXCHANGE_VARIABLE | RSCHED_EXCHANGE_COMPARED;
    const struct sizes good = {{8, 16}, {8, 16}}, fewer = {{8, 15}, {8, 16}},
                       more = {{8, 17}, {8, 16}};
    const struct {
        const struct sizes *of_rank_0;
        unsigned flags;
        int error;
    } cases[] = {
        {&good, compared, 0},
        {&fewer, compared, RSCHED_EMISMATCH},
        {&more, compared, RSCHED_ETRUNC},
        {&more, RSCHED_EXCHANGE_VARIABLE, 0},
        {&more, 0, RSCHED_ETRUNC},
    };
    struct rsched_exchange *x;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int error = make_sized(self, 1 - self->rank, cases[i].flags,
                               self->rank == 0 ? cases[i].of_rank_0 : &good, &x);

        if (error != cases[i].error)
            return RANK_FAIL("case %zu: %d: %s", i, error, rsched_last_error());
        mesh_barrier(self->end);
        if (error == 0)
            rsched_exchange_destroy(x);
    }
    return 0;
}

static int load_sized(struct rank *self, struct rsched_exchange *x, const struct sizes *s)
{
    struct rsched_pattern *pattern = make_pattern(self, self->rank, s);
    int error = rsched_exchange_load(x, pattern, sends, receives);

    rsched_pattern_destroy(pattern);
    return error;
}

/* Puts of a process to itself are compared one by one, too. */
static int run_own_sizes(struct rank *self)
{
    const struct sizes good = {{8, 16}, {8, 16}}, more = {{16, 8}, {8, 16}},
                       fewer = {{8, 16}, {16, 8}};
    struct rsched_exchange *x;

    RANK_CHECK(make_sized(self, self->rank, 0, &more, &x) == RSCHED_ETRUNC);
    RANK_CHECK(strstr(rsched_last_error(), "making exchange 9: put 0 of process") != NULL);
    RANK_CHECK(make_sized(self, self->rank, 0, &fewer, &x) == RSCHED_EMISMATCH);
    RANK_CHECK(make_sized(self, self->rank, RSCHED_EXCHANGE_VARIABLE, &more, &x) == 0);
    RANK_CHECK(load_sized(self, x, &more) == RSCHED_ETRUNC);
    RANK_CHECK(load_sized(self, x, &fewer) == RSCHED_EMISMATCH);
    RANK_CHECK(rsched_exchange_start(x) == RSCHED_ESTATE);
    RANK_CHECK(load_sized(self, x, &good) == 0);
    memset(sent[1], 7, sizeof(sent[1]));
    RANK_CHECK(rsched_exchange_start(x) == 0 && rsched_exchange_wait(x) == 0);
    RANK_CHECK(received[1][15] == 7 && received[1][16] == 0);
    rsched_exchange_destroy(x);
    return 0;
}

/* @return what is wrong in a child, or NULL */
static const char *be_child(struct rank *self, const struct rsched_exchange_params *params)
{
    struct rsched_context_params alone = {.num_processes = 1};
    struct rsched_context *context;
    struct rsched_exchange *x;

    if (rsched_exchange_create(self->context, params, &x) != RSCHED_ESTATE ||
        strstr(rsched_last_error(), "before a fork") == NULL)
        return "another one's context is accepted";
#ifndef __SANITIZE_THREAD__ /* allows no threads there */
    if (rsched_context_create(&alone, &context) != 0 ||
        rsched_exchange_create(context, params, &x) != 0 ||
        rsched_exchange_start(x) != 0 || rsched_exchange_wait(x) != 0)
        return rsched_last_error();
    rsched_exchange_destroy(x);
    rsched_context_destroy(context);
#endif
    return NULL;
}

/* A child has no part in its parent's context, but may have one of its own. */
static int run_child(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 300000}};
    struct rsched_put put = {.bytes = 8, .source = RSCHED_ANY_PROCESS};
    char from[8] = "halo", to[8] = "";
    struct rsched_pattern *pattern;
    struct halo *h;
    pid_t child;
    int status;

    RANK_CHECK(rsched_pattern_create("own", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) == 0);
    put = (struct rsched_put){.bytes = 8, .destination = RSCHED_ANY_PROCESS};
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) == 0);
    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
    child = fork();
    if (child == 0) {
        const char *wrong = be_child(
            self, &(struct rsched_exchange_params){
                      .pattern = pattern, .send = (const void *[]){from},
                      .receive = (void *[]){to}});

        if (wrong != NULL)
            fprintf(stderr, "child: %s\n", wrong);
        _exit(wrong != NULL);
    }
    for (int epoch = 0; epoch < 5; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    RANK_CHECK(waitpid(child, &status, 0) == child && status == 0);
    RANK_CHECK(halo_step(h, 5) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    rsched_pattern_destroy(pattern);
    return 0;
}

/* Contexts go and come again on one side: other memory, other numbers. */
static int run_return(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 300000}};

    for (int round = 0; round < 6; round++) {
        struct halo *h;

        RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
        for (int epoch = 0; epoch < 5; epoch++)
            RANK_CHECK(halo_step(h, epoch) == 0);
        halo_destroy(h);
        if (self->rank == round % 2) {
            rank_close(self);
            RANK_CHECK(rank_open(self) == 0);
        }
    }
    return 0;
}

/* ---- shapes ---- */

static int run_shape(struct rank *self, const struct halo_edge *edges, int n)
{
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, n, 1, 0, &h) == 0);
    for (int epoch = 0; epoch < 10; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    halo_destroy(h);
    return 0;
}

/* A chain, a star, a ring in one direction, and nothing at all. */
static int run_shapes(struct rank *self)
{
    struct halo_edge edges[64] = {{0}};
    int last = self->num_ranks - 1, n = 0;

    for (int i = 0; i < last; i++) {
        edges[n++] = (struct halo_edge){i, i + 1, 1u << i};
        edges[n++] = (struct halo_edge){i + 1, i, 40000};
    }
    if (run_shape(self, edges, n) != 0)
        return 1;
    n = 0;
    for (int i = 1; i <= last; i++)
        edges[n++] = (struct halo_edge){i, 0, (uint64_t)i * 5000};
    if (run_shape(self, edges, n) != 0)
        return 1;
    n = 0;
    for (int i = 0; i <= last; i++)
        edges[n++] = (struct halo_edge){i, (i + 1) % (last + 1), 8};
    if (run_shape(self, edges, n) != 0)
        return 1;
    return run_shape(self, edges, 0);
}

/* ---- several creations at once in one context ---- */

enum { MAKERS = 4, ROUNDS = 10 };

struct maker {
    struct rank *self;
    int number;
    int result;
};

static int make_some(struct maker *maker)
{
    struct rank *self = maker->self;
    struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 5000}, {1, 2, 70000},
                                {2, 0, 8}, {0, 0, 16}};

    edges[0].bytes += (uint64_t)maker->number;
    for (int round = 0; round < ROUNDS; round++) {
        struct halo *h;

        RANK_CHECK(halo_create(self, edges, 5,
                               (uint64_t)(maker->number * 100 + round), 0,
                               &h) == 0);
        for (int epoch = 0; epoch < 5; epoch++)
            RANK_CHECK(halo_step(h, epoch) == 0);
        halo_destroy(h);
    }
    return 0;
}

static void *run_maker(void *arg)
{
    struct maker *maker = arg;

    maker->result = make_some(maker);
    return NULL;
}

static int run_overlapping(struct rank *self)
{
    struct maker makers[MAKERS];
    pthread_t threads[MAKERS];
    int result = 0;

    for (int i = 0; i < MAKERS; i++) {
        makers[i] = (struct maker){self, i, 0};
        pthread_create(&threads[i], NULL, run_maker, &makers[i]);
    }
    for (int i = 0; i < MAKERS; i++) {
        pthread_join(threads[i], NULL);
        result |= makers[i].result;
    }
    return result;
}

/* ---- settings that differ: processes only ---- */

static int run_settings(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == RSCHED_EMISMATCH);
    RANK_CHECK(strstr(rsched_last_error(), "RSCHED_CHUNK") != NULL);
    return 0;
}

/* Odd ranks cannot plan; even ones are told so at once. */
static int run_planless(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == RSCHED_EINVAL);
    RANK_CHECK(strstr(rsched_last_error(), "RSCHED_MACHINE=tofu-k: ") != NULL);
    RANK_CHECK(self->rank == 1 ||
               strstr(rsched_last_error(), "process 1 says") != NULL);
    return 0;
}

/* A neighbor that never comes. */
static int run_alone(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {0, 2, 8}, {2, 0, 8}};
    struct halo *h;

    mesh_barrier(self->end);
    if (self->rank == 1) {
        mesh_barrier(self->end);
        return 0;
    }
    RANK_CHECK(halo_create(self, edges, 3, 9, 0, &h) == RSCHED_ETIMEOUT);
    RANK_CHECK(strstr(rsched_last_error(), "process 1 did not answer") != NULL);
    mesh_barrier(self->end);
    return 0;
}

/* Whoever waits for long does not give up at the first look. */
static int run_patient(struct rank *self)
{
    const struct halo_edge edges[] = {{0, 1, 8}, {1, 0, 8}};
    struct halo *h;

    if (self->rank == 1)
        usleep(300000);
    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *run;
    int num_ranks;
    const char *settings[2]; /* of even and of odd ranks, if any */
} cases[] = {
    {"quarrels", run_quarrels, 2, {0}},
    {"chain reaction", run_chain_reaction, 4, {0}},
    {"own mistake", run_own_mistake, 2, {0}},
    {"compared", run_compared, 2, {0}},
    {"own sizes", run_own_sizes, 1, {0}},
    {"child", run_child, 2, {0}},
    {"return", run_return, 2, {0}},
    {"shapes", run_shapes, 5, {0}},
    {"overlapping", run_overlapping, 3, {0}},
    {"settings", run_settings, 2, {"RSCHED_CHUNK=32k", "RSCHED_CHUNK=16k"}},
    {"planless", run_planless, 2, {"RSCHED_PLANNER=bl4",
                                   "RSCHED_MACHINE=tofu-k"}},
    {"alone", run_alone, 3, {"RSCHED_SETUP_TIMEOUT=3s",
                             "RSCHED_SETUP_TIMEOUT=3s"}},
    {"patient", run_patient, 2, {"RSCHED_SETUP_TIMEOUT=18446744s",
                                 "RSCHED_SETUP_TIMEOUT=18446744s"}},
};

int main(int argc, char **argv)
{
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;

    alarm(RANKS_HANG_SECONDS);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 2 && strcmp(argv[2], cases[i].name) != 0)
            continue;
        if (threads && cases[i].settings[0] != NULL)
            continue; /* read once by a process */
        if (ranks_run_with(cases[i].num_ranks, threads, cases[i].run, NULL,
                           cases[i].settings) != 0) {
            fprintf(stderr, "FAILED: %s\n", cases[i].name);
            return 1;
        }
        printf("PASS %s\n", cases[i].name);
    }
    return 0;
}
