/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/verbs/queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "engines/mlx5/gpu.h"
#include "engines/verbs/verbs.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

enum {
    MAX_INLINE = 220, /* four units of 64 bytes in a ConnectX send queue */
    /* A stalled host must not look like a dead one: with RSCHED_ACK_TIMEOUT's
     * default of a second a dead peer is known after some ten. Soft-RoCE takes
     * 7 retries, the most that there can be, for endless ones. */
    RETRIES = 6,
    RNR_RETRIES = 7, /* for ever: a receiver may be busy */
    RNR_TIMER = 12,  /* 0.64 ms */
    HOP_LIMIT = 64,
    /* Of a request, at most: of RS_GPU_WORDS_INLINE or 16 pieces, behind the 192
     * bytes that libmlx5 counts for any head. */
    MLX5_BLOCKS = 8,
};

struct list {
    struct rs_rdma_list list; /* first: the public part */
    struct rs_verbs_chain chain;
    uint64_t posted; /* the queue's `rings` after it will have been rung */
};

static struct rs_verbs_queue *queue_of(struct rs_rdma_queue *queue)
{
    return (struct rs_verbs_queue *)queue;
}

/* A queue that takes no immediates needs one nevertheless, to be made. */
static uint32_t receives_of(const struct rs_verbs_port *port)
{
    return port->port.notify == RS_NOTIFY_IMM ? port->receives : 1;
}

/* After a failure every request has a completion, signalled or not. Who writes
 * the commands himself has one for each block of the ring. */
static uint32_t completions_of(const struct rs_verbs_queue *q)
{
    return q->port->mlx5 ? q->depth * MLX5_BLOCKS : q->depth + 1;
}

static struct ibv_qp *make_qp(struct rs_verbs_port *port, struct ibv_cq *cq,
                              struct ibv_cq *receive_cq, uint32_t depth,
                              uint32_t receives, uint32_t max_inline,
                              struct ibv_qp_cap *granted)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = receive_cq,
        .cap = {.max_send_wr = depth,
                .max_recv_wr = receives,
                .max_send_sge = port->port.max_pieces,
                .max_recv_sge = 1,
                .max_inline_data = max_inline},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = NULL;

    /* It may be given to kernels; what the host inlines is another matter. */
    if (port->mlx5 && max_inline < RS_GPU_WORDS_INLINE) {
        attr.cap.max_inline_data = RS_GPU_WORDS_INLINE;
        qp = ibv_create_qp(port->pd, &attr);
    }
    if (qp == NULL) {
        attr.cap.max_inline_data = max_inline;
        qp = ibv_create_qp(port->pd, &attr);
    }
    *granted = attr.cap;
    return qp;
}

static const uint32_t inlines[] = {MAX_INLINE, 128, 64, 28, 8};

static bool can_have(struct rs_verbs_port *port, struct ibv_cq *cq,
                     uint32_t depth, uint32_t pieces, uint32_t max_inline)
{
    struct ibv_qp_cap cap;
    struct ibv_qp *qp;

    port->port.max_ops = depth;
    port->port.max_pieces = pieces;
    port->port.max_inline = max_inline;
    qp = make_qp(port, cq, cq, depth, port->receives, max_inline, &cap);
    if (qp != NULL)
        ibv_destroy_qp(qp);
    return qp != NULL;
}

static bool can_have_least(struct rs_verbs_port *port, struct ibv_cq *cq)
{
    return can_have(port, cq, RS_VERBS_LEAST_DEPTH, 1, RS_VERBS_LEAST_INLINE);
}

/* What a device says of each limit need not hold of all of them together. Bytes
 * inline are lowered first, requests last, and before all of them receives, as far
 * as even the least cannot be had with them: with few of them a peer's device only
 * tries again more often. */
static void lower(struct rs_verbs_port *port, struct ibv_cq *cq)
{
    uint32_t depth = port->port.max_ops, pieces = port->port.max_pieces;

    for (uint32_t d = depth; d >= RS_VERBS_LEAST_DEPTH; d /= 2) {
        for (uint32_t p = pieces; p > 0; p /= 2) {
            for (size_t i = 0; i < sizeof(inlines) / sizeof(inlines[0]); i++) {
                if (can_have(port, cq, d, p, inlines[i]))
                    return;
            }
        }
    }
    can_have_least(port, cq);
}

