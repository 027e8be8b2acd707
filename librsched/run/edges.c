/* SPDX-License-Identifier: BSD-3-Clause */
/* The edges of an exchange that is being made, and their lanes. */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/run/talk.h"

/* The edge of a peer and rail in an array with room; made if there is none. */
static struct rs_edge *find_edge(struct rs_edge *edges, uint32_t *num_edges,
                                 struct rs_peer *peer, uint32_t rail)
{
    for (uint32_t e = *num_edges; e-- > 0;) {
        if (edges[e].peer == peer && edges[e].rail == rail)
            return &edges[e];
    }
    edges[*num_edges] = (struct rs_edge){.peer = peer, .rail = rail};
    return &edges[(*num_edges)++];
}

static int add_to_edge(struct rs_edge *edges, uint32_t *num_edges,
                       const struct rs_talk *t, bool on_gpu,
                       const uint8_t rail[RS_NUM_USES], uint32_t id)
{
    enum rs_use use = on_gpu ? RS_USE_GPUS : RS_USE_HOST;
    struct rs_peer *peer = t->peers[use];
    struct rs_edge *e;

    if (peer == NULL)
        return rs_fail(RSCHED_EMISMATCH, "a process has GPU memory of which it "
                                         "did not tell at first");
    e = find_edge(edges, num_edges, peer, rail[use]);
    if (on_gpu && e->num_order == 0) {
        e->beside_peer = t->peers[RS_USE_LOOPBACK];
        e->beside_rail = rail[RS_USE_LOOPBACK];
    }
    return rs_order_append(&e->order, &e->num_order, id);
}

void rs_talk_find_rails(const struct rs_talk *t, uint32_t engine,
                        uint8_t rail[RS_NUM_USES])
{
    for (int use = 0; use < RS_NUM_USES; use++)
        rail[use] = (uint8_t)(t->peers[use] == NULL
                                  ? 0
                                  : engine % rs_peer_rails(t->peers[use]));
}

/* What the other end of a put has said of itself; of the process's own puts we
 * know. */
static bool is_received_on_gpu(const struct rs_creation *c,
                               const struct rs_talk *t, uint32_t k)
{
    if (t == &c->self)
        return c->receives[t->receives[k]].kind == RSCHED_PLACE_GPU;
    return t->sizes_in->of[t->hello_in.num_puts + k].on_gpu != 0;
}

