/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement between neighbors that makes the edges of an exchange.
 *
 * Six rounds of out-of-band messages with each peer, each of known length:
 *
 *   hello   who I am, what I can, how many puts and receives we share, and
 *           which of the connections between us I know to be the latest that
 *           has not failed; the later one of the two is used
 *   reach   the engine that I reach you by; the later one of the two is used
 *   sizes   my half of the connection; my puts to you in the order in which
 *           they will travel; the bytes that I expect from you
 *   rails   of connections that are new to either: the rails that work at my
 *           end; those that work at both are used, and what the plan has on
 *           others is dealt to them
 *   table   receiver to sender: the lanes of the edges, with a hash over
 *           everything that was agreed
 *   ack     sender to receiver: the hash and the lanes' replies, or why not
 *
 * A process that finds something wrong goes on to the end with a status in its
 * messages, so that its peer fails too and nobody waits for ever. Each message
 * depends on earlier rounds with the same peer only: creations need not be
 * symmetric.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/run/talk.h"

/* ---- sizes ---- */

/* Of either's message: both know from the hellos what both have. When the
 * counts differ there is nothing to compare, and no reason to believe them. */
static size_t sizes_bytes(const struct rs_talk *t)
{
    const struct rs_hello *own = &t->hello_out, *peer = &t->hello_in;

    if (own->num_puts != peer->num_receives ||
        own->num_receives != peer->num_puts)
        return 0;
    return sizeof(struct rs_sizes) +
           ((size_t)own->num_puts + own->num_receives) * sizeof(struct rs_size);
}

static int fill_sizes(struct rs_creation *c, struct rs_talk *t)
{
    struct rs_size *size;

    if (sizes_bytes(t) == 0)
        return 0;
    t->sizes_out = calloc(1, sizes_bytes(t));
    t->sizes_in = calloc(1, sizes_bytes(t));
    if (t->sizes_out == NULL || t->sizes_in == NULL)
        return rs_fail(RSCHED_ENOMEM, "making exchange %llu: no memory",
                       (unsigned long long)c->x->tag);
    t->sizes_out->status = rs_talk_status(c, t, t->sizes_out->reason);
    if (t->sizes_out->status != 0)
        return 0;
    pthread_mutex_lock(&c->context->lock);
    for (int use = 0; use < RS_NUM_USES; use++) {
        const struct rs_peer *peer = t->peers[use];

        if (peer != NULL)
            peer->ops->offer(peer->connection, t->sizes_out->offer[use]);
    }
    t->sizes_out->undecided = rs_talk_undecided(t);
    pthread_mutex_unlock(&c->context->lock);
    size = t->sizes_out->of + t->num_puts;
    for (uint32_t i = 0; i < t->num_receives; i++)
        *size++ = (struct rs_size){
            .bytes = rsched_pattern_receive(c->pattern, t->receives[i])->bytes,
            .on_gpu = c->receives[t->receives[i]].kind == RSCHED_PLACE_GPU};
    return 0;
}

/* To each peer its puts, in the order of the plan; or what is wrong by now. */
static void fill_puts(struct rs_creation *c)
{
    for (uint32_t i = 0; c->status != 0 && i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (t->sizes_out != NULL)
            t->sizes_out->status = rs_talk_status(c, t, t->sizes_out->reason);
    }
    for (uint32_t i = 0; c->status == 0 && i < c->x->num_puts; i++) {
        uint32_t id = c->plan.order[i];
        const struct rsched_put *put = rsched_pattern_put(c->pattern, id);
        struct rs_talk *t = rs_creation_talk(c, put->destination);
        struct rs_size *size;

        if (t == &c->self)
            continue;
        size = &t->sizes_out->of[t->told++];
        *size = (struct rs_size){
            .bytes = put->bytes,
            .k = c->k[id],
            .on_gpu = c->puts[id].kind == RSCHED_PLACE_GPU,
        };
        rs_talk_find_rails(t, c->plan.engine[id], size->rail);
    }
}

