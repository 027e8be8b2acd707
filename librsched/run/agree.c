/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement between neighbors that makes the lanes of an exchange.
 *
 * Four rounds of out-of-band messages with each peer, each of known length:
 *
 *   hello   who I am, what I can, how many puts and receives we share
 *   sizes   my puts to you in the order in which they will travel, and the
 *           bytes that I expect from you
 *   table   receiver to sender: the way and lane of the edge, with a hash over
 *           everything that was agreed
 *   ack     sender to receiver: the hash again, or why not
 *
 * A process that finds something wrong goes on to the end with a status in its
 * messages, so that its peer fails too and nobody waits for ever. Each message
 * depends on earlier rounds with the same peer only: creations need not be
 * symmetric.
 */
#include "librsched/run/run.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/base/log.h"
#include "librsched/run/order.h"

#define MAGIC 0x72736368u /* "rsch" */

/* Between two looks whether peers are dead or too late. */
#define LOOK_PS (10 * UINT64_C(1000000000))

enum {
    PROTOCOL_VERSION = 1,
    BYTE_ORDER_MARK = 0x0102,
    REASON_BYTES = 128,
    CPU_WORDS = 16, /* 1024 CPUs */
    WAY_LANDING = 1,
};

struct hello {
    uint32_t magic;
    uint16_t byte_order;
    uint16_t version;
    uint32_t page_bytes;
    uint32_t flags;
    uint64_t settings;
    uint64_t job;
    uint64_t tag;
    int32_t process;
    int32_t status;
    uint32_t num_puts;     /* from me to you */
    uint32_t num_receives; /* from you to me */
    uint64_t cpus[CPU_WORDS];
    unsigned char address[RSCHED_ENGINE_ADDRESS_BYTES];
    char reason[REASON_BYTES];
};
static_assert(sizeof(struct hello) == 376, "wire layout");

struct table {
    uint32_t magic;
    int32_t status;
    uint64_t hash;
    uint32_t num_puts;
    uint16_t way;  /* of every put of the edge */
    uint16_t lane; /* likewise */
    unsigned char descriptor[RSCHED_LANE_DESCRIPTOR_BYTES];
    char reason[REASON_BYTES];
};
static_assert(sizeof(struct table) == 216, "wire layout");

struct ack {
    uint64_t hash;
    int32_t status;
    uint32_t attached; /* 1: the sender has a lane, and may touch the slots */
    char reason[REASON_BYTES];
};
static_assert(sizeof(struct ack) == 144, "wire layout");

/* One entry of the sizes message for each put, then one for each receive. */
struct size_entry {
    uint64_t bytes;
    uint64_t k; /* puts: it is the k-th of the sender's puts to the receiver */
};

/* The talk with one peer. */
struct talk {
    int process;
    struct rs_peer *peer;
    struct rs_edge *out, *in; /* NULL when there are no puts (receives) */
    struct hello hello_out, hello_in;
    struct size_entry *sizes_out, *sizes_in;
    struct table table_out, table_in;
    struct ack ack_out, ack_in;
    struct rsched_oob_request *requests[2];
    bool done[2];
    bool over;  /* the peer is gone or foreign: no more messages */
    int status; /* first thing that went wrong with this peer */
    char reason[REASON_BYTES];
};

struct creation {
    struct rsched_context *context;
    struct rsched_exchange *x;
    struct talk *talks; /* all peers but the process itself */
    uint32_t num_talks;
    uint64_t deadline_ps; /* 0: none */
    int status; /* first thing that went wrong at all: told to every peer */
    char reason[REASON_BYTES];
};

static void creation_failed(struct creation *c, int error)
{
    if (c->status != 0)
        return;
    c->status = error;
    snprintf(c->reason, sizeof(c->reason), "%s", rsched_last_error());
}

static void talk_failed(struct creation *c, struct talk *t, int error)
{
    if (t->status == 0) {
        t->status = error;
        snprintf(t->reason, sizeof(t->reason), "%s", rsched_last_error());
    }
    creation_failed(c, error);
}

/* The peer has said that it failed, and why. */
static void peer_failed(struct creation *c, struct talk *t, int32_t status,
                        char *reason)
{
    reason[REASON_BYTES - 1] = '\0';
    talk_failed(c, t, rs_fail(status < 0 ? status : RSCHED_EMISMATCH,
                              "process %d says: %s", t->process, reason));
}

/* What a peer is told: what went wrong with it, or else with anybody. A
 * process that fails has no exchange, so none of its peers may have one. */