int rs_verbs_find_limits(struct rs_verbs_port *port)
{
    uint32_t depth = port->port.max_ops, pieces = port->port.max_pieces;
    struct ibv_cq *cq = ibv_create_cq(port->context, 8, NULL, NULL, 0);
    int error = 0;

    if (cq == NULL)
        return errno;
    while (error == 0 && !can_have_least(port, cq)) {
        if (port->receives > 1)
            port->receives /= 2;
        else
            error = errno; /* nothing less helps */
    }
    port->port.max_ops = depth;
    port->port.max_pieces = pieces;
    if (error == 0)
        lower(port, cq);
    ibv_destroy_cq(cq);
    return error;
}

static int to_init(struct rs_verbs_queue *q)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = q->port->number,
        .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           (q->port->port.fetch_add ? IBV_ACCESS_REMOTE_ATOMIC
                                                    : 0),
    };

    return ibv_modify_qp(q->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                             IBV_QP_ACCESS_FLAGS);
}

/* Without memory: an immediate travels in the completion. */
static int post_receives(struct rs_verbs_queue *q, uint32_t count)
{
    int error = 0;

    for (uint32_t i = 0; i < count && error == 0; i++) {
        struct ibv_recv_wr wr = {0}, *bad;

        error = ibv_post_recv(q->qp, &wr, &bad);
    }
    return error;
}

int rs_verbs_queue_create(struct rs_rdma_port *port,
                          struct rs_rdma_endpoint *endpoint,
                          struct rs_rdma_queue **queue)
{
    struct rs_verbs_queue *q = calloc(1, sizeof(*q));
    int error = RSCHED_ENOMEM;

    if (q == NULL)
        return rs_fail(error, "verbs %s: no memory", port->name);
    q->queue.ops = &rs_verbs_queue_ops;
    q->port = (struct rs_verbs_port *)port;
    q->depth = port->max_ops;
    q->posts = calloc(q->depth, sizeof(*q->posts));
    if (q->posts == NULL) {
        rs_fail(error, "verbs %s: no memory", port->name);
        goto err_free;
    }
    q->cq = ibv_create_cq(q->port->context, (int)completions_of(q), NULL, NULL,
                          0);
    if (q->cq == NULL) {
        error = rs_fail(RSCHED_ESYS,
                        "verbs %s: making a completion queue of %u: %m",
                        port->name, completions_of(q));
        goto err_free;
    }
    q->receive_cq = ibv_create_cq(q->port->context,
                                  (int)receives_of(q->port) + 1, NULL, NULL, 0);
    if (q->receive_cq == NULL) {
        error = rs_fail(RSCHED_ESYS,
                        "verbs %s: making a completion queue of %u: %m",
                        port->name, receives_of(q->port) + 1);
        goto err_destroy_cq;
    }
    q->qp = make_qp(q->port, q->cq, q->receive_cq, q->depth,
                    receives_of(q->port), port->max_inline, &q->cap);
    if (q->qp == NULL) {
        error = rs_fail(RSCHED_ESYS,
                        "verbs %s: making a queue pair of %u requests with %u "
                        "pieces or %u bytes inline: %m",
                        port->name, q->depth, port->max_pieces,
                        port->max_inline);
        goto err_destroy_receive_cq;
    }
    error = to_init(q);
    if (error == 0 && port->notify == RS_NOTIFY_IMM)
        error = post_receives(q, receives_of(q->port));
    if (error != 0) {
        errno = error;
        error = rs_fail(RSCHED_ESYS, "verbs %s: qp %#x to INIT: %m",
                        port->name, q->qp->qp_num);
        goto err_destroy_qp;
    }
    endpoint->number = q->qp->qp_num;
    if (getrandom(&endpoint->psn, sizeof(endpoint->psn), 0) < 0)
        endpoint->psn = q->qp->qp_num;
    endpoint->psn &= 0xffffff;
    q->psn = endpoint->psn;
    *queue = &q->queue;
    return 0;

err_destroy_qp:
    ibv_destroy_qp(q->qp);
err_destroy_receive_cq:
    ibv_destroy_cq(q->receive_cq);
err_destroy_cq:
    ibv_destroy_cq(q->cq);
err_free:
    free(q->posts);
    free(q);
    return error;
}