static void sizes_messages(struct rs_talk *t, struct rs_talk_message *out,
                           struct rs_talk_message *in)
{
    *out = (struct rs_talk_message){t->sizes_out, sizes_bytes(t)};
    *in = (struct rs_talk_message){t->sizes_in, sizes_bytes(t)};
}

static bool are_rails(const struct rs_talk *t, const uint8_t *rail)
{
    bool are = true;

    for (int use = 0; use < RS_NUM_USES; use++)
        are = are && rail[use] < (t->peers[use] == NULL
                                      ? 1
                                      : rs_peer_rails(t->peers[use]));
    return are;
}

/* Whether the first sizes are known. */
static bool has_sizes(const struct rs_creation *c)
{
    return (c->x->flags & RSCHED_EXCHANGE_VARIABLE) == 0 ||
           (c->x->flags & RSCHED_EXCHANGE_COMPARED) != 0;
}

/* Of the k-th put of a process to this one. */
static int check_size(const struct rs_creation *c, const struct rs_talk *t, uint32_t k,
                      uint64_t bytes)
{
    uint64_t expected = rsched_pattern_receive(c->pattern, t->receives[k])->bytes;

    return has_sizes(c) ? rs_compare_sizes(k, t->process, bytes, expected) : 0;
}

/* The peer's puts must be our receives. */
static int check_sizes(const struct rs_creation *c, const struct rs_talk *t)
{
    uint32_t n = t->num_receives;
    bool *seen = calloc((size_t)n + 1, sizeof(*seen));
    int error = 0;

    if (seen == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory for an order");
    for (uint32_t i = 0; error == 0 && i < n; i++) {
        const struct rs_size *size = &t->sizes_in->of[i];

        if (size->k >= n || seen[size->k] || !are_rails(t, size->rail)) {
            error =
                rs_fail(RSCHED_EMISMATCH,
                        "process %d sent an order that is none", t->process);
            break;
        }
        seen[size->k] = true;
        error = check_size(c, t, size->k, size->bytes);
    }
    free(seen);
    return error;
}

static int accept_offer(struct rs_peer *peer, const unsigned char *offer)
{
    int error = 0;

    if (!peer->accepted)
        error = peer->ops->accept(peer->connection, offer);
    peer->accepted = error == 0;
    if (error != 0 && peer->ops->reconnects) /* joined in part, perhaps */
        atomic_store(&peer->dead, true);
    return error;
}

static int accept_offers(struct rs_creation *c, struct rs_talk *t)
{
    int error = 0;

    pthread_mutex_lock(&c->context->lock);
    for (int use = 0; use < RS_NUM_USES && error == 0; use++) {
        if (t->peers[use] != NULL)
            error = accept_offer(t->peers[use], t->sizes_in->offer[use]);
    }
    pthread_mutex_unlock(&c->context->lock);
    return error;
}

static void tell_sizes(struct rs_creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];
        int error = t->over ? 0 : fill_sizes(c, t);

        if (error != 0)
            rs_talk_end(c, t, error);
    }
    fill_puts(c);
    RS_FAILPOINT("create:sizes");
    rs_talk_round(c, "sizes", sizes_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];
        int wrong;

        if (t->status != 0)
            continue;
        if (t->sizes_in->status != 0) {
            rs_talk_peer_failed(c, t, t->sizes_in->status, t->sizes_in->reason);
            continue;
        }
        wrong = check_sizes(c, t);
        if (wrong == 0)
            wrong = accept_offers(c, t);
        if (wrong != 0)
            rs_talk_failed(c, t, wrong);
    }
}

/* ---- table ---- */

/* Over all that both ends must agree on for the edges from `sender`. */
static uint64_t edges_hash(const struct rs_table *table,
                           const struct rs_sizes *sizes)
{
    uint64_t hash = XXH64(sizes->of, table->num_puts * sizeof(sizes->of[0]),
                          table->num_lanes);

    return XXH64(table->descriptors, sizeof(table->descriptors), hash);
}