static int32_t status_for(const struct creation *c, const struct talk *t,
                          char *reason)
{
    memcpy(reason, t->status != 0 ? t->reason : c->reason, REASON_BYTES);
    return t->status != 0 ? t->status : c->status;
}

/* ---- rounds ---- */

struct message {
    void *buffer;
    size_t bytes; /* 0: none */
};

typedef void round_fn(struct talk *t, struct message *out, struct message *in);

/* Nothing more can be said to this peer; the talks with others go on, so that
 * they learn of it. */
static void end_talk(struct creation *c, struct talk *t, int error)
{
    const struct rsched_oob *oob = &c->context->params.oob;

    talk_failed(c, t, error);
    t->over = true;
    pthread_mutex_lock(&c->context->oob_lock);
    for (int r = 0; r < 2; r++) {
        if (!t->done[r])
            oob->cancel(oob->arg, t->requests[r]);
        t->done[r] = true;
    }
    pthread_mutex_unlock(&c->context->oob_lock);
}

/* The host's callbacks have no text of ours. */
static int oob_failed(const struct talk *t, int error)
{
    return rs_fail(error, "process %d: the out-of-band transport failed: %s",
                   t->process, rsched_strerror(error));
}

static void post(struct creation *c, struct talk *t, round_fn *messages)
{
    const struct rsched_oob *oob = &c->context->params.oob;
    struct message out = {0}, in = {0};
    int error = 0;

    messages(t, &out, &in);
    pthread_mutex_lock(&c->context->oob_lock);
    if (in.bytes > 0) {
        error = oob->irecv(oob->arg, t->process, c->x->tag, in.buffer,
                           in.bytes, &t->requests[0]);
        t->done[0] = error != 0;
    }
    if (out.bytes > 0 && error == 0) {
        error = oob->isend(oob->arg, t->process, c->x->tag, out.buffer,
                           out.bytes, &t->requests[1]);
        t->done[1] = error != 0;
    }
    pthread_mutex_unlock(&c->context->oob_lock);
    if (error != 0)
        end_talk(c, t, oob_failed(t, error));
}

static bool talk_is_done(const struct talk *t)
{
    return t->done[0] && t->done[1];
}

static void test_talk(struct creation *c, struct talk *t)
{
    const struct rsched_oob *oob = &c->context->params.oob;
    int error = 0;

    for (int r = 0; r < 2 && error == 0; r++) {
        if (t->done[r])
            continue;
        pthread_mutex_lock(&c->context->oob_lock);
        error = oob->test(oob->arg, t->requests[r], &t->done[r]);
        pthread_mutex_unlock(&c->context->oob_lock);
    }
    if (error != 0)
        end_talk(c, t, oob_failed(t, error));
}

/* @return whether a request is left */
static bool test_round(struct creation *c)
{
    bool left = false;

    for (uint32_t i = 0; i < c->num_talks; i++) {
        if (!talk_is_done(&c->talks[i]))
            test_talk(c, &c->talks[i]);
        left = left || !talk_is_done(&c->talks[i]);
    }
    return left;
}

/* Give up those that will not answer any more. */
static void look_at_peers(struct creation *c, uint64_t now_ps,
                          const char *round)
{
    bool late = c->deadline_ps != 0 && now_ps > c->deadline_ps;

    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];
        int error = 0;

        if (talk_is_done(t))
            continue;
        if (late)
            error = rs_fail(RSCHED_ETIMEOUT,
                            "process %d did not answer (%s) within "
                            "RSCHED_SETUP_TIMEOUT",
                            t->process, round);
        else if (t->peer != NULL)
            error = c->x->ops->check(t->peer->connection);
        if (error == 0)
            continue;
        /* It may have said all that it had to before it died. */
        test_talk(c, t);
        if (talk_is_done(t))
            continue;
        if (!late)
            c->x->ops->check(t->peer->connection); /* its text again */
        end_talk(c, t, error);
    }
}

static void do_round(struct creation *c, const char *name, round_fn *messages)
{
    struct rsched_pause pause = {0};
    uint64_t next_look_ps = rs_clock_now() + LOOK_PS;

    for (uint32_t i = 0; i < c->num_talks; i++) {
        c->talks[i].done[0] = c->talks[i].done[1] = true;
        if (!c->talks[i].over)
            post(c, &c->talks[i], messages);
    }
    while (test_round(c)) {
        uint64_t now_ps = rs_clock_now();

        if (now_ps > next_look_ps) {
            look_at_peers(c, now_ps, name);
            next_look_ps = now_ps + LOOK_PS;
        }
        rsched_context_pause(c->context, &pause);
    }
}