static void set_path(const struct rs_verbs_queue *q,
                     const struct rs_verbs_address *remote,
                     struct ibv_ah_attr *path)
{
    path->port_num = q->port->number;
    path->dlid = remote->lid;
    if (!remote->roce && !q->port->address.roce)
        return;
    path->is_global = 1;
    memcpy(path->grh.dgid.raw, remote->gid, sizeof(remote->gid));
    path->grh.sgid_index = q->port->gid_index;
    path->grh.hop_limit = HOP_LIMIT;
}

static int to_rtr(struct rs_verbs_queue *q,
                  const struct rs_verbs_address *remote,
                  const struct rs_rdma_endpoint *endpoint)
{
    uint8_t own_mtu = q->port->address.mtu;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = remote->mtu < own_mtu ? remote->mtu : own_mtu,
        .dest_qp_num = endpoint->number,
        .rq_psn = endpoint->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = RNR_TIMER,
    };

    set_path(q, remote, &attr.ah_attr);
    return ibv_modify_qp(q->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                             IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC |
                             IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct rs_verbs_queue *q)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = (uint8_t)rs_config()->ack_timeout,
        .retry_cnt = RETRIES,
        .rnr_retry = RNR_RETRIES,
        .sq_psn = q->psn,
        .max_rd_atomic = 1,
    };

    return ibv_modify_qp(q->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
}

int rs_verbs_queue_connect(struct rs_rdma_queue *queue,
                           const unsigned char *address,
                           const struct rs_rdma_endpoint *endpoint)
{
    struct rs_verbs_queue *q = queue_of(queue);
    struct rs_verbs_address remote;
    int error;

    memcpy(&remote, address, sizeof(remote));
    error = to_rtr(q, &remote, endpoint);
    if (error == 0)
        error = to_rts(q);
    if (error == 0)
        return 0;
    errno = error;
    return rs_fail(RSCHED_ESYS,
                   "verbs %s: qp %#x cannot be connected with qp %#x: %m",
                   q->port->port.name, q->qp->qp_num, endpoint->number);
}

#ifdef RSCHED_HAVE_ORDER
bool rs_verbs_queue_is_in_order(struct rs_rdma_queue *queue, bool in_gpu)
{
    uint32_t flags = 0;

#ifdef RSCHED_HAVE_ORDER_OF_DEVICE
    /* Without it the library says no for all processors but x86, whose memory
     * this is not. */
    if (in_gpu)
        flags = IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY;
#else
    (void)in_gpu;
#endif
    /* What the peer's writes are seen in here; libmlx5 knows it of a queue pair
     * that can send. */
    return ibv_query_qp_data_in_order(queue_of(queue)->qp, IBV_WR_RDMA_WRITE,
                                      flags) == 1;
}
#endif

void rs_verbs_queue_destroy(struct rs_rdma_queue *queue)
{
    struct rs_verbs_queue *q = queue_of(queue);

    ibv_destroy_qp(q->qp);
    ibv_destroy_cq(q->receive_cq);
    ibv_destroy_cq(q->cq);
    free(q->posts);
    free(q);
}

static int verbs_list_create(struct rs_rdma_queue *queue,
                             const struct rs_rdma_op *ops, uint32_t num_ops,
                             struct rs_rdma_list **list)
{
    struct rs_verbs_queue *q = queue_of(queue);
    struct list *l;
    int error;

    if (num_ops > q->depth)
        return rs_fail(RSCHED_ELIMIT,
                       "verbs %s: %u work requests in a queue of %u",
                       q->port->port.name, num_ops, q->depth);
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for work requests");
    error = rs_verbs_chain_init(&l->chain, ops, num_ops);
    if (error != 0) {
        free(l);
        return error;
    }
    l->list.queue = queue;
    *list = &l->list;
    return 0;
}

static void verbs_list_destroy(struct rs_rdma_list *list)
{
    struct list *l = (struct list *)list;

    rs_verbs_chain_fini(&l->chain);
    free(l);
}

/* What the device says of what it was at tells when it has let go of it. */
void rs_verbs_queue_end(struct rs_rdma_queue *queue)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    ibv_modify_qp(queue_of(queue)->qp, &attr, IBV_QP_STATE);
}

void rs_verbs_queue_stop(struct rs_rdma_queue *queue)
{
    queue_of(queue)->failed = true;
    rs_verbs_queue_end(queue);
}