/* The lanes of one edge. */
static int fill_lanes(struct rs_creation *c, struct rs_talk *t,
                      struct rs_edge *edge)
{
    struct rs_table *table = &t->table_out;

    for (uint32_t which = 0; which < rs_edge_num_lanes(edge); which++) {
        int error;

        if (table->num_lanes == RS_TALK_LANES)
            return rs_fail(RSCHED_ELIMIT, "process %d has more than %d lanes",
                           t->process, RS_TALK_LANES);
        error = rs_edge_create_rx(c, edge, which,
                                  table->descriptors[table->num_lanes]);
        if (error != 0)
            return error;
        table->num_lanes++;
    }
    return 0;
}

static int fill_table(struct rs_creation *c, struct rs_talk *t)
{
    struct rs_table *table = &t->table_out;
    int error = 0;

    table->num_puts = t->num_receives;
    for (uint32_t e = 0; e < c->x->num_in && error == 0; e++) {
        if (rs_edge_is_with(&c->x->in[e], t))
            error = fill_lanes(c, t, &c->x->in[e]);
    }
    table->hash = edges_hash(table, t->sizes_in);
    return error;
}

static void table_messages(struct rs_talk *t, struct rs_talk_message *out,
                           struct rs_talk_message *in)
{
    if (t->hello_out.num_receives > 0 || t->hello_in.num_puts > 0)
        *out = (struct rs_talk_message){&t->table_out, sizeof(t->table_out)};
    if (t->hello_out.num_puts > 0 || t->hello_in.num_receives > 0)
        *in = (struct rs_talk_message){&t->table_in, sizeof(t->table_in)};
}

static int adopt_lanes(struct rs_creation *c, struct rs_talk *t,
                       struct rs_edge *edge)
{
    for (uint32_t which = 0; which < rs_edge_num_lanes(edge); which++) {
        uint32_t lane = t->ack_out.attached;
        int error = rs_edge_create_tx(c, edge, which,
                                      t->table_in.descriptors[lane],
                                      t->ack_out.replies[lane]);

        if (error != 0)
            return error;
        t->ack_out.attached++;
    }
    return 0;
}

/* The sender's side: its lanes, one for each of the receiver's. */
static int adopt_table(struct rs_creation *c, struct rs_talk *t)
{
    const struct rs_table *table = &t->table_in;
    uint32_t lanes = 0;
    int error = 0;

    for (uint32_t e = 0; e < c->x->num_out; e++) {
        if (rs_edge_is_with(&c->x->out[e], t))
            lanes += rs_edge_num_lanes(&c->x->out[e]);
    }
    if (table->num_puts != t->num_puts || table->num_lanes != lanes ||
        table->hash != edges_hash(table, t->sizes_out))
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d sent a table that does not fit", t->process);
    for (uint32_t e = 0; e < c->x->num_out && error == 0; e++) {
        if (rs_edge_is_with(&c->x->out[e], t))
            error = adopt_lanes(c, t, &c->x->out[e]);
    }
    return error;
}

/* Whether the sender of each of our lanes may write to it: the first
 * `attached` of them. */
static void mark_attached(struct rs_creation *c, const struct rs_talk *t,
                          uint32_t attached)
{
    uint32_t lane = 0;

    for (uint32_t e = 0; e < c->x->num_in; e++) {
        struct rs_edge *edge = &c->x->in[e];

        if (!rs_edge_is_with(edge, t) || edge->lane == NULL)
            continue;
        edge->lane->attached = lane++ < attached;
        if (edge->beside != NULL)
            edge->beside->attached = lane++ < attached;
    }
}