/* ---- hello ---- */

static void fill_hello(struct creation *c, struct talk *t)
{
    struct rsched_context *context = c->context;
    struct hello *h = &t->hello_out;

    *h = (struct hello){
        .magic = MAGIC,
        .byte_order = BYTE_ORDER_MARK,
        .version = PROTOCOL_VERSION,
        .page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
        .flags = c->x->flags,
        .settings = rs_config_agreement_hash(),
        .job = context->params.job,
        .tag = c->x->tag,
        .process = context->params.process,
        .num_puts = t->out == NULL ? 0 : t->out->num_order,
        .num_receives = t->in == NULL ? 0 : t->in->num_order,
    };
    pthread_mutex_lock(&context->lock);
    for (int cpu = 0; cpu < CPU_WORDS * 64; cpu++) {
        if (CPU_ISSET(cpu, &context->own_cpus))
            h->cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
    }
    context->ops->address(context->engine, h->address);
    /* One that we know already can be seen to be dead from the beginning. */
    t->peer = rs_context_known_peer(context, t->process);
    pthread_mutex_unlock(&context->lock);
}

static void hello_messages(struct talk *t, struct message *out,
                           struct message *in)
{
    *out = (struct message){&t->hello_out, sizeof(t->hello_out)};
    *in = (struct message){&t->hello_in, sizeof(t->hello_in)};
}

static int check_hello(const struct talk *t)
{
    const struct hello *own = &t->hello_out, *peer = &t->hello_in;

    if (peer->magic != own->magic || peer->byte_order != own->byte_order)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has another byte order or does not run "
                       "rsched",
                       t->process);
    if (peer->version != own->version)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d speaks protocol %u, this one %u",
                       t->process, peer->version, own->version);
    if (peer->page_bytes != own->page_bytes)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has pages of %u bytes, this one of %u",
                       t->process, peer->page_bytes, own->page_bytes);
    if (peer->settings != own->settings)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has other settings (RSCHED_CHUNK or "
                       "RSCHED_RING)",
                       t->process);
    if (peer->job != own->job || peer->process != t->process)
        return rs_fail(RSCHED_EMISMATCH, "process %d is of another job",
                       t->process);
    if (peer->tag != own->tag || peer->flags != own->flags)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d makes another exchange (tag %llu)",
                       t->process, (unsigned long long)peer->tag);
    if (peer->num_receives != own->num_puts)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d expects %u puts, this one has %u for it",
                       t->process, peer->num_receives, own->num_puts);
    if (peer->num_puts != own->num_receives)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has %u puts, this one expects %u",
                       t->process, peer->num_puts, own->num_receives);
    return 0;
}

/* ---- sizes ---- */

/* Of either's message: both know from the hellos what both have. When the
 * counts differ there is nothing to compare, and no reason to believe them. */
static size_t sizes_bytes(const struct talk *t)
{
    const struct hello *own = &t->hello_out, *peer = &t->hello_in;

    if (own->num_puts != peer->num_receives ||
        own->num_receives != peer->num_puts)
        return 0;
    return ((size_t)own->num_puts + own->num_receives) *
           sizeof(struct size_entry);
}

static int fill_sizes(struct creation *c, struct talk *t,
                      const struct rsched_pattern *pattern)
{
    struct size_entry *entry;
    uint32_t *ranks = NULL;

    if (sizes_bytes(t) == 0)
        return 0;
    t->sizes_out = calloc(1, sizes_bytes(t));
    t->sizes_in = calloc(1, sizes_bytes(t));
    if (t->sizes_out == NULL || t->sizes_in == NULL)
        return rs_fail(RSCHED_ENOMEM, "making exchange %llu: no memory",
                       (unsigned long long)c->x->tag);
    if (t->out != NULL &&
        rs_order_ranks(t->out->order, t->out->num_order, &ranks) != 0)
        return RSCHED_ENOMEM;
    entry = t->sizes_out;
    for (uint32_t i = 0; t->out != NULL && i < t->out->num_order; i++) {
        entry->bytes = rsched_pattern_put(pattern, t->out->order[i])->bytes;
        (entry++)->k = ranks[i];
    }
    free(ranks);
    for (uint32_t i = 0; t->in != NULL && i < t->in->num_order; i++)
        (entry++)->bytes =
            rsched_pattern_receive(pattern, t->in->order[i])->bytes;
    return 0;
}