static int verbs_ring(struct rs_rdma_queue *queue)
{
    struct rs_verbs_queue *q = queue_of(queue);
    struct ibv_send_wr *head = q->head, *bad;
    int error;

    if (head == NULL)
        return 0;
    error = ibv_post_send(q->qp, head, &bad);
    q->rings++;
    q->head = q->tail = NULL;
    if (error == 0)
        return 0;
    rs_verbs_queue_stop(queue); /* it may be at those before the refused one */
    errno = error;
    return rs_fail(RSCHED_ESYS, "posting: %m"); /* the link says where */
}

static bool verbs_post(struct rs_rdma_list *list, uint64_t epoch, uint64_t id)
{
    struct list *l = (struct list *)list;
    struct rs_verbs_queue *q = queue_of(list->queue);
    struct rs_verbs_chain *chain = &l->chain;
    struct ibv_send_wr *last = &chain->requests[chain->num_requests - 1];

    if (q->failed || q->used + chain->num_requests > q->depth)
        return false;
    if (l->posted == q->rings + 1 && verbs_ring(list->queue) != 0)
        return false; /* it cannot be twice in one chain */
    l->posted = q->rings + 1;
    rs_verbs_chain_stamp(chain, epoch);
    last->next = NULL;
    if (q->head == NULL)
        q->head = chain->requests;
    else
        q->tail->next = chain->requests;
    q->tail = last;
    q->posts[(q->first_post + q->num_posts++) % q->depth] =
        (struct rs_verbs_post){.id = id, .num_requests = chain->num_requests};
    q->used += chain->num_requests;
    return true;
}

static void take_post(struct rs_verbs_queue *q, struct rs_rdma_done *done)
{
    struct rs_verbs_post *post = &q->posts[q->first_post];

    *done = (struct rs_rdma_done){.id = post->id};
    q->used -= post->num_requests;
    q->first_post = (q->first_post + 1) % q->depth;
    q->num_posts--;
}

/* The first request that failed tells why; all later ones are flushed, and
 * their completions say nothing new. */
static int verbs_poll(struct rs_rdma_queue *queue, struct rs_rdma_done *done)
{
    struct rs_verbs_queue *q = queue_of(queue);
    struct ibv_wc wc;
    int polled;

    if (q->num_posts == 0)
        return 0;
    if (q->failed) {
        take_post(q, done);
        done->failed = done->flushed = true;
        done->cause = ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR);
        return 1;
    }
    polled = ibv_poll_cq(q->cq, 1, &wc);
    if (polled == 0)
        return 0;
    if (polled < 0) {
        rs_verbs_queue_stop(queue);
        return rs_fail(RSCHED_ESYS, "polling failed");
    }
    take_post(q, done);
    if (wc.status == IBV_WC_SUCCESS)
        return 1;
    q->failed = true;
    done->failed = true;
    done->flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
    done->op = (uint32_t)wc.wr_id;
    done->cause = ibv_wc_status_str(wc.status);
    done->vendor_error = wc.vendor_err;
    return 1;
}

static int take_failed(struct rs_verbs_queue *q, const char *what,
                       const char *why)
{
    rs_verbs_queue_stop(&q->queue);
    return rs_fail(RSCHED_ESYS, "%s: %s", what, why);
}

static int verbs_take(struct rs_rdma_queue *queue, uint32_t *imm)
{
    struct rs_verbs_queue *q = queue_of(queue);
    struct ibv_wc wc;
    int polled = ibv_poll_cq(q->receive_cq, 1, &wc);
    int error;

    if (polled == 0 || (polled > 0 && wc.status == IBV_WC_WR_FLUSH_ERR))
        return 0;
    if (polled < 0)
        return take_failed(q, "polling for immediates", "failed");
    if (wc.status != IBV_WC_SUCCESS)
        return take_failed(q, "receiving an immediate",
                           ibv_wc_status_str(wc.status));
    *imm = ntohl(wc.imm_data);
    error = post_receives(q, 1);
    return error == 0 ? 1
                      : take_failed(q, "posting a receive", strerror(error));
}

static void verbs_reset(struct rs_rdma_queue *queue)
{
    struct rs_verbs_queue *q = queue_of(queue);

    q->head = q->tail = NULL;
    q->first_post = q->num_posts = q->used = 0;
    q->failed = false;
}

const struct rs_rdma_queue_ops rs_verbs_queue_ops = {
    .name = "verbs",
    .list_create = verbs_list_create,
    .list_destroy = verbs_list_destroy,
    .poll = verbs_poll,
    .post = verbs_post,
    .reset = verbs_reset,
    .ring = verbs_ring,
    .stop = rs_verbs_queue_end,
    .take = verbs_take,
};