/* Edges begin in the order of their first puts in the plan. */
int rs_edges_make_out(struct rs_creation *c)
{
    struct rsched_exchange *x = c->x;

    x->out = calloc((size_t)x->num_puts + 1, sizeof(*x->out));
    if (x->out == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for edges");
    for (uint32_t i = 0; i < x->num_puts; i++) {
        uint32_t id = c->plan.order[i];
        struct rs_talk *t =
            rs_creation_talk(c, rsched_pattern_put(c->pattern, id)->destination);
        bool on_gpu = c->puts[id].kind == RSCHED_PLACE_GPU ||
                      is_received_on_gpu(c, t, c->k[id]);
        uint8_t rail[RS_NUM_USES];
        int error;

        if (t == &c->self)
            rs_talk_find_rails(t, c->plan.engine[id], rail);
        else /* in the order of the plan, too */
            memcpy(rail, t->sizes_out->of[t->dealt++].rail, sizeof(rail));
        error = add_to_edge(x->out, &x->num_out, t, on_gpu, rail, id);
        if (error != 0)
            return error;
    }
    return 0;
}

/* Receives meet puts in the order in which these travel. */
int rs_edges_add_in(struct rs_creation *c, const struct rs_talk *t,
                    const struct rs_size *puts)
{
    for (uint32_t i = 0; i < t->num_receives; i++) {
        uint32_t id = t->receives[puts[i].k];
        bool on_gpu =
            puts[i].on_gpu != 0 || c->receives[id].kind == RSCHED_PLACE_GPU;
        int error = add_to_edge(c->x->in, &c->x->num_in, t, on_gpu,
                                puts[i].rail, id);

        if (error != 0)
            return error;
    }
    return 0;
}

/* The exchange's group of the engine that an edge goes over, made with its first
 * lane. The caller holds the context's lock. */
static int find_group(struct rsched_exchange *x, const struct rs_edge *edge,
                      struct rsched_group **group)
{
    const struct rsched_engine_ops *ops = edge->peer->ops;
    struct rs_group *g = x->groups;
    int error;

    if (ops->group_create == NULL)
        return 0;
    while (g < x->groups + x->num_groups && g->ops != ops)
        g++;
    if (g == x->groups + x->num_groups) {
        error = ops->group_create(
            x->context->engines[edge->peer->engine].engine, &g->group);
        if (error != 0)
            return error;
        g->ops = ops;
        x->num_groups++;
        x->flushes = x->flushes || ops->group_flush != NULL;
    }
    *group = g->group;
    return 0;
}

/* Edges by which other processes send something. */
static uint32_t count_senders(const struct rsched_exchange *x)
{
    uint32_t senders = 0;

    for (uint32_t i = 0; i < x->num_in; i++)
        senders += x->in[i].peer->process != x->context->params.process;
    return senders;
}

/* Each message is as long as the sizes that its put and receive have. */
static struct rsched_lane_spec lane_spec(const struct rs_creation *c,
                                         const struct rs_edge *edge,
                                         uint32_t which, bool out)
{
    struct rsched_lane_spec spec = {.rail = which == 0 ? edge->rail
                                                       : edge->beside_rail,
                                    .edges = count_senders(c->x),
                                    .gpus = rs_peer_has_gpus(edge->peer),
                                    .beside = which != 0,
                                    .place = {RSCHED_PLACE_HOST, -1}};

    for (uint32_t i = 0; spec.gpus && i < edge->num_order &&
                         spec.place.kind != RSCHED_PLACE_GPU;
         i++)
        spec.place = (out ? c->puts : c->receives)[edge->order[i]];
    if ((c->x->flags & RSCHED_EXCHANGE_VARIABLE) != 0)
        return spec;
    for (uint32_t i = 0; i < edge->num_order; i++)
        spec.bytes += (out ? rsched_pattern_put
                           : rsched_pattern_receive)(c->pattern, edge->order[i])
                          ->bytes;
    return spec;
}

static struct rs_peer *peer_of(const struct rs_edge *edge, uint32_t which)
{
    return which == 0 ? edge->peer : edge->beside_peer;
}

static void adopt(struct rs_edge *edge, uint32_t which,
                  struct rsched_lane *lane)
{
    struct rs_peer *peer = peer_of(edge, which);

    if (lane->ops == NULL)
        lane->ops = peer->ops;
    lane->engine = (unsigned)peer->engine;
    rs_peer_acquire(peer);
    if (which == 0)
        edge->lane = lane;
    else
        edge->beside = edge->lane->beside = lane;
}

int rs_edge_create_rx(struct rs_creation *c, struct rs_edge *edge,
                      uint32_t which, unsigned char *descriptor)
{
    struct rsched_lane_spec spec = lane_spec(c, edge, which, false);
    struct rs_peer *peer = peer_of(edge, which);
    struct rsched_lane *lane;
    int error = 0;

    pthread_mutex_lock(&c->context->lock);
    if (which == 0)
        error = find_group(c->x, edge, &spec.group);
    if (error == 0)
        error = peer->ops->rx_create(peer->connection, &spec, descriptor,
                                     &lane);
    if (error == 0)
        adopt(edge, which, lane);
    pthread_mutex_unlock(&c->context->lock);
    return error;
}

int rs_edge_create_tx(struct rs_creation *c, struct rs_edge *edge,
                      uint32_t which, const unsigned char *descriptor,
                      unsigned char *reply)
{
    struct rsched_lane_spec spec = lane_spec(c, edge, which, true);
    struct rs_peer *peer = peer_of(edge, which);
    struct rsched_lane *lane;
    int error = 0;

    pthread_mutex_lock(&c->context->lock);
    if (which == 0)
        error = find_group(c->x, edge, &spec.group);
    if (error == 0)
        error = peer->ops->tx_create(peer->connection, &spec, descriptor, reply,
                                     &lane);
    if (error == 0)
        adopt(edge, which, lane);
    pthread_mutex_unlock(&c->context->lock);
    return error;
}

int rs_edge_attach_rx(struct rs_creation *c, struct rs_edge *edge,
                      uint32_t which, const unsigned char *reply)
{
    struct rsched_lane *lane = which == 0 ? edge->lane : edge->beside;
    int error;

    pthread_mutex_lock(&c->context->lock);
    error = lane->ops->rx_attach(lane, reply);
    pthread_mutex_unlock(&c->context->lock);
    return error;
}

static void abandon_lane(struct rsched_lane *lane, bool out)
{
    if (lane != NULL)
        (out ? lane->ops->tx_abandon : lane->ops->rx_abandon)(lane);
}

void rs_edge_abandon(const struct rs_edge *edge, bool out)
{
    abandon_lane(edge->lane, out);
    abandon_lane(edge->beside, out);
}

static void destroy_lane(struct rsched_context *context, struct rsched_lane *lane,
                         struct rs_peer *peer, bool out)
{
    if (lane == NULL)
        return;
    (out ? lane->ops->tx_destroy : lane->ops->rx_destroy)(lane);
    rs_context_release_peer(context, peer);
}

void rs_edge_destroy(struct rsched_context *context, const struct rs_edge *edge,
                     bool out)
{
    destroy_lane(context, edge->lane, edge->peer, out);
    destroy_lane(context, edge->beside, edge->beside_peer, out);
}

/* Needs no messages. The sender's order is the receiver's. */
static int make_self(struct rs_creation *c, struct rs_edge *out)
{
    struct rsched_exchange *x = c->x;
    unsigned char descriptor[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};
    unsigned char reply[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};
    const uint8_t rail[RS_NUM_USES] = {0};
    struct rs_edge *in;
    int error = 0;

    for (uint32_t i = 0; error == 0 && i < out->num_order; i++)
        error = add_to_edge(x->in, &x->num_in, &c->self,
                            rs_peer_has_gpus(out->peer), rail,
                            c->self.receives[c->k[out->order[i]]]);
    if (error != 0)
        return error;
    in = find_edge(x->in, &x->num_in, out->peer, 0);
    error = rs_edge_create_rx(c, in, 0, descriptor);
    if (error == 0)
        error = rs_edge_create_tx(c, out, 0, descriptor, reply);
    if (error == 0)
        error = rs_edge_attach_rx(c, in, 0, reply);
    if (error == 0)
        in->lane->attached = true;
    return error;
}

int rs_edges_make_self(struct rs_creation *c)
{
    struct rsched_exchange *x = c->x;
    int error = 0;

    for (uint32_t e = 0; error == 0 && e < x->num_out; e++) {
        if (rs_edge_is_with(&x->out[e], &c->self))
            error = make_self(c, &x->out[e]);
    }
    return error;
}
