/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts of one lane of the verbs engine, for check-cost to count instructions:
 *
 *     verbs-cost PUTS STARTS
 *
 * 1 put of 8 bytes lands, more of them of 8 KiB go directly, each with a work
 * request of its own, to a peer in the same thread. libibverbs' functions that
 * the queue needs are defined here: a device executes what is posted at once, by
 * the interpreter. What it costs is not counted (device_post, device_poll).
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/rdma/rdma.h"
#include "engines/verbs/queue.h"
#include "engines/verbs/verbs.h"
#include "tests/verbs/interpreter.h"

enum { DEPTH = 64, PIECES = 16, INLINE = 220, PUT = 8192, GAP = 64 };

/* ---- the device ---- */

struct device_qp {
    struct ibv_qp qp; /* first */
    struct device_cq *cq;
};

struct device_cq {
    struct ibv_cq cq; /* first */
    unsigned completions;
};

int device_post(struct ibv_qp *qp, struct ibv_send_wr *wr,
                struct ibv_send_wr **bad);
int peer_post(struct ibv_qp *qp, struct ibv_send_wr *wr,
              struct ibv_send_wr **bad);
int device_poll(struct ibv_cq *cq, int most, struct ibv_wc *wc);

__attribute__((noinline)) int peer_post(struct ibv_qp *qp,
                                        struct ibv_send_wr *wr,
                                        struct ibv_send_wr **bad)
{
    (void)bad;
    if (interpreter_execute(wr, INLINE, PIECES) < 0)
        abort();
    for (; wr != NULL; wr = wr->next)
        ((struct device_qp *)qp)->cq->completions +=
            (wr->send_flags & IBV_SEND_SIGNALED) != 0;
    return 0;
}

__attribute__((noinline)) int device_post(struct ibv_qp *qp,
                                          struct ibv_send_wr *wr,
                                          struct ibv_send_wr **bad)
{
    return peer_post(qp, wr, bad) | (wr == NULL);
}

__attribute__((noinline)) int device_poll(struct ibv_cq *cq, int most,
                                          struct ibv_wc *wc)
{
    struct device_cq *c = (struct device_cq *)cq;

    (void)most;
    if (c->completions == 0)
        return 0;
    c->completions--;
    *wc = (struct ibv_wc){.status = IBV_WC_SUCCESS};
    return 1;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
                             void *cq_context, struct ibv_comp_channel *channel,
                             int vector)
{
    struct device_cq *c = calloc(1, sizeof(*c));

    (void)cqe, (void)cq_context, (void)channel, (void)vector;
    assert(c != NULL);
    c->cq.context = context;
    return &c->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    free(cq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    static uint32_t number;
    struct device_qp *q = calloc(1, sizeof(*q));

    assert(q != NULL);
    q->qp.context = pd->context;
    q->qp.qp_num = ++number;
    q->cq = (struct device_cq *)attr->send_cq;
    return &q->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    free(qp);
    return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp, (void)attr, (void)mask;
    return 0;
}

/* ---- its port ---- */

static int port_check(struct rs_rdma_port *port)
{
    (void)port;
    return 0;
}

static const struct rs_rdma_port_ops port_ops = {
    .address = interpreter_port_address,
    .check = port_check,
    .close = interpreter_port_close,
    .memory_register = interpreter_memory_register,
    .memory_release = interpreter_memory_release,
    .queue_connect = rs_verbs_queue_connect,
    .queue_create = rs_verbs_queue_create,
    .queue_destroy = rs_verbs_queue_destroy,
};

/* Process 0 sends: only its posts are those that are counted around. */
static int ports(const struct rsched_engine_env *env,
                 struct rs_rdma_port **found)
{
    static struct ibv_context contexts[2];
    static struct ibv_pd pds[2];
    struct rs_verbs_port *port = calloc(1, sizeof(*port));
    int i = env->process;

    assert(port != NULL);
    contexts[i].ops.post_send = i == 0 ? device_post : peer_post;
    contexts[i].ops.poll_cq = device_poll;
    pds[i].context = &contexts[i];
    *port = (struct rs_verbs_port){.port = {.ops = &port_ops,
                                            .name = "none/1",
                                            .max_pieces = PIECES,
                                            .max_inline = INLINE,
                                            .max_ops = DEPTH,
                                            .in_order = true},
                                   .context = &contexts[i],
                                   .pd = &pds[i]};
    found[0] = &port->port;
    return 1;
}

/* ---- the lane ---- */

struct end {
    struct rsched_engine *engine;
    struct rsched_connection *connection;
    struct rsched_lane *lane;
};

static void must(int error)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s\n", rsched_last_error());
    exit(1);
}

static void connect_ends(struct end *ends)
{
    unsigned char address[2][RSCHED_ENGINE_ADDRESS_BYTES] = {{0}};
    unsigned char offer[2][RSCHED_ENGINE_OFFER_BYTES] = {{0}};

    for (int i = 0; i < 2; i++) {
        struct rsched_engine_env env = {
            .process = i, .chunk_bytes = PUT, .ring_bytes = 8 * PUT};

        must(rs_rdma_open("verbs", &env, ports, &ends[i].engine));
        rs_rdma_address(ends[i].engine, address[i]);
    }
    for (int i = 0; i < 2; i++) {
        must(rs_rdma_connect(ends[i].engine, 1 - i, address[1 - i],
                             &ends[i].connection));
        rs_rdma_offer(ends[i].connection, offer[i]);
    }
    for (int i = 0; i < 2; i++)
        must(rs_rdma_accept(ends[i].connection, offer[1 - i]));
}

static void make_lane(struct end *ends, uint64_t bytes)
{
    unsigned char descriptor[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};
    unsigned char reply[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};
    struct rsched_lane_spec spec = {.bytes = bytes};

    must(rs_rdma_rx_create(ends[1].connection, &spec, descriptor,
                           &ends[1].lane));
    must(rs_rdma_tx_create(ends[0].connection, &spec, descriptor, reply,
                           &ends[0].lane));
    must(rs_rdma_rx_attach(ends[1].lane, reply));
    ends[1].lane->attached = true;
}

static void load(struct end *ends, uint64_t puts, uint64_t bytes)
{
    char *memory = calloc(2 * puts + 1, bytes + GAP);
    struct rsched_piece from = {memory, bytes, puts, (int64_t)bytes};
    struct rsched_piece to = {memory + puts * bytes, bytes, puts,
                              (int64_t)(bytes + GAP)};
    struct rsched_message message = {&from, 1, puts * bytes, 0, 1, puts * bytes, NULL};

    assert(memory != NULL);
    memset(memory, 1, puts * bytes);
    must(rs_rdma_tx_load(ends[0].lane, &message));
    message.pieces = &to;
    must(rs_rdma_rx_load(ends[1].lane, &message));
}

int main(int argc, char **argv)
{
    uint64_t puts = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t starts = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t bytes = puts == 1 ? 8 : PUT;
    enum rsched_way way = puts == 1 ? RSCHED_WAY_LANDING : RSCHED_WAY_DIRECT;
    struct end ends[2];

    if (starts == 0)
        return 2;
    connect_ends(ends);
    make_lane(ends, puts * bytes);
    load(ends, puts, bytes);
    for (uint64_t i = 0; i < starts; i++) {
        rs_rdma_rx_start(ends[1].lane);
        if (rs_rdma_tx_start(ends[0].lane) != RSCHED_LANE_DONE ||
            rs_rdma_rx_progress(ends[1].lane) != RSCHED_LANE_DONE)
            return 1;
    }
    return ends[0].lane->stats.bytes[way] != starts * puts * bytes;
}