static void agree_on_tables(struct rs_creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (c->status == 0 && t->num_receives > 0) {
            int wrong = fill_table(c, t);

            if (wrong != 0)
                rs_talk_failed(c, t, wrong);
        }
    }
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        t->table_out.magic = RS_TALK_MAGIC;
        t->table_out.status = rs_talk_status(c, t, t->table_out.reason);
        /* From now on until it says otherwise the peer may write. */
        if (t->table_out.status == 0)
            mark_attached(c, t, RS_TALK_LANES);
    }
    RS_FAILPOINT("create:table");
    rs_talk_round(c, "table", table_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (t->table_in.status != 0) {
            rs_talk_peer_failed(c, t, t->table_in.status, t->table_in.reason);
        } else if (c->status == 0 && t->num_puts > 0) {
            int wrong = adopt_table(c, t);

            if (wrong != 0)
                rs_talk_failed(c, t, wrong);
        }
    }
}

/* ---- ack ---- */

static void ack_messages(struct rs_talk *t, struct rs_talk_message *out,
                         struct rs_talk_message *in)
{
    struct rs_talk_message to_peer = {0}, from_peer = {0};

    /* The ack goes the other way than the table. */
    table_messages(t, &to_peer, &from_peer);
    if (from_peer.bytes > 0)
        *out = (struct rs_talk_message){&t->ack_out, sizeof(t->ack_out)};
    if (to_peer.bytes > 0)
        *in = (struct rs_talk_message){&t->ack_in, sizeof(t->ack_in)};
}

static int adopt_ack(struct rs_creation *c, struct rs_talk *t)
{
    uint32_t lane = 0;

    if (t->ack_in.hash != t->table_out.hash ||
        t->ack_in.attached != t->table_out.num_lanes)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d acknowledged another table", t->process);
    for (uint32_t e = 0; e < c->x->num_in; e++) {
        struct rs_edge *edge = &c->x->in[e];
        int error = 0;

        if (!rs_edge_is_with(edge, t))
            continue;
        for (uint32_t which = 0;
             which < rs_edge_num_lanes(edge) && error == 0; which++)
            error = rs_edge_attach_rx(c, edge, which,
                                      t->ack_in.replies[lane++]);
        if (error != 0)
            return error;
    }
    return 0;
}

static void acknowledge(struct rs_creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        t->ack_out.status = rs_talk_status(c, t, t->ack_out.reason);
        t->ack_out.hash = t->table_in.hash;
    }
    RS_FAILPOINT("create:ack");
    rs_talk_round(c, "ack", ack_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (t->over || t->num_receives == 0)
            continue;
        mark_attached(c, t, t->ack_in.attached);
        if (t->ack_in.status != 0) {
            rs_talk_peer_failed(c, t, t->ack_in.status, t->ack_in.reason);
        } else if (t->status == 0) {
            int wrong = adopt_ack(c, t);

            if (wrong != 0)
                rs_talk_failed(c, t, wrong);
        }
    }
    RS_FAILPOINT("create:end");
}

/* ---- all of it ---- */

static int check_processes(const struct rs_creation *c, bool out, uint32_t id,
                           const struct rsched_put *put)
{
    const struct rsched_context_params *params = &c->context->params;
    int other = out ? put->destination : put->source;
    int self = out ? put->source : put->destination;

    if (other >= 0 && other < params->num_processes &&
        (self == RSCHED_ANY_PROCESS || self == params->process))
        return 0;
    return rs_fail(RSCHED_EINVAL,
                   "making exchange %llu: %s %u goes from process %d to %d "
                   "(this is %d of %d)",
                   (unsigned long long)c->x->tag, out ? "put" : "receive", id,
                   put->source, put->destination, params->process,
                   params->num_processes);
}

/* NULL: no memory. Valid until the next one is found. */
static struct rs_talk *find_talk(struct rs_creation *c, int process)
{
    struct rs_talk *t = rs_creation_talk(c, process);

    if (t != NULL)
        return t;
    if (c->num_talks == c->room_talks) {
        uint32_t room = c->room_talks == 0 ? 8 : 2 * c->room_talks;

        t = realloc(c->talks, room * sizeof(*t));
        if (t == NULL) {
            rs_fail(RSCHED_ENOMEM, "no memory for an exchange");
            return NULL;
        }
        c->talks = t;
        c->room_talks = room;
    }
    t = &c->talks[c->num_talks++];
    *t = (struct rs_talk){.process = process};
    return t;
}