static void sizes_messages(struct talk *t, struct message *out,
                           struct message *in)
{
    *out = (struct message){t->sizes_out, sizes_bytes(t)};
    *in = (struct message){t->sizes_in, sizes_bytes(t)};
}

/* Bring our receives into the order in which the sender's puts travel. */
static int adopt_order(struct creation *c, struct talk *t,
                       const struct rsched_pattern *pattern)
{
    bool variable = (c->x->flags & RSCHED_EXCHANGE_VARIABLE) != 0;
    uint32_t n = t->in->num_order;
    uint32_t *order = calloc(n, sizeof(*order));
    bool *seen = calloc(n, sizeof(*seen));
    int error = 0;

    if (order == NULL || seen == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory for an order");
    for (uint32_t i = 0; error == 0 && i < n; i++) {
        const struct size_entry *e = &t->sizes_in[i];
        uint64_t bytes;

        if (e->k >= n || seen[e->k]) {
            error = rs_fail(RSCHED_EMISMATCH,
                            "process %d sent an order that is none",
                            t->process);
            break;
        }
        seen[e->k] = true;
        order[i] = t->in->order[e->k];
        bytes = rsched_pattern_receive(pattern, order[i])->bytes;
        if (!variable && bytes != e->bytes)
            error = rs_fail(bytes < e->bytes ? RSCHED_ETRUNC
                                             : RSCHED_EMISMATCH,
                            "put %llu of process %d has %llu bytes, this one "
                            "expects %llu",
                            (unsigned long long)e->k, t->process,
                            (unsigned long long)e->bytes,
                            (unsigned long long)bytes);
    }
    if (error == 0)
        memcpy(t->in->order, order, n * sizeof(*order));
    free(seen);
    free(order);
    return error;
}

/* ---- table ---- */

/* Over all that both ends must agree on for the edge from `sender`. */
static uint64_t edge_hash(const struct table *table,
                          const struct size_entry *puts)
{
    uint64_t hash = XXH64(puts, table->num_puts * sizeof(*puts), table->way);

    hash = XXH64(&table->lane, sizeof(table->lane), hash);
    return XXH64(table->descriptor, sizeof(table->descriptor), hash);
}

static uint64_t sum_bytes(const struct size_entry *entries, uint32_t n)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < n; i++)
        bytes += entries[i].bytes;
    return bytes;
}

static struct rsched_lane_spec lane_spec(const struct rsched_exchange *x,
                                         const struct size_entry *puts,
                                         uint32_t n)
{
    return (struct rsched_lane_spec){
        .bytes = (x->flags & RSCHED_EXCHANGE_VARIABLE) != 0
                     ? 0
                     : sum_bytes(puts, n)};
}

static int connect_peer(struct creation *c, struct talk *t)
{
    struct rsched_context *context = c->context;
    cpu_set_t cpus;
    int error;

    CPU_ZERO(&cpus);
    for (int cpu = 0; cpu < CPU_WORDS * 64; cpu++) {
        if ((t->hello_in.cpus[cpu / 64] >> cpu % 64 & 1) != 0)
            CPU_SET(cpu, &cpus);
    }
    pthread_mutex_lock(&context->lock);
    error = rs_context_peer(context, t->process, t->hello_in.address, &cpus,
                            &t->peer);
    pthread_mutex_unlock(&context->lock);
    return error;
}

/* The receiver decides. */
static int fill_table(struct creation *c, struct talk *t)
{
    struct table *table = &t->table_out;
    struct rsched_lane_spec spec =
        lane_spec(c->x, t->sizes_in, t->in->num_order);
    int error;

    table->num_puts = t->in->num_order;
    table->way = WAY_LANDING;
    pthread_mutex_lock(&c->context->lock);
    error = c->x->ops->rx_create(t->peer->connection, &spec,
                                 table->descriptor, &t->in->lane);
    pthread_mutex_unlock(&c->context->lock);
    if (error == 0)
        table->hash = edge_hash(table, t->sizes_in);
    return error;
}

static void table_messages(struct talk *t, struct message *out,
                           struct message *in)
{
    if (t->hello_out.num_receives > 0 || t->hello_in.num_puts > 0)
        *out = (struct message){&t->table_out, sizeof(t->table_out)};
    if (t->hello_out.num_puts > 0 || t->hello_in.num_receives > 0)
        *in = (struct message){&t->table_in, sizeof(t->table_in)};
}

/* ---- ack ---- */

static int adopt_table(struct creation *c, struct talk *t)
{
    const struct table *table = &t->table_in;
    struct rsched_lane_spec spec =
        lane_spec(c->x, t->sizes_out, t->out->num_order);
    int error;

    if (table->num_puts != t->out->num_order || table->way != WAY_LANDING ||
        table->lane != 0 || table->hash != edge_hash(table, t->sizes_out))
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d sent a table that does not fit",
                       t->process);
    pthread_mutex_lock(&c->context->lock);
    error = c->x->ops->tx_create(t->peer->connection, &spec,
                                 table->descriptor, &t->out->lane);
    pthread_mutex_unlock(&c->context->lock);
    return error;
}

static void ack_messages(struct talk *t, struct message *out,
                         struct message *in)
{
    struct message to_peer, from_peer;

    /* The ack goes the other way than the table. */
    to_peer = from_peer = (struct message){0};
    table_messages(t, &to_peer, &from_peer);
    if (from_peer.bytes > 0)
        *out = (struct message){&t->ack_out, sizeof(t->ack_out)};
    if (to_peer.bytes > 0)
        *in = (struct message){&t->ack_in, sizeof(t->ack_in)};
}

/* ---- all rounds ---- */

/* With a foreign hello, lengths mean nothing: this is the end. */
static bool is_foreign(const struct hello *hello)
{
    return hello->magic != MAGIC || hello->byte_order != BYTE_ORDER_MARK ||
           hello->version != PROTOCOL_VERSION;
}

static void greet(struct creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++)
        fill_hello(c, &c->talks[i]);
    RS_FAILPOINT("create:hello");
    do_round(c, "hello", hello_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];
        int wrong;

        if (t->over)
            continue;
        wrong = check_hello(t);
        if (wrong != 0 && is_foreign(&t->hello_in))
            end_talk(c, t, wrong);
        else if (wrong == 0)
            wrong = connect_peer(c, t);
        if (wrong != 0)
            talk_failed(c, t, wrong);
    }
}

static void tell_sizes(struct creation *c,
                       const struct rsched_pattern *pattern)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        int error = c->talks[i].over ? 0 : fill_sizes(c, &c->talks[i], pattern);

        if (error != 0)
            end_talk(c, &c->talks[i], error);
    }
    RS_FAILPOINT("create:sizes");
    do_round(c, "sizes", sizes_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];

        if (t->status == 0 && t->in != NULL) {
            int wrong = adopt_order(c, t, pattern);

            if (wrong != 0)
                talk_failed(c, t, wrong);
        }
    }
}

static void agree_on_tables(struct creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];

        if (c->status == 0 && t->in != NULL) {
            int wrong = fill_table(c, t);

            if (wrong != 0)
                talk_failed(c, t, wrong);
        }
    }
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];

        t->table_out.magic = MAGIC;
        t->table_out.status = status_for(c, t, t->table_out.reason);
        /* From now on until it says otherwise the peer may write. */
        if (t->table_out.status == 0 && t->in != NULL)
            t->in->lane->attached = true;
    }
    RS_FAILPOINT("create:table");
    do_round(c, "table", table_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];

        if (t->table_in.status != 0)
            peer_failed(c, t, t->table_in.status, t->table_in.reason);
        else if (c->status == 0 && t->out != NULL) {
            int wrong = adopt_table(c, t);

            if (wrong != 0)
                talk_failed(c, t, wrong);
        }
    }
}

static void acknowledge(struct creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];

        t->ack_out.status = status_for(c, t, t->ack_out.reason);
        t->ack_out.hash = t->table_in.hash;
        t->ack_out.attached = t->out != NULL && t->out->lane != NULL;
    }
    RS_FAILPOINT("create:ack");
    do_round(c, "ack", ack_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];

        if (t->over || t->in == NULL)
            continue;
        if (t->ack_in.status != 0)
            peer_failed(c, t, t->ack_in.status, t->ack_in.reason);
        else if (t->status == 0 && t->ack_in.hash != t->table_out.hash)
            talk_failed(c, t, rs_fail(RSCHED_EMISMATCH,
                                      "process %d acknowledged another table",
                                      t->process));
        if (t->in->lane != NULL)
            t->in->lane->attached = t->ack_in.attached != 0;
    }
    RS_FAILPOINT("create:end");
}