/* A put that is none of ours, or of nobody, fails the creation, but all peers that are
 * named are told. */
static int make_talks(struct rs_creation *c)
{
    struct rsched_exchange *x = c->x;

    for (uint32_t i = 0; i < x->num_puts; i++) {
        const struct rsched_put *put = rsched_pattern_put(c->pattern, i);
        int error = check_processes(c, true, i, put);
        struct rs_talk *t;

        if (error != 0) {
            rs_creation_failed(c, error);
            continue;
        }
        t = find_talk(c, put->destination);
        if (t == NULL)
            return RSCHED_ENOMEM;
        c->k[i] = t->num_puts++;
        t->on_gpu += c->puts[i].kind == RSCHED_PLACE_GPU;
    }
    for (uint32_t i = 0; i < x->num_receives; i++) {
        const struct rsched_put *put = rsched_pattern_receive(c->pattern, i);
        int error = check_processes(c, false, i, put);
        struct rs_talk *t;

        if (error != 0) {
            rs_creation_failed(c, error);
            continue;
        }
        t = find_talk(c, put->source);
        if (t == NULL)
            return RSCHED_ENOMEM;
        t->on_gpu += c->receives[i].kind == RSCHED_PLACE_GPU;
        error = rs_order_append(&t->receives, &t->num_receives, i);
        if (error != 0)
            return error;
    }
    return 0;
}

static uint32_t most_rails(const struct rs_creation *c)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < c->num_talks; i++) {
        for (int use = 0; use < RS_NUM_USES; use++) {
            const struct rs_peer *peer = c->talks[i].peers[use];

            if (peer != NULL && rs_peer_rails(peer) > most)
                most = rs_peer_rails(peer);
        }
    }
    return most;
}

/* Also a process that has failed already talks to its peers, but plans
 * nothing. */
static void plan(struct rs_creation *c)
{
    struct rsched_exchange *x = c->x;
    bool *twice = NULL;
    int error = 0;

    if (c->status == 0)
        error = rs_creation_forecast(c, &twice);
    if (c->status == 0 && error == 0)
        error = rs_plan_make(&c->plan, c->context, c->params, most_rails(c),
                             twice);
    free(twice);
    x->in = calloc((size_t)x->num_receives + 1, sizeof(*x->in));
    if (x->in == NULL && error == 0)
        error = rs_fail(RSCHED_ENOMEM, "no memory for edges");
    if (error != 0)
        rs_creation_failed(c, error);
}

/* Now that it is known which ends lie in GPU memory, and which rails are used. */
static void make_edges(struct rs_creation *c)
{
    int error = 0;

    for (uint32_t i = 0; error == 0 && c->status == 0 && i < c->num_talks; i++)
        error = rs_edges_add_in(c, &c->talks[i], c->talks[i].sizes_in->of);
    if (error == 0 && c->status == 0)
        error = rs_edges_make_out(c);
    if (error == 0 && c->status == 0)
        error = rs_edges_make_self(c);
    if (error != 0)
        rs_creation_failed(c, error);
}

static int check_self(const struct rs_creation *c)
{
    const struct rs_talk *self = &c->self;
    int error = 0;

    if (self->num_puts != self->num_receives)
        return rs_fail(RSCHED_EMISMATCH,
                       "%u puts to the process itself, which expects %u",
                       self->num_puts, self->num_receives);
    for (uint32_t i = 0; error == 0 && self->num_puts > 0 && i < c->x->num_puts; i++) {
        const struct rsched_put *put = rsched_pattern_put(c->pattern, i);

        if (put->destination == self->process)
            error = check_size(c, self, c->k[i], put->bytes);
    }
    return error;
}