/* The receives of the process from itself, in the order of its puts. */
static int adopt_own_order(const struct rs_edge *out, struct rs_edge *in)
{
    uint32_t n = out->num_order;
    uint32_t *order = calloc(n, sizeof(*order));
    uint32_t *ranks = NULL;
    int error;

    if (order == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an order");
    error = rs_order_ranks(out->order, n, &ranks);
    for (uint32_t i = 0; error == 0 && i < n; i++)
        order[i] = in->order[ranks[i]];
    if (error == 0)
        memcpy(in->order, order, n * sizeof(*order));
    free(ranks);
    free(order);
    return error;
}

/* The edges of the process with itself need no messages. */
static int make_self_lanes(struct creation *c, struct rs_edge *out,
                           struct rs_edge *in)
{
    struct rsched_context *context = c->context;
    unsigned char descriptor[RSCHED_LANE_DESCRIPTOR_BYTES];
    unsigned char address[RSCHED_ENGINE_ADDRESS_BYTES] = {0};
    struct rsched_lane_spec spec = {0};
    struct rs_peer *peer;
    int error;

    if (out == NULL && in == NULL)
        return 0;
    if (out == NULL || in == NULL || out->num_order != in->num_order)
        return rs_fail(RSCHED_EMISMATCH,
                       "making exchange %llu: %u puts to the process itself, "
                       "which expects %u",
                       (unsigned long long)c->x->tag,
                       out == NULL ? 0 : out->num_order,
                       in == NULL ? 0 : in->num_order);
    pthread_mutex_lock(&context->lock);
    context->ops->address(context->engine, address);
    error = rs_context_peer(context, context->params.process, address,
                            &context->own_cpus, &peer);
    if (error == 0)
        error = c->x->ops->rx_create(peer->connection, &spec, descriptor,
                                     &in->lane);
    if (error == 0)
        error = c->x->ops->tx_create(peer->connection, &spec, descriptor,
                                     &out->lane);
    pthread_mutex_unlock(&context->lock);
    if (error != 0)
        return error;
    in->lane->attached = true;
    out->peer = in->peer = peer;
    return adopt_own_order(out, in);
}

static struct talk *find_talk(struct creation *c, int process)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        if (c->talks[i].process == process)
            return &c->talks[i];
    }
    c->talks[c->num_talks].process = process;
    return &c->talks[c->num_talks++];
}

static void make_talks(struct creation *c, struct rs_edge **self_out,
                       struct rs_edge **self_in)
{
    struct rsched_exchange *x = c->x;
    int own = x->context->params.process;

    for (uint32_t i = 0; i < x->num_out; i++) {
        int process = (int)x->out[i].bytes;

        if (process == own)
            *self_out = &x->out[i];
        else
            find_talk(c, process)->out = &x->out[i];
    }
    for (uint32_t i = 0; i < x->num_in; i++) {
        int process = (int)x->in[i].bytes;

        if (process == own)
            *self_in = &x->in[i];
        else
            find_talk(c, process)->in = &x->in[i];
    }
}

static int agree(struct creation *c, const struct rsched_pattern *pattern)
{
    int error = 0;

    if (c->num_talks == 0)
        return 0;
    if (c->context->params.oob.isend == NULL)
        return rs_fail(RSCHED_EINVAL,
                       "making exchange %llu: the context has no out-of-band "
                       "callbacks",
                       (unsigned long long)c->x->tag);
    greet(c);
    tell_sizes(c, pattern);
    agree_on_tables(c);
    acknowledge(c);
    if (c->status != 0)
        error = rs_fail(c->status, "making exchange %llu: %s",
                        (unsigned long long)c->x->tag, c->reason);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct talk *t = &c->talks[i];

        if (t->out != NULL)
            t->out->peer = t->peer;
        if (t->in != NULL)
            t->in->peer = t->peer;
        free(t->sizes_out);
        free(t->sizes_in);
    }
    return error;
}

int rs_exchange_agree(struct rsched_exchange *x,
                      const struct rsched_pattern *pattern, int status)
{
    uint64_t timeout = rs_config()->setup_timeout_ps;
    struct rs_edge *self_out = NULL, *self_in = NULL;
    struct creation c = {
        .context = x->context,
        .x = x,
        .deadline_ps = timeout == 0 ? 0 : rs_clock_now() + timeout,
        .talks = calloc(x->num_out + x->num_in + 1, sizeof(struct talk)),
    };
    int error;

    if (c.talks == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an exchange");
    make_talks(&c, &self_out, &self_in);
    if (status == 0)
        status = make_self_lanes(&c, self_out, self_in);
    if (status != 0)
        creation_failed(&c, status);
    error = agree(&c, pattern);
    free(c.talks);
    return error != 0 ? error : status;
}