static void agree(struct rs_creation *c)
{
    rs_creation_meet(c);
    plan(c);
    tell_sizes(c);
    rs_creation_agree_on_rails(c);
    make_edges(c);
    agree_on_tables(c);
    acknowledge(c);
}

/* @param status what is wrong with the parameters, by the last error's text */
static int make_all(struct rs_creation *c, int status)
{
    bool own; /* its text tells what was being made */
    int error;

    if (status != 0)
        rs_creation_failed(c, status);
    error = make_talks(c);
    if (error != 0)
        return error;
    if (c->num_talks > 0 && c->context->params.oob.isend == NULL)
        return rs_fail(RSCHED_EINVAL,
                       "making exchange %llu: the context has no out-of-band "
                       "callbacks",
                       (unsigned long long)c->x->tag);
    own = c->status != 0;
    if (!own)
        error = check_self(c);
    if (c->status == 0 && error == 0 && c->self.num_puts > 0)
        error = rs_creation_meet_self(c);
    if (error != 0)
        rs_creation_failed(c, error);
    agree(c);
    if (c->status == 0)
        return 0;
    if (own)
        return rs_fail(c->status, "%s", c->reason);
    return rs_fail(c->status, "making exchange %llu: %s",
                   (unsigned long long)c->x->tag, c->reason);
}

/* From now on the lanes hold their peers. */
static void release_peers(struct rs_creation *c)
{
    pthread_mutex_lock(&c->context->lock);
    rs_talk_release_peers(c, &c->self);
    for (uint32_t i = 0; i < c->num_talks; i++)
        rs_talk_release_peers(c, &c->talks[i]);
    pthread_mutex_unlock(&c->context->lock);
}

/* What a variable exchange moves is loaded later. */
static int find_place(struct rs_creation *c, bool out, uint32_t id,
                      const struct rsched_put *put,
                      const void *const *addresses, struct rsched_place *place)
{
    int error = 0;

    if ((c->x->flags & RSCHED_EXCHANGE_VARIABLE) == 0)
        error = rs_exchange_check_address(c->x, out, id, put, addresses);
    return error != 0 ? error
                      : rs_exchange_place(c->x, out, id, put, addresses, place);
}

/* @return `status`, or what is wrong with a buffer */
static int find_places(struct rs_creation *c, int status)
{
    const void *const *send = c->params->send;
    const void *const *receive = (const void *const *)c->params->receive;

    rs_exchange_find_gpus(c->x);
    for (uint32_t i = 0; status == 0 && i < c->x->num_puts; i++)
        status = find_place(c, true, i, rsched_pattern_put(c->pattern, i), send,
                            &c->puts[i]);
    for (uint32_t i = 0; status == 0 && i < c->x->num_receives; i++)
        status = find_place(c, false, i, rsched_pattern_receive(c->pattern, i),
                            receive, &c->receives[i]);
    return status;
}

int rs_exchange_agree(struct rsched_exchange *x,
                      const struct rsched_exchange_params *params, int status)
{
    struct rs_creation c = {
        .context = x->context,
        .x = x,
        .params = params,
        .pattern = params->pattern,
        .k = calloc((size_t)x->num_puts + 1, sizeof(uint32_t)),
        .puts = calloc((size_t)x->num_puts + 1, sizeof(struct rsched_place)),
        .receives =
            calloc((size_t)x->num_receives + 1, sizeof(struct rsched_place)),
        .self = {.process = x->context->params.process},
    };
    int error = RSCHED_ENOMEM;

    if (c.k != NULL && c.puts != NULL && c.receives != NULL)
        error = make_all(&c, find_places(&c, status));
    else
        rs_fail(error, "no memory for an exchange");
    release_peers(&c);
    for (uint32_t i = 0; i < c.num_talks; i++) {
        free(c.talks[i].receives);
        free(c.talks[i].sizes_out);
        free(c.talks[i].sizes_in);
    }
    free(c.self.receives);
    rs_plan_fini(&c.plan);
    free(c.talks);
    free(c.k);
    free(c.puts);
    free(c.receives);
    return error;
}
